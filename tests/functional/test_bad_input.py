"""What cannot work is refused with an error of shardkit's that says what to do, before anything is written."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

import shardkit
from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    RandomSuffix,
    ShardedTable,
    Strategy,
    TimeSeries,
    Unsharded,
    bulk_load,
    errors,
    install,
)
from shardkit.bulk.report import BulkReport, BulkResult
from shardkit.cache import CachedTable
from shardkit.errors import (
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    InvalidValueError,
    MissingCredentialsError,
    ShardkitError,
    ShardUnknownError,
    TableNotDescribedError,
    UnsupportedExpressionError,
    UnsupportedParameterError,
)
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

KEY = {"Date": "2014-07-09", "OrderId": "A17"}
ONE: Any = KEY
FILE: Any = "orders.csv"
SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in KEY],
}
DAY = Key("Date").eq("2014-07-09")


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"))


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, CalculatedSuffix("OrderId", 5))


@pytest.mark.parametrize("shards", [0, -1, "200", 1.5, None, True, {"hot": 0}, {"hot": "x"}])
def test_shards_that_are_no_number_of_shards(shards: Any) -> None:
    """Strategies refuse them when they are made."""
    with pytest.raises(ConfigurationError, match="shards"):
        CalculatedSuffix("OrderId", shards)
    with pytest.raises(ConfigurationError, match="shards"):
        RandomSuffix(shards)


def test_a_strategy_as_its_text_form(table: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"strategy: must be .*; give Strategy\.from_dict\(…\)$"):
        ShardedTable(table, RandomSuffix(5).to_dict())  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", [CalculatedSuffix("pk", 5), RandomSuffix(5)])
def test_a_number_cannot_carry_a_suffix(resource: DynamoDBServiceResource, strategy: Strategy) -> None:
    """An N partition key is refused as soon as the schema is known, with the way round it; Unsharded takes it."""
    table = make_table(resource, ("pk", "N"))
    sharded = ShardedTable(table, strategy)
    with recording(table.meta.client) as wire:
        with pytest.raises(ConfigurationError, match=r"type N.*text"):
            sharded.put_item(Item={"pk": 1})
        with pytest.raises(ConfigurationError, match=r"type N.*text"):
            bulk_load(sharded, [{"pk": 1}])
    assert set(wire.operations) == {"DescribeTable"}
    schema = {"KeySchema": table.key_schema, "AttributeDefinitions": table.attribute_definitions}
    with pytest.raises(ConfigurationError, match="type N"):
        ShardedTable(table, strategy, key_schema=schema)
    ShardedTable(table, Unsharded()).put_item(Item={"pk": 1})


@pytest.mark.parametrize("by", ["pk", ("pk",), ("pk", "pk")])
@pytest.mark.parametrize("sort_key", [None, ("sk", "S")])
def test_the_partition_key_alone_spreads_nothing(resource: DynamoDBServiceResource, by: Any, sort_key: Any) -> None:
    """It gives all items of a key one shard, and is refused as soon as the schema is known; one shard may be meant."""
    table = make_table(
        resource, ("pk", "S"), sort_key, global_indexes=[GlobalIndex("city", ("city", "S"), ("pk", "S"))]
    )
    item = {"pk": "A", **({} if sort_key is None else {"sk": "1"})}
    sharded = ShardedTable(table, CalculatedSuffix(by, 5))
    with recording(table.meta.client) as wire:
        remedy = "or RandomSuffix$" if sort_key else r"use Unsharded\(\), and for one hot item a ShardedCounter or"
        with pytest.raises(ConfigurationError, match=rf"^by: 'pk' .*{remedy}"):
            sharded.put_item(Item=item)
        with pytest.raises(ConfigurationError, match=r"^by: 'pk' "):
            bulk_load(sharded, [item])
    assert set(wire.operations) == {"DescribeTable"}
    schema = {"KeySchema": table.key_schema, "AttributeDefinitions": table.attribute_definitions}
    with pytest.raises(ConfigurationError, match=r"^by: 'pk' "):
        ShardedTable(table, CalculatedSuffix(by, 5), key_schema=schema)
    ShardedTable(table, CalculatedSuffix(by, 1)).put_item(Item=item)
    ShardedTable(table, CalculatedSuffix(("pk", "other"), 5)).put_item(Item={**item, "other": 1})


def delete_in_batch(orders: ShardedTable, key: Any) -> None:
    with orders.batch_writer() as batch:
        batch.delete_item(Key=key)


# What is given is wrong: the types are left out of it.
Call = Callable[[Any], Any]
REFUSED: dict[str, tuple[Call, type[ShardkitError], str]] = {
    "a key that is none": (lambda orders: orders.get_item(Key="A17"), InvalidKeyError, "'A17'"),
    "an item that is none": (lambda orders: orders.put_item(Item=[("Date", "x")]), InvalidKeyError, "list"),
    "a text that is none": (lambda orders: orders.scan(IndexName="\ud800"), InvalidValueError, "UTF-8"),
    "no item at all": (lambda orders: orders.put_item(Item=None), InvalidKeyError, "None"),
    "an item without a key": (lambda orders: orders.put_item(Item={"Date": "x"}), InvalidKeyError, "OrderId: missing"),
    "an item with a misspelt key": (
        lambda orders: orders.put_item(Item={"Date": "x", "orderId": "A17"}),
        InvalidKeyError,
        "OrderId: missing in the item, which has 'orderId'",
    ),
    "an empty key": (lambda orders: orders.put_item(Item={**KEY, "Date": ""}), InvalidKeyError, "empty"),
    "a key of the wrong type": (lambda orders: orders.put_item(Item={**KEY, "OrderId": 5}), InvalidKeyError, "type N"),
    "a key that is a list": (lambda orders: orders.get_item(Key={**KEY, "Date": ["x"]}), InvalidKeyError, "type L"),
    "more than a key": (
        lambda orders: orders.get_item(Key={**KEY, "Total": 5}),
        InvalidKeyError,
        "which has Date, OrderId; leave it out",
    ),
    "more than a key in a list": (
        lambda orders: orders.batch_get_items([KEY, {**KEY, "Total": 5}]),
        InvalidKeyError,
        "Total: is in the key, but is not a key attribute of table",
    ),
    "more than a key in a transaction": (
        lambda orders: orders.transact_write_items(TransactItems=[{"Delete": {"Key": {**KEY, "Total": 5}}}]),
        InvalidKeyError,
        "Total: is in the key, but is not a key attribute of table",
    ),
    "more than a key in a batch": (
        lambda orders: delete_in_batch(orders, {**KEY, "Total": 5}),
        BulkLoadError,
        "Total: is in the key, but is not a key attribute of table",
    ),
    "half a key": (lambda orders: orders.delete_item(Key={"OrderId": "A17"}), InvalidKeyError, "Date: missing"),
    "a float": (lambda orders: orders.put_item(Item={**KEY, "Amount": 1.5}), InvalidValueError, "'Amount': got 1.5"),
    "a nested float": (lambda orders: orders.put_item(Item={**KEY, "A": [{"b": 0.1}]}), InvalidValueError, "Decimal"),
    "a number too long": (
        lambda orders: orders.put_item(Item={**KEY, "Amount": Decimal("1." + "1" * 40)}),
        InvalidValueError,
        "38 digits",
    ),
    "not a number": (lambda orders: orders.put_item(Item={**KEY, "A": Decimal("NaN")}), InvalidValueError, "NaN"),
    "an object": (lambda orders: orders.put_item(Item={**KEY, "Amount": object()}), InvalidValueError, "object"),
    "a float in an expression": (
        lambda orders: orders.update_item(
            Key=KEY, UpdateExpression="SET Amount = :a", ExpressionAttributeValues={":a": 1.5}
        ),
        InvalidValueError,
        "':a': got 1.5",
    ),
    "a float in a legacy condition": (
        lambda orders: orders.put_item(Item=KEY, Expected={"Amount": {"Value": 1.5}}),
        InvalidValueError,
        "'Amount': got 1.5",
    ),
    "a query without a key condition": (lambda orders: orders.query(), UnsupportedExpressionError, "Key"),
    "a query by the sort key": (
        lambda orders: orders.query(KeyConditionExpression=Key("OrderId").eq("A17")),
        UnsupportedExpressionError,
        "on the partition key 'Date', got '=' on 'OrderId'",
    ),
    "a query over a range of partition keys": (
        lambda orders: orders.query(KeyConditionExpression=Key("Date").begins_with("2014")),
        UnsupportedExpressionError,
        "on the partition key 'Date', got begins_with on 'Date'",
    ),
    "a query on an unknown index": (
        lambda orders: orders.query(KeyConditionExpression=DAY, IndexName="no"),
        ConfigurationError,
        "'no'",
    ),
    "a Limit of nothing": (lambda orders: orders.query(KeyConditionExpression=DAY, Limit=0), ConfigurationError, "0"),
    "an empty list of keys": (lambda orders: orders.batch_get_items([]), ConfigurationError, "empty"),
    "an empty list of items": (lambda orders: bulk_load(orders, []), ConfigurationError, "no items"),
    "an item for a list of items": (lambda orders: bulk_load(orders, ONE), ConfigurationError, "dict"),
    "a file's name for a list of items": (
        lambda orders: bulk_load(orders, FILE),
        ConfigurationError,
        "got str; give a list or a generator; for a file, give open_source('…', table=…)",
    ),
    "a shard that is none": (lambda orders: orders.put_item(Item=KEY, Shard=6), ConfigurationError, "1 to 5"),
}


@pytest.mark.parametrize(("call", "error", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused(
    orders: ShardedTable, table: Table, call: Call, error: type[ShardkitError], said: str
) -> None:
    """The error is of shardkit's family, names what was given, and nothing but the schema was asked for."""
    with recording(table.meta.client) as wire, pytest.raises(error) as caught:
        call(orders)
    assert said in str(caught.value)
    assert set(wire.operations) <= {"DescribeTable"}
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - what was just made here
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_boto3s_own_classes_still_catch_them(orders: ShardedTable) -> None:
    """A float is a TypeError, as boto3 raises it; what is wrong with a value is a ValueError."""
    with pytest.raises(TypeError, match=r"Float types are not supported\. Use Decimal types instead; give str, "):
        orders.put_item(Item={**KEY, "Amount": 1.5})
    with pytest.raises(ValueError, match="OrderId"):
        orders.put_item(Item={"Date": "x"})


