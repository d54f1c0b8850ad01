"""How fast a load goes: by write units, and by the share of a throughput."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit.bulk.load_machine import Load
from shardkit.bulk.pacing import LearntPace, TablePace, WriteRate, units_of, write_rate
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.core.token_bucket import TokenBucket
from shardkit.errors import ConfigurationError
from tests.support.fakes import a_load, client_error, some

# The bucket.


@given(
    rate=st.floats(0.5, 1000),
    burst=st.floats(0, 500),
    units=st.lists(st.floats(0.5, 2000), min_size=1, max_size=40),
    idle=st.lists(st.floats(0, 10), max_size=40),
)
def test_a_bucket_holds_its_rate(rate: float, burst: float, units: list[float], idle: list[float]) -> None:
    """In any window no more is begun than rate × time + burst and one request; none waits for ever."""
    bucket = TokenBucket(rate, burst=burst)
    now = 0.0
    begun: list[tuple[float, float]] = []
    for number, one in enumerate(units):
        now += idle[number] if number < len(idle) else 0.0
        ready = bucket.ready(now)
        assert ready <= now + sum(units) / rate + 1e-6
        now = max(now, ready)
        bucket.take(one, now)
        begun.append((now, one))
    for first, (since, _) in enumerate(begun):
        for until, last in begun[first:]:
            taken = sum(one for at, one in begun[first:] if at <= until) - last
            assert taken <= rate * (until - since) + burst + max(units) + 1e-3


def test_a_bucket_begins_with_none() -> None:
    """What was not used before it was first asked is not there, whatever the clock shows then."""
    bucket = TokenBucket(10, burst=100)
    assert bucket.ready(5000.0) == 5000.0
    bucket.take(10, 5000.0)
    assert bucket.ready(5000.0) == 5001.0


def test_a_debt_is_forgiven_beyond_its_seconds() -> None:
    """Also where it becomes one, because the rate is lower."""
    bucket = TokenBucket(10, debt=2.0)
    bucket.take(100, 0.0)
    assert bucket.ready(0.0) == 2.0
    bucket.change(1, burst=0.0, now=0.0)
    assert bucket.ready(0.0) == 2.0
    bucket.change(inf, burst=0.0, now=0.5)
    assert bucket.ready(0.5) == 0.5


@pytest.mark.parametrize("rate", [0.7, 3, 10, 1000 / 3])
def test_a_debt_that_is_only_rounding_is_none(rate: float) -> None:
    """When it has flowed back what was taken, the next may go at that very time."""
    for number in range(1, 500):
        bucket = TokenBucket(rate)
        bucket.take(rate * number / 100, 0.1)
        now = 0.1 + number / 100
        assert bucket.ready(now) == now


def test_what_is_given_back_can_be_taken() -> None:
    """A debt that was an estimate too high is forgiven, but never more than the burst is kept."""
    bucket = TokenBucket(10, burst=5)
    bucket.take(100, 0.0)
    assert bucket.ready(0.0) == 10.0
    bucket.take(-100, 0.0)
    assert bucket.ready(0.0) == 0.0
    bucket.take(-100, 0.0)
    bucket.take(6, 0.0)
    assert bucket.ready(0.0) == pytest.approx(0.1)


# What the caller asks for.


@pytest.mark.parametrize(("given", "rate"), [(None, None), (500, 500.0), (0.5, 0.5), ("80%", 0.8), (" 150 % ", 1.5)])
def test_write_units(given: Any, rate: float | None) -> None:
    """A number, or a share."""
    assert write_rate(given) == (rate if rate is None else pytest.approx(rate))


@pytest.mark.parametrize("given", [0, -1, True, "80", "x%", "0%", inf, [5], "nan%"])
def test_write_units_that_cannot_work(given: Any) -> None:
    """They are refused, and the message says what to use instead."""
    with pytest.raises(ConfigurationError, match=r'500, "80%" or a SharedBudget'):
        write_rate(given)


@pytest.mark.parametrize(
    ("table", "rate"),
    [
        ({"ProvisionedThroughput": {"WriteCapacityUnits": 100}, "WarmThroughput": {"WriteUnitsPerSecond": 4000}}, 50),
        ({"ProvisionedThroughput": {"WriteCapacityUnits": 0}, "WarmThroughput": {"WriteUnitsPerSecond": 4000}}, 2000),
        ({"WarmThroughput": {"WriteUnitsPerSecond": 4000}, "OnDemandThroughput": {"MaxWriteRequestUnits": 60}}, 30),
        ({"WarmThroughput": {"WriteUnitsPerSecond": 4000}, "OnDemandThroughput": {"MaxWriteRequestUnits": -1}}, 2000),
    ],
)
def test_a_share_of_the_table(table: Any, rate: float) -> None:
    """Of what is provisioned, or warm, or the most that an on-demand table may take; followed when it changes."""
    pace = TablePace("50%", lambda: 0.5)
    known = [not pace.unknown]
    assert pace.asks(0.0)
    assert pace.described(table, 0.0) is None
    assert [*known, not pace.unknown] == [False, True]
    assert pace.rate == rate
    assert not pace.asks(59.0)
    assert pace.asks(60.0)
    pace.described({"ProvisionedThroughput": {"WriteCapacityUnits": 10}}, 60.0)
    assert pace.rate == 5


def test_a_table_that_says_no_throughput() -> None:
    """A share of an unknown throughput is an error, and the message says what to use instead."""
    error = TablePace("50%", lambda: 0.5).described({"TableName": "Orders"}, 0.0)
    assert isinstance(error, ConfigurationError)
    assert "50%" in str(error)


def test_units_that_count_for_the_pace() -> None:
    """The table's with its local indexes, or the busiest index's, whichever is more."""
    assert units_of(None, {}) == (0.0, None)
    assert units_of({"CapacityUnits": 2.0}, {}) == (2.0, 2.0)
    indexes = {"a": {"CapacityUnits": 50.0}, "b": {"CapacityUnits": 10.0}}
    consumed: Any = [{"CapacityUnits": 90.0, "Table": {"CapacityUnits": 25.0}, "GlobalSecondaryIndexes": indexes}]
    assert units_of(consumed, {}) == (90.0, 50.0)
    assert units_of(consumed, {"a": 0.1, "b": 8.0}) == (90.0, 80.0)
    assert units_of(consumed, {"a": 0.1}) == (90.0, 30.0)


def test_what_a_unit_of_an_index_is_worth() -> None:
    """As many of the table's as its own throughput is less; as one where that is not known."""
    table = {
        "ProvisionedThroughput": {"WriteCapacityUnits": 100},
        "GlobalSecondaryIndexes": [
            {"IndexName": "slow", "ProvisionedThroughput": {"WriteCapacityUnits": 10}},
            {"IndexName": "fast", "WarmThroughput": {"WriteUnitsPerSecond": 400}},
            {"IndexName": "unknown"},
        ],
        "LocalSecondaryIndexes": [{"IndexName": "local"}],
    }
    rate = WriteRate.of("50%", table)
    assert rate == WriteRate(50.0, {"slow": 10.0, "fast": 0.25, "unknown": 1.0})
    assert rate.slowest(100.0, {"slow": 20.0, "fast": 300.0}) == ("slow", 200.0)
    assert rate.seconds(100.0, {"fast": 300.0, "another": 99.0}) == 2.0
    unknown = WriteRate.of("50%", {"GlobalSecondaryIndexes": table["GlobalSecondaryIndexes"]})
    assert (unknown.units, unknown.seconds(1.0, {})) == (None, None)
    assert "is unknown" in str(unknown.error)


