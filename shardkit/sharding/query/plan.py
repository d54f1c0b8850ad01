"""Plan a logical Query: the request for each shard, and the meaning of its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from shardkit.core.checks import check_count
from shardkit.core.machine import Response, Send
from shardkit.core.merge import Item, Place, Run
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
from shardkit.dynamodb.expressions.rewrite import keys_only, project
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import (
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    UnsupportedExpressionError,
)
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import refuse_stored_keys, shard_given, wire_request
from shardkit.sharding.query.cursor import Cursor, as_key, calculated, from_key, is_token, made_for
from shardkit.strategies import Unsharded

_MOST_ITEMS = 2**20
"""More items do not fit into a page of 1 MB; the service accepts only 32-bit limits."""

_PART = 256  # items

_FILTERS = ("FilterExpression", "QueryFilter")


@dataclass(frozen=True)
class Plan:
    """A planned Query: its shards in order, and the parameters that all requests share."""

    sharding: Sharding
    params: Mapping[str, Any]
    condition: KeyCondition
    schema: KeySchema
    shards: tuple[int | None, ...]
    fanned: bool
    sort: tuple[str, ...]
    purpose: str
    counting: bool
    limit: int | None
    key_names: tuple[str, ...]
    """The key attributes that determine an item's position within its shard."""
    hidden: frozenset[str]
    start: Cursor | None = None

    @classmethod
    def of(cls, sharding: Sharding, params: Mapping[str, Any], *, shard: int | None = None) -> Plan:
        wire = wire_request(sharding, "Query", params)
        schema = sharding.schema(wire.get("IndexName"))
        condition = parse_key_condition(wire)
        for name in schema.partition:
            if name not in condition.equals:
                got = [f"'=' on {other!r}" for other in condition.equals]
                if condition.range is not None:
                    got.append(f"{condition.range[1].op} on {condition.range[0]!r}")
                raise UnsupportedExpressionError(
                    f"KeyConditionExpression: must have '=' on the partition key {name!r}, got {', '.join(got)}; give "
                    f"Key({name!r}).eq(…), or use scan()"
                )
        refuse_stored_keys(sharding, wire, *_FILTERS)
        fanned, sort = _fanned_and_sort(sharding, schema, condition)
        key = sharding.partition_key
        shards: tuple[int | None, ...] = (None,)
        if fanned:
            shards = tuple(sharding.shards(sharding.checked(key, condition.equals[key], "key condition")))
        if shard is not None:
            if not fanned:
                raise ConfigurationError("Shard: not supported for this index, whose Query is not fanned out; omit it")
            shards = (shard_given(sharding, condition.equals[key], shard),)
        limit = wire.pop("Limit", None)
        if limit is not None:
            check_count("Limit", limit, "items per page", most=sys.maxsize)
        given = wire.pop("ExclusiveStartKey", None)
        purpose = made_for(sharding.table, wire.get("IndexName"), condition.equals, *([] if shard is None else [shard]))
        names = dict.fromkeys(schema.names + sharding.keys.names)
        key_names = tuple(name for name in names if not (fanned and name == key))
        counting = wire.get("Select") == "COUNT" and not {"ProjectionExpression", "AttributesToGet"} & wire.keys()
        if counting:
            # A count has no positions to make a cursor from: request the keys (at the same cost) and count them here.
            hidden = frozenset(key_names or (key,))  # a projection must not be empty
            wire = keys_only(wire, key_names or (key,))
        else:
            wire, hidden = project(wire, key_names)
        plan = cls(sharding, wire, condition, schema, shards, fanned, sort, purpose, counting, limit, key_names, hidden)
        return plan if given is None else replace(plan, start=read_start(plan, given))

    @property
    def index(self) -> str | None:
        return self.params.get("IndexName")

    @property
    def descending(self) -> bool:
        return self.params.get("ScanIndexForward") is False

    @property
    def filtered(self) -> bool:
        """Whether items may be evaluated and not returned."""
        return any(self.params.get(name) for name in _FILTERS)

    @property
    def whole(self) -> bool:
        """Whether items are returned with all their attributes."""
        return not self.counting and not self.params.keys() & {"ProjectionExpression", "AttributesToGet"}

    @cached_property
    def start_place(self) -> Place | None:
        return None if self.start is None else self.place(self.start.key, self.shards.index(self.start.shard))

    def place(self, key: Mapping[str, Any], number: int) -> Place:
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
        condition = self.condition
        if after is None and self.start is not None:
            resumed = self._resume(number)
            if resumed is None:
                return None
            after, condition = resumed
        params = dict(self.params)
        if self.fanned:
            physical = self._physical_keys[number]
            params = self._asking(condition, physical)
            after = None if after is None else {**after, self.sharding.partition_key: physical}
        if after is not None:
            params["ExclusiveStartKey"] = after
        if limit is not None:
            params["Limit"] = min(limit, _MOST_ITEMS)
        return Send("Query", params, paced=True, read=read)

    @cached_property
    def _physical_keys(self) -> list[WireValue]:
        logical = self.condition.equals[self.sharding.partition_key]
        if len(self.shards) == 1:
            return [self.sharding.physical(logical, self.shards[0])]
        return self.sharding.all_physical(logical)

    def _asking(self, condition: KeyCondition, physical: WireValue) -> dict[str, Any]:
        """Return the parameters with the key condition of the shard with this physical key."""
        name = self.sharding.partition_key
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
        if self.start is not None and self.start.shard != self.shards[number]:
            items = [item for item in items if self._comes(item, number)]
        # Convert now, not when the items are released: wire values take three times the memory.
        order = self._order
        form = self.sharding.form
        read = self._read_shown if self.hidden else form.shown
        replaced = self.fanned and not isinstance(self.sharding.strategy, Unsharded)
        name = self.sharding.partition_key
        logical = form.shown({name: self.condition.equals[name]})[name] if replaced else None
        run = Run()
        # A part's wire values are freed before the next part is converted. Those of 1 MB at once would take a third
        # more time, because they do not fit into the processor's cache.
        while items:
            part = items[:_PART]
            del items[:_PART]
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

    def _written(self, item: Mapping[str, Any], names: Iterable[str]) -> WireItem:
        """Return attributes of an item of a run in wire form."""
        return {
            name: item[name] if name in self.hidden else self.sharding.form.item({name: item[name]})[name]
            for name in names
            if name in item
        }

    def ends_at(self, key: WireItem) -> bool:
        """Return whether the key condition can match nothing after ``key``."""
        # A narrowed condition uses BETWEEN, which includes the end that ``<`` excludes.
        return self._single or not self.within(key)

    def rest(self, key: WireItem) -> WireItem:
        """Return the attributes of a key that a cursor contains."""
        return {name: key[name] for name in self.key_names if name in key}

    def cursor(self, shard: int | None, key: WireItem) -> dict[str, Any]:
        """Return the cursor after a shard's key, in the caller's form."""
        cursor = Cursor(shard, self.rest(key))
        form = self.sharding.form
        return form.shown(_as_key(self, cursor)) if form.keys_as_cursors else cursor.token(self.purpose)

    def behind(self, number: int, item: Item) -> dict[str, Any]:
        """Return the cursor after an item of a run."""
        return self.cursor(self.shards[number], self._written(item, self.key_names))

    @cached_property
    def as_shown(self) -> bool:
        """Whether the items of runs are what :meth:`shown` returns."""
        return self.fanned and not self.hidden

    def shown(self, item: Item) -> Item:
        """Return an item of a run with its logical key, without hidden attributes."""
        if self.as_shown:
            return item
        if self.hidden:
            item = {name: value for name, value in item.items() if name not in self.hidden}
        name = self.sharding.partition_key
        if self.fanned or name not in item:
            return item
        logical, _ = self._split(item)
        return {**item, **self.sharding.form.shown({name: logical})}

    def shard_shown(self, number: int, item: Item) -> int | None:
        if self.fanned:
            return self.shards[number]
        return self._split(item)[1]

    def _split(self, item: Mapping[str, Any]) -> tuple[WireValue, int | None]:
        name = self.sharding.partition_key
        return self.sharding.logical(self._written(item, (name,))[name])

    @cached_property
    def _single(self) -> bool:
        """Whether a shard can have at most one item: the key condition gives the whole primary key."""
        return self.fanned and set(self.key_names) <= set(self.condition.equals)

    @property
    def _sort_condition(self) -> SortCondition | None:
        if len(self.sort) != 1:
            return None
        if self.condition.range is not None:
            return self.condition.range[1]
        value = self.condition.equals.get(self.sort[0])
        return None if value is None else SortCondition("=", (value,))

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
        unique = len(self.sort) == 1 and set(self.key_names) == set(self.sort)
        at_the_end = self._single or (unique and self._narrowed[True] is None)
        if number == at:
            return None if at_the_end else (start.key, self.condition)
        read = number > at if self.descending else number < at
        if not self.sort or self._single:
            return None if read else (None, self.condition)
        if read and unique:
            return None if at_the_end else (start.key, self.condition)
        if len(self.sort) > 1:
            return None, self.condition
        condition = self._sort_condition
        if condition is not None and condition.op == "=":
            return None if read else (None, self.condition)
        narrowed = self._narrowed[read]
        return None if narrowed is None else (None, narrowed)

    @cached_property
    def _narrowed(self) -> list[KeyCondition | None]:
        """The key condition from the cursor's sort key on, with and without that sort key; None: nothing is left."""
        assert self.start is not None
        (name,) = self.sort
        terms = [
            from_position(self._sort_condition, self.start.key[name], descending=self.descending, exclusive=exclusive)
            for exclusive in (False, True)
        ]
        return [None if term is None else replace(self.condition, range=(name, term)) for term in terms]

    def _comes(self, item: WireItem, number: int) -> bool:
        assert self.start_place is not None
        place = self.place(item, number)
        later = place < self.start_place if self.descending else place > self.start_place
        return later and self.within(item)


