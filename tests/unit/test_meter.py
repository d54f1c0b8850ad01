from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity import meter as meter_module
from shardkit.capacity.meter import CapacityMeter
from shardkit.capacity.tally import Usage, charge_of
from shardkit.errors import ConfigurationError


@dataclass
class FakeCall:
    operation: str
    params: dict[str, Any]
    sharding: Any = None
    notes: dict[Any, Any] = field(default_factory=dict)


class FakeClient:
    """Keeps its observers by itself, in the order and with the calls of shardkit.events."""

    def __init__(self) -> None:
        self.meta = SimpleNamespace(events=object())
        self.observers: list[Any] = []

    def call(
        self,
        operation: str,
        response: dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]],
        *,
        sharding: Any = None,
        **params: Any,
    ) -> dict[str, Any]:
        call = FakeCall(operation, copy.deepcopy(params), sharding)
        for observer in self.observers:
            observer.before(call)
        self.sent = copy.deepcopy(call.params)
        parsed = copy.deepcopy(response(call.params) if callable(response) else response)
        for observer in reversed(self.observers):
            observer.after(call, parsed)
        return parsed


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    def observe(client: FakeClient, observer: Any) -> None:
        if observer not in client.observers:
            client.observers.append(observer)

    def unobserve(client: FakeClient, observer: Any) -> None:
        client.observers = [known for known in client.observers if known is not observer]

    monkeypatch.setattr(meter_module, "observe", observe)
    monkeypatch.setattr(meter_module, "unobserve", unobserve)
    return FakeClient()


@pytest.fixture
def meter(client: FakeClient) -> CapacityMeter:
    meter = CapacityMeter()
    meter.attach(client, key_schema={"T": "pk", "U": "pk"})
    return meter


def consumed(units: float, table: str = "T", **parts: Any) -> dict[str, Any]:
    return {"TableName": table, "CapacityUnits": units, **parts}


def item(key: str, size: int = 0) -> dict[str, Any]:
    return {"pk": {"S": key}, "sk": {"N": "1"}, "body": {"S": "x" * size}}


def key(name: str) -> dict[str, Any]:
    return {"pk": {"S": name}, "sk": {"N": "1"}}


def put(name: str, size: int = 0) -> dict[str, Any]:
    return {"PutRequest": {"Item": item(name, size)}}


# What is asked, and what the caller sees.


@pytest.mark.parametrize("asked", [{}, {"ReturnConsumedCapacity": "NONE"}])
def test_who_did_not_ask_does_not_see(client: FakeClient, meter: CapacityMeter, asked: dict[str, Any]) -> None:
    seen = client.call("GetItem", {"ConsumedCapacity": consumed(0.5)}, TableName="T", Key=key("a"), **asked)
    assert client.sent["ReturnConsumedCapacity"] == "INDEXES"
    assert "ConsumedCapacity" not in seen
    assert meter.read_units == 0.5


@pytest.mark.parametrize("asked", ["TOTAL", "INDEXES"])
def test_who_asked_sees_what_he_asked_for(client: FakeClient, meter: CapacityMeter, asked: str) -> None:
    CapacityMeter().attach(client)
    seen = client.call(
        "GetItem", {"ConsumedCapacity": consumed(0.5)}, TableName="T", Key=key("a"), ReturnConsumedCapacity=asked
    )
    assert client.sent["ReturnConsumedCapacity"] == asked
    assert seen["ConsumedCapacity"] == consumed(0.5)
    assert meter.read_units == 0.5


