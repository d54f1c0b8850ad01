"""What one call is taken to have consumed: reported, apportioned or estimated, per table, index and key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix
from shardkit.capacity import CapacityMeter, Usage
from shardkit.capacity.charge import Charge, charge_of
from shardkit.capacity.usage import Units
from tests.support.metered import ARN, FakeClient, client, consumed, item, key, meter, put
from tests.support.tables import described

__all__ = ["client", "meter"]

ONE = Units(estimated_write=1.0)


def units_of(charge: Charge) -> dict[str, Units]:
    assert {account.requests for account in charge.tables.values()} == {charge.requests} == {1}
    return {table: account.units for table, account in charge.tables.items()}


@dataclass
class FakeCall:
    operation: str
    params: dict[str, Any]
    shardings: Any = field(default_factory=dict)
    notes: dict[Any, Any] = field(default_factory=dict)


class Outlined(list[Any]):
    """The requests of a batch of shardkit's own, which knows its keys' units."""

    def outline(self) -> dict[tuple[str, str], tuple[float, int]]:
        return {("S", "a"): (3.0, 2)}


def test_indexes(client: FakeClient, meter: CapacityMeter) -> None:
    client.call(
        "PutItem",
        {
            "ConsumedCapacity": consumed(
                4.0,
                Table={"CapacityUnits": 1.0},
                LocalSecondaryIndexes={"L": {"CapacityUnits": 1.0}},
                GlobalSecondaryIndexes={"G": {"CapacityUnits": 2.0}},
            )
        },
        TableName="T",
        Item=item("a"),
    )
    assert meter.by_table == {"T": Usage(write_units=4, requests=1)}
    assert meter.by_index == {
        ("T", "L"): Usage(write_units=1, requests=1),
        ("T", "G"): Usage(write_units=2, requests=1),
    }
    assert meter.by_key == {("T", "a"): Usage(write_units=4, requests=1)}


def test_the_sides_that_the_service_tells_apart(client: FakeClient, meter: CapacityMeter) -> None:
    client.call(
        "TransactWriteItems",
        {"ConsumedCapacity": [consumed(2.0, ReadCapacityUnits=2.0)]},
        TransactItems=[{"Put": {"TableName": "T", "Item": item("a")}}],
    )
    assert (meter.read_units, meter.write_units) == (2, 0)


@pytest.mark.parametrize(
    ("report", "of_write", "of_read"),
    [
        ({"CapacityUnits": 5.0, "ReadCapacityUnits": 2.0, "WriteCapacityUnits": 3.0}, (2, 3), (2, 3)),
        ({"CapacityUnits": 5.0, "ReadCapacityUnits": 2.0, "WriteCapacityUnits": 1.0}, (0, 5), (5, 0)),
        ({"CapacityUnits": 5.0, "ReadCapacityUnits": 2.0}, (0, 5), (5, 0)),
        ({"CapacityUnits": 5.0, "WriteCapacityUnits": 2.0}, (0, 5), (5, 0)),
        ({"CapacityUnits": 5.0, "ReadCapacityUnits": 5.0}, (5, 0), (5, 0)),
        ({"CapacityUnits": 5.0, "WriteCapacityUnits": 5.0}, (0, 5), (0, 5)),
        ({"CapacityUnits": 5.0}, (0, 5), (5, 0)),
        ({"ReadCapacityUnits": 2.0, "WriteCapacityUnits": 1.0}, (2, 1), (2, 1)),
        ({"WriteCapacityUnits": 1.0}, (0, 1), (0, 1)),
        ({"ReadCapacityUnits": 1.0}, (1, 0), (1, 0)),
        ({}, (0, 0), (0, 0)),
    ],
)
def test_sides_that_do_not_sum_to_the_total(
    report: dict[str, Any], of_write: tuple[float, float], of_read: tuple[float, float]
) -> None:
    """The total counts then, on the side of the operation."""
    writing = FakeCall("TransactWriteItems", {"TransactItems": [{"Put": {"TableName": "T", "Item": item("a")}}]})
    reading = FakeCall("TransactGetItems", {"TransactItems": [{"Get": {"TableName": "T", "Key": key("a")}}]})
    for call, sides in ((writing, of_write), (reading, of_read)):
        charge = charge_of(call, [{"TableName": "T", **report}], {}, partition_keys={"T": "pk"})
        assert charge.total == units_of(charge)["T"] == Units(*sides)
        assert [(part.logical, part.units) for part in charge.keys] == [("a", Units(*sides))]


def test_a_report_without_a_table_is_that_of_the_only_one() -> None:
    """Of several tables it is nobody's, and the tables are estimated."""
    for tables, wanted in (("T", {"T": Units(0, 3)}), ("TU", {"unknown": Units(0, 3), "T": ONE, "U": ONE})):
        call = FakeCall("BatchWriteItem", {"RequestItems": {table: [put("a")] for table in tables}})
        charge = charge_of(call, [{"CapacityUnits": 3.0}], {}, partition_keys={"T": "pk", "U": "pk"})
        assert units_of(charge) == wanted
        assert {(part.table, part.logical): part.units for part in charge.keys} == {
            (table, None if table == "unknown" else "a"): units for table, units in wanted.items()
        }


