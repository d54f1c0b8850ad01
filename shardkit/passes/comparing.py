"""The machine that compares the items of two tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from shardkit.analysis.sample import Estimate, SegmentSample, keys_unseen
from shardkit.core.machine import Program, Response
from shardkit.dynamodb.values import WireItem, comparable_item, differing
from shardkit.errors import ShardkitError
from shardkit.passes.choosing import Choosing, Wanted
from shardkit.passes.table_pass import PassOptions, PassReport, Tasks
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs

_KEYS = 100  # of a BatchGetItem (API reference)
COUNTED = ("missing", "different", "additional")


@dataclass(frozen=True, kw_only=True)
class CompareReport(PassReport):
    """How two tables differ.

    Attributes:
        source: The name of the first table; ``target``: of the second.
        read: The items of both that were read.
        missing: Those of the source that the target does not have; ``additional``: those of the target that the source
            does not have; ``different``: those that both have, but not alike.
        failed: All of these, and items that cannot be read; ``failures``: the first ten keys, with what is wrong.
        sample: The share of the partition keys that was compared; 1: all.
        estimates: Of a sample, ``missing``, ``different`` and ``additional`` in all of the tables, each with its 95%
            interval. If none was found, ``high`` is the number of partition keys that may have some all the same.
        complete: Whether all was read that was to be compared.
        read_units: Read units that were consumed; likewise ``requests``, ``throttles``, ``seconds``.
    """

    source: str
    target: str
    missing: int = 0
    different: int = 0
    additional: int = 0
    sample: float = 1.0
    estimates: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return self.complete and not self.failed


class AdditionalError(ShardkitError):
    """The target has an item that the source does not have: nothing that could be loaded repairs it."""


class Comparing(Choosing[CompareReport]):
    """Compares two tables, strongly consistent: half of the segments are of the source, the others of the target."""

    writes = False

    def __init__(self, sides: Sequence[Sharding], programs: Sequence[Programs], **options: Unpack[PassOptions]) -> None:
        report = CompareReport(source=sides[0].table, target=sides[1].table)
        options["write_units"] = None
        super().__init__(sides[0], Wanted(), report, {"ConsistentRead": True, "Limit": _KEYS}, **options)
        self._sides, self._programs = sides, programs
        self._half = self._segments // 2
        # What was counted of each segment.
        self._of = {int(one): Counter(counted) for one, counted in options.get("state", {}).get("of", {}).items()}
        skipped = sum(last is None and one not in self._of for one, last in self.positions.items())
        total: dict[str, Any] = sum(self._of.values(), Counter())
        self.report = replace(report, **total, sample=1 - skipped / self._segments)

    @property
    def state(self) -> Mapping[str, Any]:
        return {"of": {str(segment): dict(counted) for segment, counted in self._of.items()}}

    def is_second(self, operation: str, segment: int = 0) -> bool:
        return (segment >= self._half) == (operation == "Scan")

    def scan_of(self, segment: int) -> Mapping[str, Any]:
        table = self._sides[segment >= self._half].table
        return {**self._scan, "TableName": table, "Segment": segment % self._half, "TotalSegments": self._half}

    def take(self, segment: int, answer: Response) -> Tasks:
        self.sharding = self._sides[segment >= self._half]
        failed = self.report.failed
        items = self.chosen(answer, self._placed)
        counted = Counter(read=answer["ScannedCount"], failed=self.report.failed - failed)
        return [({}, self._compare(segment, items, counted))]

    def _placed(self, _: WireItem, item: WireItem, shard: int | None) -> tuple[WireItem, bool]:
        """Return an item, and whether the target has it where reads look for it."""
        known = self.sharding is self._sides[1] and self.sharding.known_shard(item, WIRE_VALUES.python(item))
        return item, known in {False, (shard, True), (None, False)}

    def concluded(self) -> CompareReport:
        estimates = {} if self.report.sample == 1 else {name: self._estimate(name) for name in COUNTED}
        return replace(super().concluded(), estimates=estimates)

    def _estimate(self, name: str) -> Estimate:
        sample = SegmentSample(self._half)
        for segment, counted in self._of.items():
            if (segment >= self._half) == (name == "additional"):
                sample.add({name: counted[name]})
        found = sample.total(name)
        return found if found.value else found._replace(high=keys_unseen(sample.share))

    def _compare(self, segment: int, items: Sequence[tuple[WireItem, bool]], counted: Counter[str]) -> Program[None]:
        of_target = segment >= self._half
        other = self._programs[not of_target]
        keys, how = [other.form.shown(self.key(item)) for item, _ in items], FanOutOptions(1, self.draw)
        try:
            look = other.batch_get_items(keys, {"ConsistentRead": True}, fan_out=how)
            answer = (yield from look) if keys else {"Items": ()}
        except Exception as error:  # noqa: BLE001 - every further look-up would fail too
            self._error = ShardkitError(f"items cannot be looked up in the other table: {error}")
            return
        there = {comparable_item(self.key(item)): item for item in map(other.form.item, answer["Items"])}
        for item, placed in items:
            found = there.get(comparable_item(self.key(item)))
            differ = set() if found is None else differing(item, found)
            if found is not None and (placed if of_target else not differ):
                continue
            what = "additional" if of_target else "different" if differ else "missing"
            counted.update([what, "failed"])
            self.count(**{what: 1})
            more = ", ".join(sorted(differ)) if placed else "in a shard where reads do not look"
            self.fail(item, (AdditionalError if of_target else ShardkitError)(f"{what}: {more}" if more else what))
        self._of.setdefault(segment, Counter()).update(counted)
