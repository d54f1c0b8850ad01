"""Tables with a shard map: every call acts on the map of the last 30 seconds, or begins anew in the new stage."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    RandomSuffix,
    ShardedCounter,
    ShardedTable,
    ShardMap,
    StageError,
    Unsharded,
    UnsupportedExpressionError,
    UnsupportedOperationError,
    backfill_index,
    bulk_load,
    install,
)
from shardkit.streams import RecordReader
from tests.support.mapped import Moment, before, requests_of
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

OLD, NEW = CalculatedSuffix("sk", shards=4), CalculatedSuffix("sk", shards={None: 4, "d": 8})
DAY = Key("pk").eq("d")
ITEMS = [{"pk": "d", "sk": f"{number:02}"} for number in range(20)]


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Any:
    return make_table(resource, ("pk", "S"), ("sk", "S"), global_indexes=[GlobalIndex("by-sk", ("sk", "S"))])


def mapped(table: Any, moment: Moment, strategy: Any = OLD, **options: Any) -> ShardedTable:
    moment.admin(table).create(strategy)
    return ShardedTable(table, moment.map(), **options)


def places(table: Any) -> dict[str, str]:
    """Return where items are stored, without stubs and the map."""
    found = [item for item in table.scan(ConsistentRead=True)["Items"] if not item["pk"].startswith("shardkit")]
    return {item["sk"]: item["pk"] for item in found if "shardkit:move" not in item}


def test_reads_the_map_once_in_twenty_seconds(table: Any, moment: Moment) -> None:
    orders = mapped(table, moment)
    with requests_of(table.meta.client) as seen:
        for _ in range(12):
            orders.put_item(Item=ITEMS[0])
            moment.wait(5.0)
    assert Counter(name for name, _ in seen) == {"DescribeTable": 1, "map": 3, "PutItem": 12}
    assert [place for place, (name, _) in enumerate(seen) if name == "map"] == [1, 6, 11]


def test_follows_the_map_through_all_stages(table: Any, moment: Moment) -> None:
    orders, admin = mapped(table, moment, Unsharded()), moment.admin(table)
    orders.put_item(Item=ITEMS[0])
    admin.start(OLD)
    for number, stage in enumerate(["guard", "switch", "move"], 1):
        moment.advanced(admin, stage)
        orders.put_item(Item=ITEMS[number])
        assert [*orders.query_items(KeyConditionExpression=DAY)] == ITEMS[: number + 1]
    stored = places(table)
    assert [stored[item["sk"]] == "d" for item in ITEMS[:4]] == [True, True, False, False]


def test_cursors_are_signed_in_all_stages(table: Any, moment: Moment) -> None:
    secret = b"0123456789abcdef"
    orders, admin = mapped(table, moment, Unsharded(), cursor_secret=secret), moment.admin(table)
    with orders.batch_writer() as batch:
        for item in ITEMS:
            batch.put_item(Item=item)
    bare = ShardedTable(table, moment.map()).query(KeyConditionExpression=DAY, Limit=3)["LastEvaluatedKey"]
    found: list[Any] = []
    start: Any = {}
    admin.start(OLD)
    for stage in ("guard", "switch", "move"):
        moment.advanced(admin, stage)
        page = orders.query(KeyConditionExpression=DAY, Limit=3, **start)
        found += page["Items"]
        with pytest.raises(CursorError, match="not signed with a secret"):
            orders.query(KeyConditionExpression=DAY, Limit=3, ExclusiveStartKey=bare)
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert [*found, *orders.query_items(KeyConditionExpression=DAY, **start)] == ITEMS


def test_a_process_that_stood_still_reads_the_map_before_its_request_goes(table: Any, moment: Moment) -> None:
    orders = mapped(table, moment)
    orders.put_item(Item=ITEMS[0])
    client = table.meta.client
    with before(client, "PutItem", do=lambda: moment.wait(30.0)), requests_of(client) as seen:
        orders.put_item(Item=ITEMS[1])
    assert [name for name, _ in seen] == ["map", "PutItem"]


def test_a_write_that_stood_still_goes_to_the_place_of_the_new_stage(table: Any, moment: Moment) -> None:
    """Its first plan, in ``guard``, was the old place; from ``switch`` on, new items go to the new one."""
    orders, admin = mapped(table, moment, Unsharded()), moment.admin(table)
    admin.start(OLD)
    orders.put_item(Item=ITEMS[0])
    with (
        before(table.meta.client, "PutItem", do=lambda: moment.advanced(admin, "move")),
        requests_of(table.meta.client) as seen,
    ):
        orders.put_item(Item=ITEMS[1])
    assert places(table)[ITEMS[1]["sk"]] != "d"
    assert [name for name, _ in seen][-3:] == ["map", "GetItem", "PutItem"]
    assert orders.get_item(Key=ITEMS[1])["Item"] == ITEMS[1]


@pytest.mark.parametrize("seconds", [9.0, 29.0])
def test_a_fan_out_longer_than_a_lease_renews_it(table: Any, moment: Moment, seconds: float) -> None:
    orders = mapped(table, moment, CalculatedSuffix("sk", shards=10), max_concurrency=1)
    bulk = ShardedTable(table, CalculatedSuffix("sk", shards=10))
    with bulk.batch_writer() as batch:
        for item in ITEMS:
            batch.put_item(Item=item)
    with (
        before(table.meta.client, "Query", do=lambda: moment.wait(seconds), times=100),
        requests_of(table.meta.client) as seen,
    ):
        assert orders.query(KeyConditionExpression=DAY)["Items"] == ITEMS
    counts = Counter(name for name, _ in seen)
    assert counts["Query"] == 10
    assert counts["map"] >= seconds * 10 // 30


def test_a_fan_out_during_a_change_begins_anew(table: Any, moment: Moment) -> None:
    """Half of the shards were read when the map changed: the page has each item once, of the new stage's places."""
    orders, admin = mapped(table, moment, RandomSuffix(2), max_concurrency=1), moment.admin(table)
    new = ShardedTable(
        table, RandomSuffix(4), key_schema=table.meta.client.describe_table(TableName=table.name)["Table"]
    )
    queries: list[int] = []

    def change() -> None:
        queries.append(1)
        if len(queries) == 2:
            admin.start(RandomSuffix(4))
            moment.advanced(admin, "switch")
            for shard in (3, 4):
                new.put_item(Item={"pk": "d", "sk": str(shard)}, Shard=shard)
            moment.wait(30)

    orders.put_item(Item={"pk": "d", "sk": "1"}, Shard=1)
    with before(table.meta.client, "Query", do=change, times=100):
        found = orders.query(KeyConditionExpression=DAY)["Items"]
    assert [item["sk"] for item in found] == ["1", "3", "4"]


