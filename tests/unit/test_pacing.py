"""How fast a load goes: by write units, by key, and by what the service says of a throttle."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import repeat
from math import inf
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from shardkit.backoff import ATTEMPTS
from shardkit.bulk.batch import Load
from shardkit.bulk.pacing import KEY_ITEMS, KeyPace, TablePace, units_of, write_rate, write_throughput
from shardkit.bulk.window import Window
from shardkit.bulk.writes import Write
from shardkit.capacity.bucket import TokenBucket
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.machine import Answer, Done, Send, Wait
from tests.fakes import Service, a_load, all_written, client_error, drive, outcome, some, throttled, written

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
    """They are refused with what to give instead."""
    with pytest.raises(ConfigurationError, match=r'500 or "80%"'):
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
    """A share of nothing is an error that says what to give."""
    error = TablePace("50%", lambda: 0.5).described({"TableName": "Orders"}, 0.0)
    assert isinstance(error, ConfigurationError)
    assert "50%" in str(error)


def test_units_that_count_for_the_pace() -> None:
    """The table's with its local indexes, or the busiest index's, whichever is more."""
    assert units_of(None) == (0.0, None)
    assert units_of({"CapacityUnits": 2.0}) == (2.0, 2.0)
    indexes = {"a": {"CapacityUnits": 50.0}, "b": {"CapacityUnits": 10.0}}
    consumed: Any = [{"CapacityUnits": 90.0, "Table": {"CapacityUnits": 25.0}, "GlobalSecondaryIndexes": indexes}]
    assert units_of(consumed) == (90.0, 50.0)
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
    assert write_throughput(table) == (100.0, {"slow": 10.0, "fast": 0.25, "unknown": 1.0})
    assert write_throughput({"GlobalSecondaryIndexes": table["GlobalSecondaryIndexes"]})[0] is None


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


# Keys.


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
        keys.sent(key)
    assert keys.mix == pytest.approx(1 / (1 / 16 + 1 / 16 + 1 / 4))
    keys.landed(["c"])
    assert keys.mix == pytest.approx(3.0)
    for items, mix in ((some(2000), 1.0), ([one for key in "abcdefgh" for one in some(500, pk=key)], 8.0)):
        load = a_load(workers=2)
        drive(load, items, Service())
        assert load.report.keys_in_flight == pytest.approx(mix, rel=0.02)
        assert any("partition keys were in flight" in advice for advice in load.report.advice) == (mix < 2)


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


def test_a_key_that_stays_throttled_is_given_up_as_a_whole() -> None:
    """Not item by item: each would wait 10 to 20 seconds more."""
    service = Hot(10**9)
    load = a_load(workers=2)
    items = [one for pair in zip(some(300, pk="hot"), some(300, pk="cold"), strict=True) for one in pair]
    results = drive(load, items, service)
    assert load.report.written == 300
    assert sorted(result.place for result in results if not result.ok) == list(range(0, 600, 2))
    assert service.times[-1] - service.times[0] < 60
    done, failed = load.settled()
    assert len(done) == len(failed) == 300


def test_what_waits_for_a_write_on_its_way_is_not_dropped_before_it() -> None:
    """Of two writes of one primary key the later one is never settled first."""
    window = Window(KeyPace(lambda: 0.5))
    first, second, other = (
        Write(b"", place, None, ("hot", sort), ("hot", sort), 1) for place, sort in enumerate("aab")
    )
    window.add(first)
    assert window.take(25, 0.0) == [first]
    window.add(second)
    window.add(other)
    assert window.drop({"hot", "unknown"}) == [other]
    window.failed([first, other])
    assert window.drop({"hot"}) == [second]
    assert len(window) == 0


def test_a_table_that_is_throttled_slows_all() -> None:
    """The rate goes down at once and comes back bit by bit."""
    pace = TablePace(None, lambda: 0.5)
    for tick in range(30):
        pace.settled(0, 100, 100, tick / 10)
    assert pace.rate == inf
    assert not pace.throttled(3.0, 3000)
    slowed = pace.rate
    assert 500 <= slowed <= 800
    assert pace.ready(3.0) > 3.0
    assert not pace.throttled(3.001, 3000)
    assert pace.rate == slowed
    pace.settled(0, 10, 10, 4.0)
    assert slowed < pace.rate <= slowed + 101


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


def test_a_throttle_is_not_given_up_while_anything_is_written() -> None:
    """A hundred refusals are no reason to; ten in a row while all stands still are."""
    keys = KeyPace(lambda: 0.5)
    now = 0.0
    for written_so_far in [*range(100), *repeat(100, ATTEMPTS - 1)]:
        assert not keys.throttled("hot", now, written_so_far)
        assert keys.resting("hot", now)
        assert keys.alarm > now
        now = keys.alarm
        assert keys.rested(now) == ["hot"]
    assert keys.throttled("hot", now, 100)


def test_a_key_gets_faster_again() -> None:
    """Half of what was in flight at once, then one more item for each round of them, until it is forgotten."""
    keys = KeyPace(lambda: 0.5)
    for _ in range(40):
        keys.sent("hot")
    keys.throttled("hot", 0.0, 0)
    for _ in range(40):
        keys.landed(["hot"])
    assert not keys.free("hot", 0.0)
    for _ in range(20):
        assert keys.free("hot", 1.0)
        keys.sent("hot")
    assert not keys.free("hot", 1.0)
    for _ in range(20):
        keys.written(["hot"])
    assert keys.free("hot", 1.0)


# Duplicates, and failures.


@pytest.mark.parametrize(("duplicates", "kept", "failed"), [("last", 4, 0), ("first", 0, 0), ("error", 0, 4)])
def test_duplicates(duplicates: Any, kept: int, failed: int) -> None:
    """Of writes of one key that are held together one stays; each has its result."""
    load, service = a_load(duplicates=duplicates), Service()
    results = drive(load, [{"pk": "U1", "sk": "1", "n": number} for number in range(5)], service)
    report = load.report
    assert (report.items, report.written, report.failed, report.duplicates) == (5, 1, failed, 4 - failed)
    assert service.items["U1", "1"]["n"] == {"N": str(kept)}
    assert written(results) == [kept]
    assert [result.item["n"] for result in sorted(results, key=lambda one: one.place)] == list(range(5))
    assert all("same primary key" in str(result.error) for result in results if not result.ok)


def test_too_many_failures_end_the_load() -> None:
    """Those beyond what was allowed are not waited for."""
    load = a_load(max_failures=2, window=10)
    items = [{"pk": "U1"} if number % 2 else one for number, one in enumerate(some(1000))]
    drive(load, items, Service())
    assert isinstance(load.fatal, ShardkitError)
    assert "max_failures=2" in str(load.fatal)
    assert load.report.items < 30