@pytest.mark.parametrize("report", [None, []])
@pytest.mark.parametrize("tables", ["T", "TU"])
def test_a_batch_of_which_nothing_is_reported_is_estimated(report: Any, tables: str) -> None:
    call = FakeCall("BatchWriteItem", {"RequestItems": {table: [put("a"), put("b")] for table in tables}})
    charge = charge_of(call, report, {}, partition_keys={"T": "pk", "U": "pk"})
    assert units_of(charge) == dict.fromkeys(tables, Units(estimated_write=2.0))
    assert [(part.table, part.logical, part.units) for part in charge.keys] == [
        (table, name, ONE) for table in tables for name in "ab"
    ]
    outlined = FakeCall("BatchWriteItem", {"RequestItems": {"T": Outlined()}})
    charge = charge_of(outlined, report, {}, partition_keys={"T": "pk"})
    assert charge.total == Units(estimated_write=3.0)
    assert [part.units for part in charge.keys] == [charge.total]


def test_parts_without_a_total(client: FakeClient, meter: CapacityMeter) -> None:
    parts = {
        "TableName": "T",
        "Table": {"CapacityUnits": 1.0},
        "GlobalSecondaryIndexes": {"G": {"CapacityUnits": 2.0}},
    }
    client.call("DeleteItem", {"ConsumedCapacity": parts}, TableName="T", Key=key("a"))
    client.call(
        "Query", {"ConsumedCapacity": {"TableName": "T", "ReadCapacityUnits": 1.5}}, TableName="T", KeyConditions={}
    )
    assert (meter.read_units, meter.write_units) == (1.5, 3)


def test_arns_are_the_tables_they_name(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0, ARN)}, TableName=ARN, Item=item("a"))
    client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [consumed(1.0, ARN)], "UnprocessedItems": {"T": [put("b")]}},
        RequestItems={ARN: [put("a"), put("b")]},
    )
    assert meter.by_table == {"T": Usage(write_units=2, requests=2, throttles=1)}
    assert meter.by_key == {("T", "a"): Usage(write_units=2, requests=2)}


