"""Read records of streams, and lines of exports to S3, with logical keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import orjson

from shardkit.dynamodb.body import binary_bytes
from shardkit.dynamodb.decode import refuse_unreadable
from shardkit.dynamodb.units import table_name
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, InvalidValueError, brief
from shardkit.migrate.between import described
from shardkit.sharding.seam import Origin
from shardkit.sharding.shard_map import MAP
from shardkit.strategies import Strategy

__all__ = ["LogicalRecord", "RecordReader", "table_of"]

Event = Literal["INSERT", "MODIFY", "REMOVE"]
_EVENTS: tuple[Event, ...] = get_args(Event)

_ION_TEXT = ("$ion_1_0", b"$ion_1_0")
_ION_BINARY = b"\xe0\x01\x00\xea"


@dataclass(frozen=True, slots=True)
class LogicalRecord:
    """A change of an item, or an exported item, with its logical key. Attribute values are Python values.

    Args:
        event: ``"INSERT"``, ``"MODIFY"`` or ``"REMOVE"``. None if the source does not say: for a line of a full export,
            and for a line of an incremental export that has only a new image (an insert, or, with the view type
            ``NEW_IMAGE``, a change).
        key: The logical primary key.
        shard: The shard that holds the item; None if its key has no suffix of the strategy.
        new_image: The item after the change, or as exported; None if the record does not have it.
        old_image: The item before the change; None if the record does not have it.
        sequence_number: What a Lambda function returns as ``itemIdentifier``; None for a line of an export.
        record: The record as DynamoDB wrote it, with all other fields; of a Kinesis record the decoded data.
        origin: Whose change it is: ``"application"``, or ``"move"`` for what a move between the strategies of a
            ``Resharding`` wrote, or ``"unknown"`` if the record does not show it (see :class:`RecordReader`).
    """

    event: Event | None
    key: dict[str, Any]
    shard: int | None
    new_image: dict[str, Any] | None = None
    old_image: dict[str, Any] | None = None
    sequence_number: str | None = None
    record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    origin: Origin = "application"


class RecordReader:
    """Read the records of a sharded table's stream, or the lines of its exports, with logical keys.

    Example:
        KEY_SCHEMA = [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}]
        READER = RecordReader("Orders", CalculatedSuffix("OrderId", shards=200), key_schema={"KeySchema": KEY_SCHEMA})

        def handler(event, context):
            for record in READER.records(event):
                print(record.event, record.key, record.new_image)

    It sends no request, and needs no client.

    If the items move, give the ``Resharding``, at any stage, and keep it for 24 hours after the move, because records
    are that old. The records that the move itself made have ``origin="move"``: skip them. ``"unknown"`` comes from
    streams and exports without both images, and from export lines that sum up several changes: compare the item with
    what you have. Images have no mark of the move. In a full export, stubs have the origin ``"move"``, and an item with
    the origin ``"unknown"`` may be there twice, with one key and one content.

    Args:
        table: The table's name or ARN.
        strategy: The strategy under which the items are written.
        key_schema: The key schema as for CreateTable: ``{"KeySchema": […], "AttributeDefinitions": […]}``. Without
            ``AttributeDefinitions``, the types of key attributes are not checked.
        indexes: The sharded global secondary indexes, as for ``ShardedTable``; ``key_schema`` then has
            ``GlobalSecondaryIndexes``. Images have no attributes that shardkit keeps for them.

    Raises:
        ConfigurationError: An argument is invalid.

    Cost: none; no request.
    """

    def __init__(
        self,
        table: str,
        strategy: Strategy,
        *,
        key_schema: Mapping[str, Any],
        indexes: Mapping[str, Strategy] | None = None,
    ) -> None:
        if not isinstance(table, str) or not table:
            raise ConfigurationError(f"table: must be the name or ARN of a table, got {brief(table)}")
        if not isinstance(strategy, Strategy):
            raise ConfigurationError(
                f"strategy: must be RandomSuffix(…), CalculatedSuffix(…), RangeSuffix(…), Unsharded() or "
                f"Resharding(…), got {brief(strategy)}"
            )
        # Records of all stages come later than the stage.
        self._sharding = described(table_name(table), strategy, key_schema, sharded=indexes, stage="move")

    def __repr__(self) -> str:
        return f"RecordReader({self._sharding.table!r}, {self._sharding.strategy!r})"

    def records(self, source: Mapping[str, Any] | Iterable[Any]) -> Iterator[LogicalRecord]:
        """Read the records of an event, or the lines of a file, one after another.

        Example:
            with gzip.open("data/6u3zuqiq5mzm3hvxhxnvxmsyzy.json.gz") as lines:
                for record in READER.records(lines):
                    print(record.key)

        Args:
            source: A Lambda event, the response of ``get_records`` (both have ``Records``), or an iterable of records
                or lines. Blank lines are skipped.

        Returns:
            An iterator of the logical records, in the order of the source, without those of a table's shard map.

        Raises:
            As :meth:`read`, when the iterator reaches the record.

        Cost: none. Memory: one record.
        """
        listed = source.get("Records") if isinstance(source, Mapping) else source
        if isinstance(listed, str | bytes | bytearray) or not isinstance(listed, Iterable):
            raise ConfigurationError(
                f"source: must be an event with Records, or an iterable of records or lines, got {brief(source)}"
            )
        records = (self.read(one) for one in listed if not (isinstance(one, str | bytes) and not one.strip()))
        return (one for one in records if one.key[self._sharding.partition_key] not in {MAP, MAP.encode()})

    def read(self, record: Any) -> LogicalRecord:
        """Read one record or line.

        Example:
            record = READER.read(event["Records"][0])
            record.key  # {"Date": "2014-07-09", "OrderId": "A17"}

        Args:
            record: One of

                - a record of DynamoDB Streams: from a Lambda event, or from boto3's ``dynamodbstreams`` client;
                - a record of Kinesis Data Streams for DynamoDB: from a Lambda event, from boto3's ``kinesis`` client,
                  or its data as bytes or text;
                - a line of an export in DynamoDB JSON, full or incremental, as bytes, as text or parsed.

        Returns:
            The logical record. A key that does not end with a suffix of the strategy is returned unchanged, with the
            shard None.

        Raises:
            InvalidValueError: ``record`` is of another kind, damaged, in Amazon Ion, or has a number of more than 38
                digits.
            InvalidKeyError: A key attribute is missing, empty or of the wrong type.
            ConfigurationError: It is of another table, or has other key attributes than ``key_schema``.

        Cost: none; no request.
        """
        change, sequence_number = _unwrapped(record)
        sharding = self._sharding
        table = _named(change)
        if table is not None and table != sharding.table:
            raise ConfigurationError(
                f"record: must be of table {sharding.table!r}, got one of {table!r}; choose the reader with table_of()"
            )
        event: Event | None = None
        new: WireItem | None
        old: WireItem | None = None
        if "Item" in change:
            new = _image(change, "Item")
            key = sharding.key_of(new, kind="exported item")
        else:
            body = change.get("dynamodb", change)
            key = self._key_of(_image(body, "Keys"))
            new, old = (
                None if body.get(name) in (None, {}) else _image(body, name) for name in ("NewImage", "OldImage")
            )
            event = _event(change, new, old)
            sequence_number = sequence_number or body.get("SequenceNumber")
        if not isinstance(sequence_number, str | None):
            raise InvalidValueError(
                f"SequenceNumber: must be a text, got {brief(sequence_number)}; give the record as DynamoDB wrote it"
            )
        origin = self._origin(change, key, event, old, new)
        return LogicalRecord(
            event=event,
            key=sharding.to_caller(key),
            shard=sharding.logical(key[sharding.partition_key])[1],
            new_image=None if new is None else sharding.to_caller(new),
            old_image=None if old is None else sharding.to_caller(old),
            sequence_number=sequence_number,
            record=change,
            origin=origin,
        )

    def _origin(
        self, change: Mapping[str, Any], key: WireItem, event: Event | None, old: WireItem | None, new: WireItem | None
    ) -> Origin:
        if "Item" in change and new is not None:
            return self._sharding.exported_origin(new)
        origin = self._sharding.origin_of(key, event, old, new, net="dynamodb" not in change)
        # The service deletes an expired item wherever it is, also one that is being moved.
        return "unknown" if origin == "move" and "userIdentity" in change else origin

    def _key_of(self, keys: WireItem) -> WireItem:
        sharding = self._sharding
        if keys.keys() != set(sharding.key_names):
            raise ConfigurationError(
                f"key_schema: must be that of the record's table, got the key attributes {list(sharding.key_names)}, "
                f"but the record has {sorted(keys)}; give the key schema of its table, or choose another reader"
            )
        return sharding.key_of(keys, kind="record")


def table_of(record: Any) -> str | None:
    """Return the name of the table that a record is of, to choose a reader if a stream has records of several tables.

    Example:
        for record in event["Records"]:
            print(READERS[table_of(record)].read(record))

    Args:
        record: As for :meth:`RecordReader.read`.

    Returns:
        The table's name. None if the record does not say: records of boto3's ``dynamodbstreams`` client and lines of
        exports.

    Raises:
        InvalidValueError: As for :meth:`RecordReader.read`.

    Cost: none; no request.
    """
    return _named(_unwrapped(record)[0])


def _named(change: Mapping[str, Any]) -> str | None:
    name = change.get("tableName")
    arn = change.get("eventSourceARN")
    return name if isinstance(name, str) else table_name(arn) if isinstance(arn, str) else None


def _unwrapped(record: Any) -> tuple[Mapping[str, Any], str | None]:
    """Return a record as DynamoDB wrote it, and its number in a Kinesis stream."""
    number = None
    content = record
    if isinstance(record, Mapping):
        if isinstance(record.get("kinesis"), Mapping):
            content, number = record["kinesis"].get("data"), record["kinesis"].get("sequenceNumber")
            content = binary_bytes(content)
        elif "Data" in record:
            content, number = record["Data"], record.get("SequenceNumber")
    if isinstance(content, str | bytes):
        content = _parsed(content)
    if not isinstance(content, Mapping) or not any(
        isinstance(content.get(name), Mapping) for name in ("dynamodb", "Keys", "Item")
    ):
        raise InvalidValueError(
            f"record: must be a record of DynamoDB Streams or of Kinesis Data Streams for DynamoDB, or a line of an "
            f"export in DynamoDB JSON, got {brief(content)}; give one record of a table"
        )
    return content, number


def _parsed(line: str | bytes) -> Any:
    start = line.lstrip()[:8]
    if start in _ION_TEXT or start[:4] == _ION_BINARY:
        raise InvalidValueError(
            f"record: must be JSON, got Amazon Ion ({brief(line)}), which shardkit cannot read; export the table with "
            "ExportFormat='DYNAMODB_JSON'"
        )
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidValueError(f"record: must be JSON, got {brief(line)} ({error}); give a whole record") from error


def _image(body: Any, name: str) -> WireItem:
    image = body.get(name) if isinstance(body, Mapping) else None
    if not isinstance(image, Mapping) or not image:
        raise InvalidValueError(
            f"{name}: must be a mapping of attributes to wire values, got {brief(image)}; give the record as DynamoDB "
            "wrote it"
        )
    try:
        refuse_unreadable(image)
    except ArithmeticError as error:
        raise InvalidValueError(
            f"record: must have numbers of at most 38 digits, as with boto3, got more in {name} ({brief(image)}); "
            "read this record without shardkit"
        ) from error
    return dict(image)


def _event(change: Mapping[str, Any], new: WireItem | None, old: WireItem | None) -> Event | None:
    if "dynamodb" not in change:  # a line of an incremental export
        return "REMOVE" if new is None else None if old is None else "MODIFY"
    for event in _EVENTS:
        if change.get("eventName") == event:
            return event
    raise InvalidValueError(
        f"eventName: must be INSERT, MODIFY or REMOVE, got {brief(change.get('eventName'))}; give the record as "
        "DynamoDB wrote it"
    )
