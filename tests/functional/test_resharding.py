"""Single items of a table whose items move: each operation, in each stage and state, as on an unsharded table."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from moto import mock_aws

from shardkit import (
    AmbiguousItemError,
    CalculatedSuffix,
    ConfigurationError,
    InvalidKeyError,
    RandomSuffix,
    RangeSuffix,
    Resharding,
    ShardedCounter,
    ShardedTable,
    ShardUnknownError,
    StageError,
    Strategy,
    TimeSeries,
    Unsharded,
    backfill_index,
    install,
)
from shardkit.errors import UnsupportedExpressionError
from shardkit.migrate.marks import MARK
from shardkit.strategies.resharding import STAGES
from tests.support.moving import ADOPT, BETWEEN, PLACES, SCHEMA, STATES, Held, homes, resharding, stored
from tests.support.profiles import LONG
from tests.support.recorder import recording
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

KEY = {"pk": "k", "sk": "s1"}
ITEM = {**KEY, "n": 1, "tags": {"a", "b"}, "raw": b"\x00\xff"}
NAMES = {"#shardkit_m": "n", "#n": "n"}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get": ("get_item", {"Key": KEY, "ConsistentRead": True}),
    "get eventually": ("get_item", {"Key": KEY}),
    "get a part": ("get_item", {"Key": KEY, "ProjectionExpression": "n"}),
    "get nothing of it": ("get_item", {"Key": KEY, "AttributesToGet": ["other"]}),
    "put": ("put_item", {"Item": {**KEY, "n": 2}, "ReturnValues": "ALL_OLD"}),
    "put a new one": ("put_item", {"Item": {**KEY, "n": 2}, "ConditionExpression": "attribute_not_exists(pk)"}),
    "put on a condition": (
        "put_item",
        {"Item": {**KEY, "n": 2}, "ConditionExpression": "#shardkit_m = :n OR #shardkit_m = :x",
         "ExpressionAttributeNames": {"#shardkit_m": "n"}, "ExpressionAttributeValues": {":n": 1, ":x": 5}},
    ),
    "put on a false condition": (
        "put_item",
        {"Item": {**KEY, "n": 2}, "ConditionExpression": "n = :n OR n = :x",
         "ExpressionAttributeValues": {":n": 7, ":x": 5}, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"},
    ),
    "update": (
        "update_item",
        {"Key": KEY, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 5}, "ReturnValues": "ALL_NEW"},
    ),
    "update one that is there": (
        "update_item",
        {"Key": KEY, "UpdateExpression": "SET n = :n REMOVE tags", "ExpressionAttributeValues": {":n": 5, ":k": "k"},
         "ConditionExpression": "attribute_exists(sk) AND pk = :k", "ReturnValues": "UPDATED_OLD"},
    ),
    "update on a false condition": (
        "update_item",
        {"Key": KEY, "UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 5},
         "ConditionExpression": "n > :n"},
    ),
    "delete": ("delete_item", {"Key": KEY, "ReturnValues": "ALL_OLD"}),
    "delete on a condition": (
        "delete_item",
        {"Key": KEY, "ConditionExpression": "#n = :n", "ExpressionAttributeNames": {"#n": "n"},
         "ExpressionAttributeValues": {":n": 1}},
    ),
}  # fmt: skip


def outcome(table: Any, method: str, params: dict[str, Any]) -> Any:
    """What a call returns or raises, and the item afterwards; moto returns units unasked."""
    try:
        response = getattr(table, method)(**params)
    except ClientError as error:
        answer: Any = error.response["Error"]["Code"], error.response.get("Item")
    else:
        answer = {name: value for name, value in response.items() if name in {"Attributes", "Item"}}
    return answer, table.get_item(Key=KEY).get("Item")


@pytest.fixture(scope="module")
def plain() -> dict[tuple[bool, str], Any]:
    """The outcomes on an unsharded table, with and without the item."""
    found = {}
    with mock_aws():
        resource = boto3.resource("dynamodb", region_name="us-east-1")
        table: Any = make_table(resource, ("pk", "S"), ("sk", "S"))
        for there in (False, True):
            for call, (method, params) in CALLS.items():
                if there:
                    table.put_item(Item=ITEM)
                found[there, call] = outcome(table, method, params)
                table.delete_item(Key=KEY)
        resource.meta.client.close()
    return found


@pytest.mark.long_search
@pytest.mark.parametrize(("stage", "state"), PLACES)
def test_as_on_an_unsharded_table(
    resource: DynamoDBServiceResource, plain: dict[tuple[bool, str], Any], stage: Any, state: str
) -> None:
    """Answers, errors and what is read afterwards are the same; nobody sees the mark (of a quarter of the calls)."""
    moved = make_table(resource, ("pk", "S"), ("sk", "S"))
    table = ShardedTable(moved, resharding(stage))
    first, step = (0, 1) if LONG else (PLACES.index((stage, state)) % 4, 4)
    for call, (method, params) in [*CALLS.items()][first::step]:
        Held(moved).put(ITEM, state)
        assert outcome(table, method, params) == plain[state != "absent", call], call
        Held(moved).clear()


PAIRS: dict[str, tuple[Strategy, Strategy]] = {
    "more shards": (CalculatedSuffix("sk", shards=2), CalculatedSuffix("sk", shards=7)),
    "fewer shards": (CalculatedSuffix("sk", shards=7), CalculatedSuffix("sk", shards=2)),
    "back": (CalculatedSuffix("sk", shards=4), Unsharded()),
    "a range is split": (RangeSuffix("sk", ["m"]), RangeSuffix("sk", ["m", "s"])),
    "ranges": (CalculatedSuffix("sk", shards=4), RangeSuffix("sk", ["m"])),
    "one key": (CalculatedSuffix("sk", shards={"k": 2}), CalculatedSuffix("sk", shards={"k": 9})),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_other_moves(resource: DynamoDBServiceResource, pair: tuple[Strategy, Strategy]) -> None:
    """Between any two strategies that calculate: each item is found in every state, and written once."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    items = [{"pk": "k", "sk": sk, "n": 1} for sk in ("a7", "n1", "t3", "z9")]
    states = dict(zip([item["sk"] for item in items], ("live", "frozen", "stub", "moved"), strict=True))
    for item in items:
        Held(table).put(item, "live" if homes(item, *pair).same else states[item["sk"]], *pair)
    assert any(not homes(item, *pair).same for item in items)
    moved = ShardedTable(table, resharding("move", *pair))
    keys = [{"pk": "k", "sk": item["sk"]} for item in items]
    assert moved.batch_get_items(keys)["Items"] == items
    for key in keys:
        response = moved.update_item(
            Key=key, UpdateExpression="ADD n :n", ExpressionAttributeValues={":n": 1}, ReturnValues="ALL_NEW"
        )
        assert response["Attributes"] == {**key, "n": 2} == moved.get_item(Key=key)["Item"]
    assert sum("n" in one for one in table.scan()["Items"]) == len(items)


