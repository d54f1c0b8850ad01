"""Loads through a proxy that loses, delays, cuts and refuses: nothing is lost, nothing is written twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from random import Random

import pytest

from shardkit import BulkLoadError, CalculatedSuffix, RandomSuffix, Strategy
from tests.support.disks import full_disk
from tests.support.engines import EngineName
from tests.support.loading import Job, make_orders, stored, write_orders
from tests.support.proxy import PASSING, Fault, Proxy, some_faults

LINES = 1200

Endpoint = Callable[[EngineName], str]


@pytest.fixture(params=["client", "direct"])
def job(request: pytest.FixtureRequest, engine_name: EngineName, engine_endpoint: Endpoint, tmp_path: Path) -> Job:
    """A load straight to the engine, into a table of its own, over each transport."""
    endpoint = engine_endpoint(engine_name)
    return Job(endpoint, make_orders(endpoint), RandomSuffix(10), tmp_path, transport=request.param)


@pytest.fixture(
    params=[
        pytest.param(("dynoxide", "client"), id="dynoxide-client", marks=pytest.mark.integration),
        pytest.param(("dynamodb_local", "direct"), id="dynamodb_local-direct", marks=pytest.mark.integration),
    ]
)
def one_job(request: pytest.FixtureRequest, engine_endpoint: Endpoint, tmp_path: Path) -> Job:
    """The same, each engine and each transport once: for what no engine decides."""
    engine, transport = request.param
    endpoint = engine_endpoint(engine)
    return Job(endpoint, make_orders(endpoint), RandomSuffix(10), tmp_path, transport=transport)


@pytest.mark.parametrize(
    ("strategy", "again"),
    [(RandomSuffix(10), 0.0), (CalculatedSuffix("OrderId", 10), 0.2)],
    ids=["random", "calculated"],
)
def test_faults_of_every_kind(job: Job, strategy: Strategy, again: float) -> None:
    """Half of the requests meet one; each key is stored once, by its last line; what failed is in the dead letters."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES, again=again)
    with Proxy(job.endpoint, some_faults(Random(LINES), 300)) as proxy:
        report = replace(job, endpoint=proxy.endpoint, strategy=strategy).run()
    assert proxy.counts.keys() == set(PASSING)
    assert stored(job.endpoint, job.table, strategy) == wanted
    assert job.dead == bad
    assert report.items == LINES == report.written + report.failed + report.duplicates
    assert report.failed == len(bad)
    assert report.throttles > 0 < report.retried


@pytest.mark.parametrize(
    "fault",
    [
        "unprocessed cut",
        "all unprocessed",
        "throttle",
        "throttle key",
        "throttle table",
        "drop after",
        "500",
        "500 after",
    ],
)
def test_a_storm_of_one_kind(one_job: Job, fault: Fault) -> None:
    """Six requests in a row, and then every second one."""
    wanted, bad = write_orders(one_job.folder / "orders.jsonl", 300)
    with Proxy(one_job.endpoint, [*[fault] * 6, *["none", fault] * 30]) as proxy:
        report = replace(one_job, endpoint=proxy.endpoint).run()
    assert proxy.counts[fault] >= 6
    assert stored(one_job.endpoint, one_job.table, one_job.strategy) == wanted
    assert one_job.dead == bad
    assert report.written == 300 - len(bad)


@pytest.mark.parametrize(("fault", "code"), [("expired", "ExpiredTokenException"), ("account", "RequestLimitExceeded")])
def test_what_ends_a_load_and_its_resumption(job: Job, fault: Fault, code: str) -> None:
    """The load stops, says how to go on, and goes on: nothing of what failed for that reason is in the dead letters."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    with Proxy(job.endpoint, chain(["none"] * 25, repeat(fault))) as proxy:
        with pytest.raises(BulkLoadError, match=code) as raised:
            replace(job, endpoint=proxy.endpoint).run()
        assert 0 < proxy.counts[fault] <= 8
    stopped = raised.value.report
    assert stopped is not None
    assert stopped.written == 25 * 25
    report = job.run()
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert report.written == LINES - len(bad) - stopped.written
    assert report.items + report.resumed == LINES


def test_an_engine_that_is_gone(job: Job) -> None:
    """A load whose network is lost stops; the one that follows writes the rest."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", 600)
    with Proxy(job.endpoint, chain(["none"] * 10, repeat("drop"))) as proxy, pytest.raises(BulkLoadError):
        replace(job, endpoint=proxy.endpoint).run()
    assert 0 < len(stored(job.endpoint, job.table, job.strategy)) < len(wanted)
    job.run()
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad


@pytest.mark.parametrize(("full", "bad", "room"), [("dead letters", 0.3, 30_000), ("journal", 0.0, 4_000)])
def test_a_disk_that_is_full(one_job: Job, full: str, bad: float, room: int) -> None:
    """The load ends there. What could not be kept is not held as done: the next load finds it."""
    wanted, wrong = write_orders(one_job.folder / "orders.jsonl", 1000, bad=bad)
    with (
        full_disk(room),
        pytest.raises(BulkLoadError, match=r"the load stopped: .* cannot be written .*too large") as end,
    ):
        one_job.run()
    stopped = end.value.report
    assert stopped is not None
    assert stopped.items == stopped.written + stopped.failed
    assert stopped.written == len(stored(one_job.endpoint, one_job.table, one_job.strategy))
    assert 0 < len(stored(one_job.endpoint, one_job.table, one_job.strategy)) < len(wanted)
    assert bool(one_job.dead) == (full == "dead letters")
    assert len(one_job.dead) < max(1, len(wrong))
    report = one_job.run()
    assert 0 < report.resumed < 1000
    assert stored(one_job.endpoint, one_job.table, one_job.strategy) == wanted
    assert one_job.dead == wrong
