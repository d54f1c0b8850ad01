"""A load that is killed, again and again, loses nothing and writes nothing twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, Resharding, Strategy, Unsharded
from shardkit.strategies import Stage as MoveStage
from tests.support.engines import EngineName
from tests.support.loading import WORKERS, Job, make_orders, put_some, stored, write_orders
from tests.support.platforms import require_fork
from tests.support.proxy import Proxy, Stage

KILLS = 9  # of each of four loads: 36 in all
INTERRUPTIONS = 3
MOST_REQUESTS = 6  # of a run that is not spared
# Enough that no run ends before it is killed, whatever is drawn: a tenth of the lines may be left out.
FEW_KILLS = 2
LINES = (KILLS + 1) * (MOST_REQUESTS + WORKERS) * 25 * 10 // 9

Endpoint = Callable[[EngineName], str]

require_fork()
# A process of its own, forked off one that has imported all and has no threads: it starts in 20 ms.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.loading"])


class Killer:
    """Sends signals to a load, from a moment on that it draws: a number of requests, and a stage; one at each stage.

    Requests that come between that number and the first signal are held, so that the load gets no further than was
    drawn. Those that are held when it is killed are not carried out: nothing of one run comes after the next one's.
    """

    def __init__(self, seed: int, signals: tuple[signal.Signals, ...] = (signal.SIGKILL,)) -> None:
        self._rng = Random(seed)
        self._signals = signals
        self._lock = threading.Lock()
        self._sending: tuple[signal.Signals, ...] = ()
        self._sent = self._requests = self._number = 0
        self._stage: Stage = "came"
        self._released = threading.Event()
        self._process: multiprocessing.process.BaseProcess | None = None

    def start(self, proxy: Proxy, job: Job, *, spared: bool = False, early: float = 0.0) -> int | None:
        """Run a load until it is killed or, ``spared``, ends; gives its exit code.

        ``early`` is how often it is killed, with SIGKILL, at a random time and not at a request.
        """
        rng = self._rng
        process = processes.Process(target=job.run)
        with self._lock:
            self._sending = () if spared else self._signals
            self._sent = self._requests = 0
            self._number = rng.randint(1, MOST_REQUESTS)
            self._stage = rng.choice(["came", "carried out", "answered"])
            self._released.clear()
            self._process = process
            process.start()
        if not spared and rng.random() < early:
            # Before its first request, most likely: while it opens the journal.
            process.join(rng.random() / 4)
            process.kill()
        process.join()
        self._released.set()
        proxy.settle()
        return process.exitcode

    def watch(self, _: int, stage: Stage) -> None:
        """See a request at a stage."""
        came = stage == "came"
        with self._lock:
            self._requests += came
            begins = self._requests >= self._number and stage == self._stage
            if self._sent < len(self._sending) and (self._sent or begins):
                self._send(self._sending[self._sent])
                self._sent += 1
            held = came and bool(self._sending) and not self._sent and self._requests > self._number
            killed = signal.SIGKILL in self._sending
            ends = came and killed and bool(held or self._sent)
        if self._sent and not killed:
            self._released.set()
        if held:
            self._released.wait()
        if ends:
            raise ConnectionAbortedError("its sender was killed")

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


@pytest.mark.parametrize(
    ("strategy", "again", "cursors", "transport"),
    [(RandomSuffix(10), 0.0, 8, "direct"), (CalculatedSuffix("OrderId", 10), 0.1, 1, "client")],
    ids=["random", "calculated"],
)
def test_kill(
    engine_name: EngineName,
    engine_endpoint: Endpoint,
    tmp_path: Path,
    strategy: Strategy,
    again: float,
    cursors: int,
    transport: Literal["client", "direct"],
) -> None:
    """Killed 13 times and resumed: the table equals the source, and what failed is in the dead letters, once.

    Where keys come again, the last write of each is what stays. No more is sent twice than was in flight.
    """
    endpoint = engine_endpoint(engine_name)
    wanted, bad = write_orders(tmp_path / "orders.jsonl", LINES, again=again)
    killer = Killer(LINES)
    with Proxy(endpoint, watch=killer.watch) as proxy:
        job = Job(proxy.endpoint, make_orders(endpoint), strategy, tmp_path, cursors, transport)
        codes = [killer.start(proxy, job, early=0.2) for _ in range(KILLS)]
        assert codes == [-9] * KILLS
        assert killer.start(proxy, job, spared=True) == 0
        sent = proxy.counts.total()
        report = job.run()
        assert proxy.counts.total() == sent, "a load that has ended sends nothing more"
    assert stored(endpoint, job.table, strategy) == wanted
    assert job.dead == bad
    assert (report.items, report.resumed) == (0, LINES)
    assert proxy.writes <= LINES - len(bad) + KILLS * WORKERS * 25


@pytest.mark.parametrize(
    ("stage", "operation", "lines"),
    [("guard", "PutItem", 150), ("switch", "PutItem", 150), ("move", "BatchWriteItem", 600)],
)
def test_kill_while_items_move(
    engine_endpoint: Endpoint, tmp_path: Path, stage: MoveStage, operation: str, lines: int
) -> None:
    """Killed and resumed, a load has written every item, those too that were there; and each is in one place."""
    endpoint = engine_endpoint("dynoxide")
    wanted, _ = write_orders(tmp_path / "orders.jsonl", lines, bad=0.0)
    strategy = Resharding(Unsharded(), CalculatedSuffix("OrderId", 10), stage=stage)
    table = make_orders(endpoint)
    put_some(endpoint, table, tmp_path / "orders.jsonl")
    killer = Killer(lines)
    with Proxy(endpoint, watch=killer.watch, operation=operation) as proxy:
        job = Job(proxy.endpoint, table, strategy, tmp_path)
        codes = [killer.start(proxy, job) for _ in range(FEW_KILLS)]
        assert codes == [-9] * FEW_KILLS
        assert killer.start(proxy, job, spared=True) == 0
        assert job.run().resumed == lines
    assert stored(endpoint, table, strategy) == wanted
    assert job.dead == []


@pytest.mark.parametrize(("again", "transport"), [(0, "client"), (1, "direct")])
def test_ctrl_c(
    engine_name: EngineName,
    engine_endpoint: Endpoint,
    tmp_path: Path,
    again: int,
    transport: Literal["client", "direct"],
) -> None:
    """Interrupted once, a load finishes what is in flight, and nothing is sent again; twice, it ends there and then."""
    endpoint = engine_endpoint(engine_name)
    wanted, bad = write_orders(tmp_path / "orders.jsonl", LINES)
    killer = Killer(again, (signal.SIGINT,) * (1 + again))
    with Proxy(endpoint, watch=killer.watch) as proxy:
        job = Job(proxy.endpoint, make_orders(endpoint), RandomSuffix(10), tmp_path, transport=transport)
        codes = [killer.start(proxy, job) for _ in range(INTERRUPTIONS)]
        assert codes == [1] * INTERRUPTIONS, "each ends in a KeyboardInterrupt"
        assert killer.start(proxy, job, spared=True) == 0
    assert stored(endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert len(wanted) <= proxy.writes <= len(wanted) + again * INTERRUPTIONS * WORKERS * 25
