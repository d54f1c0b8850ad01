"""The items that are read and written: orders of one day, spread over shards by ``OrderId``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

from shardkit import CalculatedSuffix
from shardkit.capacity import item_size

__all__ = ["DAY", "ORDER_BYTES", "TABLE", "order", "order_id", "orders", "strategy_of", "wire_order"]

TABLE = "Orders"
DAY = "2014-07-09"
ORDER_BYTES = 350
"""The size of each order before its suffix, as capacity units count it."""

_ADDRESS = "17 Rue de la Fontaine au Roi, 75011 Paris, France"
_STATES = ("open", "paid", "sent", "back")


def strategy_of(shards: int) -> CalculatedSuffix:
    """Give the strategy of every bench."""
    return CalculatedSuffix("OrderId", shards=shards)


def order_id(number: int) -> str:
    """Give the sort key of an order; keys ascend with the numbers."""
    return f"A{number:09}"


def wire_order(key: str, order_id: str) -> dict[str, dict[str, Any]]:
    """Give an order of ten attributes and 350 bytes, under a partition key, in wire form."""
    number = int(order_id[1:])
    item: dict[str, dict[str, Any]] = {
        "Date": {"S": DAY},
        "OrderId": {"S": order_id},
        "Customer": {"S": f"customer-{number % 9973:06}@example.com"},
        "Status": {"S": _STATES[number % 4]},
        "Total": {"N": f"{number % 1000 + 100}.5"},
        "Quantity": {"N": str(number % 9 + 1)},
        "Weight": {"N": str(number % 5000 + 10_000)},
        "Paid": {"BOOL": number % 3 == 0},
        "Address": {"S": _ADDRESS},
        "Note": {"S": ""},
    }
    item["Note"]["S"] = "x" * (ORDER_BYTES - item_size(item))
    return {**item, "Date": {"S": key}}


def order(order_id: str) -> dict[str, Any]:
    """Give an order as an application writes it: the logical key, Python values."""
    from boto3.dynamodb.types import TypeDeserializer

    deserialize: Callable[[Any], Any] = TypeDeserializer().deserialize
    return {name: deserialize(value) for name, value in wire_order(DAY, order_id).items()}


def orders(shards: int, items: int) -> Iterator[tuple[str, str]]:
    """Give (physical key, order id) of a day's orders, in order, with as many on each shard as on the others.

    Every order is where its id's hash puts it: ids whose shard is full already are left out.
    """
    strategy = strategy_of(shards)
    full = ceil(items / shards)
    held: Counter[int | None] = Counter()
    given = 0
    for number in itertools.count():
        if given == items:
            return
        name = order_id(number)
        shard = strategy.shard_of(DAY, {"OrderId": name})
        if held[shard] == full:
            continue
        held[shard] += 1
        given += 1
        yield str(strategy.physical_key(DAY, shard)), name
