"""One logical Query: what is asked of each shard, and what an answer means."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from shardkit.core.checks import check_count
from shardkit.core.machine import Response, Send
from shardkit.core.merge import Entry, Place
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.expressions.key_condition import (
    KeyCondition,
    SortCondition,
    comparable,
    from_position,
    matches,
    parse_key_condition,
    replace_key_condition,
)
from shardkit.dynamodb.expressions.rewrite import keys_only, project
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import (
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    ShardUnknownError,
    UnsupportedExpressionError,
)
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import refuse_stored_keys, shard_given, wire_request
from shardkit.sharding.query.cursor import Cursor, is_token, made_for
from shardkit.strategies import Unsharded

__all__ = ["Plan", "check_position", "read_start"]

_MOST_ITEMS = 2**20
"""More do not fit into a page of 1 MB; the service takes no more than 32 bits."""

_FILTERS = ("FilterExpression", "QueryFilter")


@dataclass(frozen=True)
class Plan:
    """A logical Query, decided: its shards in order, and the parameters that all of them share."""

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
    hidden: frozenset[str]
    start: Cursor | None = None

    @classmethod
    def of(cls, sharding: Sharding, params: Mapping[str, Any], *, shard: int | None = None) -> Plan:
        """Decide a Query."""
        wire = wire_request(sharding, "Query", params)
        schema = sharding.schema(wire.get("IndexName"))
        condition = parse_key_condition(wire)
        for name in schema.partition:
            if name not in condition.equals:
                raise UnsupportedExpressionError(
                    f"a Query needs '=' on the partition key {name!r}, but its key condition has "
                    f"{sorted(condition.equals) or 'no equality'}; give Key({name!r}).eq(…), or use scan()"
                )
        refuse_stored_keys(sharding, wire, *_FILTERS)
        fanned, sort = _order(sharding, schema, condition)
        key = sharding.partition_key
        shards: tuple[int | None, ...] = (None,)
        if fanned:
            shards = tuple(sharding.shards(sharding.checked(key, condition.equals[key], "key condition")))
        if shard is not None:
            if not fanned:
                raise ConfigurationError("Shard= was given, but a Query on this index is not fanned out; leave it out")
            shards = (shard_given(sharding, condition.equals[key], shard),)
        limit = wire.pop("Limit", None)
        if limit is not None:
            check_count("Limit", limit, "items evaluated a page", most=sys.maxsize)
        given = wire.pop("ExclusiveStartKey", None)
        plan = cls(
            sharding=sharding,
            params=wire,
            condition=condition,
            schema=schema,
            shards=shards,
            fanned=fanned,
            sort=sort,
            purpose=made_for(
                sharding.table, wire.get("IndexName"), condition.equals, *([] if shard is None else [shard])
            ),
            counting=False,
            limit=limit,
            hidden=frozenset(),
        )
        counting = wire.get("Select") == "COUNT" and not {"ProjectionExpression", "AttributesToGet"} & wire.keys()
        if counting:
            # A count has no positions: the keys are asked for (at the same cost) and counted here.
            names = plan.key_names or (key,)  # a projection cannot be empty
            plan = replace(plan, params=keys_only(wire, names), counting=True, hidden=frozenset(names))
        else:
            projected, hidden = project(wire, plan.key_names)
            plan = replace(plan, params=projected, hidden=hidden)
        return plan if given is None else replace(plan, start=read_start(plan, given))

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """The key attributes that place an item, without the one that its shard tells."""
        names = dict.fromkeys(self.schema.names + self.sharding.keys.names)
        return tuple(name for name in names if not (self.fanned and name == self.sharding.partition_key))

    @property
    def index(self) -> str | None:
        """The index that is read; None: the table."""
        return self.params.get("IndexName")

    @property
    def descending(self) -> bool:
        """Whether the sort key is read backwards."""
        return self.params.get("ScanIndexForward") is False

    @property
    def filtered(self) -> bool:
        """Whether items may be evaluated and not returned."""
        return any(self.params.get(name) for name in _FILTERS)

    @property
    def whole(self) -> bool:
        """Whether items come back with all that they are stored with."""
        return not self.counting and not self.params.keys() & {"ProjectionExpression", "AttributesToGet"}

    @cached_property
    def start_place(self) -> Place | None:
        """Where the cursor stands in the order."""
        return None if self.start is None else self.place(self.start.key, self.shards.index(self.start.shard))

    def place(self, key: Mapping[str, Any], number: int) -> Place:
        """Say where a key of a shard stands in the order."""
        return self._order(key), number

    @cached_property
    def _order(self) -> Callable[[Mapping[str, Any]], Any]:
        """What a key is ordered by: its sort key; nothing, where there is none."""
        if len(self.sort) != 1:
            names = self.sort
            return lambda key: tuple(comparable(key[name]) for name in names)
        (name,) = self.sort
        if self.sharding.types.get(name) == "S":
            return lambda key: key[name]["S"]
        return lambda key: comparable(key[name])

    def request(
        self, number: int, after: WireItem | None, limit: int | None, read: Callable[[int, Response], Any]
    ) -> Send | None:
        """Give the request for a shard's next page; None: no more of its items can match."""
        shard = self.shards[number]
        condition = self.condition
        if after is None and self.start is not None:
            resumed = self._resume(number)
            if resumed is None:
                return None
            after, condition = resumed
        params = self._asking(condition, shard)
        if after is not None:
            params["ExclusiveStartKey"] = self._stored(after, shard)
        if limit is not None:
            params["Limit"] = min(limit, _MOST_ITEMS)
        return Send("Query", params, paced=True, read=partial(read, number))

    def _asking(self, condition: KeyCondition, shard: int | None) -> dict[str, Any]:
        """Give the parameters with a key condition on one shard."""
        if not self.fanned:
            return dict(self.params)
        name = self.sharding.partition_key
        physical = self.sharding.physical(self.condition.equals[name], shard)
        # Of a condition only the physical key differs from shard to shard: the rest is written once.
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

    def entries(self, number: int, items: list[WireItem]) -> list[Entry]:
        """Give a page's items in the caller's form (what is hidden: as it came), without those up to the cursor."""
        if self.start is not None and self.start.shard != self.shards[number]:
            items = [item for item in items if self._comes(item, number)]
        # Here, and not when they are handed out: the wire form is three times as large.
        order = self._order
        form = self.sharding.form
        read = self._read_shown if self.hidden else form.shown
        entries = [(order(item), number, read(item)) for item in items]
        if self.fanned and not isinstance(self.sharding.strategy, Unsharded):
            name = self.sharding.partition_key
            logical = form.shown({name: self.condition.equals[name]})[name]
            for _, _, item in entries:
                if name in item:
                    item[name] = logical  # every item that was asked for has this very key
        return entries

    def _read_shown(self, item: WireItem) -> dict[str, Any]:
        # Services print 1E100 with 101 digits, and boto3 refuses more than 38: what is not shown stays as it came.
        shown = self.sharding.form.shown({name: value for name, value in item.items() if name not in self.hidden})
        return {**item, **shown}

    def _written(self, item: Mapping[str, Any], names: Iterable[str]) -> WireItem:
        """Give attributes of an entry's item in wire form."""
        return {
            name: item[name] if name in self.hidden else self.sharding.form.item({name: item[name]})[name]
            for name in names
            if name in item
        }

    def ends_at(self, key: WireItem) -> bool:
        """Say whether nothing behind a key can match (a narrowed condition lets in the excluded end of ``< b``)."""
        return self._single or not self.within(key)

    def rest(self, key: WireItem) -> WireItem:
        """Give a key without what its shard tells."""
        return {name: key[name] for name in self.key_names if name in key}

    def token(self, shard: int | None, key: WireItem) -> dict[str, str]:
        """Write the cursor that stands on a key of a shard."""
        return Cursor(shard, self.rest(key)).token(self.purpose)

    def behind(self, entry: Entry) -> dict[str, str]:
        """Write the cursor that stands on an item."""
        _, number, item = entry
        return self.token(self.shards[number], self._written(item, self.key_names))

    def shown(self, entry: Entry) -> dict[str, Any]:
        """Give an item as the application sees it."""
        item = entry[2]
        if self.hidden:
            item = {name: value for name, value in item.items() if name not in self.hidden}
        name = self.sharding.partition_key
        if self.fanned or name not in item:
            return item
        logical, _ = self._split(item)
        return {**item, **self.sharding.form.shown({name: logical})}

    def shard_shown(self, entry: Entry) -> int | None:
        """Give the shard that holds an item."""
        _, number, item = entry
        if self.fanned:
            return self.shards[number]
        return self._split(item)[1]

    def _split(self, item: Mapping[str, Any]) -> tuple[WireValue, int | None]:
        name = self.sharding.partition_key
        return self.sharding.logical(self._written(item, (name,))[name])

    def _stored(self, key: WireItem, shard: int | None) -> WireItem:
        if not self.fanned:
            return key
        name = self.sharding.partition_key
        return {**key, name: self.sharding.physical(self.condition.equals[name], shard)}

    @cached_property
    def _single(self) -> bool:
        """Whether a shard can hold one item at the most: the key condition gives its whole primary key."""
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
        """Say whether a key meets the sort key's condition."""
        condition = self._sort_condition
        return condition is None or matches(condition, key[self.sort[0]])

    def _resume(self, number: int) -> tuple[WireItem | None, KeyCondition] | None:
        """Say where a shard goes on behind the cursor: after a key, or with a narrower key condition."""
        start = self.start
        assert start is not None and self.start_place is not None
        at = self.start_place[1]
        # In a table sort keys are unique in a shard, and the key of an item that does not exist will do; but it must
        # satisfy the key condition, and where it is the last that does, DynamoDB Local refuses it.
        unique = len(self.sort) == 1 and set(self.key_names) == set(self.sort)
        at_the_end = self._single or (unique and self._narrowed[True] is None)
        if number == at:
            return None if at_the_end else (start.key, self.condition)
        # Of equal sort keys, the shards that come before the cursor's have been read, those behind it have not.
        read = number > at if self.descending else number < at
        if not self.sort or self._single:
            return None if read else (None, self.condition)
        if read and unique:
            return None if at_the_end else (start.key, self.condition)
        if len(self.sort) > 1:
            return None, self.condition  # one condition cannot say it: read again, drop what was handed out
        condition = self._sort_condition
        if condition is not None and condition.op == "=":
            return None if read else (None, self.condition)
        narrowed = self._narrowed[read]
        return None if narrowed is None else (None, narrowed)

    @cached_property
    def _narrowed(self) -> tuple[KeyCondition | None, KeyCondition | None]:
        """The key condition from the cursor's sort key on, and without that sort key; None: nothing is left."""
        assert self.start is not None
        (name,) = self.sort

        def narrowed(*, exclusive: bool) -> KeyCondition | None:
            key = self.start.key[name]  # type: ignore[union-attr]
            term = from_position(self._sort_condition, key, descending=self.descending, exclusive=exclusive)
            return None if term is None else replace(self.condition, range=(name, term))

        return narrowed(exclusive=False), narrowed(exclusive=True)

    def _comes(self, item: WireItem, number: int) -> bool:
        assert self.start_place is not None
        place = self.place(item, number)
        later = place < self.start_place if self.descending else place > self.start_place
        return later and self.within(item)