def test_where_a_write_goes(resource: DynamoDBServiceResource) -> None:
    """An item stays where it is; a new one goes to its old home in guard, and to its new one from switch on."""
    moved = make_table(resource, ("pk", "S"), ("sk", "S"))
    held, stub = Held(moved), {MARK: "stub"}
    home = ADOPT[1].physical_key("k", ADOPT[1].shard_of("k", KEY))
    new = {home: {"n": 2}}
    expected = {
        ("guard", "absent"): {"k": {"n": 2}},
        ("switch", "absent"): {"k": stub, **new},
        ("move", "absent"): new,
        ("move", "moved"): new,
        **{(stage, "live"): {"k": {"n": 2}} for stage in ("guard", "switch", "move")},
        **{(stage, "stub"): {"k": stub, **new} for stage in ("guard", "switch", "move")},
        **{("switch", state): {"k": stub, **new} for state in ("frozen", "copied")},
        **{("move", state): new for state in ("frozen", "copied")},
    }
    found = {}
    for stage, state in PLACES:
        held.put(ITEM, state)
        ShardedTable(moved, resharding(stage)).put_item(Item={**KEY, "n": 2})
        found[stage, state] = held.places()
        held.clear()
    assert found == expected


@pytest.mark.parametrize("stage", BETWEEN)
def test_many_items_by_key(resource: DynamoDBServiceResource, stage: Any) -> None:
    """They are found in every state, in the order of the keys, once each; a stub is no item."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    states = [*STATES[stage], "emptied"]
    items = [{"pk": "k", "sk": f"s{place}", "n": place} for place, _ in enumerate(states)]
    for item, state in zip(items, states, strict=True):
        Held(table).put(item, state)
    there = [item for item, state in zip(items, states, strict=True) if state not in {"absent", "emptied"}]
    keys = [{"pk": "k", "sk": item["sk"]} for item in [*items, *items[:3]]]
    moved = ShardedTable(table, resharding(stage))
    assert moved.batch_get_items(keys)["Items"] == there
    names: Any = {"ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "n"}}
    assert moved.batch_get_items(keys, **names)["Items"] == [{"n": item["n"]} for item in there]
    with install(resource.meta.client, {table.name: resharding(stage)}):
        requests: Any = {table.name: {"Keys": keys[: len(items)]}}
        answer = resource.batch_get_item(RequestItems=requests)
    assert answer["Responses"][table.name] == there
    assert not answer["UnprocessedKeys"]


def test_items_whose_home_stays_are_plain(resource: DynamoDBServiceResource) -> None:
    """One request each, as the caller gave it; the legacy parameters too."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    strategies = CalculatedSuffix("sk", shards=2), CalculatedSuffix("sk", shards=4)
    key = next(key for key in ({"pk": "k", "sk": f"s{n}"} for n in range(99)) if homes(key, *strategies).same)
    moved = ShardedTable(table, resharding("switch", *strategies), key_schema=SCHEMA)
    with recording(table.meta.client) as recorder:
        moved.put_item(Item={**key, "n": 1}, Expected={"n": {"Exists": False}})
        assert moved.get_item(Key=key)["Item"] == {**key, "n": 1}
        assert moved.batch_get_items([key])["Items"] == [{**key, "n": 1}]
    assert recorder.operations == ["PutItem", "GetItem", "BatchGetItem"]
    assert "ConditionExpression" not in recorder.bodies("PutItem")[0]


