"""What calls through an installed client become, and what is left as it is: handlers, objects, other tables, errors."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, HTTPClientError, ParamValidationError
from botocore.stub import Stubber

import shardkit
from shardkit import (
    CalculatedSuffix,
    CapacityMeter,
    ConfigurationError,
    InvalidKeyError,
    RandomSuffix,
    Resharding,
    ShardedTable,
    ShardkitError,
    ShardMap,
    ShardQueryError,
    Strategy,
    Unsharded,
    UnsupportedOperationError,
    bulk_load,
    install,
)
from shardkit.cache import CacheOptions, MemoryStore
from shardkit.sharding.operations import DECISIONS
from shardkit.sharding.shard_map import MAP
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, make_table
from tests.support.wire import Body, Service, a_client, error, serving

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

STRATEGY = CalculatedSuffix("sk", shards=3)
DAY = {"S": "day"}
IDS = ("a", "b", "c", "d", "e")


def key(sort: str = "a") -> dict[str, Any]:
    return {"pk": DAY, "sk": {"S": sort}}


def stored(sort: str = "a") -> str:
    return str(STRATEGY.physical_key("day", STRATEGY.shard_of("day", {"sk": sort})))


def a_query(table: str, **more: Any) -> dict[str, Any]:
    return {
        "TableName": table,
        "KeyConditionExpression": "pk = :day",
        "ExpressionAttributeValues": {":day": DAY},
        **more,
    }


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("pk", "S"), ("sk", "S"))


@pytest.fixture
def client(table: Table) -> Iterator[Any]:
    """A client with the table installed, and five items in it."""
    client = boto3.client("dynamodb")
    install(client, {table.name: STRATEGY})
    for sort in IDS:
        client.put_item(TableName=table.name, Item=key(sort))
    yield client
    client.close()


def test_the_callers_handlers_see_the_logical_call_and_what_is_sent(client: Any, table: Table) -> None:
    """Parameters as given; the body as it is sent, and of a fan-out, the outer call's and each inner call's."""
    seen: list[tuple[str, str]] = []

    def built(params: Any, **_: Any) -> None:
        if "Item" in params:
            seen.append(("build", params["Item"]["pk"]["S"]))

    def called(model: Any, params: Any, **_: Any) -> None:
        body = params["body"].decode()
        seen.append(("call", "day." if '"day.' in body else "day"))
        assert model.name in {"PutItem", "Query"}

    def ended(parsed: Any, **_: Any) -> None:
        seen.append(("end", str(sorted(item["pk"]["S"] for item in parsed.get("Items", ())))))

    events = client.meta.events
    events.register("before-parameter-build.dynamodb", built)
    events.register("before-call.dynamodb", called)
    events.register("after-call.dynamodb", ended)
    client.put_item(TableName=table.name, Item=key())
    assert seen == [("build", "day"), ("call", "day."), ("end", "[]")]
    seen.clear()
    assert client.query(**a_query(table.name))["Count"] == len(IDS)
    assert [entry for entry in seen if entry[0] == "call"] == [("call", "day"), *[("call", "day.")] * 3]
    assert seen[-1] == ("end", str(["day"] * len(IDS)))


@pytest.mark.parametrize("how", ["plain", "sharded", "cached", "located", "guard", "move"])
def test_a_batch_with_a_key_twice_is_refused(table: Table, how: str) -> None:
    """As the service does it, where it is asked for other keys, or for none."""
    strategies: dict[str, Strategy] = {"located": RandomSuffix(2, locate=True), "sharded": STRATEGY, "cached": STRATEGY}
    for stage in ("guard", "move"):
        strategies[stage] = Resharding(Unsharded(), STRATEGY, stage=stage)
    caches = {table.name: CacheOptions(max_bytes=100_000)} if how == "cached" else None
    client = boto3.client("dynamodb")
    if how != "plain":
        install(client, {table.name: strategies[how]}, cache=caches)
    with pytest.raises(ClientError, match="Provided list of item keys contains duplicates") as raised:
        client.batch_get_item(RequestItems={table.name: {"Keys": [key("a"), key("b"), key("a")]}})
    assert raised.value.response["Error"]["Code"] == "ValidationException"
    assert raised.value.operation_name == "BatchGetItem"
    client.close()


def test_a_handlers_answer_stands_for_the_logical_call(client: Any, table: Table) -> None:
    """Whether the call would ride or be fanned out: the handler and the caller speak of logical keys."""
    given: dict[str, Any] = {
        "GetItem": {"Item": key()},
        "Query": {"Items": [key()], "Count": 1, "ScannedCount": 1},
        "Scan": {"Items": [key()], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": key()},
        "PutItem": {"Attributes": key()},
        "BatchGetItem": {"Responses": {table.name: [key()]}, "UnprocessedKeys": {}},
        "TransactGetItems": {"Responses": [{"Item": key()}]},
        "BatchWriteItem": {"UnprocessedItems": {table.name: [{"PutRequest": {"Item": key()}}]}},
    }
    params: dict[str, Any] = {
        "GetItem": {"TableName": table.name, "Key": key()},
        "Query": a_query(table.name),
        "Scan": {"TableName": table.name},
        "PutItem": {"TableName": table.name, "Item": key(), "ReturnValues": "ALL_OLD"},
        "BatchGetItem": {"RequestItems": {table.name: {"Keys": [key()]}}},
        "TransactGetItems": {"TransactItems": [{"Get": {"TableName": table.name, "Key": key()}}]},
        "BatchWriteItem": {"RequestItems": {table.name: [{"PutRequest": {"Item": key()}}]}},
    }

    def answer(model: Any, **_: Any) -> Any:
        return AWSResponse("", 200, {}, None), copy.deepcopy(given[model.name])  # type: ignore[arg-type]

    client.meta.events.register("before-call.dynamodb", answer)
    with recording(client) as wire:
        for operation, asked in params.items():
            method = getattr(client, "".join("_" + c.lower() if c.isupper() else c for c in operation).lstrip("_"))
            assert method(**asked) == given[operation], operation
    assert wire.requests == []


def test_stubs_stand_for_logical_calls(client: Any, table: Table) -> None:
    with Stubber(client) as stubs:
        stubs.add_response("get_item", {"Item": key()}, {"TableName": table.name, "Key": key()})
        stubs.add_response("query", {"Items": [key()], "Count": 1, "ScannedCount": 1}, a_query(table.name))
        stubs.add_client_error("put_item", "ConditionalCheckFailedException", response_meta={"x": 1})
        stubs.add_client_error("query", "ThrottlingException")
        assert client.get_item(TableName=table.name, Key=key())["Item"] == key()
        assert client.query(**a_query(table.name))["Items"] == [key()]
        with pytest.raises(client.exceptions.ConditionalCheckFailedException):
            client.put_item(TableName=table.name, Item=key())
        with pytest.raises(ClientError, match="ThrottlingException"):
            client.query(**a_query(table.name))
        stubs.assert_no_pending_responses()
    assert client.query(**a_query(table.name))["Count"] == len(IDS)


def test_the_callers_objects_stay_as_they_are(client: Any, table: Table) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("put_item", {"TableName": table.name, "Item": {**key(), "b": {"B": b"x"}}}),
        ("get_item", {"TableName": table.name, "Key": key()}),
        ("query", a_query(table.name, Limit=2)),
        ("query", a_query(table.name, ExclusiveStartKey=key("c"))),
        ("scan", {"TableName": table.name, "Limit": 1}),
        ("batch_get_item", {"RequestItems": {table.name: {"Keys": [key()]}}}),
        ("batch_write_item", {"RequestItems": {table.name: [{"DeleteRequest": {"Key": key()}}]}}),
        ("transact_write_items", {"TransactItems": [{"Put": {"TableName": table.name, "Item": key()}}]}),
    ]
    for method, params in calls:
        before = copy.deepcopy(params)
        getattr(client, method)(**params)
        assert params == before, method


def test_other_tables_are_sent_as_given(client: Any, table: Table, resource: DynamoDBServiceResource) -> None:
    other = make_table(resource, ("pk", "S"), ("sk", "S"))
    with recording(client) as wire:
        client.put_item(TableName=other.name, Item=key())
        assert client.get_item(TableName=other.name, Key=key())["Item"] == key()
        assert client.query(**a_query(other.name))["Items"] == [key()]
        assert client.scan(TableName=other.name)["Items"] == [key()]
        client.execute_statement(Statement=f'SELECT * FROM "{other.name}"')  # noqa: S608
    assert wire.operations == ["PutItem", "GetItem", "Query", "Scan", "ExecuteStatement"]
    assert all(
        '"day"' in str(body).replace("'", '"') or operation in {"Scan", "ExecuteStatement"}
        for operation, body in wire.requests
    )
    assert other.scan()["Items"] == [{"pk": "day", "sk": "a"}]


def naming(operation: str, table: str) -> dict[str, Any]:
    """The parameters of a refused operation that names a table, wherever it names it."""
    statement = {"Statement": f"DELETE FROM \"{table}\" WHERE pk = 'day'"}  # noqa: S608
    params: dict[str, Any] = {
        "BatchExecuteStatement": {"Statements": [statement]},
        "ExecuteStatement": statement,
        "ExecuteTransaction": {"TransactStatements": [statement]},
        "ImportTable": {"TableCreationParameters": {"TableName": table}},
    }
    found: dict[str, Any] = params.get(operation, {"TableName": table})
    return found


@pytest.mark.parametrize("operation", [name for name, one in DECISIONS.items() if one.action == "refuse"])
def test_operations_that_would_not_see_shards_are_refused_on_sharded_tables_only(
    client: Any, table: Table, operation: str
) -> None:
    """Before botocore looks at the other parameters; on other tables, botocore refuses them itself."""
    if operation not in client.meta.service_model.operation_names:
        pytest.skip(f"this botocore does not know {operation}")
    (method,) = (name for name, known in client.meta.method_to_api_mapping.items() if known == operation)
    with pytest.raises(
        UnsupportedOperationError, match=f"{operation}: is not supported on the sharded table"
    ) as caught:
        getattr(client, method)(**naming(operation, table.name))
    assert isinstance(caught.value, ClientError)
    assert DECISIONS[operation].reason in str(caught.value)
    with pytest.raises(ParamValidationError) as other:
        getattr(client, method)(**naming(operation, "elsewhere"), Unknown=1)
    assert not isinstance(other.value, ShardkitError)


@pytest.mark.parametrize(
    "statement",
    [
        'INSERT INTO "{}" VALUE {{}}',
        "insert into {} value {{}}",
        'INSERT INTO"{}" VALUE {{}}',
        'UPDATE"{}" SET a = 1',
        'SELECT * FROM "{}"."an index"',
        'SELECT * FROM\n\t"{}"',
        'DELETE FROM /* a comment */ "{}"',
        "DELETE FROM -- a comment\n {} WHERE pk = 1",
    ],
)
def test_a_statement_names_its_table_in_many_ways(client: Any, table: Table, statement: str) -> None:
    with recording(client) as wire, pytest.raises(UnsupportedOperationError):
        client.execute_statement(Statement=statement.format(table.name))
    assert wire.requests == []


def test_botocore_refuses_wrong_parameters_as_ever(client: Any, table: Table) -> None:
    plain = boto3.client("dynamodb")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("get_item", {}),
        ("get_item", {"TableName": table.name}),
        ("get_item", {"TableName": 7, "Key": key()}),
        ("get_item", {"TableName": None, "Key": key()}),
        ("get_item", {"TableName": table.name, "Key": "day"}),
        ("get_item", {"TableName": table.name, "Key": {"pk": "day"}}),
        ("get_item", {"TableName": table.name, "Key": key(), "Kye": 1}),
        ("put_item", {"TableName": table.name, "Item": {"pk": {"S": 7}}}),
        ("query", {"TableName": [table.name]}),
        ("query", a_query(table.name, Limit="7")),
        ("batch_get_item", {"RequestItems": [table.name]}),
        ("batch_get_item", {"RequestItems": {table.name: [key()]}}),
        ("batch_get_item", {"RequestItems": None}),
        ("batch_write_item", {"RequestItems": {table.name: {}}}),
        ("batch_write_item", {"RequestItems": 7}),
        ("transact_write_items", {"TransactItems": [None]}),
        ("transact_write_items", {"TransactItems": {"Put": {}}}),
        ("transact_write_items", {"TransactItems": [{"Put": None}]}),
        ("transact_get_items", {"TransactItems": [{"Get": {"TableName": table.name, "Key": 7}}]}),
        ("execute_statement", {"Statement": 7}),
        ("execute_statement", {"Statement": None}),
        ("batch_execute_statement", {"Statements": 7}),
    ]
    for method, params in wrong:
        expected, got = raised(plain, method, params), raised(client, method, params)
        assert (type(got), str(got)) == (type(expected), str(expected)), (method, params)


def raised(client: Any, method: str, params: dict[str, Any]) -> Exception:
    """The error of a call: botocore has errors of its own, of its endpoints, and of jmespath."""
    try:
        getattr(client, method)(**params)
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError(f"no error: {method} {params}")


def test_errors_are_client_errors_that_keep_their_class(client: Any, table: Table) -> None:
    """Libraries catch ClientErrors; ours say more, and can be pickled and copied."""
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InvalidKeyError, "put_item", {"Item": {"pk": DAY}}),
        (InvalidKeyError, "get_item", {"Key": {**key(), "pk": {"S": ""}}}),
        (shardkit.CursorError, "query", {**a_query(table.name), "ExclusiveStartKey": {"shardkit": {"S": "x"}}}),
        (shardkit.UnsupportedExpressionError, "query", {"KeyConditionExpression": "nonsense"}),
        (ConfigurationError, "query", {**a_query(table.name), "IndexName": "missing"}),
        *(
            (InvalidKeyError, method, params)
            for value in ({}, {"S": "day", "N": "1"})
            for method, params in (
                ("put_item", {"Item": {**key(), "pk": value}}),
                ("get_item", {"Key": {**key(), "sk": value}}),
                ("query", {**a_query(table.name), "ExpressionAttributeValues": {":day": value}}),
            )
        ),
    ]
    for kind, method, params in cases:
        with pytest.raises(kind) as caught:
            getattr(client, method)(**{"TableName": table.name, **params})
        for one in (caught.value, pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):  # noqa: S301
            assert isinstance(one, kind)
            assert isinstance(one, ClientError)
            assert one.response["Error"] == {"Code": "ValidationException", "Message": str(one)}
            assert one.response["ResponseMetadata"]["HTTPStatusCode"] == 400
            assert {"RequestId", "HTTPHeaders", "RetryAttempts"} <= one.response["ResponseMetadata"].keys()
            assert type(one).__name__ == type(caught.value).__name__
            assert str(one) == str(caught.value)


def test_a_missing_table_is_the_services_own_error(client: Any) -> None:
    """For a call that rides and one that does not."""
    with install(other := boto3.client("dynamodb"), {"missing": STRATEGY}):
        calls: list[tuple[str, dict[str, Any]]] = [
            ("put_item", {"TableName": "missing", "Item": key()}),
            ("query", a_query("missing")),
            ("describe_table", {"TableName": "missing"}),
            ("batch_get_item", {"RequestItems": {"missing": {"Keys": [key()]}}}),
        ]
        for method, params in calls:
            with pytest.raises(other.exceptions.ResourceNotFoundException) as caught:
                getattr(other, method)(**params)
            assert caught.value.response["Error"]["Code"] == "ResourceNotFoundException"
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_failed_shard_is_its_error_and_the_error_of_the_query(client: Any, table: Table) -> None:
    def refused(_: Body) -> dict[str, Any]:
        return {"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "no"}

    strange = client.exceptions.InternalServerError
    failing = answering(client, "Query", lambda body: refused(body) if "day.1" in str(body) else None)
    with failing, pytest.raises(ShardQueryError) as caught:
        client.query(**a_query(table.name))
    assert isinstance(caught.value, strange)
    assert list(caught.value.errors) == [1]
    assert caught.value.response["Error"]["Code"] == "InternalServerError"
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert isinstance(again, ShardQueryError)
    assert isinstance(again, ClientError)


def test_schemas_are_forgotten_when_a_table_is_made_again(resource: DynamoDBServiceResource) -> None:
    """With its keys swapped, the suffix belongs in another attribute."""
    client = boto3.client("dynamodb")
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    install(client, {table.name: RandomSuffix(1)})
    client.put_item(TableName=table.name, Item=key())
    assert table.scan()["Items"] == [{"pk": "day.1", "sk": "a"}]
    client.delete_table(TableName=table.name)
    client.create_table(
        TableName=table.name,
        KeySchema=[{"AttributeName": "sk", "KeyType": "HASH"}, {"AttributeName": "pk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName=table.name, Item=key())
    assert table.scan()["Items"] == [{"pk": "day", "sk": "a.1"}]


def test_an_index_made_later_is_found(client: Any, table: Table, resource: DynamoDBServiceResource) -> None:
    """Made through the client, or by somebody else; one that does not exist is described again each time."""

    def make_index(by: Any, name: str) -> None:
        by.update_table(
            TableName=table.name,
            AttributeDefinitions=[{"AttributeName": part, "AttributeType": "S"} for part in ("pk", "sk", "city")],
            GlobalSecondaryIndexUpdates=[
                {
                    "Create": {
                        "IndexName": name,
                        "KeySchema": [
                            {"AttributeName": "city", "KeyType": "HASH"},
                            {"AttributeName": "sk", "KeyType": "RANGE"},
                        ],
                        "Projection": {"ProjectionType": "ALL"},
                    }
                }
            ],
        )

    client.put_item(TableName=table.name, Item={**key("z"), "city": {"S": "Bonn"}})
    for by, name in ((client, "by-client"), (resource.meta.client, "by-another")):
        make_index(by, name)
        for _ in range(2):
            page = client.query(
                TableName=table.name,
                IndexName=name,
                KeyConditionExpression="city = :city",
                ExpressionAttributeValues={":city": {"S": "Bonn"}},
            )
            assert page["Items"] == [{**key("z"), "city": {"S": "Bonn"}}]
    with recording(client) as wire:
        for _ in range(2):
            with pytest.raises(ClientError, match="'missing' is not a known index"):
                client.query(**a_query(table.name, IndexName="missing"))
    assert wire.operations == ["DescribeTable"] * 2


@pytest.mark.parametrize("strategy", [STRATEGY, RandomSuffix(3), CalculatedSuffix("city", 3)])
def test_paginators(resource: DynamoDBServiceResource, strategy: Any) -> None:
    """Page size, most items, resumption, search: whether the shard can be calculated from the key or not."""
    client = boto3.client("dynamodb")
    table = make_table(resource, ("pk", "S"), ("sk", "S"))
    install(client, {table.name: strategy})
    items = [{**key(f"{number:02}"), "city": {"S": f"city {number}"}} for number in range(20)]
    for item in items:
        client.put_item(TableName=table.name, Item=item)
    paginator: Any = client.get_paginator("query")
    pages = list(paginator.paginate(**a_query(table.name), PaginationConfig={"PageSize": 3}))
    assert [item for page in pages for item in page["Items"]] == items
    assert max(len(page["Items"]) for page in pages) == 3
    assert all(page["LastEvaluatedKey"].keys() == {"pk", "sk"} for page in pages if "LastEvaluatedKey" in page)
    found: list[Any] = []
    token = None
    while True:
        config = {"MaxItems": 7, "PageSize": 5, "StartingToken": token}
        result = paginator.paginate(**a_query(table.name), PaginationConfig=config).build_full_result()
        found += result["Items"]
        token = result.get("NextToken")
        if token is None:
            break
        assert len(result["Items"]) == 7
    assert found == items
    assert list(paginator.paginate(**a_query(table.name, ScanIndexForward=False)).search("Items[].sk.S")) == [
        item["sk"]["S"] for item in reversed(items)
    ]
    scanned = client.get_paginator("scan").paginate(TableName=table.name, PaginationConfig={"PageSize": 3})
    assert sorted(scanned.search("Items[].sk.S")) == [item["sk"]["S"] for item in items]
    counted = [page["Count"] for page in paginator.paginate(**a_query(table.name, Select="COUNT", Limit=6))]
    assert sum(counted) == 20
    client.get_waiter("table_exists").wait(TableName=table.name)


@pytest.mark.parametrize("read", ["a key", "an index", "an index, backwards", "a scan"])
def test_a_start_key_that_a_library_builds_from_an_item(resource: DynamoDBServiceResource, read: str) -> None:
    """As PynamoDB does, if its caller stops within a page: the names are the key's, the values the item's."""
    client = boto3.client("dynamodb")
    index = GlobalIndex("city", ("city", "S"), ("rank", "N"))
    table = make_table(resource, ("pk", "S"), ("sk", "S"), global_indexes=[index])
    install(client, {table.name: CalculatedSuffix("sk", 7)})
    items = [{**key(f"{number:02}"), "city": {"S": "Bonn"}, "rank": {"N": "1"}} for number in range(12)]
    for item in items:
        client.put_item(TableName=table.name, Item=item)
    by_city = {"KeyConditionExpression": "city = :city", "ExpressionAttributeValues": {":city": {"S": "Bonn"}}}
    params: dict[str, Any] = {
        "a key": a_query(table.name),
        "an index": {"TableName": table.name, "IndexName": "city", **by_city},
        "an index, backwards": {"TableName": table.name, "IndexName": "city", "ScanIndexForward": False, **by_city},
        "a scan": {"TableName": table.name},
    }[read]
    call: Any = client.scan if read == "a scan" else client.query
    found: list[Any] = []
    start: dict[str, Any] = {}
    while (page := call(**params, Limit=3, **start)).get("LastEvaluatedKey"):
        found += page["Items"]
        assert page["LastEvaluatedKey"]["pk"] == items[0]["pk"]
        start = {"ExclusiveStartKey": {name: page["Items"][-1][name] for name in page["LastEvaluatedKey"]}}
        assert len(found) <= len(items)
    found += page["Items"]
    assert sorted(item["sk"]["S"] for item in found) == [item["sk"]["S"] for item in items]


def test_an_item_without_suffix_is_no_place_to_resume_at(client: Any, table: Table) -> None:
    table.put_item(Item={"pk": "plain", "sk": "a"})
    table.put_item(Item={"pk": "plain", "sk": "b"})
    with pytest.raises(ClientError, match="stored without a suffix"):
        list(client.get_paginator("scan").paginate(TableName=table.name, PaginationConfig={"PageSize": 1}))


def test_a_meter_counts_requests_once(client: Any, table: Table, resource: DynamoDBServiceResource) -> None:
    """By logical keys, whether a call rides or is fanned out; batches and transactions over several tables too."""
    second, plain = (make_table(resource, ("pk", "S"), ("sk", "S")) for _ in range(2))
    other = boto3.client("dynamodb")
    install(other, {table.name: STRATEGY, second.name: RandomSuffix(2)})
    other.put_item(TableName=second.name, Item=key())
    meter = CapacityMeter()
    with meter.attach(other), recording(other) as wire:
        other.put_item(TableName=table.name, Item=key())
        other.get_item(TableName=table.name, Key=key())
        assert meter.requests == len([name for name, _ in wire.requests if name != "DescribeTable"])
        other.query(**a_query(table.name))
        # moto takes equal keys of several tables for duplicates.
        names = table.name, second.name, plain.name
        other.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": key(name)}}] for name in names})
        other.transact_write_items(TransactItems=[{"Put": {"TableName": name, "Item": key("f")}} for name in names])
        other.put_item(TableName=plain.name, Item=key())
        assert meter.requests == len([name for name, _ in wire.requests if name != "DescribeTable"])
    assert {name: found for name, found in meter.by_key if name != plain.name} == {
        table.name: "day",
        second.name: "day",
    }


def test_budgets_and_meters_refuse_what_they_refuse(client: Any, table: Table) -> None:
    """A budget's refusal is the same error as on other calls, and nothing is sent."""
    budget = shardkit.CapacityBudget(write_units=1, timeout=0)
    with budget.attach(client):
        client.put_item(TableName=table.name, Item={**key(), "a": {"S": "x" * 5000}})
        with recording(client) as wire, pytest.raises(shardkit.CapacityBudgetError) as caught:
            client.put_item(TableName=table.name, Item=key())
        assert wire.requests == []
        assert type(caught.value) is shardkit.CapacityBudgetError