@pytest.mark.parametrize("max_items", [None, 17])
def test_a_stream_goes_on_behind_its_last_item_when_the_map_changes(
    table: Any, moment: Moment, max_items: int | None
) -> None:
    orders, admin = mapped(table, moment), moment.admin(table)
    with orders.batch_writer() as batch:
        for item in ITEMS:
            batch.put_item(Item=item)
    found = orders.query_items(KeyConditionExpression=DAY, Limit=4, max_items=max_items)
    seen = []
    for stage in ("guard", "switch", "move"):
        seen += [next(found) for _ in range(5)]
        if stage == "guard":
            admin.start(NEW)
        moment.advanced(admin, stage)
        moment.wait(31)
    assert found.last_evaluated_key is not None
    again = orders.query(KeyConditionExpression=DAY, ExclusiveStartKey=found.last_evaluated_key)
    assert again["Items"] == ITEMS[15:]
    assert seen + list(found) == ITEMS[:max_items]


def test_a_scan_ends_with_an_error_when_the_map_changes(table: Any, moment: Moment) -> None:
    orders, admin = mapped(table, moment), moment.admin(table)
    for item in ITEMS[:4]:
        orders.put_item(Item=item)
    found = orders.scan_items(Limit=1)
    next(found)
    admin.start(NEW)
    moment.wait(31)
    with pytest.raises(StageError, match="the shard map was changed during this call"):
        list(found)
    assert sorted(item["sk"] for item in orders.scan_items()) == ["00", "01", "02", "03"]


def test_a_scan_begins_with_the_map_as_it_is(table: Any, moment: Moment) -> None:
    """Its first request finds the lease ended, and the map changed."""
    orders, admin = mapped(table, moment), moment.admin(table)
    orders.put_item(Item=ITEMS[0])
    admin.start(NEW)
    moment.wait(31)
    assert list(orders.scan_items()) == ITEMS[:1]


@pytest.mark.parametrize("old", [Unsharded(), OLD])
def test_a_load_of_an_hour_goes_on_through_all_stages(table: Any, moment: Moment, old: Any) -> None:
    """Before every fourth request the process stands still for ten minutes; the admin goes on as soon as it may."""
    orders, admin = mapped(table, moment, old), moment.admin(table)
    calls: list[int] = []
    one_by_one = threading.Lock()  # writes of one batch go side by side

    def pause() -> None:
        with one_by_one:
            calls.append(1)
            if len(calls) % 4 == 0 and (stage := admin.read().stage) != "move":
                (admin.advance if stage != "old" else partial(admin.start, NEW))()
                moment.wait(631)

    items: list[dict[str, Any]] = [{"pk": "d", "sk": f"{number:03}", "n": number} for number in range(120)]
    with before(table.meta.client, "BatchWriteItem", "PutItem", do=pause, times=1000):
        report = bulk_load(orders, items, workers=1)
    assert (report.written, report.failed) == (120, 0)
    assert admin.read().stage == "move"
    homes = {item["sk"]: old.physical_key("d", old.shard_of("d", item)) for item in items}
    stored = places(table)
    assert len(stored) == 120
    assert {stored[sk] == home for sk, home in homes.items()} == {True, False}
    assert orders.query(KeyConditionExpression=DAY, Select="COUNT")["Count"] == 120


