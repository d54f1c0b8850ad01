"""Shares of one rate: how it is divided, and what a load or a budget needs to know of its own share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable


def max_min(total: float, wants: Sequence[float]) -> list[float]:
    """Divide a total fairly: each gets what it wants, or as much as everyone who wants more than that.

    Example:
        >>> max_min(100.0, [10.0, 80.0, 100.0])
        [10.0, 45.0, 45.0]
    """
    shares = [0.0] * len(wants)
    left = total
    for done, place in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        shares[place] = min(wants[place], left / (len(wants) - done))
        left -= shares[place]
    return shares


class SharedRate(Protocol):
    """One member's share of a rate, with the interface of a :class:`TokenBucket`."""

    @property
    def whole(self) -> float:
        """The rate of all members together."""

    @property
    def rate(self) -> float:
        """The member's share now, in units a second; 0: none."""

    @property
    def error(self) -> Exception | None:
        """Why the share cannot be renewed, until somebody does something about it; None: it can."""

    @property
    def may_change_in(self) -> float:
        """Seconds after which :meth:`ready` may be earlier than it was."""

    def ready(self, now: float) -> float:
        """Return the time when the next request may go; infinity: not with this share."""

    def take(self, units: float, now: float) -> None:
        """Take units; a negative number gives units back."""

    def check(self) -> None:
        """Raise ShareEndedError if no request may go, because the share was not renewed in time."""


@runtime_checkable
class SharedRates(Protocol):
    """Rates that several processes share."""

    def shared_rate(self, side: Literal["read", "write"], option: str) -> SharedRate:
        """Return the share of the read or the write units; ``option`` is named if the budget has none of them."""
