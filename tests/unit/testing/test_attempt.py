"""One attempt in front of an engine: the program alone, with a table in memory as the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Send
from shardkit.errors import UnsupportedOperationError
from shardkit.partitions import Partitions, SimulatedTable
from shardkit.testing.actions import EngineRequest
from shardkit.testing.answers import EngineAnswer
from shardkit.testing.attempt import attempt
from shardkit.testing.partitioned import PartitionedTable
from shardkit.testing.report import hottest_keys

DESCRIPTION = {
    "TableName": "Orders",
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "ByCustomer",
            "KeySchema": [{"AttributeName": "Customer", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
}
BAD = "com.amazonaws.dynamodb.v20120810#ValidationException"


class Engine:
    """A table that takes all, but the first entries of the next batch of an operation, as many as ``leaves`` says."""

    def __init__(self) -> None:
        unbounded: Any = {"read_units": None, "write_units": None, "on_demand": True, "count": 3}
        self.table = SimulatedTable(
            DESCRIPTION, Partitions(**unbounded), indexes={"ByCustomer": Partitions(**unbounded)}
        )
        self.asked: list[EngineRequest] = []
        self.leaves: dict[str, int] = {}
        self._now = 0.0

    def answer(self, request: EngineRequest) -> EngineAnswer:
        self.asked.append(request)
        self._now += 1e6  # it has throughput again
        params = dict(request.params)
        left: dict[str, Any] = {}
        if leaves := self.leaves.pop(request.operation, 0):
            ((table, part),) = params["RequestItems"].items()
            goes, stays = (
                {**part, "Keys": part["Keys"][some]} if isinstance(part, Mapping) else part[some]
                for some in (slice(leaves, None), slice(leaves))
            )
            params["RequestItems"] = {table: goes}
            left = {"UnprocessedKeys" if isinstance(part, Mapping) else "UnprocessedItems": {table: stays}}
        answered = self.table.answer(Send(request.operation, params), self._now)
        if isinstance(answered, ClientError):
            return EngineAnswer({"__type": BAD, "message": str(answered)}, 400)
        assert isinstance(answered, dict)
        return EngineAnswer({**answered, **left})


class Front:
    """A simulation of the table in front of the engine."""

    def __init__(self, *, units: float = 10, index_units: float = 1000, count: int = 3) -> None:
        self.engine = Engine()
        self.now = 0.0
        options: Any = {"burst_seconds": 0, "adaptive_seconds": None}
        partitions: dict[str | None, Partitions] = {
            None: Partitions(read_units=units, write_units=units, count=count, **options),
            "ByCustomer": Partitions(
                read_units=index_units,
                write_units=index_units,
                count=1,
                resource="table/Orders/index/ByCustomer",
                **options,
            ),
        }
        self.table = PartitionedTable(DESCRIPTION, partitions)

    def call(self, operation: str, **params: Any) -> EngineAnswer:
        program = attempt(EngineRequest(operation, params), {"Orders": self.table}, lambda: self.now)
        answer: Any = None
        while True:
            try:
                request = program.send(answer)
            except StopIteration as stop:
                end: EngineAnswer = stop.value
                return end
            answer = self.engine.answer(request)

    def batch(self, *entries: Any) -> EngineAnswer:
        return self.call("BatchWriteItem", RequestItems={"Orders": list(entries)}, ReturnConsumedCapacity="TOTAL")

    def stored(self, key: tuple[str, str]) -> Any:
        return self.engine.table.items.get(delete(key)["DeleteRequest"]["Key"])

    def taken(self, kind: Any = "write") -> float:
        return sum(sum(heat.taken[kind]) for of in self.table.partitions.values() for heat in of.heat.partitions)


def put(key: tuple[str, str], size: int = 0, **more: str) -> Any:
    texts = {"Date": key[0], "Id": key[1], "Note": "x" * size, **more}
    return {"PutRequest": {"Item": {name: {"S": text} for name, text in texts.items()}}}


def delete(key: tuple[str, str]) -> Any:
    return {"DeleteRequest": {"Key": {"Date": {"S": key[0]}, "Id": {"S": key[1]}}}}


def key_of(entry: Any) -> tuple[str, str]:
    ((_, body),) = entry.items()
    ((_, attributes),) = body.items()
    return attributes["Date"]["S"], attributes["Id"]["S"]


keys = st.tuples(st.sampled_from("abcdef"), st.sampled_from("123"))
writes = st.one_of(st.builds(put, keys, st.integers(0, 3000), Customer=st.sampled_from("CD")), st.builds(delete, keys))
batches = st.lists(
    st.tuples(
        st.lists(writes, min_size=2, max_size=8, unique_by=key_of),
        st.floats(0, 2),
        st.fixed_dictionaries({"BatchGetItem": st.integers(0, 1), "BatchWriteItem": st.integers(0, 1)}),
    ),
    max_size=6,
)


@given(batches, st.sampled_from([3, 10, 40]), st.sampled_from([2, 1000]))
def test_each_write_is_carried_out_or_given_back_and_paid_once(given: Any, units: float, index_units: float) -> None:
    """Conservation, whatever is hot, and whatever the engine itself leaves: of writes, and of units."""
    front = Front(units=units, index_units=index_units)
    expected: dict[tuple[str, str], Any] = {}
    consumed = 0.0
    for entries, seconds, leaves in given:
        front.now += seconds
        front.engine.leaves = dict(leaves)
        answer = front.batch(*entries)
        if answer.ok:
            left = answer.body.get("UnprocessedItems", {}).get("Orders", [])
            consumed += answer.body["ConsumedCapacity"][0]["CapacityUnits"]
        else:
            assert answer.code == "ProvisionedThroughputExceededException"
            left = entries
        assert Counter(map(key_of, left)) <= Counter(map(key_of, entries))
        expected |= {key_of(entry): entry.get("PutRequest", {}).get("Item") for entry in entries if entry not in left}
    assert {key: front.stored(key) for key in expected} == expected
    assert front.taken() == pytest.approx(consumed)


@pytest.mark.parametrize(("projection", "select", "cost"), [("Note", "ALL_ATTRIBUTES", 0.5 + 1.5), ("Id", None, 0.5)])
def test_what_a_local_index_fetches_is_read_whole(projection: str, select: str | None, cost: float) -> None:
    """The answer has some attributes only: the items are asked for once more, to know what they cost."""
    keys = [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "Total", "KeyType": "RANGE"}]
    local = {"IndexName": "ByTotal", "KeySchema": keys, "Projection": {"ProjectionType": "KEYS_ONLY"}}
    limits: Any = {"read_units": 100, "write_units": 100, "count": 1}
    table = PartitionedTable(
        {**DESCRIPTION, "LocalSecondaryIndexes": [local]},
        {None: Partitions(**limits), "ByCustomer": Partitions(**limits)},
    )
    params = {
        "TableName": "Orders",
        "IndexName": "ByTotal",
        "KeyConditionExpression": "#d = :d",
        "ExpressionAttributeNames": {"#d": "Date"},
        "ExpressionAttributeValues": {":d": {"S": "a"}},
        "ProjectionExpression": projection,
        "ReturnConsumedCapacity": "TOTAL",
    }
    program = attempt(EngineRequest("Query", params), {"Orders": table}, lambda: 0.0)
    assert next(program).params == params
    key = {"Date": {"S": "a"}, "Id": {"S": "1"}, "Total": {"N": "1"}}
    again = program.send(EngineAnswer({"Items": [{}], "Count": 1, "ScannedCount": 1}))
    assert (again.params.get("Select"), again.params["Limit"], "ProjectionExpression" in again.params) == (
        select,
        1,
        False,
    )
    with pytest.raises(StopIteration) as end:
        program.send(
            EngineAnswer({"Items": [{**key, "Note": {"S": "x" * 9000}} if select else key], "ScannedCount": 1})
        )
    assert end.value.value.body["ConsumedCapacity"]["CapacityUnits"] == cost


def test_what_the_engine_leaves_is_given_back_and_costs_nothing() -> None:
    front = Front(units=100)
    front.engine.leaves = {"BatchWriteItem": 2}
    entries = [put(("a", "1"), 5000), put(("b", "1"), 3000), put(("c", "1"), 1000)]
    answer = front.batch(*entries)
    assert answer.body["UnprocessedItems"] == {"Orders": entries[:2]}
    assert answer.body["ConsumedCapacity"] == [{"TableName": "Orders", "CapacityUnits": 1.0}]
    assert front.taken() == 1.0


def test_of_keys_too() -> None:
    front = Front(units=100)
    front.batch(put(("a", "1"), 9000), put(("b", "1"), 9000))
    front.now += 10.0
    front.engine.leaves = {"BatchGetItem": 1}
    asked = [{"Date": {"S": date}, "Id": {"S": "1"}} for date in "ab"]
    answer = front.call("BatchGetItem", RequestItems={"Orders": {"Keys": asked}}, ReturnConsumedCapacity="TOTAL")
    assert answer.body["UnprocessedKeys"] == {"Orders": {"Keys": asked[:1]}}
    assert answer.body["ConsumedCapacity"] == [{"TableName": "Orders", "CapacityUnits": 1.5}]
    assert front.taken("read") == 1.5


def test_what_is_refused_is_not_asked_of_the_engine() -> None:
    front = Front(units=3, count=1)
    entries = [put(("a", str(number))) for number in range(5)]
    front.batch(*entries)
    front.batch(*entries[3:])
    operations = [request.operation for request in front.engine.asked]
    assert operations == ["BatchGetItem", "BatchWriteItem", "BatchGetItem"]
    assert front.engine.asked[1].params["RequestItems"] == {"Orders": entries[:3]}


def test_many_keys_are_read_in_several_requests() -> None:
    """A transaction may have 100 actions, a BatchGetItem 100 keys."""
    front = Front(units=1000)
    entries: list[dict[str, Any]] = [
        {"Delete": {"TableName": "Orders", **delete(("a", str(number)))["DeleteRequest"]}} for number in range(130)
    ]
    with pytest.raises(UnsupportedOperationError):  # of the engine; the reads come first
        front.call("TransactWriteItems", TransactItems=entries)
    sizes = [len(request.params["RequestItems"]["Orders"]["Keys"]) for request in front.engine.asked[:-1]]
    assert sizes == [100, 30]


def test_an_update_is_made_once_also_where_the_item_cannot_be_read_after_it() -> None:
    """An own read that fails must not let a request go on a second time."""
    front = Front()
    asked: list[str] = []

    def answer(request: EngineRequest) -> EngineAnswer:
        asked.append(request.operation)
        if asked.count("BatchGetItem") > 1:
            return EngineAnswer({"__type": BAD}, 500)
        return EngineAnswer({"Responses": {}} if request.operation == "BatchGetItem" else {})

    front.engine.answer = answer  # type: ignore[method-assign]
    key = delete(("a", "1"))["DeleteRequest"]["Key"]
    answered = front.call("UpdateItem", TableName="Orders", Key=key, ReturnConsumedCapacity="TOTAL")
    assert asked == ["BatchGetItem", "UpdateItem", "BatchGetItem"]
    assert answered.body == {"ConsumedCapacity": {"TableName": "Orders", "CapacityUnits": 1.0}}


def test_keys_that_a_cancelled_transaction_did_not_take_have_taken_nothing() -> None:
    front = Front(units=3, count=1)
    puts = [{"Put": {"TableName": "Orders", "Item": put((day, "1"))["PutRequest"]["Item"]}} for day in "ab"]
    answer = front.call("TransactWriteItems", TransactItems=puts)
    assert answer.code == "TransactionCanceledException"
    by_key = {hot.key: (hot.write_units, hot.throttled_write_units) for hot in hottest_keys(front.table)}
    assert by_key == {"b": (0.0, 2.0)}
    assert front.taken() == 0


def test_a_key_whose_index_refused_has_taken_nothing() -> None:
    front = Front(index_units=0.01)
    assert front.batch(put(("a", "1"), Customer="C")).ok
    assert not front.batch(put(("a", "2"), Customer="C")).ok
    by_key = {hot.key: (hot.write_units, hot.throttled_write_units) for hot in hottest_keys(front.table)}
    assert by_key == {"a": (1.0, 0.0), "C": (1.0, 1.0)}


@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("PutItem", {"Item": {"Date": {"S": "a"}}}),
        ("PutItem", {"Item": 5}),
        ("PutItem", {}),
        ("GetItem", {"Key": {"Date": {"S": "a"}, "Id": "text"}}),
        ("Query", {"KeyConditionExpression": "Customer = :c", "ExpressionAttributeValues": {":c": {"S": "C"}}}),
        ("Query", {"IndexName": "Nowhere"}),
        ("Scan", {"Segment": "one"}),
        ("BatchWriteItem", {"RequestItems": {"Orders": [{"PutRequest": {}}]}}),
        ("BatchGetItem", {"RequestItems": {"Orders": {}}}),
        ("TransactWriteItems", {"TransactItems": [{"Put": {"TableName": "Orders"}}]}),
    ],
)
def test_what_cannot_be_understood_is_for_the_engine_to_refuse(operation: str, params: dict[str, Any]) -> None:
    front = Front()
    refusal = EngineAnswer({"__type": BAD}, 400)
    front.engine.answer = lambda request: refusal  # type: ignore[method-assign]
    table = {} if "RequestItems" in params or "TransactItems" in params else {"TableName": "Orders"}
    assert front.call(operation, **table, **params) is refusal
    assert front.taken("read") == front.taken("write") == 0
    assert not front.table.throttles
