"""Processes of a load that end, and a load whose caller ends: nothing is lost, and nothing stays behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from shardkit import BulkLoadError, InterruptedLoadError, ShardedTable, bulk_load
from tests.support.disks import full_disk
from tests.support.fakes import connected
from tests.support.loading import SECONDS, WORKERS, Job, linux, some, soon, stored, write_orders
from tests.support.platforms import require_fork
from tests.support.proxy import Proxy, Stage

require_fork()

LINES = 600


class Killer:
    """Kills some of the processes of a load of this process, when each worker has a request in flight.

    These are the requests from number ``at`` on. They were carried out; their answers wait until the processes ended.
    """

    def __init__(self, at: int, count: int) -> None:
        self._held = range(at, at + WORKERS)
        self._count = count
        self._all = threading.Barrier(WORKERS, self._kill, timeout=SECONDS)

    def watch(self, number: int, stage: Stage) -> None:
        if stage == "carried out" and number in self._held:
            self._all.wait()

    def _kill(self) -> None:
        for process in multiprocessing.active_children()[: self._count]:
            process.kill()
            assert connection.wait([process.sentinel], SECONDS)


def test_a_killed_process_loses_nothing(job: Job) -> None:
    """Its requests are sent again by the other one; that it ended is said."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    with Proxy(job.endpoint, watch=Killer(5, 1).watch) as proxy, pytest.warns(RuntimeWarning, match="exit code -9"):
        report = replace(job, endpoint=proxy.endpoint).run(processes=2)
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert (report.written, job.dead) == (LINES - len(bad), bad)
    assert 0 < report.retried <= WORKERS // 2 * 25


def test_when_all_are_killed_the_load_stops_and_can_be_resumed(job: Job) -> None:
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    with Proxy(job.endpoint, watch=Killer(5, 2).watch) as proxy:
        with pytest.raises(BulkLoadError, match=r"all processes of the load have ended \(exit code -9, exit code -9"):
            replace(job, endpoint=proxy.endpoint).run(processes=2)
        sent = proxy.writes
    report = job.run()
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert report.items + report.resumed == LINES
    assert sent + report.written <= LINES + (1 + WORKERS) * 25


@pytest.mark.parametrize(
    ("full", "bad", "room", "resumed_by"), [("dead_letters", 0.3, 30_000, None), ("journal", 0.0, 2_000, 2)]
)
def test_a_disk_that_is_full(job: Job, full: str, bad: float, room: int, resumed_by: int | None) -> None:
    """The processes finish what they carry; it has its results, and what could not be kept comes again."""
    wanted, wrong = write_orders(job.folder / "orders.jsonl", LINES, bad=bad)
    with full_disk(room), pytest.raises(BulkLoadError, match=rf"the load stopped: {full}: .*too large") as raised:
        job.run(processes=2)
    report = raised.value.report
    assert report is not None
    assert report.items == report.written + report.failed
    assert 0 < report.written == len(stored(job.endpoint, job.table, job.strategy)) < len(wanted)
    assert 0 < job.run(processes=resumed_by).resumed < LINES
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == wrong


# -- the caller's process ends -----------------------------------------------------------------------------------------


def _in_a_group_of_its_own(job: Job) -> None:
    os.setpgrp()
    job.run(processes=2)


def _alive(group: int) -> list[int]:
    """The processes of a group that have not ended; zombies have ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8")
        except OSError:
            continue  # it ended just now
        state, _, pgrp = text.rpartition(")")[2].split()[:3]
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@linux
@pytest.mark.parametrize(
    ("signals", "to_all"),
    [([signal.SIGINT], True), ([signal.SIGINT] * 2, True), ([signal.SIGKILL], False)],
    ids=["ctrl-c", "ctrl-c twice", "kill -9"],
)
def test_an_ended_caller_leaves_no_process_and_a_load_to_resume(
    job: Job, signals: list[signal.Signals], to_all: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C goes to the whole group: what is in flight is finished; killed, the caller takes the others along."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    group: list[int] = []
    members: list[int] = []

    def watch(number: int, stage: Stage) -> None:
        if (number, stage) == (5, "came"):
            members.extend(_alive(*group))
            for given in signals:
                (os.killpg if to_all else os.kill)(group[0], given)

    with Proxy(job.endpoint, watch=watch) as proxy:
        process = multiprocessing.get_context("spawn").Process(
            target=_in_a_group_of_its_own, args=(replace(job, endpoint=proxy.endpoint),)
        )
        process.start()
        assert process.pid is not None
        group.append(process.pid)
        process.join()
        assert len(members) >= 3, "the caller and two more"
        assert soon(lambda: not _alive(*group))
        assert process.exitcode == (1 if to_all else -signal.SIGKILL)
        process.close()
    assert "Process shardkit-" not in capfd.readouterr().err, "none of the load's processes was interrupted"
    report = job.run()
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert report.items + report.resumed == LINES
    if signals == [signal.SIGINT]:
        assert proxy.writes + report.written == LINES - len(bad), "nothing is sent twice"


def test_an_interruption_finishes_what_is_in_flight(job: Job, orders: ShardedTable) -> None:
    """Here Ctrl-C reaches the caller alone; its error holds the report."""
    with Proxy(job.endpoint) as proxy:
        resource = connected(proxy.endpoint)
        table = ShardedTable(resource.Table(job.table), orders.strategy)
        told: list[int] = []

        def interrupt(_: Any) -> None:
            told.append(1)
            if len(told) == 2:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(InterruptedLoadError) as raised:
            bulk_load(table, some(2000), workers=4, processes=2, window=100, progress=interrupt)
        resource.meta.client.close()
    assert raised.value.report is not None
    assert raised.value.report.written == proxy.writes == len(list(orders.scan_items())) < 2000
