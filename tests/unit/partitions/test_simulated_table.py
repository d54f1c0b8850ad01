"""A simulated table: what it answers, what that consumes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix
from shardkit.bulk.writes import EncodedRequests, Write
from shardkit.capacity import CapacityEstimator, ItemChange, TableUnits
from shardkit.core.machine import Send
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.service_errors import throttle_reasons
from shardkit.errors import (
    ConfigurationError,
    UnsupportedExpressionError,
    UnsupportedOperationError,
    UnsupportedParameterError,
)
from shardkit.partitions import Partitions, SimulatedTable, hash_of

KEYS = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
DESCRIPTION = {
    "TableName": "orders",
    "KeySchema": KEYS,
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "N"},
        {"AttributeName": "city", "AttributeType": "S"},
        {"AttributeName": "total", "AttributeType": "N"},
    ],
    "ProvisionedThroughput": {"ReadCapacityUnits": 1000, "WriteCapacityUnits": 1000},
    "LocalSecondaryIndexes": [
        {
            "IndexName": "by-total",
            "KeySchema": [KEYS[0], {"AttributeName": "total", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "by-city",
            "KeySchema": [{"AttributeName": "city", "KeyType": "HASH"}, KEYS[1]],
            "Projection": {"ProjectionType": "ALL"},
            "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 10},
        }
    ],
}
PLAIN = {
    name: DESCRIPTION[name] for name in ("TableName", "KeySchema", "AttributeDefinitions", "ProvisionedThroughput")
}


def a_table(description: dict[str, Any] | None = None, **options: Any) -> SimulatedTable:
    return SimulatedTable.described(description or PLAIN, **{"burst_seconds": 0, **options})


def put(item: dict[str, Any], **params: Any) -> Send:
    return Send("PutItem", {"TableName": "orders", "Item": to_wire_item(item), **params})


def batch(*items: dict[str, Any], **params: Any) -> Send:
    requests = [{"PutRequest": {"Item": to_wire_item(item)}} for item in items]
    return Send("BatchWriteItem", {"RequestItems": {"orders": requests}, "ReturnConsumedCapacity": "INDEXES", **params})


def query(pk: str, **params: Any) -> Send:
    condition = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": {"S": pk}}}
    return Send("Query", {"TableName": "orders", **condition, **params})


def answered(table: SimulatedTable, send: Send, now: float = 0.0) -> dict[str, Any]:
    answer = table.answer(send, now)
    assert isinstance(answer, dict), answer
    return answer


def refused(table: SimulatedTable, send: Send, now: float = 0.0) -> frozenset[str]:
    answer = table.answer(send, now)
    assert isinstance(answer, ClientError), answer
    assert answer.operation_name == send.operation
    return throttle_reasons(answer)


# Writes.


def test_a_put_consumes_what_the_rules_say() -> None:
    """Of the larger of before and after; local indexes of the table's partition, global ones of their own."""
    table, estimator = a_table(DESCRIPTION), CapacityEstimator(DESCRIPTION)
    before: dict[str, Any] | None = None
    items = [
        {"pk": "a", "sk": 1, "city": "Rome", "total": 1, "body": "x" * 3000},
        {"pk": "a", "sk": 1, "city": "Rome", "total": 2, "body": "x"},
        {"pk": "a", "sk": 1, "city": "Oslo", "total": 2, "body": "x" * 1500},
        {"pk": "a", "sk": 1, "body": "x"},
        {"pk": "a", "sk": 1, "body": "x"},
    ]
    for now, item in enumerate(items):
        units = estimator.put_item(item, before=before)
        response = answered(table, put(item, ReturnConsumedCapacity="INDEXES"), now)
        assert response == {"ConsumedCapacity": units.consumed("orders", indexes=True)}
        before = item
    assert taken(table.partitions) == sum(
        units.table + sum(units.local_indexes.values())
        for units in [estimator.put_item(item, before=was) for was, item in zip([None, *items], items, strict=False)]
    )
    key = {"pk": {"S": "a"}, "sk": {"N": "1"}}
    assert answered(table, Send("DeleteItem", {"TableName": "orders", "Key": key}), 9) == {}
    assert len(table.items) == 0
    assert answered(table, Send("DeleteItem", {"TableName": "orders", "Key": key}), 9) == {}


