"""The ways to read a day's shards in order: shardkit's, the best plain one, and those of other libraries."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from operator import itemgetter
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config

from benchmarks.orders import DAY, TABLE, strategy_of
from shardkit import ShardedTable
from shardkit.runtime.transports import Transport

__all__ = ["Read", "aiodynamo", "client", "comparable", "plain", "pynamodb", "resource", "sharded"]

Read = Callable[[], list[Any]]
"""Reads a whole day."""

CONDITION = Key("Date").eq(DAY)
FAKE: dict[str, Any] = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
MISSING = "not installed: pip install '.[benchmarks]'"
"""What is said of a library that cannot be measured."""


@contextmanager
def resource(endpoint: str, *, connections: int = 10, **config: Any) -> Iterator[Any]:
    """Give a boto3 resource over a client of its own, of one configuration for every way, and more."""
    made = connected(endpoint, connections, **config)
    try:
        yield made
    finally:
        made.meta.client.close()


@contextmanager
def client(endpoint: str) -> Iterator[Any]:
    """Give a client of the same configuration, with wire values."""
    config = Config(max_pool_connections=10, retries={"mode": "standard"})
    made = boto3.session.Session(**FAKE, region_name="us-east-1").client(
        "dynamodb", endpoint_url=endpoint, config=config
    )
    try:
        yield made
    finally:
        made.close()


def connected(endpoint: str, connections: int, **config: Any) -> Any:
    """Make that resource, here or in a process of a load."""
    whole = Config(max_pool_connections=connections, retries={"mode": "standard"}, **config)
    return _session().resource("dynamodb", endpoint_url=endpoint, config=whole)


@cache
def _session() -> boto3.session.Session:
    """Return one session for all clients, because each reads botocore's data files."""
    return boto3.session.Session(**FAKE, region_name="us-east-1")


@contextmanager
def sharded(
    endpoint: str, shards: int, *, connections: int = 10, transport: Transport = "client", **config: Any
) -> Iterator[ShardedTable]:
    """Give shardkit's table; its key schema is known, so that no DescribeTable is measured."""
    with resource(endpoint, connections=connections, **config) as over:
        table = ShardedTable(over.Table(TABLE), strategy_of(shards), transport=transport)
        table.physical_key({"Date": DAY, "OrderId": "A0"})
        yield table


@contextmanager
def plain(endpoint: str, shards: int, *, workers: int) -> Iterator[Read]:
    """Read with boto3 alone: a pool of threads, in each a table of its own, and ``heapq.merge``."""
    keys = [str(key) for key in strategy_of(shards).physical_keys(DAY)]
    local = threading.local()
    made: list[Any] = []

    def start() -> None:
        # Sessions are not for threads, and one is enough for a thread's life.
        own = boto3.session.Session(**FAKE, region_name="us-east-1").resource(
            "dynamodb", endpoint_url=endpoint, config=Config(max_pool_connections=1, retries={"mode": "standard"})
        )
        made.append(own)
        local.query = own.Table(TABLE).query

    def page(key: str) -> list[Any]:
        asked = {
            "KeyConditionExpression": "#d = :d",
            "ExpressionAttributeNames": {"#d": "Date"},
            "ExpressionAttributeValues": {":d": key},
        }
        answer = local.query(**asked)
        items: list[Any] = answer["Items"]
        while last := answer.get("LastEvaluatedKey"):
            answer = local.query(**asked, ExclusiveStartKey=last)
            items += answer["Items"]
        return items

    with ThreadPoolExecutor(workers, initializer=start) as pool:
        try:
            yield lambda: list(heapq.merge(*pool.map(page, keys), key=itemgetter("OrderId")))
        finally:
            for own in made:
                own.meta.client.close()


def pynamodb_model(endpoint: str) -> Any:
    """Give PynamoDB's model of an order."""
    from pynamodb.attributes import BooleanAttribute, NumberAttribute, UnicodeAttribute
    from pynamodb.models import Model

    class Order(Model):  # type: ignore[misc,unused-ignore] # an Any where PynamoDB is not installed
        class Meta:
            table_name = TABLE
            host = endpoint
            region = "us-east-1"
            aws_access_key_id = "testing"
            aws_secret_access_key = "testing"  # noqa: S105 - a stub's

        Date = UnicodeAttribute(hash_key=True)
        OrderId = UnicodeAttribute(range_key=True)
        Customer = UnicodeAttribute()
        Status = UnicodeAttribute()
        Total = NumberAttribute()
        Quantity = NumberAttribute()
        Weight = NumberAttribute()
        Paid = BooleanAttribute()
        Address = UnicodeAttribute()
        Note = UnicodeAttribute()

    return Order


def pynamodb(endpoint: str, shards: int) -> Read:
    """Read the same pages with PynamoDB, one after another: the least CPU that it can take; nothing is merged."""
    model = pynamodb_model(endpoint)
    keys = [str(key) for key in strategy_of(shards).physical_keys(DAY)]
    return lambda: [order for key in keys for order in model.query(key)]


@contextmanager
def aiodynamo_client(endpoint: str, *, connections: int) -> Iterator[tuple[asyncio.AbstractEventLoop, Any]]:
    """Give aiodynamo's client over aiohttp, and the event loop that it runs in."""
    import aiohttp
    from aiodynamo.client import Client
    from aiodynamo.credentials import Key as Secret
    from aiodynamo.credentials import StaticCredentials
    from aiodynamo.http.aiohttp import AIOHTTP
    from yarl import URL

    loop = asyncio.new_event_loop()

    async def connect() -> Any:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections))

    session = loop.run_until_complete(connect())
    credentials = StaticCredentials(Secret("testing", "testing"))
    try:
        yield loop, Client(AIOHTTP(session), credentials, "us-east-1", URL(endpoint))
    finally:
        loop.run_until_complete(session.close())
        loop.close()


def pydynox_client(endpoint: str) -> Any:
    """Give pydynox's client, which opens as many connections as it has requests at once."""
    from pydynox import DynamoDBClient

    return DynamoDBClient(region="us-east-1", access_key="testing", secret_key="testing", endpoint_url=endpoint)


@contextmanager
def aiodynamo(endpoint: str, shards: int, *, connections: int) -> Iterator[Read]:
    """Read the same pages with aiodynamo, side by side; nothing is merged."""
    with aiodynamo_client(endpoint, connections=connections) as (loop, client):
        from aiodynamo.expressions import HashKey

        keys = [str(key) for key in strategy_of(shards).physical_keys(DAY)]
        table = client.table(TABLE)

        async def page(key: str) -> list[Any]:
            return [item async for item in table.query(HashKey("Date", key))]

        async def read() -> list[Any]:
            pages = await asyncio.gather(*map(page, keys))
            return [item for items in pages for item in items]

        yield lambda: loop.run_until_complete(read())


def comparable(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Give items as all ways show them, in order: the logical key, and one type for numbers."""
    shown = []
    for item in items:
        values = item if isinstance(item, dict) else item.attribute_values
        one = {
            name: float(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else value
            for name, value in values.items()
        }
        one["Date"] = str(one["Date"]).rpartition(".")[0] or one["Date"]
        shown.append(one)
    return sorted(shown, key=itemgetter("OrderId"))
