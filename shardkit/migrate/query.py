"""A Query of a table whose items move: an ordinary read of the old places and one of the new places, merged.

1. The old places are read first: a page, or some rows of a stream. Then the new ones are read, strongly consistently,
   and no further: an item that had left its old place before it was read there has come to its new place. Reading ahead
   there would miss the items that come later.
2. Rows up to the nearer end of the two reads are in order; the others wait. Of an item that was found at both places,
   the row of the new place is shown. Stubs are rows of both reads, but they are never shown, and never replace a row:
   where a place belongs to both strategies, both reads meet its stubs and its items.
3. In the table, a sort key is an item's own, so a position is a sort key alone: a cursor of any stage continues here.
4. In an index, items with equal index sort keys are shown together, in the order of their own sort keys: engines return
   them in any order, and they may move between two pages. So a read counts only up to the last sort key whose items
   have all been read. A page that ends among them reads them all again.
5. A new place whose items cannot have come from elsewhere is an old place too, and is read once: shard 3 of 20 has only
   items of shard 3 of 10.
6. Ranges of the sort key are read together: a place of both strategies also has items of other ranges.

A Query of a global index that is not fanned out over the table's places is one that others would send
(:class:`FilteredRead`). It can show an item twice, which is hidden within a page, and among equal sort keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from math import ceil
from operator import itemgetter
from typing import Any, NoReturn, Self

from shardkit.core.chain import Chain, ChainProgram
from shardkit.core.machine import Done, Machine, Wait
from shardkit.core.merge import Item, Rows
from shardkit.dynamodb.expressions.key_condition import sort_value
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import ShardQueryError
from shardkit.migrate.marks import MARK, STUB, Moving
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.query.cursor import calculated
from shardkit.sharding.query.fan_out import not_queried, shards_failed, timed_out
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan, read_cursor
from shardkit.sharding.query.stream import StreamOfShards
from shardkit.sharding.spread import plain
from shardkit.strategies import CalculatedSuffix, KeyValue, RangeSuffix, Strategy

# A stream reads more and more of the old places before it reads the new ones, because that costs a request to each.
_FIRST_STRETCH = 100  # rows, at most, if max_items asks for so many
_GROWTH = 4

ReadProgram = ChainProgram[Any, Rows]
Order = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Of a row: its sort key, and in an index its sort key in the table."""


@dataclass(frozen=True)
class MovingPlan(QueryPlan):
    """A Query between the stages. Where the table's partition key is given, a position is a sort key, in any shard."""

    sharding: Moving

    @classmethod
    def of(cls, sharding: Sharding, params: Mapping[str, Any], *, shard: int | None = None) -> Self:
        assert isinstance(sharding, Moving)
        if shard is not None:
            sharding.refuse("Shard=", "an item can be at its old or at its new place; leave it out")
        sharding.refuse_hiding(params.get("IndexName"))
        return super().of(sharding, params)

    def _continued(self, given: Any) -> Self:
        return replace(self, start=read_cursor(self, given)) if self.of_table else super()._continued(given)

    def cursor(self, shard: int | None, key: WireItem) -> dict[str, Any]:
        if self.of_table:
            name = self.sharding.partition_key
            shard, _ = calculated(self.sharding, {name: self.condition.equals[name], **self.rest(key)})
        return super().cursor(shard, key)

    def refuse_shards(self) -> NoReturn:
        self.sharding.refuse("ReturnShards=", "an item can be at its old or at its new place; leave it out")

    def shard_shown(self, number: int, item: Item) -> int | None:
        self.refuse_shards()

    def over(self, sharding: Sharding, *, less: Collection[KeyValue] = (), **params: Any) -> QueryPlan:
        """Return the ordinary plan of one of the strategies, without the stored keys ``less``."""
        logical = self.condition.equals[sharding.partition_key]
        shards = sharding.touched(logical, self.condition)
        own = {
            "sharding": sharding,
            "spread": sharding,
            "shards": tuple(shard for shard in shards if plain(sharding.physical(logical, shard)) not in less),
            "params": {**self.params, **params},
            "together": True,
            "start": None,
        }
        plan = QueryPlan(**{name: getattr(self, name) for name in QueryPlan.__dataclass_fields__} | own)
        if self.start is None:
            return plan
        return plan.after(self.start.key) if self.index is None else plan.from_key(self.start.key)