def taken(partitions: Partitions, kind: Any = "write") -> float:
    return sum(sum(heat.taken[kind]) for heat in partitions.heat.partitions)


def test_consumed_capacity_as_it_is_asked_for() -> None:
    units = TableUnits(2.0, {"by-total": 1.0}, {"by-city": 3.0})
    assert units.consumed("orders") == {"TableName": "orders", "CapacityUnits": 6.0}
    assert units.consumed("orders", indexes=True) == {
        "TableName": "orders",
        "CapacityUnits": 6.0,
        "Table": {"CapacityUnits": 2.0},
        "LocalSecondaryIndexes": {"by-total": {"CapacityUnits": 1.0}},
        "GlobalSecondaryIndexes": {"by-city": {"CapacityUnits": 3.0}},
    }
    assert answered(a_table(), put({"pk": "a", "sk": 1})) == {}


def test_an_index_that_is_exhausted_throttles_the_table() -> None:
    """Back-pressure: the index's reason, and nothing taken or written, neither of it nor of the table."""
    table = a_table(DESCRIPTION)
    items = [{"pk": f"{number}", "sk": 1, "city": "Rome"} for number in range(12)]
    for item in items[:10]:
        answered(table, put(item))
    assert refused(table, put(items[10])) == {"IndexWriteProvisionedThroughputExceeded"}
    assert taken(table.partitions) == taken(table.index_partitions["by-city"]) == 10
    assert len(table.items) == 10
    answered(table, put({"pk": "elsewhere", "sk": 1}))  # the index does not hold it
    response = answered(table, batch(items[10], {"pk": "b", "sk": 1}, items[11]))
    assert [request["PutRequest"]["Item"]["pk"]["S"] for request in response["UnprocessedItems"]["orders"]] == [
        "10",
        "11",
    ]
    (consumed,) = response["ConsumedCapacity"]
    assert consumed == {"TableName": "orders", "CapacityUnits": 1.0, "Table": {"CapacityUnits": 1.0}}


def test_an_entry_that_moves_is_charged_in_both_places() -> None:
    """A delete at the old key's partition of the index, a put at the new one's."""
    description = {**PLAIN, "GlobalSecondaryIndexes": DESCRIPTION["GlobalSecondaryIndexes"]}
    index = Partitions(read_units=10, write_units=1000, count=64, resource="table/orders/index/by-city")
    table = SimulatedTable(description, Partitions(read_units=10, write_units=1000), indexes={"by-city": index})
    answered(table, put({"pk": "a", "sk": 1, "city": "Rome", "body": "x" * 5000}))
    answered(table, put({"pk": "a", "sk": 1, "city": "Oslo"}), 100)
    heats = index.heat.by_range
    rome, oslo = (index.place(hash_of({"S": city})) for city in ("Rome", "Oslo"))
    assert rome != oslo
    assert (sum(heats[rome].taken["write"]), sum(heats[oslo].taken["write"])) == (5 + 5, 1)
    assert taken(table.partitions) == 5 + 5


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("keeps_items", [False, True])
def test_what_a_batch_cannot_write_comes_back(*, encoded: bool, keeps_items: bool) -> None:
    """Those of the hot partition; where none could be written the batch is throttled."""
    table = a_table(
        {**PLAIN, "ProvisionedThroughput": {"ReadCapacityUnits": 10, "WriteCapacityUnits": 9000}},
        count=9,
        keeps_items=keeps_items,
    )
    items = [{"pk": "hot", "sk": number} for number in range(20)] + [{"pk": "cold", "sk": 1}]
    hot = hash_of({"S": "hot"})
    assert table.partitions.place(hot) != table.partitions.place(hash_of({"S": "cold"}))
    table.partitions.take(hot, "write", 995, 0.0)
    send = batch(*items)
    if encoded:
        requests = send.params["RequestItems"]["orders"]
        bodies = [bytes(encode(request)) for request in requests]
        writes = [
            Write(body, place, None, key := (item["pk"], item["sk"]), key, 1)
            for place, (body, item) in enumerate(zip(bodies, items, strict=True))
        ]
        send.params["RequestItems"]["orders"] = EncodedRequests(bodies, writes)
    response = answered(table, send)
    left = [request["PutRequest"]["Item"]["sk"]["N"] for request in response["UnprocessedItems"]["orders"]]
    assert left == [str(number) for number in range(5, 20)]
    assert [one["CapacityUnits"] for one in response["ConsumedCapacity"]] == [6.0]
    assert refused(table, batch(*items[:3])) == {"TableWriteKeyRangeThroughputExceeded"}
    assert len(table.items) == (6 if keeps_items else 0)
    assert taken(table.partitions) == 995 + 6