def test_calls_inside_calls(client: Any, table: Table) -> None:
    """A handler that reads the sharded table in each request of a fan-out, and in each ride."""
    counts: list[int] = []
    inside = ContextVar("inside", default=False)  # threads of a fan-out run in the caller's context

    def read(**_: Any) -> None:
        if not inside.get():
            before = inside.set(True)
            try:
                counts.append(client.query(**a_query(table.name))["Count"])
                assert client.get_item(TableName=table.name, Key=key("b"))["Item"] == key("b")
            finally:
                inside.reset(before)

    client.meta.events.register("before-send.dynamodb.Query", read)
    client.meta.events.register("before-send.dynamodb.GetItem", read)
    assert client.query(**a_query(table.name))["Count"] == len(IDS)
    assert client.get_item(TableName=table.name, Key=key())["Item"] == key()
    assert set(counts) == {len(IDS)}


def test_many_threads_begin_at_once(table: Table) -> None:
    client = boto3.client("dynamodb")
    install(client, {table.name: STRATEGY})
    client.put_item(TableName=table.name, Item=key())
    client = boto3.client("dynamodb")
    install(client, {table.name: STRATEGY})
    start = threading.Barrier(8)

    def first(_: int) -> Any:
        start.wait()
        return client.get_item(TableName=table.name, Key=key())["Item"], client.query(**a_query(table.name))["Items"]

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(first, range(8))) == [(key(), [key()])] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_queries(client: Any, table: Table) -> None:
    assert client.query(**a_query(table.name))["Count"] == len(IDS)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(client.query(**a_query(table.name))["Count"] != len(IDS))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_sharded_table_over_an_installed_client_is_sharded_once(table: Table) -> None:
    resource = boto3.resource("dynamodb")
    install(resource, {table.name: STRATEGY})
    sharded = ShardedTable(resource.Table(table.name), STRATEGY)
    sharded.put_item(Item={"pk": "day", "sk": "a"})
    assert table.scan()["Items"] == [{"pk": stored(), "sk": "a"}]
    assert sharded.query(KeyConditionExpression=Key("pk").eq("day"))["Items"] == [{"pk": "day", "sk": "a"}]
    assert bulk_load(sharded, [{"pk": "day", "sk": "b"}]).written == 1
    assert {item["pk"] for item in table.scan()["Items"]} == {stored(), stored("b")}


