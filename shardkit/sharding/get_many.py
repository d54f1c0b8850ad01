"""Read any number of items of one table by key, each from every shard where it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardkit.core.machine import Program, Response
from shardkit.errors import AmbiguousItemError, ShardUnknownError, brief
from shardkit.sharding.batch_get import BatchGet, Lookup
from shardkit.sharding.items import primary_key
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params, checked_types, refuse_kept


def get_many(
    sharding: Sharding,
    keys: Sequence[Mapping[str, Any]],
    options: Params,
    fan_out: FanOutOptions,
) -> Program[Response]:
    """Read any number of items of one table by key, each from the places where it can be."""
    looked = [lookups(sharding, key) for key in keys]
    batch, found = yield from find_many(sharding, keys, looked, options, fan_out)
    response: Response = {"Items": [*found.values()], "ResponseMetadata": batch.metadata}
    if batch.consumed is not None:
        response["ConsumedCapacity"] = batch.consumed
    # As given, with the attributes that only ``by`` reads, so that the caller can request them again.
    places = {id(one[0][0]): place for place, one in enumerate(looked)}
    left = dict.fromkeys(id(primary) for (primary, _) in batch.unprocessed)
    response["UnprocessedKeys"] = [dict(keys[places[one]]) for one in left]
    return response


def find_many(
    sharding: Sharding,
    keys: Sequence[Mapping[str, Any]],
    looked: Sequence[Sequence[Lookup]],
    options: Params,
    fan_out: FanOutOptions,
) -> Program[tuple[BatchGet, dict[int, dict[str, Any]]]]:
    """Return the read that was made, and the items that exist, in the form of the caller, by their keys' places."""
    refuse_kept(sharding, options)
    batch = BatchGet(
        sharding, [place for one in looked for place in one], sharding.form.params(checked_types(options)), fan_out
    )
    yield fan_out.hedged(batch)
    # All places of one given key share one wire key object, so its id() identifies the given key.
    asked = {id(one[0][0]): (place, len(one) > 1) for place, one in enumerate(looked)}
    found: dict[int, dict[str, Any]] = {}
    seen: dict[int, list[int | None]] = {}
    for (primary, shard), item in batch.found:
        place, located = asked[id(primary)]
        shards = seen.setdefault(place, [])
        shards.append(shard)
        if located and len(shards) > 1:
            raise AmbiguousItemError(
                f"keys: shards {shards} of table {sharding.table!r} each hold an item {brief(dict(keys[place]), 200)}; "
                "delete all but one, or read one with get_item(Shard=)",
                shards,
            )
        found[place] = sharding.to_caller(item)
    return batch, found


def lookups(sharding: Sharding, key: Mapping[str, Any]) -> list[Lookup]:
    """Return where an item can be: in its shard, or with ``locate`` in any of its key's shards."""
    primary = primary_key(sharding, sharding.form.item(key))
    shard, known = sharding.known_shard(primary, sharding.form.python(key))
    if known:
        return [(primary, shard)]
    if not sharding.strategy.locate:
        raise ShardUnknownError(
            f"keys: the shard of {brief(dict(key), 200)} cannot be calculated with {sharding.strategy!r}; set "
            f"locate=True in the strategy, {sharding.calculated}"
        )
    return [(primary, one) for one in sharding.shards(primary[sharding.partition_key])]
