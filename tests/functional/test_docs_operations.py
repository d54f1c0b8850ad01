"""docs/reference and docs/how-it-works.md: their tables list what the code has, and what they say is so."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

import shardkit
from shardkit import (
    CalculatedSuffix,
    CapacityBudget,
    CapacityMeter,
    RandomSuffix,
    ShardedTable,
    ShardkitError,
    ShardUnknownError,
    UnsupportedExpressionError,
    bulk_load,
    errors,
)
from shardkit.bulk.load import LoadOptions
from shardkit.bulk.sources import open_source
from shardkit.capacity.scopes import Totals
from shardkit.sharding.operations import DECISIONS, KEYWORDS
from tests.support import engines
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def section(title: str, page: str = "operations") -> str:
    """A section of a reference page, from its heading to the next of the same level or above."""
    text = (REFERENCE / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(title)}$\n(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def rows(title: str, page: str = "operations") -> list[list[str]]:
    """The rows of a section's tables, without the first head."""
    lines = [line for line in section(title, page).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def first_names(title: str, page: str = "operations") -> list[str]:
    return [name for row in rows(title, page) for name in re.findall(r"`(\w+)`", row[0])]


def keyword_only(function: Callable[..., object]) -> list[str]:
    return [one.name for one in signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY]


def decided(action: Literal["rewrite", "forward", "refuse"]) -> list[str]:
    return sorted(operation for operation, decision in DECISIONS.items() if decision.action == action)


def test_client_operations() -> None:
    assert sorted(re.findall(r"`([A-Z]\w+)`", section("Rewritten").strip().split("\n\n")[1])) == decided("rewrite")
    assert sorted(re.findall(r"`([A-Z]\w+)`", section("Forwarded").strip().split("\n\n")[1])) == decided("forward")
    refused = {row[0].strip("`"): row[1] for row in rows("Refused")}
    assert refused == {operation: DECISIONS[operation].reason for operation in decided("refuse")}


def actions_of(table: object) -> set[str]:
    names = {name for name in dir(type(table)) if not name.startswith("_")}
    return {name for name in names if callable(getattr(type(table), name))}


def test_methods(resource: DynamoDBServiceResource) -> None:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=2))
    assert len(first_names("Methods")) == len(set(first_names("Methods")))
    assert set(first_names("Methods")) == actions_of(table) | actions_of(sharded)
    refused = {row[0].strip("`") for row in rows("Methods") if row[1].startswith("refused")}
    for name in actions_of(table):
        assert hasattr(sharded, name) is (name not in refused), name


@pytest.mark.parametrize(
    "operation",
    ["GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan", "TransactGetItems", "TransactWriteItems"],
)
def test_keywords(operation: str, resource: DynamoDBServiceResource) -> None:
    shape = resource.meta.client.meta.service_model.operation_model(operation).input_shape
    assert shape is not None
    known = set(shape.members)
    documented = first_names(operation)
    assert len(documented) == len(set(documented))
    assert set(documented) == KEYWORDS[operation]
    assert set(documented) <= known
    # Elsewhere a keyword that a newer boto3 brings is no fault of who runs the tests.
    if os.environ.get("SHARDKIT_OPERATION_WALK"):
        assert known <= set(documented)


@pytest.mark.parametrize(
    ("operation", "kinds"),
    [("TransactGetItems", {"Get"}), ("TransactWriteItems", {"ConditionCheck", "Delete", "Put", "Update"})],
)
def test_keywords_of_parts(operation: str, kinds: set[str], resource: DynamoDBServiceResource) -> None:
    shape: Any = resource.meta.client.meta.service_model.operation_model(operation).input_shape
    entry = shape.members["TransactItems"].member
    assert set(entry.members) == kinds
    for kind in kinds:
        documented = {
            row[0].strip("`") for row in rows("Parts of a transaction") if row[1] == "all" or f"`{kind}`" in row[1]
        }
        assert documented == KEYWORDS[kind]
        assert KEYWORDS[kind] - {"Shard"} <= set(entry.members[kind].members)
        if os.environ.get("SHARDKIT_OPERATION_WALK"):
            assert KEYWORDS[kind] - {"Shard"} == set(entry.members[kind].members)


def test_errors() -> None:
    public = [(name, getattr(shardkit, name)) for name in shardkit.__all__]
    raised = sorted(name for name, value in public if isinstance(value, type) and issubclass(value, BaseException))
    assert first_names("Errors", "errors") == raised
    assert all(what and what_to_do for _, what, what_to_do, _ in rows("Errors", "errors"))
    assert set(errors.__all__) <= set(raised)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), ShardkitError)


def test_options() -> None:
    assert first_names("Options", "bulk") == list(LoadOptions.__annotations__)
    assert first_names("Options", "sources") == keyword_only(open_source)
    of_tests = {"clock", "sleep", "async_sleep"}
    assert first_names("Budgets", "capacity") == [name for name in keyword_only(CapacityBudget) if name not in of_tests]