def _fanned_and_sort(sharding: Sharding, schema: KeySchema, condition: KeyCondition) -> tuple[bool, tuple[str, ...]]:
    """Return whether a Query is fanned out, and the attributes that order its items."""
    key = sharding.partition_key
    if key in schema.partition:
        return True, schema.sort
    if key not in schema.sort:
        return False, schema.sort
    if key in condition.equals:
        return True, schema.sort[schema.sort.index(key) + 1 :]
    if isinstance(sharding.strategy, Unsharded):
        return False, schema.sort
    raise UnsupportedExpressionError(
        f"KeyConditionExpression: the sort key {key!r} of this index has the suffixes of {sharding.table!r} and "
        f"so another order; only Key({key!r}).eq(…) is supported; for ranges and ordered reads use another sort key"
    )


def read_start(plan: Plan, given: Any) -> Cursor:
    """Read a cursor, or a hand-made primary key."""
    what = f"{plan.sharding.table!r}" + (f", index {plan.index!r}" if plan.index else "") + ", key "
    what += repr(from_wire_item(plan.condition.equals))
    cursor = Cursor.read(given, plan.purpose, what) if is_token(given) else _by_hand(plan, given, what)
    check_position(plan.sharding, cursor.key, plan.key_names, what)
    _check_equals(plan, cursor.key, what)
    if cursor.shard not in plan.shards:
        raise CursorError(
            f"ExclusiveStartKey: the cursor has shard {cursor.shard}, which is not one of {what}; start the read again"
        )
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


