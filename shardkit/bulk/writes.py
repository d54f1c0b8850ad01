"""One write of a load: checked, given its shard, and kept as the bytes that will be sent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import orjson

from shardkit.core.machine import Send
from shardkit.dynamodb.body import binary, encode
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.sizes import ITEM_BYTES, item_size
from shardkit.dynamodb.units import WRITE_UNIT_BYTES, write_units
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import InvalidKeyError, InvalidValueError, ShardUnknownError
from shardkit.sharding.items import drawn_shard
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Unsharded

__all__ = ["ITEM_BYTES", "DeadLetter", "EncodedRequests", "Identity", "Write", "Writes", "outline"]

Identity = tuple[Hashable, ...]


class DeadLetter(dict[str, Any]):
    """An item that failed in another load; where a shard is drawn, it is the one that was drawn for it then.

    Its write may have been carried out although no answer came, and must not be carried out in another shard.
    """

    def __init__(self, item: Mapping[str, Any], shard: int) -> None:
        super().__init__(item)
        self.shard = shard


@dataclass(slots=True, eq=False)
class Write:
    """A put or a delete.

    ``body`` is its part of a BatchWriteItem as JSON, ``identity`` its primary key as it is stored, the partition key
    first; of two with the same ``same``, one may replace the other. ``sent``: it is on its way. ``superseded``: it was
    left out for another one.
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
        """Give the request that writes it by itself: a throttle of that says its reason."""
        ((request, content),) = orjson.loads(self.body).items()
        operation = "PutItem" if request == "PutRequest" else "DeleteItem"
        return Send(operation, {"TableName": table, **content, "ReturnConsumedCapacity": "INDEXES"}, paced=True)

    def exchange(self, other: Write) -> None:
        """Give what is written to another write of the same key, and take what it writes."""
        self.body, other.body = other.body, self.body
        self.place, other.place = other.place, self.place
        self.shard, other.shard = other.shard, self.shard
        self.units, other.units = other.units, self.units


class Writes:
    """Makes writes of what the caller gives.

    Args:
        sharding: The table's.
        spread: Gives, for a place, the draw from [0, 1) that a random suffix is chosen by.
        replace_by: The attributes that say that two writes are of the same thing; None: the primary key as stored.
    """

    def __init__(
        self, sharding: Sharding, spread: Callable[[Any], float], replace_by: tuple[str, ...] | None = None
    ) -> None:
        self._sharding = sharding
        self._spread = spread
        self._replace_by = replace_by
        self._names = sharding.keys.names
        self._partition_key = sharding.partition_key
        self._unsharded = isinstance(sharding.strategy, Unsharded)

    def put(self, item: Mapping[str, Any], place: Any) -> Write:
        """Make a put; what is wrong with the item is raised."""
        wire = to_wire_item(item)
        key = self._sharding.key_of(wire)
        shard = self._shard(key, item, wire, place)
        same = None if self._replace_by is None else _compared(wire.get(name) for name in self._replace_by)
        wire[self._partition_key] = key[self._partition_key] = self._physical(key, shard)
        body = _packed(encode({"PutRequest": {"Item": wire}}))
        # The first is far faster to find, and rare.
        if b"[" in body and b"[]" in body:
            for name, value in wire.items():
                _refuse_empty_sets(name, value)
        identity = _compared(key.values())
        return Write(body, place, shard, identity, same or identity, _units(body, wire))

    def delete(self, key: Mapping[str, Any], place: Any) -> Write:
        """Make a delete."""
        wire = to_wire_item(key)
        stored = self._sharding.key_of(wire, kind="key")
        shard = self._shard(stored, key, None, place)
        same = None if self._replace_by is None else _compared(wire.get(name) for name in self._replace_by)
        stored[self._partition_key] = self._physical(stored, shard)
        identity = _compared(stored.values())
        return Write(_packed(encode({"DeleteRequest": {"Key": stored}})), place, shard, identity, same or identity, 1)

    def parted(self, writes: list[Write], answer: Mapping[str, Any]) -> tuple[list[Write], list[Write]]:
        """Part a batch into what its answer says was carried out, and what it says was not."""
        # Keyed by the table's name or its ARN: one table was written, so all that is there is its.
        named = {
            _compared([part.get(name) for name in self._names])
            for requests in answer.get("UnprocessedItems", {}).values()
            for request in requests
            for body in request.values()
            for part in body.values()
        }
        if not named:
            return writes, []
        done: list[Write] = []
        left: list[Write] = []
        for write in writes:
            (left if write.identity in named else done).append(write)
        if len(left) < len(named):
            return [], writes  # it names what was not sent: all is sent again, which harms no put and no delete
        return done, left

    def _shard(self, key: WireItem, source: Mapping[str, Any], item: WireItem | None, place: Any) -> int | None:
        sharding = self._sharding
        logical = key[self._partition_key]
        shard = sharding.shard_of(logical, source)
        if shard is not None or self._unsharded:
            return shard
        if item is None:
            raise ShardUnknownError(
                f"the shard of {dict(source)!r:.200} cannot be known from its key with {sharding.strategy!r}; "
                "use delete_item() with Shard= or locate=True"
            )
        before = source.shard if isinstance(source, DeadLetter) else None
        if before is not None and before in sharding.shards(logical):
            return before
        return drawn_shard(sharding, item, self._spread(place))

    def _physical(self, key: WireItem, shard: int | None) -> WireValue:
        return self._sharding.physical(key[self._partition_key], shard)


