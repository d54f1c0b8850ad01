"""A load that was slowed as a whole is soon back at what the table takes: in seconds, not minutes. In virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from shardkit.bulk.pacing import TablePace
from shardkit.core.machine import Answer, Send
from shardkit.partitions import SimulatedTable, Simulator
from tests.support.fakes import throttled

SCHEMA = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
INDEX_SCHEMA = [{"AttributeName": "gk", "KeyType": "HASH"}]


def described(units: int, index: int | None = None) -> dict[str, Any]:
    table: dict[str, Any] = {"TableName": "Messages", "KeySchema": SCHEMA, **provisioned(units)}
    if index is not None:
        by_g = {"IndexName": "ByG", "KeySchema": INDEX_SCHEMA, "Projection": {"ProjectionType": "ALL"}}
        table["GlobalSecondaryIndexes"] = [{**by_g, **provisioned(index)}]
    return table


def provisioned(units: int) -> dict[str, Any]:
    return {"ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": units}}


def simulated(description: Mapping[str, Any]) -> SimulatedTable:
    return SimulatedTable.described(description, burst_seconds=0, keeps_items=False)


def items(count: int, size: int = 0) -> Iterator[dict[str, str]]:
    return ({"pk": f"U{number}", "sk": "1", "gk": f"G{number}", "note": "x" * size} for number in range(count))


class Later(SimulatedTable):
    """Is another table from a time on; refuses all writes for a time."""

    at: float
    later: SimulatedTable
    outage = range(0)

    def answer(self, send: Send, now: float) -> Answer:
        if send.operation != "DescribeTable" and int(now) in self.outage:
            return throttled("ProvisionedThroughput")
        if now < self.at:
            return super().answer(send, now)
        return self.later.answer(send, now)


def changing(before: Mapping[str, Any], at: float, after: Mapping[str, Any]) -> Later:
    table = Later.described(before, burst_seconds=0, keeps_items=False)
    assert isinstance(table, Later)
    table.at, table.later = at, simulated(after)
    return table


@pytest.mark.parametrize(("units", "kilobytes"), [(1000, 5), (1000, 10), (2000, 10), (2000, 30)])
def test_a_throttle_of_the_first_batches_is_not_what_the_table_takes(units: int, kilobytes: int) -> None:
    """The rate is not measured by what was written in the few hundredths of a second before."""
    count = units * 30 // kilobytes
    report = Simulator(simulated(described(units))).load(items(count, kilobytes * 1024 - 200), window=count // 4)
    assert report.written == count
    assert report.seconds <= 1.2 * 30


def test_at_the_table_s_own_rate_large_items_are_sent_once() -> None:
    """docs/reference/bulk.md: a batch is more than half a second of the table's throughput."""
    seconds, sent = [], []
    for write_units in (None, 200):
        report = Simulator(simulated(described(200))).load(
            items(2400, 5 * 1024 - 200), window=600, write_units=write_units
        )
        seconds.append(report.seconds)
        sent.append((report.written + report.retried) / report.written)
    assert sent[1] == 1
    assert sent[0] == pytest.approx(2.8, abs=0.2)
    assert seconds[1] <= 1.02 * seconds[0]


@pytest.mark.parametrize(("seconds", "write_units"), [(10, None), (25, "80%"), (45, None)])
def test_an_outage_is_over_when_it_is_over(seconds: int, write_units: str | None) -> None:
    """Others take all for some seconds; the last rest is of 20 s at the most, and then it soon goes on as before."""
    table = changing(described(250), 1e9, described(250))
    table.outage = range(10, 10 + seconds)
    rate = 250 if write_units is None else 200
    report = Simulator(table).load(items(rate * 40), window=625, write_units=write_units)
    assert report.seconds <= 40 + seconds + min(20, seconds) + 5


def test_an_index_that_has_less_than_it_had() -> None:
    """A load that is slowed to the rate of an index, and then learns that rate, is not slowed again."""
    table = changing(described(1000, 1000), 10.0, described(1000, 20))
    # 10 s at 800; at 20 until the next DescribeTable; then 16, which takes 100 s.
    report = Simulator(table).load(items(10 * 800 + 50 * 20 + 100 * 16), window=1000, write_units="80%")
    assert report.seconds <= 1.3 * 160


@pytest.mark.parametrize("times", [10, 100])
def test_a_table_that_is_raised_while_the_load_is_slowed(times: int) -> None:
    pace = TablePace("80%", lambda: 0.5)
    assert pace.asks(0.0)
    assert pace.described(described(200), 0.0) is None
    for tick in range(20):
        pace.settled(16, 16, 16, tick / 10)
    pace.throttled(2.0)
    assert pace.described(described(200 * times), 3.0) is None
    for tick in range(600):  # all is written, for a minute
        pace.settled(1, 1, 1, 3.0 + tick / 10)
    assert pace.rate == pytest.approx(160 * times)


def test_a_description_without_throughput_changes_nothing() -> None:
    """It is an error, and what the last one said goes on to hold: also what an index is worth."""
    pace = TablePace("80%", lambda: 0.5)
    assert pace.described(described(2000, 200), 0.0) is None
    assert pace.worth == {"ByG": 10.0}
    assert pace.described({"TableName": "Messages"}, 60.0) is not None
    assert pace.rate == 1600
    assert pace.worth == {"ByG": 10.0}
