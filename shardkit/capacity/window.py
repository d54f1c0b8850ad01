"""Rates over a sliding window, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

from shardkit.capacity.usage import Account, Usage, figure
from shardkit.core.checks import check_number

__all__ = ["Rates", "Window", "part_of"]

_PARTS = 60


@dataclass(frozen=True, slots=True)
class Rates:
    """What was consumed a second, over the last ``seconds``.

    Args:
        seconds: how long that is: the window, or the time since the first call where that is shorter.
        usage: all that was consumed in it.
    """

    seconds: float
    usage: Usage

    def _rate(self, amount: float) -> float:
        return amount / self.seconds if self.seconds else 0.0

    @property
    def read_units(self) -> float:
        """Read units a second that the service reported."""
        return self._rate(self.usage.read_units)

    @property
    def write_units(self) -> float:
        """Write units a second that the service reported."""
        return self._rate(self.usage.write_units)

    @property
    def estimated_read_units(self) -> float:
        """Read units a second that no response said; never a part of ``read_units``."""
        return self._rate(self.usage.estimated_read_units)

    @property
    def estimated_write_units(self) -> float:
        """Write units a second that no response said; never a part of ``write_units``."""
        return self._rate(self.usage.estimated_write_units)

    @property
    def requests(self) -> float:
        """API calls a second."""
        return self._rate(self.usage.requests)

    @property
    def throttles(self) -> float:
        """Throttled attempts a second."""
        return self._rate(self.usage.throttles)

    def to_dict(self) -> dict[str, float]:
        """Give the figures by their names, as plain values that JSON can carry."""
        names = ("seconds", *Usage.__dataclass_fields__)
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        """Give the rates with their units."""
        return (
            f"{figure(self.read_units)} read units/s  {figure(self.write_units)} write units/s  "
            f"over {self.seconds:,.0f} s"
        )


def part_of(window: float) -> float:
    """Give the seconds of a window's parts, the shortest time that it tells apart.

    Raises:
        ConfigurationError: ``window`` is not above 0.
    """
    return check_number("window", window, "seconds", above=True) / _PARTS


class Window:
    """What was consumed lately.

    Time is cut into parts of a sixtieth of the window, and the oldest part goes as a whole: so the window that is
    answered for is up to one part shorter than the one that was asked for, never longer.

    Args:
        seconds: how long the window is, above 0.

    Raises:
        ConfigurationError: ``seconds`` is not above 0.

    Cost:
        Memory for sixty sums, whatever happens.
    """

    def __init__(self, seconds: float) -> None:
        self._part = part_of(seconds)
        self._accounts: dict[int, Account] = {}
        self._newest = 0
        self._began: float | None = None

    def account(self, now: float) -> Account:
        """Give the sum of this part of time, to add to; ``now`` is on the caller's clock."""
        part = int(now // self._part)
        account = self._accounts.get(part)
        if account is None:
            if self._began is None:
                self._began, self._newest = now, part
            account = self._accounts[part] = Account()
            self._forget(part)
        return account

    def rates(self, now: float) -> Rates:
        """Give the rates of the window that ends now."""
        if self._began is None:
            return Rates(0.0, Usage())
        self._forget(int(now // self._part))
        seconds = min(now - self._began, now - (self._newest - _PARTS + 1) * self._part)
        usage = sum((account.usage for account in self._accounts.values()), Usage())
        # What happens at one instant has no rate: it is taken to last a part.
        return Rates(max(seconds, self._part), usage)

    def _forget(self, part: int) -> None:
        # Threads may hand in times that are a little older than the newest.
        self._newest = max(self._newest, part)
        for old in [old for old in self._accounts if old <= self._newest - _PARTS]:
            del self._accounts[old]