Outline = dict[tuple[str, str | bytes], tuple[int, int]]


def outline(writes: list[Write]) -> Outline:
    """Give what a meter asks of writes: for each partition key as it is stored, in wire form, the units and writes."""
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
    """A batch's requests: to orjson the bytes that they are, to everybody else the dicts that these stand for.

    ``writes`` are what they are of, and ``outline`` gives what a meter asks of them without reading the bytes.
    """

    def __init__(self, bodies: list[bytes], writes: list[Write] | None = None) -> None:
        super().__init__(map(orjson.Fragment, bodies))
        self._bodies = bodies
        self.writes = writes

    @property
    def outline(self) -> Callable[[], Outline] | None:
        """What is known of them for a meter; None where nothing is, because they came from another process."""
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

    __hash__ = None  # as that of every list

    def __repr__(self) -> str:
        return repr(list(self))


def _packed(body: bytes) -> bytes:
    """Give bytes that take no more memory than they are long: what orjson gives keeps the room that it wrote in."""
    return bytes(memoryview(body))


def _units(body: bytes, item: WireItem) -> int:
    """Count the write units of an item; it is never larger than its JSON, so small ones need not be looked through."""
    if len(body) <= WRITE_UNIT_BYTES:
        return 1
    size = item_size(item)
    if size > ITEM_BYTES:
        raise InvalidKeyError(f"the item is of {size:,} bytes, DynamoDB takes {ITEM_BYTES:,} (400 KB); make it smaller")
    return int(write_units(size))


def _compared(values: Iterable[WireValue | None]) -> Identity:
    """Give wire values as something that can be compared."""
    return tuple([value["S"] if value is not None and "S" in value else _comparable(value) for value in values])


def _comparable(value: WireValue | None) -> Hashable:
    if value is None:
        return None
    ((letter, content),) = value.items()
    if letter == "N":
        return Decimal(content)  # 1 and 1.0 are one key
    return binary(content) if letter == "B" else repr(value)


def _refuse_empty_sets(name: str, value: WireValue) -> None:
    """Refuse what boto3 lets pass and the service does not: it would take other items' batches down with it."""
    ((letter, content),) = value.items()
    if letter in {"SS", "NS", "BS"} and not content:
        raise InvalidValueError(f"attribute {name!r} has an empty set, which DynamoDB refuses; leave it out")
    if letter == "L":
        for member in content:
            _refuse_empty_sets(name, member)
    elif letter == "M":
        for member in content.values():
            _refuse_empty_sets(name, member)
