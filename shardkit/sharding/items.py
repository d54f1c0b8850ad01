"""Operations on one item: find its shard, make the request, convert the response."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from shardkit.core.machine import Program, Response, Send
from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.expressions.rewrite import and_condition, rewrite_partition_key, updated_attributes
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import (
    AmbiguousItemError,
    ConfigurationError,
    InvalidKeyError,
    ShardUnknownError,
    UnsupportedExpressionError,
    UnsupportedParameterError,
    brief,
)
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params, refuse_stored_keys, shard_given, wire_request
from shardkit.sharding.spread import read_by
from shardkit.strategies import Unsharded

_CONDITIONS = ("ConditionExpression", "Expected")
_UPDATES = ("UpdateExpression", "AttributeUpdates")
_FIND_ATTEMPTS = 3


def get_item(sharding: Sharding, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Response]:
    """Read one item with one GetItem, or with ``locate`` a BatchGetItem over the shards."""
    wire, place = item_request(sharding, "GetItem", params)
    shard, known = _shard(sharding, place, wire["Key"], shard)
    if known:
        response = yield Send("GetItem", {**wire, "Key": sharding.stored(wire["Key"], shard)})
        return {**shown_response(sharding, response), "Shard": shard}
    if not sharding.strategy.locate:
        raise _unknown(sharding, "GetItem")
    key = wire.pop("Key")
    batch = yield from _search(sharding, key, wire, fan_out)
    response = {"ResponseMetadata": batch.metadata}
    if batch.consumed is not None:
        response["ConsumedCapacity"] = batch.consumed
    for (_, one), item in batch.found:
        shard, response["Item"] = one, item
    return {**shown_response(sharding, response), "Shard": shard}


def get_request(sharding: Sharding, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Send]:
    """Return the GetItem request of an item. ``locate`` searches for its shard: the first one, if none holds it."""
    wire, place = item_request(sharding, "GetItem", params)
    shard, known = _shard(sharding, place, wire["Key"], shard)
    if not known:
        if not sharding.strategy.locate:
            raise _unknown(sharding, "GetItem")
        key = {name: wire["Key"][name] for name in sharding.keys.names}
        found = yield from _find(sharding, key, fan_out)
        shard = sharding.shards(key[sharding.partition_key])[0] if found is None else found
    return Send("GetItem", {**wire, "Key": sharding.stored(wire["Key"], shard)})


def put_item(sharding: Sharding, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Response]:
    """Write one item. With a random suffix, every put draws a new shard and never replaces an item."""
    wire, place = write_request(sharding, "PutItem", params, fan_out.draw)
    shard, known = _shard_to_store(sharding, place, wire["Item"], shard)
    if known:
        return (yield from _write(sharding, "PutItem", wire, shard))
    if sharding.strategy.locate:
        return (yield from _located(sharding, "PutItem", wire, fan_out))
    if any(wire.get(name) for name in _CONDITIONS):
        raise _unknown(sharding, "PutItem with a condition")
    drawn = sharding.drawn(wire["Item"][sharding.partition_key], fan_out.draw())
    return (yield from _write(sharding, "PutItem", wire, drawn))


def update_item(sharding: Sharding, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Response]:
    """Update one item. An update that finds no item is refused unless the shard is given."""
    wire, place = write_request(sharding, "UpdateItem", params, fan_out.draw)
    check_update(sharding, wire, place)
    shard, known = _shard_to_store(sharding, place, wire["Key"], shard)
    if known:
        return (yield from _write(sharding, "UpdateItem", wire, shard))
    return (yield from _located(sharding, "UpdateItem", wire, fan_out))


def check_update(sharding: Sharding, wire: Mapping[str, Any], place: Mapping[str, Any]) -> None:
    """Refuse an update that reads the stored key, or that changes an item's shard."""
    refuse_stored_keys(sharding, wire, *_UPDATES)
    outside = read_by(sharding.strategy, place, sharding.table).difference(sharding.keys.names)
    # Most strategies read the key only: then the expression need not be parsed.
    if outside and (moved := updated_attributes(wire) & outside):
        raise UnsupportedExpressionError(
            f"UpdateItem: changes {sorted(moved)}, from which the item's shard in table {sharding.table!r} is "
            "calculated; later reads would look in another shard; delete the item and put it again"
        )


def delete_item(sharding: Sharding, params: Params, shard: int | None, fan_out: FanOutOptions) -> Program[Response]:
    wire, place = write_request(sharding, "DeleteItem", params, fan_out.draw)
    shard, known = _shard(sharding, place, wire["Key"], shard)
    if known:
        return (yield from _write(sharding, "DeleteItem", wire, shard))
    return (yield from _located(sharding, "DeleteItem", wire, fan_out))


OPERATIONS: Mapping[str, Callable[..., Program[Response]]] = {
    "DeleteItem": delete_item,
    "GetItem": get_item,
    "PutItem": put_item,
    "UpdateItem": update_item,
}


