"""What a cache answered in place of a table: hits, misses, and the read units that were saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from shardkit.capacity.charge import KeyOfTable
from shardkit.core.heavy_hitters import HeavyHitters, KeyCounters


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """How reads of a cached table ended.

    Example:
        >>> usage = CacheUsage(fresh=2, stale=1, saved_read_units=1.5) + CacheUsage(misses=1)
        >>> usage.hits, usage.misses, usage.hit_ratio
        (3, 1, 0.75)

    Args:
        fresh: items, and pages, that were answered from a copy.
        stale: those from a copy whose time was over.
        misses: those that were read from the table.
        saved_read_units: what the hits would have consumed as eventually consistent reads, by the size of the copies.
    """

    fresh: int = 0
    stale: int = 0
    misses: int = 0
    saved_read_units: float = 0.0

    def __add__(self, other: CacheUsage) -> CacheUsage:
        if not isinstance(other, CacheUsage):
            return NotImplemented
        return CacheUsage(*[getattr(self, name) + getattr(other, name) for name in self.__slots__])

    @property
    def hits(self) -> int:
        """Fresh and stale ones."""
        return self.fresh + self.stale

    @property
    def hit_ratio(self) -> float:
        """Hits among all; 0 if there was no read."""
        return self.hits / (self.hits + self.misses) if self.hits or self.misses else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name, as plain values that JSON can carry."""
        return asdict(self)


class Lookups:
    """The reads of cached tables: by table, and by key of any number of keys, in bounded memory."""

    def __init__(self, capacity: int) -> None:
        self.by_table: defaultdict[str, CacheUsage] = defaultdict(CacheUsage)
        self._keys: dict[str, HeavyHitters[KeyOfTable]] = {
            status: HeavyHitters(capacity) for status in ("fresh", "stale", "miss")
        }

    def add(self, table: str, lookups: Iterable[tuple[KeyOfTable | None, str, float]]) -> None:
        """Add the reads of a table: the key, ``"miss"`` or how old the copy was, and the units of what was read."""
        counts = {"fresh": 0, "stale": 0, "miss": 0}
        saved = 0.0
        for key, status, units in lookups:
            counts[status] += 1
            if status != "miss":
                saved += units
            if key is not None:
                self._keys[status].add(key, units or 1.0)
        self.by_table[table] += CacheUsage(counts["fresh"], counts["stale"], counts["miss"], saved)

    @property
    def by_key(self) -> dict[KeyOfTable, CacheUsage]:
        """Per key; those with the most units, if there are more keys than the capacity."""
        keys = dict.fromkeys(key for sketch in self._keys.values() for key in sketch.held)
        return {key: self._usage(key) for key in keys}

    def _usage(self, key: KeyOfTable) -> CacheUsage:
        fresh, stale, missed = (self._keys[status].held.get(key, _NONE) for status in ("fresh", "stale", "miss"))
        return CacheUsage(fresh.requests, stale.requests, missed.requests, fresh.reported + stale.reported)


_NONE = KeyCounters(0.0, 0)
