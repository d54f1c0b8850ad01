"""How a load spreads over keys, and what it makes of what the service says of a throttle."""

from __future__ import annotations

from itertools import repeat
from math import inf

import pytest
from botocore.exceptions import ClientError

from shardkit.bulk.load_end import log_end
from shardkit.bulk.load_machine import STALLED_SECONDS
from shardkit.bulk.pacing import KEY_ITEMS, KeyPace, TablePace
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.errors import ShardkitError
from tests.support.fakes import Service, a_load, all_written, client_error, drive, outcome, some, throttled, written


def test_a_key_s_items_in_flight_are_capped() -> None:
    """A hot key takes as many as four batches; what others have goes out beside it."""
    load = a_load(workers=10)
    for item in [*some(300, pk="hot"), *some(25, pk="cold")]:
        load.put(item)
    load.close()
    keys: list[str] = []
    while isinstance(step := load.next(0.0), Send):
        keys += [one["PutRequest"]["Item"]["pk"]["S"] for one in step.params["RequestItems"]["Messages"]]
    assert (keys.count("hot"), keys.count("cold")) == (KEY_ITEMS, 25)


def test_keys_in_flight() -> None:
    """1/Σp²: one for a sorted source, as many as there are where all are even."""
    keys = KeyPace(lambda: 0.5)
    assert keys.mix == 0.0
    for key in ("a", "b", "c", "c"):
        assert keys.goes(key, 0.0)
    assert keys.mix == pytest.approx(1 / (1 / 16 + 1 / 16 + 1 / 4))
    keys.landed(["c"])
    assert keys.mix == pytest.approx(3.0)
    for items, mix in ((some(2000), 1.0), ([one for key in "abcdefgh" for one in some(125, pk=key)], 8.0)):
        load = a_load(workers=2)
        drive(load, items, Service())
        assert load.report.keys_in_flight == pytest.approx(mix, rel=0.02)
        assert any("only 1 partition key was in flight" in advice for advice in load.report.advice) == (mix < 2)


def test_a_batch_writer_is_not_advised_on_a_source(caplog: pytest.LogCaptureFixture) -> None:
    load = a_load(batch_writer=True)
    drive(load, some(1000), Service())
    (advice,) = [one for one in load.report.advice if "in flight" in one]
    assert advice.startswith("only 1 partition key was in flight at once: ")
    assert "cursors" not in advice
    log_end(load, "Orders")
    assert f"the batch writer of table Orders: {advice}" in caplog.messages


# Reasons.


class Hot(Service):
    """One key is throttled by itself for a while: its items come back unprocessed, and alone say why."""

    def __init__(self, refusals: int, limit: str = "KeyRangeThroughput") -> None:
        super().__init__()
        self.left = refusals
        self.limit = limit

    def answer(self, send: Send, now: float) -> Answer:
        if send.operation == "PutItem" and send.params["Item"]["pk"] == {"S": "hot"} and self.left:
            return throttled(self.limit)
        if send.operation == "BatchWriteItem" and self.left:
            ((table, requests),) = send.params["RequestItems"].items()
            hot = [one for one in requests if one["PutRequest"]["Item"]["pk"] == {"S": "hot"}]
            if hot:
                self.left -= 1
                rest = [one for one in requests if one not in hot]
                answer = {} if not rest else super().answer(Send(send.operation, {"RequestItems": {table: rest}}), now)
                assert isinstance(answer, dict)
                return {**answer, "UnprocessedItems": {table: hot}}
        return super().answer(send, now)


def test_a_hot_key_rests_and_the_others_go_on() -> None:
    """Its reason is asked for with a single write; the others are written before it."""
    service = Hot(6)
    load = a_load(workers=2)
    items = [one for pair in zip(some(100, pk="hot"), some(100, pk="cold"), strict=True) for one in pair]
    results = drive(load, items, service)
    assert outcome(results) == all_written(200)
    places = [result.place for result in results]
    assert all(place % 2 for place in places[:100])
    report = load.report
    assert report.throttles_by_reason["TableWriteKeyRangeThroughputExceeded"] >= 1
    assert list(report.hot_keys) == ["hot"]
    assert any("'hot'" in advice and "more shards" in advice for advice in report.advice)


