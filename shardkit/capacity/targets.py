"""What a meter can be attached to: clients, what holds one, and sessions, which make them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakSet

from boto3.resources.base import ServiceResource
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.capacity.attachments import Attachment
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError

__all__ = ["SessionAttachment", "events_of_session", "partition_keys_of", "target_of"]

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