OTHERS = {
    "shards": CalculatedSuffix("sk", shards=7),
    "separator": CalculatedSuffix("sk", shards=3, separator="#"),
    "type": RandomSuffix(3),
    "none": Unsharded(),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_sharded_table_with_another_strategy_than_is_installed_is_refused(table: Table, other: Strategy) -> None:
    """It was accepted: of 50 items that it put, the installed client found 32."""
    resource = boto3.resource("dynamodb")
    again = resource.Table(table.name)
    with install(resource, {table.name: STRATEGY}):
        with pytest.raises(ConfigurationError) as caught:
            ShardedTable(again, other)
        assert f"on this client with {STRATEGY!r}, got {other!r}" in str(caught.value)
        ShardedTable(resource.Table("other"), other)
        ShardedTable(table, other)  # of another client
    ShardedTable(again, other)


def test_strategies_that_may_stand_beside_an_installed_one_are_not_refused(table: Table) -> None:
    """That locate reads more shards changes no key; a map and the stages of a move are made to meet others."""
    resource = boto3.resource("dynamodb")
    again = resource.Table(table.name)
    with install(resource, {table.name: RandomSuffix(3)}):
        for other in (RandomSuffix(3, locate=True), ShardMap(), Resharding(Unsharded(), STRATEGY, stage="guard")):
            ShardedTable(again, other)
    with install(resource, {table.name: CalculatedSuffix(lambda item: item["sk"], shards=3)}):
        ShardedTable(again, CalculatedSuffix(lambda item: item["sk"], shards=3))
        with pytest.raises(ConfigurationError, match="is installed on this client"):
            ShardedTable(again, CalculatedSuffix(lambda item: item["sk"], shards=4))


def test_a_bulk_load_of_an_installed_table_would_bypass_the_installation(table: Table) -> None:
    """It is refused: shardkit's own calls are not sharded again, so the items would have no suffix."""
    resource = boto3.resource("dynamodb")
    with install(resource, {table.name: STRATEGY}):
        with pytest.raises(ConfigurationError, match=r"table: .* is installed as a sharded table .* ShardedTable"):
            bulk_load(resource.Table(table.name), [{"pk": "day", "sk": "a"}])
        assert table.scan()["Items"] == []
        other = make_table(resource, ("pk", "S"))
        assert bulk_load(other, [{"pk": "day"}]).written == 1
    assert bulk_load(resource.Table(table.name), [{"pk": "day", "sk": "a"}]).written == 1


def test_texts_and_numbers_pass_unchanged(client: Any, table: Table) -> None:
    """What botocore sends of an unsharded item, it sends of a sharded one: the suffix apart."""
    item = {
        **key("schlüssel 🔑"),
        "n": {"N": "12345678901234567890123456789012345678"},
        "small": {"N": "1E-130"},
        "b": {"B": bytearray(b"\x00\xff")},
        "bs": {"BS": [b"\x00", b"\x01"]},
        "m": {"M": {"x": {"L": [{"NULL": True}, {"BOOL": False}, {"B": b"y"}]}}},
        "empty": {"S": ""},
    }
    plain = boto3.client("dynamodb")
    with recording(client) as ours, recording(plain) as theirs:
        client.put_item(TableName=table.name, Item=item)
        plain.put_item(TableName=table.name, Item=item)
    (_, mine), (_, its) = ours.requests[0], theirs.requests[0]
    assert mine["Item"].pop("pk") == {"S": stored("schlüssel 🔑")}
    its["Item"].pop("pk")
    assert mine == its
    found = client.get_item(TableName=table.name, Key=key("schlüssel 🔑"))["Item"]
    assert found == {**item, "b": {"B": b"\x00\xff"}}
    with pytest.raises(InvalidKeyError, match="unpaired surrogate"):
        client.get_item(TableName=table.name, Key=key("\ud800"))


def test_legacy_parameters(client: Any, table: Table) -> None:
    equal = {"AttributeValueList": [DAY], "ComparisonOperator": "EQ"}
    page = client.query(TableName=table.name, KeyConditions={"pk": equal}, Limit=9)
    assert page["Items"] == [key(sort) for sort in IDS]
    old = client.put_item(
        TableName=table.name, Item=key(), Expected={"sk": {"Value": {"S": "a"}}}, ReturnValues="ALL_OLD"
    )
    assert old["Attributes"] == key()
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        client.put_item(TableName=table.name, Item=key(), Expected={"sk": {"Exists": False}})
    client.update_item(TableName=table.name, Key=key(), AttributeUpdates={"a": {"Value": {"S": "x"}, "Action": "PUT"}})
    with recording(client) as wire:
        item = client.get_item(TableName=table.name, Key=key(), AttributesToGet=["a"])["Item"]
    assert item["a"] == {"S": "x"}
    assert wire.bodies("GetItem")[0]["AttributesToGet"] == ["a"]


ARN = "arn:aws:dynamodb:us-east-1:111122223333:table/T"
DESCRIBED = {
    "TableName": "T",
    "TableArn": ARN,
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
}


def of_service(operation: str, body: Body) -> tuple[int, Any]:
    if operation == "DescribeTable":
        return 200, {"Table": DESCRIBED}
    if operation == "Query":
        return 200, {"Items": [], "Count": 0, "ScannedCount": 0}
    return 200, {}


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(of_service) as service:
        yield service


def keys_sent(service: Service) -> list[tuple[str, str]]:
    return [
        (body["TableName"], body["Item"]["pk"]["S"])
        for operation, body in service.requests
        if operation != "DescribeTable"
    ]


@pytest.mark.parametrize(("installed", "called"), [("T", ARN), (ARN, "T"), (ARN, ARN), ("T", "T")])
def test_the_name_and_the_arn_of_a_table(service: Service, installed: str, called: str) -> None:
    """One DescribeTable finds that they are the same table; requests name it as the call does."""
    client = a_client(service)
    install(client, {installed: STRATEGY})
    for _ in range(2):
        client.put_item(TableName=called, Item=key())
        client.get_item(TableName=called, Key=key())
        client.query(**a_query(called))
    assert service.operations.count("DescribeTable") == 1
    assert {body["TableName"] for name, body in service.requests if name != "DescribeTable"} == {called}
    puts = [body["Item"]["pk"]["S"] for body in service.bodies("PutItem")]
    assert puts == [stored()] * 2
    client.close()


@pytest.mark.parametrize(
    ("installed", "called"), [("T", ARN.replace("1111", "9999")), (ARN.replace("east", "west"), "T"), (ARN, ARN + "2")]
)
def test_a_table_of_the_same_name_elsewhere(service: Service, installed: str, called: str) -> None:
    """In another account or region: its calls are not sharded, and one DescribeTable finds that out."""
    client = a_client(service)
    install(client, {installed: STRATEGY})
    for _ in range(2):
        client.put_item(TableName=called, Item=key())
    assert keys_sent(service) == [(called, "day")] * 2
    assert service.operations.count("DescribeTable") <= 1
    client.close()


ELSEWHERE = ARN.replace("1111", "9999")


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        ({"T": STRATEGY, ELSEWHERE: CalculatedSuffix("sk", 5, separator="~")}, ("T", ELSEWHERE)),
        ({ELSEWHERE: CalculatedSuffix("sk", 5, separator="~"), "T": STRATEGY}, ("T", ELSEWHERE)),
        ({"T": Unsharded(), ELSEWHERE: Unsharded()}, ("T", ELSEWHERE)),
        ({"T": STRATEGY}, ("T", ARN)),
    ],
    ids=["two tables", "the other way round", "without suffixes", "one table"],
)
@pytest.mark.parametrize("one_store", [False, True], ids=["a store each", "one store"])
def test_tables_of_one_name(service: Service, tables: Any, names: tuple[str, str], one_store: bool) -> None:
    """Of two accounts, by ARN, or one that has both names: a cache sees all writes, and a meter shows logical keys."""
    items: dict[tuple[str, str, str], Any] = {}

    def answer(operation: str, body: Body) -> tuple[int, Any]:
        if operation == "DescribeTable":
            return 200, {"Table": {**DESCRIBED, "TableArn": ELSEWHERE if body["TableName"] == ELSEWHERE else ARN}}
        where = ELSEWHERE if body["TableName"] == ELSEWHERE else ARN
        key = body.get("Item") or body["Key"]
        place = where, key["pk"]["S"], key["sk"]["S"]
        if operation == "PutItem":
            items[place] = key
            return 200, {}
        return 200, {"Item": items[place]} if place in items else {}

    service.answer = answer
    client, meter = a_client(service), CapacityMeter()
    of_copies: Any = {"store": MemoryStore(1_000_000)} if one_store else {"max_bytes": 1_000_000}
    caches = {name: CacheOptions(**of_copies) for name in tables}
    expected: dict[str, Any] = {}
    with install(client, tables, cache=caches), meter.attach(client):
        for number in range(3):
            for place, name in enumerate(names):
                for reader in names:
                    client.get_item(TableName=reader, Key=key())
                item = {**key(), "n": {"S": f"{number}.{place}"}}
                client.put_item(TableName=name, Item=item)
                expected |= dict.fromkeys(names if len(tables) == 1 else (name,), item)
                assert {reader: client.get_item(TableName=reader, Key=key()).get("Item") for reader in names} == {
                    reader: expected.get(reader) for reader in names
                }
    assert {logical for _, logical in meter.by_key} - {MAP} == {"day"}
    client.close()


