"""``scan_items`` while items move: each of them once, whatever the mover does between two requests."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import StageError
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.values import WireItem
from shardkit.migrate.marks import MARK, Moving
from shardkit.migrate.scan import Remembered, StreamOfPlaces
from tests.support.machines import Shuffled, a_fan_out
from tests.support.moved import BETWEEN, MOVES, STATES, MovedTable, in_stage


def scanned(table: MovedTable, params: dict[str, Any], segments: int, rng: random.Random) -> list[dict[str, Any]]:
    assert isinstance(table.sharding, Moving)
    stream, runner = StreamOfPlaces(table.sharding, params, segments, a_fan_out(3)), Shuffled(table, rng)
    found: list[dict[str, Any]] = []
    while rows := runner.run(stream):
        found += [item for item, _ in rows]
    return found


@pytest.mark.long_search
@pytest.mark.parametrize("name", MOVES)
def test_each_item_once(name: str) -> None:
    @settings(max_examples=settings().max_examples // 4, print_blob=True)
    @given(
        seed=st.integers(0, 2**32),
        stage=st.sampled_from(BETWEEN),
        segments=st.integers(1, 3),
        page=st.sampled_from([1, 3, 1000]),
        moving=st.booleans(),
        filtered=st.booleans(),
    )
    def once(seed: int, stage: Any, segments: int, page: int, moving: bool, filtered: bool) -> None:
        rng = random.Random(seed)
        table = MovedTable(in_stage(stage, *MOVES[name]), page=page, rng=rng if moving else None)
        for number in rng.sample(range(12), rng.randrange(13)):
            item = {"pk": rng.choice("kj"), "sk": number, "b": rng.choice("xyz"), "keep": rng.random() < 0.6}
            table.store(item, rng.choice(STATES))
        expected = [item for item in map(from_wire_item, table.logical()) if item["keep"] or not filtered]
        params: dict[str, Any] = {}
        if filtered:
            params = {"FilterExpression": "keep = :yes", "ExpressionAttributeValues": {":yes": True}}
        if rng.random() < 0.3:
            params["ProjectionExpression"] = "b"
            expected = [{"b": item["b"]} for item in expected]
        assert sorted(scanned(table, params, segments, rng), key=repr) == sorted(expected, key=repr)

    once()


def test_an_index_without_the_mark() -> None:
    """An index of nothing but the table's keys has stubs, and no mark to tell them by."""
    sharding = in_stage("move", *MOVES["adopt"])
    assert isinstance(sharding, Moving)
    with pytest.raises(StageError, match=r"IndexName='keys-only'.*key attributes of the table alone"):
        StreamOfPlaces(sharding, {"IndexName": "keys-only"}, 1, a_fan_out())
    whole = StreamOfPlaces(sharding, {"IndexName": "keys", "ProjectionExpression": "b"}, 1, a_fan_out())
    assert MARK in str(whole.next(0.0))


def test_remembered_keys() -> None:
    """No key is taken for another, not even where the bytes of two together look like a third's."""
    rng = random.Random(0)
    keys: list[WireItem] = [
        {"pk": {"S": str(rng.randrange(10**6))}, "sk": {"N": str(number)}} for number in range(3000)
    ]
    remembered = Remembered()
    for key in keys[::2]:
        remembered.add(key)
    assert [key in remembered for key in keys] == [at % 2 == 0 for at in range(3000)]
    buckets = remembered._buckets  # noqa: SLF001 - what they hold is the promise
    assert sum(map(len, buckets.values())) == 1500 * 14
    assert {*map(len, buckets)} == {2}


def test_the_second_pass_is_consistent() -> None:
    """As far as the service allows it: not of a global index."""
    for index, consistent in ((None, True), ("local", True), ("city", False)):
        table = MovedTable(in_stage("switch", *MOVES["adopt"]))
        assert isinstance(table.sharding, Moving)
        stream = StreamOfPlaces(table.sharding, {"IndexName": index} if index else {}, 1, a_fan_out())
        runner = Shuffled(table)
        assert runner.run(stream) == []
        assert [send.params.get("ConsistentRead", False) for _, send in runner.sent] == [False, consistent]
