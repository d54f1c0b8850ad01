"""Single items: where an item is, the request for it there, and what its response shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shardkit.core.hashing import shown
from shardkit.core.machine import Program, Send
from shardkit.dynamodb.body import binary, binary_text
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
)
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOut, refuse_stored_keys, shard_given, wire_request
from shardkit.strategies import Unsharded

__all__ = ["OPERATIONS", "logical_item", "physical_item", "primary_key"]

Draw = Callable[[], float]

_CONDITIONS = ("ConditionExpression", "Expected")
_UPDATES = ("UpdateExpression", "AttributeUpdates")
_FIND_ATTEMPTS = 3


def get_item(
    sharding: Sharding, params: Mapping[str, Any], shard: int | None, draw: Draw, fan_out: FanOut
) -> Program[dict[str, Any]]:
    """Read one item: one GetItem, or with ``locate`` a BatchGetItem over the shards."""
    wire, place = _request(sharding, "GetItem", params)
    shard, known = _shard(sharding, place, wire["Key"], shard)
    if known:
        response = yield Send("GetItem", {**wire, "Key": sharding.stored(wire["Key"], shard)})
        return {**_shown(sharding, response), "Shard": shard}
    if not sharding.strategy.locate:
        raise _unknown(sharding, "GetItem without its shard")
    key = wire.pop("Key")
    batch = BatchGet(sharding, [(key, one) for one in _all_shards(sharding, key)], wire, draw, fan_out)
    yield batch
    batch.raise_unprocessed()
    found = [(one, item) for (_, one), item in batch.found]
    if len(found) > 1:
        raise _ambiguous(sharding, key, [one for one, _ in found])
    response = {"ResponseMetadata": batch.metadata}
    if batch.consumed is not None:
        response["ConsumedCapacity"] = batch.consumed
    if found:
        response["Item"] = found[0][1]
    return {**_shown(sharding, response), "Shard": found[0][0] if found else None}


def put_item(
    sharding: Sharding, params: Mapping[str, Any], shard: int | None, draw: Draw, fan_out: FanOut
) -> Program[dict[str, Any]]:
    """Write one item. A random suffix is drawn anew: each primary key is written once, a put never replaces."""
    wire, place = _request(sharding, "PutItem", params)
    shard, known = _shard_to_store(sharding, place, wire["Item"], shard)
    if known:
        return (yield from _write(sharding, "PutItem", wire, shard))
    if sharding.strategy.locate:
        return (yield from _located(sharding, "PutItem", wire, draw, fan_out))
    if any(wire.get(name) for name in _CONDITIONS):
        raise _unknown(sharding, "a put with a condition")
    return (yield from _write(sharding, "PutItem", wire, drawn_shard(sharding, wire["Item"], draw())))


def update_item(
    sharding: Sharding, params: Mapping[str, Any], shard: int | None, draw: Draw, fan_out: FanOut
) -> Program[dict[str, Any]]:
    """Change one item where it is; an update whose item is not found is refused unless its shard is given."""
    wire, place = _request(sharding, "UpdateItem", params)
    refuse_stored_keys(sharding, wire, *_UPDATES)
    moved = updated_attributes(wire) & (_read_by(sharding, place) - set(sharding.keys.names))
    if moved:
        raise UnsupportedExpressionError(
            f"the update changes {sorted(moved)}, which the shard of an item of table {sharding.table!r} is calculated "
            "from: the item would be looked for elsewhere; delete it and put it anew"
        )
    shard, known = _shard_to_store(sharding, place, wire["Key"], shard)
    if known:
        return (yield from _write(sharding, "UpdateItem", wire, shard))
    return (yield from _located(sharding, "UpdateItem", wire, draw, fan_out))


def delete_item(
    sharding: Sharding, params: Mapping[str, Any], shard: int | None, draw: Draw, fan_out: FanOut
) -> Program[dict[str, Any]]:
    """Delete one item where it is."""
    wire, place = _request(sharding, "DeleteItem", params)
    shard, known = _shard(sharding, place, wire["Key"], shard)
    if known:
        return (yield from _write(sharding, "DeleteItem", wire, shard))
    return (yield from _located(sharding, "DeleteItem", wire, draw, fan_out))


OPERATIONS: Mapping[str, Callable[..., Program[dict[str, Any]]]] = {
    "DeleteItem": delete_item,
    "GetItem": get_item,
    "PutItem": put_item,
    "UpdateItem": update_item,
}


def physical_item(sharding: Sharding, item: Mapping[str, Any], source: str, draw: Draw) -> dict[str, Any]:
    """Give an item or a key (``source``: ``"Item"`` or ``"Key"``) as it is stored, in the caller's form."""
    wire, place = _request(sharding, "PutItem" if source == "Item" else "GetItem", {source: item})
    shard, known = _shard(sharding, place, wire[source], None)
    if not known:
        if source == "Key":
            raise _unknown(sharding, "a key")
        shard = drawn_shard(sharding, wire[source], draw())
    name = sharding.partition_key
    stored = sharding.stored(wire[source], shard)
    # The caller's other values stay the objects that they are.
    kept = {attribute: value for attribute, value in item.items() if attribute in stored}
    return {**kept, **sharding.form.shown({name: stored[name]})}