def test_an_arn_of_a_table_that_is_made_later(service: Service) -> None:
    """What is not known while a table is missing is not remembered."""
    missing = [error("ResourceNotFoundException")]
    service.answer = lambda operation, body: missing[0] if missing else of_service(operation, body)
    client = a_client(service)
    install(client, {"T": STRATEGY})
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.put_item(TableName=ARN, Item=key())
    missing.clear()
    client.put_item(TableName=ARN, Item=key())
    assert service.bodies("PutItem")[-1]["Item"]["pk"] == {"S": stored()}
    client.close()


@pytest.mark.parametrize("operation", ["put_item", "query"])
def test_retries_and_throttles(service: Service, operation: str) -> None:
    """A ride is retried by botocore and throttled as ever; a fan-out's throttles end as the service's error too."""
    service.answer = lambda name, body: (
        of_service(name, body) if name == "DescribeTable" else error("ProvisionedThroughputExceededException")
    )
    client = a_client(service)
    install(client, {"T": CalculatedSuffix("sk", shards=1)}, rng=None)
    params = {"put_item": {"TableName": "T", "Item": key()}, "query": a_query("T")}[operation]
    with _quick(client), pytest.raises(client.exceptions.ProvisionedThroughputExceededException):
        getattr(client, operation)(**params)
    client.close()