@given(sizes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3000)), max_size=30), seconds=st.floats(0, 0.02))
def test_refusals_take_nothing(sizes: list[tuple[int, int]], seconds: float) -> None:
    """What the table took is what its answers say, and its items are those that were written."""
    description: dict[str, Any] = {
        **DESCRIPTION,
        "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 12},
    }
    table = a_table(description)
    reported, written = 0.0, {}
    for number, (key, size) in enumerate(sizes):
        item = {"pk": f"{key}", "sk": 1, "city": "Rome" if size % 2 else "Oslo", "body": "x" * size}
        answer = table.answer(put(item, ReturnConsumedCapacity="TOTAL"), number * seconds)
        if isinstance(answer, dict):
            reported += answer["ConsumedCapacity"]["CapacityUnits"]
            written[key] = item
    assert taken(table.partitions) + taken(table.index_partitions["by-city"]) == pytest.approx(reported)
    assert {key: table.items.get(to_wire_item({"pk": f"{key}", "sk": 1})) for key in written} == {
        key: to_wire_item(item) for key, item in written.items()
    }


def test_data_grows_and_splits_partitions() -> None:
    """Of the table with its local indexes, and of a global index by its own keys."""
    table = a_table(DESCRIPTION, split_bytes=10_000)
    for number in range(15):
        table.hold(to_wire_item({"pk": f"{number}", "sk": 1, "city": "Rome", "total": 1, "body": "x" * 900}))
    entry = 900 + len("bodypk1sk") + 3 + len("cityRometotal") + 2
    assert sum(table.index_partitions["by-city"].stored) == pytest.approx(15 * (entry + 100), rel=0.01)
    assert sum(table.partitions.stored) > sum(table.index_partitions["by-city"].stored)
    assert len(table.partitions) > 1
    assert taken(table.partitions) == 0, "nobody pays for what was there before"
    table.hold(to_wire_item({"pk": "1", "sk": 1}))
    assert sum(table.index_partitions["by-city"].stored) == pytest.approx(14 * (entry + 100), rel=0.01)


# Reads.


def test_items_are_read_and_billed() -> None:
    table = a_table()
    table.hold(to_wire_item({"pk": "a", "sk": 1, "body": "x" * 5000}))
    key = to_wire_item({"pk": "a", "sk": 1})
    get = {"TableName": "orders", "Key": key, "ReturnConsumedCapacity": "TOTAL"}
    response = answered(table, Send("GetItem", get))
    assert response["Item"]["body"] == {"S": "x" * 5000}
    assert response["ConsumedCapacity"]["CapacityUnits"] == 1.0
    response = answered(table, Send("GetItem", {**get, "ConsistentRead": True}))
    assert response["ConsumedCapacity"]["CapacityUnits"] == 2.0
    missing = to_wire_item({"pk": "a", "sk": 2})
    assert answered(table, Send("GetItem", {"TableName": "orders", "Key": missing})) == {}
    request = {"RequestItems": {"orders": {"Keys": [key, missing]}}, "ReturnConsumedCapacity": "TOTAL"}
    response = answered(table, Send("BatchGetItem", request))
    assert [item["sk"] for item in response["Responses"]["orders"]] == [{"N": "1"}]
    assert [one["CapacityUnits"] for one in response["ConsumedCapacity"]] == [1.5]
    assert taken(table.partitions, "read") == 1 + 2 + 0.5 + 1.5


