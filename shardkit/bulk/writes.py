"""The writes of a load: checked, with their shard, kept as the bytes that are sent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import orjson

from shardkit.core.hashing import key_draw
from shardkit.core.machine import Send
from shardkit.dynamodb.body import binary_bytes, encode
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.limits import check_limits
from shardkit.dynamodb.sizes import ITEM_BYTES, item_size
from shardkit.dynamodb.templates import Templates
from shardkit.dynamodb.units import WRITE_UNIT_BYTES, write_units
from shardkit.dynamodb.values import WireItem, WireValue, comparable
from shardkit.errors import InvalidKeyError, InvalidValueError, ShardUnknownError, brief
from shardkit.sharding.items import primary_key
from shardkit.sharding.layout import Sharding
from shardkit.sharding.spread import plain
from shardkit.strategies import Unsharded

Identity = tuple[Hashable, ...]

Drawn = Callable[[Any, WireItem], float]
"""Returns the draw, from [0, 1), for the random suffix of an item, by its place and its logical primary key."""


def drawn_by_key(load: str) -> Drawn:
    """Return draws that stay the same wherever and however often the load with this id writes an item."""
    return lambda _, key: key_draw(load, tuple(map(plain, key.values())))


class DeadLetter(dict[str, Any]):
    """An item that failed in another load; a random suffix uses the shard that was drawn for it then.

    That write may have happened although no answer came, so it must not be repeated in another shard.
    """

    def __init__(self, item: Mapping[str, Any], shard: int) -> None:
        super().__init__(item)
        self.shard = shard


@dataclass(slots=True, eq=False)
class Write:
    """A put or a delete, with its part of a BatchWriteItem as JSON; ``sent``: whether it is in flight.

    ``identity`` is its primary key as stored, the partition key first. Of two writes with the same ``same``, one may
    replace the other.
    """

    body: bytes
    place: Any
    shard: int | None
    identity: Identity
    same: Identity
    units: int
    sent: bool = False
    superseded: bool = False

    def alone(self, table: str) -> Send:
        """Return the request that writes it by itself: a throttle of that request has its reason."""
        ((request, content),) = orjson.loads(self.body).items()
        operation = "PutItem" if request == "PutRequest" else "DeleteItem"
        return Send(operation, {"TableName": table, **content, "ReturnConsumedCapacity": "INDEXES"}, paced=True)

    def exchange(self, other: Write) -> None:
        self.body, other.body = other.body, self.body
        self.place, other.place = other.place, self.place
        self.shard, other.shard = other.shard, self.shard
        self.units, other.units = other.units, self.units


class Writes:
    """Makes writes of items and keys; ``spread`` and ``replace_by`` are as of ``Load``."""

    def __init__(self, sharding: Sharding, spread: Drawn, replace_by: tuple[str, ...] | None = None) -> None:
        self._sharding = sharding
        self._keys = (sharding.keys, *sharding.indexes.values())
        self._spread = spread
        self._replace_by = replace_by
        self._names = sharding.keys.names
        self._index_keys = sharding.types.keys() - set(self._names)
        self._partition_key = sharding.partition_key
        self._sort_key = sharding.keys.sort[0] if sharding.keys.sort else None
        self._unsharded = isinstance(sharding.strategy, Unsharded)
        self._templates = _templates(sharding, replace_by)

    def put(self, item: Mapping[str, Any], place: Any) -> Write:
        if type(item) is dict and self._templates is not None:
            write = self._from_template(self._templates, item, place)
            if write is not None:
                return write
        wire, key, shard, same = self._stored(item, place)
        body = _packed(encode({"PutRequest": {"Item": wire}}))
        _check_sets(body, wire)
        identity = _compared(key.values())
        return Write(body, place, shard, identity, same or identity, _units(body, wire))

    def _from_template(self, templates: Templates, item: dict[str, Any], place: Any) -> Write | None:
        """Make the put from a template, past wire values; None if the item must be converted to them."""
        template = templates.of(item)
        if template is None:
            return None
        logical = item[self._partition_key]
        sort = () if self._sort_key is None else (item[self._sort_key],)
        if not logical or "" in sort:
            return None
        try:
            shard = self._sharding.strategy.shard_of(logical, item)
            if shard is None and not self._unsharded:
                shard = self._drawn(to_wire_item({name: item[name] for name in self._names}), item, place)
        except Exception:  # noqa: BLE001 - the other way raises it, unless the item has an error that comes first
            return None
        stored = self._sharding.stored_key(logical, shard)
        body = template.put(item, stored)
        if body is None:
            return None
        identity = (stored, *sort)
        units = 1 if len(body) <= WRITE_UNIT_BYTES else _units(body, {**item, self._partition_key: stored})
        return Write(body, place, shard, identity, identity, units)

    def line(self, item: Mapping[str, Any]) -> tuple[WireItem, bytes, int]:
        """Return an item's stored primary key, its line of DynamoDB JSON, and its write units.

        No request is sent, so what DynamoDB would refuse in one is refused here.
        """
        wire, key, _, _ = self._stored(item, None)
        line = encode({"Item": wire}) + b"\n"
        _check_sets(line, wire)
        if self._index_keys:
            for name in self._index_keys & wire.keys():
                self._sharding.checked(name, wire[name], "item")
        check_limits(wire, line, self._keys)
        return key, line, _units(line, wire)

    def _stored(self, item: Mapping[str, Any], place: Any) -> tuple[WireItem, WireItem, int | None, Identity | None]:
        """Return an item and its primary key as stored, its shard, and what identifies its duplicates."""
        wire = to_wire_item(item)
        key = self._sharding.key_of(wire)
        shard = self._shard(key, item, wire, place)
        if self._sharding.sharded:
            wire = self._sharding.sharded.stored(wire, item, partial(self._spread, place, key))
        same = None if self._replace_by is None else _compared(wire.get(name) for name in self._replace_by)
        wire[self._partition_key] = key[self._partition_key] = self._sharding.physical(key[self._partition_key], shard)
        return wire, key, shard, same

    def delete(self, key: Mapping[str, Any], place: Any) -> Write:
        wire = to_wire_item(key)
        stored = primary_key(self._sharding, wire, self._replace_by or ())
        shard = self._shard(stored, key, None, place)
        same = None if self._replace_by is None else _compared(wire.get(name) for name in self._replace_by)
        stored[self._partition_key] = self._sharding.physical(stored[self._partition_key], shard)
        identity = _compared(stored.values())
        return Write(_packed(encode({"DeleteRequest": {"Key": stored}})), place, shard, identity, same or identity, 1)

    def parted(self, writes: list[Write], answer: Mapping[str, Any]) -> tuple[list[Write], list[Write]]:
        """Split a batch by its response into the writes that were done and those that were not."""
        # Keyed by the table's name or its ARN; only one table was written.
        named = {
            identity
            for requests in answer.get("UnprocessedItems", {}).values()
            for identity in self._identities(requests)
        }
        if not named:
            return writes, []
        done: list[Write] = []
        left: list[Write] = []
        for write in writes:
            (left if write.identity in named else done).append(write)
        if len(left) < len(named):
            return [], writes  # it names unknown writes: send all again, as puts and deletes can be repeated
        return done, left

    def _identities(self, requests: list[Any]) -> list[Identity]:
        if isinstance(requests, EncodedRequests) and requests.writes is not None:
            return [write.identity for write in requests.writes]
        return [
            _compared([part.get(name) for name in self._names])
            for request in requests
            for body in request.values()
            for part in body.values()
        ]

    def _shard(self, key: WireItem, source: Mapping[str, Any], item: WireItem | None, place: Any) -> int | None:
        sharding = self._sharding
        logical = key[self._partition_key]
        shard = sharding.shard_of(logical, source)
        if shard is not None or self._unsharded:
            return shard
        if item is None:
            raise ShardUnknownError(
                f"the shard of {brief(dict(source), 200)} cannot be known from its key with {sharding.strategy!r}; "
                "use delete_item() with Shard= or locate=True"
            )
        return self._drawn(key, source, place)

    def _drawn(self, key: WireItem, source: Mapping[str, Any], place: Any) -> int | None:
        sharding, logical = self._sharding, key[self._partition_key]
        before = source.shard if isinstance(source, DeadLetter) else None
        if before is not None and before in sharding.shards(logical):
            return before
        return sharding.drawn(logical, self._spread(place, key))


def _templates(sharding: Sharding, replace_by: tuple[str, ...] | None) -> Templates | None:
    """Return the templates of a table's puts; None if puts need more of their items than the primary key."""
    types = [sharding.types.get(name, "S") for name in sharding.keys.names]
    if replace_by is not None or sharding.sharded or sharding.has_map or types[0] != "S" or "B" in types:
        return None
    kinds = {"S": (str,), "N": (int, Decimal)}
    return Templates({name: kinds[letter] for name, letter in zip(sharding.keys.names, types, strict=True)})