def _check_equals(plan: Plan, key: WireItem, what: str) -> None:
    for name, value in plan.condition.equals.items():
        if name in key and sort_value(key[name]) != sort_value(value):
            raise CursorError(f"ExclusiveStartKey: not a key of {what}; start the read again")


def _by_hand(plan: Plan, given: Any, what: str) -> Cursor:
    names = tuple(dict.fromkeys(plan.schema.names + plan.sharding.keys.names))
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise CursorError(
            f"ExclusiveStartKey: {given!r:.200} is neither a cursor of shardkit nor a key of {sorted(names)}; "
            "pass LastEvaluatedKey unchanged"
        )
    sharding = plan.sharding
    key: WireItem = {name: sharding.checked(name, given[name], "cursor") for name in names}
    if plan.fanned:
        # The Query's logical key is known, so a stored key cannot be mistaken for a logical one.
        logical, stored_in = sharding.logical(key[sharding.partition_key])
        if stored_in is not None and _same_key(plan, logical):
            return Cursor(stored_in, plan.rest(key))
    _check_equals(plan, key, what)
    if not plan.fanned and sharding.form.keys_as_cursors:
        return Cursor(None, from_key(sharding, key))
    shard, known = calculated(sharding, key)
    if not known:
        raise CursorError(
            f"ExclusiveStartKey: {from_wire_item(key)!r:.200} is hand-made, and its shard cannot be calculated; pass "
            "LastEvaluatedKey unchanged"
        )
    if plan.fanned:
        return Cursor(shard, plan.rest(key))
    return Cursor(None, sharding.stored(key, shard))


def _same_key(plan: Plan, value: WireValue) -> bool:
    return bool(sort_value(value) == sort_value(plan.condition.equals[plan.sharding.partition_key]))


def _as_key(plan: Plan, cursor: Cursor) -> WireItem:
    """Return a cursor as a key: logical if its shard can be calculated from it, else as it is stored."""
    if not plan.fanned:
        return as_key(plan.sharding, cursor.key)
    name = plan.sharding.partition_key
    key = {name: plan.condition.equals[name], **cursor.key}
    return key if calculated(plan.sharding, key) == (cursor.shard, True) else plan.sharding.stored(key, cursor.shard)
