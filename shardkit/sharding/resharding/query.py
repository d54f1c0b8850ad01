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
(:class:`Elsewhere`). It can show an item twice, which is hidden within a page, and among equal sort keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from math import ceil
from operator import itemgetter
from typing import Any, NoReturn, Self

from shardkit.core.chain import Chain
from shardkit.core.machine import Done, Machine, Wait
from shardkit.core.merge import Item, Rows
from shardkit.dynamodb.expressions.key_condition import sort_value
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.sharding.layout import Moving, Sharding
from shardkit.sharding.parameters import FanOut, Params
from shardkit.sharding.query.cursor import calculated
from shardkit.sharding.query.fan_out import shards_failed, timed_out
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import Plan, read_cursor
from shardkit.sharding.query.stream import StreamOfShards
from shardkit.sharding.resharding.marks import MARK, STUB
from shardkit.sharding.spread import plain
from shardkit.strategies import CalculatedSuffix, KeyValue, RangeSuffix, Strategy

# A stream reads more and more of the old places before it reads the new ones, because that costs a request to each.
_FIRST_STRETCH = 100  # rows, at most, if max_items asks for so many
_GROWTH = 4

Reading = Generator["Machine[Any] | Wait | Done[Any]", Any, Rows]
Order = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Of a row: its sort key, and in an index its sort key in the table."""


@dataclass(frozen=True)
class MovingPlan(Plan):
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

    def over(self, sharding: Sharding, *, less: Collection[KeyValue] = (), **params: Any) -> Plan:
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
        plan = Plan(**{name: getattr(self, name) for name in Plan.__dataclass_fields__} | own)
        if self.start is None:
            return plan
        return plan.after(self.start.key) if self.index is None else plan.from_key(self.start.key)


class _Side:
    """What was read of some places, and how far. ``plan`` reads all of it, ``reads`` what is read now."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: deque[tuple[Order, Item]] = deque()
        """Those that are not in order yet."""
        self.errors: dict[int | None, Exception] = {}
        self.answered = False
        self.met = self.kept = 0
        """The rows that were read, with the stubs, and without them."""
        self.begin(plan)

    def begin(self, plan: Plan) -> None:
        """Read another plan from now on, without the shards that have failed."""
        self.reads = replace(plan, shards=tuple(shard for shard in plan.shards if shard not in self.errors))
        self.ended = not self.reads.shards
        self.to: WireItem | None = None
        self.machine: PageOfShards | StreamOfShards | None = None
        self.driven: Machine[Any] | None = None

    @property
    def failed(self) -> bool:
        return len(self.errors) == len(self.plan.shards)


