"""Every botocore handler that shardkit registers, in one place and one order.

Two handlers a client, each registered once:

- ``before-parameter-build.dynamodb`` (last): 1. a call of shardkit's own gets its parameters, in wire form (so a
  resource's client, which would serialize them again, and a plain client behave alike); 2. observers see them.
- ``after-call.dynamodb`` (first): 1. observers see the response; 2. a call of shardkit's own takes its attribute values
  out, before a resource's handler would deserialize them.

Both are inert for calls that are neither shardkit's own nor observed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from shardkit.sharding import Sharding

__all__ = ["Call", "Observer", "observe", "own_call", "prepare", "unobserve", "visible"]

_ITEMS = ("Item", "Items", "Attributes", "Responses", "LastEvaluatedKey", "UnprocessedItems", "UnprocessedKeys",
          "ItemCollectionMetrics")  # fmt: skip
_WHOLE = frozenset({"Item", "Key", "KeyConditionExpression", "KeyConditions"})
_CONTEXT = "shardkit"


@dataclass
class Call:
    """One API call, with botocore's own retries inside."""

    operation: str
    params: dict[str, Any]
    sharding: Sharding | None = None
    notes: dict[Any, Any] = field(default_factory=dict)


class Observer(Protocol):
    """What sees every call of a client: a meter, for one."""

    def before(self, call: Call) -> None:
        """See the request's wire parameters; may add to them."""

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """See the wire response (or the error, under ``Error``); may take out what it had asked for."""


@dataclass
class OwnCall(Call):
    """A call that shardkit makes; ``taken`` is what was taken out of its response, in wire form."""

    taken: dict[str, Any] = field(default_factory=dict)
    begun: bool = False

    def response(self, returned: Mapping[str, Any]) -> dict[str, Any]:
        """Put the response together again."""
        if not self.begun:
            raise ConfigurationError(
                f"{self.operation} on {sorted(_tables(self.params))} went out without its parameters, because an event "
                "handler of the client changed the table that it names; wrap the table under its real name"
            )
        return {**returned, **self.taken}


def visible(params: Mapping[str, Any]) -> dict[str, Any]:
    """Give the part of wire parameters that is no attribute value: what tracing tools read before ours are put in."""
    shown = {name: params[name] for name in ("TableName", "IndexName") if name in params}
    if "RequestItems" in params:
        shown["RequestItems"] = {
            table: [] if isinstance(requests, list) else {"Keys": []}
            for table, requests in params["RequestItems"].items()
        }
    return shown


def _tables(params: Mapping[str, Any]) -> set[str]:
    return {params["TableName"]} if "TableName" in params else set(params.get("RequestItems", ()))


def _is_ours(params: Mapping[str, Any], call: Call) -> bool:
    # A whole request is that of a user's handler which runs before this one, and makes a call of its own.
    requests = params.get("RequestItems", {}).values()
    whole = not _WHOLE.isdisjoint(params) or any(part["Keys"] if isinstance(part, dict) else part for part in requests)
    return not whole and _tables(call.params) == _tables(params)


_own: ContextVar[OwnCall | None] = ContextVar("shardkit_own_call", default=None)


@contextmanager
def own_call(operation: str, params: Mapping[str, Any], sharding: Sharding | None) -> Iterator[OwnCall]:
    """Mark the next call of this operation in this context as shardkit's own."""
    call = OwnCall(operation, dict(params), sharding)
    token = _own.set(call)
    try:
        yield call
    finally:
        _own.reset(token)


class _Handlers:
    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()

    def before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        own = _own.get()
        call: Call
        if own is not None and own.operation == model.name and _is_ours(params, own):
            # From here on the mark is spent: a call that one of the user's handlers makes is not ours.
            _own.set(None)
            # What one of the user's handlers added to every request stays, where shardkit does not say it itself.
            params.update(own.params)
            own.params, own.begun = params, True
            call = own
        elif self.observers:
            call = Call(model.name, params)
        else:
            return
        context[_CONTEXT] = call
        for observer in self.observers:
            observer.before(call)

    def after(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if call is None:
            return
        # Last in, first out: who asked last takes out first.
        for observer in reversed(self.observers):
            observer.after(call, parsed)
        # An error is raised as it was parsed, with the item that it may carry.
        if isinstance(call, OwnCall) and "Error" not in parsed:
            call.taken = {name: parsed.pop(name) for name in _ITEMS if name in parsed}


_clients: WeakKeyDictionary[Any, _Handlers] = WeakKeyDictionary()
_lock = threading.Lock()


def prepare(client: Any) -> None:
    """Register shardkit's handlers on a client, once."""
    _handlers(client)


def observe(client: Any, observer: Observer) -> None:
    """Let an observer see the client's calls from now on."""
    handlers = _handlers(client)
    with _lock:
        if not any(known is observer for known in handlers.observers):
            handlers.observers = (*handlers.observers, observer)


def unobserve(client: Any, observer: Observer) -> None:
    """Let an observer see no more calls."""
    handlers = _handlers(client)
    with _lock:
        handlers.observers = tuple(known for known in handlers.observers if known is not observer)


def _handlers(client: Any) -> _Handlers:
    with _lock:
        handlers = _clients.get(client)
        if handlers is None:
            handlers = _clients[client] = _Handlers()
            events = client.meta.events
            events.register_last(
                "before-parameter-build.dynamodb", handlers.before, unique_id="shardkit-before-parameter-build"
            )
            events.register_first("after-call.dynamodb", handlers.after, unique_id="shardkit-after-call")
        return handlers
