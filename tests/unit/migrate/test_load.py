"""A load into a table whose items move: what it sends in each stage, and that it loses nothing, whatever happens."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import AmbiguousItemError, InvalidKeyError
from shardkit.migrate.load import MovingLoad
from shardkit.migrate.marks import MARK, is_frozen, is_stub
from tests.support.fakes import all_written, client_error, drive, lost_connection, outcome, throttled
from tests.support.moving import BETWEEN, STATES, TOKEN, moving, stored
from tests.support.stepwise import Answered, Tables

TABLE = "Table"
FAULTS = ["none", "none", "throttle", "500", "lost", "lost after", "unprocessed", "conflict"]
_WRITES = {"DeleteItem", "PutItem", "UpdateItem"}


class Service:
    """The table, each of whose requests is carried out at once; ``faults`` says what becomes of each.

    ``freezes``: whether a mover freezes an item before the next request.
    """

    def __init__(
        self,
        there: Iterable[Mapping[str, Any]] = (),
        faults: Iterable[str] = (),
        freezes: Iterable[bool] = (),
        rng: Random | None = None,
    ) -> None:
        self._tables = Tables({TABLE: ("pk", "sk")})
        self._values: dict[int, int] = {}
        for item in there:
            self._put(to_wire_item(item))
        self._faults, self._freezes, self._rng = iter(faults), iter(freezes), rng or Random(0)
        self.operations: Counter[str] = Counter()

    def _put(self, item: Any) -> None:
        self._values[self._tables.place(TABLE, item)] = self._tables.item(item)

    @property
    def items(self) -> list[dict[str, Any]]:
        return [self._tables.items[number] for number in self._values.values() if number]

    def answer(self, send: Send, now: float) -> Answer:
        assert send.paced
        self.operations[send.operation] += 1
        live = [item for item in self.items if MARK not in item and "." not in item["pk"]["S"]]
        if next(self._freezes, False) and live:
            self._put({**self._rng.choice(live), MARK: {"S": TOKEN}})
        fault = next(self._faults, "none")
        if fault == "throttle":
            return throttled("KeyRangeThroughput")
        if fault == "500":
            return client_error("InternalServerError")
        if fault == "lost":
            return lost_connection()
        if fault == "conflict" and send.operation in _WRITES:
            return client_error("TransactionConflictException")
        left: list[Any] = []
        if fault == "unprocessed" and send.operation == "BatchWriteItem":
            requests = send.params["RequestItems"][TABLE]
            left, requests = requests[1:], requests[:1]
            send = Send(send.operation, {**send.params, "RequestItems": {TABLE: requests}})
        answer = self._carried_out(send)
        if left and isinstance(answer, dict):
            answer = {**answer, "UnprocessedItems": {TABLE: left}}
        return lost_connection() if fault == "lost after" else answer

    def _carried_out(self, send: Send) -> Answer:
        request = self._tables.request(send)
        progress: Any = ()
        while not isinstance(progress, Answered):
            step = next(request.steps(progress))
            result = step.run(tuple(self._values.get(place, 0) for place in step.places))
            self._values.update(result.writes)
            progress = result.then
        answer = self._tables.answers[progress.number]
        if isinstance(answer, Exception):
            return copy.deepcopy(answer)
        if "ReturnConsumedCapacity" in send.params and send.operation.startswith("Batch"):
            answer = {**answer, "ConsumedCapacity": [{"TableName": TABLE, "CapacityUnits": 1.0}]}
        returned: Answer = send.answer(copy.deepcopy(answer))
        return returned


def contents(service: Service) -> dict[tuple[str, str], int]:
    """The logical items; each must be at one place, but for a frozen one's copy."""
    found: dict[tuple[str, str], int] = {}
    frozen = set()
    for item in service.items:
        if is_stub(item):
            continue
        shown: Any = from_wire_item(item)
        key = str(shown["pk"]).split(".")[0], str(shown["sk"])
        assert key not in found or key in frozen or is_frozen(item)
        assert found.get(key, int(shown["n"])) == int(shown["n"])
        frozen |= {key} if is_frozen(item) else set()
        found[key] = int(shown["n"])
    return found


