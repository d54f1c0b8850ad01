"""Read many items of a table whose items move: at their old homes first, then what is not there at the new ones.

The second read is consistent, so that an item which moved between the two is found.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from shardkit.core.machine import Program, Response
from shardkit.dynamodb.expressions.rewrite import project, refuse_attributes
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import ShardQueryError
from shardkit.migrate.items import OWN
from shardkit.migrate.marks import MARK, Moving, is_stub, unmarked
from shardkit.sharding.batch_get import BatchGet, Lookup
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.items import primary_key
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import PROJECTIONS, FanOutOptions, Params, checked_types, refuse_kept


class _Places(BatchGet):
    """Reads items at one of their homes; ``found`` are those that live there."""

    @property
    def found(self) -> list[tuple[Lookup, WireItem]]:
        return [(place, unmarked(item)) for place, item in super().found if not is_stub(item)]

    @property
    def stubs(self) -> list[WireItem]:
        """The logical keys of the items that live at their new home."""
        return [key for (key, _), item in super().found if is_stub(item)]


def get_many(
    moving: Moving, keys: Sequence[Mapping[str, Any]], options: Params, fan_out: FanOutOptions
) -> Program[Response]:
    """Read any number of items by key; see :func:`shardkit.sharding.get_many.get_many`."""
    refuse_kept(moving, options)
    wire = moving.form.params(checked_types(options))
    refuse_attributes(wire, {MARK}, *PROJECTIONS, why=OWN)
    wire, _ = project(wire, (MARK,))
    # A repeated key is read once.
    logical: dict[Hashable, tuple[int, WireItem]] = {}
    for place, given in enumerate(keys):
        key = primary_key(moving, moving.form.item(given))
        logical.setdefault(comparable_item(key), (place, key))
    places = {id(key): place for place, key in logical.values()}
    moves = [key for _, key in logical.values() if not moving.homes(key).same]
    old = _Places(moving.old, _lookups(moving.old, (key for _, key in logical.values())), wire, fan_out)
    yield fan_out.hedged(old)
    found = {places[id(key)]: item for (key, _), item in old.found}
    at_old = {id(key) for key, _ in (*(lookup for lookup, _ in old.found), *old.unprocessed)}
    elsewhere = old.stubs if moving.stage == "guard" else [key for key in moves if id(key) not in at_old]
    reads = [old]
    if elsewhere:
        new = _Places(moving.new, _lookups(moving.new, elsewhere), {**wire, "ConsistentRead": True}, fan_out)
        try:
            yield fan_out.hedged(new)
        except ShardQueryError as error:
            partial = [*map(moving.to_caller, found.values()), *error.partial_items]
            raise type(error)(str(error), error.errors, partial) from error.__cause__
        found |= {places[id(key)]: item for (key, _), item in new.found}
        reads.append(new)
    response: Response = {
        "Items": [moving.to_caller(found[place]) for place in sorted(found)],
        "ResponseMetadata": old.metadata,
        "UnprocessedKeys": [dict(keys[places[id(key)]]) for read in reads for key, _ in read.unprocessed],
    }
    for read in reads:
        if read.consumed is not None:
            response["ConsumedCapacity"] = add_consumed(response.get("ConsumedCapacity"), read.consumed)
    return response


def _lookups(sharding: Sharding, keys: Iterable[WireItem]) -> list[Lookup]:
    return [(key, sharding.known_shard(key, WIRE_VALUES.python(key))[0]) for key in keys]
