"""Hedged reads, in virtual time: what is sent again and when, whose answer counts, and how many there are."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Answer, Done, Response, Send, Wait
from shardkit.core.merge import Rows
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError, ShardQueryError
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.hedging import REQUESTS_A_HEDGE, Latencies
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import StreamOfShards
from tests.support.fakes import client_error
from tests.support.machines import FaultyShards, Timed, a_fan_out, shard_of, throttled
from tests.support.tables import many

K = Key("pk").eq("k")
LATE = 60.0
ITEM = {"pk": {"S": "k.1"}, "sk": {"N": "1"}}


def hedging(**options: Any) -> FanOutOptions:
    return a_fan_out(options.pop("concurrency", 20), **{"hedge_after": 0.02, **options})


def page(service: FaultyShards, fan_out: FanOutOptions, **params: Any) -> PageOfShards:
    plan = QueryPlan.of(service.table.sharding, {"KeyConditionExpression": K, **params})
    result: PageOfShards = service.run(fan_out.hedged(PageOfShards(plan, sizes=ItemSizes(), fan_out=fan_out)))
    return result


def stream(service: FaultyShards, fan_out: FanOutOptions, **params: Any) -> Any:
    plan = QueryPlan.of(service.table.sharding, {"KeyConditionExpression": K, **params})
    return fan_out.hedged(StreamOfShards(plan, sizes=ItemSizes(), fan_out=fan_out))


def sort_keys(rows: Rows) -> list[int]:
    return [int(item["sk"]) for item in rows.items]


def hedges(service: Timed) -> list[Send]:
    """Return the requests that were sent again; a copy has its request's own parameters."""
    seen: set[int] = set()
    again = []
    for _, send in service.sent:
        if id(send.params) in seen:
            again.append(send)
        seen.add(id(send.params))
    return again


def slow_first(*shards: int, copies: int = 1) -> Any:
    return lambda shard, nth: LATE if shard in shards and nth <= copies else None


class TestWhen:
    def test_a_slow_shard_is_asked_again_and_the_first_answer_counts(self) -> None:
        service = FaultyShards(4, slow_first(2))
        result = page(service, hedging())
        assert sort_keys(result.rows) == list(range(40))
        assert service.times(2) == [0.0, 0.02]
        assert service.requests == {1: 1, 2: 2, 3: 1, 4: 1}
        assert service.now == pytest.approx(0.03)
        assert result.scanned == 40
        slower = next(send for _, send in service.sent if shard_of(send) == 2)
        response: Response = {"Items": "not even read"}
        assert not slower.needed
        assert slower.answer(response) is response

    def test_an_answer_that_comes_after_the_hedge_may_still_be_the_first(self) -> None:
        service = FaultyShards(4, lambda shard, nth: 0.025 if (shard, nth) == (2, 1) else None)
        assert page(service, hedging()).scanned == 40
        assert service.requests[2] == 2
        assert service.now == 0.025

    def test_a_slow_hedge_is_hedged_once_more(self) -> None:
        fan_out = hedging(concurrency=40)
        for _ in range(20):
            page(FaultyShards(4, lambda *_: None), fan_out)
        service = FaultyShards(4, slow_first(2, copies=5))
        assert page(service, fan_out).scanned == 40
        assert service.times(2) == [0.0, 0.02, 0.04]
        assert service.now == LATE

    def test_not_by_default(self) -> None:
        service = FaultyShards(4, slow_first(2))
        assert page(service, a_fan_out()).scanned == 40
        assert len(service.sent) == 4

    def test_a_stream_whose_caller_takes_his_time(self) -> None:
        """Answers that arrive meanwhile are not late."""
        service = FaultyShards(4, lambda *_: None)
        fan_out = hedging()
        machine = stream(service, fan_out, Limit=8)
        found: list[int] = []
        while rows := service.run(machine):
            found += sort_keys(rows)
            service.now += 10.0
        assert found == list(range(40))
        assert hedges(service) == []

    def test_a_stream_waits_for_a_slow_shard(self) -> None:
        service = FaultyShards(4, lambda shard, nth: LATE if (shard, nth) == (3, 2) else None)
        machine = stream(service, hedging(), Limit=8)
        found: list[int] = []
        while rows := service.run(machine):
            found += sort_keys(rows)
        assert found == list(range(40))
        assert [shard_of(send) for send in hedges(service)] == [3]
        assert service.now < 1.0

    def test_a_batch_get(self) -> None:
        service = Timed(lambda _: (LATE if len(service.sent) == 1 else 0.01, {"Responses": {}}))
        fan_out = hedging()
        places = [(to_wire_item({"pk": "k", "sk": number}), 1 + number) for number in range(250)]
        service.run(fan_out.hedged(BatchGet(many(300), places, {}, fan_out)))
        assert [at for at, _ in service.sent] == [0.0, 0.0, 0.0, 0.02]
        assert service.now == pytest.approx(0.03)


