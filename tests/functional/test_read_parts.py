"""A sharded table read in parts, as the tasks of Spark and other engines do."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from boto3.dynamodb.types import Binary

from shardkit import CalculatedSuffix, CapacityBudget, ConfigurationError, ShardedTable, ShardMap, bulk_load
from shardkit.read_parts import ReadConfig, read_part
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

STRATEGY = CalculatedSuffix("OrderId", shards=3)
Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")
    bulk_load(ShardedTable(table, STRATEGY), ITEMS)
    return table


ITEMS = [
    {"Date": f"2014-07-0{number % 3 + 1}", "OrderId": f"A{number:02}", "Total": Decimal(number) / 4, "Note": "x"}
    for number in range(40)
]


@pytest.fixture
def asked(resource: DynamoDBServiceResource) -> Asked:
    """Each request of the resource's client, with its body."""
    requests: Asked = []

    def seen(params: Any, model: Any, **_: Any) -> None:
        requests.append((model.name, json.loads(params["body"])))

    resource.meta.client.meta.events.register("before-call.dynamodb", seen)
    return requests


@pytest.fixture
def config(resource: DynamoDBServiceResource) -> Callable[..., ReadConfig]:
    def configured(**options: Any) -> ReadConfig:
        given: dict[str, Any] = {"table": "Orders", "strategy": STRATEGY, "parts": 4, "connect": lambda: resource}
        return ReadConfig(**{**given, **options})

    return configured


def rows(config: ReadConfig) -> list[dict[str, Any]]:
    read = [row for part in range(config.parts) for batch in read_part(config, part=part) for row in batch.to_pylist()]
    return sorted(read, key=lambda row: str(row["OrderId"]))


@pytest.mark.usefixtures("table")
def test_parts_have_each_item_once(config: Callable[..., ReadConfig]) -> None:
    prepared = config().prepared()
    assert prepared.schema is not None
    assert prepared.schema.names == ["Date", "OrderId", "Note", "Total"]
    assert rows(prepared) == ITEMS
    days = ["2014-07-02", "2014-07-03", "2014-07-02", "2014-08-01"]
    by_keys = config(keys=days, parts=2).prepared()
    assert by_keys.schema == prepared.schema
    assert rows(by_keys) == [item for item in ITEMS if item["Date"] in days]


def test_a_binary_key_is_read_once(config: Callable[..., ReadConfig], resource: DynamoDBServiceResource) -> None:
    table = ShardedTable(make_table(resource, ("Photo", "B"), ("OrderId", "S"), name="Photos"), STRATEGY)
    table.put_item(Item={"Photo": b"\xff", "OrderId": "A1"})
    prepared = config(table="Photos", keys=[bytearray(b"\xff"), Binary(b"\xff"), b"\xff"], parts=1).prepared()
    assert rows(prepared) == [{"Photo": b"\xff", "OrderId": "A1"}]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("keys", [None, ["2014-07-01"]])
def test_only_the_schema_is_requested(keys: list[str] | None, config: Callable[..., ReadConfig], asked: Asked) -> None:
    prepared = config(schema=pa.schema([("Total", pa.float64())]), keys=keys, parts=1, consistent_read=True).prepared()
    assert [operation for operation, _ in asked] == ["DescribeTable", "GetItem"]
    totals = [row for batch in read_part(prepared, part=0) for row in batch.to_pylist()]
    assert len(totals) == (40 if keys is None else 14)
    assert totals[0].keys() == {"Total"}
    for operation, body in asked[2:]:
        assert operation == ("Scan" if keys is None else "Query")
        assert body["ConsistentRead"] is True
        names = set(body["ExpressionAttributeNames"].values())
        assert names == {"Date", "OrderId", "Total"}  # the key names an item in errors


@pytest.mark.usefixtures("table")
def test_pages(config: Callable[..., ReadConfig], resource: DynamoDBServiceResource) -> None:
    def page_by_page(params: Any, **_: Any) -> None:
        params["body"] = json.dumps({**json.loads(params["body"]), "Limit": 7}).encode()

    prepared = config(parts=1).prepared()
    resource.meta.client.meta.events.register("before-call.dynamodb.Scan", page_by_page)
    batches = list(read_part(prepared, part=0))
    assert [batch.num_rows for batch in batches] == [7, 7, 7, 7, 7, 5]
    assert rows(prepared) == ITEMS


def test_a_config_travels(config: Callable[..., ReadConfig]) -> None:
    prepared = config(connect=_nothing, schema=pa.schema([("At", pa.date32())]), keys=["2014-07-01"])
    assert pickle.loads(pickle.dumps(prepared)) == prepared  # noqa: S301 - its own


def _nothing() -> None:
    """Makes no client; a function that can be pickled."""


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"table": ""}, "table: must be the table's name"),
        ({"table": "Nowhere"}, "ResourceNotFoundException"),
        ({"parts": 0}, "parts: must be"),
        ({"keys": "2014-07-01"}, "keys: must be a list"),
        ({"keys": [["2014-07-01"]]}, "keys: must be a str, bytes or a number"),
        ({"read_units": 0}, "read_units: must be"),
        ({"connect": "us-east-1"}, "connect: must be a function"),
        ({"schema": pa.schema([("At", pa.time32("s"))])}, "schema: column 'At' is of type time32"),
        ({"keys": ["2015-01-01"]}, "schema: there are no items"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_refused_before_the_parts_begin(options: dict[str, Any], says: str, config: Callable[..., ReadConfig]) -> None:
    with pytest.raises(Exception, match=says):
        config(**options).prepared()


@pytest.mark.usefixtures("table")
def test_refused(config: Callable[..., ReadConfig]) -> None:
    with pytest.raises(ConfigurationError, match="strategy: a ShardMap is not supported"):
        config(strategy=ShardMap())
    with pytest.raises(ConfigurationError, match="config: is not prepared"):
        next(read_part(config(), part=0))
    with pytest.raises(ConfigurationError, match="part: must be from 0 to 3, got 4"):
        next(read_part(config().prepared(), part=4))


@pytest.mark.usefixtures("table")
def test_each_part_has_its_share_of_the_rate(
    config: Callable[..., ReadConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float | None] = []

    def budget(**options: Any) -> CapacityBudget:
        rates.append(options["read_units"])
        return CapacityBudget(**options)

    monkeypatch.setattr("shardkit.parts.read.CapacityBudget", budget)
    assert rows(config(read_units=4000).prepared()) == ITEMS
    assert rates.count(1000) == 4
