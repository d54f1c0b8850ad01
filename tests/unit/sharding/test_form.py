"""One logic, two forms: what a caller in wire values gives and gets is what one in Python values does."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.core.machine import Machine, Program, ProgramMachine
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ShardUnknownError
from shardkit.partitions import SimulatedTable, Simulator
from shardkit.sharding.form import PYTHON_VALUES, WIRE_VALUES, Form
from shardkit.sharding.programs import Programs
from shardkit.strategies import CalculatedSuffix, RandomSuffix, Strategy
from tests.support.machines import a_fan_out

DESCRIPTION: dict[str, Any] = {
    "TableName": "Orders",
    "KeySchema": [
        {"AttributeName": "Date", "KeyType": "HASH"},
        {"AttributeName": "OrderId", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "N"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
QUERY = {"KeyConditionExpression": "#d = :d", "ExpressionAttributeNames": {"#d": "Date"}}
FAN_OUT = a_fan_out(4)

VALUES = st.recursive(
    st.one_of(st.text(), st.booleans(), st.none(), st.integers(-(10**30), 10**30), st.binary(min_size=1)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


class Face:
    """A face over a table in memory, in one form."""

    def __init__(self, form: Form, strategy: Strategy) -> None:
        self._simulator = Simulator(SimulatedTable.described(DESCRIPTION))
        self.programs = Programs("Orders", strategy, DESCRIPTION, lambda: 0.5, form)

    def run(self, program: Program[Any]) -> Any:
        machine: Machine[Any] = ProgramMachine(program)
        return self._simulator.run(machine)

    def put(self, item: Mapping[str, Any]) -> Any:
        return self._item("PutItem", {"Item": item})

    def get(self, key: Mapping[str, Any]) -> Any:
        return self._item("GetItem", {"Key": key})

    def _item(self, operation: str, params: Mapping[str, Any]) -> Any:
        return self.run(self.programs.item(operation, params, shard=None, return_shards=True, fan_out=FAN_OUT))

    def query(self, values: Mapping[str, Any], **more: Any) -> Any:
        params = {**QUERY, "ExpressionAttributeValues": values, **more}
        return self.run(self.programs.query(params, shard=None, return_shards=True, fan_out=FAN_OUT))

    def batch_get(self, *keys: Mapping[str, Any]) -> Any:
        return self.run(self.programs.batch_get_items(keys, {}, fan_out=FAN_OUT))


@pytest.mark.long_search
@settings(max_examples=settings().max_examples // 2)
@given(st.dictionaries(st.integers(0, 10**20), st.dictionaries(st.text(min_size=1, max_size=4), VALUES, max_size=3)))
def test_both_forms_say_the_same(bodies: Mapping[int, Mapping[str, Any]]) -> None:
    """Puts, gets, batch gets and queries in wire values, shown in Python values, are those in Python values."""
    strategy = CalculatedSuffix("OrderId", shards=3)
    python, wire = Face(PYTHON_VALUES, strategy), Face(WIRE_VALUES, strategy)
    keys = [{"Date": "2014-07-09", "OrderId": number} for number in bodies]
    for key in keys:
        item = {**bodies[key["OrderId"]], **key}  # type: ignore[index]
        assert python.put(item)["Shard"] == wire.put(to_wire_item(item))["Shard"]
        wire_key = to_wire_item(key)
        assert from_wire_item(wire.get(wire_key)["Item"]) == python.get(key)["Item"]
        assert wire.programs.form is WIRE_VALUES
        assert wire.run(wire.programs.physical(wire_key, "Key")) == to_wire_item(
            python.run(python.programs.physical(key, "Key"))
        )
    if keys:
        found = [from_wire_item(item) for item in wire.batch_get(*map(to_wire_item, keys))["Items"]]
        assert found == python.batch_get(*keys)["Items"]
    more: dict[str, Any]
    for more in ({}, {"ScanIndexForward": False}, {"Limit": 2}, {"Limit": 1, "ScanIndexForward": False}):
        start: dict[str, Any] = {}
        wire_start: dict[str, Any] = {}
        while True:
            expected = python.query({":d": "2014-07-09"}, **more, **start)
            answer = wire.query({":d": {"S": "2014-07-09"}}, **more, **wire_start)
            assert [from_wire_item(item) for item in answer["Items"]] == expected["Items"]
            assert answer["Shards"] == expected["Shards"]
            assert ("LastEvaluatedKey" in answer) == ("LastEvaluatedKey" in expected)
            if "LastEvaluatedKey" not in answer:
                break
            assert from_wire_item(answer["LastEvaluatedKey"]).keys() == {"Date", "OrderId"}
            start = {"ExclusiveStartKey": expected["LastEvaluatedKey"]}
            wire_start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}


def test_wire_values_are_not_converted() -> None:
    """A number that prints with more digits than boto3 takes, and a type that shardkit does not know, go through."""
    face = Face(WIRE_VALUES, CalculatedSuffix("OrderId", shards=3))
    item = {"Date": {"S": "d"}, "OrderId": {"N": "1"}, "long": {"N": "1" + "0" * 100}}
    face.put(item)
    assert face.get({"Date": {"S": "d"}, "OrderId": {"N": "1"}})["Item"] == item
    assert face.query({":d": {"S": "d"}})["Items"] == [item]
    with pytest.raises(ArithmeticError):
        from_wire_item(item)


@pytest.mark.parametrize("form", [PYTHON_VALUES, WIRE_VALUES])
def test_a_function_reads_python_values(form: Form) -> None:
    """Whatever the face's form is."""
    read: list[Any] = []

    def by(item: Mapping[str, Any]) -> Any:
        read.append(item["OrderId"])
        return item["OrderId"]

    face = Face(form, CalculatedSuffix(by, shards=3))
    key = {"Date": "d", "OrderId": Decimal(7)}
    face.put(key if form is PYTHON_VALUES else to_wire_item(key))
    assert read == [7]


@pytest.mark.parametrize("form", [PYTHON_VALUES, WIRE_VALUES])
def test_an_unknown_shard_is_refused_in_both(form: Form) -> None:
    """The rules do not depend on the form."""
    key = {"Date": "d", "OrderId": 1}
    with pytest.raises(ShardUnknownError, match="Shard="):
        Face(form, RandomSuffix(3)).get(key if form is PYTHON_VALUES else to_wire_item(key))
