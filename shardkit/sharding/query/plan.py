"""Plan a logical Query: the request for each shard, and the meaning of its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from shardkit.core.checks import check_count
from shardkit.core.machine import Response, Send
from shardkit.core.merge import Item, Position, Run
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.expressions.key_condition import (
    KeyCondition,
    SortCondition,
    from_position,
    matches,
    parse_key_condition,
    replace_key_condition,
    sort_value,
)
from shardkit.dynamodb.expressions.rewrite import keys_only, project, refuse_attributes
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import (
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    UnsupportedExpressionError,
    brief,
)
from shardkit.sharding.indexes import ShardedIndex
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import PROJECTIONS, projected, shard_given, stored_filters, wire_request
from shardkit.sharding.query.cursor import Cursor, as_key, calculated, from_key, is_token, made_for, not_calculated
from shardkit.sharding.spread import Spread
from shardkit.strategies import Unsharded

_MOST_ITEMS = 2**20
"""More items do not fit into a page of 1 MB; the service accepts only 32-bit limits."""

_PART = 256  # items

_FILTERS = ("FilterExpression", "QueryFilter")
_KEY_CONDITIONS = ("KeyConditionExpression", "KeyConditions")


@dataclass(frozen=True)
class QueryPlan:
    """A planned Query: its shards in order, and the parameters that all requests share."""

    sharding: Sharding
    params: Mapping[str, Any]
    condition: KeyCondition
    """Of stored attributes; where they differ between shards, with the logical value."""
    schema: KeySchema
    shards: tuple[int | None, ...]
    spread: Spread | None
    """What the Query is fanned out over: the partition key of the table or of a sharded index; None: nothing."""
    sort: tuple[str, ...]
    purpose: str
    counting: bool
    limit: int | None
    key_names: tuple[str, ...]
    """The key attributes that determine an item's position within its shard."""
    hidden: frozenset[str]
    start: Cursor | None = None
    among: int | None = None
    """The shard behind whose items the start is, by number; None: the start's own."""
    until: WireItem | None = None
    """The key with whose sort key the read ends."""
    together: bool = False
    """Whether shards that are ranges are read together, as others are."""

    @classmethod
    def of(cls, sharding: Sharding, params: Mapping[str, Any], *, shard: int | None = None) -> Self:
        wire = wire_request(sharding, "Query", params)
        name = wire.get("IndexName")
        schema, index = sharding.schema(name), sharding.sharded.get(name)
        condition = asked = parse_key_condition(wire)
        _check_partition(asked, schema, index, None if sharding.partition_key in schema.partition else name)
        wire = stored_filters(sharding, wire, *_FILTERS)
        if index is not None:
            refuse_attributes(wire, {index.stored_name} - {*index.logical_keys.names}, *_KEY_CONDITIONS)
        spread, sort = _spread_and_sort(sharding, schema, index, asked)
        shards: tuple[int | None, ...] = (None,)
        if spread is not None:
            shards = _shards_asked(sharding, spread, asked)
            condition = _stored(asked, spread, schema)
        if shard is not None:
            shards = (_only_shard(sharding, spread, condition, shard),)
        limit = wire.pop("Limit", None)
        if limit is not None:
            check_count("Limit", limit, "items per page", most=sys.maxsize)
        given = wire.pop("ExclusiveStartKey", None)
        purpose = made_for(sharding.table, name, asked.equals, *([] if shard is None else [shard]))
        names = dict.fromkeys(schema.names + sharding.keys.names)
        key_names = tuple(one for one in names if spread is None or one != spread.stored_name)
        counting = wire.get("Select") == "COUNT" and not {*PROJECTIONS} & wire.keys()
        if counting:
            # A count has no positions to make a cursor from: request the keys (at the same cost) and count them here.
            selected = key_names or (sharding.partition_key,)  # a projection must not be empty
            selected += sharding.marks(name)
            wire, hidden = keys_only(wire, selected), frozenset(selected)
        else:
            wire, hidden = project(projected(sharding, wire), key_names + sharding.marks(name))
        plan = cls(sharding, wire, condition, schema, shards, spread, sort, purpose, counting, limit, key_names, hidden)
        return plan if given is None else plan._continued(given)

    def after(self, key: WireItem) -> Self:
        """Return the plan of what comes after the sort key of a key."""
        return replace(self, start=Cursor(None, key), among=-1 if self.descending else len(self.shards))

    def from_key(self, key: WireItem) -> Self:
        """Return the plan of what comes from the sort key of a key on, with it."""
        return replace(self, start=Cursor(None, key), among=len(self.shards) if self.descending else -1)

    def up_to(self, key: WireItem) -> Self:
        """Return the plan of what comes up to the sort key of a key, with it."""
        # A narrowed condition uses BETWEEN, which includes the end that ``>`` excludes: start after that end.
        term, plan = self._sort_condition, self
        if self._unique and self.start is None and term is not None and term.op == ("<" if self.descending else ">"):
            plan = self.after({self.sort[0]: term.values[0]})
        return replace(plan, until=key)

    def reached(self, number: int, last: WireItem | None) -> tuple[Position | None, WireItem]:
        """Return a shard's frontier after a page, and where its next one begins; ``last``: the last key evaluated."""
        # A frontier of None: the shard has ended.
        if not last or self.ends_at(last):
            return None, {}
        return self.place(last, number), self.rest(last)

    def _continued(self, given: Any) -> Self:
        """Return the plan of the Query that continues at a cursor; ranges before the cursor are left out."""
        start, shards = read_start(self, given), self.shards
        if self.in_ranges:
            at = shards.index(start.shard)
            shards = shards[: at + 1] if self.descending else shards[at:]
        return replace(self, start=start, shards=shards)

    @property
    def index(self) -> str | None:
        return self.params.get("IndexName")

    @property
    def descending(self) -> bool:
        return self.params.get("ScanIndexForward") is False

    @cached_property
    def in_ranges(self) -> bool:
        """Whether each shard's items come before those of the next shard."""
        ordered = self.spread is not None and self.sort[:1] == (self.spread.strategy.ordered_by,)
        return ordered and not self.together

    @property
    def filtered(self) -> bool:
        """Whether items may be evaluated and not returned."""
        return any(self.params.get(name) for name in _FILTERS)

    @property
    def whole(self) -> bool:
        """Whether items are returned with all their attributes."""
        return not self.counting and not self.params.keys() & {*PROJECTIONS}

    @cached_property
    def start_place(self) -> Position | None:
        if self.start is None:
            return None
        return self.place(self.start.key, self.shards.index(self.start.shard) if self.among is None else self.among)

    def place(self, key: Mapping[str, Any], number: int) -> Position:
        """Return the place of a shard's key in the order."""
        return self._order(key), number

    @cached_property
    def _order(self) -> Callable[[Mapping[str, Any]], Any]:
        """Returns what keys are ordered by: their sort key, or an empty tuple without one."""
        if len(self.sort) != 1:
            names = self.sort
            return lambda key: tuple(sort_value(key[name]) for name in names)
        (name,) = self.sort
        if self.sharding.types.get(name) == "S":
            return lambda key: key[name]["S"]
        return lambda key: sort_value(key[name])

    def request(
        self, number: int, after: WireItem | None, limit: int | None, read: Callable[[Response], Any]
    ) -> Send | None:
        """Return the request for a shard's next page; None if no more of its items can match."""
        condition = self._bounded
        if after is None and self.start is not None:
            resumed = self._resume(number)
            if resumed is None:
                return None
            after, condition = resumed
        if condition is None or (self.together and self.shards[number] not in self._reachable):
            return None
        params = dict(self.params)
        if self.spread is not None:
            physical = self._physical_keys[number]
            params = self._asking(condition, self.spread.stored_name, physical)
            after = None if after is None else {**after, self.spread.stored_name: physical}
        if after is not None:
            params["ExclusiveStartKey"] = after
        if limit is not None:
            params["Limit"] = min(limit, _MOST_ITEMS)
        return Send("Query", params, paced=True, read=read)

    @cached_property
    def _physical_keys(self) -> list[WireValue]:
        assert self.spread is not None
        logical = self.condition.equals[self.spread.stored_name]
        if len(self.shards) == 1:
            return [self.spread.physical(logical, self.shards[0])]
        keys = self.spread.all_physical(logical)
        if len(keys) == len(self.shards):
            return keys
        physical = dict(zip(self.spread.shards(logical), keys, strict=True))
        return [physical[shard] for shard in self.shards]

    def _asking(self, condition: KeyCondition, name: str, physical: WireValue) -> dict[str, Any]:
        """Return the parameters with the key condition of the shard with this physical key."""
        # Only the physical key differs between shards: write the rest of the condition once.
        template = self._templates.get(id(condition))
        if template is None:
            place: WireItem = {}
            written = replace_key_condition(self.params, replace(condition, equals={**condition.equals, name: place}))
            values = written.get("ExpressionAttributeValues", {})
            template = condition, written, [key for key, value in values.items() if value is place]
            self._templates[id(condition)] = template
        _, written, placeholders = template
        if not placeholders:
            terms = {
                **written["KeyConditions"],
                name: {**written["KeyConditions"][name], "AttributeValueList": [physical]},
            }
            return {**written, "KeyConditions": terms}
        return {
            **written,
            "ExpressionAttributeValues": {**written["ExpressionAttributeValues"], placeholders[0]: physical},
        }

    @cached_property
    def _templates(self) -> dict[int, tuple[KeyCondition, dict[str, Any], list[str]]]:
        return {}

    def run(self, number: int, items: list[WireItem]) -> Run:
        """Return the items of a page after the cursor, in the caller's form (hidden attributes in wire form).

        ``items`` may be emptied.
        """
        if self.until is not None or (self.start_place is not None and self.start_place[1] != number):
            items = [item for item in items if self._comes(item, number)]
        # Convert now, not when the items are released: wire values take three times the memory.
        order = self._order
        form = self.sharding.form
        read = self._read_shown if self.hidden else form.shown
        indexes, index = self.sharding.sharded, self.sharded_index
        replaced = self.of_table and not isinstance(self.sharding.strategy, Unsharded)
        name = self.sharding.partition_key
        logical = form.shown({name: self.condition.equals[name]})[name] if replaced else None
        run = Run()
        # A part's wire values are freed before the next part is converted. Those of 1 MB at once would take a third
        # more time, because they do not fit into the processor's cache.
        while items:
            part = items[:_PART]
            del items[:_PART]
            if indexes:
                part = [indexes.logical_item(item, index) for item in part]
            run.sort_keys += [order(item) for item in part]
            shown = [read(item) for item in part]
            if replaced:
                for item in shown:
                    if name in item:
                        # The same key for every item of the Query; not the same dict, which the caller may change.
                        item[name] = {**logical} if isinstance(logical, dict) else logical
            run.items += shown
        return run

    def _read_shown(self, item: WireItem) -> dict[str, Any]:
        # Services print 1E100 with 101 digits, and boto3 refuses more than 38: do not convert hidden attributes.
        shown = self.sharding.form.shown({name: value for name, value in item.items() if name not in self.hidden})
        return {**item, **shown}

    def written(self, item: Mapping[str, Any], names: Iterable[str]) -> WireItem:
        """Return attributes of an item of a run in wire form."""
        return {
            name: item[name] if name in self.hidden else self.sharding.form.item({name: item[name]})[name]
            for name in names
            if name in item
        }

    def ends_at(self, key: WireItem) -> bool:
        """Return whether the key condition can match nothing after ``key``."""
        if self._single or self.until is None:
            # A narrowed condition uses BETWEEN, which includes the end that ``<`` excludes.
            return self._single or not self.within(key)
        return self._beyond(key) or (self._unique and self._order(key) == self._order(self.until))

    def _beyond(self, key: WireItem) -> bool:
        """Return whether a key comes after the sort key with which the read ends."""
        if self.until is None:
            return False
        order, end = self._order(key), self._order(self.until)
        return bool(order < end if self.descending else order > end)

    def rest(self, key: WireItem) -> WireItem:
        """Return the attributes of a key that a cursor contains."""
        return {name: key[name] for name in self.key_names if name in key}

    def cursor(self, shard: int | None, key: WireItem) -> dict[str, Any]:
        """Return the cursor after a shard's key, in the caller's form."""
        cursor = Cursor(shard, self.rest(key))
        form = self.sharding.form
        if form.keys_as_cursors:
            return form.shown(_as_key(self, cursor))
        return cursor.token(self.purpose, form, self.sharding.cursor_period)

    def position(self, number: int, item: Item) -> Cursor:
        """Return the position of an item of a run."""
        return Cursor(self.shards[number], self.written(item, self.key_names))

    def behind(self, number: int, item: Item) -> dict[str, Any]:
        """Return the cursor after an item of a run."""
        position = self.position(number, item)
        return self.cursor(position.shard, position.key)

    @cached_property
    def as_shown(self) -> bool:
        """Whether the items of runs are what :meth:`shown` returns."""
        return self.of_table and not self.hidden

    def shown(self, item: Item) -> Item:
        """Return an item of a run with its logical key, without hidden attributes."""
        if self.as_shown:
            return item
        if self.hidden:
            item = {name: value for name, value in item.items() if name not in self.hidden}
        name = self.sharding.partition_key
        if self.of_table or name not in item:
            return item
        logical, _ = self._split(item)
        return {**item, **self.sharding.form.shown({name: logical})}

    def calculated_in(self, spread: Spread | None, key: WireItem) -> tuple[int | None, bool]:
        """Return the shard of an item of the Query, from its key, and whether it can be calculated."""
        assert spread is not None
        logical = self.condition.equals[spread.stored_name]
        return calculated(spread, {**self.sharding.logical_item(key), spread.logical_name: logical})

    def shard_shown(self, number: int, item: Item) -> int | None:
        if self.of_table:
            return self.shards[number]
        return self._split(item)[1]

    @property
    def of_table(self) -> bool:
        """Whether the Query is fanned out over the shards of the table's partition key."""
        return self.spread is self.sharding

    def _split(self, item: Mapping[str, Any]) -> tuple[WireValue, int | None]:
        name = self.sharding.partition_key
        return self.sharding.logical(self.written(item, (name,))[name])

    @cached_property
    def _single(self) -> bool:
        """Whether a shard can have at most one item: the key condition gives the whole primary key."""
        return self.spread is not None and set(self.key_names) <= set(self.condition.equals)

    @cached_property
    def _unique(self) -> bool:
        """Whether the items of a shard have different sort keys."""
        return len(self.sort) == 1 and set(self.key_names) == set(self.sort)

    @property
    def sharded_index(self) -> ShardedIndex | None:
        return self.spread if isinstance(self.spread, ShardedIndex) else None

    @property
    def _sort_condition(self) -> SortCondition | None:
        return self._on_sort_key(self.condition)

    def _on_sort_key(self, condition: KeyCondition) -> SortCondition | None:
        if len(self.sort) != 1:
            return None
        if condition.range is not None:
            return condition.range[1]
        value = condition.equals.get(self.sort[0])
        return None if value is None else SortCondition("=", (value,))

    @cached_property
    def _bounded(self) -> KeyCondition | None:
        """The key condition up to ``until``; None: no key can match."""
        if self.until is None:
            return self.condition
        return self._from(self.condition, self.until, descending=not self.descending, exclusive=False)

    def _from(
        self, condition: KeyCondition | None, key: WireItem, *, descending: bool, exclusive: bool
    ) -> KeyCondition | None:
        """Return a condition narrowed to what comes from a key on, where one condition can express it."""
        term = None if condition is None else self._on_sort_key(condition)
        if condition is None or len(self.sort) != 1 or (term is not None and term.op == "="):
            return condition
        term = from_position(term, key[self.sort[0]], descending=descending, exclusive=exclusive)
        return None if term is None else replace(condition, range=(self.sort[0], term))

    @cached_property
    def _reachable(self) -> Collection[int | None]:
        """The shards that can have items between the start and the end."""
        condition = self._bounded if self.start is None else self._narrowed[False]
        if self.spread is None or condition is None:
            return ()
        return self.spread.touched(self.condition.equals[self.spread.stored_name], condition)

    def within(self, key: WireItem) -> bool:
        """Return whether a key meets the condition on the sort key."""
        condition = self._sort_condition
        return condition is None or matches(condition, key[self.sort[0]])

    def _resume(self, number: int) -> tuple[WireItem | None, KeyCondition] | None:
        """Return how a shard resumes: ExclusiveStartKey and key condition; None if nothing is left to read."""
        # The cursor is (sort key, shard, key). Each shard must return exactly its items after that place in the order
        # (sort key, shard, order within the shard):
        #
        # 1. The cursor's own shard resumes after the cursor's key, as a plain Query does.
        # 2. Of the items with the cursor's sort key, those of earlier shards (in reading direction) have been read,
        #    those of later shards have not. So earlier shards resume after that sort key, later shards at it.
        # 3. Other shards do not have the cursor's item. If sort keys are unique within a shard (a table, not an index),
        #    an earlier shard can still use the cursor's key, with its own suffix, as ExclusiveStartKey: the service
        #    accepts keys of items that do not exist. It must satisfy the key condition; if it is the last key that
        #    does, DynamoDB Local refuses it, and nothing is left to read anyway.
        # 4. Otherwise the key condition is narrowed: from the sort key on, with it (later shards) or without it
        #    (earlier shards). Combined with an upper bound this is a BETWEEN, which includes both ends; ``run``
        #    drops what the end lets in.
        # 5. With several sort attributes, one condition cannot express the place: the shard is read from the start, and
        #    ``run`` drops the items up to the cursor.
        start = self.start
        assert start is not None and self.start_place is not None
        at = self.start_place[1]
        bounded = self._bounded
        at_the_end = self._single or (self._unique and self._narrowed[True] is None)
        if bounded is None or (number == at and at_the_end):
            return None
        if number == at:
            return start.key, bounded
        read = number > at if self.descending else number < at
        if not self.sort or self._single:
            return None if read else (None, bounded)
        if read and self._unique:
            return None if at_the_end else (start.key, bounded)
        if len(self.sort) > 1:
            return None, bounded
        condition = self._sort_condition
        if condition is not None and condition.op == "=":
            return None if read else (None, bounded)
        narrowed = self._narrowed[read]
        return None if narrowed is None else (None, narrowed)

    @cached_property
    def _narrowed(self) -> list[KeyCondition | None]:
        """The key condition from the cursor's sort key on, with and without that sort key; None: nothing is left."""
        start = self.start
        assert start is not None
        return [
            self._from(self._bounded, start.key, descending=self.descending, exclusive=exclusive)
            for exclusive in (False, True)
        ]

    def _comes(self, item: WireItem, number: int) -> bool:
        start, place = self.start_place, self.place(item, number)
        if start is not None and not (place < start if self.descending else place > start):
            return False
        return self.within(item) and not self._beyond(item)


