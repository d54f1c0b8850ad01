"""Whatever the service answers: a BatchGet ends, and every key is found, missing, unprocessed, or in the error."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from botocore.exceptions import ClientError, HTTPClientError
from hypothesis import example, given
from hypothesis import strategies as st

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Response, Send
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ShardQueryError
from shardkit.sharding.batch_get import BatchGet, Lookup
from tests.support.fakes import client_error
from tests.support.machines import Timed, a_fan_out, throttled
from tests.support.tables import many

SHARDS = 400
FAULTS: tuple[Exception, ...] = (
    throttled("KeyRangeThroughput"),
    client_error("InternalServerError"),
    HTTPClientError(error="the connection was lost"),
    client_error("ValidationException"),
)
MOST_STEPS = 5_000


@pytest.mark.parametrize(("asked", "units"), [("TOTAL", 1.5), ("INDEXES", 1.5), ("NONE", None), (None, None)])
def test_what_a_batch_get_consumed_is_the_sum_of_its_requests(asked: str | None, units: float | None) -> None:
    """Where it is asked for; where a meter asked for itself, it is not the caller's."""
    sharding = many(SHARDS)
    places: list[Lookup] = [(to_wire_item({"pk": "k", "sk": number}), 1 + number) for number in range(250)]
    options = {} if asked is None else {"ReturnConsumedCapacity": asked}
    batch = BatchGet(sharding, places, options, a_fan_out(3))
    consumed = {"TableName": "orders", "CapacityUnits": 0.5}
    Timed(lambda _: (0.01, {"Responses": {}, "ConsumedCapacity": [consumed]})).run(batch)
    assert batch.consumed == (None if units is None else {**consumed, "CapacityUnits": units})


def _unprocessed(send: Send, read: int = 0) -> Response:
    """Return an answer with some of the keys that were asked for; the others are unprocessed."""
    keys = send.params["RequestItems"]["orders"]["Keys"]
    left = {"orders": {"Keys": keys[read:]}} if keys[read:] else {}
    return {"Responses": {"orders": keys[:read]}, "UnprocessedKeys": left}


def _batch(keys: int) -> BatchGet:
    places: list[Lookup] = [(to_wire_item({"pk": "k", "sk": number}), 1 + number % SHARDS) for number in range(keys)]
    return BatchGet(many(SHARDS), places, {}, a_fan_out(10))


def test_chunks_that_are_each_unprocessed_once_are_all_read() -> None:
    """Tries belong to a chunk: those of other chunks neither give it up nor let it wait longer."""
    refused: set[str] = set()

    def answer(send: Send) -> tuple[float, Answer]:
        first = str(send.params["RequestItems"]["orders"]["Keys"][0])
        if first in refused:
            return 0.01, _unprocessed(send, 100)
        refused.add(first)
        return 0.01, _unprocessed(send)

    service = Timed(answer)
    batch = service.run(_batch(2_000))
    assert (len(batch.found), batch.unprocessed, len(service.sent)) == (2_000, [], 40)
    assert service.now < 1


def test_a_short_wave_of_throttles_costs_a_short_wait() -> None:
    service = Timed(lambda send: (0.01, _unprocessed(send, 0 if service.now < 0.2 else 100)))
    batch = service.run(_batch(1_000))
    assert len(batch.found) == 1_000
    assert service.now < 1


def test_a_chunk_is_given_up_after_ten_tries() -> None:
    service = Timed(lambda send: (0.01, _unprocessed(send)))
    batch = service.run(_batch(50))
    assert (len(batch.unprocessed), len(service.sent)) == (50, ATTEMPTS)
    assert 12 < service.now < 26


def test_nothing_is_given_up_while_the_table_answers() -> None:
    """A table that is short of throughput reads a few keys at a time: some chunks are the last for a long time."""
    units, at = 0.0, 0.0

    def answer(send: Send) -> tuple[float, Answer]:
        nonlocal units, at
        units, at = min(50, units + 50 * (service.now - at)), service.now
        read = int(min(units, len(send.params["RequestItems"]["orders"]["Keys"])))
        units -= read
        return 0.01, _unprocessed(send, read)

    service = Timed(answer)
    batch = service.run(_batch(2_000))
    assert (len(batch.found), batch.unprocessed) == (2_000, [])
    assert service.now < 60
    assert len(service.sent) < 1_000


