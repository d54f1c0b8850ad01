"""Units consumed: what the service reported, and, apart from it, what is estimated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from shardkit.core.checks import check_number


class Units(NamedTuple):
    """What one call consumed: units as the service reported them, and those that no response said."""

    read: float = 0.0
    write: float = 0.0
    estimated_read: float = 0.0
    estimated_write: float = 0.0

    def plus(self, other: Units) -> Units:
        """Add figure by figure."""
        read, write, estimated_read, estimated_write = other
        return Units(self[0] + read, self[1] + write, self[2] + estimated_read, self[3] + estimated_write)


class VectorBytes(NamedTuple):
    """What a vector index consumed, as the service reports it: bytes, which are never added to units.

    Args:
        vector_search_request_bytes: of ``SearchVectors``.
        vector_write_request_bytes: of writes that changed what the index holds.
    """

    vector_search_request_bytes: float = 0.0
    vector_write_request_bytes: float = 0.0

    def plus(self, other: VectorBytes) -> VectorBytes:
        """Add figure by figure."""
        return VectorBytes(self[0] + other[0], self[1] + other[1])


@dataclass(frozen=True, slots=True)
class Usage:
    """Units consumed: what the service reported, and, apart from it, what is estimated.

    Example:
        >>> usage = Usage(read_units=0.5, requests=1) + Usage(estimated_write_units=1.0, requests=1)
        >>> usage.read_units, usage.write_units, usage.estimated_write_units, usage.requests
        (0.5, 0.0, 1.0, 2)

    Args:
        read_units: reported by the service.
        write_units: reported by the service.
        estimated_read_units: read units that no response said; never a part of ``read_units``.
        estimated_write_units: write units that no response said; never a part of ``write_units``.
        requests: API calls, botocore's retries not counted; for a key, the reads and writes of it.
        throttles: attempts that the service refused for lack of throughput, each of botocore's retries counted; for a
            key, those for the sake of its partition.
    """

    read_units: float = 0.0
    write_units: float = 0.0
    estimated_read_units: float = 0.0
    estimated_write_units: float = 0.0
    requests: int = 0
    throttles: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Add figure by figure."""
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.read_units + other.read_units,
            self.write_units + other.write_units,
            self.estimated_read_units + other.estimated_read_units,
            self.estimated_write_units + other.estimated_write_units,
            self.requests + other.requests,
            self.throttles + other.throttles,
        )

    @property
    def units_with_estimates(self) -> float:
        """Read and write units, reported and estimated, in one figure: for ranking, not for accounting."""
        return self.read_units + self.write_units + self.estimated_read_units + self.estimated_write_units

    def to_dict(self) -> dict[str, Any]:
        """Give the figures by their names, as plain values that JSON can carry."""
        return asdict(self)

    def __str__(self) -> str:
        """Give the figures with their units; estimates are marked."""
        parts = [f"{figure(self.read_units)} read units", f"{figure(self.write_units)} write units"]
        for estimate, side in ((self.estimated_read_units, "read"), (self.estimated_write_units, "write")):
            if estimate:
                parts.append(f"+ estimated {figure(estimate)} {side} units")
        return "  ".join(parts)


class Account:
    """A sum of units that grows; ``usage`` is a snapshot."""

    __slots__ = ("_estimated_read", "_estimated_write", "_read", "_write", "requests", "throttles")

    def __init__(self) -> None:
        self._read = self._write = self._estimated_read = self._estimated_write = 0.0
        self.requests = self.throttles = 0

    def add(self, units: Units, requests: int = 1) -> None:
        """Add what calls consumed."""
        read, write, estimated_read, estimated_write = units
        self._read += read
        self._write += write
        if estimated_read or estimated_write:
            self._estimated_read += estimated_read
            self._estimated_write += estimated_write
        self.requests += requests

    @property
    def units(self) -> Units:
        """The units that were added so far."""
        return Units(self._read, self._write, self._estimated_read, self._estimated_write)

    @property
    def usage(self) -> Usage:
        """What was added so far."""
        return Usage(
            self._read, self._write, self._estimated_read, self._estimated_write, self.requests, self.throttles
        )


def figure(units: float) -> str:
    """Show units: reads are counted in halves."""
    return f"{units:,.1f}"


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