def _check_partition(condition: KeyCondition, schema: KeySchema, index: ShardedIndex | None, alone: str | None) -> None:
    strategy = "" if index is None else f" of index {index.name!r} with {brief(index.strategy, 200)}"
    for name in (schema if index is None else index.logical_keys).partition:
        if name not in condition.equals:
            got = [f"'=' on {other!r}" for other in condition.equals]
            if condition.range is not None:
                got.append(f"{condition.range[1].op} on {condition.range[0]!r}")
            sharded = f"; if the index is sharded, give indexes={{{alone!r}: …}}" if alone and not index else ""
            in_place = index is not None and index.strategy.source is None and index.strategy.attribute is None
            if in_place and len(condition.equals) == 1:
                sharded = f"; to ask by {next(iter(condition.equals))!r}, give the index's strategy that as its source="
            raise UnsupportedExpressionError(
                f"KeyConditionExpression: must have '=' on the partition key {name!r}{strategy}, got {', '.join(got)}; "
                f"give Key({name!r}).eq(…), or use scan(){sharded}"
            )


def _spread_and_sort(
    sharding: Sharding, schema: KeySchema, index: ShardedIndex | None, condition: KeyCondition
) -> tuple[Spread | None, tuple[str, ...]]:
    """Return what a Query is fanned out over, and the attributes that order its items."""
    key = sharding.partition_key
    if index is not None:
        return index, schema.sort
    if key in schema.partition:
        return sharding, schema.sort
    if key not in schema.sort:
        return None, schema.sort
    if key in condition.equals:
        return sharding, schema.sort[schema.sort.index(key) + 1 :]
    if isinstance(sharding.strategy, Unsharded):
        return None, schema.sort
    raise UnsupportedExpressionError(
        f"KeyConditionExpression: the sort key {key!r} of this index has the suffixes of {sharding.table!r} and "
        f"so another order; only Key({key!r}).eq(…) is supported; for ranges and ordered reads use another sort key"
    )