def test_figures_of_a_meter() -> None:
    figures = {name for name, value in vars(Totals).items() if isinstance(value, property)}
    documented = first_names("Figures", "capacity")
    assert len(documented) == len(set(documented))
    assert set(documented) == figures | {"name", "tags"}
    data = CapacityMeter().to_dict()
    assert set(first_names("As JSON", "capacity")) == set(data)


KEY = {"Date": "2014-07-09", "OrderId": "A17"}
DAY = Key("Date").eq("2014-07-09")
SET: dict[str, Any] = {"UpdateExpression": "SET Seen = :yes", "ExpressionAttributeValues": {":yes": True}}


@pytest.fixture
def orders(resource: DynamoDBServiceResource) -> ShardedTable:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=4))
    for number in range(9):
        orders.put_item(Item={"Date": "2014-07-09", "OrderId": f"A{number}", "Total": number})
    orders.put_item(Item={**KEY, "Total": 17})
    return orders


@pytest.mark.parametrize(
    "call",
    [
        lambda orders: orders.put_item(Item=KEY, ConditionExpression=Attr("Date").lt("2015")),
        lambda orders: orders.put_item(Item=KEY, ConditionExpression=Attr("Date").begins_with("2014")),
        lambda orders: orders.query(KeyConditionExpression=DAY, FilterExpression=Attr("Date").eq("2014-07-09")),
        lambda orders: orders.query(KeyConditionExpression=Key("OrderId").eq("A17")),
        lambda orders: orders.scan(FilterExpression=Attr("Date").eq("2014-07-09")),
        lambda orders: list(orders.scan_items(Segment=0, TotalSegments=2)),
        lambda orders: list(orders.scan_items(Select="COUNT")),
        lambda orders: list(orders.query_items(KeyConditionExpression=DAY, Select="COUNT")),
        lambda orders: orders.update_item(
            Key=KEY, UpdateExpression="SET #c = #d", ExpressionAttributeNames={"#c": "Copy", "#d": "Date"}
        ),
        lambda orders: ShardedTable(orders.table, CalculatedSuffix("Total", shards=4)).update_item(
            Key={**KEY, "Total": 17},
            UpdateExpression="SET #t = :t",
            ExpressionAttributeNames={"#t": "Total"},
            ExpressionAttributeValues={":t": 1},
        ),
        lambda orders: ShardedTable(orders.table, RandomSuffix(4, locate=True)).delete_item(
            Key=KEY, Expected={"Total": {"Value": 17}}
        ),
    ],
)
def test_refused_expressions(call: Callable[[ShardedTable], object], orders: ShardedTable) -> None:
    with pytest.raises(UnsupportedExpressionError):
        call(orders)


@pytest.mark.parametrize(
    "condition",
    [
        Attr("Date").eq("2014-07-09"),
        Attr("Date").ne("2014-07-10"),
        Attr("Date").is_in(["2014-07-09", "2014-07-10"]),
        Attr("Date").exists(),
        Attr("Date").attribute_type("S"),
    ],
)
def test_honoured_conditions(condition: Any, orders: ShardedTable) -> None:
    orders.put_item(Item={**KEY, "Total": 18}, ConditionExpression=condition)
    assert orders.get_item(Key=KEY)["Item"]["Total"] == 18


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda events: events.get_item(Key=KEY), id="get_item"),
        pytest.param(lambda events: events.update_item(Key=KEY, **SET), id="update_item"),
        pytest.param(lambda events: events.delete_item(Key=KEY), id="delete_item"),
        pytest.param(
            lambda events: events.put_item(Item=KEY, ConditionExpression=Attr("Date").not_exists()), id="put_item"
        ),
        pytest.param(lambda events: events.physical_key(KEY), id="physical_key"),
    ],
)
def test_random_suffix_needs_the_shard(call: Callable[[ShardedTable], object], orders: ShardedTable) -> None:
    with pytest.raises(ShardUnknownError):
        call(ShardedTable(orders.table, RandomSuffix(4)))


def test_the_item_of_a_failed_condition(orders: ShardedTable) -> None:
    with pytest.raises(ClientError) as caught:
        orders.put_item(
            Item=KEY, ConditionExpression=Attr("Date").not_exists(), ReturnValuesOnConditionCheckFailure="ALL_OLD"
        )
    item: Any = caught.value.response.get("Item")
    assert item is not None
    assert item["Date"] == {"S": "2014-07-09"}


