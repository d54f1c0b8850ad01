"""The machines that count, update, delete and copy the items of a table that meet a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Unpack

from shardkit.analysis.prices import Prices
from shardkit.bulk.pacing import WriteRate
from shardkit.core.backoff import ATTEMPTS
from shardkit.core.hashing import key_draw
from shardkit.core.machine import Program, Response, Send
from shardkit.dynamodb.estimator import CapacityEstimator, TableUnits
from shardkit.dynamodb.expressions.rewrite import and_condition, as_read, grouped, updated_attributes
from shardkit.dynamodb.expressions.tokens import rebuilt, taken_placeholders
from shardkit.dynamodb.expressions.update import Setting, add_actions
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem, comparable_item, differing
from shardkit.errors import ConfigurationError, ShardkitError, UnknownOutcomeError
from shardkit.passes.before import Before
from shardkit.passes.choosing import PAGE, Choosing, Wanted
from shardkit.passes.table_pass import PassOptions, PassReport, Tasks
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.items import check_update
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs
from shardkit.sharding.scan import without_map
from shardkit.sharding.spread import plain
from shardkit.strategies import RandomSuffix

_MOST_COMPARED = 140  # attributes: a condition has at most 300 operators and functions (API reference)
_MOST_PAGE = 10_000
_SAMPLED = 10
_GIVEN_UP = 100  # failures without one success, after which no other item will do better

Update = str | Callable[[Any], Any]
"""An UpdateExpression, or a function that returns the new item; None: it stays as it is."""


@dataclass(frozen=True, kw_only=True)
class ChangeReport(PassReport):
    """What a count, an update, a deletion or a copy did; of a dry run, what it would do.

    Attributes:
        table: The table's name; of a copy, the target's.
        read: The items that were read; ``found``: those that meet ``where``; ``changed``: those that were updated,
            deleted or copied.
        unchanged: Those that the function left as they are, or that the target of a copy has already.
        overtaken: Those that another writer changed meanwhile: they do not meet ``where`` any more, or change often.
        resumed: Those that this pass had changed before it was resumed, or another writer since then.
        failed: Those that could not be changed; ``failures``: the keys of the first ten, each with the reason.
        complete: Whether all of the table was read.
        read_units: As of every pass; likewise ``write_units``, ``requests``, ``throttles``, ``seconds``.
        dry_run: Whether nothing was written. The others below are of a dry run only.
        units: Write units that the changes would consume, of the table and of each index; of an UpdateExpression, as if
            the items kept their sizes; of a copy, as if the target had none.
        expected_seconds: How long it would take at the given rates; None if unknown.
        dollars: What its units would cost on demand, by the prices that were given.
        sample: Ten of the items that would change, each as it is and (of a function) as it would be.
    """

    table: str
    found: int = 0
    changed: int = 0
    unchanged: int = 0
    overtaken: int = 0
    resumed: int = 0
    dry_run: bool = False
    units: TableUnits = field(default_factory=TableUnits)
    expected_seconds: float | None = None
    dollars: float | None = None
    sample: tuple[tuple[Any, ...], ...] = ()


class _Change(NamedTuple):
    """The change of an item; ``after``: the item then, if known; ``sent``: a killed process may have sent it too."""

    send: Send
    stored: WireItem
    logical: WireItem
    shard: int | None
    after: WireItem | None
    sent: bool = False


class Changing(Choosing[ChangeReport]):
    """Counts, updates or deletes the items that meet a condition.

    Each change has the condition that the item is as it was read. So it undoes no other write, and is made once even if
    it is sent twice. An item that has been changed meanwhile is looked at again.

    Attributes:
        before: Keeps the items as they were.
        if_unchanged: Whether changes have this condition.
        prices: For the report of a dry run, which ``description`` (DescribeTable's) makes it.
    """

    before: Before | None = None
    if_unchanged = True
    prices: Prices | None = None

    def __init__(
        self,
        sharding: Sharding,
        wanted: Wanted,
        description: Mapping[str, Any] | None = None,
        table: str | None = None,
        **options: Unpack[PassOptions],
    ) -> None:
        self.dry_run = description is not None
        self.writes = not self.dry_run and wanted.operation != ""
        scan: dict[str, Any] = {"Limit": PAGE} if self.writes else {}
        self._counts = not wanted.operation and wanted.test is None
        if self._counts:
            hides = sharding.types.get(sharding.partition_key) != "N"
            scan = {**(without_map(sharding, wanted.scan) if hides else {}), "Select": "COUNT"}
        report = ChangeReport(table=table or sharding.table, dry_run=self.dry_run)
        super().__init__(sharding, wanted, report, scan, **options)
        self._table = report.table  # whose throughput is used
        self._wire = replace(sharding, form=WIRE_VALUES)
        self._prefix = "c"
        while any(one[1:].startswith(self._prefix) for one in taken_placeholders({**wanted.scan, **wanted.change})):
            self._prefix += "c"
        self._given, self._read_rate = options.get("state", {}), options.get("read_units")
        self._starts: dict[int, int] = {}
        keys = sharding.schema(wanted.scan.get("IndexName")).names
        self._index_keys = {*keys, *(() if self._index is None else [self._index.stored_name])} - {*sharding.key_names}
        if description is not None:
            self._estimator = CapacityEstimator(description)
            self._rate = WriteRate.of(options.get("write_units"), description)

    @property
    def state(self) -> Mapping[str, Any]:
        """What a resumed pass needs of ``before``: the letters from here on may be of pages that are not done."""
        if self.before is None:
            return self._given
        since = self._given.get("before", 0)
        left = (one for one in range(self._segments) if self.positions.get(one, {}) is not None)
        return {**self._given, "before": min((self._starts.get(one, since) for one in left), default=since)}

    def fail(self, key: WireItem, error: Exception) -> None:
        super().fail(key, error)
        if self.writes and self.report.failed == _GIVEN_UP and not (self.report.changed or self.report.unchanged):
            self._error = self._error or ShardkitError(f"none of the first {_GIVEN_UP} items could be changed: {error}")

    def take(self, segment: int, answer: Response) -> Tasks:
        before = self.before
        if self._counts:
            self.count(read=answer["ScannedCount"], found=answer["Count"])
            return ()
        if before is not None and not before.awaited:
            self._starts[segment] = before.count
        changes = self.chosen(answer, self._first)
        if not self.writes:
            return ()
        if before is not None:
            before.keep([(change.logical, change.shard) for change in changes])
        # Larger pages where few items are found; not by what a resumed pass has left of these.
        self._scan["Limit"] = min(max(PAGE, PAGE * self.report.read // max(1, self.report.found)), _MOST_PAGE)
        return [(change.logical, self._program(change)) for change in changes]

    def _first(self, stored: WireItem, logical: WireItem, shard: int | None) -> _Change | None:
        self.count(found=1)
        if not self.wanted.operation:
            return None
        done = None if self.before is None else self.before.is_done(logical)
        if done:
            self.count(resumed=1)
            return None
        change = self._change(stored, logical, shard)
        if change is None:
            self.count(unchanged=1)
        elif not self.writes:
            self._estimate(change)
        return change and change._replace(sent=done is False)

    def _change(self, stored: WireItem, logical: WireItem, shard: int | None) -> _Change | None:
        """Return the change that an item needs; None: it needs none."""
        wanted = self.wanted
        params, after = dict(wanted.change), None
        if wanted.function is not None:
            new = wanted.function(self.sharding.form.shown(logical))
            after = logical if new is None else self.sharding.form.item(new)
            if not (differ := differing(logical, after)):
                return None
            sets = {name: Setting(after[name]) for name in after if name in differ}
            params = add_actions(params, sets, differ - after.keys())
        params |= {"TableName": self.sharding.table, "Key": self.key(logical)}
        if wanted.operation == "UpdateItem":
            place = WIRE_VALUES.python(logical)
            check_update(self._wire, params, place)
            if self._wire.sharded:
                params = self._wire.sharded.rewritten("UpdateItem", params, place, self.draw)
        if self._index_keys and (moved := updated_attributes(params) & self._index_keys):
            raise ConfigurationError(
                f"index: {sorted(moved)} would change, by which the index is ordered, so the item would be met again; "
                "read the table"
            )
        params = self._conditioned({**params, "Key": self.key(stored)}, stored)
        return _Change(Send(wanted.operation, params, paced=True, once=True), stored, logical, shard, after)

    def _conditioned(self, params: Mapping[str, Any], stored: WireItem) -> dict[str, Any]:
        """Add the condition of a change: the item is as it was read, or it is there at all."""
        compared = {*stored, *updated_attributes(params)}.difference(self._wire.key_names)
        if self.if_unchanged and len(compared) > _MOST_COMPARED:
            raise ConfigurationError(
                f"the item has {len(compared)} attributes, and a condition compares at most {_MOST_COMPARED}; give "
                "if_unchanged=False, while nobody else writes such items"
            )
        seen = {name: stored.get(name) for name in sorted(compared) if self.if_unchanged}
        unchanged, names, values = as_read(seen, self._prefix)
        # The service has evaluated the filter on the item as it was read, but not on what is there now.
        wanted = self.wanted.scan.get("FilterExpression")
        terms = [f"attribute_exists(#{self._prefix})", unchanged, wanted and grouped(wanted)]
        names[f"#{self._prefix}"] = self._wire.partition_key
        conditioned = and_condition(rebuilt(params, {}, values=values), " AND ".join(filter(None, terms)), names)
        return {**conditioned, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}

    def _program(self, change: _Change) -> Program[None]:
        deletes = self.wanted.operation == "DeleteItem"
        for _ in range(ATTEMPTS):
            try:
                yield change.send
            except Exception as error:
                if code_of(error) != "ConditionalCheckFailedException":
                    raise
                there = getattr(error, "response", {}).get("Item")
            else:
                self.count(changed=1)
                return
            lost = self.lost or change.sent
            if there is None:
                self.count(**{"changed" if lost and deletes else "overtaken": 1})
                return
            logical, shard = self.logical(there)
            if lost and not deletes:
                if change.after is None or comparable_item(logical) != comparable_item(change.after):
                    raise UnknownOutcomeError(
                        "the answer to its update was lost (or its process killed), and it has changed, by this update "
                        "or another writer; it was not sent again, as it might be made twice; look at the item"
                    )
                self.count(changed=1)
                return
            if self.before is not None:  # whatever becomes of it, loading the file must not undo the other writer
                self.before.keep([(logical, shard)])
            # If it is as it was read, it does not meet a condition any more.
            same = not self.if_unchanged or comparable_item(there) == comparable_item(change.stored)
            again = None if same or not self.meets(logical) else self._change(there, logical, shard)
            if again is None:
                break
            change = again
        self.count(overtaken=1)

    def _estimate(self, change: _Change) -> None:
        stored, after = change.stored, change.after
        if self.wanted.operation == "DeleteItem":
            units = self._estimator.delete_item(stored)
        elif self.wanted.operation == "PutItem":
            units = self._estimator.put_item(change.logical)
        else:
            units = self._estimator.update_item(stored, stored if after is None else {**after, **self.key(stored)})
        self.count(units=units)
        if len(self.report.sample) < _SAMPLED:
            pair = tuple(one and self.sharding.form.shown(one) for one in (change.logical, after))
            self.report = replace(self.report, sample=(*self.report.sample, pair))

    def concluded(self) -> ChangeReport:
        report, prices = super().concluded(), self.prices
        if not self.dry_run:
            return report
        units, read = report.units, report.read_units
        of_table = units.table + sum(units.local_indexes.values())
        known = self._rate.seconds(of_table, units.global_indexes), self._read_rate and read / self._read_rate
        lasts = max((seconds for seconds in known if seconds is not None), default=None)
        paid = None if prices is None else read * prices.million_reads + units.total * prices.million_writes
        return replace(report, dollars=paid and paid / 1e6, expected_seconds=lasts)


class Copying(Changing):
    """Copies items to the second client's table; a random suffix is drawn by the key, and so the same again."""

    target: Programs
    stored: Sharding  # the target's, also of the stage of its map
    overwrite = False

    def is_second(self, operation: str, segment: int = 0) -> bool:
        return operation != "Scan"

    def _change(self, stored: WireItem, logical: WireItem, shard: int | None) -> _Change:
        params: dict[str, Any] = {"Item": self.target.form.shown(logical)}
        if not self.overwrite:
            params["ConditionExpression"] = "attribute_not_exists(#copied)"
            params["ExpressionAttributeNames"] = {"#copied": self.sharding.partition_key}
        return _Change(Send("PutItem", params), stored, logical, shard, None)

    def _program(self, change: _Change) -> Program[None]:
        target, logical, shard = self.target, change.logical, None
        draw = key_draw("copy", tuple(plain(value) for value in self.key(logical).values()))
        if isinstance(self.stored.strategy, RandomSuffix) and not self.stored.strategy.locate:
            shard = self.stored.drawn(logical[self.sharding.partition_key], draw)
        how = FanOutOptions(1, lambda: draw)
        try:
            yield from target.item("PutItem", change.send.params, shard=shard, return_shards=False, fan_out=how)
        except Exception as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise
            self.count(unchanged=1)
        else:
            self.count(changed=1)
