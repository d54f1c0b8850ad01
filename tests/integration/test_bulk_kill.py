"""A load that is killed, again and again, loses nothing and writes nothing twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, Strategy
from tests.engines import EngineName
from tests.loading import WORKERS, Job, make_orders, stored, write_orders
from tests.proxy import Proxy, Stage

KILLS = 13  # of each of four loads: 52 in all
LINES = 3000
INTERRUPTIONS = 3

Endpoint = Callable[[EngineName], str]

# A process of its own, forked off one that has imported all and has no threads: it starts in 20 ms.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.loading"])


class Killer:
    """Sends signals to a load, when the proxy has come to a moment that it draws."""

    def __init__(self, seed: int, signals: tuple[int, ...] = (signal.SIGKILL,)) -> None:
        self._rng = Random(seed)
        self._signals = signals
        self._lock = threading.Lock()
        self._requests = 0
        self.process: multiprocessing.process.BaseProcess | None = None

    def start(self, job: Job, *, spared: bool = False, early: float = 0.0) -> int | None:
        """Run a load until it is killed or, ``spared``, ends; gives its exit code.

        ``early`` is how often it is killed, with SIGKILL, at a random time and not at a request.
        """
        rng = self._rng
        process = processes.Process(target=job.run)
        self._number = 0 if spared else rng.randint(1, 8)
        self._stage: Stage = rng.choice(["came", "carried out", "answered"])
        self._delay = rng.choice([0.0, rng.random() / 200])
        with self._lock:
            self._requests = 0
            self.process = process
            process.start()
        if not spared and rng.random() < early:
            # Before its first request, most likely: while it opens the journal.
            process.join(rng.random() / 4)
            process.kill()
        process.join()
        return process.exitcode

    def watch(self, _: int, stage: Stage) -> None:
        """See a request at a stage."""
        with self._lock:
            process = self.process
            self._requests += stage == "came"
            its_time = 0 < self._number <= self._requests and stage == self._stage
            if its_time:
                self._number = 0
        if its_time and process is not None and process.pid is not None:
            threading.Event().wait(self._delay)
            for number in self._signals:
                os.kill(process.pid, number)
                threading.Event().wait(self._delay)


@pytest.mark.parametrize(
    ("strategy", "again", "cursors"),
    [(RandomSuffix(10), 0.0, 8), (CalculatedSuffix("OrderId", 10), 0.1, 1)],
    ids=["random", "calculated"],
)
def test_kill(
    engine_name: EngineName,
    engine_endpoint: Endpoint,
    tmp_path: Path,
    strategy: Strategy,
    again: float,
    cursors: int,
) -> None:
    """Killed 13 times and resumed: the table equals the source, and what failed is in the dead letters, once.

    Where keys come again, the last write of each is what stays. No more is sent twice than was in flight.
    """
    endpoint = engine_endpoint(engine_name)
    wanted, bad = write_orders(tmp_path / "orders.jsonl", LINES, again=again)
    killer = Killer(LINES)
    with Proxy(endpoint, watch=killer.watch) as proxy:
        job = Job(proxy.endpoint, make_orders(endpoint), strategy, tmp_path, cursors)
        codes = [killer.start(job, early=0.2) for _ in range(KILLS)]
        assert codes == [-9] * KILLS
        assert killer.start(job, spared=True) == 0
        sent = proxy.counts.total()
        report = job.run()
        assert proxy.counts.total() == sent, "a load that has ended sends nothing more"
    assert stored(endpoint, job.table, strategy) == wanted
    assert job.dead == bad
    assert (report.items, report.resumed) == (0, LINES)
    assert proxy.writes <= LINES - len(bad) + KILLS * WORKERS * 25


@pytest.mark.parametrize("again", [0, 1])
def test_ctrl_c(engine_name: EngineName, engine_endpoint: Endpoint, tmp_path: Path, again: int) -> None:
    """Interrupted once, a load finishes what is in flight, but for the one answer that it was just reading.

    Interrupted twice, it ends there and then.
    """
    endpoint = engine_endpoint(engine_name)
    wanted, bad = write_orders(tmp_path / "orders.jsonl", 1000)
    killer = Killer(again, (signal.SIGINT,) * (1 + again))
    with Proxy(endpoint, watch=killer.watch) as proxy:
        job = Job(proxy.endpoint, make_orders(endpoint), RandomSuffix(10), tmp_path)
        codes = [killer.start(job) for _ in range(INTERRUPTIONS)]
        assert codes == [1] * INTERRUPTIONS, "each ends in a KeyboardInterrupt"
        assert killer.start(job, spared=True) == 0
    assert stored(endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert proxy.writes <= len(wanted) + INTERRUPTIONS * 25 * (WORKERS if again else 1)