class Read(Chain[Any]):
    """A read of a Query: a page (``paged``), whose result is the read itself; or a stream of rows, an empty one last."""

    def __init__(
        self,
        plan: MovingPlan,
        *sides: _Side,
        sizes: ItemSizes,
        fan_out: FanOut,
        paged: bool = False,
        max_items: int | None = None,
    ) -> None:
        super().__init__(self._page() if paged else self._stream())
        self.plan = plan
        self.rows = Rows()
        self._sides = sides
        self._sizes = sizes
        self._fan_out = fan_out
        self._left = max_items
        self._paged = paged
        self._one_round = paged and (plan.limit is None or plan.filtered)
        self._pages: list[PageOfShards] = []
        self._deadline: float | None = None
        self._late = False
        self._stub = plan.sharding.form.shown({MARK: STUB})[MARK]

    @property
    def errors(self) -> dict[int | None, Exception]:
        return {shard: error for side in self._sides for shard, error in side.errors.items()}

    @property
    def scanned(self) -> int:
        return sum(page.scanned for page in self._pages)

    @property
    def consumed(self) -> dict[str, Any] | None:
        return reduce(add_consumed, [page.consumed for page in self._pages if page.consumed], None)

    @property
    def metadata(self) -> dict[str, Any]:
        return next((page.metadata for page in self._pages if page.metadata), {})

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        raise NotImplementedError

    def hedged(self) -> Self:
        """Return itself: the reads of the places are hedged."""
        return self

    def _page(self) -> Reading:
        limit = self.plan.limit
        while True:
            self.rows += yield from self._step(None if limit is None else limit - len(self.rows))
            if self._complete or self._late or len(self.rows) == limit or (self._one_round and self._may_end):
                break
        if not (self._complete or self._may_end):
            for side in self._sides:
                self._time_is_over(side)
            self._give_up()
        self.rows = self._once(self.rows)
        yield Done(self)
        return self.rows

    def _stream(self) -> Reading:
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

    def _step(self, limit: int | None) -> Reading:
        """Read on, and return the rows that are in order then, which may be none."""
        raise NotImplementedError

    @property
    def _complete(self) -> bool:
        raise NotImplementedError

    @property
    def _may_end(self) -> bool:
        """Whether a page has a position at which it can end."""
        return True

    def _once(self, rows: Rows) -> Rows:
        return rows

    def _unshown(self) -> list[Item]:
        """Return what was read and is not in order yet."""
        raise NotImplementedError

    def _read(self, side: _Side, wanted: int | None) -> Reading:
        """Return the rows of a page, or some of a stream, of which so many are wanted."""
        timeout = self._fan_out.timeout
        if self._deadline is None and timeout is not None:
            self._deadline = (yield Wait()) + timeout
        if (machine := side.machine) is None:
            machine = side.machine = self._machine(side.reads, wanted)
            side.driven = machine.hedged()
        else:
            machine.go_on(wanted)
        machine.restart(self._deadline)
        assert side.driven is not None
        try:
            found = yield side.driven
        except Exception as error:
            side.errors.update(machine.errors)
            side.answered = side.answered or machine.answered
            if not machine.errors or not any(one.answered for one in self._sides):
                raise
            self._check_failure()
            found, side.ended = machine.partial(), True
        else:
            side.errors.update(machine.errors)
            side.answered = side.answered or machine.answered
            side.ended = machine.ended
        rows: Rows = found if isinstance(found, Rows) else found.rows
        if isinstance(machine, PageOfShards):
            side.to = None if machine.end is None else machine.end.key
        elif rows:
            side.to = side.reads.position(rows.numbers[-1], rows.items[-1]).key
        else:
            side.ended = True
        if self._deadline is not None:
            self._late = self._late or (yield Wait()) >= self._deadline
        side.met += len(rows)
        rows = self._without_stubs(rows)
        side.kept += len(rows)
        return rows

    def _machine(self, plan: Plan, wanted: int | None) -> PageOfShards | StreamOfShards:
        fan_out = self._fan_out
        if self._paged:
            page = PageOfShards(replace(plan, limit=wanted), sizes=self._sizes, fan_out=fan_out)
            self._pages.append(page)
            return page
        # Each side has a third of the memory; the old places' rows that wait for the new ones have the rest.
        in_flight = sum(side.machine.in_flight for side in self._sides if side.machine is not None)
        fan_out = replace(
            fan_out,
            max_buffer_bytes=max(1, fan_out.max_buffer_bytes // 3),
            connections=max(1 if fan_out.hedge_after is None else 2, fan_out.connections - in_flight),
        )
        return StreamOfShards(plan, sizes=self._sizes, fan_out=fan_out, max_items=wanted)

    def _without_stubs(self, rows: Rows) -> Rows:
        found = Rows()
        for number, item in rows:
            mark = item.pop(MARK, None)
            if mark is None or mark not in (STUB, self._stub):
                found += Rows([number], [item])
        return found

    def _time_is_over(self, side: _Side) -> None:
        """Let the places of a side fail that was not read to its end."""
        if not side.ended:
            what = "was not queried" if side.machine is None else "did not answer"
            side.errors |= {shard: timed_out(shard, what, self._fan_out) for shard in side.reads.shards}
            side.ended = True
            self._check_failure()

    def _check_failure(self) -> None:
        """Raise the error of the whole read, unless the caller accepts the other places' items without it."""
        if self._fan_out.on_shard_error == "raise" or all(side.failed for side in self._sides):
            self._give_up()

    def _give_up(self) -> None:
        shards = sum(len(side.plan.shards) for side in self._sides)
        partial = [self.plan.shown(item) for item in [*self.rows.items, *self._unshown()]]
        raise shards_failed(self.errors, shards, partial) from next(iter(self.errors.values()), None)


class BothPlaces(Read):
    """A Query that both strategies fan out: of the table, or of an index whose key has the table's partition key."""

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
        # Whether a read of the new places can end among rows with one sort key: in the table, after a stub of the item.
        self._tied = plan.index is not None or any(
            plain(moving.new.physical(logical, shard)) in places for shard in new.shards
        )
        super().__init__(plan, self._old, self._new, **options)
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

    def _step(self, limit: int | None) -> Reading:
        old, new = self._old, self._new
        if self._level:
            yield from self._read_old(_more(limit, old.met, self._given))
            end = None if old.ended else self._covered_end()
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

    def _read_old(self, limit: int | None) -> Reading:
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

    # The order.

    def _order(self, key: Mapping[str, Any]) -> Order:
        return tuple(sort_value(key[name]) for name in self.plan.sort), tuple(sort_value(key[name]) for name in self._own)

    def _order_of(self, item: Item) -> Order:
        return self._order(self.plan.written(item, (*self.plan.sort, *self._own)))

    def _before(self, order: Any, other: Any) -> bool:
        return bool(order > other if self.plan.descending else order < other)

    def _keep(self, side: _Side, rows: Rows) -> None:
        """Keep rows that were not shown yet."""
        for item in rows.items:
            order = self._order_of(item)
            if self._last is None or self._before(self._last, order):
                side.rows.append((order, item))

    def _reach(self, side: _Side) -> tuple[Any, ...] | None:
        """Return the sort key up to which a side was read; None: to its end."""
        return None if side.ended or side.to is None else tuple(sort_value(side.to[name]) for name in self.plan.sort)

    def _covers(self, reach: tuple[Any, ...] | None, order: Order) -> bool:
        """Return whether all rows up to a place are known; in an index, others may have the last sort key."""
        return reach is None or self._before(order[0], reach) or (order[0] == reach and self.plan.index is None)

    def _covered_end(self) -> WireItem | None:
        """Return the key up to which the old places' rows are all known; None: there is none yet."""
        if self.plan.index is None:
            return self._old.to
        tail = self._tail(self._old)
        if tail == len(self._old.rows):
            return None
        return self.plan.written(self._old.rows[-1 - tail][1], self.plan.key_names)

    def _tail(self, side: _Side) -> int:
        """Return how many rows at the end of a side wait for others with their sort key."""
        reach = self._reach(side)
        return sum(1 for _ in takewhile(lambda row: not self._covers(reach, row[0]), reversed(side.rows)))

    def _released(self, limit: int | None) -> Rows:
        """Return the rows up to the nearer end, of the new places where both have one."""
        old, new = self._old, self._new
        ends = [self._reach(old), self._reach(new)]
        rows: dict[Order, Item] = {}
        for side, nearer in (old, ends), (new, ends[1:]):
            while side.rows and all(self._covers(reach, side.rows[0][0]) for reach in nearer):
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

    def _unshown(self) -> list[Item]:
        rows: dict[Order, Item] = {}
        for side in self._sides:
            if side.machine is not None:
                self._keep(side, self._without_stubs(side.machine.partial()))
            rows.update(side.rows)
        return [rows[order] for order in sorted(rows, reverse=self.plan.descending)]


class Elsewhere(Read):
    """A Query of an index that is not fanned out over the table's places: an ordinary read, filtered afterwards."""

    def __init__(self, plan: MovingPlan, **options: Any) -> None:
        self._side = _Side(plan)
        super().__init__(plan, self._side, **options)
        self._group: tuple[Hashable, set[Hashable]] = None, set()
        """The last sort key of the rows that were returned, and its items: the next rows may have them again."""

    @property
    def last_evaluated_key(self) -> dict[str, Any] | None:
        return self._pages[-1].last_evaluated_key

    @property
    def _complete(self) -> bool:
        return self._side.ended

    def _step(self, limit: int | None) -> Reading:
        return (yield from self._read(self._side, limit))

    def _once(self, rows: Rows) -> Rows:
        """Return rows with each item once: the entry of its new place."""
        moving = self.plan.sharding
        kept: dict[Hashable, tuple[Hashable, int, Item]] = {}
        last, tied = self._group
        for number, item in rows:
            stored = self.plan.written(item, moving.keys.names)
            logical = moving.shown(stored)
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

    def _unshown(self) -> list[Item]:
        machine = self._side.machine
        return [] if machine is None else self._once(self._without_stubs(machine.partial())).items


def _more(wanted: int | None, met: int, found: int) -> int | None:
    """Return how many rows to read for so many items, if of those ``met`` so many were what is looked for."""
    return None if wanted is None else ceil(wanted * min(_GROWTH, max(1.0, met / max(1, found))))


def read_of(plan: MovingPlan, **options: Any) -> Read:
    return (BothPlaces if plan.of_table else Elsewhere)(plan, **options)


def _nested(old: Strategy, new: Strategy, key: KeyValue) -> bool:
    """Return whether a stored key of both strategies has only items that had it by the old one too."""
    if isinstance(old, CalculatedSuffix) and isinstance(new, CalculatedSuffix):
        more = len(new.shards_for(key)) % len(old.shards_for(key)) == 0
        return more and replace(old, shards=1) == replace(new, shards=1)
    if isinstance(old, RangeSuffix) and isinstance(new, RangeSuffix):
        return {*old.physical_keys(key)} <= {*new.physical_keys(key)}
    return False
