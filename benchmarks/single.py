"""``get_item`` and ``put_item`` through a ``ShardedTable``, beside the plain ``Table``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import ways
from benchmarks.measure import Figure, alternate, over
from benchmarks.orders import DAY, TABLE, order, order_id, orders, strategy_of
from benchmarks.stub import stub

__all__ = ["single"]

SHARDS = 200
CALLS = 200
"""Calls of one run."""


def single(*, short: bool) -> Iterator[Figure]:
    """CPU of single items at most that of the plain table."""
    runs = 5 if short else 15
    with ExitStack() as stack:
        endpoint = stack.enter_context(stub(shards=SHARDS, items=10 * SHARDS))
        table = stack.enter_context(ways.sharded(endpoint, SHARDS))
        # The plain table has a client of its own: shardkit's handlers are not on it.
        plain = stack.enter_context(ways.resource(endpoint)).Table(TABLE)
        strategy = strategy_of(SHARDS)
        held = [name for _, name in orders(SHARDS, 10 * SHARDS)][:CALLS]
        keys = [{"Date": DAY, "OrderId": name} for name in held]
        physical = [{**key, "Date": strategy.physical_key(DAY, strategy.shard_of(DAY, key))} for key in keys]
        written = [order(order_id(10**8 + number)) for number in range(CALLS)]
        stored = [{**item, "Date": strategy.physical_key(DAY, strategy.shard_of(DAY, item))} for item in written]
        for mine, theirs, name in zip(keys, physical, held, strict=True):
            got = table.get_item(Key=mine)["Item"]
            if not got == {**plain.get_item(Key=theirs)["Item"], "Date": DAY} == {**got, "OrderId": name}:
                raise RuntimeError(f"get_item gave another item than the table's for {name}")
        gets = alternate(
            {
                "shardkit": lambda: [table.get_item(Key=key) for key in keys],
                "boto3": lambda: [plain.get_item(Key=key) for key in physical],
            },
            runs=runs,
        )
        puts = alternate(
            {
                "shardkit": lambda: [table.put_item(Item=item) for item in written],
                "boto3": lambda: [plain.put_item(Item=item) for item in stored],
            },
            runs=runs,
        )
    for operation, timings in (("get_item", gets), ("put_item", puts)):
        value, spread = over(timings["shardkit"], timings["boto3"])
        own, plains = (timings[name].median / CALLS * 1e6 for name in ("shardkit", "boto3"))
        yield Figure(
            bench="single",
            name=f"{operation}: CPU, of boto3's",
            value=value,
            target=1.0,
            spread=spread,
            note=f"{own:,.0f} µs, boto3's {plains:,.0f} µs a call",
        )