def _shards_asked(sharding: Sharding, spread: Spread, condition: KeyCondition) -> tuple[int | None, ...]:
    logical = condition.equals[spread.logical_name]
    if isinstance(spread, ShardedIndex):
        logical = spread.checked(logical)
    else:
        logical = sharding.checked(sharding.partition_key, logical, "key condition")
        if sharding.has_map:
            sharding.check_key(logical)
    return tuple(spread.touched(logical, condition))


def _only_shard(sharding: Sharding, spread: Spread | None, condition: KeyCondition, shard: int) -> int:
    """Return the shard given as ``Shard=``."""
    if spread is not sharding:
        raise ConfigurationError(
            "Shard: not supported for this index, whose Query is not fanned out over the shards of the table's "
            "partition key; omit it"
        )
    return shard_given(sharding, condition.equals[sharding.partition_key], shard)


def _stored(condition: KeyCondition, spread: Spread, schema: KeySchema) -> KeyCondition:
    """Return a condition of logical attributes as one of stored attributes."""
    logical = spread.logical_name
    equals = {name: value for name, value in condition.equals.items() if name != logical or name in schema.names}
    equals[spread.stored_name] = condition.equals[logical]
    # The partition key comes first: dynoxide looks for it there.
    return replace(condition, equals={name: equals[name] for name in (*schema.names, *equals) if name in equals})