def physical_item(
    sharding: Sharding, item: Mapping[str, Any], source: str, draw: Callable[[], float]
) -> dict[str, Any]:
    """Return an item or a key (``source``: ``"Item"`` or ``"Key"``) as it is stored, in the caller's form."""
    operation = "PutItem" if source == "Item" else "GetItem"
    wire, place = write_request(sharding, operation, {source: item}, draw)
    shard, known = _shard(sharding, place, wire[source], None)
    if not known:
        if source == "Key":
            raise _unknown(sharding, "physical_key()")
        shard = sharding.drawn(wire[source][sharding.partition_key], draw())
    stored = sharding.stored(wire[source], shard)
    # All other values stay the caller's own objects.
    kept = {attribute: value for attribute, value in item.items() if attribute in stored}
    return {**kept, **sharding.form.shown({name: stored[name] for name in sharding.stored_names & stored.keys()})}


def logical_item(sharding: Sharding, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored item, in the caller's form, with its logical keys."""
    if not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"item: must be a mapping of attribute names to values, got {type(item).__name__}: {brief(item)}"
        )
    names = sharding.stored_names & item.keys()
    wire = sharding.form.item({name: item[name] for name in names})
    if sharding.partition_key in wire:
        sharding.checked(sharding.partition_key, wire[sharding.partition_key], "item")
    shown = sharding.to_caller(wire)
    return {**{name: value for name, value in item.items() if name in shown or name not in names}, **shown}