def test_reads_are_throttled() -> None:
    """Those of a full partition; a batch gives back the keys that it could not read."""
    table = a_table({**PLAIN, "ProvisionedThroughput": {"ReadCapacityUnits": 9000, "WriteCapacityUnits": 10}}, count=3)
    hot, cold = ({"pk": {"S": pk}, "sk": {"N": "1"}} for pk in ("hot", "cold"))
    assert len({table.partitions.place(hash_of(key["pk"])) for key in (hot, cold)}) == 2
    table.partitions.take(hash_of({"S": "hot"}), "read", 3000, 0.0)
    assert refused(table, Send("GetItem", {"TableName": "orders", "Key": hot})) == {
        "TableReadKeyRangeThroughputExceeded"
    }
    assert refused(table, query("hot")) == {"TableReadKeyRangeThroughputExceeded"}
    request = {"RequestItems": {"orders": {"Keys": [hot, cold], "ConsistentRead": True}}}
    response = answered(table, Send("BatchGetItem", request))
    assert response["UnprocessedKeys"] == {"orders": {"Keys": [hot], "ConsistentRead": True}}
    request = {"RequestItems": {"orders": {"Keys": [hot]}}}
    assert refused(table, Send("BatchGetItem", request)) == {"TableReadKeyRangeThroughputExceeded"}


@given(
    sort_keys=st.lists(st.integers(-50, 50), unique=True, max_size=30),
    limit=st.none() | st.integers(1, 7),
    backwards=st.booleans(),
    between=st.none() | st.tuples(st.integers(-50, 50), st.integers(-50, 50)),
)
def test_pages_of_a_query(
    *, sort_keys: list[int], limit: int | None, backwards: bool, between: tuple[int, int] | None
) -> None:
    """Put together, they are the items of the key in order, those of the condition."""
    table = a_table()
    for number in sort_keys:
        table.hold(to_wire_item({"pk": "a", "sk": number}))
        table.hold(to_wire_item({"pk": "b", "sk": number}))
    params: dict[str, Any] = {"ScanIndexForward": not backwards}
    if limit is not None:
        params["Limit"] = limit
    wanted = sorted(sort_keys, reverse=backwards)
    if between is not None:
        low, high = sorted(between)
        wanted = [number for number in wanted if low <= number <= high]
        params["KeyConditionExpression"] = "pk = :pk AND sk BETWEEN :low AND :high"
        params["ExpressionAttributeValues"] = to_wire_item({":pk": "a", ":low": low, ":high": high})
    found: list[int] = []
    pages = 0
    while True:
        response = answered(table, query("a", **params), float(pages))
        pages += 1
        found += [int(item["sk"]["N"]) for item in response["Items"]]
        assert response["Count"] == len(response["Items"]) <= (limit or 100)
        if "LastEvaluatedKey" not in response:
            break
        params["ExclusiveStartKey"] = response["LastEvaluatedKey"]
    assert found == wanted


def test_a_page_ends_after_one_megabyte() -> None:
    table = a_table()
    for number in range(4):
        table.hold(to_wire_item({"pk": "a", "sk": number, "body": "x" * 400_000}))
    response = answered(table, query("a", ReturnConsumedCapacity="TOTAL"))
    assert response["Count"] == 3
    assert response["LastEvaluatedKey"] == to_wire_item({"pk": "a", "sk": 2})
    assert response["ConsumedCapacity"]["CapacityUnits"] == 146.5
    counted = answered(table, query("a", Select="COUNT"), 10)
    assert (counted["Count"], "Items" in counted) == (3, False)