def _order(sharding: Sharding, schema: KeySchema, condition: KeyCondition) -> tuple[bool, tuple[str, ...]]:
    """Say whether a Query is fanned out, and which attributes order its answer."""
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
        f"the sort key {key!r} of this index carries the suffixes of table {sharding.table!r}, which change its order: "
        f"only Key({key!r}).eq(…) can be asked of it; for ranges and ordered reads give the index another sort key"
    )


def read_start(plan: Plan, given: Any) -> Cursor:
    """Read a cursor, or a primary key made by hand."""
    what = f"{plan.sharding.table!r}" + (f", index {plan.index!r}" if plan.index else "") + ", key "
    what += repr(from_wire_item(plan.condition.equals))
    cursor = Cursor.read(given, plan.purpose, what) if is_token(given) else _by_hand(plan, given, what)
    check_position(plan.sharding, cursor.key, plan.key_names, what)
    _check_equals(plan, cursor.key, what)
    if cursor.shard not in plan.shards:
        raise CursorError(
            f"the cursor stands on shard {cursor.shard}, which is not among those of {what}; start the read again"
        )
    if not plan.within(cursor.key):
        raise CursorError(f"the cursor stands outside the key condition of this Query on {what}")
    return cursor


def check_position(sharding: Sharding, key: WireItem, names: Collection[str], what: str) -> None:
    """Refuse the key of a cursor that is no key of what is read: not of these attributes, or not of their types."""
    if set(key) != set(names):
        raise CursorError(f"the cursor is damaged: it does not stand on a key of {what}; start the read again")
    try:
        for name, value in key.items():
            sharding.checked(name, value, "cursor")
    except InvalidKeyError as error:
        raise CursorError(f"the cursor is damaged: {error}; start the read again") from error


