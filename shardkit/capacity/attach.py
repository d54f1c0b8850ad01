"""Attaching a meter or a budget to clients, tables and sessions, and asking calls for the units that they consume."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from boto3.resources.base import ServiceResource
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.capacity.charge import KeyValue
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.hooks import observe, unobserve
from shardkit.runtime.observers import Call, Observer
from shardkit.runtime.targets import Attachment, client_of
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Unsharded

_ASK = "ReturnConsumedCapacity"
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


def ask_for_units(call: Call) -> bool:
    """Make a call return what it consumes, unless its caller did; return whether that was needed."""
    params = call.params
    asked: bool = params.get(_ASK, "NONE") == "NONE"
    if asked:
        # A read of a table consumes nothing of an index: TOTAL says the same, in a shorter response.
        params[_ASK] = "TOTAL" if call.operation in _READS and "IndexName" not in params else "INDEXES"
    return asked


def take_units(parsed: dict[str, Any], *, asked: bool) -> Any:
    """Return the response's ``ConsumedCapacity``; remove it if the caller had not asked for it.

    Of several meters and budgets, the first to see the request asks, and is the last to see the response.
    """
    return parsed.pop("ConsumedCapacity", None) if asked else parsed.get("ConsumedCapacity")


IsPart = Callable[[str], bool]


class _Tables(Container[str]):
    """Tables by name, and those of time series, which may be created later."""

    def __init__(self, names: Container[str], parts: Iterable[IsPart]) -> None:
        self._names = names
        self._parts = tuple(parts)

    def __contains__(self, table: object) -> bool:
        return table in self._names or (isinstance(table, str) and any(is_part(table) for is_part in self._parts))


@dataclass(eq=False)
class Attached(Attachment):
    """An attachment to one client: for one table or all (None), and for one logical key or all (None).

    ``is_part`` returns whether a table of some name is one of those that a time series is made of.
    """

    observer: ClientObserver
    table: str | None
    keys: Mapping[str, str]
    key: KeyValue = None
    described: Mapping[str, Sharding] = field(default_factory=dict)
    is_part: IsPart | None = None

    def detach(self) -> None:
        self.observer.detach(self)


class ClientObserver(Observer):
    """Sees the calls of one client once each, however many attachments it has there.

    ``_only`` are the tables to look at (None: all), ``_keys`` the names of their partition keys, as far as known, and
    ``_described`` those whose indexes are known.
    """

    def __init__(self, client: Any) -> None:
        # Weak: a client that is dropped while it is observed must not live on through its own handlers.
        self._client = weakref.ref(client)
        self._changing = threading.Lock()
        self._attached: tuple[Attached, ...] = ()
        self._only: Container[str] | None = None
        self._keys: Mapping[str, str] = {}
        self._described: Mapping[str, Sharding] = {}

    def attach(self, attached: Attached) -> None:
        with self._changing:
            self._set((*self._attached, attached))
            client = self._client()
            if client is not None:
                observe(client, self)

    def detach(self, attached: Attached) -> None:
        """Remove an attachment; calls under way are seen to their end."""
        with self._changing:
            self._set(tuple(known for known in self._attached if known is not attached))
            client = self._client()
            if not self._attached and client is not None:
                unobserve(client, self)

    def _set(self, attached: tuple[Attached, ...]) -> None:
        self._attached = attached
        if not attached:
            return  # calls under way are looked at as before
        if all(known.table for known in attached):
            names = frozenset(known.table for known in attached if known.table and known.is_part is None)
            parts = [known.is_part for known in attached if known.is_part is not None]
            self._only = _Tables(names, parts) if parts else names
        else:
            self._only = None
        self._keys = {table: name for known in attached for table, name in known.keys.items()}
        self._described = {table: sharding for known in attached for table, sharding in known.described.items()}


class Observers:
    """The observers of a meter or a budget: one for each client."""

    def __init__(self, make: Callable[[Any], ClientObserver]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._observers: WeakKeyDictionary[Any, ClientObserver] = WeakKeyDictionary()

    def attach(self, client: Any, table: str | None, keys: Mapping[str, str], **more: Any) -> Attached:
        """Attach to a client; ``more`` are the other fields of an attachment."""
        with self._lock:
            observer = self._observers.get(client)
            if observer is None:
                observer = self._observers[client] = self._make(client)
        attached = Attached(observer, table, keys, **more)
        observer.attach(attached)
        return attached


def partition_keys_of(key_schema: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``key_schema=``, table names to names of partition keys, by the tables' plain names."""
    given = {} if key_schema is None else key_schema
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for pair in given.items() for name in pair):
        raise ConfigurationError(
            f"key_schema: must map table names to names of partition keys, got {brief(key_schema, 200)}; "
            'for example {"Orders": "Date"}'
        )
    return {table_name(table): partition_key for table, partition_key in given.items()}


def schemas_of(key_schema: Any) -> tuple[dict[str, str], dict[str, Sharding]]:
    """Return a meter's ``key_schema=``: the names of partition keys, and the tables that were given with indexes."""
    given = key_schema if isinstance(key_schema, Mapping) else {}
    described = {
        table: Sharding.described(table, Unsharded(), description)
        for table, description in given.items()
        if isinstance(description, Mapping)
    }
    names = {table: sharding.partition_key for table, sharding in described.items()}
    keys = partition_keys_of({**given, **names} if names else key_schema)
    return keys, {table_name(table): sharding for table, sharding in described.items()}


def target_of(
    target: Any, keys: Mapping[str, str], *, describe: bool = True
) -> tuple[Any, str | None, Mapping[str, str]]:
    """Return a target's client, the table's name if it is a table, and the partition keys that are known.

    ``describe``: ask a boto3 ``Table`` for its partition key.
    """
    client = client_of(target)
    name = None if client is target else getattr(target, "name", None)
    table = None if name is None else table_name(name)
    if describe and table is not None and table not in keys:
        described = described_by(target)
        if described is not None:
            keys = {**keys, table: described.partition_key}
    return client, table, keys


def parts_of(target: Any) -> IsPart | None:
    """Return whether a table is one of those that a target is made of, as a function; None: it is one table."""
    runner = getattr(getattr(target, "table", target), "runner", None)  # a cached table has the table behind it
    return None if runner is None else runner.programs.is_part


def described_by(target: Any) -> Sharding | None:
    """Return what a boto3 ``Table`` says of its keys and global indexes; None for others, or if it is refused."""
    if not isinstance(target, ServiceResource):
        return None
    table: Any = target
    try:
        schema = table.key_schema
    except (BotoCoreError, ClientError):
        return None
    if not isinstance(schema, list):
        # A Table of aioboto3 returns a coroutine, which cannot be awaited here.
        getattr(schema, "close", lambda: None)()
        return None
    return Sharding.described(
        table.name,
        Unsharded(),
        {
            "KeySchema": schema,
            "AttributeDefinitions": table.attribute_definitions,
            "GlobalSecondaryIndexes": table.global_secondary_indexes,
        },
    )