def test_the_keys_of_a_batch_that_is_throttled_by_key_are_hot() -> None:
    """Each once for each throttle; those of other reasons are not."""
    load = a_load(workers=1)
    for item in [*some(3, pk="U1"), *some(1, pk="U2")]:
        load.put(item)
    load.close()
    now = 0.0
    for limit in ("ProvisionedThroughput", "KeyRangeThroughput", "KeyRangeThroughput"):
        while isinstance(step := load.next(now), Wait):
            assert step.until is not None
            now = step.until
        assert isinstance(step, Send)
        load.receive(step, throttled(limit), now)
    assert load.report.hot_keys == {"U1": 2, "U2": 2}


class Throttling(Service):
    """Refuses every batch and every single write from a time on, until another."""

    def __init__(self, *limits: str, since: float = 0.0, until: float = inf) -> None:
        super().__init__()
        self.limits = limits
        self.since = since
        self.until = until
        self.last = 0.0

    def answer(self, send: Send, now: float) -> Answer:
        self.last = now
        if not self.since <= now < self.until:
            return super().answer(send, now)
        if send.operation == "BatchWriteItem" and not self.limits:
            return {"UnprocessedItems": send.params["RequestItems"]}
        return throttled(*self.limits)


@pytest.mark.parametrize("limit", ["ProvisionedThroughput", "MaxOnDemandThroughput", "KeyRangeThroughput", None])
@pytest.mark.parametrize("keys", [1, 400])
def test_throttles_without_end_stop_the_load_once(limit: str | None, keys: int) -> None:
    """After a minute in which nothing was written; what is not written can be loaded another time."""
    service = Throttling(*([limit] if limit else ()), since=0.1)
    load = a_load(workers=4, window=500)
    items = [{"pk": f"U{number % keys}", "sk": f"{number:06}"} for number in range(100_000)]
    results = drive(load, items, service)
    assert STALLED_SECONDS <= service.last - service.since <= STALLED_SECONDS + 20.5  # the longest wait, and answers
    assert isinstance(load.fatal, ShardkitError)
    reason = f"TableWrite{limit}Exceeded" if limit else "no reason"
    assert reason in str(load.fatal)
    assert "60 s" in str(load.fatal)
    report = load.report
    assert 0 < report.written == report.items - report.failed
    assert report.stopped == report.failed == len(results) - report.written
    assert report.items < 5000
    done, failed = load.settled()
    assert len(done) == report.written
    assert failed == []


def test_what_throttles_for_less_than_a_minute_is_waited_for() -> None:
    service = Throttling("ProvisionedThroughput", since=0.1, until=STALLED_SECONDS)
    load = a_load(workers=4, window=500)
    assert outcome(drive(load, some(3000), service)) == all_written(3000)


def test_the_time_of_the_source_is_no_stall() -> None:
    """A throttle before and one after a long wait for the next item are two throttles, not a minute of them."""
    load = a_load(workers=2, window=100)
    for item in some(100):
        load.put(item)
    now = 0.0
    for _ in range(2):
        send = load.next(now)
        assert isinstance(send, Send)
        load.receive(send, throttled("KeyRangeThroughput"), now)
        resting = load.next(now)
        assert isinstance(resting, Wait)
        assert resting.until is not None
        now = resting.until
    send = load.next(now)
    assert isinstance(send, Send)
    assert load.next(now) == Done([])
    load.receive(send, throttled("KeyRangeThroughput"), now + 2 * STALLED_SECONDS)
    assert load.fatal is None


def test_a_table_that_is_throttled_slows_all() -> None:
    """The rate goes down at once, comes back within three seconds, stays about there, and then grows ever faster."""
    pace = TablePace(None, lambda: 0.5)
    for tick in range(30):
        pace.settled(0, 100, 100, tick / 10)
    assert pace.rate == inf
    pace.throttled(3.0)
    slowed = pace.rate
    assert 500 <= slowed <= 800
    assert pace.ready(3.0) > 3.0
    pace.throttled(3.001)
    assert pace.rate == slowed
    rates = []
    for tick in range(1, 161):
        pace.settled(0, 100, 100, 3.0 + tick / 10)
        rates.append(pace.rate)
    assert rates == sorted(rates)
    before = 1000
    assert slowed + 0.9 * (before - slowed) < rates[19] < rates[29] == pytest.approx(before)
    assert rates[39] < 1.02 * before
    assert rates[59] == pytest.approx(2 * before - slowed)
    assert rates[-1] > 20 * before


def test_a_table_is_slowed_once_a_second() -> None:
    """What a slowing brings is not seen before, nor where nothing is written; rests in between are not left out."""
    pace = TablePace(None, lambda: 0.5)
    for tick in range(30):
        pace.settled(0, 100, 100, tick / 10)
    pace.throttled(3.0)
    slowed = pace.rate
    pace.throttled(3.5)
    assert pace.rate == slowed
    assert pace.ready(3.5) > 3.5
    pace.throttled(4.0)
    assert pace.rate == slowed
    assert pace.ready(4.0) > 4.0
    pace.settled(0, 10, 10, 4.5)
    slowed = pace.rate
    pace.throttled(4.5)
    assert pace.rate < slowed