@pytest.mark.parametrize(
    ("operation", "statements", "expected"),
    [
        ("ExecuteStatement", {"Statement": ' select * FROM "T"."G" WHERE pk = ?'}, Usage(3, 0, requests=1)),
        ("ExecuteStatement", {"Statement": "INSERT INTO T VALUE {'pk': ?}"}, Usage(0, 3, requests=1)),
        ("BatchExecuteStatement", {"Statements": [{"Statement": 'UPDATE "T" SET a=1'}]}, Usage(0, 3, requests=1)),
        ("ExecuteTransaction", {"TransactStatements": [{"Statement": 'DELETE FROM "T"'}]}, Usage(0, 3, requests=1)),
    ],
)
def test_partiql(
    client: FakeClient, meter: CapacityMeter, operation: str, statements: dict[str, Any], expected: Usage
) -> None:
    answer: Any = consumed(3.0) if operation == "ExecuteStatement" else [consumed(3.0)]
    client.call(operation, {"ConsumedCapacity": answer}, **statements)
    assert meter.by_table == {"T": expected}
    assert meter.by_key == {}


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("PutItem", {"Item": item("a")}),
        ("GetItem", {"Key": key("a")}),
        ("UpdateItem", {"Key": key("a")}),
        ("DeleteItem", {"Key": key("a")}),
        (
            "Query",
            {
                "KeyConditionExpression": "#p = :p AND sk > :s",
                "ExpressionAttributeNames": {"#p": "pk"},
                "ExpressionAttributeValues": {":p": {"S": "a"}, ":s": {"N": "1"}},
            },
        ),
        ("Query", {"KeyConditions": {"pk": {"AttributeValueList": [{"S": "a"}], "ComparisonOperator": "EQ"}}}),
    ],
)
def test_single_calls_by_key(client: FakeClient, meter: CapacityMeter, operation: str, params: dict[str, Any]) -> None:
    client.call(operation, {"ConsumedCapacity": consumed(3.0)}, TableName="T", **params)
    usage = meter.by_key["T", "a"]
    assert usage.read_units + usage.write_units == 3
    assert usage.units_with_estimates == 3


def test_keys_are_python_values(client: FakeClient) -> None:
    meter = CapacityMeter()
    meter.attach(client, key_schema={"T": "pk"})
    for value in ({"S": "a"}, {"N": "1.0"}, {"N": "1"}, {"B": b"\xff"}, {"B": bytearray(b"\xff")}):
        client.call("GetItem", {"ConsumedCapacity": consumed(0.5)}, TableName="T", Key={"pk": value})
    assert {key: usage.read_units for (_, key), usage in meter.by_key.items()} == {"a": 0.5, Decimal(1): 1, b"\xff": 1}


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("Query", {"KeyConditionExpression": "this is no condition"}),
        ("Query", {}),
        ("Scan", {}),
        ("GetItem", {"Key": {"other": {"S": "a"}}}),
        ("GetItem", {"Key": {"pk": {"VECTOR": [1]}}}),
        ("GetItem", {"Key": {"pk": {"N": "one"}}}),
        ("GetItem", {"Key": {"pk": {"N": "1E999999999"}}}),
        ("GetItem", {"Key": {"pk": {"B": "no base64"}}}),
        ("GetItem", {"Key": {"pk": {"S": b"bytes"}}}),
        ("GetItem", {"Key": {"pk": {"S": 1}}}),
        ("GetItem", {"Key": {"pk": {"S": "a", "N": "1"}}}),
        ("GetItem", {"Key": {"pk": {}}}),
        ("GetItem", {"Key": {"pk": "a"}}),
        ("BatchGetItem", {"RequestItems": {"T": {"Keys": [{"pk": {"VECTOR": [1]}}]}}}),
    ],
)
def test_a_key_that_cannot_be_read_is_left_out(
    client: FakeClient, meter: CapacityMeter, operation: str, params: dict[str, Any]
) -> None:
    if "RequestItems" not in params:
        params = {**params, "TableName": "T"}
    client.call(operation, {"ConsumedCapacity": consumed(3.0)}, **params)
    assert meter.read_units == meter.other_keys.read_units == 3
    assert meter.by_key == {}


def test_a_table_without_key_schema_has_no_keys(client: FakeClient) -> None:
    meter = CapacityMeter()
    meter.attach(client)
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert meter.by_key == {}