@given(
    stage=st.sampled_from(BETWEEN),
    states=st.lists(st.integers(0, 5), min_size=6, max_size=6),
    rows=st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), min_size=3, max_size=30),
    faults=st.lists(st.sampled_from(FAULTS), max_size=40),
    freezes=st.lists(st.booleans(), max_size=40),
    workers=st.integers(1, 4),
    rng=st.randoms(use_true_random=False),
)
def test_conservation(
    stage: Any, states: list[int], rows: Any, faults: list[str], freezes: list[bool], workers: int, rng: Random
) -> None:
    """Each item has one result, and is in one place; a key none of whose writes failed holds the last of them."""
    before = [
        one
        for sk, state in zip("abcdef", states, strict=True)
        for one in stored({"pk": "U", "sk": sk, "n": -1}, STATES[stage][state % len(STATES[stage])])
    ]
    service = Service(before, faults, [] if stage == "guard" else freezes, rng)
    wanted = contents(service)
    load = MovingLoad(moving(stage), workers=workers, draw=rng.random, window=30)
    given_keys = [{"pk": "U", "sk": sk} for sk, put in rows if not put]
    items = [{"pk": "U", "sk": sk, "n": number} for number, (sk, put) in enumerate(rows) if put]
    for one in given_keys:
        load.delete(one)
    results = drive(load, items, service, rng)
    report = load.report
    assert sorted(result.place for result in results) == list(range(report.items))
    assert report.written + report.failed + report.duplicates == report.items
    uncertain = set()
    for result in sorted(results, key=lambda result: result.place):
        item: Any = [*given_keys, *items][result.place]
        key = item["pk"], item["sk"]
        if result.superseded:
            continue
        if not result.ok:
            uncertain.add(key)
        elif "n" in item:
            wanted[key] = item["n"]
        else:
            wanted.pop(key, None)
    if load.fatal is None and len(faults) < 10:
        assert not uncertain
    found = contents(service)
    for key in uncertain:
        wanted.pop(key, None), found.pop(key, None)
    assert found == wanted


NEW = [{"pk": "U", "sk": f"{number:02}", "n": number} for number in range(25)]


@pytest.mark.parametrize(
    ("stage", "state", "operations", "units"),
    [
        ("guard", "absent", {"PutItem": 25}, 25),
        ("guard", "stub", {"PutItem": 50}, 50),  # a failed condition costs a unit too
        ("switch", "absent", {"GetItem": 25, "PutItem": 50}, 50),
        ("switch", "live", {"GetItem": 25, "PutItem": 25}, 25),
        ("move", "absent", {"BatchGetItem": 1, "BatchWriteItem": 1}, 1),  # the batch, as this service counts it
        ("move", "live", {"BatchGetItem": 1, "GetItem": 25, "PutItem": 25}, 25),
    ],
)
def test_what_a_batch_of_a_load_becomes(stage: Any, state: str, operations: Mapping[str, int], units: int) -> None:
    """The report has the requests that went, and the write units of all of them, but not the read units."""
    service = Service([one for item in NEW for one in stored(item, state)])
    load = MovingLoad(moving(stage), workers=1, draw=lambda: 0.5)
    assert outcome(drive(load, NEW, service)) == all_written(25)
    assert service.operations == operations
    assert (load.report.requests, load.report.write_units) == (sum(operations.values()), units)
    assert contents(service) == {("U", item["sk"]): item["n"] for item in NEW}


@pytest.mark.parametrize("workers", [1, 4])
def test_how_many_requests_are_in_flight(workers: int) -> None:
    """About ten, if there are fewer workers: a batch of single writes does not take 25 times as long."""
    load = MovingLoad(moving("guard"), workers=workers, draw=lambda: 0.5)
    for number in range(1000):
        load.put({"pk": "U", "sk": str(number), "n": 1})
    load.close()
    sent = 0
    while isinstance(load.next(0.0), Send):
        sent += 1
    assert sent == {1: 10, 4: 8}[workers]


def test_items_that_cannot_be_written_fail_alone() -> None:
    """One whose key two strategies read differently, and one that is at both places with other content."""
    both = [*stored({"pk": "U", "sk": "00", "n": 5}, "frozen"), *stored({"pk": "U", "sk": "00", "n": 6}, "moved")]
    service = Service(both)
    load = MovingLoad(moving("move"), workers=1, draw=lambda: 0.5)
    results = drive(load, [*NEW, {"pk": "v.1", "sk": "x", "n": 1}], service)
    failed = {result.place: type(result.error) for result in results if not result.ok}
    assert failed == {0: AmbiguousItemError, 25: InvalidKeyError}
    assert load.report.written == 24


def test_a_throttled_write_slows_down_its_key_only() -> None:
    """As a throttled batch; the items that were written are not written again."""
    service = Service(faults=["none"] * 3 + ["throttle"] * 2)
    load = MovingLoad(moving("guard"), workers=1, draw=lambda: 0.5)
    assert outcome(drive(load, NEW, service)) == all_written(25)
    assert service.operations == {"PutItem": 27}
    assert load.report.throttles >= 1