def read_start(plan: QueryPlan, given: Any) -> Cursor:
    """Read a cursor of one of the plan's shards, or a hand-made primary key."""
    cursor = read_cursor(plan, given)
    if cursor.shard not in plan.shards:
        raise CursorError(
            f"ExclusiveStartKey: the cursor has shard {cursor.shard}, which is not one of {_what(plan)}; start the "
            "read again (if the number of shards has changed, go back to the old one, or move the items)"
        )
    return cursor


def _what(plan: QueryPlan) -> str:
    what = f"{plan.sharding.table!r}" + (f", index {plan.index!r}" if plan.index else "") + ", key "
    return what + repr(from_wire_item(plan.condition.equals))


def read_cursor(plan: QueryPlan, given: Any) -> Cursor:
    what = _what(plan)
    form = plan.sharding.form
    if is_token(given, form):
        cursor = Cursor.read(given, plan.purpose, what, form, plan.sharding.cursor_period)
    else:
        cursor = _by_hand(plan, given, what)
    check_position(plan.sharding, cursor.key, plan.key_names, what)
    _check_equals(plan, cursor.key, what)
    if plan.spread is not None and plan.spread.strategy.ordered_by is not None:
        # The number of a range changes when a range before it is split.
        cursor = Cursor(plan.calculated_in(plan.spread, cursor.key)[0], cursor.key)
    if not plan.within(cursor.key):
        raise CursorError(
            f"ExclusiveStartKey: the cursor is outside the key condition of this Query on {what}; start the read again"
        )
    return cursor