def test_a_table_that_writes_between_two_throttles_is_slowed_once_a_second() -> None:
    pace = TablePace(None, lambda: 0.5)
    for tick in range(30):
        pace.settled(0, 100, 100, tick / 10)
    pace.throttled(3.0)
    for now, cut in ((3.9, False), (4.0, True)):
        pace.settled(0, 10, 10, now)
        rate = pace.rate
        assert pace.ready(now) <= now, "it rests: a throttle would say nothing new"
        pace.throttled(now)
        assert (pace.rate < rate) == cut
        assert pace.ready(now) > now


def test_a_table_s_throttle_asks_for_more_capacity() -> None:
    """All is written when it has passed, and the advice says what would help."""
    service = Service(["unprocessed"] * 3, alone=[throttled("ProvisionedThroughput")] * 2)
    load = a_load(workers=2)
    assert outcome(drive(load, some(60), service)) == all_written(60)
    assert load.report.throttles_by_reason["TableWriteProvisionedThroughputExceeded"] == 2
    assert any("write units" in advice for advice in load.report.advice)


def test_the_account_s_limit_stops_the_load() -> None:
    """What was not sent fails, and is not settled: it can be loaded another time."""
    load = a_load(workers=1)
    service = Service(["none", "unprocessed"], alone=[throttled("AccountLimit")])
    results = drive(load, some(100), service)
    assert isinstance(load.fatal, ClientError)
    assert load.report.written == 25 + 12
    assert len(results) == 100
    done, failed = load.settled()
    assert sorted(done) == written(results)
    assert failed == []
    assert any("account" in advice for advice in load.report.advice)


def test_no_right_to_write_alone() -> None:
    """It is not asked for again, and the batches go on."""
    service = Service(["unprocessed"] * 4, alone=repeat(client_error("AccessDeniedException")))
    load = a_load()
    assert outcome(drive(load, some(60), service)) == all_written(60)
    assert len(service.singles) == 1


def test_a_key_that_is_throttled_rests_until_its_alarm() -> None:
    keys = KeyPace(lambda: 0.5)
    keys.throttled("hot", 0.0)
    assert keys.resting("hot", 0.0)
    assert not keys.resting("hot", keys.alarm)
    assert keys.rested(keys.alarm) == ["hot"]
    assert keys.alarm == inf


def test_a_key_that_is_throttled_twice_at_once_rests_once() -> None:
    keys = KeyPace(lambda: 0.5)
    keys.throttled("hot", 0.0)
    keys.throttled("hot", 0.0)
    assert keys.rested(keys.alarm) == ["hot"]


def test_a_key_without_items_in_flight_may_still_send_one() -> None:
    keys = KeyPace(lambda: 0.5)
    keys.throttled("hot", 0.0)
    assert [keys.goes("hot", keys.alarm) for _ in range(2)] == [True, False]
    keys.landed(["hot"])
    keys.written(["hot"])
    assert [keys.goes("hot", keys.alarm) for _ in range(3)] == [True, True, False]


def test_a_key_gets_faster_again() -> None:
    """Half of what was in flight at once, then one more item for each round of them, until it is forgotten."""
    keys = KeyPace(lambda: 0.5)
    for _ in range(40):
        assert keys.goes("hot", 0.0)
    keys.throttled("hot", 0.0)
    for _ in range(40):
        keys.landed(["hot"])
    assert not keys.goes("hot", 0.0)
    for _ in range(20):
        assert keys.goes("hot", 1.0)
    assert not keys.goes("hot", 1.0)
    for _ in range(20):
        keys.written(["hot"])
    assert keys.goes("hot", 1.0)


def test_the_keys_that_are_remembered_are_bounded() -> None:
    """The one that was throttled first is forgotten: it may go again as any other."""
    keys = KeyPace(lambda: 0.5)
    for number in range(10_001):
        keys.throttled(number, 0.0)
    assert [keys.resting(number, 0.0) for number in (0, 1, 10_000)] == [False, True, True]
    assert [keys.goes(number, 0.0) for number in (0, 1, 10_000)] == [True, False, False]
    keys.throttled(1, 0.0)  # it is known: nothing is forgotten for it
    assert keys.resting(2, 0.0)
