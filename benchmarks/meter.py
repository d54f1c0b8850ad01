"""A ``CapacityMeter`` on a client, beside the same calls without it; sizes, beside boto3's serializing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from typing import Any

from boto3.dynamodb.conditions import Key
from boto3.dynamodb.types import TypeSerializer

from benchmarks import ways
from benchmarks.measure import Figure, alternate, over
from benchmarks.orders import DAY, TABLE, order, order_id, orders, strategy_of
from benchmarks.stub import stub
from shardkit import CapacityMeter, bulk_load
from shardkit.capacity import Trace, item_size

__all__ = ["meter"]

SHARDS = 10
CALLS = 50
"""Calls of one run: few, so that what else the machine does falls on both alike."""
ITEMS = 1000
"""Items of one run of a load."""
HANDLERS = 1.03


def meter(*, short: bool) -> Iterator[Figure]:
    """CPU of metered calls: at most 3% more than of calls that ask what they consume and do nothing with it."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(stub(shards=SHARDS, items=200 * SHARDS))
        plain, metered = (stack.enter_context(ways.resource(endpoint)).Table(TABLE) for _ in range(2))
        counting = CapacityMeter()
        counting.attach(metered)
        made = 0
        for name, asked, call, given in _calls():
            for asks in ({"ReturnConsumedCapacity": asked}, {}):
                timings = alternate(
                    {"metered": partial(_run, metered, call, given), "plain": partial(_run, plain, call, given, asks)},
                    runs=10 if short else 150,
                )
                made += CALLS * (len(timings["metered"].seconds) + 1)
                value, spread = over(timings["metered"], timings["plain"])
                yield Figure(
                    bench="meter",
                    name=f"{name}, metered: CPU, of a call that {'asks for its units' if asks else 'does not ask'}",
                    value=value,
                    target=HANDLERS if asks else None,
                    spread=spread,
                    note=f"{timings['metered'].median / CALLS * 1e6:,.0f} µs, "
                    f"{timings['plain'].median / CALLS * 1e6:,.0f} µs a call",
                )
        if counting.requests != made:
            raise RuntimeError(f"the meter counted {counting.requests} calls of {made}")
        yield _traced(stack.enter_context(ways.resource(endpoint)).Table(TABLE), metered, short=short)
        loads = [stack.enter_context(ways.sharded(endpoint, SHARDS)) for _ in range(2)]
        counting.attach(loads[0])
        items = [order(order_id(10**8 + number)) for number in range(ITEMS)]
        timings = alternate(
            {
                name: partial(bulk_load, table, items, workers=1)
                for name, table in zip(("metered", "plain"), loads, strict=True)
            },
            runs=3 if short else 25,
        )
        value, spread = over(timings["metered"], timings["plain"])
        yield Figure(
            bench="meter",
            name="bulk_load, metered: CPU, of one that is not",
            value=value,
            spread=spread,
            note=f"{timings['metered'].median / ITEMS * 1e6:,.0f} µs, {timings['plain'].median / ITEMS * 1e6:,.0f} µs "
            "an item: units by key, logical and physical",
        )
    yield from _sizes(short=short)


def _traced(traced: Any, metered: Any, *, short: bool) -> Figure:
    """A trace takes about 1 µs of a metered call, which takes some hundred."""
    with tempfile.TemporaryDirectory() as folder, CapacityMeter(trace=Trace(folder, keys="plain")).attach(traced):
        _, _, call, given = next(_calls())
        timings = alternate(
            {"traced": partial(_run, traced, call, given), "metered": partial(_run, metered, call, given)},
            runs=10 if short else 150,
        )
    value, spread = over(timings["traced"], timings["metered"])
    return Figure(
        bench="meter",
        name="get_item, metered with a trace: CPU, of a metered call",
        value=value,
        target=HANDLERS,
        spread=spread,
        note=f"{(timings['traced'].median - timings['metered'].median) / CALLS * 1e6:,.1f} µs a call more",
    )


def _sizes(*, short: bool) -> Iterator[Figure]:
    serialize = TypeSerializer().serialize

    def serialized(item: dict[str, Any]) -> bytes:
        return json.dumps({name: serialize(value) for name, value in item.items()}).encode()  # as botocore does

    for name, item in (
        ("an order", order(order_id(10**8))),
        ("10,000 characters of three bytes", {"OrderId": "A1", "Note": "注" * 10_000}),
        ("ten numbers with exponents", {"OrderId": "A1"} | {f"n{number}": Decimal("1.5E+90") for number in range(10)}),
    ):
        timings = alternate(
            {
                "size": partial(_repeated, partial(item_size, item)),
                "serialized": partial(_repeated, partial(serialized, item)),
            },
            runs=5 if short else 50,
        )
        value, spread = over(timings["size"], timings["serialized"])
        yield Figure(
            bench="meter",
            name=f"item_size of {name}: CPU, of boto3's serializing and writing it",
            value=value,
            target=1.0,
            spread=spread,
            note=f"{timings['size'].median / CALLS * 1e6:,.1f} µs, "
            f"{timings['serialized'].median / CALLS * 1e6:,.1f} µs",
        )


def _repeated(call: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        call()


def _calls() -> Iterator[tuple[str, str, str, list[dict[str, Any]]]]:
    strategy = strategy_of(SHARDS)
    held = [name for _, name in orders(SHARDS, 200 * SHARDS)][:CALLS]
    keys = [
        {"Date": strategy.physical_key(DAY, strategy.shard_of(DAY, {"OrderId": name})), "OrderId": name}
        for name in held
    ]
    yield "get_item", "TOTAL", "get_item", [{"Key": key} for key in keys]
    yield "put_item", "INDEXES", "put_item", [{"Item": order(order_id(10**8 + number))} for number in range(CALLS)]
    day = [{"KeyConditionExpression": Key("Date").eq(key["Date"]), "Limit": 10} for key in keys]
    yield "query of 10 items", "TOTAL", "query", day


def _run(table: Any, call: str, given: list[dict[str, Any]], asks: dict[str, str] | None = None) -> None:
    operation: Callable[..., Any] = getattr(table, call)
    for params in given:
        operation(**params, **(asks or {}))