def test_a_cursor_of_another_key(orders: ShardedTable, table: Table) -> None:
    """It is refused before anything is read with it."""
    for number in range(6):
        orders.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number}"})
    cursor = orders.query(KeyConditionExpression=DAY, Limit=2)["LastEvaluatedKey"]
    other = Key("Date").eq("2014-07-10")
    with recording(table.meta.client) as wire, pytest.raises(CursorError, match="another key"):
        orders.query(KeyConditionExpression=other, ExclusiveStartKey=cursor)
    assert wire.requests == []


def test_a_key_without_what_by_names(table: Table) -> None:
    """The error says which attribute is missing, and both ways out."""
    orders = ShardedTable(table, CalculatedSuffix("Customer", 5))
    with recording(table.meta.client) as wire, pytest.raises(ShardUnknownError, match=r"Customer.*Key=.*Shard="):
        orders.get_item(Key=KEY)
    assert wire.operations == ["DescribeTable"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda orders: orders.get_item(Key=KEY, Consistent=True), "did you mean ConsistentRead?"),
        (lambda orders: orders.put_item(Item=KEY, ConditionExpresion="x"), "did you mean ConditionExpression?"),
        (lambda orders: orders.put_item(Item=KEY, Shrad=1), "did you mean Shard?"),
        (lambda orders: orders.update_item(Key=KEY, Update="x"), "give one of AttributeUpdates, "),
        (lambda orders: orders.delete_item(Key=KEY, Conditions="x"), "did you mean Condition"),
        (lambda orders: orders.query(KeyCondition=DAY), "did you mean KeyConditions?"),
        (lambda orders: orders.query(KeyConditionExpresion=DAY), "did you mean KeyConditionExpression?"),
        (lambda orders: orders.query(key_condition_expression=DAY), "did you mean KeyConditionExpression?"),
        (lambda orders: orders.query(KeyConditionExpression=DAY, LIMIT=5), "did you mean Limit?"),
        (
            lambda orders: orders.query(KeyConditionExpression=DAY, Limt=5, Slect="COUNT"),
            "Limt (did you mean Limit?), Slect (did you mean Select?)",
        ),
        (lambda orders: next(orders.query_items(KeyConditionExpression=DAY, Limts=5)), "did you mean Limit?"),
        (lambda orders: orders.query(KeyConditionExpression=DAY, Nonsense=5), "give one of AttributesToGet, "),
        (lambda orders: orders.scan(FilterExpresion="x"), "did you mean FilterExpression?"),
        (lambda orders: orders.scan(ReturnShard=True), "did you mean ReturnShards?"),
        (lambda orders: next(orders.scan_items(Limts=5)), "did you mean Limit?"),
        (lambda orders: orders.batch_get_items([KEY], Consistent=True), "did you mean ConsistentRead?"),
    ],
)
def test_a_misspelt_keyword(orders: ShardedTable, table: Table, call: Call, said: str) -> None:
    """It is the ParamValidationError that boto3 users know, with the name that is meant, and nothing is sent."""
    with recording(table.meta.client) as wire, pytest.raises(ParamValidationError, match=re.escape(said)) as raised:
        call(orders)
    assert isinstance(raised.value, UnsupportedParameterError)
    assert set(wire.operations) <= {"DescribeTable"}


