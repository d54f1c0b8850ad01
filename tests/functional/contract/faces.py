"""The faces of a sharded table, each behind the same synchronous methods, so that one suite holds them all.

A new face is two small classes: a ``FaceTable`` whose ``_call`` and ``_all`` (and ``write``, where there is no batch
writer) reach its table, and the ``Face`` that makes it. What a face does not have it leaves out of ``offers``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, Protocol, Self, TypeVar

import pytest

import shardkit
import shardkit.passes
from shardkit.bulk.report import BulkReport
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.expressions.rewrite import build_conditions
from shardkit.sharding.form import PYTHON_VALUES, WIRE_VALUES

T = TypeVar("T")
Response = dict[str, Any]
Item = Mapping[str, Any]
Offer = Literal["shards", "views", "tokens", "loads", "stored keys", "closing"]
"""What only some faces have: the keywords Shard and ReturnShards; with_options; a cursor that is a token; bulk loads;
physical_key, physical_item and logical_item; close and with."""
ASYNC = ("aio", "direct aio", "installed aio client")
WHOLE = ("sync", "installed client")
FACES = ["sync", "direct", "installed client", "installed resource", *(ASYNC if find_spec("aiobotocore") else ())]
EVERYTHING: frozenset[Offer] = frozenset(("shards", "views", "tokens", "loads", "stored keys", "closing"))


class FaceTable(ABC):
    """A sharded table, whatever its face: boto3's names and keywords, Python values in and out."""

    client: Any
    """The client that it sends with."""

    @abstractmethod
    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method that answers."""

    @abstractmethod
    def _all(self, method: str, **options: Any) -> list[Any]:
        """Call a method that iterates, to its end."""

    def put_item(self, **options: Any) -> Response:
        return self._response("put_item", options)

    def get_item(self, **options: Any) -> Response:
        return self._response("get_item", options)

    def update_item(self, **options: Any) -> Response:
        return self._response("update_item", options)

    def delete_item(self, **options: Any) -> Response:
        return self._response("delete_item", options)

    def query(self, **options: Any) -> Response:
        return self._response("query", options)

    def scan(self, **options: Any) -> Response:
        return self._response("scan", options)

    def _response(self, method: str, options: Item) -> Response:
        response: Response = self._call(method, **options)
        return response

    def query_items(self, **options: Any) -> list[Any]:
        return self._all("query_items", **options)

    def scan_items(self, **options: Any) -> list[Any]:
        return self._all("scan_items", **options)

    def batch_get_items(self, keys: Iterable[Item], **options: Any) -> list[Response]:
        items: list[Response] = self._call("batch_get_items", keys, **options)["Items"]
        return items

    @abstractmethod
    def write(self, puts: Iterable[Item] = (), deletes: Iterable[Item] = ()) -> None:
        """Write in batches: the puts, then the deletes."""

    def bulk_load(self, items: Iterable[Item], **options: Any) -> BulkReport:
        raise NotImplementedError

    def passed(self, name: str, *given: Any, **options: Any) -> Any:
        """Run a function of ``shardkit.passes`` on the table."""
        raise NotImplementedError

    def with_options(self, **options: Any) -> FaceTable:
        raise NotImplementedError

    def close(self) -> None:
        self._call("close")

    def __enter__(self) -> Self:
        assert self._call("__enter__") is not None
        return self

    def __exit__(self, *error: object) -> None:
        assert not self._call("__exit__", *error)

    def stored(self, method: str, given: Item) -> Response:
        """Call physical_key, physical_item or logical_item."""
        response: Response = self._call(method, given)
        return response


class Face(Protocol):
    """A way to a sharded table; ``resource`` is plain boto3 over the same engine."""

    @property
    def resource(self) -> Any: ...

    @property
    def offers(self) -> frozenset[Offer]: ...

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        """Shard a boto3 Table of the resource; ``options`` are ``indexes``, ``key_schema`` and ``rng``."""


def needs(face: Face, *offers: Offer) -> None:
    """Skip the test where the face does not have all of these."""
    if missing := set(offers) - face.offers:
        pytest.skip(f"this face has no {', '.join(sorted(missing))}")


def combined(strategies: Mapping[str, shardkit.Strategy], name: str, asked: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Each strategy with all that is asked of it.

    Over moto, only the faces of WHOLE have all of these pairs. The others have a third of them: each strategy and all
    that is asked, but not each with each. Over an engine, all faces have all of them; CI does that in its step async.
    """
    pairs = [
        pytest.param(strategy, value, id=f"{kind}-{title}", marks=pytest.mark.few_faces if (at + place) % 3 else ())
        for place, (title, value) in enumerate(asked.items())
        for at, (kind, strategy) in enumerate(strategies.items())
    ]
    return pytest.mark.parametrize(("strategy", name), pairs)


