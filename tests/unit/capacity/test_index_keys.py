"""What a meter knows of the keys of global indexes, and what it advises on those that are hot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, CapacityMeter, RandomSuffix, Strategy, Unsharded
from shardkit.analysis.shards import shards_for
from shardkit.capacity import HotKeyWarning, Usage
from shardkit.errors import ConfigurationError
from shardkit.sharding.layout import Sharding
from tests.support.metered import ARN, FakeClient, consumed
from tests.support.tables import described as sharding_of

BY_STATUS = {"IndexName": "by-status", "KeySchema": [{"AttributeName": "status", "KeyType": "HASH"}]}
BY_BOTH = {
    "IndexName": "by-both",
    "KeySchema": [{"AttributeName": name, "KeyType": "HASH"} for name in ("status", "region")],
}
TURNED = {
    "IndexName": "turned",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "status", "KeyType": "RANGE"}],
}
TURNED_BOTH = {
    "IndexName": "turned-both",
    "KeySchema": [{"AttributeName": name, "KeyType": "HASH"} for name in ("region", "pk")],
}
SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [],
    "GlobalSecondaryIndexes": [BY_STATUS, BY_BOTH, TURNED, TURNED_BOTH],
}
OPEN = {":s": {"S": "open"}}


def reported(units: float = 1.0, **indexes: float) -> dict[str, Any]:
    """A report: units of the table, and of indexes, whose names are written with ``_``."""
    parts = {name.replace("_", "-"): {"CapacityUnits": part} for name, part in indexes.items()}
    return consumed(units + sum(indexes.values()), GlobalSecondaryIndexes=parts)


def key(name: str = "a") -> dict[str, Any]:
    return {"pk": {"S": name}, "sk": {"S": "1"}}


def item(status: str | None = None, **more: str) -> dict[str, Any]:
    values = more if status is None else {"status": status, **more}
    return {**key(), **{name: {"S": value} for name, value in values.items()}}


class Metered:
    def __init__(self, key_schema: Any = SCHEMA, **options: Any) -> None:
        self.client, self.meter = FakeClient(), CapacityMeter(clock=lambda: 0.0, **options)
        self.meter.attach(self.client, key_schema={"T": key_schema})

    def put(self, units: float, status: str | None = "open", index: str = "by_status", **more: str) -> None:
        answer = {"ConsumedCapacity": reported(**{index: units})}
        self.client.call("PutItem", answer, TableName="T", Item=item(status, **more))

    def throttled(
        self, operation: str = "PutItem", index: str = "by-status", kind: str = "Write", **params: Any
    ) -> None:
        reason = {"reason": f"Index{kind}KeyRangeThroughputExceeded", "resource": f"{ARN}/index/{index}"}
        error = {"Error": {"Code": "ThrottlingException"}, "throttlingReasons": [reason]}
        self.client.call(operation, error, **{"TableName": "T", **params})


def test_the_key_of_each_call_that_names_it() -> None:
    metered = Metered()
    metered.put(3)
    metered.put(2, "open", "by_both", region="eu")
    call: Any = metered.client.call
    update = {"TableName": "T", "Key": key(), "ExpressionAttributeValues": OPEN}
    answer = {"ConsumedCapacity": reported(by_status=5.0)}
    call(
        "UpdateItem", answer, **update, UpdateExpression="SET #s = :s, n = n", ExpressionAttributeNames={"#s": "status"}
    )
    call("UpdateItem", answer, TableName="T", Key=key(), AttributeUpdates={"status": {"Value": {"S": "paid"}}})
    query = {"TableName": "T", "IndexName": "by-status", "KeyConditionExpression": "status = :s"}
    call("Query", {"ConsumedCapacity": reported(0, by_status=0.5)}, **query, ExpressionAttributeValues=OPEN)
    assert metered.meter.by_index_key == {
        ("T", "by-status", "open"): Usage(read_units=0.5, write_units=8, requests=3),
        ("T", "by-status", "paid"): Usage(write_units=5, requests=1),
        ("T", "by-both", ("open", "eu")): Usage(write_units=2, requests=1),
    }


@pytest.mark.parametrize(
    "expression",
    ["SET other = :s", "SET status = if_not_exists(status, :s)", "REMOVE status", "SET status.a = :s"],
)
def test_a_key_that_an_update_does_not_name_is_not_guessed(expression: str) -> None:
    metered = Metered()
    params: dict[str, Any] = {"UpdateExpression": expression, "ExpressionAttributeValues": OPEN}
    metered.client.call("UpdateItem", {"ConsumedCapacity": reported(by_status=2.0)}, TableName="T", Key=key(), **params)
    assert (metered.meter.by_index_key, metered.meter.by_index["T", "by-status"].write_units) == ({}, 2)


def test_a_batch_is_divided_over_the_keys_that_it_names() -> None:
    """Sparse items have no entry; what was not processed is not counted; one key gets the report as it is."""
    metered = Metered()
    puts = [{"PutRequest": {"Item": item(status)}} for status in ("open", "open", "paid", None)]
    left = {"T": [{"PutRequest": {"Item": {**item("late"), "sk": {"S": "2"}}}}]}
    answer = {"ConsumedCapacity": [reported(4, by_status=3.0)], "UnprocessedItems": left}
    metered.client.call("BatchWriteItem", answer, RequestItems={"T": [*puts, *left["T"]]})
    assert metered.meter.by_index_key == {
        ("T", "by-status", "open"): Usage(estimated_write_units=2, requests=2),
        ("T", "by-status", "paid"): Usage(estimated_write_units=1, requests=1),
    }
    update = {"TableName": "T", "Key": key(), "UpdateExpression": "SET status = :s", "ExpressionAttributeValues": OPEN}
    metered.client.call(
        "TransactWriteItems",
        {"ConsumedCapacity": [reported(2, by_status=2.0), consumed(2.0, "U")]},
        TransactItems=[{"Update": update}, {"Put": {"TableName": "U", "Item": item("open")}}],
    )
    assert metered.meter.by_index_key["T", "by-status", "open"] == Usage(
        write_units=2, estimated_write_units=2, requests=3
    )


@pytest.mark.parametrize("known", ["pk", {"KeySchema": SCHEMA["KeySchema"]}])
def test_indexes_that_are_not_described_are_not_looked_at(known: Any) -> None:
    metered = Metered(known)
    metered.put(5000)
    assert (metered.meter.by_index_key, [one.index for one in metered.meter.advise()]) == ({}, [None])


@pytest.mark.parametrize("index", ["turned", "turned-both"])
def test_an_index_with_the_tables_key_is_hot_where_the_table_is(index: str) -> None:
    metered = Metered()
    metered.put(2000, index=index, region="eu")
    metered.throttled(index=index, Item=item())
    assert metered.meter.by_index_key == {}
    ((place, usage),) = metered.meter.by_key.items()
    assert (place, usage.throttles) == (("T", "a"), 1)
    assert [one.index for one in metered.meter.advise()] == [None]


def test_a_hot_key_of_an_index() -> None:
    metered = Metered()
    for name in range(30):
        metered.client.call(
            "PutItem",
            {"ConsumedCapacity": reported(by_status=100.0)},
            TableName="T",
            Item={**item("open"), **key(f"{name}")},
        )
    metered.put(700, "paid")
    (advice,) = metered.meter.advise()
    needed = shards_for(write_units=3000)
    assert (advice.table, advice.index, advice.key, advice.shards, advice.shards_needed) == (
        "T", "by-status", "open", 1, needed.shards,
    )  # fmt: skip
    assert (advice.peak_write_units, advice.partition, advice.by) == (3000, ("status",), ("pk", "sk"))
    line = f'indexes={{"by-status": CalculatedSuffix(("pk", "sk"), shards={needed.shards}, attribute="shard")}}'
    assert advice.line == line
    assert str(advice).startswith(f"T, index by-status 'open': {needed.shards} shards instead of 1: {needed.reason}. ")
    assert str(advice).endswith(
        ". A hot index throttles the writes of its table: create an index with the partition key status, shard (a "
        f"number), and write {line} with its name: see docs/sharded-indexes.md"
    )


def test_the_index_of_a_sharded_table() -> None:
    metered = Metered("pk")
    sharding = sharding_of(
        CalculatedSuffix("sk", shards=2),
        {"pk": "S", "sk": "S", "status": "S"},
        ["pk", "sk"],
        secondary={"by-status": (["status"], [])},
    )
    answer = {"ConsumedCapacity": {**reported(by_status=900.0), "TableName": sharding.table}}
    for shard in (1, 2):
        put = {**item("open"), **key(f"a.{shard}")}
        metered.client.call("PutItem", answer, sharding=sharding, TableName=sharding.table, Item=put)
    (advice,) = [one for one in metered.meter.advise() if one.index is not None]
    assert (advice.key, advice.peak_write_units, advice.by) == ("open", 1800, ("pk", "sk"))


def test_what_is_advised_can_be_written() -> None:
    """The line is an argument that makes a sharded index, of an index with the key that the advice asks for."""
    metered = Metered()
    metered.put(3000)
    advice = next(one for one in metered.meter.advise() if one.index is not None)
    written = eval(f"dict({advice.line})", {"CalculatedSuffix": CalculatedSuffix})  # noqa: S307 - our own text
    index = Sharding.described("T", Unsharded(), NUMBERED, sharded=written["indexes"]).sharded.get("by-status")
    assert index is not None
    assert (index.strategy.shards, index.stored_name) == (advice.shards_needed, "shard")


@given(
    st.lists(st.sampled_from(["open", "paid", "sent", None]), min_size=1, max_size=25),
    st.integers(1, 4000),
    st.sampled_from(["BatchWriteItem", "TransactWriteItems"]),
)
def test_the_keys_sum_to_what_was_reported(statuses: list[str | None], units: int, operation: str) -> None:
    """Unless no item names a key: then it is in ``by_index`` only."""
    metered = Metered()
    answer = {"ConsumedCapacity": [reported(len(statuses), by_status=float(units))]}
    items = [{**item(status), "sk": {"S": f"{place}"}} for place, status in enumerate(statuses)]
    request = (
        {"RequestItems": {"T": [{"PutRequest": {"Item": one}} for one in items]}}
        if operation == "BatchWriteItem"
        else {"TransactItems": [{"Put": {"TableName": "T", "Item": one}} for one in items]}
    )
    call: Any = metered.client.call
    call(operation, answer, **request)
    by_key = metered.meter.by_index_key
    named = {status for status in statuses if status is not None}
    assert {key for _, _, key in by_key} == named
    assert sum(usage.units_with_estimates for usage in by_key.values()) == pytest.approx(units if named else 0)
    assert sum(usage.requests for usage in by_key.values()) == len(statuses) - statuses.count(None)


NUMBERED: dict[str, Any] = {
    **SCHEMA,
    "AttributeDefinitions": [{"AttributeName": "shard", "AttributeType": "N"}],
    "GlobalSecondaryIndexes": [
        {"IndexName": "by-status", "KeySchema": [{"AttributeName": n, "KeyType": "HASH"} for n in ("status", "shard")]}
    ],
}
FROM_SOURCE = {
    **SCHEMA,
    "GlobalSecondaryIndexes": [
        {"IndexName": "by-status", "KeySchema": [{"AttributeName": "StatusShard", "KeyType": "HASH"}]}
    ],
}


@pytest.mark.parametrize(
    ("description", "strategy", "stored", "line"),
    [
        (NUMBERED, CalculatedSuffix("sk", shards=4, attribute="shard"),
         lambda shard: {"status": {"S": "open"}, "shard": {"N": str(shard)}},
         "indexes={\"by-status\": CalculatedSuffix(by='sk', shards=117, attribute='shard')}"),
        (FROM_SOURCE, RandomSuffix(4, source="status"), lambda shard: {"StatusShard": {"S": f"open.{shard}"}},
         "indexes={\"by-status\": RandomSuffix(shards=117, source='status')}"),
        (FROM_SOURCE, RandomSuffix({"open": 4}, source="status"),
         lambda shard: {"StatusShard": {"S": f"open.{shard}"}}, None),
    ],
)  # fmt: skip
def test_an_index_that_is_sharded_already(
    description: Any, strategy: Strategy, stored: Callable[[int], dict[str, Any]], line: str | None
) -> None:
    """A partition serves a stored key; the advice is on the logical one, and counts the shards that it has."""
    sharding = Sharding.described("T", Unsharded(), description, sharded={"by-status": strategy})
    metered = Metered("pk", warn_at=0.85)
    for shard, units in ((1, 700.0), (2, 900.0), (3, 100.0)):
        answer = {"ConsumedCapacity": reported(by_status=units)}
        put = {**key(f"{shard}"), **stored(shard)}
        metered.client.call("PutItem", answer, sharding=sharding, TableName="T", Item=put)
    (advice,) = (one for one in metered.meter.advise() if one.index is not None)
    assert (advice.key, advice.shards, advice.shards_needed, advice.peak_write_units) == ("open", 4, 117, 900)
    assert (advice.times_fair, advice.strategy, advice.line) == (4 * 900 / 1700, strategy, line)
    assert "its fair share of the key's units. More shards do not help where" in str(advice)
    assert f": write {line or 'a strategy with more shards'}: see docs/sharded-indexes.md" in str(advice)


def test_no_number_of_shards_is_enough() -> None:
    metered = Metered()
    metered.put(200_000)
    advice = next(one for one in metered.meter.advise() if one.index is not None)
    assert (advice.shards_needed, advice.line) == (None, None)
    assert str(advice).endswith("A hot index throttles the writes of its table: write fewer items with one key")


def test_an_index_key_that_was_throttled() -> None:
    """By a write of the table, and by a Query of the index; the table's own key is not hot."""
    metered = Metered()
    metered.throttled(Item=item("open"))
    query: dict[str, Any] = {
        "IndexName": "by-status", "KeyConditionExpression": "status = :s", "ExpressionAttributeValues": OPEN,
    }  # fmt: skip
    metered.throttled("Query", kind="Read", **query)
    (advice,) = metered.meter.advise()
    assert (advice.index, advice.key, advice.shards_needed, advice.throttles) == ("by-status", "open", 2, 2)
    assert metered.meter.by_index_key == {("T", "by-status", "open"): Usage(throttles=2)}