def check_position(sharding: Sharding, key: WireItem, names: Collection[str], what: str) -> None:
    """Refuse a cursor whose key has other attributes than ``names``, or other types."""
    if set(key) != set(names):
        raise CursorError(
            f"ExclusiveStartKey: the cursor is damaged, its key is not a key of {what}; start the read again"
        )
    try:
        for name, value in key.items():
            sharding.checked(name, value, "cursor")
    except InvalidKeyError as error:
        raise CursorError(f"ExclusiveStartKey: the cursor is damaged ({error}); start the read again") from error


def _check_equals(plan: QueryPlan, key: WireItem, what: str) -> None:
    for name, value in plan.condition.equals.items():
        if name in key and sort_value(key[name]) != sort_value(value):
            raise CursorError(f"ExclusiveStartKey: not a key of {what}; start the read again")


def _by_hand(plan: QueryPlan, given: Any, what: str) -> Cursor:
    sharding, index = plan.sharding, plan.sharded_index
    schema = plan.schema if index is None else index.logical_keys
    names = tuple(dict.fromkeys(schema.names + sharding.keys.names))
    # Beside the logical names, :func:`_as_key` writes the attribute of an index's shard, if it must.
    more = () if index is None else (index.stored_name,)
    if not isinstance(given, Mapping) or not set(names) <= set(given) <= {*names, *more}:
        raise CursorError(
            f"ExclusiveStartKey: {brief(given, 200)} is neither a cursor of shardkit nor a key of {sorted(names)}; "
            "pass LastEvaluatedKey unchanged"
        )
    key: WireItem = {name: sharding.checked(name, given[name], "cursor") for name in given}
    if index is not None:
        return _of_index(plan, index, key, what)
    if plan.of_table:
        # The Query's logical key is known, so a stored key cannot be mistaken for a logical one.
        logical, stored_in = sharding.logical(key[sharding.partition_key])
        if stored_in is not None and _same_key(plan, logical):
            return Cursor(stored_in, plan.rest(key))
    _check_equals(plan, key, what)
    if not plan.of_table and sharding.form.keys_as_cursors:
        return Cursor(None, from_key(sharding, key))
    shard, known = calculated(sharding, key)
    if not known:
        raise not_calculated(key)
    if plan.of_table:
        return Cursor(shard, plan.rest(key))
    return Cursor(None, sharding.stored(key, shard))


