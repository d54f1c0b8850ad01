"""What no response says: estimates, marked as such; and errors."""

from __future__ import annotations

from typing import Any

import pytest

from shardkit.capacity import CapacityMeter, Usage
from tests.support.metered import FakeClient, client, item, key, meter

__all__ = ["client", "meter"]


@pytest.mark.parametrize(
    ("operation", "params", "response", "expected"),
    [
        ("PutItem", {"Item": item("a", 1500)}, {}, Usage(0, 0, 0, 2, 1)),
        ("PutItem", {"Item": item("a")}, {"Attributes": item("a", 2500)}, Usage(0, 0, 0, 3, 1)),
        ("UpdateItem", {"Key": key("a")}, {"Attributes": item("a", 1500)}, Usage(0, 0, 0, 2, 1)),
        ("DeleteItem", {"Key": key("a")}, {}, Usage(0, 0, 0, 1, 1)),
        ("GetItem", {"Key": key("a")}, {}, Usage(0, 0, 0.5, 0, 1)),
        ("GetItem", {"Key": key("a"), "ConsistentRead": True}, {"Item": item("a", 5000)}, Usage(0, 0, 2, 0, 1)),
        ("Scan", {}, {"Items": [item("a", 3000), item("b", 3000)]}, Usage(0, 0, 1, 0, 1)),
        ("Query", {"ConsistentRead": True}, {"Items": []}, Usage(0, 0, 1, 0, 1)),
    ],
)
def test_what_the_response_does_not_say_is_estimated_and_marked(
    client: FakeClient,
    meter: CapacityMeter,
    operation: str,
    params: dict[str, Any],
    response: dict[str, Any],
    expected: Usage,
) -> None:
    client.call(operation, response, TableName="T", **params)
    assert meter.total == meter.by_table["T"] == meter.by_operation[operation] == expected
    assert meter.read_units == meter.write_units == 0
    assert (meter.estimated_read_units, meter.estimated_write_units) == (
        expected.estimated_read_units,
        expected.estimated_write_units,
    )


def test_estimates_of_indexes_and_statements(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("Query", {"Items": []}, TableName="T", IndexName="G")
    client.call(
        "BatchExecuteStatement",
        {"Responses": [{"Item": item("a", 5000)}, {"Error": {"Code": "ValidationError"}}]},
        Statements=[{"Statement": 'SELECT * FROM "T"'}, {"Statement": 'SELECT * FROM "T"'}],
    )
    client.call("ExecuteStatement", {}, Statement='DELETE FROM "T" WHERE pk = ?')
    assert meter.by_index == {("T", "G"): Usage(estimated_read_units=0.5, requests=1)}
    assert meter.by_table == {"T": Usage(0, 0, 1.5, 1, 3)}


def test_an_unknown_type_does_not_break_the_call(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("GetItem", {"Item": {"v": {"VECTOR": [1]}}}, TableName="T", Key=key("a"))
    assert meter.estimated_read_units == 0.5


@pytest.mark.parametrize(
    ("params", "before", "units"),
    [
        ({"Item": item("a", 5000)}, None, 1),
        ({"Item": item("a")}, item("a", 2500), 3),
        ({"Item": item("a", 5000)}, item("a"), 5),
    ],
)
def test_a_failed_condition_is_an_estimate(
    client: FakeClient, meter: CapacityMeter, params: dict[str, Any], before: Any, units: float
) -> None:
    error = {"Error": {"Code": "ConditionalCheckFailedException"}, **({"Item": before} if before else {})}
    client.call("PutItem", error, TableName="T", **params)
    assert meter.total == meter.by_key["T", "a"] == Usage(estimated_write_units=units, requests=1)


@pytest.mark.parametrize("code", ["InternalServerError", "ValidationException"])
def test_other_errors_consume_nothing(client: FakeClient, meter: CapacityMeter, code: str) -> None:
    client.call("PutItem", {"Error": {"Code": code}}, TableName="T", Item=item("a"))
    assert meter.total == meter.by_table["T"] == Usage(requests=1)
    assert meter.by_key == {}
    assert meter.throttles == meter.retries == {}
