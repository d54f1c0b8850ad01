"""The ways to write a day's orders: shardkit's, boto3's own, and those of other libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from decimal import Decimal
from functools import partial
from typing import Any

from benchmarks import ways
from benchmarks.orders import DAY, TABLE, order, order_id, strategy_of
from shardkit import bulk_load
from shardkit.runtime.transports import Transport

__all__ = [
    "BATCH_ITEMS",
    "BOTO3",
    "BY_PROCESSES",
    "CORES",
    "DIRECT",
    "DIRECT_MORE",
    "MORE_CONNECTIONS",
    "OURS",
    "PYDYNOX",
    "PYDYNOX_ASYNC",
    "PYDYNOX_MORE",
    "SHARDS",
    "WAYS",
    "Orders",
    "Ways",
    "Write",
    "written",
]

SHARDS = 200
CONNECTIONS = 10
"""Of every client: boto3's own number."""
BATCH_ITEMS = 25
OURS = "bulk_load"
DIRECT = "direct bulk_load"
PROCESSES = 2
BY_PROCESSES = f"bulk_load by {PROCESSES} processes"
BOTO3 = "boto3's batch_writer"
PYDYNOX = "pydynox's sync_batch_write"
PYDYNOX_ASYNC = "pydynox's batch_write"
MORE = 32
DIRECT_MORE, PYDYNOX_MORE = (f"{way} over {MORE} connections" for way in (DIRECT, PYDYNOX_ASYNC))

Write = Callable[[], object]
"""Writes all orders."""
Ways = Mapping[str, Callable[[str, "Orders"], AbstractContextManager[Write]]]
"""By name; each is given a server and the orders. A library that is not installed is a ModuleNotFoundError."""


class Orders:
    """The orders that are written, as each way takes them.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        strategy = strategy_of(SHARDS)
        self.logical = [order(order_id(number)) for number in range(count)]
        """With their logical keys: the suffix is bulk_load's work."""
        self.stored = [
            {**item, "Date": strategy.physical_key(DAY, strategy.shard_of(DAY, item))} for item in self.logical
        ]
        """With their suffixes already, for all others."""

    def plain_numbers(self) -> list[dict[str, Any]]:
        """Give the stored ones with Python's own numbers, for a library that takes no Decimal."""
        return [{name: _plain(value) for name, value in item.items()} for item in self.stored]


def _plain(value: Any) -> Any:
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == int(value) else float(value)


@contextmanager
def _bulk_load(
    endpoint: str, orders: Orders, *, transport: Transport = "client", connections: int = CONNECTIONS
) -> Iterator[Write]:
    with ways.sharded(endpoint, SHARDS, connections=connections, transport=transport) as table:
        yield lambda: bulk_load(table, orders.logical)


@contextmanager
def _by_processes(endpoint: str, orders: Orders) -> Iterator[Write]:
    """The time that the processes take to start is in it."""
    connect = partial(ways.connected, endpoint, CONNECTIONS)
    with ways.sharded(endpoint, SHARDS, connections=CONNECTIONS) as table:
        yield lambda: bulk_load(table, orders.logical, processes=PROCESSES, connect=connect)


@contextmanager
def _batch_writer(endpoint: str, orders: Orders) -> Iterator[Write]:
    with ways.resource(endpoint, connections=CONNECTIONS) as resource:
        table = resource.Table(TABLE)

        def write() -> None:
            with table.batch_writer() as batch:
                for item in orders.stored:
                    batch.put_item(Item=item)

        yield write


@contextmanager
def _put_items(endpoint: str, orders: Orders) -> Iterator[Write]:
    """As many threads as there are cores, which is its own default; it makes a client in every call."""
    import awswrangler
    import boto3

    session = boto3.session.Session(**ways.FAKE, region_name="us-east-1")

    def write() -> None:
        # One setting for the whole library: another way may have been entered since.
        awswrangler.config.dynamodb_endpoint_url = endpoint
        awswrangler.dynamodb.put_items(items=orders.stored, table_name=TABLE, boto3_session=session)

    try:
        yield write
    finally:
        awswrangler.config.reset("dynamodb_endpoint_url")


@contextmanager
def _pynamodb(endpoint: str, orders: Orders) -> Iterator[Write]:
    model = ways.pynamodb_model(endpoint)
    items = orders.plain_numbers()

    def write() -> None:
        with model.batch_write() as batch:
            for item in items:
                batch.save(model(**item))

    yield write


@contextmanager
def _aiodynamo(endpoint: str, orders: Orders) -> Iterator[Write]:
    with ways.aiodynamo_client(endpoint, connections=CONNECTIONS) as (loop, client):
        from aiodynamo.models import BatchWriteRequest

        def put(batch: list[dict[str, Any]]) -> Coroutine[Any, Any, Any]:
            written: Coroutine[Any, Any, Any] = client.batch_write({TABLE: BatchWriteRequest(items_to_put=batch)})
            return written

        yield lambda: loop.run_until_complete(_side_by_side(put, orders, CONNECTIONS))


@contextmanager
def _pydynox(endpoint: str, orders: Orders) -> Iterator[Write]:
    """Batch after batch, on one connection."""
    client = ways.pydynox_client(endpoint)
    yield lambda: client.sync_batch_write(TABLE, put_items=orders.stored)


@contextmanager
def _pydynox_async(endpoint: str, orders: Orders, *, connections: int = CONNECTIONS) -> Iterator[Write]:
    client = ways.pydynox_client(endpoint)

    def put(batch: list[dict[str, Any]]) -> Coroutine[Any, Any, Any]:
        written: Coroutine[Any, Any, Any] = client.batch_write(TABLE, put_items=batch)
        return written

    with closing(asyncio.new_event_loop()) as loop:
        yield lambda: loop.run_until_complete(_side_by_side(put, orders, connections))


async def _side_by_side(
    put: Callable[[list[dict[str, Any]]], Coroutine[Any, Any, Any]], orders: Orders, connections: int
) -> None:
    """Put the orders in batches, one at a time on each connection, which such a library leaves to its caller."""
    starts = range(0, len(orders.stored), BATCH_ITEMS)
    batches = (orders.stored[start : start + BATCH_ITEMS] for start in starts)

    async def some() -> None:
        for batch in batches:
            await put(batch)

    await asyncio.gather(*(some() for _ in range(connections)))


WAYS: Ways = {
    DIRECT: partial(_bulk_load, transport="direct"),
    OURS: _bulk_load,
    BOTO3: _batch_writer,
    "awswrangler's put_items": _put_items,
    "PynamoDB's batch_write": _pynamodb,
    "aiodynamo's batch_write": _aiodynamo,
    PYDYNOX: _pydynox,
    PYDYNOX_ASYNC: _pydynox_async,
}
MORE_CONNECTIONS: Ways = {
    DIRECT_MORE: partial(_bulk_load, transport="direct", connections=MORE),
    PYDYNOX_MORE: partial(_pydynox_async, connections=MORE),
}
CORES: Ways = {BY_PROCESSES: _by_processes, OURS: _bulk_load, BOTO3: _batch_writer}
"""What uses more than one core, beside what does not."""


def written(endpoint: str, orders: Orders) -> bool:
    """Say whether the shards on a server hold just these orders."""
    with ways.plain(endpoint, SHARDS, workers=1) as read:
        return ways.comparable(read()) == ways.comparable(orders.logical)