def test_own_calls_count_for_the_logical_and_the_physical_key(client: FakeClient) -> None:
    sharding = replace(described(CalculatedSuffix("sk", shards=3), {"pk": "S", "sk": "N"}, ["pk", "sk"]), table="T")
    meter = CapacityMeter()
    meter.attach(client)
    for shard in (1, 2, 3):
        client.call(
            "PutItem", {"ConsumedCapacity": consumed(1.0)}, sharding=sharding, TableName="T", Item=item(f"a.{shard}")
        )
    client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [consumed(3.0)]},
        sharding=sharding,
        RequestItems={"T": [put("a.1"), put("b.1"), put("b.2")]},
    )
    assert meter.by_key == {
        ("T", "a"): Usage(write_units=3, estimated_write_units=1, requests=4),
        ("T", "b"): Usage(estimated_write_units=2, requests=2),
    }
    assert meter.by_physical_key == {
        ("T", "a.1"): Usage(write_units=1, estimated_write_units=1, requests=2),
        ("T", "a.2"): Usage(write_units=1, requests=1),
        ("T", "a.3"): Usage(write_units=1, requests=1),
        ("T", "b.1"): Usage(estimated_write_units=1, requests=1),
        ("T", "b.2"): Usage(estimated_write_units=1, requests=1),
    }


def test_batch_write_is_apportioned_by_size(client: FakeClient, meter: CapacityMeter) -> None:
    client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [consumed(12.0), consumed(1.0, "U")]},
        RequestItems={"T": [put("a", 2500), put("b"), {"DeleteRequest": {"Key": key("a")}}, put("c")], "U": [put("a")]},
    )
    assert meter.total == Usage(write_units=13, requests=1)
    assert meter.by_key == {
        ("T", "a"): Usage(estimated_write_units=8, requests=2),
        ("T", "b"): Usage(estimated_write_units=2, requests=1),
        ("T", "c"): Usage(estimated_write_units=2, requests=1),
        ("U", "a"): Usage(write_units=1, requests=1),
    }
    assert meter.other_keys == Usage()


def test_unprocessed_writes_count_for_nobody(client: FakeClient, meter: CapacityMeter) -> None:
    again = {"PutRequest": {"Item": {**item("b"), "sk": {"N": "1.0"}}}}
    client.call(
        "BatchWriteItem",
        {
            "ConsumedCapacity": [consumed(2.0)],
            "UnprocessedItems": {ARN: [again, {"DeleteRequest": {"Key": key("c")}}]},
        },
        RequestItems={"T": [put("a"), put("b"), {"DeleteRequest": {"Key": key("c")}}], "U": []},
    )
    assert meter.by_key == {("T", "a"): Usage(write_units=2, requests=1)}
    assert meter.throttles == {"UnprocessedItems": 1}


def test_batch_get_is_apportioned_by_what_came(client: FakeClient, meter: CapacityMeter) -> None:
    client.call(
        "BatchGetItem",
        {
            "ConsumedCapacity": [consumed(4.0)],
            "Responses": {"T": [item("a", 9000), item("b")]},
            "UnprocessedKeys": {"T": {"Keys": [key("d")]}},
        },
        RequestItems={"T": {"Keys": [key("a"), key("b"), key("missing"), key("d")], "ConsistentRead": False}},
    )
    assert meter.total == Usage(read_units=4, requests=1)
    assert {key: usage.estimated_read_units for (_, key), usage in meter.by_key.items()} == {
        "a": pytest.approx(2.4, abs=0.001), "b": pytest.approx(0.8, abs=0.001), "missing": pytest.approx(0.8, abs=0.001)
    }  # fmt: skip
    assert sum(usage.estimated_read_units for usage in meter.by_key.values()) == 4


