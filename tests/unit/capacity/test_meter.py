"""The meter: what it is attached to, what the caller sees of it, and its scopes."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from shardkit.capacity import CapacityMeter, Usage
from shardkit.errors import ConfigurationError
from tests.support.metered import ARN, FakeClient, client, consumed, item, key, meter, put

__all__ = ["client", "meter"]


@pytest.mark.parametrize("asked", [{}, {"ReturnConsumedCapacity": "NONE"}])
@pytest.mark.parametrize(
    ("operation", "params", "sent"),
    [
        ("GetItem", {"Key": key("a")}, "TOTAL"),
        ("Query", {"IndexName": "G"}, "INDEXES"),
        ("PutItem", {"Item": item("a")}, "INDEXES"),
    ],
)
def test_who_did_not_ask_does_not_see(
    client: FakeClient, meter: CapacityMeter, operation: str, params: dict[str, Any], sent: str, asked: dict[str, Any]
) -> None:
    """Asked is for indexes, where they may have a part."""
    seen = client.call(operation, {"ConsumedCapacity": consumed(0.5)}, TableName="T", **params, **asked)
    assert client.sent["ReturnConsumedCapacity"] == sent
    assert "ConsumedCapacity" not in seen
    assert meter.read_units + meter.write_units == 0.5


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

    assert client.call("PutItem", answer, TableName="T", Item=item("a")) == {}
    assert client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a")) != {}
    assert (meter.requests, meter.write_units) == (1, 1.0)


def test_a_batch_whose_meter_is_detached_while_it_is_under_way(client: FakeClient) -> None:
    meter = CapacityMeter()
    attachment = meter.attach(client)

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        attachment.detach()
        return {"ConsumedCapacity": [consumed(2.0)]}

    client.call("BatchWriteItem", answer, RequestItems={"T": [put("a"), put("b")]})
    assert {table: usage.write_units for table, usage in meter.by_table.items()} == {"T": 2.0}


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


@pytest.mark.parametrize("key_schema", [{"T": ["pk"]}, {1: "pk"}, "T", "", 5, ["T"], True])
def test_a_key_schema_that_names_no_keys(key_schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="key_schema: must map table names"):
        CapacityMeter().attach(FakeClient(), key_schema=key_schema)


@pytest.mark.parametrize("name", [None, 5, b"import", "\ud800"])
def test_names_of_scopes_and_tags_are_text(meter: CapacityMeter, name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^name: must be a str that UTF-8 can encode"):
        meter.scope(name)
    with pytest.raises(ConfigurationError, match=r"^tags: must be a str"):
        meter.scope("import", tenant=name)


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


def test_a_tag_may_have_any_name(client: FakeClient, meter: CapacityMeter) -> None:
    """Also those of the parameters."""
    tags = {"name": "orders", "self": "service", "tags": "many", "a b": "with a space"}
    with meter.scope("import", **tags) as used:
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert (used.name, used.tags) == ("import", tags)
    assert meter.by_tag == {tag: Usage(write_units=1, requests=1) for tag in tags.items()}


def test_a_scope_ends_though_its_body_raises(client: FakeClient, meter: CapacityMeter) -> None:
    with pytest.raises(RuntimeError), meter.scope("x") as used:
        raise RuntimeError
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    assert used.requests == 0


def test_what_is_noted_is_added_up_in_time(client: FakeClient, meter: CapacityMeter) -> None:
    """Many calls, then a look at a scope; and what the caller changes afterwards is not what was sent."""
    with meter.scope("x") as used:
        for _ in range(200):
            sent = key("a")
            client.call("GetItem", {"ConsumedCapacity": consumed(0.5)}, TableName="T", Key=sent)
            sent["pk"]["S"] = "changed"
    assert used.by_key == meter.by_key == {("T", "a"): Usage(read_units=100, requests=200)}


def test_many_threads_write_and_look(client: FakeClient, meter: CapacityMeter) -> None:
    def write(number: int) -> float:
        with meter.scope(f"{number}") as used:
            for _ in range(10):
                client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item(str(number % 3)))
                str(meter), meter.to_dict()
        return used.write_units

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(write, range(24))) == [10] * 24
    assert meter.total == Usage(write_units=240, requests=240)
    assert meter.by_key == {("T", str(number)): Usage(write_units=80, requests=80) for number in range(3)}