def test_a_load_with_random_suffixes_keeps_the_shards_that_it_began_with(table: Any, moment: Moment) -> None:
    orders, admin = mapped(table, moment, RandomSuffix(2)), moment.admin(table)

    def change() -> None:
        admin.start(RandomSuffix(6))
        moment.advanced(admin, "switch")
        moment.wait(31)

    with before(table.meta.client, "BatchWriteItem", do=change):
        assert bulk_load(orders, ITEMS, workers=1).written == 20
    assert {*places(table).values()} <= {"d.1", "d.2"}
    assert orders.query(KeyConditionExpression=DAY)["Items"] == ITEMS


def test_a_batch_writer_writes_in_the_stage_of_its_time(table: Any, moment: Moment) -> None:
    orders, admin = mapped(table, moment, Unsharded()), moment.admin(table)
    with orders.batch_writer() as batch:
        batch.put_item(Item=ITEMS[0])
        admin.start(OLD)
        moment.advanced(admin, "move")
        moment.wait(31)
    assert places(table)[ITEMS[0]["sk"]] != "d"


def test_an_installed_client_follows_the_map(table: Any, moment: Moment, resource: DynamoDBServiceResource) -> None:
    admin = moment.admin(table)
    admin.create(OLD)
    other = make_table(resource, ("pk", "S"))
    client: Any = resource.meta.client
    with install(resource, {table.name: moment.map(), other.name: RandomSuffix(1)}):
        plain = resource.Table(table.name)
        plain.put_item(Item=ITEMS[0])
        assert plain.scan()["Items"] == plain.query(KeyConditionExpression=DAY)["Items"] == ITEMS[:1]
        assert plain.scan(Select="COUNT")["Count"] == 1
        with before(client, "TransactWriteItems", do=lambda: moment.wait(31)), requests_of(client) as seen:
            client.transact_write_items(TransactItems=[{"Put": {"TableName": table.name, "Item": ITEMS[1]}}])
            puts = {
                table.name: [{"PutRequest": {"Item": ITEMS[2]}}],
                other.name: [{"PutRequest": {"Item": {"pk": "k"}}}],
            }
            client.batch_write_item(RequestItems=puts)
            asked: Any = {table.name: {"Keys": ITEMS[:3]}, other.name: {"Keys": [{"pk": "k"}]}}
            answer = client.batch_get_item(RequestItems=asked)["Responses"]
        assert [name for name, _ in seen if name != "DescribeTable"] == [
            "map",
            "TransactWriteItems",
            "map",  # of the other table, which has none
            "BatchWriteItem",
            "BatchGetItem",
        ]
        assert sorted(item["sk"] for item in answer[table.name]) == ["00", "01", "02"]
        assert answer[other.name] == [{"pk": "k"}]
        admin.start(NEW)
        moment.advanced(admin, "move")
        plain.put_item(Item=ITEMS[3])
        assert plain.query(KeyConditionExpression=DAY)["Items"] == ITEMS[:4]
    assert len(places(table)) == 4


@pytest.mark.parametrize(
    ("keys", "key"),
    [((("pk", "S"), None), "shardkit:map"), ((("pk", "B"), ("sk", "B")), b"shardkit:map"),
     ((("pk", "S"), ("sk", "N")), "shardkit:map")],
)  # fmt: skip
def test_the_map_itself_is_hidden_and_refused(
    resource: DynamoDBServiceResource, moment: Moment, keys: Any, key: Any
) -> None:
    table = make_table(resource, *keys)
    orders = mapped(table, moment, Unsharded())
    sort = {"S": "x", "B": b"x", "N": 1}
    item = {"pk": sort[keys[0][1]], **({} if keys[1] is None else {"sk": sort[keys[1][1]]})}
    orders.put_item(Item=item)
    assert orders.scan()["Count"] == len(list(orders.scan_items())) == 1
    assert orders.scan(Select="COUNT")["Count"] == 1
    assert orders.scan(ProjectionExpression="a", FilterExpression="attribute_exists(pk) OR attribute_exists(a)")[
        "Items"
    ]
    # boto3 writes it in parentheses of its own, and the service refuses more of them.
    assert orders.scan(FilterExpression=Attr("pk").exists() & Attr("a").not_exists())["Count"] == 1
    ours = {**item, "pk": key}
    for call in (
        lambda: orders.get_item(Key=ours),
        lambda: orders.put_item(Item=ours),
        lambda: orders.delete_item(Key=ours),
        lambda: orders.query(KeyConditionExpression=Key("pk").eq(key)),
        lambda: orders.batch_get_items([ours]),
        lambda: orders.transact_write_items(TransactItems=[{"Put": {"Item": ours}}]),
    ):
        with pytest.raises(InvalidKeyError, match="is the key of the shard map"):
            call()
    assert moment.admin(table).read().stage == "old"