def test_other_operations_are_left_alone(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("DescribeTable", {"Table": {}}, TableName="T")
    assert client.sent == {"TableName": "T"}
    assert meter.requests == 0


def test_several_meters_count_the_same_and_the_caller_sees_nothing(client: FakeClient, meter: CapacityMeter) -> None:
    others = [CapacityMeter(), CapacityMeter()]
    for other in others:
        other.attach(client)
    seen = client.call("PutItem", {"ConsumedCapacity": consumed(2.0)}, TableName="T", Item=item("a"))
    assert seen == {}
    assert [known.write_units for known in (meter, *others)] == [2, 2, 2]


def test_attached_twice_counts_once_until_both_are_gone(client: FakeClient) -> None:
    meter = CapacityMeter()
    table = SimpleNamespace(name="T", meta=SimpleNamespace(client=client))
    first, second = meter.attach(client), meter.attach(client)
    with meter.attach(table):
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert meter.write_units == 1
    first.detach()
    first.detach()
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="U", Item=item("a"))
    assert meter.write_units == 2
    second.detach()
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert client.sent == {"TableName": "T", "Item": item("a")}
    assert client.observers == []
    assert meter.write_units == 2
    with meter.attach(client):
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert meter.write_units == 3


def test_detached_while_a_call_is_under_way(client: FakeClient) -> None:
    meter = CapacityMeter()
    attachment = meter.attach(client)

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        attachment.detach()
        return {"ConsumedCapacity": consumed(1.0)}

    client.call("PutItem", answer, TableName="T", Item=item("a"))
    assert meter.requests == 0


def test_attached_while_a_call_is_under_way(client: FakeClient) -> None:
    meter = CapacityMeter()

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        meter.attach(client)
        return {}

    client.call("PutItem", answer, TableName="T", Item=item("a"))
    assert meter.requests == 0


def test_a_table_counts_only_itself(client: FakeClient) -> None:
    meter = CapacityMeter()
    table = SimpleNamespace(name="T", meta=SimpleNamespace(client=client))
    meter.attach(table, key_schema={"T": "pk"})
    client.call("PutItem", {}, TableName="U", Item=item("a"))
    assert "ReturnConsumedCapacity" not in client.sent
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [consumed(2.0), consumed(5.0, "U")]},
        RequestItems={"T": [put("a")], "U": [put("a")]},
    )
    assert meter.by_table == {"T": Usage(write_units=3, requests=2)}
    assert meter.write_units == 3
    assert meter.by_key.keys() == {("T", "a")}


def test_a_table_may_be_attached_by_its_arn(client: FakeClient) -> None:
    meter = CapacityMeter()
    meter.attach(SimpleNamespace(name=ARN, meta=SimpleNamespace(client=client)), key_schema={ARN: "pk"})
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert meter.by_key == {("T", "a"): Usage(write_units=1, requests=1)}


def test_a_client_that_is_dropped_is_not_kept_alive() -> None:
    client = boto3.client("dynamodb", region_name="us-east-1")
    attachment, dropped = CapacityMeter().attach(client), weakref.ref(client)
    del client
    gc.collect()
    assert dropped() is None
    attachment.detach()


def test_what_cannot_be_attached() -> None:
    with pytest.raises(ConfigurationError, match="str"):
        CapacityMeter().attach("Orders")
    with pytest.raises(ConfigurationError, match="key_schema"):
        CapacityMeter().attach(FakeClient(), key_schema={"T": {"pk": "S"}})  # type: ignore[dict-item]


# Scopes.


def test_scopes_nest_and_count_only_inside(client: FakeClient, meter: CapacityMeter) -> None:
    def write() -> None:
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))

    write()
    with meter.scope("outer") as outer:
        write()
        with meter.scope("inner") as inner:
            write()
        with inner, inner:
            write()
        write()
    write()
    assert (inner.write_units, outer.write_units, meter.write_units) == (2, 4, 6)
    assert inner.by_key == {("T", "a"): Usage(write_units=2, requests=2)}
    assert (outer.requests, outer.name) == (4, "outer")
    with CapacityMeter().scope("another meter's") as other:
        write()
    assert other.requests == 0


def test_a_scope_ends_though_its_body_raises(client: FakeClient, meter: CapacityMeter) -> None:
    with pytest.raises(RuntimeError), meter.scope("x") as used:
        raise RuntimeError
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert used.requests == 0


# What was reported.


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


ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/T"


