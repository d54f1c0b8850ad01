"""The caller's objects, handlers and other calls are left alone (promise 4); what goes over HTTP is known."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from threading import Semaphore
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, CapacityMeter, RandomSuffix, ShardedTable, bulk_load
from shardkit.errors import ConfigurationError
from tests.support.recorder import recording
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
STRATEGY = CalculatedSuffix("OrderId", 4)
DAY = Key("Date").eq("2014-07-09")
THREADS = 10


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    index = GlobalIndex("by-order", ("OrderId", "S"), ("Date", "S"))
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[index])


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, STRATEGY)


def use_everything(orders: ShardedTable) -> None:
    """Make one call of every kind."""
    bulk_load(orders, [{**KEY, "OrderId": f"A{number}"} for number in range(8)])
    orders.put_item(Item={**KEY, "Amount": 1})
    orders.get_item(Key=KEY)
    orders.update_item(Key=KEY, UpdateExpression="SET Amount = :a", ExpressionAttributeValues={":a": 2})
    orders.query(KeyConditionExpression=DAY)
    list(orders.query_items(KeyConditionExpression=DAY, Limit=2))
    orders.query(KeyConditionExpression=Key("OrderId").eq("A17") & DAY, IndexName="by-order")
    orders.scan()
    list(orders.scan_items(segments=2))
    orders.batch_get_items([KEY])
    with orders.batch_writer() as batch:
        batch.delete_item(Key={**KEY, "OrderId": "A1"})
    orders.delete_item(Key=KEY)
    orders.physical_key(KEY)


def test_a_given_key_schema_needs_no_describe_table(table: Table) -> None:
    """A role without dynamodb:DescribeTable can do everything."""
    schema = {
        "KeySchema": table.key_schema,
        "AttributeDefinitions": table.attribute_definitions,
        "GlobalSecondaryIndexes": [
            {name: index[name] for name in ("IndexName", "KeySchema")} for index in table.global_secondary_indexes
        ],
    }
    given_schema = deepcopy(schema)
    with recording(table.meta.client) as wire:
        use_everything(ShardedTable(table, STRATEGY, key_schema=schema))
    assert "DescribeTable" not in wire.operations
    assert schema == given_schema


def test_the_schema_is_asked_for_once_and_when_first_needed(table: Table) -> None:
    """Making a ShardedTable sends nothing; all calls together make one DescribeTable."""
    with recording(table.meta.client) as wire:
        orders = ShardedTable(table, STRATEGY)
        orders.query_items(KeyConditionExpression=DAY)
        assert wire.requests == []
        use_everything(orders)
    assert wire.operations.count("DescribeTable") == 1
    assert wire.operations[0] == "DescribeTable"


@pytest.mark.parametrize("fault", [None, ConnectionError("no route"), KeyboardInterrupt()], ids=repr)
def test_the_first_calls_of_many_threads_ask_for_the_schema_once(
    table: Table, fault: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for the first one's answer. If it gets none, each asks for itself; the table is not asked for ever."""
    waiting = Semaphore(0)

    class Joined(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            waiting.release()
            return super().result(timeout)

    monkeypatch.setattr("shardkit.runtime.joining.Future", Joined)
    orders, faults = ShardedTable(table, STRATEGY), [fault] if fault else []
    inner: list[Any] = []

    def before_send(**_: Any) -> None:
        if not inner:
            inner.append(None)
            assert all(waiting.acquire(timeout=4) for _ in range(THREADS - 1))
            # A call of the handler's own must not wait for the request that it is in.
            inner.append(orders.physical_key(KEY))
            if faults:
                raise faults.pop()

    def use(_: int) -> Any:
        try:
            return orders.get_item(Key=KEY)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            return error

    table.meta.client.meta.events.register_first("before-send.dynamodb.DescribeTable", before_send)
    with recording(table.meta.client) as wire, ThreadPoolExecutor(THREADS) as pool:
        answers = [*pool.map(use, range(THREADS))]
    assert inner[1]["OrderId"] == KEY["OrderId"]
    assert sum(isinstance(answer, BaseException) for answer in answers) == (fault is not None)
    # That of the handler's own call; and the first one, or if that fails on the way, those of all others.
    assert wire.operations.count("DescribeTable") == 1 + (1 if fault is None else THREADS - 1)


def test_a_query_sends_one_query_a_shard(orders: ShardedTable, table: Table) -> None:
    """The bodies differ in the physical key alone."""
    orders.physical_key(KEY)
    with recording(table.meta.client) as wire:
        orders.query(KeyConditionExpression=DAY & Key("OrderId").gt("A"), ConsistentRead=True)
    assert wire.operations == ["Query"] * 4
    physical = set()
    for body in wire.bodies("Query"):
        (name,) = [name for name, value in body["ExpressionAttributeValues"].items() if value != {"S": "A"}]
        physical.add(body["ExpressionAttributeValues"].pop(name)["S"])
    assert physical == {f"2014-07-09.{shard}" for shard in range(1, 5)}
    assert all(body == wire.bodies("Query")[0] for body in wire.bodies("Query"))
    assert wire.bodies("Query")[0]["ConsistentRead"] is True


@pytest.mark.parametrize("event", ["before-call", "before-sign", "before-send"])
def test_the_users_handlers_see_the_real_body(orders: ShardedTable, table: Table, event: str) -> None:
    """From before-call on, what a handler sees is what goes out."""
    seen: list[dict[str, Any]] = []

    def handler(params: Any = None, request: Any = None, **_: Any) -> None:
        body = params["body"] if request is None else getattr(request, "body", None) or request.data
        seen.append(json.loads(body))

    orders.physical_key(KEY)
    table.meta.client.meta.events.register(f"{event}.dynamodb", handler)
    try:
        with recording(table.meta.client) as wire:
            orders.put_item(Item={**KEY, "Amount": 1})
            orders.get_item(Key=KEY)
    finally:
        table.meta.client.meta.events.unregister(f"{event}.dynamodb", handler)
    assert seen == [body for _, body in wire.requests]
    assert seen[0]["Item"]["Date"] == {"S": STRATEGY.physical_key("2014-07-09", STRATEGY.shard_of("2014-07-09", KEY))}


def test_what_a_handler_adds_to_every_request_stays(orders: ShardedTable, table: Table) -> None:
    """A handler before shardkit's can still ask for the consumed capacity, and sees the table's name."""
    tables: list[str] = []

    def handler(params: dict[str, Any], **_: Any) -> None:
        tables.append(params["TableName"])
        params["ReturnConsumedCapacity"] = "TOTAL"

    orders.physical_key(KEY)
    table.meta.client.meta.events.register("provide-client-params.dynamodb.PutItem", handler)
    with recording(table.meta.client) as wire:
        response = orders.put_item(Item=KEY)
    table.meta.client.meta.events.unregister("provide-client-params.dynamodb.PutItem", handler)
    assert tables == [table.name]
    assert wire.requests[0][1]["ReturnConsumedCapacity"] == "TOTAL"
    assert response["ConsumedCapacity"]["TableName"] == table.name


def test_a_handler_that_renames_the_table_is_an_error(orders: ShardedTable, table: Table) -> None:
    """A request that lost its parameters on the way is never taken for an answer."""

    def handler(params: dict[str, Any], **_: Any) -> None:
        params["TableName"] = "Other"

    schema = {"KeySchema": table.key_schema, "AttributeDefinitions": table.attribute_definitions}
    make_table(boto3.resource("dynamodb"), ("Date", "S"), name="Other")
    orders = ShardedTable(table, STRATEGY, key_schema=schema)
    table.meta.client.meta.events.register("provide-client-params.dynamodb.Scan", handler)
    with pytest.raises(ConfigurationError, match="handler"):
        orders.scan(Limit=3)
    table.meta.client.meta.events.unregister("provide-client-params.dynamodb.Scan", handler)


EVENTS = [
    "provide-client-params.dynamodb.PutItem",
    "provide-client-params.dynamodb",
    "before-parameter-build.dynamodb.PutItem",
    "before-parameter-build.dynamodb",
    "before-call.dynamodb.PutItem",
    "request-created.dynamodb.PutItem",
    "before-sign.dynamodb.PutItem",
    "before-send.dynamodb.PutItem",
    "response-received.dynamodb.PutItem",
    "needs-retry.dynamodb.PutItem",
    "after-call.dynamodb.PutItem",
]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("sharded", [False, True], ids=["plain", "sharded"])
def test_handlers_may_make_calls_of_their_own(table: Table, event: str, sharded: bool) -> None:
    """A call that a user's handler makes on the same client goes out as it is, and so does the one around it."""
    orders, audit = ShardedTable(table, STRATEGY), ShardedTable(table, RandomSuffix(3))
    for one in (orders, audit):
        one.scan(Limit=1)
    answers: list[Any] = []

    def handler(**_: Any) -> None:
        if answers:
            return
        answers.append(None)
        if sharded:
            answers.append(audit.put_item(Item={"Date": "mine", "OrderId": "x"}, Shard=1))
        else:
            answers.append(table.put_item(Item={"Date": "mine.1", "OrderId": "x"}, ReturnValues="ALL_OLD"))
        answers.append(table.get_item(Key={"Date": "mine.1", "OrderId": "x"}))

    client = table.meta.client
    client.meta.events.register(event, handler)
    try:
        with recording(client) as wire:
            response = orders.put_item(Item={**KEY, "Amount": 1}, ReturnShards=True)
    finally:
        client.meta.events.unregister(event, handler)
    physical = f"2014-07-09.{STRATEGY.shard_of('2014-07-09', KEY)}"
    assert response["Shard"] == STRATEGY.shard_of("2014-07-09", KEY)
    assert sorted(body["Item"]["Date"]["S"] for body in wire.bodies("PutItem")) == [physical, "mine.1"]
    assert len(answers) == 3
    assert answers[2]["Item"] == {"Date": "mine.1", "OrderId": "x"}
    assert {item["Date"] for item in table.scan()["Items"]} == {physical, "mine.1"}


def own_calls(table: Any) -> list[Any]:
    """Make calls on the plain table and its client, and give what they answered."""
    client, name = table.meta.client, table.name
    item = {"Date": "a.1", "OrderId": "x", "Amount": 1}
    return [
        table.put_item(Item=item, ReturnConsumedCapacity="TOTAL"),
        table.get_item(Key={"Date": "a.1", "OrderId": "x"}),
        table.query(KeyConditionExpression=Key("Date").eq("a.1"), FilterExpression=Attr("Amount").gt(0)),
        table.scan(Limit=1),
        table.update_item(
            Key={"Date": "a.1", "OrderId": "x"}, UpdateExpression="ADD Amount :a", ExpressionAttributeValues={":a": 1}
        ),
        client.batch_get_item(RequestItems={name: {"Keys": [{"Date": "a.1", "OrderId": "x"}]}}),
        client.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": {**item, "OrderId": "y"}}}]}),
        client.transact_get_items(TransactItems=[{"Get": {"TableName": name, "Key": {"Date": "a.1", "OrderId": "y"}}}]),
        client.delete_item(TableName=name, Key={"Date": "a.1", "OrderId": "y"}),
        client.describe_table(TableName=name)["Table"]["KeySchema"],
    ]


def test_the_users_own_calls_are_not_touched(table: Table) -> None:
    """With a sharded table and a meter on the client, a plain call sends and answers the same as without."""
    orders = ShardedTable(table, STRATEGY)
    orders.put_item(Item={**KEY, "Date": "z"})
    fresh = boto3.resource("dynamodb", region_name="us-east-1").Table(table.name)
    with recording(fresh.meta.client) as before:
        expected = own_calls(fresh)
    with recording(table.meta.client) as after:
        shown = own_calls(table)
    assert after.requests == before.requests

    def bare(answers: list[Any]) -> list[Any]:
        text = json.dumps(answers, default=str)
        return [
            {name: value for name, value in answer.items() if name not in {"ResponseMetadata", "LastEvaluatedKey"}}
            if isinstance(answer, dict)
            else answer
            for answer in json.loads(text)
        ]

    assert bare(shown) == bare(expected)
    with CapacityMeter().attach(orders):
        own_calls(table)


def test_the_users_calls_on_other_threads_are_not_touched(orders: ShardedTable, table: Table) -> None:
    """Sharded and plain calls side by side on one client each go out as they are."""

    def sharded(number: int) -> Any:
        return orders.put_item(Item={**KEY, "OrderId": f"s{number}"}, ReturnShards=True)["Shard"]

    def plain(number: int) -> Any:
        table.meta.client.put_item(TableName=table.name, Item={"Date": "plain", "OrderId": f"p{number}"})

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(call, number) for number in range(20) for call in (sharded, plain)]
        for future in waiting:
            future.result()
    stored = {item["OrderId"]: item["Date"] for item in table.scan()["Items"]}
    assert {stored[f"p{number}"] for number in range(20)} == {"plain"}
    for number in range(20):
        shard = STRATEGY.shard_of("2014-07-09", {"OrderId": f"s{number}"})
        assert stored[f"s{number}"] == f"2014-07-09.{shard}"


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS | st.binary(min_size=1, max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ITEMS = st.builds(
    lambda rest, date, order: {**rest, "Date": date, "OrderId": order},
    st.dictionaries(TEXTS, VALUES, max_size=4),
    TEXTS,
    TEXTS,
)


@settings(max_examples=25)
@given(item=ITEMS, amount=VALUES)
def test_the_callers_objects_are_never_changed(resource: Any, item: dict[str, Any], amount: Any) -> None:
    """Whatever is given to a call is the same after it, down to the last nested list."""
    table = _shared(resource)
    orders = ShardedTable(table, STRATEGY)
    key = {"Date": item["Date"], "OrderId": item["OrderId"]}
    calls: list[tuple[Any, dict[str, Any]]] = [
        (orders.put_item, {"Item": item, "ConditionExpression": Attr("Date").ne(item["Date"] + "x")}),
        (orders.get_item, {"Key": key, "ProjectionExpression": "#a", "ExpressionAttributeNames": {"#a": "Amount"}}),
        (
            orders.update_item,
            {
                "Key": key,
                "UpdateExpression": "SET #a = :a",
                "ConditionExpression": "#d = :d",
                "ExpressionAttributeNames": {"#a": "Amount", "#d": "Date"},
                "ExpressionAttributeValues": {":a": amount, ":d": item["Date"]},
            },
        ),
        (
            orders.query,
            {
                "KeyConditionExpression": "#d = :d",
                "ExpressionAttributeNames": {"#d": "Date"},
                "ExpressionAttributeValues": {":d": item["Date"]},
                "Limit": 1,
            },
        ),
        (orders.batch_get_items, {"keys": [key, dict(key)]}),
        (orders.physical_item, {"item": item}),
        (orders.physical_key, {"key": key}),
        (orders.logical_item, {"item": item}),
        (orders.delete_item, {"Key": key}),
    ]
    for call, options in calls:
        before = deepcopy({name: value for name, value in options.items() if name != "ConditionExpression"})
        call(**options)
        assert {name: value for name, value in options.items() if name != "ConditionExpression"} == before
    before_load = deepcopy(item)
    bulk_load(orders, [item])
    assert item == before_load


def _shared(resource: Any) -> Any:
    """Give the one table that all examples of a test share."""
    for table in resource.tables.all():
        return table
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))