@pytest.mark.parametrize("known", [SCHEMA, "pk"])
def test_a_throttled_key_that_the_request_does_not_name(known: Any) -> None:
    metered = Metered(known)
    metered.throttled("UpdateItem", Key=key(), UpdateExpression="SET n = :s", ExpressionAttributeValues=OPEN)
    (advice,) = metered.meter.advise()
    assert (advice.index, advice.key, advice.shards_needed) == ("by-status", None, 2)
    assert str(advice).startswith("T, index by-status, a key that the requests do not name: 2 shards instead of 1: ")
    assert ("with by the attributes of the table's primary key" in str(advice)) == (known == "pk")


def test_it_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    warnings: list[HotKeyWarning] = []
    metered = Metered(warn_at=0.8, on_warning=warnings.append)
    metered.client.call(
        "BatchWriteItem",
        {"ConsumedCapacity": [reported(2, by_status=850.0)]},
        RequestItems={"T": [{"PutRequest": {"Item": {**item("open"), **key(name)}}} for name in "ab"]},
    )
    assert metered.meter.requests == 1
    (warning,) = warnings
    assert (warning.index, warning.key, warning.write_units) == ("by-status", "open", 850)
    assert caplog.records[0].getMessage().startswith("T, index by-status 'open': 850.0 write units in one second, 85% ")


def test_a_description_is_checked() -> None:
    with pytest.raises(ConfigurationError, match=r"^key_schema: of table 'T': not a key schema"):
        CapacityMeter().attach(FakeClient(), key_schema={"T": {"pk": "S"}})