def test_arns_are_the_tables_they_name(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0, ARN)}, TableName=ARN, Item=item("a"))
    client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [consumed(1.0, ARN)], "UnprocessedItems": {"T": [put("b")]}},
        RequestItems={ARN: [put("a"), put("b")]},
    )
    assert meter.by_table == {"T": Usage(write_units=2, requests=2)}
    assert meter.by_key == {("T", "a"): Usage(write_units=1, estimated_write_units=1, requests=2)}


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


# By key.


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
    ],
)
def test_a_key_that_cannot_be_read_is_left_out(
    client: FakeClient, meter: CapacityMeter, operation: str, params: dict[str, Any]
) -> None:
    client.call(operation, {"ConsumedCapacity": consumed(3.0)}, TableName="T", **params)
    assert meter.read_units == 3
    assert meter.by_key == {}


def test_a_table_without_key_schema_has_no_keys(client: FakeClient) -> None:
    meter = CapacityMeter()
    meter.attach(client)
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert meter.by_key == {}


def test_own_calls_count_for_the_logical_key(client: FakeClient) -> None:
    def logical(physical: dict[str, Any]) -> tuple[dict[str, Any], int]:
        key, _, shard = physical["S"].rpartition(".")
        return {"S": key}, int(shard)

    sharding = SimpleNamespace(table="T", keys=SimpleNamespace(partition_key="pk"), logical=logical)
    meter = CapacityMeter()
    meter.attach(client)
    for shard in range(3):
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


# Batches.


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
        ("U", "a"): Usage(estimated_write_units=1, requests=1),
    }


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
    assert meter.by_key == {("T", "a"): Usage(estimated_write_units=2, requests=1)}


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
    charge = charge_of(call, [consumed(units[table], table) for table in units], {}, partition_key=lambda _: "pk")
    for table in by_table:
        estimated = sum(usage.estimated_write_units for (name, _), usage in charge.keys.items() if name == table)
        if table in units:
            assert estimated == units[table] == charge.tables[table].write_units
            assert charge.tables[table].estimated_write_units == 0
        else:
            assert estimated == charge.tables[table].estimated_write_units
    assert charge.total.write_units == sum(units.values())


# Estimates and errors.


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


@pytest.mark.parametrize("code", ["ProvisionedThroughputExceededException", "ValidationException"])
def test_other_errors_consume_nothing(client: FakeClient, meter: CapacityMeter, code: str) -> None:
    client.call("PutItem", {"Error": {"Code": code}}, TableName="T", Item=item("a"))
    assert meter.total == meter.by_table["T"] == Usage(requests=1)
    assert meter.by_key == {}


def test_as_text(client: FakeClient, meter: CapacityMeter) -> None:
    with meter.scope("import") as used:
        client.call("PutItem", {"ConsumedCapacity": consumed(2.0)}, TableName="T", Item=item("a"))
        client.call("GetItem", {}, TableName="T", Key=key("b"))
    assert str(used).splitlines() == [
        "import: 2 requests  0.0 read units  2.0 write units  + estimated 0.5 read units",
        "  table T           0.0 read units  2.0 write units  + estimated 0.5 read units",
        "  GetItem           0.0 read units  0.0 write units  + estimated 0.5 read units",
        "  PutItem           0.0 read units  2.0 write units",
        "  key T 'a'         0.0 read units  2.0 write units",
        "  key T 'b'         0.0 read units  0.0 write units  + estimated 0.5 read units",
    ]
    assert str(meter).startswith("total: 2 requests")
    assert "0.0 read units" in str(CapacityMeter())


def test_keys_beyond_the_bound_are_added_up(client: FakeClient) -> None:
    meter = CapacityMeter(max_keys=1)
    meter.attach(client, key_schema={"T": "pk"})
    for name in "abc":
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item(name))
    assert [key for key, _ in meter.hottest()] == [("T", "a")]
    assert meter.other_keys == Usage(write_units=2, requests=2)
