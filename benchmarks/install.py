"""Calls through an installed client, beside a plain client and a ``ShardedTable``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks import ways
from benchmarks.measure import Figure, Timing, alternate, over
from benchmarks.orders import DAY, TABLE, order_id, strategy_of, wire_order
from benchmarks.stub import stub
from shardkit import install as install_on

__all__ = ["install"]

SHARDS = 20
EACH = 20
CALLS = 200
"""Calls of one run on single items."""
QUERIES = 10


def install(*, short: bool) -> Iterator[Figure]:
    """CPU of an unsharded call, of a put that rides, and of a fan-out, on an installed client."""
    runs = 7 if short else 31
    strategy = strategy_of(SHARDS)
    items = [wire_order(DAY, order_id(10**8 + number)) for number in range(CALLS)]
    stored = [
        {**item, "Date": {"S": strategy.physical_key(DAY, strategy.shard_of(DAY, {"OrderId": item["OrderId"]["S"]}))}}
        for item in items
    ]
    keys = [{name: item[name] for name in ("Date", "OrderId")} for item in stored]
    with ExitStack() as stack:
        endpoint = stack.enter_context(stub(shards=SHARDS, items=SHARDS * EACH))
        sharded, elsewhere, plain = (stack.enter_context(ways.client(endpoint)) for _ in range(3))
        install_on(sharded, {TABLE: strategy})
        install_on(elsewhere, {"Elsewhere": strategy})
        table = stack.enter_context(ways.sharded(endpoint, SHARDS))

        def read(client: Any) -> list[Any]:
            found: list[Any] = client.query(
                TableName=TABLE,
                KeyConditionExpression="#d = :d",
                ExpressionAttributeNames={"#d": "Date"},
                ExpressionAttributeValues={":d": {"S": DAY}},
            )["Items"]
            return found

        def read_table() -> list[Any]:
            found: list[Any] = table.query(KeyConditionExpression=ways.CONDITION)["Items"]
            return found

        if [item["OrderId"]["S"] for item in read(sharded)] != [item["OrderId"] for item in read_table()]:
            raise RuntimeError("the installed client read other items than the ShardedTable")
        for name, mine, other, calls, target in (
            ("unsharded get_item", _gets(elsewhere, keys), _gets(plain, keys), CALLS, 1.02),
            ("unsharded put_item", _puts(elsewhere, stored), _puts(plain, stored), CALLS, 1.02),
            ("sharded put_item", _puts(sharded, items), _puts(plain, stored), CALLS, 1.10),
        ):
            timings = alternate({"installed": mine, "other": other}, runs=runs)
            yield _figure(f"{name}: CPU, of a plain client's", timings, calls, target)
        timings = alternate(
            {
                "installed": lambda: [read(sharded) for _ in range(QUERIES)],
                "other": lambda: [read_table() for _ in range(QUERIES)],
            },
            runs=runs,
        )
        yield _figure(f"query of {SHARDS} shards: CPU, of a ShardedTable's", timings, QUERIES, 1.0)


def _gets(client: Any, keys: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for key in keys:
            client.get_item(TableName=TABLE, Key=key)

    return run


def _puts(client: Any, items: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for item in items:
            client.put_item(TableName=TABLE, Item=item)

    return run


def _figure(name: str, timings: dict[str, Timing], calls: int, target: float) -> Figure:
    value, spread = over(timings["installed"], timings["other"])
    mine, other = (timings[way].median / calls * 1e6 for way in ("installed", "other"))
    return Figure(
        bench="install",
        name=name,
        value=value,
        target=target,
        spread=spread,
        note=f"{mine:,.0f} µs, {other:,.0f} µs a call",
    )
