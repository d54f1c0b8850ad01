"""Units consumed: what the service reported, and, apart from it, what is estimated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

__all__ = ["Account", "Units", "Usage", "VectorBytes", "figure"]


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
