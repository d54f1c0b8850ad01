"""shardkit.streams: recorded events and export lines, round trips, and what cannot be read."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.types import Binary, TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, Resharding, Unsharded
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError, InvalidKeyError, InvalidValueError
from shardkit.streams import LogicalRecord, RecordReader, table_of
from tests.support.damage import damaged
from tests.support.strategies import STRATEGIES, VECTORS

RECORDED: dict[str, Any] = json.loads((VECTORS / "stream_events.json").read_text(encoding="utf-8"))
DYNAMODB, KINESIS = RECORDED["Lambda, DynamoDB Streams"], RECORDED["Lambda, Kinesis"]
SCHEMA: dict[str, Any] = {
    "KeySchema": [
        {"AttributeName": "Date", "KeyType": "HASH"},
        {"AttributeName": "OrderId", "KeyType": "RANGE"},
    ]
}
ORDERS_BY = CalculatedSuffix("OrderId", shards=10)
ORDERS = RecordReader("Orders", ORDERS_BY, key_schema=SCHEMA)

A17, A18 = ({"Date": "2014-07-09", "OrderId": order} for order in ("A17", "A18"))
EXPIRED = {"Date": "2014-07-08", "OrderId": "A16", "Expires": Decimal(1_404_899_999)}
CHANGED = {
    **A18,
    "Total": Decimal("12.50"),
    "Label": Binary(b"\x00\xff"),
    "Tags": {"gift"},
    "Lines": [{"Id": 1}],
    "Note": None,
}


def seen(records: list[LogicalRecord]) -> list[tuple[Any, ...]]:
    return [(one.event, one.key, one.shard, one.new_image, one.old_image) for one in records]


CHANGES = [
    ("INSERT", A17, 4, {**A17, "Total": 12}, None),
    ("MODIFY", A18, 8, CHANGED, {**A18, "Total": 3}),
    ("REMOVE", {"Date": "2014-07-08", "OrderId": "A16"}, None, None, EXPIRED),  # put before the table was sharded
]


@pytest.mark.parametrize("event", [DYNAMODB, KINESIS], ids=["streams", "kinesis"])
def test_a_lambda_event(event: dict[str, Any]) -> None:
    records = list(ORDERS.records(event))
    assert seen(records) == CHANGES
    numbers = [raw["kinesis"]["sequenceNumber"] if "kinesis" in raw else raw["dynamodb"]["SequenceNumber"]
               for raw in event["Records"]]  # fmt: skip
    assert [record.sequence_number for record in records] == numbers
    assert records[2].record["userIdentity"]["principalId"] == "dynamodb.amazonaws.com"  # expired by TTL
    assert [table_of(raw) for raw in event["Records"]] == ["Orders"] * 3


def test_records_of_boto3_clients() -> None:
    """Of get_records(): binary as bytes, no ARN; of Kinesis the data as bytes, or alone, as a consumer gets it."""
    streams = [{name: raw[name] for name in ("eventName", "dynamodb")} for raw in DYNAMODB["Records"]]
    body = dict(streams[1]["dynamodb"], NewImage={**streams[1]["dynamodb"]["NewImage"], "Label": {"B": b"\x00\xff"}})
    assert (
        seen(list(ORDERS.records({"Records": [streams[0], {**streams[1], "dynamodb": body}, streams[2]]}))) == CHANGES
    )
    assert table_of(streams[0]) is None
    data = [base64.b64decode(raw["kinesis"]["data"]) for raw in KINESIS["Records"]]
    answers = [{"Data": one, "SequenceNumber": str(at), "PartitionKey": "x"} for at, one in enumerate(data)]
    records = list(ORDERS.records({"Records": answers}))
    assert (seen(records), [record.sequence_number for record in records]) == (CHANGES, ["0", "1", "2"])
    assert seen(list(ORDERS.records(data))) == seen(list(ORDERS.records(map(bytes.decode, data)))) == CHANGES


def test_binary_at_every_depth() -> None:
    """It is base64 text in Lambda and in exports, bytes in boto3; text keeps its NUL."""
    item = {**A17, "Deep": {"L": [b"\x00\xff", {"S": {b"\x00", b"\xff"}}]}, "Text": "a\x00b"}
    stored = {**item, "Date": "2014-07-09.4"}
    as_text, as_bytes = (
        to_wire_item(stored),
        {name: TypeSerializer().serialize(value) for name, value in stored.items()},
    )
    for line in ({"Item": as_bytes}, {"Item": as_text}, json.dumps({"Item": as_text})):
        record = ORDERS.read(line)
        assert record.new_image == {
            **A17, "Deep": {"L": [Binary(b"\x00\xff"), {"S": {Binary(b"\x00"), Binary(b"\xff")}}]}, "Text": "a\x00b"
        }  # fmt: skip


def test_keys_only() -> None:
    raw = json.loads(json.dumps(DYNAMODB["Records"][1]))
    del raw["dynamodb"]["NewImage"], raw["dynamodb"]["OldImage"]
    assert seen([ORDERS.read(raw)]) == [("MODIFY", A18, 8, None, None)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("full", [(None, key, shard, new or old, None) for _, key, shard, new, old in CHANGES]),
        ("incremental", [(None, *CHANGES[0][1:]), *CHANGES[1:]]),
        (
            "incremental, NEW_IMAGE",
            [(None, *CHANGES[0][1:]), (None, *CHANGES[1][1:4], None), (*CHANGES[2][:3], None, None)],
        ),
    ],
)
def test_the_lines_of_an_export(name: str, expected: list[Any], tmp_path: Path) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in RECORDED[f"export, {name}"]) + "\n"
    path = tmp_path / "data.json.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    with gzip.open(path) as binary, gzip.open(path, "rt") as text:
        for read in (binary, text, RECORDED[f"export, {name}"]):
            records = list(ORDERS.records(read))
            assert seen(records) == expected
            assert {record.sequence_number for record in records} == {None}


def test_the_caller_s_event_is_not_changed() -> None:
    before = json.dumps(DYNAMODB)
    list(ORDERS.records(DYNAMODB))
    assert json.dumps(DYNAMODB) == before


NUMBER = [{"AttributeName": "Date", "AttributeType": "N"}]
KEYS = st.text(min_size=1, max_size=8).filter(lambda key: key.isprintable()) | st.sampled_from(["a.5", "k.1.1", "2#7"])


@given(strategy=st.sampled_from(STRATEGIES), key=KEYS, order=KEYS, draw=st.floats(0, 1, exclude_max=True))
def test_what_is_stored_is_read_back(strategy: Any, key: str, order: str, draw: float) -> None:
    """Promise 1 through a record, a Kinesis record and an export line."""
    shards = strategy.shards_for(key)
    shard = shards[int(draw * len(shards))]
    stored = to_wire_item({"Date": strategy.physical_key(key, shard), "OrderId": order, "Total": 1})
    keys = {name: stored[name] for name in ("OrderId", "Date")}
    change = {"eventName": "INSERT", "dynamodb": {"Keys": keys, "NewImage": stored}}
    data = base64.b64encode(json.dumps(change).encode()).decode()
    reader = RecordReader("Orders", strategy, key_schema=SCHEMA)
    for raw in (change, {"kinesis": {"data": data}}, json.dumps({"Item": stored})):
        record = reader.read(raw)
        assert (record.key, record.shard) == ({"Date": key, "OrderId": order}, shard)
        assert record.new_image == {**record.key, "Total": 1}


@pytest.mark.parametrize(
    "stored", ["2014-07-09", "2014-07-09.", "2014-07-09.x", "2014-07-09.04", "2014-07-09.11", ".4"]
)
def test_a_key_without_a_valid_suffix_is_passed_through(stored: str) -> None:
    record = ORDERS.read({"Item": to_wire_item({"Date": stored, "OrderId": "A17"})})
    assert (record.key["Date"], record.shard) == (stored, None)


def test_binary_and_number_keys() -> None:
    schema = {"KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}]}
    record = RecordReader("T", RandomSuffix(9), key_schema=schema).read({"Item": {"Id": {"B": "AC43"}}})
    assert (record.key, record.shard) == ({"Id": Binary(b"\x00")}, 7)
    record = RecordReader("T", Unsharded(), key_schema=schema).read({"Item": {"Id": {"N": "101"}}})
    assert (record.key, record.shard) == ({"Id": 101}, None)


def changed(**members: Any) -> dict[str, Any]:
    return {**DYNAMODB["Records"][0], **members}


def kinesis(data: Any) -> dict[str, Any]:
    return {"kinesis": {"data": data, "sequenceNumber": "1"}}


@pytest.mark.parametrize(
    ("raw", "error", "says"),
    [
        (changed(eventSourceARN="arn:aws:dynamodb:eu-west-1:1:table/Customers/stream/x"), ConfigurationError,
         "record: must be of table 'Orders', got one of 'Customers'; choose the reader with table_of()"),
        ({"tableName": "Customers", "Keys": {"Id": {"S": "c8"}}}, ConfigurationError, "of table 'Orders'"),
        ({"Keys": {"Id": {"S": "c8"}}}, ConfigurationError, "key_schema: must be that of the record's table"),
        ({"Keys": {"Date": {"S": "d"}, "OrderId": {"S": "o"}, "X": {"S": "x"}}}, ConfigurationError, "key_schema"),
        ({"Item": {"Date": {"S": "d"}}}, InvalidKeyError, "OrderId: missing in the exported item"),
        ({"Keys": {"Date": {"S": ""}, "OrderId": {"S": "o"}}}, InvalidKeyError, "Date: empty"),
        (changed(eventName="RENAME"), InvalidValueError, "eventName: must be INSERT, MODIFY or REMOVE, got 'RENAME'"),
        (changed(eventName=["INSERT"]), InvalidValueError, "INSERT, MODIFY or REMOVE, got ['INSERT']"),
        ({"Item": {**to_wire_item(A17), "Total": {"N": "1" * 39}}}, InvalidValueError, "at most 38 digits"),
        ('{"Item": {"Date": {"S": "\ud800"}}}', InvalidValueError, "surrogates not allowed"),
        (changed(dynamodb={}), InvalidValueError, "Keys: must be a mapping of attributes to wire values, got None"),
        ({"Item": {"Date": {"S": "d"}, "OrderId": {"S": "o"}, "x": {"Q": 1}}}, InvalidValueError, "'x'"),
        ({"Records": []}, InvalidValueError, "record: must be a record of DynamoDB Streams"),
        ({"body": "SQS"}, InvalidValueError, "record: must be a record of DynamoDB Streams"),
        ([], InvalidValueError, "record: must be a record of DynamoDB Streams"),
        (b'{"Item":', InvalidValueError, "record: must be JSON"),
        (b"\xe0\x01\x00\xea\xee", InvalidValueError, "Amazon Ion"),
        (' $ion_1_0 {Item:{Date:"2014-07-09.4"}}', InvalidValueError, "ExportFormat='DYNAMODB_JSON'"),
        (kinesis("SGVsbG8="), InvalidValueError, "record: must be JSON, got b'Hello'"),
        (kinesis("%"), InvalidValueError, "base64"),
        (kinesis(None), InvalidValueError, "base64"),
        (kinesis("e30="), InvalidValueError, "record: must be a record of DynamoDB Streams"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(raw: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        ORDERS.read(raw)
    assert says in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301 - our own


DAMAGED = [
    DYNAMODB["Records"][1],
    *RECORDED["export, full"][:2],
    *RECORDED["export, incremental"],
    *(json.loads(base64.b64decode(raw["kinesis"]["data"])) for raw in KINESIS["Records"][:2]),
]
INDEXED = {
    **SCHEMA,
    "GlobalSecondaryIndexes": [{"IndexName": "I", "KeySchema": [{"AttributeName": "Total", "KeyType": "HASH"}]}],
}
READERS = [
    ORDERS,
    RecordReader("Orders", RangeSuffix("OrderId", ["A18"]), key_schema=SCHEMA),
    RecordReader("Orders", Unsharded(), key_schema=INDEXED, indexes={"I": RandomSuffix(3, source="Label")}),
    RecordReader("Orders", Resharding(Unsharded(), ORDERS_BY, stage="move"), key_schema=SCHEMA),
]


def refused_or_sound(read: Callable[[], LogicalRecord]) -> None:
    try:
        record = read()
    except (InvalidValueError, InvalidKeyError, ConfigurationError):
        return
    assert isinstance(record.sequence_number, str | None)
    for item in (record.key, record.new_image or {}, record.old_image or {}):
        to_wire_item(item)  # refuses NaN, and what is no value of DynamoDB


@given(st.sampled_from(READERS), st.sampled_from(DAMAGED).flatmap(damaged))
def test_a_damaged_record_is_refused_or_read(reader: RecordReader, record: Any) -> None:
    refused_or_sound(lambda: reader.read(record))


@given(damaged({**KINESIS["Records"][0], "eventSourceARN": None}))
def test_a_damaged_record_around_one_is_refused_or_read(record: Any) -> None:
    refused_or_sound(lambda: ORDERS.read(record))


@pytest.mark.parametrize("source", ["Records", b"{}", bytearray(b"{}"), {}, {"Records": "x"}, {"Records": 5}, None, 5])
def test_what_holds_no_records(source: Any) -> None:
    with pytest.raises(ConfigurationError, match="source: must be an event with Records"):
        ORDERS.records(source)


@pytest.mark.parametrize(
    ("table", "strategy", "schema", "says"),
    [
        ("", RandomSuffix(2), SCHEMA, "table: must be the name or ARN"),
        ("Orders", 10, SCHEMA, "strategy: must be RandomSuffix"),
        ("Orders", RandomSuffix(2), {}, "key_schema: "),
        ("Orders", RandomSuffix(2), {**SCHEMA, "AttributeDefinitions": NUMBER}, "is a number"),
    ],
)  # fmt: skip
def test_a_reader_that_cannot_work(table: Any, strategy: Any, schema: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        RecordReader(table, strategy, key_schema=schema)


def test_a_reader_takes_an_arn_and_is_shown() -> None:
    reader = RecordReader("arn:aws:dynamodb:us-west-2:123456789012:table/Orders", RandomSuffix(2), key_schema=SCHEMA)
    assert repr(reader) == "RecordReader('Orders', RandomSuffix(shards=2))"
    assert reader.read(DYNAMODB["Records"][2]).event == "REMOVE"


MOVING = Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=10), stage="guard")
LIVE = {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "A17"}, "Total": {"N": "12"}}
HERE, THERE = "2014-07-09", "2014-07-09.4"
MARKED = {**LIVE, "shardkit:move": {"S": "3f2a"}}
CHANGED_MARKED = {**MARKED, "Total": {"N": "13"}}
KEYS_ONLY = {"Date": LIVE["Date"], "OrderId": LIVE["OrderId"]}
STUB = {**KEYS_ONLY, "shardkit:move": {"S": "stub"}}


def moved(home: str, event: str | None, old: Any, new: Any, **more: Any) -> dict[str, Any]:
    """A record of a stream; for the event None a line of an incremental export."""
    at = {"Date": {"S": home}}
    images = {name: {**image, **at} for name, image in (("OldImage", old), ("NewImage", new)) if image}
    body = {"Keys": {**KEYS_ONLY, **at}, **images}
    return body if event is None else {"eventName": event, "dynamodb": body, **more}


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        (moved(HERE, "INSERT", None, LIVE), "application"),
        (moved(HERE, "MODIFY", LIVE, {**LIVE, "Total": {"N": "13"}}), "application"),
        (moved(HERE, "REMOVE", LIVE, None), "application"),
        (moved(HERE, "MODIFY", LIVE, MARKED), "move"),
        (moved(HERE, "REMOVE", MARKED, None), "move"),
        (moved(HERE, "INSERT", None, STUB), "move"),
        (moved(HERE, "REMOVE", STUB, None), "move"),
        (moved(HERE, "REMOVE", MARKED, None, userIdentity={"type": "Service"}), "unknown"),  # expired, or moved
        (moved(THERE, "INSERT", None, MARKED), "move"),
        (moved(THERE, "MODIFY", MARKED, LIVE), "move"),
        (moved(THERE, "INSERT", None, LIVE), "application"),
        (moved(THERE, "MODIFY", MARKED, {**LIVE, "Total": {"N": "13"}}), "application"),
        (moved(THERE, "MODIFY", MARKED, CHANGED_MARKED), "application"),
        (moved(THERE, "REMOVE", MARKED, None), "application"),
        # Streams with fewer images:
        (moved(HERE, "INSERT", None, None), "unknown"),
        (moved(HERE, "REMOVE", None, None), "unknown"),
        (moved(HERE, "MODIFY", None, LIVE), "application"),
        (moved(HERE, "MODIFY", None, MARKED), "move"),
        (moved(HERE, "MODIFY", LIVE, None), "unknown"),
        (moved(THERE, "INSERT", None, None), "unknown"),
        (moved(THERE, "MODIFY", None, LIVE), "unknown"),
        (moved(THERE, "MODIFY", None, MARKED), "application"),
        (moved(THERE, "MODIFY", LIVE, None), "application"),
        (moved(THERE, "MODIFY", MARKED, None), "unknown"),
        (moved(THERE, "REMOVE", None, None), "application"),
        # Lines of incremental exports, each the sum of what happened to a stored key:
        (moved(HERE, None, LIVE, None), "unknown"),
        (moved(HERE, None, MARKED, None), "move"),
        (moved(HERE, None, LIVE, MARKED), "move"),
        (moved(HERE, None, LIVE, CHANGED_MARKED), "unknown"),
        (moved(HERE, None, None, STUB), "move"),
        (moved(THERE, None, None, LIVE), "unknown"),
        (moved(THERE, None, MARKED, LIVE), "move"),
        # Lines of full exports:
        ({"Item": LIVE}, "application"),
        ({"Item": MARKED}, "unknown"),
        ({"Item": STUB}, "move"),
    ],
)
@pytest.mark.parametrize("stage", ["old", "move", "new"])
def test_whose_change_it_is_while_items_move(record: Any, origin: str, stage: Any) -> None:
    """At any stage, because records come later; the mark is not shown, and both homes have the one logical key."""
    strategy = Resharding(MOVING.old, MOVING.new, stage=stage)
    read = RecordReader("Orders", strategy, key_schema=SCHEMA).read(record)
    assert (read.origin, read.key) == (origin, A17)
    for image in (read.new_image, read.old_image):
        assert image is None or image.keys() <= {"Date", "OrderId", "Total"}


def test_whose_change_it_is_of_items_that_do_not_move() -> None:
    """Shard 4 of 10 is shard 4 of 20 too, for this item; and without a Resharding nothing moves."""
    grown = Resharding(CalculatedSuffix("OrderId", 5), CalculatedSuffix("OrderId", 10), stage="move")
    assert (ORDERS.read(moved(THERE, "INSERT", None, None)).origin) == "application"
    for order, origin in (("A17", "application"), ("A18", "unknown")):
        shard = grown.old.shard_of("d", {"OrderId": order})
        keys = {"Date": {"S": f"d.{shard}"}, "OrderId": {"S": order}}
        record = {"eventName": "INSERT", "dynamodb": {"Keys": keys}}
        assert RecordReader("Orders", grown, key_schema=SCHEMA).read(record).origin == origin


def test_whose_change_it_is_of_a_key_that_is_read_in_two_ways() -> None:
    """The unsharded key v1.5 is read as shard 5 of v1, which is stored elsewhere: no move writes it."""
    ambiguous = {"Date": {"S": "v1.5"}, "OrderId": {"S": "A17"}}
    record = {"eventName": "INSERT", "dynamodb": {"Keys": ambiguous, "NewImage": ambiguous}}
    read = RecordReader("Orders", MOVING, key_schema=SCHEMA).read(record)
    assert (read.key["Date"], read.origin) == ("v1", "application")
