"""What a meter or a budget has on a client: its attachments there, and what it asks of the calls that it sees."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from boto3.resources.base import ServiceResource
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.capacity.charge import KeyValue
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError
from shardkit.runtime.hooks import observe, unobserve
from shardkit.runtime.observers import Call

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_ASK = "ReturnConsumedCapacity"
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


def ask_for_units(call: Call) -> bool:
    """Ask for what a call consumes, unless its caller did; say whether that was done here."""
    params = call.params
    asked: bool = params.get(_ASK, "NONE") == "NONE"
    if asked:
        # Reads of a table have no part for an index: there the answer is shorter, and says the same.
        params[_ASK] = "TOTAL" if call.operation in _READS and "IndexName" not in params else "INDEXES"
    return asked


def take_units(parsed: dict[str, Any], *, asked: bool) -> Any:
    """Give the response's ``ConsumedCapacity``; who asked takes it out, so that the caller does not see it.

    That is the first who saw the request, and the last who sees the response.
    """
    return parsed.pop("ConsumedCapacity", None) if asked else parsed.get("ConsumedCapacity")


class Attachment:
    """A meter or a budget on a client, a table or a session, until ``detach`` or the end of its ``with``."""

    def detach(self) -> None:
        """See no more calls through this attachment; doing it twice does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Give the attachment; it sees calls already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach."""
        self.detach()


class Attached(Attachment):
    """An attachment to one client: for one table or for all (None), for one logical key or for all (None)."""

    def __init__(
        self, observer: ClientObserver, table: str | None, keys: Mapping[str, str], key: KeyValue = None
    ) -> None:
        self._observer = observer
        self.table = table
        self.keys = keys
        self.key = key

    def detach(self) -> None:
        """See no more calls through this attachment; doing it twice does nothing."""
        self._observer.detach(self)


class ClientObserver(ABC):
    """What sees the calls of one client, however many attachments it has there: a call is counted once.

    ``_only`` are the tables to look at (None: all), ``_keys`` their partition keys' names, as far as they are known.
    """

    def __init__(self, client: Any) -> None:
        # Weak: a client that is dropped while it is observed must not live on through its own handlers.
        self._client = weakref.ref(client)
        self._changing = threading.Lock()
        self._attached: tuple[Attached, ...] = ()
        self._only: frozenset[str] | None = None
        self._keys: Mapping[str, str] = {}

    def attach(self, table: str | None, keys: Mapping[str, str], key: KeyValue = None) -> Attached:
        """See the calls to a table, or to all, from now on."""
        attached = Attached(self, table, keys, key)
        with self._changing:
            self._set((*self._attached, attached))
            client = self._client()
            if client is not None:
                observe(client, self)
        return attached

    def detach(self, attached: Attached) -> None:
        """See no more calls of an attachment; those that are under way are seen to their end."""
        with self._changing:
            self._set(tuple(known for known in self._attached if known is not attached))
            client = self._client()
            if not self._attached and client is not None:
                unobserve(client, self)

    def _set(self, attached: tuple[Attached, ...]) -> None:
        self._attached = attached
        if not attached:
            return  # what is under way is looked at as before
        tables = [known.table for known in attached]
        self._only = frozenset(table for table in tables if table is not None) if all(tables) else None
        self._keys = {table: name for known in attached for table, name in known.keys.items()}

    @abstractmethod
    def before(self, call: Call) -> None:
        """See the request's wire parameters; may add to them."""

    @abstractmethod
    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """See what an attempt met, as an error response."""

    @abstractmethod
    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """See the wire response (or the error, under ``Error``)."""


_MADE = "creating-client-class.dynamodb"


def partition_keys_of(key_schema: Mapping[str, str] | None) -> dict[str, str]:
    """Read ``key_schema=``: a table's name to the name of its partition key.

    Raises:
        ConfigurationError: it is no mapping of names to names.
    """
    given = {} if key_schema is None else key_schema
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for pair in given.items() for name in pair):
        raise ConfigurationError(
            f'key_schema maps table names to names of partition keys, got {key_schema!r:.200}; give {{"T": "pk"}}'
        )
    return {table_name(table): partition_key for table, partition_key in given.items()}


def target_of(
    target: Any, keys: Mapping[str, str], *, describe: bool = True
) -> tuple[Any, str | None, Mapping[str, str]]:
    """Give the client of a target, its table's name if it is one, and the partition keys that are known.

    ``describe``: a boto3 ``Table`` is asked for its own.
    """
    meta = getattr(target, "meta", None)
    client = getattr(meta, "client", None)
    name = None if client is None else getattr(target, "name", None)
    if client is None:
        client = target
    if getattr(getattr(client, "meta", None), "events", None) is None:
        raise ConfigurationError(
            "a meter or a budget is attached to a boto3 DynamoDB client or resource, a Table, a ShardedTable or a "
            f"session, got {type(target).__name__}; give one of them"
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
        # aioboto3 gives a coroutine here, which nothing can wait for.
        getattr(schema, "close", lambda: None)()
        return None
    return cast("str | None", next((key["AttributeName"] for key in schema if key["KeyType"] == "HASH"), None))


def events_of_session(target: Any) -> Any:
    """Give what a session's handlers are registered with; None: it is no session.

    boto3's sessions have ``events``, botocore's ``register`` and ``unregister`` themselves.
    """
    if not (hasattr(target, "client") or hasattr(target, "create_client")):
        return None
    events = getattr(target, "events", target)
    return events if hasattr(events, "register") and hasattr(events, "unregister") else None


class SessionAttachment(Attachment):
    """A meter or a budget on all DynamoDB clients that a session makes from now on.

    Source: boto3's Extensibility Guide, ``creating-client-class``: what is put before a client's classes.
    """

    def __init__(self, events: Any, attach: Callable[[Any], Attachment]) -> None:
        self._events = events
        self._attach = attach
        self._lock = threading.Lock()
        self._attached: WeakSet[Attachment] = WeakSet()
        self._unique_id = f"shardkit-attached-{id(self)}"
        events.register(_MADE, self._making, unique_id=self._unique_id)

    def detach(self) -> None:
        """See no more calls of the clients that were made, and no more clients."""
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