def test_a_located_item_s_misspelt_keyword(table: Table) -> None:
    """It is refused before the item is looked for."""
    located = ShardedTable(table, RandomSuffix(3, locate=True))
    with recording(table.meta.client) as wire, pytest.raises(UnsupportedParameterError, match="ReturnValues"):
        located.delete_item(Key=KEY, ReturnValue="ALL_OLD")  # type: ignore[call-arg]
    assert set(wire.operations) <= {"DescribeTable"}


def test_a_keyword_s_value_is_botocores_to_refuse(orders: ShardedTable, table: Table) -> None:
    with recording(table.meta.client) as wire, pytest.raises(ParamValidationError):
        orders.get_item(Key=KEY, ConsistentRead="yes")  # type: ignore[arg-type]
    assert set(wire.operations) <= {"DescribeTable"}


LEGACY = {"Date": {"AttributeValueList": ["2014-07-09"], "ComparisonOperator": "EQ"}}


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("AttributesToGet", 5, "AttributesToGet: must be a list of names, got int: 5"),
        ("ExpressionAttributeNames", ["#d"], "ExpressionAttributeNames: must be a dict of placeholders, got list"),
        ("ExpressionAttributeValues", 1, "ExpressionAttributeValues: must be a dict of placeholders, got int"),
        ("IndexName", ["ByTotal"], "IndexName: must be a str, got list"),
        ("KeyConditions", {"Date": None}, r"KeyConditions\['Date'\]: must be a dict, got NoneType"),
        ("KeyConditions", {"Date": {"AttributeValueList": 1}}, r"\['AttributeValueList'\]: must be a list, got int"),
        ("QueryFilter", 1, "QueryFilter: must be a dict of conditions by attribute, got int"),
        ("QueryFilter", {"Date": "x"}, r"QueryFilter\['Date'\]: must be a dict, got str"),
    ],
)
def test_a_parameter_of_another_type(orders: ShardedTable, table: Table, name: str, wrong: Any, said: str) -> None:
    """It is refused as boto3 does, where shardkit reads it before boto3 does."""
    with recording(table.meta.client) as wire:
        with pytest.raises(ParamValidationError, match=said):
            orders.query(**{"KeyConditions": LEGACY, name: wrong})
        with pytest.raises(ParamValidationError):
            orders.scan(**{name: wrong})
        with pytest.raises(ParamValidationError):
            orders.batch_get_items([KEY], **{name: wrong})
    assert set(wire.operations) <= {"DescribeTable"}