def _of_index(plan: QueryPlan, index: ShardedIndex, key: WireItem, what: str) -> Cursor:
    """Return the cursor that a hand-made key of a sharded index means."""
    logical = plan.condition.equals[index.stored_name]
    stored = key.get(index.stored_name)
    shard = None if stored is None else index.stored_shard(stored, logical)
    if shard is None:
        given = key[index.logical_name]
        # The source may be the table's partition key, which :func:`_as_key` may leave as it is stored.
        shown = plan.sharding.logical(given)[0] if index.logical_name == plan.sharding.partition_key else given
        if not _equal(given, logical) and not _equal(shown, logical):
            raise CursorError(f"ExclusiveStartKey: not a key of {what}; start the read again")
        shard, known = plan.calculated_in(index, key)
        if not known:
            raise not_calculated(key)
    return Cursor(shard, plan.rest(from_key(plan.sharding, key)))


def _same_key(plan: QueryPlan, value: WireValue) -> bool:
    return _equal(value, plan.condition.equals[plan.sharding.partition_key])


def _equal(value: WireValue, other: WireValue) -> bool:
    return bool(sort_value(value) == sort_value(other))


def _as_key(plan: QueryPlan, cursor: Cursor) -> WireItem:
    """Return a cursor as a key: logical if its shard can be calculated from it, else as it is stored."""
    sharding, index = plan.sharding, plan.sharded_index
    if index is not None:
        logical = plan.condition.equals[index.stored_name]
        # The index's logical key may be the table's partition key, which as_key() may leave as it is stored.
        key = {index.logical_name: logical, **as_key(sharding, cursor.key)}
        if plan.calculated_in(index, key) == (cursor.shard, True):
            return key
        return {**key, index.stored_name: index.physical(logical, cursor.shard)}
    if plan.spread is None:
        return as_key(sharding, cursor.key)
    name = sharding.partition_key
    key = {name: plan.condition.equals[name], **cursor.key}
    return key if calculated(sharding, key) == (cursor.shard, True) else sharding.stored(key, cursor.shard)
