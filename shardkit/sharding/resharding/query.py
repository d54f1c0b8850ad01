"""A Query of a table whose items move: its old places first, then its new ones.

1. The *leaders* are the old places. The *followers* are the new ones, which are read strongly consistently, after all
   leaders and no further than they were read: an item that had left its old place before it was read there has come to
   its new place. Reading ahead there would miss the items that come later.
2. Of an item that was found at both places, the one at the new place is shown. Stubs and marks are hidden.
3. In the table, a sort key is an item's own, so a position is a sort key alone: a cursor of any stage continues here.
4. In an index, items with equal index sort keys are released together, in the order of their own sort keys: engines
   return them in any order, and they may move between two pages. A page that ends among them reads them all again.
5. A new place whose items cannot have come from elsewhere is an old place too, and is read once: shard 3 of 20 has only
   items of shard 3 of 10.

A Query of a global index that is not fanned out over the table's places is one that others would send. It can show an
item twice, which :meth:`MovingPlan.distinct` hides within a page, and among equal sort keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from shardkit.core.machine import Response, Send
from shardkit.core.merge import Item, Place, Rows, Run
from shardkit.dynamodb.expressions.key_condition import KeyCondition, from_position, sort_value
from shardkit.dynamodb.values import WireItem, WireValue, comparable_item
from shardkit.sharding.layout import Moving, Sharding
from shardkit.sharding.query.cursor import Cursor, calculated
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.resharding.marks import is_stub, unmarked
from shardkit.sharding.spread import plain, wire_key
from shardkit.strategies import CalculatedSuffix, KeyValue, RangeSuffix, Strategy

_BEFORE, _ITEM, _AFTER = range(3)
"""Of what is placed at an index sort key: a frontier in ascending order, an item, a frontier in descending order."""


@dataclass(frozen=True)
class MovingPlan(Plan):
    """A Query between the stages. Where it is fanned out over the table's places, ``places`` are their stored keys."""

    sharding: Moving
    places: tuple[WireValue, ...] = ()
    follows: int = 0
    """The number of the first follower."""
    until: WireItem | None = None
    """For followers: a key up to which the leaders were read; None: to their end."""

    @classmethod
    def of(cls, sharding: Sharding, params: Mapping[str, Any], *, shard: int | None = None) -> Self:
        assert isinstance(sharding, Moving)
        if shard is not None:
            sharding.refuse("Shard=", "an item can be at its old or at its new place; leave it out")
        sharding.refuse_hiding(params.get("IndexName"))
        return super().of(sharding, params)

    def _started(self, given: Any) -> Self:
        return super(MovingPlan, self._over_places() if self.of_table else self)._started(given)

    def _over_places(self) -> Self:
        old, new = self.sharding.old, self.sharding.new
        logical = self._logical
        places = {plain(old.physical(logical, shard)): shard for shard in old.touched(logical, self.condition)}
        follows = len(places)
        added = [(plain(new.physical(logical, shard)), shard) for shard in new.touched(logical, self.condition)]
        by = self.sharding.strategy.by_attributes
        one = bool(by) and self.condition.equals.keys() >= {*(by or ())}
        twice = not one and not _nested(old.strategy, new.strategy, plain(logical))
        found = [*places.items(), *(place for place in added if twice or place[0] not in places)]
        return replace(
            self,
            shards=tuple(shard for _, shard in found),
            places=tuple(wire_key(logical, key) for key, _ in found),
            follows=follows,
        )

    # What the machines of pages and streams ask.

    @cached_property
    def followers(self) -> range:
        return range(self.follows, len(self.places))

    @property
    def unique(self) -> bool:
        return self.of_table

    @property
    def grouped(self) -> bool:
        return self.of_table and self.index is not None

    def up_to(self, key: WireItem | None) -> Self:
        return replace(self, until=key)

    def reach(self, key: WireItem) -> Any:
        if not self.grouped:
            return self._order(key)
        return self._groups(key), _AFTER if self.descending else _BEFORE, ()

    def reached(self, number: int, last: WireItem | None) -> tuple[Place | None, WireItem]:
        if not self.of_table:
            return super().reached(number, last)
        bound = None if self.until is None else self.reach(self.until)
        # In an index, a BETWEEN may let in the excluded end where it begins: that key does not end the read.
        if last and (self.until is not None or not self.ends_at(last)):
            frontier = self.reach(last)
            if bound is None or self._comes_before(frontier, bound):
                return (frontier, number), self.rest(last)
        if self.until is None:
            return None, {}
        return (bound, number), {name: self.until[name] for name in self.sort}

    def _comes_before(self, order: Any, other: Any) -> bool:
        return bool(order > other if self.descending else order < other)

    @cached_property
    def start_place(self) -> Place | None:
        if not self.of_table:
            return super().start_place
        return None if self.start is None else self.place(self.start.key, 0)

    @cached_property
    def _order(self) -> Callable[[Mapping[str, Any]], Any]:
        if not self.grouped:
            return super()._order
        names = self.sharding.keys.sort
        return lambda key: (self._groups(key), _ITEM, tuple(sort_value(key[name]) for name in names))

    def _groups(self, key: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(sort_value(key[name]) for name in self.sort)

    # Requests.

    def request(
        self, number: int, after: WireItem | None, limit: int | None, read: Callable[[Response], Any]
    ) -> Send | None:
        if not self.of_table:
            return super().request(number, after, limit, read)
        low = after or (self._excluded_start if self.start is None else self.start.key)
        # The service starts after any key that meets the condition, but in an index only after one that is there.
        as_key = low is not None and (not self.grouped or (after is not None and {*after} >= {*self.key_names}))
        condition = self._between(low, inclusive=self.grouped)
        if condition is None or not self._may_hold(number, condition):
            return None
        if as_key:
            condition = self._between(None, inclusive=True) or condition
        send = self._send(number, condition, low if as_key else None, limit, read)
        if number in self.followers and (self.index is None or self.index in self.sharding.local):
            return replace(send, params={**send.params, "ConsistentRead": True})
        return send

    @cached_property
    def _physical_keys(self) -> list[WireValue]:
        return [*self.places] if self.of_table else super()._physical_keys

    def _between(self, low: WireItem | None, *, inclusive: bool) -> KeyCondition | None:
        """Return the key condition from a position to ``until``; None: no key can match."""
        if self._single:
            return self.condition if low is None else None
        if len(self.sort) != 1:
            return self.condition
        (name,) = self.sort
        ends = low and low[name], self.until and self.until[name]
        known = self._conditions.get(key := comparable_item({str(at): end for at, end in enumerate(ends) if end}))
        if known is None:
            known = self._conditions[key] = self._narrowed_to(name, *ends, inclusive=inclusive)
        return known

    @cached_property
    def _excluded_start(self) -> WireItem | None:
        """The key that the condition excludes where it begins, if ``until`` makes it a BETWEEN, which includes it."""
        term = self._sort_condition
        if self.until is None or self.grouped or term is None or term.op != ("<" if self.descending else ">"):
            return None
        return {self.sort[0]: term.values[0]}

    @cached_property
    def _conditions(self) -> dict[Hashable, KeyCondition | None]:
        # Requests share what they have in common by the identity of their condition (``_asking``).
        return {}

    def _narrowed_to(
        self, name: str, low: WireValue | None, high: WireValue | None, *, inclusive: bool
    ) -> KeyCondition | None:
        term = self._sort_condition
        if term is not None and term.op == "=":
            return None if high and self.grouped else self.condition
        if low:
            term = from_position(term, low, descending=self.descending, exclusive=not inclusive)
            if term is None:
                return None
        if high:
            term = from_position(term, high, descending=not self.descending, exclusive=self.grouped)
            if term is None:
                return None
        return replace(self.condition, range=None if term is None else (name, term))

    def _may_hold(self, number: int, condition: KeyCondition) -> bool:
        home = self.sharding.new if number in self.followers else self.sharding.old
        if home.strategy.ordered_by is None:
            return True
        return self.shards[number] in home.touched(self._logical, condition)

    @cached_property
    def _logical(self) -> WireValue:
        return self.condition.equals[self.sharding.partition_key]

    # Answers.

    def run(self, number: int, items: list[WireItem]) -> Run:
        shown = [unmarked(item) for item in items if not is_stub(item)]
        if self.of_table and (self.grouped or self.until is not None):
            shown = [item for item in shown if self._comes(item, number)]
        run = super().run(number, shown)
        if self.grouped:
            run.arrange(descending=self.descending)
        return run

    def _comes(self, item: WireItem, number: int) -> bool:
        if not self.of_table:
            return super()._comes(item, number)
        order = self._order(item)
        if self.start is not None and not self._comes_before(self._order(self.start.key), order):
            return False
        if self.until is not None:
            bound = self.reach(self.until)
            if self._comes_before(bound, order):
                return False
        return self.within(item)

    def distinct(self, rows: Rows) -> Rows:
        if self.index is None:
            return rows
        kept: dict[Hashable, tuple[int, Item]] = {}
        for number, item in rows:
            group, identity = self._identity(item)
            if identity in self._tied.get(group, ()):
                continue
            if identity in kept:
                if not self._at_new_place(number, item):
                    continue
                del kept[identity]
            kept[identity] = number, item
        if kept:
            # A stream may go on among the equal sort keys at its end.
            groups = [(self._identity(item)[0], identity) for identity, (_, item) in kept.items()]
            last = groups[-1][0]
            tied = self._tied.pop(last, set()) | {identity for group, identity in groups if group == last}
            self._tied.clear()
            self._tied[last] = tied
        return Rows([number for number, _ in kept.values()], [item for _, item in kept.values()])

    @cached_property
    def _tied(self) -> dict[Hashable, set[Hashable]]:
        """The items of the sort key that :meth:`distinct` returned last."""
        return {}

    def _identity(self, item: Item) -> tuple[Hashable, Hashable]:
        """Return the sort key of an item of a run, and its logical primary key."""
        names = self.sharding.keys.sort if self.of_table else self.sharding.keys.names
        key = self._written(item, dict.fromkeys((*names, *self.sort)))
        if not self.of_table:
            key = self.sharding.shown(key)
        return (
            comparable_item({name: key[name] for name in self.sort}),
            comparable_item({name: key[name] for name in names}),
        )

    def _at_new_place(self, number: int, item: Item) -> bool:
        if self.of_table:
            return number in self.followers
        key = self._written(item, self.sharding.keys.names)
        return comparable_item(self.sharding.homes(self.sharding.shown(key)).new) == comparable_item(key)

    def cursor(self, shard: int | None, key: WireItem) -> dict[str, Any]:
        if not self.of_table:
            return super().cursor(shard, key)
        sharding, rest = self.sharding, self.rest(key)
        logical = {sharding.partition_key: self._logical, **rest}
        if sharding.form.keys_as_cursors:
            return sharding.form.shown(logical)
        home = sharding.old if sharding.stage == "guard" else sharding.new
        return Cursor(calculated(home, logical)[0], rest).token(self.purpose, sharding.cursor_period)

    def check_shards_known(self) -> None:
        self.sharding.refuse("ReturnShards=", "an item can be at its old or at its new place; leave it out")


def _nested(old: Strategy, new: Strategy, key: KeyValue) -> bool:
    """Return whether a stored key of both strategies has only items that had it by the old one too."""
    if isinstance(old, CalculatedSuffix) and isinstance(new, CalculatedSuffix):
        more = len(new.shards_for(key)) % len(old.shards_for(key)) == 0
        return more and replace(old, shards=1) == replace(new, shards=1)
    if isinstance(old, RangeSuffix) and isinstance(new, RangeSuffix):
        return {*old.physical_keys(key)} <= {*new.physical_keys(key)}
    return False