def _quick(client: Any) -> Any:
    from shardkit.runtime.runner import on_clock
    from shardkit.testing.clock import VirtualClock

    return on_clock(client, VirtualClock())


def test_an_answer_that_is_not_dynamodbs(service: Service) -> None:
    service.answer = lambda name, body: of_service(name, body) if name == "DescribeTable" else (200, b"<html>")
    client = a_client(service)
    install(client, {"T": STRATEGY})
    with pytest.raises(ClientError):
        client.query(**a_query("T"))
    client.close()


def test_a_client_that_is_closed_and_copies_of_events(client: Any, table: Table) -> None:
    """Handlers of a copy are those of the client."""
    copied = copy.copy(client.meta.events)
    assert copied is not client.meta.events
    client.meta.events = copied
    client.put_item(TableName=table.name, Item=key("q"))
    assert stored("q") in {item["pk"] for item in table.scan()["Items"] if item["sk"] == "q"}
    client.close()
    client.put_item(TableName=table.name, Item=key("r"))


@pytest.mark.parametrize("asked", ["TOTAL", "INDEXES"])
def test_consumed_capacity_is_summed_in_the_callers_structure(client: Any, table: Table, asked: str) -> None:
    """Of a fan-out, of a batch over several tables, and nothing where it was not asked for."""
    total = {"TableName": table.name, "CapacityUnits": 0.5}
    third = {**total, "Table": {"CapacityUnits": 0.5}}

    def answer(body: Body) -> dict[str, Any]:
        assert body.get("ReturnConsumedCapacity") in {asked, None}
        found: dict[str, Any] = {"Items": [], "Count": 0, "ScannedCount": 0}
        if "ReturnConsumedCapacity" in body:
            found["ConsumedCapacity"] = third if asked == "INDEXES" else total
        return found

    with answering(client, "Query", answer):
        consumed = client.query(**a_query(table.name, ReturnConsumedCapacity=asked))["ConsumedCapacity"]
        assert "ConsumedCapacity" not in client.query(**a_query(table.name))
    summed = {"TableName": table.name, "CapacityUnits": 1.5}
    assert consumed == (summed | {"Table": {"CapacityUnits": 1.5}} if asked == "INDEXES" else summed)


