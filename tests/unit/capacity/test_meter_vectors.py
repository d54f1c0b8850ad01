"""Vector indexes in a meter: bytes, as the service reports them, and never among the units."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import boto3

from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from shardkit.capacity import CapacityBudget, CapacityMeter, VectorBytes
from shardkit.capacity.exporters.measurements import measure
from tests.support.exported import rows
from tests.support.metered import ARN, FakeClient, client, consumed, item, meter, put
from tests.support.wire import a_client, serving

if TYPE_CHECKING:
    import pytest

__all__ = ["client", "meter"]

SEARCH: dict[str, Any] = {"TableName": "T", "IndexName": "near", "SearchVector": [{"N": "1"}], "TopK": 3}


def written(**vectors: float) -> dict[str, Any]:
    return {"VectorIndexes": {index: {"VectorWriteRequestBytes": number} for index, number in vectors.items()}}


def searched(number: float) -> dict[str, Any]:
    return {"ConsumedCapacity": {"VectorSearchRequestBytes": number}}


def test_a_search(client: FakeClient, meter: CapacityMeter) -> None:
    """It consumes bytes of its index, no units, and is a request to its table; the caller does not see the report."""
    response = client.call("SearchVectors", searched(4096.0), **SEARCH)
    assert client.sent["ReturnConsumedCapacity"] == "INDEXES"
    assert response == {}
    assert meter.by_vector_index == {("T", "near"): VectorBytes(4096.0, 0.0)}
    assert (meter.vector_search_request_bytes, meter.vector_write_request_bytes) == (4096.0, 0.0)
    assert meter.total.units_with_estimates == 0
    assert meter.by_table["T"].requests == meter.by_operation["SearchVectors"].requests == 1
    assert meter.by_index == meter.by_key == {}
    client.call("SearchVectors", {}, **SEARCH)
    assert (meter.requests, meter.vector_search_request_bytes, meter.total.units_with_estimates) == (2, 4096.0, 0)


def test_a_search_that_is_throttled(client: FakeClient, meter: CapacityMeter) -> None:
    throttle = {"Error": {"Code": "ThrottlingException"}}
    client.call("SearchVectors", searched(1.0), attempts=[throttle], **SEARCH)
    assert (meter.throttles, meter.retries) == ({"ThrottlingException": 1}, {"ThrottlingException": 1})


def test_writes(client: FakeClient, meter: CapacityMeter) -> None:
    """Of a single write, a batch and a transaction; beside their units, and added up by index."""
    client.call("PutItem", {"ConsumedCapacity": consumed(2.0, **written(near=512.0))}, TableName="T", Item=item("a"))
    client.call("PutItem", {"ConsumedCapacity": consumed(2.0, **written(near=512.0))}, TableName=ARN, Item=item("b"))
    client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [consumed(2.0, **written(near=100.0, far=50.0)), consumed(1.0, "U", **written(near=7.0))]},
        RequestItems={"T": [put("a"), put("c")], "U": [put("d")]},
    )
    client.call(
        "TransactWriteItems",
        {"ConsumedCapacity": [consumed(2.0, **written(near=1.0))]},
        TransactItems=[{"Put": {"TableName": "T", "Item": item("a")}}],
    )
    assert meter.by_vector_index == {
        ("T", "near"): VectorBytes(0.0, 1125.0),
        ("T", "far"): VectorBytes(0.0, 50.0),
        ("U", "near"): VectorBytes(0.0, 7.0),
    }
    assert meter.vector_write_request_bytes == 1182.0
    assert meter.write_units == 9.0
    assert meter.by_index == {}
    assert {row for row in rows(measure(meter)) if "vector" in row[0]} == {
        ("vector_write_request_bytes", ("T", "near", "PutItem"), 1024.0),
        ("vector_write_request_bytes", ("T", "near", "BatchWriteItem"), 100.0),
        ("vector_write_request_bytes", ("T", "far", "BatchWriteItem"), 50.0),
        ("vector_write_request_bytes", ("U", "near", "BatchWriteItem"), 7.0),
        ("vector_write_request_bytes", ("T", "near", "TransactWriteItems"), 1.0),
    }


def test_a_report_of_vector_indexes_alone(client: FakeClient, meter: CapacityMeter) -> None:
    """No units were said, so none are counted."""
    client.call("PutItem", {"ConsumedCapacity": {"TableName": "T", **written(near=5.0)}}, TableName="T", Item=item("a"))
    assert (meter.vector_write_request_bytes, meter.total.units_with_estimates) == (5.0, 0.0)


def test_only_the_tables_that_are_looked_at(client: FakeClient) -> None:
    meter = CapacityMeter()
    meter._observers.attach(client, "T", {})  # noqa: SLF001 - what attach() does with a Table; the fake client has none
    both = [consumed(1.0, table, **written(near=3.0)) for table in ("T", "U")]
    client.call("BatchWriteItem", {"ConsumedCapacity": both}, RequestItems={"T": [put("a")], "U": [put("a")]})
    client.call("SearchVectors", searched(9.0), **{**SEARCH, "TableName": "U"})
    assert meter.by_vector_index == {("T", "near"): VectorBytes(0.0, 3.0)}


def test_scopes(client: FakeClient, meter: CapacityMeter) -> None:
    with meter.scope("search") as used:
        client.call("SearchVectors", searched(4096.0), **SEARCH)
    client.call("SearchVectors", searched(1.0), **SEARCH)
    assert used.by_vector_index == {("T", "near"): VectorBytes(4096.0, 0.0)}
    assert meter.vector_search_request_bytes == 4097.0


PLAIN = """\
total                requests  read units  write units  vector search request bytes  vector write request bytes
total                       2         0.0          2.0                        4,096                     100,000
table T                     2         0.0          2.0
vector index T near                                                           4,096                     100,000
PutItem                     1         0.0          2.0
SearchVectors               1         0.0          0.0
key T 'a'                   1         0.0          2.0"""


def test_shown(client: FakeClient, meter: CapacityMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of their own, where there is something in them; in JSON under the table, and in the total."""
    client.call("SearchVectors", searched(4096.0), **SEARCH)
    answer = {"ConsumedCapacity": consumed(2.0, **written(near=100_000.0))}
    client.call("PutItem", answer, TableName="T", Item=item("a"))
    assert "100,000" in str(meter)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert str(meter) == PLAIN
    figures = meter.to_dict()
    taken = {"vector_search_request_bytes": 4096.0, "vector_write_request_bytes": 100_000.0}
    assert figures["total"].items() >= taken.items()
    assert figures["tables"]["T"]["vector_indexes"] == {"near": taken}
    assert figures["tables"]["T"]["indexes"] == {}