def test_an_index_without_the_map(table: Any, moment: Moment) -> None:
    orders = mapped(table, moment, Unsharded())
    orders.put_item(Item=ITEMS[0])
    assert table.scan(IndexName="by-sk")["Count"] == 2
    assert orders.scan(IndexName="by-sk")["Items"] == ITEMS[:1]


def test_what_is_not_supported_is_refused_by_name(table: Any, moment: Moment, resource: Any) -> None:
    orders = mapped(table, moment)
    with pytest.raises(UnsupportedOperationError, match="physical_key"):
        orders.physical_key(ITEMS[0])
    with pytest.raises(ConfigurationError, match="ShardMap"):
        bulk_load(orders, ITEMS, processes=2)
    with pytest.raises(ConfigurationError, match="ShardMap"):
        ShardedCounter(orders, {"pk": "d", "sk": "c"}, "n").add(1)
    with pytest.raises(ConfigurationError, match="ShardMap"):
        backfill_index(orders, "by-sk")
    with pytest.raises(ConfigurationError, match="ShardMap"):
        RecordReader("T", ShardMap(), key_schema={"KeySchema": table.key_schema})
    with pytest.raises(ConfigurationError, match="ShardMap"):
        ShardMap().shards_for("d")
    with pytest.raises(UnsupportedExpressionError, match="ScanFilter"):
        orders.scan(ScanFilter={"a": {"ComparisonOperator": "NULL"}})
    assert orders.logical_item({"pk": "d.1", "sk": "00"}) == {"pk": "d", "sk": "00"}


def test_a_table_without_a_map_is_refused(table: Any, moment: Moment, resource: Any) -> None:
    with pytest.raises(ConfigurationError, match="has no shard map; create it"):
        ShardedTable(table, moment.map()).get_item(Key=ITEMS[0])
    with install(table, {table.name: moment.map()}), pytest.raises(ClientError, match="has no shard map; create it"):
        table.get_item(Key=ITEMS[0])
    numbers = make_table(resource, ("pk", "N"))
    with pytest.raises(ConfigurationError, match="is a number"):
        ShardedTable(numbers, moment.map()).get_item(Key={"pk": 1})


def test_a_map_that_cannot_be_read_stops_calls_when_the_lease_ends(table: Any, moment: Moment) -> None:
    orders = mapped(table, moment)
    orders.put_item(Item=ITEMS[0])
    moment.wait(25)

    def broken(params: Any, **_: Any) -> None:
        if "shardkit:map" in str(params["body"]):
            raise ConnectionError("no route")

    table.meta.client.meta.events.register("before-call.dynamodb.GetItem", broken)
    orders.put_item(Item=ITEMS[1])  # the lease is still valid
    moment.wait(5)
    with pytest.raises(ConnectionError):
        orders.put_item(Item=ITEMS[2])
    table.meta.client.meta.events.unregister("before-call.dynamodb.GetItem", broken)
    orders.put_item(Item=ITEMS[2])
    assert len(places(table)) == 3


def test_a_map_of_a_newer_shardkit_is_refused(table: Any, moment: Moment) -> None:
    orders = mapped(table, moment)
    item = table.get_item(Key={"pk": "shardkit:map", "sk": "shardkit:map"})["Item"]
    table.put_item(Item={**item, "shardkit:map": '{"form": 2}'})
    with pytest.raises(ConfigurationError, match="has form 2, and this shardkit reads form 1"):
        orders.get_item(Key=ITEMS[0])
    table.put_item(Item={**item, "shardkit:map": '{"form": 1}'})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        orders.get_item(Key=ITEMS[0])


def test_reading_the_map_for_longer_than_a_lease_is_an_error(table: Any, moment: Moment) -> None:
    orders = mapped(table, moment)

    def slow(**_: Any) -> None:
        moment.wait(31)

    table.meta.client.meta.events.register("before-call.dynamodb.GetItem", slow)
    with pytest.raises(StageError, match="several times in a row"):
        orders.put_item(Item=ITEMS[0])
    assert places(table) == {}