def test_a_number_is_the_rate_of_the_table_and_of_each_index() -> None:
    table = {"ProvisionedThroughput": {"WriteCapacityUnits": 100}}
    assert WriteRate.of(20, table).seconds(100.0, {"a": 300.0}) == 15.0
    assert WriteRate.of(None, table) == WriteRate(None)


# A load at a rate.


class Timed:
    """Answers each request after a time; a batch takes ``cost`` units an item.

    ``index`` is the throughput of a global index, by time; an item that has ``indexed`` takes a unit of it.
    """

    def __init__(self, cost: float = 1.0, seconds: float = 0.01, index: Callable[[float], int] | None = None) -> None:
        self.cost = cost
        self.seconds = seconds
        self.index = index
        self.index_sent: list[tuple[float, float]] = []
        self.sent: list[tuple[float, float]] = []

    def run(self, load: Load, items: list[Any], began: float = 0.0) -> float:
        """Load all; the time it took."""
        now, number = began, 0
        source = iter(items)
        under_way: list[tuple[float, int, Send, Answer]] = []
        while not load.ended:
            while load.wants:
                item = next(source, None)
                if item is None:
                    load.close()
                else:
                    load.put(item)
            step = load.next(now)
            if isinstance(step, Send):
                number += 1
                heappush(under_way, (now + self.seconds, number, step, self._answer(step, now)))
            elif isinstance(step, Wait):
                comes = under_way[0][0] if under_way else inf
                until = inf if step.until is None else step.until
                assert min(comes, until) < inf
                assert comes == now or now < min(comes, until)
                now = min(comes, until)
                if comes <= until:
                    _, _, send, answer = heappop(under_way)
                    load.receive(send, answer, now)
            else:
                assert isinstance(step, Done)
        return now - began

    def _answer(self, send: Send, now: float) -> Answer:
        if send.operation == "DescribeTable":
            table: dict[str, Any] = {"ProvisionedThroughput": {"WriteCapacityUnits": 100}}
            if self.index is not None:
                throughput = {"WriteCapacityUnits": self.index(now)}
                table["GlobalSecondaryIndexes"] = [{"IndexName": "index", "ProvisionedThroughput": throughput}]
            return {"Table": table}
        requests = list(send.params["RequestItems"]["Messages"])
        units = self.cost * len(requests)
        self.sent.append((now, units))
        if self.index is None:
            return {"ConsumedCapacity": [{"CapacityUnits": units}]}
        taken = float(sum("indexed" in request["PutRequest"]["Item"] for request in requests))
        self.index_sent.append((now, taken))
        consumed = {"CapacityUnits": units + taken, "GlobalSecondaryIndexes": {"index": {"CapacityUnits": taken}}}
        return {"ConsumedCapacity": [consumed]}