def test_segments_of_a_scan(client: Any, table: Table) -> None:
    found = [
        item["sk"]["S"]
        for segment in range(3)
        for page in client.get_paginator("scan").paginate(
            TableName=table.name, Segment=segment, TotalSegments=3, PaginationConfig={"PageSize": 1}
        )
        for item in page["Items"]
    ]
    assert sorted(found) == sorted(IDS)


def test_a_starting_token_with_binary_keys(resource: DynamoDBServiceResource) -> None:
    """A token of botocore holds the key's attributes by name, and its values as it shows them."""
    client = boto3.client("dynamodb")
    table = make_table(resource, ("pk", "B"), ("sk", "B"))
    install(client, {table.name: RandomSuffix(3)})
    items = [{"pk": {"B": b"\x00\xff"}, "sk": {"B": bytes([number])}} for number in range(5)]
    for item in items:
        client.put_item(TableName=table.name, Item=item)
    paginator: Any = client.get_paginator("query")
    asked = a_query(table.name) | {"ExpressionAttributeValues": {":day": {"B": b"\x00\xff"}}}
    first = paginator.paginate(**asked, PaginationConfig={"MaxItems": 2, "PageSize": 2}).build_full_result()
    rest = paginator.paginate(**asked, PaginationConfig={"StartingToken": first["NextToken"]}).build_full_result()
    assert first["Items"] + rest["Items"] == items


def test_a_service_that_does_not_answer(service: Service) -> None:
    """A connection that breaks is botocore's own error, of a call that rides and of one that does not."""
    service.answer = lambda name, body: of_service(name, body) if name == "DescribeTable" else None
    client = a_client(service)
    install(client, {"T": CalculatedSuffix("sk", shards=1)})
    with pytest.raises(HTTPClientError):
        client.put_item(TableName="T", Item=key())
    with pytest.raises(HTTPClientError) as caught:
        client.query(**a_query("T"))
    assert not isinstance(caught.value, ShardkitError)
    service.answer = of_service
    client.put_item(TableName="T", Item=key())
    client.close()