def test_what_a_scan_of_the_plain_table_shows_is_made_logical(resource: DynamoDBServiceResource) -> None:
    """By logical_item(), for exports and streams of one's own."""
    table = ShardedTable(resource.Table("Orders"), resharding("move"), key_schema=SCHEMA)
    for state in ("live", "frozen", "moved"):
        assert table.logical_item(stored(ITEM, state)[0]) == ITEM


def test_sharded_indexes_are_kept_true_at_both_homes(resource: DynamoDBServiceResource) -> None:
    """The attribute of the index is written wherever the item is, and hidden."""
    index = GlobalIndex("by-status", ("ix", "S"), ("sk", "S"))
    made = make_table(resource, ("pk", "S"), ("sk", "S"), global_indexes=[index])
    indexes = {"by-status": CalculatedSuffix("sk", shards=3, source="status")}
    for state in ("live", "stub"):
        Held(made).put(ITEM, state)
        table = ShardedTable(made, resharding("switch"), indexes=indexes)
        table.update_item(
            Key=KEY, UpdateExpression="SET #s = :s", ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": "open"},
        )  # fmt: skip
        assert table.get_item(Key=KEY)["Item"] == {**ITEM, "status": "open"}
        (written,) = [one for one in Held(made).places().values() if "n" in one]
        assert str(written["ix"]).startswith("open.")
        Held(made).clear()


def test_random_suffixes_grow(resource: DynamoDBServiceResource) -> None:
    """Guard reads what switch writes, and itself writes where "old" reads."""
    made = make_table(resource, ("pk", "S"), ("sk", "S"))
    tables = {
        stage: ShardedTable(made, Resharding(RandomSuffix(2), RandomSuffix(9), stage=stage), rng=random.Random(7))
        for stage in STAGES
    }
    day = Key("pk").eq("k")
    for place, stage in enumerate(STAGES):
        for number in range(6):
            tables[stage].put_item(Item={"pk": "k", "sk": f"{place}-{number:02}"})
    counts = {stage: tables[stage].query(KeyConditionExpression=day)["Count"] for stage in STAGES}
    assert counts["guard"] == counts["switch"] == counts["move"] == counts["new"] == 30
    assert 12 <= counts["old"] < 30
    assert {str(item["pk"]) for item in made.scan()["Items"] if str(item["sk"])[0] in "01"} == {"k.1", "k.2"}
    counter = ShardedCounter(tables["guard"], key={"pk": "n", "sk": "c"}, attribute="n")
    for _ in range(5):
        counter.add(1)
    assert counter.value().total == 5


