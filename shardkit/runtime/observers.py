"""Calls of a client as meters and budgets see them: observers, and holders that delay calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding


CacheLookup = tuple["Mapping[str, Any] | None", str, float]
"""A read of a cached table: the logical partition key's wire value (None: unknown); ``"miss"``, or how old the copy was
that was served: ``"fresh"`` or ``"stale"``; and the read units of what was returned."""


@dataclass
class Call:
    """One API call, botocore's retries included; ``shardings`` are those of tables, as requests name them."""

    operation: str
    params: dict[str, Any]
    shardings: Mapping[str, Sharding] = field(default_factory=dict)
    notes: dict[Any, Any] = field(default_factory=dict)
    observers: tuple[Observer, ...] = ()


class Observer(Protocol):
    """Sees every call of a client; for example a meter."""

    def before(self, call: Call) -> None:
        """See the request's wire parameters; may add parameters."""

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """See the error response of a failed attempt; botocore may retry it."""

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """See the wire response (or the error, under ``Error``); may remove what it had requested."""


class Holder(ABC):
    """An observer that also delays calls, such as a budget. It is not asked about botocore's retries."""

    waits = True
    """Whether it may delay a call or refuse it; one that does not is asked last, when the call goes."""

    @abstractmethod
    def hold(self, call: Call) -> None:
        """Wait until the call may go; raise to refuse it."""

    @abstractmethod
    async def hold_async(self, call: Call) -> None:
        """Do the same for a call of an async client."""

    def check(self, call: Call) -> None:
        """Raise if a request of the call may not go any more, just before it goes; also for botocore's retries."""
        return

    @abstractmethod
    def release(self, call: Call) -> None:
        """See that a call was not sent, because it was refused or cancelled while it waited."""


class CacheObserver(ABC):
    """An observer that also sees what a cache answers in place of the client."""

    @abstractmethod
    def looked_up(self, table: str, lookups: Sequence[CacheLookup]) -> None:
        """See the lookups of one read."""


@contextmanager
def holders_of(call: Call) -> Iterator[list[Holder]]:
    """Yield a call's holders; if the block raises, all of them release the call."""
    holders: list[Holder] = [observer for observer in call.observers if isinstance(observer, Holder)]
    holders.sort(key=lambda holder: not holder.waits)
    try:
        yield holders
    except BaseException:
        for holder in holders:
            holder.release(call)
        raise


def hold(call: Call) -> None:
    """Wait for each of a call's holders in turn."""
    with holders_of(call) as holders:
        for holder in holders:
            holder.hold(call)


def check(call: Call) -> None:
    """Ask a call's holders whether a request of it may still go."""
    for observer in call.observers:
        if isinstance(observer, Holder):
            observer.check(call)


def watch(call: Call, observers: tuple[Observer, ...]) -> None:
    """Show a call's request to observers, who see the call from here on."""
    call.observers = observers
    for observer in observers:
        observer.before(call)


def show_failed(call: Call, response: Mapping[str, Any]) -> None:
    """Show the error response of a failed attempt to a call's observers."""
    for observer in call.observers:
        observer.failed(call, response)


def show(call: Call, parsed: dict[str, Any]) -> None:
    """Show a call's response, or its error, to its observers."""
    # In reverse order: the last observer to add parameters is the first to remove its part of the response.
    for observer in reversed(call.observers):
        observer.after(call, parsed)


def lost(exception: BaseException | None) -> dict[str, Any]:
    """Return the error response that stands for one that did not come."""
    return {"Error": {"Code": type(exception).__name__, "Message": str(exception)}}
