"""A write of a load: what it is charged with, and the results that its load hands out for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import product
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, InvalidKeyError, RandomSuffix, RangeSuffix, Strategy, Unsharded
from shardkit.bulk.report import BulkResult
from shardkit.bulk.writes import EncodedRequests, Writes, drawn_by_key
from shardkit.capacity import item_size
from shardkit.core.machine import Done, Send, Step
from shardkit.dynamodb.sizes import ITEM_BYTES
from tests.support.fakes import a_load, sharding, some
from tests.support.tables import described

WRITES = Writes(sharding(CalculatedSuffix("sk", shards=20, hash=int, first=90)), lambda *_: 0.5)


class Other(dict[Any, Any]): ...


class Text(str):
    __slots__ = ()


EDGES: list[Any] = [
    *("x", "", "\x7f", '"', "\\", "\n", "é", "é\n", "\ud800", "a\x7fb", "\x7f\n", "x" * 1100, "é" * 600),
    *(7, -7, 10**37, 10**38, 10**5000, Decimal("9" * 38), Decimal("9" * 39), Decimal("0." + "3" * 38)),
    *map(Decimal, ("7", "-0", "0.00", "-1.50", "1E+3", "1e-20", "NaN", "Infinity")),
    *(True, False, None, 1.5, b"x", [], ["x"], set(), {"x"}, {"m": "x"}),
]
STRATEGIES = [
    CalculatedSuffix("sk", shards=20),
    CalculatedSuffix(("sk", "a"), shards={"x": 3, None: 2}, separator='"'),
    RandomSuffix(9),
    RangeSuffix("sk", ["F", "é"]),
    Unsharded(),
]
TYPES = [("S", "S"), ("S", "N"), ("B", "S")]


@pytest.mark.parametrize(
    ("strategy", "types"),
    [*product(STRATEGIES, TYPES), (Unsharded(), ("N", "S"))],
    ids=lambda given: "".join(given) if isinstance(given, tuple) else repr(given),
)
def test_a_put_is_the_same_from_a_template_as_from_wire_values(strategy: Strategy, types: tuple[str, str]) -> None:
    """Its bytes, its shard, what identifies it, its units; or its error."""
    writes = Writes(sharding(strategy, pk=types[0], sk=types[1]), drawn_by_key("load"))
    usual = {"pk": {"S": "U1", "N": 7, "B": b"U1"}[types[0]], "sk": {"S": "x", "N": 5}[types[1]], "a": "x", "b": 2}
    for name in usual:
        for edge in EDGES:
            check(writes, {**usual, name: edge})
    for name in [*EDGES[:10], 5, None, Text("a"), Text("c")]:
        check(writes, {**usual, name: "x"})
        check(writes, {name: "x", **usual})
    for missing in usual:
        check(writes, {name: value for name, value in usual.items() if name != missing})


TEXTS = st.text(max_size=4) | st.sampled_from([edge for edge in EDGES if isinstance(edge, str)])
VALUES = st.one_of(TEXTS, st.sampled_from(EDGES), st.integers(), st.decimals())


@given(
    st.sampled_from(STRATEGIES),
    st.sampled_from(TYPES[:2]),
    st.lists(st.tuples(TEXTS, VALUES, st.dictionaries(TEXTS, VALUES, max_size=4)), min_size=1, max_size=3),
)
@pytest.mark.long_search
def test_so_it_is_of_any_items(strategy: Strategy, types: tuple[str, str], items: list[tuple[Any, ...]]) -> None:
    """Items of one shape share a template."""
    writes = Writes(sharding(strategy, pk=types[0], sk=types[1]), drawn_by_key("load"))
    for pk, sk, more in items:
        check(writes, {**more, "pk": pk, "sk": sk})


def check(writes: Writes, item: dict[Any, Any]) -> None:
    """Compare it with a put of a subclass of dict, which is converted to wire values."""
    assert made(writes, item) == made(writes, Other(item)), item


def made(writes: Writes, item: dict[Any, Any]) -> Any:
    try:
        write = writes.put(item, 0)
    except Exception as error:  # noqa: BLE001 - any is compared
        return type(error), str(error).replace(Other.__name__, "dict")
    return write.body, write.shard, write.identity, write.same, write.units


@given(st.integers(0, 3000), st.text(max_size=3), st.integers(0, 19))
def test_units_are_those_of_the_item_as_it_is_stored(length: int, more: str, shard: int) -> None:
    """Also where its JSON is longer than a unit and it is not, and where the suffix makes the difference."""
    item = {"pk": "U1", "sk": f"{shard}", "a": "x" * length + more}
    stored = {**item, "pk": f"U1.{90 + shard}"}
    assert WRITES.put(item, 0).units == -(-item_size(stored) // 1024)


def test_an_item_is_as_large_as_the_service_takes_with_its_suffix() -> None:
    item = {"pk": "U1", "sk": "19", "a": ""}
    room = ITEM_BYTES - item_size({**item, "pk": "U1.109"})
    assert WRITES.put({**item, "a": "x" * room}, 0).units == 400
    with pytest.raises(InvalidKeyError, match="409,601 bytes"):
        WRITES.put({**item, "a": "x" * (room + 1)}, 0)


def test_a_random_suffix_costs_the_same_however_many_shards_there_are() -> None:
    def seconds(shards: int) -> float:
        writes = Writes(sharding(RandomSuffix(shards)), lambda *_: 0.999999)
        began = process_time()
        for item in items:
            assert writes.put(item, 0).shard == shards
        return process_time() - began

    items = some(500)
    assert min(seconds(1_000_000) for _ in range(3)) < 10 * min(seconds(2) for _ in range(3))


def test_a_batch_tells_a_meter_of_its_writes() -> None:
    """Then the meter need not decode what the load has just encoded."""
    load = a_load()
    for item in some(2):
        load.put(item)
    load.close()
    step = load.next(0.0)
    assert isinstance(step, Send)
    (requests,) = step.params["RequestItems"].values()
    assert len(requests.writes) == len(requests) == 2
    assert requests.outline is not None


def test_results_can_be_looked_at_more_than_once() -> None:
    """They are made each time, of what the load keeps of an item."""
    load = a_load()
    items = some(3)
    for item in [*items, items[0]]:
        load.put(item)
    load.close()
    (superseded,) = _results(load.next(0.0))
    assert (superseded.place, superseded.ok, superseded.superseded) == (0, True, True)
    step = load.next(0.0)
    assert isinstance(step, Send)
    load.receive(step, {}, 1.0)
    results = _results(load.next(1.0))
    assert len(results) == 3
    assert [result.place for result in results] == [3, 1, 2]
    assert [result.item for result in results] == items
    assert (results[1].item, results[-1].item) == (items[1], items[2])
    assert [result.place for result in results[1:]] == [1, 2]
    assert all(result.ok and not result.superseded for result in results)


def _results(step: Step[Sequence[BulkResult]]) -> Sequence[BulkResult]:
    assert isinstance(step, Done)
    return step.value


def test_some_of_a_batch_s_requests() -> None:
    """They are dicts to a reader; a load finds its own writes without decoding them."""
    made = [WRITES.put({"pk": "U1", "sk": f"{number}"}, number) for number in range(4)]
    requests = EncodedRequests([write.body for write in made], made)
    left = requests.at([3, 1])
    assert left == [requests[3], requests[1]]
    from_other_process = EncodedRequests([write.body for write in made]).at([3, 1])
    assert from_other_process == left
    for unprocessed in (left, from_other_process, list(left)):
        assert WRITES.parted(made, {"UnprocessedItems": {"Messages": unprocessed}}) == (made[::2], made[1::2])


def test_draws_by_key_are_the_same_for_every_writer_of_a_load() -> None:
    """Whatever the place, and whatever else changed; another load draws others."""
    types = {"pk": "S", "sk": "N", "status_shard": "S"}
    index = RandomSuffix(50, source="status")
    table = described(
        RandomSuffix(50),
        types,
        ["pk", "sk"],
        secondary={"by-status": (["status_shard"], [])},
        sharded={"by-status": index},
    )
    keys = [{"pk": f"U{number % 3}", "sk": number} for number in range(100)]

    def drawn(load: str, *, first: int, status: str = "new") -> list[tuple[int | None, str]]:
        writes = Writes(table, drawn_by_key(load))
        made = [writes.put({**key, "status": status}, first + place) for place, key in enumerate(keys)]
        stored = [json.loads(write.body)["PutRequest"]["Item"]["status_shard"]["S"] for write in made]
        return [(write.shard, text.removeprefix(status)) for write, text in zip(made, stored, strict=True)]

    monday = drawn("monday", first=0)
    assert len({*monday}) > 30
    assert drawn("monday", first=7, status="sent") == monday
    assert drawn("tuesday", first=0) != monday
