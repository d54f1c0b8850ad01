"""The counts of a load while it runs, and the report that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from shardkit.bulk.one_shard import OneShard
from shardkit.bulk.report import BulkReport, BulkResult, ShardTally
from shardkit.bulk.writes import Write
from shardkit.dynamodb.service_errors import Scope
from shardkit.sharding.layout import Sharding

__all__ = ["Tally"]

_HOT_KEYS = 1000  # of more, those that were throttled least are forgotten
_ADVISED_KEYS = 3
_LEADING_SHARE = 0.05  # of all that was throttled: such a key is hot
_SORTED = 4.0  # keys in flight below which the order of the source is worth a word
_SORTED_ITEMS = 1000


class Tally:
    """What is counted; the load changes it, everybody else reads the report."""

    def __init__(self, sharding: Sharding) -> None:
        self.items = self.written = self.stopped = self.duplicates = self.resumed = 0
        self.failed_before = 0
        self.retried = self.requests = self.throttles = 0
        self.write_units = 0.0
        self.failures: list[BulkResult] = []
        self.reasons: Counter[str] = Counter()
        self.scopes: set[Scope] = set()
        self.indexes: set[str] = set()
        self._hot: Counter[Any] = Counter()
        self._shards: dict[int | None, list[Any]] = {}  # items, write units
        self._one_shard = OneShard(sharding)
        self._mixes = 0.0
        self._first: float | None = None
        self._last = 0.0

    def sent(self, now: float, mix: float) -> None:
        """Count a request, with the number of keys that are in flight in effect."""
        if self._first is None:
            self._first = self._last = now
        self.requests += 1
        self._mixes += mix

    def answered(self, now: float) -> None:
        """Note the time of an answer."""
        self._last = now

    def wrote(self, writes: list[Write], units: float) -> None:
        """Count what a batch wrote; its units are apportioned by the items' sizes."""
        self.write_units += units
        self.written += len(writes)
        share = units / sum([write.units for write in writes])
        shards = self._shards
        for write in writes:
            took = shards.get(write.shard)
            if took is None:
                took = shards[write.shard] = [0, 0.0]
            took[0] += 1
            took[1] += share * write.units
            self._one_shard.add(write.identity[0], write.shard)

    def throttled(self, reasons: Iterable[str]) -> None:
        """Count a throttle by what the service says of it."""
        self.throttles += 1
        self.reasons.update(reasons or ("unknown",))

    def hot(self, keys: Iterable[Any]) -> None:
        """Count stored partition keys that were throttled."""
        self._hot.update(keys)
        if len(self._hot) > 2 * _HOT_KEYS:
            self._hot = Counter(dict(self._hot.most_common(_HOT_KEYS)))

    @property
    def report(self) -> BulkReport:
        """The load so far."""
        shards = sorted(self._shards, key=lambda shard: -1 if shard is None else shard)
        mix = self._mixes / self.requests if self.requests else 0.0
        hot = dict(self._hot.most_common(_HOT_KEYS))
        return BulkReport(
            items=self.items,
            written=self.written,
            failed=len(self.failures),
            stopped=self.stopped,
            duplicates=self.duplicates,
            resumed=self.resumed,
            failed_before=self.failed_before,
            retried=self.retried,
            requests=self.requests,
            throttles=self.throttles,
            throttles_by_reason=dict(self.reasons),
            hot_keys=hot,
            write_units=self.write_units,
            seconds=0.0 if self._first is None else self._last - self._first,
            keys_in_flight=mix,
            per_shard={shard: ShardTally(*self._shards[shard]) for shard in shards},
            failures=tuple(self.failures),
            advice=tuple(self._advice(mix, hot)),
        )

    def _advice(self, mix: float, hot: Mapping[Any, int]) -> Iterable[str]:
        if "key" in self.scopes and hot:
            most = _listed(list(hot)[:_ADVISED_KEYS])
            yield f"partition keys were throttled by themselves, {most} most: spread them over more shards"
        if "index" in self.scopes:
            indexes = ", ".join(sorted(self.indexes)) or "an index"
            yield (
                f"partition keys of {indexes} were throttled by themselves, too many items have the same: give the "
                "index's key a suffix too, or load at a lower rate (write_units=)"
            )
        if "table" in self.scopes:
            yield (
                "the table or an index was throttled as a whole: raise its write units, or load at a rate that leaves "
                "room for others (write_units=)"
            )
        if self.throttles and not self.scopes:
            leading = [key for key in list(hot)[:_ADVISED_KEYS] if hot[key] > _LEADING_SHARE * sum(hot.values())]
            yield (
                f"items came back without a reason, those of {_listed(leading)} most: spread them over more shards"
                if leading
                else "items of many keys came back without a reason: raise the write units of the table and its "
                "indexes, or load at a lower rate (write_units=)"
            )
        if "account" in self.scopes:
            yield "the account's limit was met: ask for a higher quota, or load at another time"
        if self.written >= _SORTED_ITEMS and mix < _SORTED:
            yield (
                f"only {mix:,.1f} partition keys were in flight at a time: the source is sorted by key, or has few; "
                "read it in another order or with more cursors, or spread its keys over more shards"
            )
        yield from self._one_shard.advice()


def _listed(keys: Iterable[Any]) -> str:
    return ", ".join(f"{key!r:.60}" for key in keys)