Outline = dict[tuple[str, str | bytes], tuple[int, int]]


def outline(writes: list[Write]) -> Outline:
    """Return the units and the number of writes for each partition key (as stored, wire values), for a meter."""
    sums: dict[Hashable, tuple[int, int]] = {}
    for write in writes:
        units, count = sums.get(write.identity[0], (0, 0))
        sums[write.identity[0]] = units + write.units, count + 1
    return {_wire_key(key): known for key, known in sums.items()}


def _wire_key(key: Hashable) -> tuple[str, str | bytes]:
    if isinstance(key, str):
        return "S", key
    return ("B", key) if isinstance(key, bytes) else ("N", str(key))


class EncodedRequests(list[Any]):
    """A batch's requests: orjson sees their bytes, everyone else the dicts that the bytes encode.

    ``writes`` are the writes that they encode. ``outline`` tells a meter about them without decoding the bytes.
    """

    def __init__(self, bodies: list[bytes], writes: list[Write] | None = None) -> None:
        super().__init__(map(orjson.Fragment, bodies))
        self._bodies = bodies
        self.writes = writes

    def at(self, places: Iterable[int]) -> EncodedRequests:
        """Return some of the requests, as a service returns those that it did not process."""
        places = list(places)
        writes = None if self.writes is None else [self.writes[place] for place in places]
        return EncodedRequests([self._bodies[place] for place in places], writes)

    @property
    def outline(self) -> Callable[[], Outline] | None:
        """Returns the outline of ``writes``; None if these are unknown, because the batch came from another process."""
        return None if self.writes is None else partial(outline, self.writes)

    def __iter__(self) -> Iterator[Any]:
        return map(orjson.loads, self._bodies)

    def __getitem__(self, at: Any) -> Any:
        bodies = self._bodies[at]
        return orjson.loads(bodies) if isinstance(bodies, bytes) else list(map(orjson.loads, bodies))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._bodies,)

    def __eq__(self, other: object) -> bool:
        return list(self) == other

    __hash__ = None  # as for every list

    def __repr__(self) -> str:
        return repr(list(self))


