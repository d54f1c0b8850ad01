"""Whether a candidate is a good partition key at a rate, and how many shards its hottest key needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardkit.analysis.keys import Uniformity
from shardkit.analysis.shards import HEADROOM, ShardsNeeded, shards_for
from shardkit.core.checks import check_number
from shardkit.dynamodb.units import PARTITION_READ_UNITS, PARTITION_WRITE_UNITS

TABLE_UNITS = 40_000
"""Read units, and write units, a second that a table gets unless AWS was asked for more (Developer Guide, "Quotas")."""
_WHOLE = 0.995


@dataclass(frozen=True)
class KeyHeat:
    """The hottest key's ``share`` of a load of ``rate`` units a second, and the ``limit`` that a partition serves."""

    rate: float
    share: float
    limit: int

    @property
    def units(self) -> float:
        return self.rate * self.share


@dataclass(frozen=True)
class Verdict:
    """Whether a candidate is a good partition key at a rate.

    It is ``good`` if a partition can serve its hottest key with 20% of its throughput left free; None: it is
    unknown. ``writes`` and ``reads`` are the hottest key's part of the load (None if it has none); ``needed`` are the
    shards for both.
    """

    good: bool | None
    reason: str
    writes: KeyHeat | None
    reads: KeyHeat | None
    needed: ShardsNeeded

    @property
    def shards(self) -> int | None:
        """How many shards the hottest key needs, 1 if the candidate is good; None: no number is enough, or unknown."""
        return None if self.good is None else self.needed.shards

    def doubted(self, share: float, reason: str) -> Verdict:
        """Return it as unknown, for that reason, if it is good but a key with this share of the load is hot."""
        writes, reads = (heat.rate * share if heat else 0.0 for heat in (self.writes, self.reads))
        hot = shards_for(read_units=reads, write_units=writes).shards != 1
        return replace(self, good=None, reason=reason) if self.good and hot else self


def judge(found: Uniformity, *, write_units: float | None = None, read_units: float | None = None) -> Verdict:
    """Return whether a candidate is a good partition key.

    It is good if one partition can serve its hottest key, with 20% left free: a partition serves 1,000 write units and
    3,000 read units a second, independently. The hottest key is assumed to take the same share of the load as of the
    data, or, if the key says when an item is written, as of the data of that time.

    Example:
        >>> from shardkit.analysis.keys import KeyUniformity
        >>> days = KeyUniformity(["Date"])
        >>> for day in range(1, 31):
        ...     days.add((f"2014-07-{day:02}",), 350, 1.0, 0.5)
        >>> verdict = judge(days.result(), write_units=5000)
        >>> verdict.good, verdict.shards
        (False, 263)

    Args:
        found: the counts of the candidate.
        write_units: write units a second of the whole load, above 0. None: no writes.
        read_units: read units a second of the whole load, above 0. None: no reads. If both are None, both are 40,000:
            the most that a table gets without a request to AWS.

    Source:
        Developer Guide, "Design for Uniform Data Access Across Items In Your Tables" (good and bad keys; a key that
        fits into one partition is not throttled), "Burst and adaptive capacity" (a partition's reads and writes are
        independent), "Quotas" (40,000).
    """
    if write_units is None and read_units is None:
        write_units = read_units = TABLE_UNITS
    writes = _heat("write_units", write_units, found.write_share, PARTITION_WRITE_UNITS)
    reads = _heat("read_units", read_units, found.read_share, PARTITION_READ_UNITS)
    worst = max((heat for heat in (writes, reads) if heat), key=lambda heat: heat.units / heat.limit)
    needed = shards_for(read_units=reads.units if reads else 0.0, write_units=writes.units if writes else 0.0)
    good = needed.shards == 1
    return Verdict(good, _why_good(found) if good else _why_bad(found, worst), writes, reads, needed)


def judge_sharded(
    found: Uniformity,
    shards: int,
    times: tuple[str, ...] = (),
    *,
    shares: tuple[float, float] | None = None,
    write_units: float | None = None,
    read_units: float | None = None,
) -> Verdict:
    """Return whether the shards of the hottest key are enough: as :func:`judge`, of a table that is sharded.

    ``found`` are the counts of the stored keys, ``shards`` how many the hottest logical key has. ``shares`` are its
    shares of the write units and of the read units; None: they are not known, and all its shards are taken to be as hot
    as the hottest stored key. With ``times``, logical keys say when an item is written: one of them takes the whole
    load.
    """
    writes, reads = shares or (min(1.0, found.write_share * shards), min(1.0, found.read_share * shards))
    whole = replace(found, write_share=1.0 if times else writes, read_share=1.0 if times else reads)
    verdict = judge(whole, write_units=write_units, read_units=read_units)
    many = verdict.shards is not None and verdict.shards <= shards
    stored = judge(found, write_units=write_units, read_units=read_units)
    good = many and (stored.good or shares is None)
    has = f"its hottest key has {shards:,} shard{'' if shards == 1 else 's'}"
    says = f"{' and '.join(times)} says when an item is written, so one key takes the whole load; " if times else ""
    enough = "which are enough" if many else "which are too few"
    if many and not good:
        enough = f"enough if they were even, but one stored key takes {found.write_share:.1%} of the write units"
    unseen = f"; with 95% confidence, at most {found.unseen:,} stored keys are hotter than the hottest that was read"
    return replace(verdict, good=good, reason=f"{says}{has}, {enough}{unseen if found.unseen and good else ''}")


def _heat(name: str, rate: float | None, share: float, limit: int) -> KeyHeat | None:
    if rate is None:
        return None
    check_rate(name, rate)
    return KeyHeat(rate, share, limit)


def check_rate(name: str, rate: float | None) -> None:
    if rate is not None:
        check_number(name, rate, "units a second", above=True)


def _why_good(found: Uniformity) -> str:
    if found.unseen:
        return (
            f"it has {_about(found)} different values, and one partition can serve the hottest that was read; "
            f"with 95% confidence, at most {found.unseen:,} others are hotter"
        )
    if found.distinct == 1:
        return "it has only one value, but one partition can serve it at this rate"
    return f"it has {_about(found)} different values, and one partition can serve the hottest"


def _why_bad(found: Uniformity, worst: KeyHeat) -> str:
    if found.times:
        names = " and ".join(found.times)
        one = "one key" if worst.share > _WHOLE else f"few keys, {worst.share:.1%} of them to the hottest"
        say = "say" if len(found.times) > 1 else "says"
        return f"{names} {say} when an item is written: all items of one time go to {one}"
    if worst.rate / found.distinct > worst.limit * (1 - HEADROOM):
        return (
            f"it has too few different values ({_about(found)}): even if all were equally hot, each would take too much"
        )
    times = worst.share * found.distinct
    return f"one of its {_about(found)} values takes {worst.share:.1%}, {times:,.0f} times its even share"


def _about(found: Uniformity) -> str:
    return f"{'' if found.exact else 'about '}{found.distinct:,}"