def _table_of(given: Any) -> Any:
    return getattr(given, "table", given)


@dataclass
class _SyncTable(FaceTable):
    table: shardkit.ShardedTable

    def __post_init__(self) -> None:
        self.client = self.table.meta.client

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        return getattr(self.table, method)(*args, **options)

    def _all(self, method: str, **options: Any) -> list[Any]:
        return list(getattr(self.table, method)(**options))

    def write(self, puts: Iterable[Item] = (), deletes: Iterable[Item] = ()) -> None:
        with self.table.batch_writer() as batch:
            for item in puts:
                batch.put_item(Item=item)
            for key in deletes:
                batch.delete_item(Key=key)

    def bulk_load(self, items: Iterable[Item], **options: Any) -> BulkReport:
        return shardkit.bulk_load(self.table, items, **options)

    def passed(self, name: str, *given: Any, **options: Any) -> Any:
        return getattr(shardkit.passes, name)(self.table, *map(_table_of, given), **options)

    def with_options(self, **options: Any) -> FaceTable:
        return _SyncTable(self.table.with_options(**options))


@dataclass
class SyncFace:
    """shardkit.ShardedTable."""

    resource: Any
    transport: Literal["client", "direct"] = "client"
    offers: frozenset[Offer] = EVERYTHING

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        return _SyncTable(shardkit.ShardedTable(table, strategy, transport=self.transport, **options))