def _packed(body: bytes) -> bytes:
    """Copy the bytes, because orjson's result keeps its larger write buffer in memory."""
    return bytes(memoryview(body))


def _units(body: bytes, item: Mapping[str, Any]) -> int:
    """Return the write units of an item; an item is never larger than its JSON, so short JSON means one unit."""
    if len(body) <= WRITE_UNIT_BYTES:
        return 1
    size = item_size(item)
    if size > ITEM_BYTES:
        raise InvalidKeyError(f"the item has {size:,} bytes, DynamoDB allows {ITEM_BYTES:,} (400 KB); make it smaller")
    return int(write_units(size))


def _compared(values: Iterable[WireValue | None]) -> Identity:
    return tuple([value["S"] if value is not None and "S" in value else _comparable(value) for value in values])


def _comparable(value: WireValue | None) -> Hashable:
    if value is None:
        return None
    ((letter, content),) = value.items()
    if letter == "N":
        return Decimal(content)  # 1 and 1.0 are one key
    return binary_bytes(content) if letter == "B" else comparable(value)


def _check_sets(body: bytes, wire: WireItem) -> None:
    # A single byte is far faster to find, and rare.
    if b"[" in body and b"[]" in body:
        for name, value in wire.items():
            _refuse_empty_sets(name, value)


def _refuse_empty_sets(name: str, value: WireValue) -> None:
    """Refuse empty sets, which boto3 accepts and the service does not: the whole batch would fail."""
    ((letter, content),) = value.items()
    if letter in {"SS", "NS", "BS"} and not content:
        raise InvalidValueError(f"attribute {name!r} has an empty set, which DynamoDB does not accept; leave it out")
    if letter == "L":
        for member in content:
            _refuse_empty_sets(name, member)
    elif letter == "M":
        for member in content.values():
            _refuse_empty_sets(name, member)
