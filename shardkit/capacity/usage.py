"""Sums of consumed units and bytes, with estimates apart from what the service reported."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from shardkit.core.checks import check_number

_PARTS = 60


class Units(NamedTuple):
    """Units of one call, as the service reported them, and estimated where it reported none."""

    read: float = 0.0
    write: float = 0.0
    estimated_read: float = 0.0
    estimated_write: float = 0.0

    def plus(self, other: Units) -> Units:
        """Add field by field."""
        read, write, estimated_read, estimated_write = other
        return Units(self[0] + read, self[1] + write, self[2] + estimated_read, self[3] + estimated_write)


class VectorBytes(NamedTuple):
    """Bytes that a vector index consumed, as the service reports them; they are never added to units.

    Args:
        vector_search_request_bytes: of ``SearchVectors``.
        vector_write_request_bytes: of writes that changed the index.
    """

    vector_search_request_bytes: float = 0.0
    vector_write_request_bytes: float = 0.0

    def plus(self, other: VectorBytes) -> VectorBytes:
        """Add field by field."""
        return VectorBytes(self[0] + other[0], self[1] + other[1])


@dataclass(frozen=True, slots=True)
class Usage:
    """Units consumed: reported by the service, and, separately, estimated.

    Example:
        >>> usage = Usage(read_units=0.5, requests=1) + Usage(estimated_write_units=1.0, requests=1)
        >>> usage.read_units, usage.write_units, usage.estimated_write_units, usage.requests
        (0.5, 0.0, 1.0, 2)

    Args:
        read_units: reported by the service.
        write_units: reported by the service.
        estimated_read_units: read units that no response reported; not included in ``read_units``.
        estimated_write_units: write units that no response reported; not included in ``write_units``.
        requests: API calls, without botocore's retries; for a key, its reads and writes.
        throttles: attempts that the service refused for lack of throughput, botocore's retries included; for a key,
            those refused because its partition was too hot.
    """

    read_units: float = 0.0
    write_units: float = 0.0
    estimated_read_units: float = 0.0
    estimated_write_units: float = 0.0
    requests: int = 0
    throttles: int = 0

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(*[getattr(self, name) + getattr(other, name) for name in self.__slots__])

    @property
    def units_with_estimates(self) -> float:
        """All units in one figure, reads and writes, reported and estimated; for ranking, not for accounting."""
        return self.read_units + self.write_units + self.estimated_read_units + self.estimated_write_units

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name, as plain values that JSON can carry."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{figure(self.read_units)} read units", f"{figure(self.write_units)} write units"]
        for estimate, side in ((self.estimated_read_units, "read"), (self.estimated_write_units, "write")):
            if estimate:
                parts.append(f"+ estimated {figure(estimate)} {side} units")
        return "  ".join(parts)


class Account:
    """A growing sum of units."""

    __slots__ = ("_estimated_read", "_estimated_write", "_read", "_write", "requests", "throttles")

    def __init__(self) -> None:
        self._read = self._write = self._estimated_read = self._estimated_write = 0.0
        self.requests = self.throttles = 0

    def add(self, units: Units, requests: int = 1) -> None:
        """Add the units of one or several requests."""
        read, write, estimated_read, estimated_write = units
        self._read += read
        self._write += write
        if estimated_read or estimated_write:
            self._estimated_read += estimated_read
            self._estimated_write += estimated_write
        self.requests += requests

    @property
    def units(self) -> Units:
        """The units so far."""
        return Units(self._read, self._write, self._estimated_read, self._estimated_write)

    @property
    def usage(self) -> Usage:
        """The sum so far."""
        return Usage(*self.units, self.requests, self.throttles)


def figure(units: float) -> str:
    """Return units as text, with one decimal: reads are counted in halves."""
    return f"{units:,.1f}"


@dataclass(frozen=True, slots=True)
class Rates:
    """What was consumed per second, over the last ``seconds``.

    Args:
        seconds: the window, or the time since the first call if that is shorter.
        usage: all that was consumed in this time.
    """

    seconds: float
    usage: Usage

    def _rate(self, amount: float) -> float:
        return amount / self.seconds if self.seconds else 0.0

    @property
    def read_units(self) -> float:
        """Reported read units a second."""
        return self._rate(self.usage.read_units)

    @property
    def write_units(self) -> float:
        """Reported write units a second."""
        return self._rate(self.usage.write_units)

    @property
    def estimated_read_units(self) -> float:
        """Estimated read units a second, not included in ``read_units``."""
        return self._rate(self.usage.estimated_read_units)

    @property
    def estimated_write_units(self) -> float:
        """Estimated write units a second, not included in ``write_units``."""
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
        """Return the figures by name, as plain values that JSON can carry."""
        return {name: getattr(self, name) for name in ("seconds", *Usage.__slots__)}

    def __str__(self) -> str:
        return (
            f"{figure(self.read_units)} read units/s  {figure(self.write_units)} write units/s  "
            f"over {self.seconds:,.0f} s"
        )


def part_of(window: float) -> float:
    """Return the length of a window's parts in seconds."""
    return check_number("window", window, "seconds", above=True) / _PARTS


class Window:
    """What was consumed lately, in the memory of sixty sums.

    The window has sixty parts, and the oldest is dropped as a whole: so ``rates`` covers up to one part less than the
    window, never more.
    """

    def __init__(self, seconds: float) -> None:
        self._part = part_of(seconds)
        self._accounts: dict[int, Account] = {}
        self._newest = 0
        self._began: float | None = None

    def account(self, now: float) -> Account:
        """Return the sum to add to at a time on the caller's clock."""
        part = int(now // self._part)
        account = self._accounts.get(part)
        if account is None:
            if self._began is None:
                self._began, self._newest = now, part
            account = self._accounts[part] = Account()
            self._forget(part)
        return account

    def rates(self, now: float) -> Rates:
        """Return the rates of the window that ends now."""
        if self._began is None:
            return Rates(0.0, Usage())
        self._forget(int(now // self._part))
        seconds = min(now - self._began, now - (self._newest - _PARTS + 1) * self._part)
        usage = sum((account.usage for account in self._accounts.values()), Usage())
        # At least one part: what happens in one instant has no rate.
        return Rates(max(seconds, self._part), usage)

    def _forget(self, part: int) -> None:
        # Threads may come with times that are a little older than the newest.
        self._newest = max(self._newest, part)
        for old in [old for old in self._accounts if old <= self._newest - _PARTS]:
            del self._accounts[old]
