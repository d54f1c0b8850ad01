"""Attaching a meter or a budget to clients, tables and sessions, and asking calls for the units that they consume."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakSet

from boto3.resources.base import ServiceResource
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.capacity.charge import KeyValue
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError
from shardkit.runtime.hooks import observe, unobserve
from shardkit.runtime.observers import Call, Observer

if TYPE_CHECKING:
    from typing import Self

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


class Attachment:
    """A meter or a budget on a client, a table or a session, until ``detach`` or the end of its ``with``."""

    def detach(self) -> None:
        """Stop seeing calls; detaching twice does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


@dataclass(eq=False)
class Attached(Attachment):
    """An attachment to one client: for one table or all (None), and for one logical key or all (None)."""

    observer: ClientObserver
    table: str | None
    keys: Mapping[str, str]
    key: KeyValue

    def detach(self) -> None:
        self.observer.detach(self)


class ClientObserver(Observer):
    """Sees the calls of one client once each, however many attachments it has there.

    ``_only`` are the tables to look at (None: all), ``_keys`` the names of their partition keys, as far as known.
    """

    def __init__(self, client: Any) -> None:
        # Weak: a client that is dropped while it is observed must not live on through its own handlers.
        self._client = weakref.ref(client)
        self._changing = threading.Lock()
        self._attached: tuple[Attached, ...] = ()
        self._only: frozenset[str] | None = None
        self._keys: Mapping[str, str] = {}

    def attach(self, table: str | None, keys: Mapping[str, str], key: KeyValue) -> Attached:
        attached = Attached(self, table, keys, key)
        with self._changing:
            self._set((*self._attached, attached))
            client = self._client()
            if client is not None:
                observe(client, self)
        return attached

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
        tables = [known.table for known in attached]
        self._only = frozenset(table for table in tables if table is not None) if all(tables) else None
        self._keys = {table: name for known in attached for table, name in known.keys.items()}


class Observers:
    """The observers of a meter or a budget: one for each client."""

    def __init__(self, make: Callable[[Any], ClientObserver]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._observers: WeakKeyDictionary[Any, ClientObserver] = WeakKeyDictionary()

    def attach(self, client: Any, table: str | None, keys: Mapping[str, str], key: KeyValue = None) -> Attached:
        with self._lock:
            observer = self._observers.get(client)
            if observer is None:
                observer = self._observers[client] = self._make(client)
        return observer.attach(table, keys, key)


_MADE = "creating-client-class.dynamodb"


def partition_keys_of(key_schema: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``key_schema=``, table names to names of partition keys, by the tables' plain names."""
    given = {} if key_schema is None else key_schema
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for pair in given.items() for name in pair):
        raise ConfigurationError(
            f"key_schema: must map table names to names of partition keys, got {key_schema!r:.200}; "
            'for example {"Orders": "Date"}'
        )
    return {table_name(table): partition_key for table, partition_key in given.items()}


def target_of(
    target: Any, keys: Mapping[str, str], *, describe: bool = True
) -> tuple[Any, str | None, Mapping[str, str]]:
    """Return a target's client, the table's name if it is a table, and the partition keys that are known.

    ``describe``: ask a boto3 ``Table`` for its partition key.
    """
    meta = getattr(target, "meta", None)
    client = getattr(meta, "client", None)
    name = None if client is None else getattr(target, "name", None)
    if client is None:
        client = target
    if getattr(getattr(client, "meta", None), "events", None) is None:
        raise ConfigurationError(
            "target: must be a boto3 DynamoDB client or resource, a Table, a ShardedTable or a session, "
            f"got {type(target).__name__}"
        )
    table = None if name is None else table_name(name)
    if describe and table is not None and table not in keys and isinstance(target, ServiceResource):
        partition_key = _partition_key(target)
        if partition_key is not None:
            keys = {**keys, table: partition_key}
    return client, table, keys


def _partition_key(table: Any) -> str | None:
    try:
        schema = table.key_schema
    except (BotoCoreError, ClientError):
        return None
    if not isinstance(schema, list):
        # A Table of aioboto3 returns a coroutine, which cannot be awaited here.
        getattr(schema, "close", lambda: None)()
        return None
    return cast("str | None", next((key["AttributeName"] for key in schema if key["KeyType"] == "HASH"), None))


def events_of_session(target: Any) -> Any:
    """Return the object that registers a session's handlers; None: the target is not a session.

    boto3's sessions have ``events``; botocore's have ``register`` and ``unregister`` themselves.
    """
    if not (hasattr(target, "client") or hasattr(target, "create_client")):
        return None
    events = getattr(target, "events", target)
    return events if hasattr(events, "register") and hasattr(events, "unregister") else None


class SessionAttachment(Attachment):
    """A meter or a budget on all DynamoDB clients that a session makes from now on.

    Source: boto3's Extensibility Guide, ``creating-client-class``: a class that is inserted before a client's classes.
    """

    def __init__(self, events: Any, attach: Callable[[Any], Attachment]) -> None:
        self._events = events
        self._attach = attach
        self._lock = threading.Lock()
        self._attached: WeakSet[Attachment] = WeakSet()
        self._unique_id = f"shardkit-attached-{id(self)}"
        events.register(_MADE, self._making, unique_id=self._unique_id)

    def detach(self) -> None:
        self._events.unregister(_MADE, self._making, unique_id=self._unique_id)
        with self._lock:
            attached, self._attached = self._attached, WeakSet()
        for one in attached:
            one.detach()

    def _making(self, base_classes: list[type], **_: Any) -> None:
        made = self._made

        class Observed:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                made(self)

        base_classes.insert(0, Observed)

    def _made(self, client: Any) -> None:
        attached = self._attach(client)
        with self._lock:
            self._attached.add(attached)