def test_tables_that_cannot_move_with_it(resource: DynamoDBServiceResource) -> None:
    """A time series has several tables; a backfill writes without the conditions of the stages."""
    with pytest.raises(ConfigurationError, match="a table for each period"):
        TimeSeries(resource, "Events", schema=SCHEMA, at="sk", period="day", strategy=resharding("move"))
    table = ShardedTable(resource.Table("Orders"), resharding("move"), key_schema=SCHEMA)
    with pytest.raises(StageError, match="backfill in stage 'old' or 'new'"):
        backfill_index(table, "by-status")
    reads_more = CalculatedSuffix(lambda item: item["n"], shards=2)
    table = ShardedTable(resource.Table("Orders"), resharding("guard", Unsharded(), reads_more), key_schema=SCHEMA)
    with pytest.raises(ShardUnknownError, match="between the stages of a Resharding, by must read nothing else"):
        table.put_item(Item=ITEM)


REFUSED: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "a shard": (lambda table: table.get_item(Key=KEY, Shard=1), StageError, "^Shard=: not possible in stage"),
    "a shard to write": (lambda table: table.put_item(Item=KEY, Shard=1), StageError, "omit it"),
    "the shards": (lambda table: table.get_item(Key=KEY, ReturnShards=True), StageError, "^ReturnShards=: .*omit it"),
    "legacy conditions": (
        lambda table: table.put_item(Item=KEY, Expected={"n": {"Exists": False}}),
        StageError,
        "^Expected: .*use ConditionExpression",
    ),
    "legacy updates": (
        lambda table: table.update_item(Key=KEY, AttributeUpdates={"n": {"Value": 1}}),
        StageError,
        "^AttributeUpdates: .*UpdateExpression",
    ),
    "a scan": (lambda table: table.scan(), StageError, r"^scan\(\): .*scan_items"),
    "a stored key": (lambda table: table.physical_key(KEY), StageError, r"^physical_key\(\).*wait for stage 'new'"),
    "a stored item": (lambda table: table.physical_item(ITEM), StageError, r"physical_item\(\).*operations of the"),
    "an ambiguous key": (
        lambda table: table.put_item(Item={**KEY, "pk": "v1.2"}),
        InvalidKeyError,
        "'v1.2' .*another separator=",
    ),
    "the mark": (lambda table: table.put_item(Item={**KEY, MARK: "x"}), UnsupportedExpressionError, "leave it out"),
    "the mark in a condition": (
        lambda table: table.delete_item(Key=KEY, ConditionExpression=Attr(MARK).exists()),
        UnsupportedExpressionError,
        "must not mention 'shardkit:move'",
    ),
    "the mark in a projection": (
        lambda table: table.get_item(Key=KEY, AttributesToGet=[MARK]),
        UnsupportedExpressionError,
        "must not mention 'shardkit:move'",
    ),
}


@pytest.mark.parametrize(("call", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_says_what_to_do(
    resource: DynamoDBServiceResource, call: Callable[[Any], object], error: type[Exception], said: str
) -> None:
    """Nothing is sent."""
    table = ShardedTable(resource.Table("Orders"), resharding("switch"), key_schema=SCHEMA)
    with recording(resource.meta.client) as recorder, pytest.raises(error, match=said):
        call(table)
    assert not recorder.requests


def test_a_late_stage_beside_guard_is_reported(resource: DynamoDBServiceResource) -> None:
    """Guard and move must not run side by side: an item that is being moved says so."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    Held(table).put(ITEM, "frozen")
    with pytest.raises(StageError, match="deploy stage 'switch'") as raised:
        ShardedTable(table, resharding("guard")).put_item(Item=ITEM)
    assert raised.value.stage == "guard"
    assert pickle.loads(pickle.dumps(raised.value)).stage == "guard"  # noqa: S301 - just made here


def test_different_items_at_both_homes_are_reported(resource: DynamoDBServiceResource) -> None:
    """Neither is deleted: a writer without shardkit may have put one of them."""
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    Held(table).put(ITEM, "frozen")
    Held(table).put({**ITEM, "n": 7}, "moved")
    before = Held(table).places()
    with pytest.raises(AmbiguousItemError, match="hold different items"):
        ShardedTable(table, resharding("move")).delete_item(Key=KEY)
    assert Held(table).places() == before