def test_an_index_is_read_on_its_own_partitions() -> None:
    """A global one on its own, a local one on the table's; equal sort keys go on behind the last one."""
    table = a_table(DESCRIPTION)
    for number in range(6):
        table.hold(to_wire_item({"pk": f"{number}", "sk": 1, "city": "Rome", "total": 7}))
    params: dict[str, Any] = {
        "TableName": "orders",
        "IndexName": "by-city",
        "KeyConditionExpression": "city = :city",
        "ExpressionAttributeValues": {":city": {"S": "Rome"}},
        "Limit": 4,
        "ReturnConsumedCapacity": "INDEXES",
    }
    response = answered(table, Send("Query", params))
    assert set(response["LastEvaluatedKey"]) == {"pk", "sk", "city"}
    assert response["ConsumedCapacity"]["GlobalSecondaryIndexes"] == {"by-city": {"CapacityUnits": 0.5}}
    rest = answered(table, Send("Query", {**params, "ExclusiveStartKey": response["LastEvaluatedKey"]}))
    assert [item["pk"]["S"] for item in response["Items"] + rest["Items"]] == [f"{number}" for number in range(6)]
    assert taken(table.index_partitions["by-city"], "read") == 1.0
    local = query("3", IndexName="by-total", ReturnConsumedCapacity="INDEXES")
    response = answered(table, local)
    assert [set(item) for item in response["Items"]] == [{"pk", "sk", "total"}]
    assert response["ConsumedCapacity"]["LocalSecondaryIndexes"] == {"by-total": {"CapacityUnits": 0.5}}
    assert taken(table.partitions, "read") == 0.5


# What it is made of, and what it refuses.


def test_the_description_makes_the_partitions() -> None:
    table = a_table(DESCRIPTION, count=3)
    assert answered(table, Send("DescribeTable", {"TableName": "orders"}))["Table"]["KeySchema"] == KEYS
    assert (len(table.partitions), len(table.index_partitions["by-city"])) == (3, 1)
    on_demand = {**{name: value for name, value in PLAIN.items() if name != "ProvisionedThroughput"}}
    for mode in ({"BillingMode": "PAY_PER_REQUEST"}, {"BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"}}):
        table = a_table({**on_demand, **mode})
        assert len(table.partitions) == 4
    with pytest.raises(ConfigurationError, match="ProvisionedThroughput"):
        a_table(on_demand)
    for half in ("ReadCapacityUnits", "WriteCapacityUnits"):
        with pytest.raises(ConfigurationError, match="no ProvisionedThroughput of read and write units"):
            a_table({**on_demand, "ProvisionedThroughput": {half: 5}})
    with pytest.raises(ConfigurationError, match="description: must be a table's description, got 'orders'"):
        SimulatedTable.described("orders")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="by-city"):
        SimulatedTable(DESCRIPTION, Partitions(read_units=1, write_units=1))


@pytest.mark.parametrize(
    ("send", "error", "match"),
    [
        (Send("UpdateItem", {"TableName": "orders"}), UnsupportedOperationError, "UpdateItem"),
        (query("a", FilterExpression="b = :c"), UnsupportedParameterError, "FilterExpression"),
        (put({"pk": "a", "sk": 1}, ConditionExpression="attribute_exists(pk)"), UnsupportedParameterError, "Condition"),
        (query("a", IndexName="by-day"), ConfigurationError, "by-day"),
        (
            query("a", KeyConditionExpression="sk = :pk"),
            UnsupportedExpressionError,
            "pk",
        ),
        (Send("BatchWriteItem", {"RequestItems": {"other": []}}), ConfigurationError, "other"),
    ],
)
def test_what_it_cannot_answer_truly_it_refuses(send: Send, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        a_table().answer(send, 0.0)


@pytest.mark.parametrize("strategy", [RandomSuffix(3), CalculatedSuffix("sk", shards=3)])
def test_units_of_the_estimator(strategy: Any) -> None:
    """What the admission charges for a change is what the estimator says, also in a transaction."""
    table, estimator = a_table(DESCRIPTION), CapacityEstimator(DESCRIPTION)
    change = ItemChange(None, {"pk": strategy.physical_key("a", 1), "sk": 1, "city": "Rome"})
    charged: Callable[..., TableUnits] = table.admission.units_of
    assert charged(change) == estimator.batch_write_item([change])
    assert charged(change, transactional=True) == estimator.transact_write_items([change])