def test_transactions(client: FakeClient, meter: CapacityMeter) -> None:
    client.call(
        "TransactWriteItems",
        {"ConsumedCapacity": [consumed(10.0)]},
        TransactItems=[
            {"Put": {"TableName": "T", "Item": item("a", 2500)}},
            {"Update": {"TableName": "T", "Key": key("b")}},
            {"ConditionCheck": {"TableName": "T", "Key": key("b")}},
        ],
    )
    client.call(
        "TransactGetItems",
        {"ConsumedCapacity": [consumed(6.0)], "Responses": [{"Item": item("a", 5000)}, {}]},
        TransactItems=[{"Get": {"TableName": "T", "Key": key("a")}}, {"Get": {"TableName": "T", "Key": key("b")}}],
    )
    assert meter.total == Usage(6, 10, requests=2)
    assert meter.by_key == {
        ("T", "a"): Usage(estimated_read_units=4, estimated_write_units=6, requests=2),
        ("T", "b"): Usage(estimated_read_units=2, estimated_write_units=4, requests=3),
    }


def test_an_own_transaction_over_another_table(client: FakeClient) -> None:
    """The sharded table counts by logical keys, the other one by its own, even if they look like stored ones."""
    sharding = replace(described(CalculatedSuffix("sk", shards=3), {"pk": "S", "sk": "N"}, ["pk", "sk"]), table="T")
    meter = CapacityMeter()
    meter.attach(client, key_schema={"U": "pk"})
    client.call(
        "TransactWriteItems",
        {"ConsumedCapacity": [consumed(4.0), consumed(2.0, "U")]},
        sharding=sharding,
        TransactItems=[
            {"Put": {"TableName": "T", "Item": item("a.1")}},
            {"Put": {"TableName": "T", "Item": item("a.2")}},
            {"Put": {"TableName": "U", "Item": item("a.1")}},
        ],
    )
    assert meter.total == Usage(write_units=6, requests=1)
    assert meter.by_key == {
        ("T", "a"): Usage(estimated_write_units=4, requests=2),
        ("U", "a.1"): Usage(write_units=2, requests=1),
    }
    assert meter.by_physical_key == {
        ("T", "a.1"): Usage(estimated_write_units=2, requests=1),
        ("T", "a.2"): Usage(estimated_write_units=2, requests=1),
    }


@given(
    st.lists(st.tuples(st.sampled_from("TU"), st.sampled_from("abcde"), st.integers(0, 9000)), max_size=25),
    st.dictionaries(st.sampled_from("TU"), st.integers(0, 500).map(lambda n: n / 2)),
)
def test_the_keys_of_a_batch_sum_exactly_to_the_report(
    requests: list[tuple[str, str, int]], units: dict[str, float]
) -> None:
    by_table: dict[str, list[dict[str, Any]]] = {}
    for table, name, size in requests:
        by_table.setdefault(table, []).append(put(name, size))
    call = FakeCall("BatchWriteItem", {"RequestItems": by_table})
    report = [consumed(units[table], table) for table in units]
    charge = charge_of(call, report, {}, partition_keys={"T": "pk", "U": "pk"})
    for table in by_table.keys() | units.keys():
        parts = [part.units for part in charge.keys if part.table == table]
        whole = charge.tables[table].units
        assert sum(part.write + part.estimated_write for part in parts) == whole.write + whole.estimated_write
        assert whole.estimated_write == 0 or table not in units
        assert whole.write == units.get(table, 0)
    assert charge.total.write == sum(units.values())
    assert charge.total.estimated_write == sum(account.units.estimated_write for account in charge.tables.values())


def test_a_batch_whose_least_is_not_what_was_reported_is_sized(client: FakeClient, meter: CapacityMeter) -> None:
    """Where it is, each cost the least: sizes say so too."""
    small = {"T": [put("a"), put("b"), put("c")]}
    client.call("BatchWriteItem", {"ConsumedCapacity": [consumed(3.0)]}, RequestItems=small)
    assert {usage.estimated_write_units for usage in meter.by_key.values()} == {1}
    large = {"T": [put("a", 3000), put("b")]}
    client.call("BatchWriteItem", {"ConsumedCapacity": [consumed(4.0)]}, RequestItems=large)
    assert {key: usage.estimated_write_units for (_, key), usage in meter.by_key.items()} == {"a": 4, "b": 2, "c": 1}
    assert sum(usage.estimated_write_units for usage in meter.by_key.values()) == meter.write_units == 7
