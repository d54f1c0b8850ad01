"""The report of a bulk load, and the result of each item."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from shardkit.bulk.one_shard import MANY_ITEMS, OneShard
from shardkit.bulk.writes import Identity, Write
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.service_errors import Scope, throttle_reasons
from shardkit.errors import ShardkitError, brief
from shardkit.sharding.layout import Sharding


@dataclass(frozen=True, slots=True)
class BulkReport:
    """The outcome of a load: ``items == written + failed + duplicates``; each item counts once.

    Attributes:
        items: Items read from the source.
        written: Items written.
        failed: Items not written; ``failures`` has them with their reasons.
        stopped: How many of these failed only because the load stopped. They are not in the dead letters, and a resumed
            load sends them again.
        duplicates: Items superseded by another write of their key.
        resumed: Items that the journal recorded as done before; they do not count in ``items``.
        failed_before: How many of these failed. Their reasons are in the dead letters, if those were kept.
        retried: How often an item was sent again.
        requests: Write requests sent.
        throttles: Requests that the service rejected, or left partly unprocessed, for lack of throughput.
        throttles_by_reason: The same by the service's reason; ``"unknown"`` if it gave none.
        hot_keys: How often each partition key (as stored) was throttled; the most throttled 1,000.
        write_units: Write units that the service reported, including those of indexes.
        seconds: Time from the first request to the last response.
        keys_in_flight: Effective number of partition keys in flight at once (1/Σp², for their shares p). At 1, the load
            wrote one key at a time.
        per_shard: What was written to each shard, by its number.
        failures: The results of the items that failed.
        advice: What would improve the next load.
    """

    items: int = 0
    written: int = 0
    failed: int = 0
    stopped: int = 0
    duplicates: int = 0
    resumed: int = 0
    failed_before: int = 0
    retried: int = 0
    requests: int = 0
    throttles: int = 0
    throttles_by_reason: Mapping[str, int] = field(default_factory=dict)
    hot_keys: Mapping[Any, int] = field(default_factory=dict)
    write_units: float = 0.0
    seconds: float = 0.0
    keys_in_flight: float = 0.0
    per_shard: Mapping[int | None, ShardTally] = field(default_factory=dict)
    failures: tuple[BulkResult, ...] = ()
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        rate = f", {self.written / self.seconds:,.0f} items/s" if self.seconds > 0 else ""
        duplicates = f", {self.duplicates:,} superseded" if self.duplicates else ""
        before = f" ({self.failed_before:,} of them failed)" if self.failed_before else ""
        resumed = f", {self.resumed:,} done before{before}" if self.resumed else ""
        stopped = f", {self.stopped:,} not written because it stopped" if self.stopped else ""
        return (
            f"{self.items:,} items: {self.written:,} written, {self.failed - self.stopped:,} failed"
            f"{stopped}{duplicates}{resumed}; {self.write_units:,.1f} write units in {self.requests:,} requests "
            f"({self.retried:,} items retried, {self.throttles:,} throttles); {self.seconds:,.2f} s{rate}"
        )


@dataclass(frozen=True, slots=True)
class ShardTally:
    """What was written to one shard: items, and write units (of each batch, apportioned by the items' sizes)."""

    items: int = 0
    write_units: float = 0.0


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The outcome of one item.

    Attributes:
        item: The item, with the types of a boto3 resource; for a record that cannot be read, the record.
        place: Its position in the source: its index from 0, or what the source shows (``orders.csv, line 18``).
        shard: The number of its shard; None if it has none, or if that is unknown.
        ok: Whether it is written, or superseded.
        error: Why it failed.
        superseded: Whether another write of its key replaced it (``duplicates=``).
    """

    _given: Any = field(repr=False)
    place: Any
    shard: int | None
    ok: bool
    error: Exception | None = None
    superseded: bool = False

    @property
    def item(self) -> Any:
        """The item, decoded at each access: a load keeps bytes, not the caller's objects."""
        return self._given.shown if isinstance(self._given, Encoded) else self._given

    def __reduce__(self) -> tuple[Any, ...]:
        # A strategy may hold a function that cannot be pickled.
        return type(self), (self.item, self.place, self.shard, self.ok, self.error, self.superseded)


class BulkLoadError(ShardkitError):
    """Items of a load were not written: ``failed`` has their results, ``report`` the whole load."""

    def __init__(self, message: str, failed: Sequence[BulkResult] = (), report: BulkReport | None = None) -> None:
        super().__init__(message, failed, report)
        self.failed: list[BulkResult] = list(failed)
        self.report: BulkReport | None = report


# Counters of a LoadTally that its report has under the same name.
_COUNTS = (
    "items", "written", "failed", "stopped", "duplicates", "resumed", "failed_before", "retried", "requests",
    "throttles", "write_units",
)  # fmt: skip
HOT_KEYS = 1000  # of more, the least throttled are forgotten
_ADVISED_KEYS = 3
_LEADING_SHARE = 0.05  # of all throttles: above it, a key is hot
_SORTED = 4.0  # below so many keys in flight, advise on the order of the source
_SORTED_ITEMS = 1000

Settled = tuple[list[Any], list[tuple[Any, BulkResult]]]


class LoadTally:
    def __init__(self, sharding: Sharding, *, batch_writer: bool = False, kept: int | None = None) -> None:
        self._sharding = sharding
        self._batch_writer = batch_writer
        self._kept = kept
        self.items = self.written = self.stopped = self.duplicates = self.resumed = self.failed_before = 0
        self.retried = self.requests = self.throttles = self.failed = 0
        self.write_units = 0.0
        self.failures: list[BulkResult] = []  # the first that failed, if not all are kept
        self.reasons: Counter[str] = Counter()
        self.scopes: set[Scope] = set()
        self._hot: Counter[Any] = Counter()
        self._hot_in: defaultdict[str, Counter[Any]] = defaultdict(Counter)  # by index
        self._shards: defaultdict[int | None, list[Any]] = defaultdict(lambda: [0, 0.0])  # items, write units
        self._one_shard = OneShard(sharding)
        self._mixes = 0.0
        self._first: float | None = None
        self._last = 0.0

    def sent(self, now: float, mix: float) -> None:
        """Count a request; ``mix`` is the effective number of keys in flight."""
        if self._first is None:
            self._first = self._last = now
        self.requests += 1
        self._mixes += mix

    def answered(self, now: float) -> None:
        self._last = now

    def wrote(self, writes: list[Write], units: int, consumed: float) -> None:
        """Count what a batch wrote, and apportion what it consumed by the items' sizes, which sum to ``units``."""
        self.write_units += consumed
        self.written += len(writes)
        share = consumed / units
        shards = self._shards
        for write in writes:
            took = shards[write.shard]
            took[0] += 1
            took[1] += share * write.units
        self._one_shard.add(writes)

    def lost(self, result: BulkResult) -> None:
        """Count an item that failed."""
        self.failed += 1
        if self._kept is None or self.failed <= self._kept:
            self.failures.append(result)

    def throttled(self, reasons: Iterable[str]) -> None:
        self.throttles += 1
        self.reasons.update(reasons or ("unknown",))

    def hot(self, keys: Iterable[Any]) -> None:
        self._hot = _counted(self._hot, keys)

    def throttled_in(self, indexes: Iterable[str], writes: Sequence[Write]) -> None:
        """Count the keys that throttled writes have in indexes; an item may have none."""
        for index in indexes:
            schema = self._sharding.indexes.get(index)
            names = () if schema is None else schema.partition
            items = [orjson.loads(write.body).get("PutRequest", {}).get("Item", {}) for write in writes if names]
            keys = [
                tuple(from_wire_item({name: item[name] for name in names}).values())
                for item in items
                if {*names} <= item.keys()
            ]
            self._hot_in[index] = _counted(self._hot_in[index], (key[0] if len(key) == 1 else key for key in keys))

    @property
    def report(self) -> BulkReport:
        shards = sorted(self._shards, key=lambda shard: -1 if shard is None else shard)
        mix = self._mixes / self.requests if self.requests else 0.0
        hot = dict(self._hot.most_common(HOT_KEYS))
        return BulkReport(
            **{name: getattr(self, name) for name in _COUNTS},
            throttles_by_reason=dict(self.reasons),
            hot_keys=hot,
            seconds=0.0 if self._first is None else self._last - self._first,
            keys_in_flight=mix,
            per_shard={shard: ShardTally(*self._shards[shard]) for shard in shards},
            failures=tuple(self.failures),
            advice=tuple(self._advice(mix, hot)),
        )

    def _advice(self, mix: float, hot: Mapping[Any, int]) -> Iterable[str]:
        if "key" in self.scopes and hot:
            most = _listed(list(hot)[:_ADVISED_KEYS])
            yield f"single partition keys were throttled, {most} most: spread them over more shards"
        if "index" in self.scopes:
            yield from map(self._index_advice, sorted(self._hot_in) or [""])
        if "table" in self.scopes:
            yield (
                "the table or an index was throttled as a whole: raise its write units, or load at a lower rate "
                "(write_units=)"
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
            yield "the account's limit was reached: request a higher quota, or load at another time"
        if self.written >= _SORTED_ITEMS and mix < _SORTED:
            several = f"{mix:.0f} partition key{' was' if round(mix) == 1 else 's were'} in flight at once"
            yield (
                f"only {several}: the items come sorted by key, or have few keys; write them in another order, use "
                "bulk_load, or spread their keys over more shards"
                if self._batch_writer
                else f"only {several}: the source is sorted by key, or has few keys; read it in another order or with "
                "more cursors, or spread its keys over more shards"
            )
        yield from self._one_shard.advice()
        # Items that were written before, or not at all, may have the keys; so may the rest of the source.
        all_written = self.written + self.duplicates == self.items and not self.resumed
        if all_written and self.written >= MANY_ITEMS and not self._batch_writer:
            yield from self._one_shard.missing()

    def _index_advice(self, index: str) -> str:
        hot = [key for key, _ in self._hot_in[index].most_common(_ADVISED_KEYS)]
        most = f", {_listed(hot)} most" if hot else ""
        more = "more shards" if self._sharding.sharded.get(index) else "shards"
        return (
            f"single partition keys of {f'index {index}' if index else 'an index'} were throttled{most}, because too "
            f"many items share them: give it {more} (indexes=, see docs/sharded-indexes.md; the advise() of a "
            "CapacityMeter says how many), or load at a lower rate (write_units=)"
        )


def _counted(counts: Counter[Any], keys: Iterable[Any]) -> Counter[Any]:
    counts.update(keys)
    return Counter(dict(counts.most_common(HOT_KEYS))) if len(counts) > 2 * HOT_KEYS else counts


def _listed(keys: Iterable[Any]) -> str:
    return ", ".join(f"{brief(key, 60)}" for key in keys)


class LoadResults:
    """Collects results until they are taken; ``where`` returns a place as a reader understands it."""

    def __init__(self, sharding: Sharding, tally: LoadTally, where: Callable[[Any], Any] | None) -> None:
        self._sharding = sharding
        self._tally = tally
        self._where = where
        self._ended: list[Write | BulkResult] = []
        self._settled: Settled = ([], [])
        self._outlived: dict[Identity, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._ended)

    def results(self) -> Sequence[BulkResult]:
        ended, self._ended = self._ended, []
        return _Results(ended, self._result)

    def settled(self) -> Settled:
        """Return the places since the last call: those done, and those failed for good with their results.

        Items that fail only because the load stops are in neither: a resumed load sends them again.
        """
        settled, self._settled = self._settled, ([], [])
        return settled

    def written(self, writes: Sequence[Write]) -> None:
        done = self._settled[0]
        # Earlier failures of the same key are done too: a resumed load must not write them over this one.
        if self._outlived:
            for write in writes:
                done.extend(self._outlived.pop(write.same, ()))
        done.extend([write.place for write in writes])
        self._ended.extend(writes)

    def superseded(self, write: Write) -> None:
        self._tally.duplicates += 1
        write.superseded = True
        self.written([write])

    def failed(self, write: Write, error: Exception, *, final: bool) -> None:
        """Record a write that failed; if not ``final``, a resumed load sends it again."""
        if final:
            self._outlived.setdefault(write.same, []).append(write.place)
        self.refused(Encoded(write.body, self._sharding), write.place, error, final=final, shard=write.shard)

    def refused(self, given: Any, place: Any, error: Exception, *, final: bool, shard: int | None = None) -> None:
        """Record an item that failed, also one that never became a write."""
        result = BulkResult(given, self.place_of(place), shard, ok=False, error=error)
        if final:
            self._settled[1].append((place, result))
        else:
            self._tally.stopped += 1
        self._tally.lost(result)
        self._ended.append(result)

    def _result(self, write: Write) -> BulkResult:
        given = Encoded(write.body, self._sharding)
        return BulkResult(given, self.place_of(write.place), write.shard, ok=True, superseded=write.superseded)

    def place_of(self, place: Any) -> Any:
        return place if self._where is None else self._where(place)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An item or a key as stored, in the bytes of its request."""

    body: bytes
    sharding: Sharding

    @property
    def shown(self) -> dict[str, Any]:
        ((_, request),) = orjson.loads(self.body).items()
        ((_, stored),) = request.items()
        return from_wire_item(self.sharding.logical_item(stored))


class _Results(Sequence[BulkResult]):
    """Results made on access: ``bulk_load``, which only counts them, makes none."""

    def __init__(self, ended: list[Write | BulkResult], result: Callable[[Write], BulkResult]) -> None:
        self._ended = ended
        self._result = result

    def __len__(self) -> int:
        return len(self._ended)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __iter__(self) -> Iterator[BulkResult]:
        return (self._result(one) if isinstance(one, Write) else one for one in self._ended)


def too_many(failed: int, most: int) -> ShardkitError:
    return ShardkitError(
        f"{failed:,} items failed, more than max_failures={most:,}; check their reasons, then fix the source or raise "
        "max_failures"
    )


def stalled(error: Exception | None, seconds: float) -> ShardkitError:
    """Return the error of a load that was only throttled; ``error`` is the last throttle, if it was an error."""
    reasons = ", ".join(sorted(throttle_reasons(error))) if error else ""
    stall = ShardkitError(
        f"nothing was written for {seconds:.0f} s, because the service throttles every write "
        f"({reasons or 'it gives no reason'}); raise the write units of the table and its indexes, or load when others "
        "use less"
    )
    stall.__cause__ = error
    return stall