@pytest.mark.parametrize("wrong", [True, 1.0, "1", [1]])
def test_a_shard_that_is_no_number(orders: ShardedTable, wrong: Any) -> None:
    """Also where it equals the number of one that was asked before."""
    orders.get_item(Key=KEY, Shard=1)
    with pytest.raises(ConfigurationError, match=r"^Shard: must be an integer from 1 to 5"):
        orders.get_item(Key=KEY, Shard=wrong)
    with pytest.raises(ConfigurationError, match=r"^Shard: must be an integer from 1 to 5"):
        orders.query(KeyConditionExpression=DAY, Shard=wrong)


def test_an_item_that_cannot_be_one(orders: ShardedTable) -> None:
    """Of what nobody can have stored there is no logical form."""
    for wrong in (None, "x", {"Date": ["x"]}, {"Date": 5}):
        with pytest.raises(InvalidKeyError):
            orders.logical_item(wrong)  # type: ignore[arg-type]


def test_a_source_of_random_numbers_that_is_none(table: Table) -> None:
    """It is refused when the table is made."""
    with pytest.raises(ConfigurationError, match=r"rng: must be a random\.Random, got 7"):
        ShardedTable(table, RandomSuffix(5), rng=7)  # type: ignore[arg-type]


def test_bad_items_of_a_load_are_not_sent(orders: ShardedTable, table: Table) -> None:
    """They fail with their own reasons; only the good item goes out."""
    bad: list[Any] = [{"Date": "x"}, {**KEY, "Amount": 1.5}, "text", None]
    with recording(table.meta.client) as wire, pytest.raises(BulkLoadError) as caught:
        bulk_load(orders, [*bad, KEY])
    assert [result.item for result in caught.value.failed] == bad
    assert all(isinstance(result.error, ShardkitError) for result in caught.value.failed)
    (body,) = wire.bodies("BatchWriteItem")
    assert len(body["RequestItems"][table.name]) == 1