def _check_equals(plan: Plan, key: WireItem, what: str) -> None:
    for name, value in plan.condition.equals.items():
        if name in key and comparable(key[name]) != comparable(value):
            raise CursorError(f"ExclusiveStartKey is not of {what}; start the read again")


def _by_hand(plan: Plan, given: Any, what: str) -> Cursor:
    names = tuple(dict.fromkeys(plan.schema.names + plan.sharding.keys.names))
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise CursorError(
            f"ExclusiveStartKey {given!r:.200} is neither a cursor of shardkit nor a key of {sorted(names)}; "
            "pass LastEvaluatedKey as it came"
        )
    key: WireItem = {name: plan.sharding.checked(name, given[name], "cursor") for name in names}
    _check_equals(plan, key, what)
    try:
        shard = plan.sharding.shard_of(key[plan.sharding.partition_key], from_wire_item(key))
        known = shard is not None or isinstance(plan.sharding.strategy, Unsharded)
    except ShardUnknownError:
        shard, known = None, False
    if not known:
        raise CursorError(
            f"ExclusiveStartKey {from_wire_item(key)!r:.200} was made by hand, and the shard of an item cannot be "
            "calculated from its key here; pass LastEvaluatedKey as it came"
        )
    if plan.fanned:
        return Cursor(shard, plan.rest(key))
    return Cursor(None, plan.sharding.stored(key, shard))