class _Side:
    """What was read of some places, and how far. ``plan`` reads all of it, ``reads`` what is read now."""

    def __init__(self, plan: QueryPlan) -> None:
        self.plan = plan
        self.rows: deque[tuple[Order, Item]] = deque()
        """Those that were not shown yet."""
        self.errors: dict[int | None, Exception] = {}
        self.met = self.kept = 0  # rows, with the stubs and without them
        self.begin(plan)

    def begin(self, plan: QueryPlan) -> None:
        """Read another plan from now on, without the shards that have failed."""
        self.reads = replace(plan, shards=tuple(shard for shard in plan.shards if shard not in self.errors))
        self.ended = not self.reads.shards
        self.to: WireItem | None = None
        self.machine: PageOfShards | StreamOfShards | None = None
        self.driven: Machine[Any] | None = None


class FilteredRead(Chain[Any]):
    """An ordinary read of one plan, whose stubs are hidden and which shows an item once.

    With ``paged``, its result is itself, with a page; else each result is some rows of a stream, an empty one the end.
    """

    def __init__(
        self,
        plan: MovingPlan,
        *sides: _Side,
        sizes: ItemSizes,
        fan_out: FanOutOptions,
        paged: bool = False,
        max_items: int | None = None,
    ) -> None:
        super().__init__(self._page() if paged else self._stream())
        self.plan = plan
        self.rows = Rows()
        self._sides = sides or (_Side(plan),)
        self._sizes = sizes
        self._fan_out = fan_out
        self._left = max_items
        self._paged = paged
        self._one_round = paged and (plan.limit is None or plan.filtered)
        self._pages: list[PageOfShards] = []
        self._deadline: float | None = None
        self._late = False
        self._stub = plan.sharding.form.shown({MARK: STUB})[MARK]
        self._group: tuple[Hashable, set[Hashable]] = None, set()
        """The last sort key of the rows that were returned, and its items: the next rows may have them again."""

    @property
    def errors(self) -> dict[int | None, Exception]:
        """By shard number, which an old and a new place may share: the error of the one that was asked, the old first.

        Those of places that were asked come first: they are why others were not.
        """
        every = [found for side in self._sides for found in side.errors.items()]
        errors: dict[int | None, Exception] = {}
        for shard, error in sorted(every, key=lambda found: not_queried(found[1])):
            errors.setdefault(shard, error)
        return errors

    def hedged(self) -> Self:
        """Return itself: the reads of the places are hedged."""
        return self

    def _page(self) -> ReadProgram:
        limit = self.plan.limit
        while True:
            self.rows += yield from self._step(None if limit is None else limit - len(self.rows))
            if self._complete or self._late or len(self.rows) == limit or (self._one_round and self._may_end):
                break
        if not (self._complete or self._may_end):
            for side in self._sides:
                self._time_is_over(side)
            self._fail(always=True)
        self.rows = self._once(self.rows)
        self.scanned = sum(page.scanned for page in self._pages)
        self.consumed = reduce(add_consumed, [page.consumed for page in self._pages if page.consumed], None)
        self.metadata = next((page.metadata for page in self._pages if page.metadata), {})
        yield Done(self)
        return self.rows

    def _stream(self) -> ReadProgram:
        while True:
            self._deadline, self._late = None, False
            rows = Rows()
            while not (rows or self._complete or self._left == 0):
                rows = self._once((yield from self._step(self._left)))
                if self._late:
                    self._deadline = None  # without a row in order, the old places have the time once more
            if self._left is not None:
                self._left -= len(rows)
            yield Done(rows)

    def _step(self, limit: int | None) -> ReadProgram:
        """Read on, and return the rows that are in order then, which may be none."""
        return (yield from self._read(self._sides[0], limit))

    @property
    def _complete(self) -> bool:
        return all(side.ended for side in self._sides)

    @property
    def _may_end(self) -> bool:
        """Whether a page has a position at which it can end."""
        return True

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        return self._pages[-1].last_evaluated_key

    def _read(self, side: _Side, wanted: int | None) -> ReadProgram:
        """Return the rows of a page, or some of a stream, of which so many are wanted."""
        if self._deadline is None and self._fan_out.timeout is not None:
            self._deadline = (yield Wait()) + self._fan_out.timeout
        if (machine := side.machine) is None:
            machine = side.machine = self._machine(side.reads, wanted)
            side.driven = machine.hedged()
        else:
            machine.go_on(wanted)
        machine.restart(self._deadline)
        failure: Exception | None = None
        assert side.driven is not None
        try:
            found = yield side.driven
        except Exception as error:  # noqa: BLE001 - raised below, unless the caller accepts the other places' rows
            failure, found = error, machine.partial()
        side.errors |= machine.errors
        if failure is not None:
            if not machine.errors:
                raise failure
            self._fail(failure)
        rows: Rows = found if isinstance(found, Rows) else found.rows
        side.ended = machine.ended or failure is not None or (isinstance(machine, StreamOfShards) and not rows)
        if isinstance(machine, PageOfShards):
            side.to = None if machine.end is None else machine.end.key
        elif rows:
            side.to = side.reads.position(rows.numbers[-1], rows.items[-1]).key
        if self._deadline is not None:
            self._late |= (yield Wait()) >= self._deadline
        shown = self._without_stubs(rows)
        side.met, side.kept = side.met + len(rows), side.kept + len(shown)
        return shown

    def _machine(self, plan: QueryPlan, wanted: int | None) -> PageOfShards | StreamOfShards:
        fan_out = self._fan_out
        if self._paged:
            self._pages.append(PageOfShards(replace(plan, limit=wanted), sizes=self._sizes, fan_out=fan_out))
            return self._pages[-1]
        # Each side has a third of the memory; the old places' rows that wait for the new ones have the rest.
        in_flight = sum(side.machine.in_flight for side in self._sides if side.machine is not None)
        fan_out = replace(
            fan_out,
            max_buffer_bytes=max(1, fan_out.max_buffer_bytes // 3),
            connections=max(1 if fan_out.hedge_after is None else 2, fan_out.connections - in_flight),
        )
        return StreamOfShards(plan, sizes=self._sizes, fan_out=fan_out, max_items=wanted)

    def _without_stubs(self, rows: Rows) -> Rows:
        found = [(number, item) for number, item in rows if item.get(MARK) not in (STUB, self._stub)]
        for _, item in found:
            item.pop(MARK, None)
        return Rows([number for number, _ in found], [item for _, item in found])

    def _once(self, rows: Rows) -> Rows:
        """Return rows with each item once: the entry of its new place."""
        moving = self.plan.sharding
        kept: dict[Hashable, tuple[Hashable, int, Item]] = {}
        last, tied = self._group
        for number, item in rows:
            stored = self.plan.written(item, moving.keys.names)
            logical = moving.logical_item(stored)
            group, identity = comparable_item(self.plan.written(item, self.plan.sort)), comparable_item(logical)
            if group == last and identity in tied:
                continue
            if identity in kept:
                if comparable_item(moving.homes(logical).new) != comparable_item(stored):
                    continue
                del kept[identity]
            kept[identity] = group, number, item
        for identity, (group, _, _) in kept.items():
            last, tied = (last, tied) if group == last else (group, set())
            tied.add(identity)
        self._group = last, tied
        return Rows([number for _, number, _ in kept.values()], [item for _, _, item in kept.values()])

    def _time_is_over(self, side: _Side) -> None:
        """Let the places of a side fail that was not read to its end."""
        if not side.ended:
            asked = side.machine is not None
            side.errors |= {shard: timed_out(shard, self._fan_out, asked=asked) for shard in side.reads.shards}
            side.ended = True
            self._fail()

    def _fail(self, failure: Exception | None = None, *, always: bool = False) -> None:
        """Raise the error of the whole read, unless the caller accepts the rows of the places that have not failed.

        It counts the places of both strategies, also where one of them is read alone, and where two have one number.
        """
        shards = sum(len(side.plan.shards) for side in self._sides)
        failed = sum(len(side.errors) for side in self._sides)
        if always or failed == shards or self._fan_out.on_shard_error == "raise":
            answered = any(side.machine is not None and side.machine.answered for side in self._sides)
            alike = len({code_of(error) for error in self.errors.values()}) == 1
            if failure is not None and not isinstance(failure, ShardQueryError) and not answered and alike:
                raise failure
            partial = [self.plan.shown(item) for item in [*self.rows.items, *self._unshown()]]
            first = next(iter(self.errors.values()), None)
            raise shards_failed(self.errors, partial, failed=failed, shards=shards) from first

    def _unshown(self) -> list[Item]:
        """Return what was read and not shown."""
        machine = self._sides[0].machine
        return [] if machine is None else self._once(self._without_stubs(machine.partial())).items


class MergedRead(FilteredRead):
    """The reads of the old and of the new places: of the table, or of an index with the table's partition key."""

    def __init__(self, plan: MovingPlan, **options: Any) -> None:
        moving = plan.sharding
        logical = plan.condition.equals[moving.partition_key]
        by = moving.strategy.by_attributes
        one = bool(by) and plan.condition.equals.keys() >= {*(by or ())}
        once = one or _nested(moving.strategy.old, moving.strategy.new, plain(logical))
        old = plan.over(moving.old)
        places = {plain(moving.old.physical(logical, shard)) for shard in old.shards}
        exact = {"ConsistentRead": True} if plan.index is None or plan.index in moving.local else {}
        new = plan.over(moving.new, less=places if once else (), **exact)
        self._old, self._new = _Side(old), _Side(new)
        super().__init__(plan, self._old, self._new, **options)
        # Whether a read of the new places can end among rows with one sort key: in the table, after a stub of the item.
        shared = (plain(moving.new.physical(logical, shard)) in places for shard in new.shards)
        self._tied = plan.index is not None or any(shared)
        self._own = () if plan.index is None else moving.keys.sort
        self._level = True  # the new places were read as far as the old ones
        self._over = False  # more is in order than was wanted
        self._given = 0
        self._end: WireItem | None = None
        """The key up to which everything was shown."""
        self._last = None if plan.start is None else self._order(plan.start.key)
        self._stretch = 1.0 if self._left is None else min(self._left, _FIRST_STRETCH)

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        if self._complete:
            return None
        if self.rows and (self.plan.index is not None or len(self.rows) == self.plan.limit):
            return self.plan.behind(0, self.rows.items[-1])
        assert self._end is not None
        return self.plan.cursor(None, self._end)

    @property
    def _complete(self) -> bool:
        return self._old.ended and self._level and not self._over

    @property
    def _may_end(self) -> bool:
        return bool(self.rows) or self._end is not None

    def _step(self, limit: int | None) -> ReadProgram:
        old, new = self._old, self._new
        if self._level:
            yield from self._read_old(_more(limit, old.met, self._given))
            end = None if old.ended else self._known_end()
            if not old.ended and (end is None or (self._late and self._paged and self._end is not None)):
                return Rows()
            after = new.plan if self._end is None else new.plan.after(self._end)
            new.begin(after if end is None else after.up_to(end))
        if self._late:
            self._time_is_over(new)
        if not new.ended:
            wanted = _more(self._wanted(new, limit, new.met - len(new.rows)), new.met, new.kept)
            self._keep(new, (yield from self._read(new, wanted)))
        self._level = new.ended
        return self._released(limit)

    def _read_old(self, limit: int | None) -> ReadProgram:
        """Read the old places on: a page, or as much of a stream as the next reading of the new places is worth."""
        old = self._old
        before = old.met - len(old.rows)
        goal = limit or 0 if self._paged else self._stretch if limit is None else min(self._stretch, limit)
        while True:
            self._keep(old, (yield from self._read(old, self._wanted(old, limit, before))))
            found = old.met - before
            if old.ended or self._late or self._one_round or found - self._tail(old) >= goal:
                break
        if isinstance(old.machine, StreamOfShards):
            most = self._fan_out.max_buffer_bytes / 3 / max(1.0, old.machine.bytes_a_row)
            self._stretch = min(_GROWTH * found, most)
        return Rows()

    def _wanted(self, side: _Side, limit: int | None, before: int) -> int | None:
        """Return how many rows to read, of which a side has met all but ``before``; None: as many as come."""
        # As many as have the last sort key of an index: then all of them are read in a few requests.
        tail = self._tail(side)
        return None if limit is None else max(1, limit - (side.met - before - tail), tail)

    def _order(self, key: Mapping[str, Any]) -> Order:
        sort, own = ([sort_value(key[name]) for name in names] for names in (self.plan.sort, self._own))
        return tuple(sort), tuple(own)

    def _before(self, order: Any, other: Any) -> bool:
        return bool(order > other if self.plan.descending else order < other)

    def _keep(self, side: _Side, rows: Rows) -> None:
        """Keep rows that were not shown yet."""
        for item in rows.items:
            order = self._order(self.plan.written(item, (*self.plan.sort, *self._own)))
            if self._last is None or self._before(self._last, order):
                side.rows.append((order, item))

    def _known(self, side: _Side) -> Callable[[Order], bool]:
        """Returns whether all rows up to a place were read; in an index, others may have the last sort key."""
        if side.ended or side.to is None:
            return lambda _: side.ended
        reach, table = tuple(sort_value(side.to[name]) for name in self.plan.sort), self.plan.index is None
        return lambda order: self._before(order[0], reach) or (order[0] == reach and table)

    def _tail(self, side: _Side) -> int:
        """Return how many rows at the end of a side wait for others with their sort key."""
        known = self._known(side)
        return sum(1 for _ in takewhile(lambda row: not known(row[0]), reversed(side.rows)))

    def _known_end(self) -> WireItem | None:
        """Return the key up to which all rows of the old places were read; None: there is none yet."""
        old, tail = self._old, self._tail(self._old)
        if self.plan.index is None:
            return old.to
        return None if tail == len(old.rows) else self.plan.written(old.rows[-1 - tail][1], self.plan.key_names)

    def _released(self, limit: int | None) -> Rows:
        """Return the rows up to the nearer end: that of the new places, which are read no further than the old ones."""
        old, new = self._old, self._new
        known, rows = self._known(old if new.ended else new), dict[Order, Item]()
        for side in old, new:
            while side.rows and known(side.rows[0][0]):
                order, item = side.rows.popleft()
                rows[order] = item
        ordered = sorted(rows.items(), key=itemgetter(0), reverse=self.plan.descending)
        items = [item for _, item in ordered[:limit]]
        self._over = len(items) < len(ordered)
        self._given += len(items)
        if new.ended and self.plan.index is None:
            self._end = old.to
        elif not self._tied:
            self._end = new.to
        elif ordered:
            self._end = self.plan.written(ordered[-1][1], self.plan.key_names)
        if self._end is not None:
            self._last = self._order(self._end)
        return Rows([0] * len(items), items)

    def _once(self, rows: Rows) -> Rows:
        return rows

    def _unshown(self) -> list[Item]:
        rows: dict[Order, Item] = {}
        for side in self._sides:
            if side.machine is not None:
                self._keep(side, self._without_stubs(side.machine.partial()))
            rows.update(side.rows)
        return [rows[order] for order in sorted(rows, reverse=self.plan.descending)]


def _more(wanted: int | None, met: int, found: int) -> int | None:
    """Return how many rows to read for so many items, if of those ``met`` so many were what is looked for."""
    return None if wanted is None else ceil(wanted * min(_GROWTH, max(1.0, met / max(1, found))))


def read_of(plan: QueryPlan, **options: Any) -> FilteredRead:
    assert isinstance(plan, MovingPlan)
    return (MergedRead if plan.of_table else FilteredRead)(plan, **options)


def _nested(old: Strategy, new: Strategy, key: KeyValue) -> bool:
    """Return whether a stored key of both strategies has only items that had it by the old one too."""
    if isinstance(old, CalculatedSuffix) and isinstance(new, CalculatedSuffix):
        more = len(new.shards_for(key)) % len(old.shards_for(key)) == 0
        return more and replace(old, shards=1) == replace(new, shards=1)
    if isinstance(old, RangeSuffix) and isinstance(new, RangeSuffix):
        return {*old.physical_keys(key)} <= {*new.physical_keys(key)}
    return False