class Unsteady(Timed):
    """Answers late, in part, or with an error."""

    def __init__(self, stored: Sequence[WireItem], rng: random.Random, faulty: float, kinds: list[int]) -> None:
        self._stored = {self._name(item): item for item in stored}
        self._rng, self._faulty, self._kinds = rng, faulty, kinds
        super().__init__(self._answer)

    @staticmethod
    def _name(item: WireItem) -> tuple[str, str]:
        return item["pk"]["S"], item["sk"]["N"]

    def _answer(self, send: Send) -> tuple[float, Answer]:
        assert len(self.sent) < MOST_STEPS, "it asks for ever"
        rng, seconds = self._rng, self._rng.choice((0.001, 0.01, 0.2, 3.0))
        fault = self._kinds and rng.random() < self._faulty
        kind = rng.choice(self._kinds) if fault else None
        if kind is not None and kind < len(FAULTS):
            return seconds, FAULTS[kind]
        ((_, asked),) = send.params["RequestItems"].items()
        keys = list(asked["Keys"])
        assert 0 < len(keys) <= 100
        left = [] if kind is None else rng.sample(keys, rng.choice((1, len(keys))))
        items = [self._stored[self._name(key)] for key in keys if key not in left and self._name(key) in self._stored]
        rng.shuffle(items)
        answer: Response = {"Responses": {"orders": items}, "ResponseMetadata": {"HTTPStatusCode": 200}}
        if left:
            answer["UnprocessedKeys"] = {rng.choice(("orders", "arn:aws:dynamodb:…:table/orders")): {"Keys": left}}
        return seconds, answer


@pytest.mark.long_search
@given(
    keys=st.sampled_from([1, 3, 100, 101, 350]),
    twice=st.booleans(),
    there=st.sampled_from([0.0, 0.5, 1.0]),
    concurrency=st.sampled_from([1, 3, 50]),
    timeout=st.sampled_from([None, 0.005, 1.0]),
    faulty=st.sampled_from([0.1, 0.5, 1.0]),
    kinds=st.lists(st.sampled_from(range(len(FAULTS) + 1)), max_size=3),
    seed=st.integers(0, 2**32),
)
# The error did not name the shards of the keys that were not asked for any more.
@example(keys=350, twice=False, there=1.0, concurrency=1, timeout=None, faulty=0.5, kinds=[3], seed=0)
# Nor those of the keys that had been left unprocessed.
@example(keys=350, twice=False, there=1.0, concurrency=1, timeout=None, faulty=0.5, kinds=[4, 3], seed=1)
def test_a_batch_get_ends(
    *,
    keys: int,
    twice: bool,
    there: float,
    concurrency: int,
    timeout: float | None,
    faulty: float,
    kinds: list[int],
    seed: int,
) -> None:
    rng = random.Random(seed)
    sharding = many(SHARDS)
    places: list[Lookup] = [(to_wire_item({"pk": "k", "sk": number}), 1 + number) for number in range(keys)]
    present = [(key, shard) for key, shard in places if rng.random() < there]
    service = Unsteady([sharding.stored(key, shard) for key, shard in present], rng, faulty, kinds)
    fan_out = a_fan_out(concurrency, timeout=timeout)
    batch = BatchGet(sharding, places * (1 + twice), {}, fan_out)

    def numbers(found: Sequence[Lookup]) -> set[int]:
        return {int(key["sk"]["N"]) for key, _ in found}

    wanted = numbers(present)
    failed: Exception | None = None
    try:
        service.run(batch)
    except (ShardQueryError, ClientError, HTTPClientError) as error:
        failed = error
    if isinstance(failed, ShardQueryError):
        read = [int(item["sk"]) for item in failed.partial_items]
        assert len(read) == len(set(read))
        assert set(read) <= wanted
        assert {1 + number for number in wanted - set(read)} <= failed.errors.keys()
    elif failed is not None:
        assert failed in FAULTS
        assert not batch.found
    else:
        found = [place for place, _ in batch.found]
        assert [from_wire_item(key)["sk"] for key, _ in found] == sorted(numbers(found))
        assert not numbers(found) & numbers(batch.unprocessed)
        assert len(batch.unprocessed) == len(numbers(batch.unprocessed))
        assert wanted <= numbers(found) | numbers(batch.unprocessed)
        assert not batch.unprocessed or len(service.sent) >= ATTEMPTS
    if timeout is not None:
        assert service.now <= timeout
