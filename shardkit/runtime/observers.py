"""A call of a client as shardkit's own rooms see it: who observes it, and who decides when it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

__all__ = ["Call", "Holder", "Observer", "hold", "holders_of", "show"]


@dataclass
class Call:
    """One API call, with botocore's own retries inside, and who observes it: from its first event to its last."""

    operation: str
    params: dict[str, Any]
    sharding: Sharding | None = None
    notes: dict[Any, Any] = field(default_factory=dict)
    observers: tuple[Observer, ...] = ()


class Observer(Protocol):
    """What sees every call of a client: a meter, for one."""

    def before(self, call: Call) -> None:
        """See the request's wire parameters; may add to them."""

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """See what an attempt met, as an error response; botocore may or may not try again."""

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """See the wire response (or the error, under ``Error``); may take out what it had asked for."""


class Holder(ABC):
    """An observer that also decides when a call goes: a budget. botocore's retries inside the call do not ask it."""

    @abstractmethod
    def hold(self, call: Call) -> None:
        """Let the call wait here until it may go; an exception refuses it."""

    @abstractmethod
    async def hold_async(self, call: Call) -> None:
        """Let a call of an async client wait."""

    @abstractmethod
    def release(self, call: Call) -> None:
        """See that a call does not go, because it was refused or given up while it waited."""


@contextmanager
def holders_of(call: Call) -> Iterator[list[Holder]]:
    """Give those who hold a call; should it not go, all of them let go of it."""
    holders: list[Holder] = [observer for observer in call.observers if isinstance(observer, Holder)]
    try:
        yield holders
    except BaseException:
        for holder in holders:
            holder.release(call)
        raise


def hold(call: Call) -> None:
    """Let a call wait here for all who hold it, one after another."""
    with holders_of(call) as holders:
        for holder in holders:
            holder.hold(call)


def show(call: Call, parsed: dict[str, Any]) -> None:
    """Show a call's response, or its error, to its observers."""
    # Last in, first out: who asked last takes out first.
    for observer in reversed(call.observers):
        observer.after(call, parsed)