def test_pages_with_a_filter(orders: ShardedTable) -> None:
    items: list[Any] = []
    query: dict[str, Any] = {"KeyConditionExpression": DAY, "FilterExpression": Attr("Total").gt(3), "Limit": 2}
    while True:
        page = orders.query(**query)
        assert len(page["Items"]) <= 2
        items += [item["OrderId"] for item in page["Items"]]
        if "LastEvaluatedKey" not in page:
            break
        query["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    assert items == ["A17", "A4", "A5", "A6", "A7", "A8"]


def test_a_key_that_looks_like_one_with_a_suffix(orders: ShardedTable) -> None:
    orders.table.put_item(Item={"Date": "v1.3", "OrderId": "x"})
    rows_read = list(orders.scan_items(ReturnShards=True))
    assert ({"Date": "v1", "OrderId": "x"}, 3) in rows_read


def test_two_puts_where_by_is_not_in_the_key(orders: ShardedTable) -> None:
    by_total = ShardedTable(orders.table, CalculatedSuffix("Total", shards=4))
    shards = {by_total.put_item(Item={**KEY, "Total": total}, ReturnShards=True)["Shard"] for total in range(9)}
    assert len(shards) > 1
    items = by_total.query(KeyConditionExpression=DAY & Key("OrderId").eq("A17"), ReturnShards=True)
    assert shards <= set(items["Shards"])


def test_moto_makes_its_numbers_up(orders: ShardedTable) -> None:
    report = bulk_load(orders, [{"Date": "2014-07-10", "OrderId": f"{number}"} for number in range(30)])
    assert report.write_units == 2.0


# -- what it costs: the table of how-it-works.md -----------------------------------------------------------------------


def cost_table() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8").split("## What it costs")[1]
    lines = [line.strip("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert cells[0] == ["call", "1 shard", "10 shards", "200 shards"]
    return {row[0]: row[1:] for row in cells[2:]}


def pages_of(orders: ShardedTable) -> None:
    cursor: dict[str, Any] = {}
    while True:
        page = orders.query(KeyConditionExpression=DAY, Limit=50, **cursor)
        if "LastEvaluatedKey" not in page:
            return
        cursor = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


@pytest.fixture
def dynoxide(engine_endpoint: Callable[[engines.EngineName], str]) -> Iterator[DynamoDBServiceResource]:
    resource = boto3.resource("dynamodb", region_name="us-east-1", endpoint_url=engine_endpoint("dynoxide"))
    yield resource
    resource.meta.client.close()


@pytest.mark.integration
@pytest.mark.parametrize(("column", "shards"), [(0, 1), (1, 10), (2, 200)])
def test_what_it_costs(column: int, shards: int, dynoxide: DynamoDBServiceResource) -> None:
    table = make_table(dynoxide, ("Date", "S"), ("OrderId", "S"))
    # The many requests to 200 shards go past the client: they cost the same, and their test less.
    transport: Literal["client", "direct"] = "direct" if shards == 200 else "client"
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=shards), transport=transport)
    located = ShardedTable(table, RandomSuffix(shards, locate=True))
    # Both read the key schema here, so that the DescribeTable of neither is measured.
    orders.physical_key(KEY)
    located.logical_item(KEY)
    empty = Key("Date").eq("2014-07-10")
    one = {"Date": "2014-07-11", "OrderId": "E1"}
    items = [{"Date": "2014-07-09", "OrderId": f"A{number:05}", "Pad": "x" * 450} for number in range(1000)]
    calls: dict[str, Callable[[], object]] = {
        "`put_item`": lambda: orders.put_item(Item=items[0]),
        "`get_item`": lambda: orders.get_item(Key={"Date": "2014-07-09", "OrderId": "A00000"}),
        "`bulk_load` of the 1,000 items": lambda: bulk_load(orders, items),
        "`query()` of an empty key": lambda: orders.query(KeyConditionExpression=empty),
        "`query()` of all 1,000 items": lambda: orders.query(KeyConditionExpression=DAY),
        "`query_items()` of all 1,000 items": lambda: list(orders.query_items(KeyConditionExpression=DAY)),
        "`query(Limit=50)`, the first page": lambda: orders.query(KeyConditionExpression=DAY, Limit=50),
        "`query(Limit=50)`, all pages": lambda: pages_of(orders),
        "`get_item`, `RandomSuffix(…, locate=True)`": lambda: located.get_item(Key=one),
        "`update_item`, `RandomSuffix(…, locate=True)`": lambda: located.update_item(Key=one, **SET),
    }
    expected = {call: cells[column] for call, cells in cost_table().items()}
    located.put_item(Item=one)
    meter = CapacityMeter()
    measured = {}
    with meter.attach(table if transport == "client" else orders):
        for name, call in calls.items():
            with meter.scope(name) as used:
                call()
            figures = [(used.requests, "request"), (used.read_units, "read unit"), (used.write_units, "write unit")]
            measured[name] = ", ".join(f"{n:,.10g} {unit}{'s' * (n != 1)}" for n, unit in figures if n)
    assert measured == expected
