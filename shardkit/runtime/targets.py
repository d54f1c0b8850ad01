"""What a meter, a budget or ``install()`` is attached to: clients, resources, tables and sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakSet

from shardkit.errors import ConfigurationError, brief
from shardkit.strategies import Strategy

_MADE = "creating-client-class.dynamodb"


def client_of(target: Any) -> Any:
    """Return the client of a client, resource or table.

    Raises:
        ConfigurationError: The target has no client of DynamoDB with botocore's events.
    """
    client = getattr(getattr(target, "meta", None), "client", None)
    if client is None:
        client = target
    meta = getattr(client, "meta", None)
    service = getattr(getattr(meta, "service_model", None), "service_name", "dynamodb")
    if getattr(meta, "events", None) is None or service != "dynamodb":
        raise ConfigurationError(
            "target: must be a boto3 DynamoDB client or resource, a Table, a ShardedTable or a session, "
            f"got {type(target).__name__}" + (f", a client of {service}" if service != "dynamodb" else "")
        )
    return client


def is_async(client: Any) -> bool:
    """Return whether a client is one of aiobotocore: those are async context managers."""
    return hasattr(client, "__aenter__")


class Wrapper:
    """A class that has a table's methods, and wraps a table."""

    def close(self) -> Any:
        """Close what it has opened itself; in its async form, awaited."""
        raise NotImplementedError


def check_unwrapped(table: Any) -> None:
    """Refuse what wraps a table already where a strategy is given: its own strategy, or its cache, would be ignored."""
    if isinstance(table, Strategy):
        raise ConfigurationError(
            f"table: got {brief(table, 200)}, a strategy; swap the two: table first, then strategy"
        )
    if isinstance(table, Wrapper):
        raise ConfigurationError(
            f"table: must not be wrapped already, got {brief(table, 200)}; give the table inside (.table), and for a "
            "cache CachedTable(ShardedTable(…), …)"
        )


class Attachment:
    """A meter, a budget or an installation on clients, until ``detach`` or the end of its ``with``."""

    def detach(self) -> None:
        """Stop seeing calls; detaching twice does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def events_of_session(target: Any) -> Any:
    """Return the event emitter that a session's clients inherit from; None: the target is not a session.

    A session of boto3 and the botocore session inside it have the same.
    """
    if hasattr(target, "client"):
        events = getattr(target, "events", None)
    elif hasattr(target, "get_component"):
        events = target.get_component("event_emitter")
    else:
        return None
    return events if hasattr(events, "register") and hasattr(events, "unregister") else None


class SessionAttachment(Attachment):
    """A meter, a budget or an installation on all DynamoDB clients that a session makes from now on.

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


def client_of_table(table: Any) -> Any:
    """Return the client of a boto3 ``Table``.

    Raises:
        ConfigurationError: It is not a boto3 ``Table``.
    """
    client = getattr(getattr(table, "meta", None), "client", None)
    if client is None or not hasattr(table, "name") or is_async(client):
        other = ", or use shardkit.aio for an async one" if is_async(client) or is_async(table) else ""
        raise ConfigurationError(
            f"table: must be a boto3 Table, got {brief(table)}; give boto3.resource('dynamodb').Table('…'){other}"
        )
    return client
