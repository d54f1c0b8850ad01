"""What a move would take: the machine that reads a table and estimates it, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil
from typing import Any, NamedTuple, Unpack

from shardkit.bulk.pacing import WriteRate
from shardkit.core.machine import Program, Response
from shardkit.dynamodb.estimator import CapacityEstimator, ItemChange, TableUnits
from shardkit.dynamodb.limits import check_keys
from shardkit.dynamodb.schema import indexes_of
from shardkit.dynamodb.sizes import ITEM_BYTES, item_size, sized
from shardkit.dynamodb.units import READ_UNIT_BYTES, read_units, write_units
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import InvalidKeyError
from shardkit.migrate.items import old_home
from shardkit.migrate.marks import COPY_MARKED, MARK, Homes, Moving, is_frozen
from shardkit.migrate.mover import Location, grouped, key_in, location_of
from shardkit.migrate.sending import Sending
from shardkit.passes.table_pass import PassOptions, PassReport, TablePass, Tasks
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.shard_map import is_map_key
from shardkit.strategies import Stage


class Units(NamedTuple):
    """Read and write units of one operation."""

    read: float
    write: float


@dataclass(frozen=True, slots=True)
class StageCosts:
    """What operations on one item cost in a stage, for an item that is at its old place, at its new one, or at none.

    Args:
        stage: The stage.
        get_old: A GetItem, eventually consistent, of an item at its old place.
        get_new: The same of one at its new place.
        write_old: A write of an item at its old place.
        write_new: A write of an item at its new place.
        write_absent: A put of a new item.
    """

    stage: Stage
    get_old: Units
    get_new: Units
    write_old: Units
    write_new: Units
    write_absent: Units


def stage_costs(size: int) -> tuple[StageCosts, ...]:
    """Return the costs of each stage for an item of ``size`` bytes whose homes differ."""
    read, whole, write = read_units(size), read_units(size, consistent=True), float(write_units(size))
    miss, looked = read_units(0), read_units(0, consistent=True)
    plain_get, plain_write = Units(read, 0.0), Units(0.0, write)
    to_new = Units(miss + whole, 0.0)
    return (
        StageCosts("old", plain_get, plain_get, plain_write, plain_write, plain_write),
        # A failed guard costs as much as the write would have.
        StageCosts("guard", plain_get, to_new, plain_write, Units(0.0, 2 * write), plain_write),
        StageCosts("switch", plain_get, to_new, Units(whole, write), Units(looked, write), Units(looked, write + 1)),
        StageCosts(
            "move", Units(miss + read, 0.0), plain_get, Units(whole, write), Units(looked, write), Units(looked, write)
        ),
        StageCosts("new", plain_get, plain_get, plain_write, plain_write, plain_write),
    )


@dataclass(frozen=True, kw_only=True)
class MovePlan(PassReport):
    """What a move would take.

    Attributes:
        table: The table's name.
        read: The items that were read: all of the table's.
        home: The items that are at their new place.
        moving: The items that would move.
        stubs: The stubs of a move that has begun; they would be deleted.
        ambiguous: The items whose stored key the move cannot tell from a shard of another key.
        too_large: The items that are too large for the mark and the suffix, or whose key is too long for the suffix.
        failed: Both together.
        failures: The stored primary keys of the first ten of them, each with the reason.
        refused_indexes: The indexes that cannot be read from stage ``"guard"`` to ``"move"``: those of nothing but keys
            of the table, in which moved items cannot be told from what they leave behind.
        bytes: The size of all items.
        table_units: Write units of the table that the move would consume.
        index_units: Write units of each of its global indexes.
        expected_seconds: How long the move and its verification would take at the given rates; None if unknown.
        costs: What operations cost in each stage, for an item of the mean size.
        read_units: Read units that the plan consumed.
        requests: The requests that the plan sent.
        throttles: Those of them that were throttled.
        seconds: How long the plan took.
    """

    table: str
    home: int = 0
    moving: int = 0
    stubs: int = 0
    ambiguous: int = 0
    too_large: int = 0
    bytes: int = 0
    table_units: float = 0.0
    index_units: Mapping[str, float] = field(default_factory=dict)
    expected_seconds: float | None = None
    costs: tuple[StageCosts, ...] = ()
    refused_indexes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.read:,} items read: {self.moving:,} would move, {self.home:,} are at their place already"
        if self.stubs:
            yield f"{self.stubs:,} stubs would be deleted"
        takes = timedelta(seconds=ceil(self.expected_seconds or 0))
        taken = "" if self.expected_seconds is None else f"; at the given rates {takes} (h:mm:ss)"
        indexes = "".join(f", {units:,.0f} of index {name}" for name, units in sorted(self.index_units.items()))
        yield f"{self.table_units:,.0f} write units of the table{indexes}{taken}"
        if self.failed:
            yield f"{self.failed:,} cannot move: {self.ambiguous:,} ambiguous keys, {self.too_large:,} too large"
        if self.refused_indexes:
            yield refused_indexes(self.refused_indexes)
        yield from grouped("cannot move", self.failures)


def refused_indexes(names: Sequence[str]) -> str:
    return (
        f"index {', '.join(names)}: not readable from stage 'guard' to 'move', because it has key attributes of the "
        "table alone, so moved items cannot be told from what they leave behind; let services read an index that "
        "projects ALL attributes instead, and delete this one (or use a new table, if it is a local index)"
    )


def has_stream(description: Mapping[str, Any]) -> bool:
    return bool((description.get("StreamSpecification") or {}).get("StreamEnabled"))


class Planning(TablePass[MovePlan]):
    """Reads a table once, eventually consistent. ``description`` is DescribeTable's.

    Before the move has ``begun``, all items must be at their old homes: an unsharded ``v1.5`` that is where ``new``
    stores an item of ``v1`` looks like a moved one later, and no other pass can tell.

    ``returning``: only what stage ``"guard"`` finds and can write is in order: no frozen item, and nothing at a new
    home without a stub at the old one.
    """

    writes = False

    def __init__(
        self,
        moving: Moving,
        description: Mapping[str, Any],
        *,
        begun: bool,
        returning: bool = False,
        **options: Unpack[PassOptions],
    ) -> None:
        report = MovePlan(table=moving.table, refused_indexes=tuple(sorted(moving.hiding_marks)))
        super().__init__(moving.table, report, {"ConsistentRead": True} if returning else {}, **options)
        self._moving = moving
        self._begun = begun
        self._returning = returning
        self._streamed = has_stream(description)
        self._mark: WireValue = {"S": "0" * 32 + COPY_MARKED * self._streamed}
        self._estimator = CapacityEstimator(description)
        indexes = indexes_of(description, moving.keys)
        self._local = [index for index in indexes if index.local]
        self._keys = [moving.keys, *(index.keys for index in indexes)]
        self._index_units: dict[str, float] = {}
        self._rate = WriteRate.of(options.get("write_units"), description)
        self._read_rate = options.get("read_units")

    def take(self, segment: int, answer: Response) -> Tasks:
        unclear = [self._take(stored) for stored in answer["Items"] if not is_map_key(stored, self._moving.keys)]
        self.report = replace(
            self.report,
            index_units=dict(self._index_units),
            expected_seconds=self._seconds(),
            costs=stage_costs(self.report.bytes // max(1, self.report.read)),
        )
        return [(homes.new, self._without_stub(homes)) for homes in unclear if homes is not None]

    def _take(self, stored: WireItem) -> Homes | None:
        """Add an item to the report; return its homes, if it is to be looked at its old one first."""
        size = item_size(stored)
        self.count(read=1, bytes=size)
        try:
            location, homes = location_of(self._moving, stored)
        except InvalidKeyError as error:
            self.fail(key_in(self._moving, stored), error)
            self.count(ambiguous=1)
            return None
        if location in {Location.HOME, Location.COPY}:
            if homes.same or self._begun:
                self.count(home=1)
            elif self._returning:
                return homes
            else:
                self._fail_at_new(homes)
            return None
        if self._returning and is_frozen(stored):
            self.fail(homes.old, InvalidKeyError("the item is half moved; run move again, in stage 'move'"))
            self.count(ambiguous=1)
            return None
        if location is Location.STUB:
            self.count(stubs=1)
            self._add(self._estimator.delete_item(stored))
            return None
        marked = {**stored, MARK: stored.get(MARK, self._mark)}
        plain = {**stored, **homes.new}
        plain.pop(MARK, None)
        copy = {**plain, MARK: self._mark} if self._streamed else plain
        try:
            self._check_size(stored, marked, copy)
        except InvalidKeyError as error:
            self.fail(homes.old, error)
            self.count(too_large=1)
            return None
        self.count(moving=1)
        self._add(
            self._estimator.update_item(stored, marked)
            + self._estimator.transact_write_items([ItemChange(None, copy), ItemChange(marked, marked)])
            + self._estimator.delete_item(marked)
        )
        if self._streamed:
            self._add(self._estimator.update_item(copy, plain))
        return None

    def _without_stub(self, homes: Homes) -> Program[None]:
        there = yield from old_home(Sending(self._moving.table, FanOutOptions(1, self.draw)), homes)
        if there == "stub":
            self.count(home=1)
        else:
            self._fail_at_new(homes)

    def _fail_at_new(self, homes: Homes) -> None:
        reason = (
            f"{self._moving.partition_key}: looks like a shard of another key, but no item has moved yet; give new "
            "another separator="
        )
        self.fail(homes.new, InvalidKeyError(reason))
        self.count(ambiguous=1)

    def _check_size(self, stored: WireItem, marked: WireItem, copy: WireItem) -> None:
        """Raise for an item that the service refuses with the mark, or at its new place."""
        now, *then = map(self._size, (stored, marked, copy))
        if max(then) > ITEM_BYTES:
            raise InvalidKeyError(
                f"{now:,} bytes; with the mark or the suffix {max(then):,}, more than DynamoDB's {ITEM_BYTES:,}; make "
                "the item smaller, or move it yourself"
            )
        check_keys(copy, self._keys)

    def _size(self, item: WireItem) -> int:
        """Return the bytes of an item, which its entries in local indexes count into."""
        image = sized(item)
        return image.size + sum(entry.size for index in self._local if (entry := index.entry(image)) is not None)

    def _add(self, units: TableUnits) -> None:
        for name, index in units.global_indexes.items():
            self._index_units[name] = self._index_units.get(name, 0.0) + index
        self.count(table_units=units.table + sum(units.local_indexes.values()))

    def _seconds(self) -> float | None:
        written = self._rate.seconds(self.report.table_units, self._index_units)
        if written is None:
            return None
        scanned = self.report.bytes / READ_UNIT_BYTES / (self._read_rate or float("inf"))
        # The move reads eventually consistent, beside its writes; the verification consistently, after them.
        return max(written, scanned / 2) + scanned