def logical_item(sharding: Sharding, item: Mapping[str, Any]) -> dict[str, Any]:
    """Give a stored item, in the caller's form, as the application sees it."""
    name = sharding.partition_key
    if not isinstance(item, Mapping):
        raise InvalidKeyError(
            f"an item is a mapping of attribute names to values, got {type(item).__name__}: {item!r:.100}"
        )
    if name not in item:
        return dict(item)
    wire = sharding.form.item({name: item[name]})
    sharding.checked(name, wire[name], "item")
    return {**item, **sharding.form.shown(sharding.shown(wire))}


def drawn_shard(sharding: Sharding, item: WireItem, draw: float) -> int | None:
    """Give the shard of a key that a draw from [0, 1) falls on."""
    shards = _all_shards(sharding, item)
    return shards[int(draw * len(shards))]


def _request(sharding: Sharding, operation: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Give the wire parameters, and the Python values that say where the item is."""
    source = "Item" if operation == "PutItem" else "Key"
    wire = wire_request(sharding, operation, params)
    if source not in params:
        raise UnsupportedParameterError(f"{source}: missing; {operation} needs it, so give {source}={{…}}")
    place = params[source]
    if source == "Key":
        wire["Key"] = primary_key(sharding, wire["Key"])
    else:
        sharding.key_of(wire["Item"])
    return wire, sharding.form.python(place) if isinstance(place, Mapping) else {}


def primary_key(sharding: Sharding, key: WireItem) -> WireItem:
    """Give a key, checked, without what ``by`` reads beside it; what else is in it is for the service to refuse."""
    names = sharding.key_of(key, kind="key")
    if callable(getattr(sharding.strategy, "by", None)):
        return names
    extra = set(sharding.strategy.by_attributes or ()) - set(names)
    return {name: value for name, value in key.items() if name not in extra}


def _shard(sharding: Sharding, place: Mapping[str, Any], key: WireItem, given: int | None) -> tuple[int | None, bool]:
    """Say which shard holds the item, and whether that is known."""
    if given is not None:
        return shard_given(sharding, key[sharding.partition_key], given), True
    shard = sharding.shard_of(key[sharding.partition_key], place)
    return shard, shard is not None or isinstance(sharding.strategy, Unsharded)


def _shard_to_store(
    sharding: Sharding, place: Mapping[str, Any], key: WireItem, given: int | None
) -> tuple[int | None, bool]:
    """Do the same for a write that may make the item: it must be where it will be looked for."""
    shard, known = _shard(sharding, place, key, given)
    if given is None:
        return shard, known
    try:
        calculated = sharding.shard_of(key[sharding.partition_key], place)
    except ShardUnknownError:
        return shard, known
    if calculated not in {None, shard}:
        raise ConfigurationError(
            f"Shard: {shard} was given, but {sharding.strategy!r} calculates shard {calculated} for this item of table "
            f"{sharding.table!r}, and get_item() looks only there; leave Shard= out"
        )
    return shard, known


def _read_by(sharding: Sharding, key: Mapping[str, Any]) -> set[str]:
    """Give the attributes that the shard is calculated from; a function is watched while it reads the key.

    What a function makes of a mapping depends on nothing but what it reads of it. If that is all there, it gives the
    same for the item as for its key.
    """
    by = getattr(sharding.strategy, "by", None)
    if not callable(by):
        return set(sharding.strategy.by_attributes or ())
    watched = _Watched(key)
    problem, cause = "", None
    try:
        by(watched)
    except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
        problem, cause = f"ended in {error!r:.200}", error
    if missing := sorted(str(name) for name in watched.read - key.keys()):
        problem = f"reads {missing}, which Key= does not have"
    if watched.whole:
        problem = "reads all of the item"
    if problem:
        raise ShardUnknownError(
            f"by: given {sorted(map(str, key))}, {shown(by)} {problem}, so that nobody knows whether this update of "
            f"table {sharding.table!r} changes the item's shard; put the attributes that it reads into Key=, beside "
            "the key attributes, and let it read no others"
        ) from cause
    return watched.read


class _Watched(Mapping[str, Any]):
    """A mapping that notes what is read of it, found or not: its names, or that it is the ``whole``."""

    def __init__(self, item: Mapping[str, Any]) -> None:
        self._item = item
        self.read: set[str] = set()
        self.whole = False

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._item[name]

    def __iter__(self) -> Iterator[str]:
        self.whole = True
        return iter(self._item)

    def __len__(self) -> int:
        self.whole = True
        return len(self._item)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy notes nothing here.
        return dict, (dict(self),)


def _all_shards(sharding: Sharding, key: WireItem) -> Sequence[int | None]:
    return sharding.shards(key[sharding.partition_key])


def _write(sharding: Sharding, operation: str, wire: Mapping[str, Any], shard: int | None) -> Program[dict[str, Any]]:
    source = "Item" if operation == "PutItem" else "Key"
    logical = wire[source][sharding.partition_key]
    params = {**wire, source: sharding.stored(wire[source], shard)}
    physical = params[source][sharding.partition_key]
    if not isinstance(sharding.strategy, Unsharded):
        params = rewrite_partition_key(params, sharding.partition_key, lambda value: _alike(value, logical, physical))
    try:
        response = yield Send(operation, params)
    except Exception as error:
        _show_logical(sharding, error)
        raise
    return {**_shown(sharding, response), "Shard": shard}


def _alike(value: WireValue, logical: WireValue, physical: WireValue) -> WireValue:
    """Give a compared value the suffix of the item's own key; one of another type equals neither form."""
    ((letter, _),) = physical.items()
    if letter not in value or letter == "N":
        return value
    plain: Callable[[Any], Any] = binary if letter == "B" else str
    suffix = plain(physical[letter])[len(plain(logical[letter])) :]
    content = plain(value[letter]) + suffix
    return {letter: binary_text(content) if letter == "B" else content}


def _located(
    sharding: Sharding, operation: str, wire: Mapping[str, Any], draw: Draw, fan_out: FanOut
) -> Program[dict[str, Any]]:
    """Find the item, then act on it under the condition that it is still there (or still nowhere)."""
    if not sharding.strategy.locate:
        raise _unknown(sharding, f"{operation} without its shard")
    legacy = sorted({"Expected", "AttributeUpdates", "ConditionalOperator"} & set(wire))
    if legacy:
        raise UnsupportedExpressionError(
            f"{operation} with locate=True adds a condition of its own, which {legacy} cannot be combined with; "
            "use ConditionExpression and UpdateExpression, or give Shard="
        )
    source = "Item" if operation == "PutItem" else "Key"
    key = {name: wire[source][name] for name in sharding.keys.names}
    name = {"#shardkit_k": sharding.partition_key}
    before: int | None = -1
    attempts = 0
    while True:
        attempts += 1
        shard = yield from _find(sharding, key, draw, fan_out)
        if shard is None and operation == "UpdateItem":
            raise ShardUnknownError(
                f"no shard holds {from_wire_item(key)!r:.200}, and an update would make it in one that nobody chose; "
                "put it first, or give Shard="
            )
        there = "attribute_not_exists" if shard is None else "attribute_exists"
        params = and_condition(wire, f"{there}(#shardkit_k)", name, {})
        try:
            return (
                yield from _write(
                    sharding, operation, params, drawn_shard(sharding, key, draw()) if shard is None else shard
                )
            )
        except Exception as error:
            # The item may have come, gone or moved since it was found: look again, and believe the second answer.
            if code_of(error) != "ConditionalCheckFailedException" or shard == before or attempts == _FIND_ATTEMPTS:
                raise
            before = shard


def _find(sharding: Sharding, key: WireItem, draw: Draw, fan_out: FanOut) -> Program[int | None]:
    """Say which shard holds an item, by a consistent read of its keys; None: no shard."""
    names = {f"#k{number}": name for number, name in enumerate(key)}
    options = {
        "ConsistentRead": True,
        "ProjectionExpression": ", ".join(names),
        "ExpressionAttributeNames": names,
    }
    batch = BatchGet(sharding, [(key, shard) for shard in _all_shards(sharding, key)], options, draw, fan_out)
    yield batch
    batch.raise_unprocessed()
    shards = [shard for (_, shard), _ in batch.found]
    if len(shards) > 1:
        raise _ambiguous(sharding, key, shards)
    return shards[0] if shards else None


def _shown(sharding: Sharding, response: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(response)
    for part in ("Item", "Attributes"):
        if part in shown:
            shown[part] = sharding.shown(shown[part])
    metrics = shown.get("ItemCollectionMetrics")
    if metrics and "ItemCollectionKey" in metrics:
        shown["ItemCollectionMetrics"] = {**metrics, "ItemCollectionKey": sharding.shown(metrics["ItemCollectionKey"])}
    return sharding.form.response(shown)


def _show_logical(sharding: Sharding, error: Any) -> None:
    """Make an error that carries an item (in wire form, as boto3 leaves it) show its logical key."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and isinstance(response.get("Item"), dict):
        error.response = {**response, "Item": sharding.shown(response["Item"])}


def _ambiguous(sharding: Sharding, key: WireItem, shards: list[int | None]) -> AmbiguousItemError:
    return AmbiguousItemError(
        f"shards {shards} of table {sharding.table!r} each hold an item of {from_wire_item(key)!r:.200}; "
        "say which with Shard=, and delete the others",
        shards,
    )


def _unknown(sharding: Sharding, what: str) -> ShardUnknownError:
    return ShardUnknownError(
        f"{what} needs to know the shard, which {sharding.strategy!r} of table {sharding.table!r} cannot tell; "
        "give Shard=, make the strategy with locate=True, or use CalculatedSuffix"
    )