CALLS: dict[str, Call] = {
    "get": lambda orders: orders.get_item(Key=KEY),
    "put": lambda orders: orders.put_item(Item=KEY),
    "query": lambda orders: orders.query(KeyConditionExpression=DAY),
    "query_items": lambda orders: list(orders.query_items(KeyConditionExpression=DAY)),
    "scan": lambda orders: orders.scan(),
    "scan_items": lambda orders: list(orders.scan_items()),
    "batch get": lambda orders: orders.batch_get_items([KEY]),
    "batch writer": lambda orders: orders.batch_writer(),
    "bulk load": lambda orders: bulk_load(orders, [KEY]),
    "physical key": lambda orders: orders.physical_key(KEY),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_table_that_does_not_exist(resource: DynamoDBServiceResource, call: Call) -> None:
    """Both an error of shardkit's and a ClientError with the service's response; it says what to look at."""
    table = resource.Table("Ordes")
    orders = ShardedTable(table, CalculatedSuffix("OrderId", 5))
    with recording(table.meta.client) as wire, pytest.raises(TableNotDescribedError) as caught:
        call(orders)
    error = caught.value
    assert isinstance(error, ShardkitError)
    assert isinstance(error, ClientError)
    assert error.response["Error"]["Code"] == "ResourceNotFoundException"
    assert error.operation_name == "DescribeTable"
    for said in ("'Ordes'", "ResourceNotFoundException", "region", "permission", "key_schema="):
        assert said in str(error)
    assert wire.operations == ["DescribeTable"]
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was just made here
    assert (type(again), str(again), again.response) == (type(error), str(error), error.response)


def test_a_role_that_may_not_describe(orders: ShardedTable, table: Table) -> None:
    """The message shows the service's own words, and the next call asks again."""
    refusal = {"__type": "AccessDeniedException", "message": "not authorized"}
    with (
        answering(table.meta.client, "DescribeTable", lambda _: refusal),
        pytest.raises(TableNotDescribedError, match=r"AccessDeniedException.*not authorized.*key_schema="),
    ):
        orders.put_item(Item=KEY)
    orders.put_item(Item=KEY)


def test_a_fault_that_may_pass_is_not_the_configurations(table: Table) -> None:
    """A DescribeTable that the service was too busy for is boto3's error, as it is."""
    once = boto3.resource("dynamodb", region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}))
    orders = ShardedTable(once.Table(table.name), CalculatedSuffix("OrderId", 5))
    busy = {"__type": "ThrottlingException", "message": "slow down"}
    with answering(once.meta.client, "DescribeTable", lambda _: busy), pytest.raises(ClientError) as caught:
        orders.put_item(Item=KEY)
    assert not isinstance(caught.value, ShardkitError)