def test_a_budget_does_not_hold_a_search(client: FakeClient) -> None:
    """It takes no units."""
    budget = CapacityBudget(read_units=0.001, mode="raise")
    budget.attach(client)
    for _ in range(3):
        client.call("SearchVectors", searched(4096.0), **SEARCH)


def answer(operation: str, body: dict[str, Any]) -> tuple[int, Any]:
    if operation == "SearchVectors":
        return 200, {"SearchResults": [], "ConsumedCapacity": {"VectorSearchRequestBytes": 4096.0}}
    table = {"TableName": "Orders", "CapacityUnits": 1.0, "VectorIndexes": {"near": {"VectorWriteRequestBytes": 8.0}}}
    return 200, {"UnprocessedItems": {}, "ConsumedCapacity": [table] if "RequestItems" in body else table}


KEYS = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "OrderId")],
}


def test_over_the_wire() -> None:
    """Through botocore's parser where its model has them, and through shardkit's own whatever it has."""
    with serving(answer) as service:
        resource = boto3.resource("dynamodb", endpoint_url=service.url)
        orders = ShardedTable(resource.Table("Orders"), CalculatedSuffix("OrderId", 3), key_schema=KEYS)
        meter, plain = CapacityMeter(), a_client(service)
        with meter.attach(orders), meter.attach(plain):
            orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})
            bulk_load(orders, [{"Date": "2014-07-09", "OrderId": "A18"}])
            assert meter.by_vector_index == {("Orders", "near"): VectorBytes(0.0, 16.0)}
            if hasattr(plain, "search_vectors"):
                plain.put_item(TableName="Orders", Item=item("a"))
                plain.search_vectors(**{**SEARCH, "TableName": "Orders"})
                assert meter.by_vector_index == {("Orders", "near"): VectorBytes(4096.0, 24.0)}
        plain.close()
        resource.meta.client.close()
