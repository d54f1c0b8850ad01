"""What a meter can be attached to: clients, what holds one, and sessions, which make them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast
from weakref import WeakSet

from boto3.resources.base import ServiceResource
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.capacity.observer import Attached, Attachment
from shardkit.capacity.units import table_name
from shardkit.errors import ConfigurationError

__all__ = ["SessionAttachment", "events_of_session", "target_of"]

_MADE = "creating-client-class.dynamodb"


def target_of(target: Any, keys: Mapping[str, str]) -> tuple[Any, str | None, Mapping[str, str]]:
    """Give the client of a target, its table's name if it is one, and the partition keys that are known."""
    meta = getattr(target, "meta", None)
    client = getattr(meta, "client", None)
    name = None if client is None else getattr(target, "name", None)
    if client is None:
        client = target
    if getattr(getattr(client, "meta", None), "events", None) is None:
        raise ConfigurationError(
            f"a meter is attached to a boto3 DynamoDB client or resource, a Table, a ShardedTable or a session, got "
            f"{type(target).__name__}; give one of them"
        )
    table = None if name is None else table_name(name)
    if table is not None and table not in keys and isinstance(target, ServiceResource):
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
    """A meter on all DynamoDB clients that a session makes from now on.

    Source: boto3's Extensibility Guide, ``creating-client-class``: what is put before a client's classes.
    """

    def __init__(self, events: Any, attach: Callable[[Any], Attached]) -> None:
        self._events = events
        self._attach = attach
        self._lock = threading.Lock()
        self._attached: WeakSet[Attached] = WeakSet()
        self._unique_id = f"shardkit-meter-{id(self)}"
        events.register(_MADE, self._making, unique_id=self._unique_id)

    def detach(self) -> None:
        """Count no more calls of the clients that were made, and meter no more clients."""
        self._events.unregister(_MADE, self._making, unique_id=self._unique_id)
        with self._lock:
            attached, self._attached = self._attached, WeakSet()
        for one in attached:
            one.detach()

    def _making(self, base_classes: list[type], **_: Any) -> None:
        made = self._made

        class Metered:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                made(self)

        base_classes.insert(0, Metered)

    def _made(self, client: Any) -> None:
        attached = self._attach(client)
        with self._lock:
            self._attached.add(attached)