def test_missing_credentials(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both an error of shardkit's and a NoCredentialsError."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    table = boto3.Session().resource("dynamodb", region_name="us-east-1").Table("Orders")
    orders = ShardedTable(table, CalculatedSuffix("OrderId", 5))
    with recording(table.meta.client) as wire, pytest.raises(MissingCredentialsError) as caught:
        orders.put_item(Item=KEY)
    assert isinstance(caught.value, NoCredentialsError)
    assert isinstance(caught.value, ConfigurationError)
    assert "'Orders'" in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize(
    "schema", [5, {}, {"KeySchema": 5}, {"KeySchema": []}, {"KeySchema": [{"AttributeName": "a"}]}]
)
def test_a_key_schema_that_is_none(table: Table, schema: Any) -> None:
    """It is refused when the table is wrapped."""
    with pytest.raises(ConfigurationError, match="key schema"):
        ShardedTable(table, CalculatedSuffix("OrderId", 5), key_schema=schema)


@pytest.mark.parametrize(
    "more", [{"AttributeDefinitions": [{"Name": "a"}]}, {"GlobalSecondaryIndexes": [{"IndexName": "x"}]}]
)
def test_a_key_schema_whose_rest_is_none(table: Table, more: dict[str, Any]) -> None:
    """Attribute definitions and indexes are read as CreateTable takes them."""
    with pytest.raises(ConfigurationError, match="CreateTable"):
        ShardedTable(table, CalculatedSuffix("OrderId", 5), key_schema={"KeySchema": table.key_schema, **more})


@pytest.mark.parametrize("wrong", [None, "Orders", 5])
def test_a_table_or_strategy_that_is_none(table: Table, wrong: Any) -> None:
    """The error says what to give."""
    with pytest.raises(ConfigurationError, match="boto3") as raised:
        ShardedTable(wrong, Unsharded())
    assert "async" not in str(raised.value)
    with pytest.raises(ConfigurationError, match=r"must be a boto3 Table, got .* give .*Table\('…'\)$"):
        ShardedTable(cast("Any", table.meta.client), Unsharded())
    with pytest.raises(ConfigurationError, match=r"CalculatedSuffix.* or ShardMap\(\), got"):
        ShardedTable(table, wrong)


def test_a_table_that_is_wrapped_already(table: Table, orders: ShardedTable) -> None:
    """Its own strategy, or its cache, would be ignored without a word."""
    series = TimeSeries(table, "clicks", at="OrderId", period="day", schema=SCHEMA)
    for wrapped in (orders, CachedTable(orders, max_bytes=100_000), CachedTable(table, max_bytes=100_000), series):
        with pytest.raises(ConfigurationError, match=r"^table: must not be wrapped already, got .*; give the table in"):
            ShardedTable(wrapped, Unsharded())
    with pytest.raises(ConfigurationError, match=r"^table: must be the table behind a cache, got .*; give its"):
        CachedTable(CachedTable(orders, max_bytes=100_000), max_bytes=100_000)


ERRORS: list[ShardkitError] = [
    errors.AmbiguousItemError("message", [1, None]),
    BulkLoadError(
        "message", [BulkResult(KEY, 0, 3, ok=False, error=InvalidKeyError("why"))], BulkReport(items=1, failed=1)
    ),
    errors.MissingCredentialsError("message"),
    errors.ShardQueryError("message", {1: ClientError({"Error": {"Code": "X", "Message": "y"}}, "Query")}, [KEY]),
    errors.ShardTimeoutError("message", {1: TimeoutError("late")}, [KEY]),
    errors.TableNotDescribedError("message", {"Error": {"Code": "X", "Message": "y"}}),
]
ERRORS += [
    getattr(errors, name)("message")
    for name in errors.__all__
    if getattr(errors, name) not in {type(error) for error in ERRORS}
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_can_be_pickled(error: ShardkitError) -> None:
    """It comes back of the same class, with its message and what it carries."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was just made here
    assert type(again) is type(error)
    assert str(again) == str(error) == "message"
    assert repr(vars(again)) == repr(vars(error))
    assert isinstance(error, ShardkitError)


@pytest.mark.parametrize("operation", ["query", "scan", "get_item", "put_item"])
def test_another_tables_name_is_refused(orders: ShardedTable, operation: str) -> None:
    """A sharded table is one table: another name is an error, and never silently this one."""
    own: dict[str, Any] = {
        "query": {"KeyConditionExpression": Key("Date").eq("2014-07-09")},
        "scan": {},
        "get_item": {"Key": {"Date": "2014-07-09", "OrderId": "1"}},
        "put_item": {"Item": {"Date": "2014-07-09", "OrderId": "1"}},
    }
    with pytest.raises(ConfigurationError, match="TableName: 'Other' is not this sharded table"):
        getattr(orders, operation)(TableName="Other", **own[operation])


def test_a_filtered_page_evaluates_a_block_a_shard(orders: ShardedTable) -> None:
    """``Limit`` counts what is evaluated, divided over the shards; the rest of a block is free and is evaluated too."""
    for number in range(40):
        orders.put_item(Item={"Date": "2014-07-09", "OrderId": str(number), "Total": number})
    page = orders.query(
        KeyConditionExpression=Key("Date").eq("2014-07-09"), FilterExpression=Attr("Total").gt(1000), Limit=5
    )
    assert page["Items"] == []
    assert page["ScannedCount"] <= 8 * len(orders.strategy.shards_for("2014-07-09"))
    assert "LastEvaluatedKey" in page


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize("unprintable", [10**5000, [10**5000], NESTED], ids=["long", "with a long one", "nested"])
def test_values_that_python_does_not_print(table: Table, unprintable: Any) -> None:
    """They are shortened in every message, wherever it is made: ``brief`` alone does that."""
    client = table.meta.client
    for refused in (
        lambda: install(client, unprintable),
        lambda: install(client, {"Orders": RandomSuffix(3)}, cache=unprintable),
        lambda: ShardedTable(table, RandomSuffix(3), indexes=unprintable),
        lambda: ShardedTable(table, unprintable),
    ):
        with pytest.raises(ConfigurationError, match=r"bits>|to print>"):
            refused()


def test_messages_shorten_values_in_one_way() -> None:
    package = Path(shardkit.__file__).parent
    assert [str(file) for file in package.rglob("*.py") if re.search(r"!r:\.\d+\}", file.read_text("utf-8"))] == []