class TestThrottles:
    @pytest.mark.parametrize("reason", ["KeyRangeThroughput", "ProvisionedThroughput"])
    def test_a_throttled_shard_is_not_hedged_until_it_has_answered(self, reason: str) -> None:
        error = throttled(reason)
        service = FaultyShards(4, lambda shard, nth: ((0.01, error), 0.5)[nth - 1] if shard == 2 else None)
        assert page(service, hedging()).scanned == 40
        assert service.requests[2] == 2
        assert hedges(service) == []

    def test_a_table_short_of_throughput_gets_no_hedges(self) -> None:
        """Shard 1 is slow while the fan-out waits because of shard 2."""
        error = throttled("ProvisionedThroughput")
        fault: dict[Any, Any] = {(1, 1): 0.05, (2, 1): (0.019, error)}
        service = FaultyShards(4, lambda shard, nth: fault.get((shard, nth)))
        assert page(service, hedging()).scanned == 40
        assert service.times(2)[1] > 0.05
        assert hedges(service) == []

    def test_no_more_hedges_after_a_hedge_was_throttled(self) -> None:
        """The first request still answers: the throttle is not an error."""
        fan_out = hedging()
        for _ in range(2 * REQUESTS_A_HEDGE // 4):
            page(FaultyShards(4, lambda *_: None), fan_out)
        fault: dict[Any, Any] = {(1, 1): 0.2, (1, 2): (0.001, throttled())}
        service = FaultyShards(4, lambda shard, nth: fault.get((shard, nth)))
        assert page(service, fan_out).scanned == 40
        assert service.requests[1] == 2
        assert service.now == 0.2

    def test_unprocessed_keys(self) -> None:
        """They are throttled ones: nothing is hedged until an answer has read some of them."""

        def answers(send: Send) -> tuple[float, Answer]:
            if len(service.sent) == 1:
                return 0.01, {"Responses": {}, "UnprocessedKeys": {"orders": {"Keys": keys_of(send)}}}
            return 0.5, {"Responses": {}}

        def keys_of(send: Send) -> Any:
            return send.params["RequestItems"]["orders"]["Keys"]

        service = Timed(answers)
        fan_out = hedging()
        places = [(to_wire_item({"pk": "k", "sk": number}), 1) for number in range(150)]
        batch = BatchGet(many(3), places, {}, fan_out)
        service.run(fan_out.hedged(batch))
        assert [len(keys_of(send)) for _, send in service.sent] == [100, 50, 100]


class TestErrors:
    def test_an_error_counts_if_no_copy_may_still_answer(self) -> None:
        fault: dict[Any, Any] = {(2, 1): (0.05, client_error("InternalServerError")), (2, 2): 0.1}
        service = FaultyShards(4, lambda shard, nth: fault.get((shard, nth)))
        assert page(service, hedging()).scanned == 40
        assert service.now == pytest.approx(0.12)

    def test_all_copies_fail(self) -> None:
        service = FaultyShards(4, lambda shard, _: (0.05, client_error("InternalServerError")) if shard == 2 else None)
        with pytest.raises(ShardQueryError, match="1 of 4 shards failed"):
            page(service, hedging())
        assert service.requests[2] == 2

    def test_nothing_is_hedged_after_a_failure(self) -> None:
        fault: dict[Any, Any] = {1: (0.01, client_error("AccessDeniedException")), 2: 0.2}
        service = FaultyShards(4, lambda shard, _: fault.get(shard))
        with pytest.raises(ShardQueryError):
            page(service, hedging())
        assert hedges(service) == []

    def test_the_timeout_stays_the_callers(self) -> None:
        service = FaultyShards(4, slow_first(2, copies=9))
        with pytest.raises(ShardQueryError, match=r"shard 2: did not answer within 0\.1 seconds"):
            page(service, hedging(timeout=0.1))
        assert service.now == 0.1


class TestHowMany:
    def test_hedges_have_connections_of_their_own(self) -> None:
        """Of ten, nine are for first requests: with all of them slow, there is still one for a hedge."""
        service = FaultyShards(20, slow_first(*range(1, 10)))
        machine = hedging(concurrency=10)
        with pytest.raises(ShardQueryError):
            page(service, hedging(concurrency=10, timeout=0.05))
        assert [at for at, _ in service.sent[:11]] == [0.0] * 9 + [0.02, pytest.approx(0.03)]
        assert (machine.concurrency, hedging(concurrency=40).concurrency, a_fan_out(10).concurrency) == (9, 36, 10)

    def test_a_loser_keeps_its_connection(self) -> None:
        """Shard 2's first request hangs on the only connection for hedges: shard 3 gets none."""
        fan_out = hedging(concurrency=10)
        for _ in range(2 * REQUESTS_A_HEDGE // 4):
            page(FaultyShards(4, lambda *_: None), fan_out)
        service = FaultyShards(4, lambda shard, nth: {(2, 1): 0.3, (3, 1): 0.2}.get((shard, nth)))
        assert page(service, fan_out).scanned == 40
        assert service.requests == {1: 1, 2: 2, 3: 1, 4: 1}

    def test_a_loser_that_ended_has_left_its_connection(self) -> None:
        """Shard 3 is hedged as soon as shard 2's first request has ended."""
        fan_out = hedging(concurrency=10)
        for _ in range(2 * REQUESTS_A_HEDGE // 4):
            page(FaultyShards(4, lambda *_: None), fan_out)
        service = FaultyShards(4, lambda shard, nth: {(2, 1): 0.05, (3, 1): 0.2}.get((shard, nth)))
        assert page(service, fan_out).scanned == 40
        assert service.times(2) == [0.0, 0.02]
        assert service.times(3) == [0.0, 0.05]
        assert service.now == pytest.approx(0.06)

    def test_a_service_that_slows_down_gets_at_most_five_percent_more(self) -> None:
        fan_out = hedging()
        sent = again = 0
        for _ in range(50):
            service = FaultyShards(20, lambda *_: 0.5)
            page(service, fan_out)
            again += len(hedges(service))
            sent += len(service.sent)
        assert sent - again == 1000
        assert again == 51  # the first needs not be earned

    def test_hedges_that_were_not_needed_are_kept_up_to_twenty(self) -> None:
        fan_out = hedging(concurrency=1000)
        for _ in range(50):
            page(FaultyShards(20, lambda *_: None), fan_out)
        service = FaultyShards(30, lambda *_: 0.5)
        page(service, fan_out)
        assert len(hedges(service)) == 20

    @pytest.mark.long_search
    @settings(max_examples=settings().max_examples // 3)
    @given(st.integers(0, 2**32), st.integers(1, 40), st.booleans(), st.integers(2, 40))
    def test_any_delays_and_throttles(self, seed: int, shards: int, streaming: bool, connections: int) -> None:
        """The result is that without hedges; at most 5% (and one) more requests; no throttled shard is hedged."""
        rng = random.Random(seed)
        fan_out = hedging(concurrency=connections)
        errors = throttled("KeyRangeThroughput"), throttled("ProvisionedThroughput")

        def fault(_: int, nth: int) -> Any:
            seconds = rng.choice((0.001, 0.01, 0.021, 0.05, 1.0))
            return (seconds, rng.choice(errors)) if nth < ATTEMPTS and rng.random() < 0.1 else seconds

        first = again = 0
        for _ in range(5):
            service = FaultyShards(shards, fault)
            refuse_hedges_of_throttled(service)
            if streaming:
                machine = stream(service, fan_out, Limit=8)
                found: list[int] = []
                while rows := service.run(machine):
                    found += sort_keys(rows)
                assert found == list(range(40))
            else:
                plain = page(FaultyShards(shards, lambda *_: None), a_fan_out(), Limit=15)
                result = page(service, fan_out, Limit=15)
                assert sort_keys(result.rows) == sort_keys(plain.rows)
                assert result.last_evaluated_key == plain.last_evaluated_key
            again += len(hedges(service))
            first += len(service.sent) - len(hedges(service))
        assert again <= 1 + first / REQUESTS_A_HEDGE


def refuse_hedges_of_throttled(service: FaultyShards) -> None:
    """Fail if a shard is hedged whose last answer was a throttle."""
    answers = service.answers
    came: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)

    def watched(send: Send) -> tuple[float, Answer]:
        shard = shard_of(send)
        before = [event for event in came[shard] if event[0] < service.now]
        if any(send.params is other.params for _, other in service.sent[:-1]):
            assert not before or not max(before)[1]
        seconds, answer = answers(send)
        came[shard].append((service.now + seconds, isinstance(answer, Exception)))
        return seconds, answer

    service.answers = watched


class TestLatencies:
    def test_few_answers_say_nothing(self) -> None:
        seen = Latencies()
        for _ in range(99):
            seen.learn(0.005)
        assert seen.quantile(0.95) is None
        seen.learn(0.005)
        assert seen.quantile(0.95) == pytest.approx(0.005, rel=0.2)
        assert seen.quantile(0.99) is None

    @given(st.lists(st.floats(0.002, 30), min_size=100, max_size=400), st.sampled_from((0.95, 0.5)))
    def test_at_most_the_rest_takes_longer(self, seconds: list[float], share: float) -> None:
        """And the bound is at most 19% above the quantile itself."""
        seen = Latencies()
        for one in seconds:
            seen.learn(one)
        found = seen.quantile(share)
        assert found is not None
        longer = sum(one > found for one in seconds)
        assert longer <= len(seconds) * (1 - share)
        assert sum(one >= found / 2**0.25 * (1 - 1e-9) for one in seconds) >= len(seconds) * (1 - share)

    def test_the_callers_time_is_not_learnt(self) -> None:
        """An answer that came while the caller worked is received when he asks again."""
        fan_out = hedging(hedge_after="p95")
        for _ in range(200):
            machine = stream(FaultyShards(1, lambda *_: None), fan_out)
            ahead = machine.next(0.0)
            machine.receive(ahead, ahead.answer({"Items": [ITEM], "LastEvaluatedKey": ITEM}), 0.01)
            ahead = machine.next(0.01)
            assert isinstance(machine.next(0.01), Done)
            assert isinstance(machine.next(10.0), Wait)
            machine.receive(ahead, ahead.answer({"Items": []}), 10.0)
        latest = fan_out.hedges.latencies["Query"].quantile(0.95)
        assert latest is not None
        assert latest < 0.02

    def test_it_forgets(self) -> None:
        seen = Latencies()
        for seconds in (0.5, 0.005):
            for _ in range(10_000):
                seen.learn(seconds)
        assert seen.quantile(0.95) == pytest.approx(0.005, rel=0.2)

    @pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
    def test_times_out_of_range(self, seconds: float) -> None:
        seen = Latencies()
        for _ in range(1000):
            seen.learn(seconds)
        assert seen.quantile(0.95) == pytest.approx(min(max(seconds, 0.00119), 65.5), rel=0.01)

    def test_a_learnt_quantile(self) -> None:
        """No hedge before 100 answers; then after the time within which 95% answer."""
        fan_out = hedging(hedge_after="p95")
        for _ in range(25):
            service = FaultyShards(4, lambda *_: 0.1)
            page(service, fan_out)
            assert hedges(service) == []
        service = FaultyShards(4, slow_first(2))
        page(service, fan_out)
        assert [at for at, send in service.sent if send in hedges(service)] == [pytest.approx(0.1, rel=0.2)]
        assert service.now < 0.25

    def test_what_the_losers_took_is_learnt(self) -> None:
        """Otherwise the hedges would hide the slow tail from the quantile."""
        fan_out = hedging(concurrency=1000)
        for _ in range(40):
            page(FaultyShards(20, slow_first(2)), fan_out)
        late = fan_out.hedges.latencies["Query"].quantile(0.96)
        assert late is not None
        assert late > 0.02


@pytest.mark.parametrize("wrong", [0, -1.0, True, "p50", "", float("nan"), float("inf"), [], "95"])
def test_values_that_cannot_work(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="hedge_after: must be"):
        hedging(hedge_after=wrong)


def test_one_connection_is_not_enough() -> None:
    with pytest.raises(ConfigurationError, match="max_concurrency=2"):
        hedging(concurrency=1)
