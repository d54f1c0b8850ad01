"""Calls that are added up together: the same figures as added up one by one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, ConfigurationError, Unsharded
from shardkit.bulk.writes import EncodedRequests, Writes, outline
from shardkit.capacity import CapacityMeter, Usage
from tests.support.fakes import sharding
from tests.support.metered import FakeClient, consumed, item, key, put


@dataclass(frozen=True)
class Made:
    """A call, the seconds since the one before it, and the scope that it is made in, if any."""

    call: tuple[str, dict[str, Any], Any]
    after: float
    scope: int | None
    asks: bool


def load(keys: list[tuple[str, int]]) -> EncodedRequests:
    """Give a batch of a load of shardkit's: a partition key and an item's size, each."""
    writes = Writes(sharding(Unsharded()), lambda *_: 0.5)
    made = [writes.put({"pk": name, "sk": str(number), "b": "x" * size}, 0) for number, (name, size) in enumerate(keys)]
    return EncodedRequests([write.body for write in made], made)


KEYS = st.sampled_from("abc")
UNITS = st.integers(1, 40).map(lambda halves: halves / 2)
QUERY = {"KeyConditionExpression": "pk = :k"}
CALLS = st.one_of(
    st.builds(lambda name, units: ("GetItem", {"TableName": "T", "Key": key(name)}, consumed(units)), KEYS, UNITS),
    st.builds(
        lambda name, units, index: (
            "Query",
            {"TableName": "T", **QUERY, "ExpressionAttributeValues": {":k": {"S": name}}, **index},
            consumed(units, GlobalSecondaryIndexes={"G": {"CapacityUnits": units}}) if index else consumed(units),
        ),
        KEYS,
        UNITS,
        st.sampled_from([{}, {"IndexName": "G"}]),
    ),
    st.builds(lambda units: ("PutItem", {"TableName": "U", "Item": item("a")}, consumed(units, "U")), UNITS),
    st.builds(
        lambda keys, more: (
            "BatchWriteItem",
            {"RequestItems": {"T": load(keys)}},
            [consumed(sum(max(1, -(-size // 1024)) for _, size in keys) + more)],
        ),
        st.lists(st.tuples(KEYS, st.sampled_from([1, 900])), min_size=1, max_size=5),
        st.sampled_from([0.0, 0.5, 7.0]),
    ),
    st.just(("BatchWriteItem", {"RequestItems": {"T": [put("a"), put("b", 3000)]}}, [consumed(5.0)])),
)
MADE = st.lists(
    st.builds(Made, CALLS, st.sampled_from([0.0, 0.0, 0.05, 0.4, 1.0]), st.sampled_from([None, 0, 1]), st.booleans()),
    max_size=80,
)


def figures(calls: list[Made], window: float, *, looks: bool) -> dict[str, Any]:
    """Make the calls; ``looks``: see to it after each that all is added up."""
    now = [1000.0]
    meter = CapacityMeter(window=window, clock=lambda: now[0])
    client = FakeClient()
    scopes = [meter.scope("first", kind="x"), meter.scope("second", kind="y")]
    with meter.attach(client, key_schema={"T": "pk", "U": "pk"}):
        for made in calls:
            now[0] += made.after
            operation, params, reported = made.call
            asks: dict[str, Any] = {"ReturnConsumedCapacity": "INDEXES"} if made.asks else {}
            with ExitStack() as stack:
                if made.scope is not None:
                    stack.enter_context(scopes[made.scope])
                seen = client.call(operation, {"ConsumedCapacity": reported}, **params, **asks)
            if made.asks and isinstance(seen["ConsumedCapacity"], dict):
                seen["ConsumedCapacity"]["CapacityUnits"] = 1e9  # what is the caller's may be changed by him
            if looks:
                assert meter.requests > 0
    with meter.recorder as tally:
        peaks = {name: tally.keys.peaks(name) for name in tally.keys}
    return {
        "peaks": peaks,
        "by_key": [totals.by_key for totals in (meter, *scopes)],
        "dicts": [totals.to_dict(hottest=0) for totals in (meter, *scopes)],
    }


@given(MADE, st.sampled_from([60.0, 6.0, 45.0]))
def test_calls_are_added_up_together_as_one_by_one(calls: list[Made], window: float) -> None:
    assert figures(calls, window, looks=False) == figures(calls, window, looks=True)


def test_a_load_says_its_keys_once_each() -> None:
    """As they are stored, and of whatever type."""
    writes = Writes(sharding(CalculatedSuffix("sk", shards=1)), lambda *_: 0.5)
    made = [writes.put({"pk": name, "sk": "1", "b": "x" * size}, 0) for name, size in (("a", 1), ("b", 3000), ("a", 9))]
    assert outline(made) == {("S", "a.1"): (2, 2), ("S", "b.1"): (3, 1)}
    binary, number = (Writes(sharding(Unsharded(), pk=letter), lambda *_: 0.5) for letter in "BN")
    others = [binary.delete({"pk": b"\xff", "sk": "1"}, 0), *(number.delete({"pk": n, "sk": "1"}, 0) for n in (1, 2))]
    assert outline(others) == {("B", b"\xff"): (1, 1), ("N", "1"): (1, 1), ("N", "2"): (1, 1)}


def test_the_batches_of_a_load_are_one_request_each() -> None:
    client, meter = FakeClient(), CapacityMeter()
    with meter.attach(client, key_schema={"T": "pk"}):
        for _ in range(100):
            requests = load([("a", 1), ("a", 1), ("b", 3000)])
            client.call("BatchWriteItem", {"ConsumedCapacity": [consumed(5.0)]}, RequestItems={"T": requests})
    assert meter.total == Usage(write_units=500, requests=100)
    assert meter.by_key == {
        ("T", "a"): Usage(estimated_write_units=200, requests=200),
        ("T", "b"): Usage(estimated_write_units=300, requests=100),
    }


def test_a_window_of_no_time_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"window: must be a number > 0 \(seconds\), got 0"):
        CapacityMeter(window=0)