@pytest.mark.parametrize(("write_units", "rate"), [(50, 50.0), (400.0, 400.0), ("50%", 50.0)])
@pytest.mark.parametrize("cost", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("began", [0.0, 86400.0])
def test_a_load_holds_its_rate(write_units: Any, rate: float, cost: float, began: float) -> None:
    """Also where items take other than was estimated: what the service reports is charged."""
    timed = Timed(cost)
    workers = 4
    load = a_load(workers=workers, write_units=write_units)
    seconds = timed.run(load, some(1000), began)
    assert load.report.written == 1000
    assert load.report.write_units == 1000 * cost
    assert seconds == pytest.approx(1000 * cost / rate, rel=0.15)
    for first, (since, _) in enumerate(timed.sent):
        for number, (until, _) in enumerate(timed.sent[first:]):
            taken = sum(units for _, units in timed.sent[first : first + number + 1])
            assert taken <= rate * (until - since) + rate + workers * 25 * cost + 1e-6


def most_in_a_second(sent: list[tuple[float, float]]) -> float:
    """The most units that were sent within any second."""
    return max(sum(units for at, units in sent if since <= at < since + 1.0) for since, _ in sent)


@pytest.mark.parametrize(
    ("indexed", "seconds"),
    [(1, 1000 / 8), (5, 200 / 8), (20, 1000 / 80), (1000, 1000 / 80)],
    ids=["all", "a fifth", "5%", "one"],
)
def test_a_share_is_of_each_index_too(indexed: int, seconds: float) -> None:
    """An index of a tenth of the table's throughput holds a load back as far as its items are in it, and no further."""
    timed = Timed(index=lambda _: 10)
    load = a_load(workers=2, write_units="80%")
    items = [{**one, "indexed": "x"} if number % indexed == 0 else one for number, one in enumerate(some(1000))]
    assert timed.run(load, items) == pytest.approx(seconds, rel=0.2)
    assert load.report.written == 1000
    assert most_in_a_second(timed.index_sent) <= 8 + 8 + 2 * 25 / indexed + 1
    assert most_in_a_second(timed.sent) <= 80 + 80 + 2 * 25


def test_an_index_whose_throughput_changes() -> None:
    """It is followed: a minute at 4 units a second, then as fast as the table."""
    timed = Timed(index=lambda now: 5 if now < 59 else 100)
    load = a_load(workers=2, write_units="80%")
    seconds = timed.run(load, [{**one, "indexed": "x"} for one in some(1000)])
    before = sum(units for at, units in timed.index_sent if at < 60)
    assert before == pytest.approx(60 * 4, rel=0.25)
    assert seconds == pytest.approx(60 + (1000 - before) / 80, rel=0.2)


def test_a_share_waits_for_the_table_s_throughput() -> None:
    """Nothing is sent before it is known; without the right to ask, the load says so."""
    load = a_load(write_units="50%")
    load.put({"pk": "U1", "sk": "1"})
    load.close()
    ask = load.next(0.0)
    assert isinstance(ask, Send)
    assert ask.operation == "DescribeTable"
    assert load.next(0.0) == Wait()
    load.receive(ask, client_error("AccessDeniedException"), 0.0)
    step = load.next(0.0)
    assert isinstance(step, Done)
    assert [result.ok for result in step.value] == [False]
    assert isinstance(load.fatal, ClientError)


# The pace that is learnt.


def refusing(pace: LearntPace, takes: float, *, seconds: float, begin: float = 0.0, whole: float = 0.0) -> float:
    """Send batches of 25 units to a service of ``takes`` units a second; return the units sent per second.

    ``whole`` is the share of batches that are refused completely, however few are sent.
    """
    service = TokenBucket(takes, burst=takes)
    now, sent, refused = begin, 0, 0.0
    while now < begin + seconds:
        pace.sent(25, now)
        sent += 25
        written, refused = 0, refused + whole
        if refused >= 1:
            refused -= 1
        else:
            while written < 25 and service.holds(1, now):
                service.take(1, now)
                written += 1
        pace.settled(written, 25 - written, now)
        now = max(now + 0.001, pace.ready(now))
    return sent / seconds


@pytest.mark.parametrize("takes", [100, 1000, 10_000])
def test_a_little_more_is_sent_than_was_written(takes: int) -> None:
    """A tenth more, and half as much again for one half second of four."""
    pace = LearntPace()
    assert refusing(pace, takes, seconds=0.5) > 2 * takes  # nothing is known yet, and it would take 25,000
    refusing(pace, takes, seconds=5, begin=0.5)
    assert refusing(pace, takes, seconds=20, begin=5.5) == pytest.approx(1.2 * takes, rel=0.1)


def test_the_learnt_pace_follows() -> None:
    """Up where more is taken, and down, in a few seconds."""
    pace = LearntPace()
    refusing(pace, 1000, seconds=5)
    refusing(pace, 10_000, seconds=5, begin=5)
    assert refusing(pace, 10_000, seconds=10, begin=10) == pytest.approx(12_000, rel=0.1)
    refusing(pace, 500, seconds=3, begin=20)
    assert refusing(pace, 500, seconds=10, begin=23) == pytest.approx(600, rel=0.15)


@pytest.mark.parametrize("whole", [0.1, 0.2, 0.25])
def test_a_share_that_is_always_refused_does_not_slow_the_rest(whole: float) -> None:
    """As where one partition of four is taken by others: what is sent does not sink, however long it lasts."""
    pace = LearntPace()
    refusing(pace, 10_000, seconds=30, whole=whole)
    assert refusing(pace, 10_000, seconds=10, begin=30, whole=whole) * (1 - whole) > 0.95 * 10_000


def test_after_nothing_was_taken_for_long_it_is_soon_as_fast_as_before() -> None:
    pace = LearntPace()
    refusing(pace, 10_000, seconds=5)
    assert refusing(pace, 10_000, seconds=60, begin=5, whole=1.0) < 1000
    refusing(pace, 10_000, seconds=6, begin=65)
    assert refusing(pace, 10_000, seconds=10, begin=71) > 10_000


def test_what_is_refused_nowhere_is_not_held_back() -> None:
    """However few units it was."""
    pace = LearntPace()
    pace.sent(10, 0.0)
    pace.settled(10, 0, 0.6)
    pace.sent(10, 0.6)
    assert pace.ready(0.6) <= 0.6


def test_few_refusals_hold_nothing_back() -> None:
    pace = LearntPace()
    for tick in range(1000):
        pace.sent(1000, tick / 100)
        pace.settled(955, 45, tick / 100)
        assert pace.ready(tick / 100) <= tick / 100


@pytest.mark.parametrize("units", [1, 25, 10_000])
def test_one_batch_a_second_goes_in_any_case(units: int) -> None:
    """Also where nothing was written, and of whatever size the ones before were."""
    pace, now = LearntPace(), 0.0
    for one in [1] * 10 + [units] * 3:
        pace.sent(one, now)
        assert pace.ready(now) <= now + 1.001
        pace.settled(0, one, now + 0.01)
        assert pace.ready(now + 0.01) <= now + 1.011
        now = max(now + 0.1, pace.ready(now + 0.01))


def test_a_pause_of_the_source_says_nothing_of_the_partitions() -> None:
    """The half second in which it falls is not taken for a slow one."""
    pace = LearntPace()
    refusing(pace, 10_000, seconds=5)
    pace.sent(25, 305.0)
    pace.settled(15, 10, 305.01)
    assert refusing(pace, 10_000, seconds=2, begin=305.02) > 9000