@dataclass
class _AsyncTable(FaceTable):
    table: Any
    loop: asyncio.AbstractEventLoop

    def __post_init__(self) -> None:
        self.client = self.table.meta.client

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        method = {"__enter__": "__aenter__", "__exit__": "__aexit__"}.get(method, method)
        return self._run(getattr(self.table, method)(*args, **options))

    def _all(self, method: str, **options: Any) -> list[Any]:
        async def read() -> list[Any]:
            return [item async for item in getattr(self.table, method)(**options)]

        return self._run(read())

    def write(self, puts: Iterable[Item] = (), deletes: Iterable[Item] = ()) -> None:
        async def write() -> None:
            async with self.table.batch_writer() as batch:
                for item in puts:
                    await batch.put_item(Item=item)
                for key in deletes:
                    await batch.delete_item(Key=key)

        self._run(write())

    def bulk_load(self, items: Iterable[Item], **options: Any) -> BulkReport:
        from shardkit import aio

        return self._run(aio.bulk_load(self.table, items, **options))

    def passed(self, name: str, *given: Any, **options: Any) -> Any:
        from shardkit.aio import passes

        return self._run(getattr(passes, name)(self.table, *map(_table_of, given), **options))

    def with_options(self, **options: Any) -> FaceTable:
        return _AsyncTable(self.table.with_options(**options), self.loop)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call to its end; nothing that it started outlives it."""

        async def run() -> T:
            try:
                return await call
            finally:
                assert asyncio.all_tasks() == {asyncio.current_task()}

        return self.loop.run_until_complete(run())


@dataclass
class AsyncFace:
    """shardkit.aio.ShardedTable over an aiobotocore client."""

    resource: Any
    client: Any
    loop: asyncio.AbstractEventLoop
    transport: Literal["client", "direct"] = "client"
    offers: frozenset[Offer] = EVERYTHING

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        from shardkit import aio

        options |= {"table_name": table.name, "transport": self.transport}
        return _AsyncTable(aio.ShardedTable(self.client, strategy, **options), self.loop)


class _InstalledTable(FaceTable):
    """Operations of a client on one table, which speak Python values here."""

    def __init__(self, client: Any, name: str, run: Callable[[Any], Any]) -> None:
        self.client = client
        self._name = name
        self._run = run

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "batch_get_items":
            return {"Items": [item for keys in batched(args[0], 100) for item in self._batch_get(keys, options)]}
        given = self._given(options)
        response = self._run(getattr(self.client, method)(TableName=self._name, **given))
        return self._shown(response)

    def _batch_get(self, keys: Iterable[Item], options: Item) -> Iterator[Response]:
        asked = {self._name: {**options, "Keys": [self._values(key) for key in keys]}}
        answer = self._run(self.client.batch_get_item(RequestItems=asked))
        assert answer["UnprocessedKeys"] == {}
        return map(self._item, answer["Responses"][self._name])

    def _all(self, method: str, **options: Any) -> list[Any]:
        operation = method.removesuffix("_items")
        segments = options.pop("segments", 1)
        limit = options.pop("max_items", None)
        given = {"TableName": self._name, **self._given(options)}
        paging = {"PageSize": given.pop("Limit", None), "MaxItems": limit}
        parts = [{"Segment": part, "TotalSegments": segments} for part in range(segments)] if segments > 1 else [{}]
        pages = [
            self.client.get_paginator(operation).paginate(**given, **part, PaginationConfig=paging) for part in parts
        ]
        return [self._item(item) for one in pages for item in self._run(one.build_full_result())["Items"]]

    def write(self, puts: Iterable[Item] = (), deletes: Iterable[Item] = ()) -> None:
        requests = [{"PutRequest": {"Item": self._values(item)}} for item in puts]
        requests += [{"DeleteRequest": {"Key": self._values(key)}} for key in deletes]
        for part in batched(requests, 25):
            assert self._run(self.client.batch_write_item(RequestItems={self._name: part}))["UnprocessedItems"] == {}

    def _given(self, options: Item) -> dict[str, Any]:
        """Return what the client takes: wire values, binary as bytes."""
        wire = PYTHON_VALUES.params(build_conditions(options))
        for part in ("ExclusiveStartKey", "ExpressionAttributeValues", "Item", "Key"):
            if part in wire:
                wire[part] = WIRE_VALUES.shown(wire[part])
        return wire

    def _values(self, item: Item) -> Any:
        return WIRE_VALUES.shown(PYTHON_VALUES.item(item))

    def _item(self, item: Any) -> Response:
        return from_wire_item(item)

    def _shown(self, response: Response) -> Response:
        shown = dict(response)
        for part in ("Item", "Attributes", "LastEvaluatedKey"):
            if part in shown:
                shown[part] = self._item(shown[part])
        if "Items" in shown:
            shown["Items"] = [self._item(item) for item in shown["Items"]]
        if metrics := shown.get("ItemCollectionMetrics"):
            shown["ItemCollectionMetrics"] = {**metrics, "ItemCollectionKey": self._item(metrics["ItemCollectionKey"])}
        return shown


class _InstalledResourceTable(_InstalledTable):
    """A boto3 Table, and the batches and paginators of its resource's client, which speaks Python values."""

    def __init__(self, table: Any) -> None:
        super().__init__(table.meta.client, table.name, lambda answer: answer)
        self._table = table

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "batch_get_items":
            return super()._call(method, *args, **options)
        return getattr(self._table, method)(**options)

    def _given(self, options: Item) -> dict[str, Any]:
        return dict(options)

    def _values(self, item: Item) -> Any:
        return item

    def _item(self, item: Any) -> Response:
        return dict(item)

    def write(self, puts: Iterable[Item] = (), deletes: Iterable[Item] = ()) -> None:
        with self._table.batch_writer() as batch:
            for item in puts:
                batch.put_item(Item=item)
            for key in deletes:
                batch.delete_item(Key=key)


@dataclass
class InstalledFace:
    """shardkit.install() on a client (boto3's or aiobotocore's), or on a boto3 resource."""

    resource: Any
    target: Any
    run: Callable[[Any], Any] = lambda answer: answer
    offers: frozenset[Offer] = frozenset()
    _tables: dict[str, shardkit.Strategy] = field(default_factory=dict)
    _schemas: dict[str, Any] = field(default_factory=dict)
    _indexes: dict[str, Any] = field(default_factory=dict)
    _installation: shardkit.Installation | None = None

    def sharded(self, table: Any, strategy: shardkit.Strategy, **options: Any) -> FaceTable:
        # All tables so far, since a client has one installation.
        if self._installation is not None:
            self._installation.uninstall()
        self._tables[table.name] = strategy
        for name, given in (("key_schema", self._schemas), ("indexes", self._indexes)):
            if name in options:
                given[table.name] = options.pop(name)
        self._installation = shardkit.install(
            self.target, self._tables, indexes=self._indexes, key_schemas=self._schemas, **options
        )
        if hasattr(self.target, "Table"):
            return _InstalledResourceTable(self.target.Table(table.name))
        return _InstalledTable(self.target, table.name, self.run)


def batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    left = list(items)
    return (left[at : at + size] for at in range(0, len(left), size))