def item_request(
    sharding: Sharding, operation: str, params: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the wire parameters, and the Python values that the shard is calculated from."""
    source = source_of(operation)
    wire = wire_request(sharding, operation, params)
    if source not in params:
        raise UnsupportedParameterError(f"{source}: missing; {operation} requires it; give {source}={{…}}")
    place = params[source]
    if source == "Key":
        wire["Key"] = primary_key(sharding, wire["Key"])
    else:
        sharding.key_of(wire["Item"])
    return wire, sharding.form.python(place) if isinstance(place, Mapping) else {}


def write_request(
    sharding: Sharding, operation: str, params: Params, draw: Callable[[], float]
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    wire, place = item_request(sharding, operation, params)
    return (sharding.sharded.rewritten(operation, wire, place, draw) if sharding.sharded else wire), place


def primary_key(sharding: Sharding, key: WireItem, also: Collection[str] = ()) -> WireItem:
    """Return a checked key without the attributes that only ``by`` reads, and those ``also`` allowed; refuse others."""
    primary = sharding.key_of(key, kind="key")
    if len(key) > len(primary) and not sharding.reads_keys:
        for name in key.keys() - sharding.placed_by.union(primary, also):
            raise InvalidKeyError(
                f"{name}: is in the key, but is not a key attribute of table {sharding.table!r}, which has "
                f"{', '.join(primary)}; leave it out"
            )
    return primary


def _shard(sharding: Sharding, place: Mapping[str, Any], key: WireItem, given: int | None) -> tuple[int | None, bool]:
    if given is not None:
        return shard_given(sharding, key[sharding.partition_key], given), True
    return sharding.known_shard(key, place)


def _shard_to_store(
    sharding: Sharding, place: Mapping[str, Any], key: WireItem, given: int | None
) -> tuple[int | None, bool]:
    """Return the shard for a write that may create the item; refuse one in which reads will not look."""
    shard, known = _shard(sharding, place, key, given)
    if given is None:
        return shard, known
    with suppress(ShardUnknownError):
        calculated = sharding.shard_of(key[sharding.partition_key], place)
        if calculated not in {None, shard}:
            raise ConfigurationError(
                f"Shard: {shard} was given, but {sharding.strategy!r} calculates shard {calculated} for this item of "
                f"table {sharding.table!r}, where get_item() looks for it; omit Shard="
            )
    return shard, known


def _write(sharding: Sharding, operation: str, wire: Mapping[str, Any], shard: int | None) -> Program[Response]:
    source = source_of(operation)
    stored = sharding.physical(wire[source][sharding.partition_key], shard)
    if not isinstance(sharding.strategy, Unsharded):
        wire = stored_request(sharding, operation, wire, stored)
    try:
        response = yield Send(operation, wire)
    except Exception as error:
        show_logical(sharding, error)
        raise
    return {**shown_response(sharding, response), "Shard": shard}


def source_of(operation: str) -> str:
    """Return the parameter of an operation on one item that has the primary key."""
    return "Item" if operation == "PutItem" else "Key"


def stored_request(sharding: Sharding, operation: str, wire: Mapping[str, Any], stored: WireValue) -> dict[str, Any]:
    """Return the request on an item under its stored partition key, with which the condition compares."""
    source, name = source_of(operation), sharding.partition_key
    logical = wire[source][name]
    params = {**wire, source: {**wire[source], name: stored}}
    return rewrite_partition_key(params, name, lambda value: _alike(value, logical, stored))


def _alike(value: WireValue, logical: WireValue, physical: WireValue) -> WireValue:
    """Add the item's suffix to a value that a condition compares the key with, if it is of the key's type."""
    ((letter, _),) = physical.items()
    if letter not in value:
        return value
    plain: Callable[[Any], Any] = binary_bytes if letter == "B" else str
    suffix = plain(physical[letter])[len(plain(logical[letter])) :]
    content = plain(value[letter]) + suffix
    return {letter: binary_text(content) if letter == "B" else content}


def _located(sharding: Sharding, operation: str, wire: Mapping[str, Any], fan_out: FanOutOptions) -> Program[Response]:
    """Find the item, then write on the condition that it is still in that shard (or still in none)."""
    if not sharding.strategy.locate:
        raise _unknown(sharding, operation)
    legacy = sorted({"Expected", "AttributeUpdates", "ConditionalOperator"} & set(wire))
    if legacy:
        raise UnsupportedExpressionError(
            f"{', '.join(legacy)}: not supported by {operation} with locate=True, which adds a ConditionExpression; "
            "use ConditionExpression and UpdateExpression, or give Shard="
        )
    source = source_of(operation)
    key = {name: wire[source][name] for name in sharding.keys.names}
    name = {"#shardkit_k": sharding.partition_key}
    before: int | None = -1
    attempts = 0
    while True:
        attempts += 1
        shard = yield from _find(sharding, key, fan_out)
        if shard is None and operation == "UpdateItem":
            raise ShardUnknownError(
                f"Key: no shard holds {brief(from_wire_item(key), 200)}, so UpdateItem has no shard to create it in; "
                "put the item first, or give Shard="
            )
        there = "attribute_not_exists" if shard is None else "attribute_exists"
        params = and_condition(wire, f"{there}(#shardkit_k)", name)
        target = sharding.drawn(key[sharding.partition_key], fan_out.draw()) if shard is None else shard
        try:
            return (yield from _write(sharding, operation, params, target))
        except Exception as error:
            # The item may have been put, deleted or moved since the search: search again. If the result is the same,
            # it was the caller's own condition that failed.
            if code_of(error) != "ConditionalCheckFailedException" or shard == before or attempts == _FIND_ATTEMPTS:
                raise
            before = shard


def _find(sharding: Sharding, key: WireItem, fan_out: FanOutOptions) -> Program[int | None]:
    """Return the shard that holds an item (None: no shard), by a consistent read of its keys."""
    names = {f"#k{number}": name for number, name in enumerate(key)}
    options = {
        "ConsistentRead": True,
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": names,
    }
    batch = yield from _search(sharding, key, options, fan_out)
    return next((shard for (_, shard), _ in batch.found), None)


def _search(sharding: Sharding, key: WireItem, options: Mapping[str, Any], fan_out: FanOutOptions) -> Program[BatchGet]:
    """Read an item from all its shards; at most one may hold it."""
    shards = sharding.shards(key[sharding.partition_key])
    batch = BatchGet(sharding, [(key, shard) for shard in shards], options, fan_out)
    yield fan_out.hedged(batch)
    batch.raise_unprocessed()
    found = [shard for (_, shard), _ in batch.found]
    if len(found) > 1:
        raise AmbiguousItemError(
            f"Key: shards {found} of table {sharding.table!r} each hold an item {brief(from_wire_item(key), 200)}; "
            "select one with Shard=, and delete the others",
            found,
        )
    return batch


def shown_response(sharding: Sharding, response: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(response)
    # All parts that hold attribute values (botocore's model: members of shape AttributeValue).
    for part in ("Item", "Attributes"):
        if shown.get(part):
            shown[part] = sharding.to_caller(shown[part])
            if not shown[part]:
                del shown[part]  # only what shardkit keeps has changed
    if shown.get("ItemCollectionMetrics"):
        shown["ItemCollectionMetrics"] = with_shown_collection(shown["ItemCollectionMetrics"], sharding.to_caller)
    return shown


def unsharded_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response of a table that is not sharded as a client's caller expects it."""
    show, shown = WIRE_VALUES.shown, dict(response)
    shown |= {part: show(shown[part]) for part in ("Attributes", "Item", "LastEvaluatedKey") if part in shown}
    if "Items" in shown:
        shown["Items"] = [*map(show, shown["Items"])]
    if shown.get("ItemCollectionMetrics"):
        shown["ItemCollectionMetrics"] = with_shown_collection(shown["ItemCollectionMetrics"], show)
    return shown


def with_shown_collection(
    metrics: Mapping[str, Any], show: Callable[[WireItem], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the metrics of an item collection with its key in the caller's form."""
    key = metrics.get("ItemCollectionKey")
    return metrics if key is None else {**metrics, "ItemCollectionKey": show(key)}


def show_logical(sharding: Sharding, error: Any) -> None:
    """Show the logical key in an error that contains an item."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and isinstance(response.get("Item"), dict):
        error.response = with_logical_item(sharding, response)


def with_logical_item(sharding: Sharding, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of an error, its ``Item`` with the logical key. boto3 leaves it in wire form."""
    return {**part, "Item": WIRE_VALUES.shown(sharding.logical_item(part["Item"]))}


def _unknown(sharding: Sharding, what: str) -> ShardUnknownError:
    return ShardUnknownError(
        f"Shard: missing; {what} requires it, because {sharding.strategy!r} of table {sharding.table!r} cannot "
        f"calculate it; give Shard=, set locate=True in the strategy, {sharding.calculated}"
    )
