"""Runs a history: processes on one table, whose map an admin changes, under kills, stops and lost requests."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from random import Random
from typing import Any

from shardkit import CalculatedSuffix, RangeSuffix, ShardedTable, ShardMap, ShardMapAdmin, Strategy, Unsharded
from shardkit.sharding.shard_map import MAP
from tests.histories.judge import STAGES, History, Judged
from tests.histories.linearizable import ANY
from tests.histories.processes import (
    ADMIN_RATE,
    AGE_SECONDS,
    LEASE_SECONDS,
    PARTITIONS,
    REGISTERS,
    SESSION,
    STEADY,
    TTL_SECONDS,
    WORKERS,
    Job,
    item,
    placed,
)
from tests.histories.proxy import Proxy
from tests.histories.records import Recorder
from tests.support.tables import GlobalIndex, LocalIndex, make_table
from tests.support.wire import listening

MOVES: list[tuple[Strategy, Strategy]] = [
    (Unsharded(), CalculatedSuffix("sk", 3)),
    (CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 4)),  # half of the items stay
    (CalculatedSuffix("sk", 3), CalculatedSuffix("sk", 4)),  # shards of both strategies
    (CalculatedSuffix("sk", 3), RangeSuffix("sk", ["m", "p08", "r2"])),
]
MOST_SECONDS = 60.0  # that a mover may take, at the end of a move

processes = multiprocessing.get_context("fork")


@dataclass
class Run:
    """One history. ``stages``: those that the table goes through, from the first to the last."""

    endpoint: str
    folder: Path
    seed: int
    trusted: bool
    stages: Sequence[str] = STAGES
    fault: str = ""
    did: Counter[str] = field(default_factory=Counter)

    def run(self) -> Judged:
        self.folder.mkdir(parents=True)
        self._rng, self._next = Random(self.seed), 0.0
        self._old, self._new = MOVES[self.seed % len(MOVES)]
        self._begin()
        self._running: dict[str, Any] = {}
        self._strange: list[str] = []
        self._stopped: dict[str, tuple[Any, float]] = {}
        self._stop = RawValue("b", 0)
        self._ahead = {kind: RawValue("d", 0.0) for kind in (*WORKERS, "load", "mover")}
        try:
            self._go_through()
        finally:
            self._finish()
        history = History(self.folder, lease_seconds=LEASE_SECONDS, ttl_seconds=TTL_SECONDS)
        judged = history.judge()
        judged.problems += self._strange
        return judged

    def _begin(self) -> None:
        """Make the table, with its map in the first stage and its items at their old places; start the proxy."""
        self._resource = SESSION.resource("dynamodb", endpoint_url=self.endpoint)
        self._table = make_table(
            self._resource,
            sort_key=("sk", "S"),
            local_indexes=[LocalIndex("by-l", ("l", "S"))],
            global_indexes=[GlobalIndex("by-g", ("g", "S"), ("l", "S"))],
        )
        recorder = Recorder(self.folder / "seed.jsonl", "seed")
        keys = [(partition, sort) for partition in PARTITIONS for sort in (*STEADY, *REGISTERS)]
        number = recorder.begin("puts", keys, "seed")
        with ShardedTable(self._table, self._old).batch_writer() as batch:
            for key in keys:
                batch.put_item(Item=item(key, "seed"))
        recorder.end(number, ANY)
        self._jump = 0.0
        self._admin = ShardMapAdmin(self._table, clock=lambda: time.monotonic() * ADMIN_RATE + self._jump)
        self._admin.create(self._old)
        self._told = Recorder(self.folder / "admin.jsonl", "admin")
        for stage in STAGES[1 : STAGES.index(self.stages[0]) + 1]:
            self._jump += 1000.0  # nobody has read the map yet
            self._advance(stage)

        ours, theirs = processes.Pipe()
        self._proxy, self._proxy_pipe = processes.Process(target=self._serve, args=(theirs,), daemon=True), ours
        self._proxy.start()
        self._proxied: str = ours.recv()

    def _serve(self, pipe: Any) -> None:
        with listening(Proxy(self.endpoint, self.folder / "proxy.log", self.seed, AGE_SECONDS).handle) as url:
            pipe.send(url)
            pipe.recv()
            time.sleep(1.2)  # what is late comes

    # Processes.

    def _start(self, kind: str) -> None:
        self.did["processes"] += 1
        job = Job(
            name=f"{kind}#{self.did['processes']}",
            kind=kind,
            table=self._table.name,
            endpoint=self._proxied,
            folder=self.folder,
            seed=self.seed,
            fault=self.fault,
            trusted=self.trusted,
            stop=self._stop,
            ahead=self._ahead[kind],
        )
        process = processes.Process(target=job.run, daemon=True)
        process.start()
        self._running[kind] = process

    def _attack(self, spared: str = "") -> None:
        """Kill or stop a process, or set its clock; and start anew what was killed."""
        now = time.monotonic()
        for kind, (_, until) in [*self._stopped.items()]:
            if now >= until:
                self._continued(kind)
        for kind in [*self._running]:
            if not self._running[kind].is_alive() and kind not in self._stopped and kind != "mover":
                self._expect(kind, -signal.SIGKILL)
                self._start(kind)
        if now < self._next:
            return
        self._next = now + self._rng.uniform(0.1, 0.5)
        alive = [kind for kind, process in self._running.items() if process.is_alive()]
        alive = [kind for kind in alive if kind not in self._stopped and kind != spared]
        if not alive:
            return
        alive += [kind for kind in alive if kind in {"load", "mover"}] * 2  # these three times as often
        kind = self._rng.choice(alive)
        process = self._running[kind]
        what = self._rng.choices(["kill", "stop", "clock"], [3, 4, 3])[0]
        self.did[what] += 1
        if what == "kill":
            process.kill()
            process.join()
        elif what == "stop":
            os.kill(process.pid, signal.SIGSTOP)
            self._stopped[kind] = process, now + self._rng.uniform(0.3, 3.0) * LEASE_SECONDS
        else:
            self._ahead[kind].value = self._rng.choice([-30.0, -0.5, 0.0, 0.3, 30.0])

    def _expect(self, kind: str, *statuses: int) -> None:
        if (status := self._running[kind].exitcode) not in statuses:
            self._strange.append(f"{kind}: ended by itself, with exit status {status}")

    # Stages.

    def _go_through(self) -> None:
        self._next = time.monotonic() + 0.5
        for kind in (*WORKERS, "load"):
            self._start(kind)
        for now, then in pairwise([*self.stages, ""]):
            self._last(now)
            if then:
                self._advance(then)

    def _last(self, stage: str) -> None:
        """Let a stage be for as long as it must."""
        least = time.monotonic() + LEASE_SECONDS + AGE_SECONDS
        while time.monotonic() < least or self._admin.wait() > 0:
            self._attack()
            if stage == "move" and not self._is_moving() and time.monotonic() > least - AGE_SECONDS:
                self._start("mover")
            time.sleep(0.02)
        if stage != "move" or stage == self.stages[-1]:
            return
        # All processes are in the stage: now what a mover does is the last of it.
        until = time.monotonic() + MOST_SECONDS
        if self._is_moving():
            self._continued("mover").kill()
            self._running["mover"].join()
        self._start("mover")
        while self._running["mover"].exitcode != 0:
            assert time.monotonic() < until, f"the mover does not end in {MOST_SECONDS:.0f} seconds"
            self._attack(spared="mover")
            if not self._is_moving() and self._running["mover"].exitcode != 0:
                self._start("mover")
            time.sleep(0.01)

    def _is_moving(self) -> bool:
        return "mover" in self._running and self._running["mover"].is_alive()

    def _advance(self, stage: str) -> None:
        state = self._admin.read()
        if stage == "guard":
            state = self._admin.start(self._new)
        else:
            state = self._admin.finish() if stage == "new" else self._admin.advance()
        assert state.stage == stage, state
        self._told.write({"stage": stage, "t": time.monotonic_ns()})
        self.did["stages"] += 1

    # The end.

    def _continued(self, kind: str) -> Any:
        if kind in self._stopped:
            process, _ = self._stopped.pop(kind)
            if process.is_alive():  # it may have ended just before it was stopped
                os.kill(process.pid, signal.SIGCONT)
        return self._running[kind]

    def _finish(self) -> None:
        """Stop all, and read what is there."""
        self._stop.value = 1
        for kind, process in self._running.items():
            self._continued(kind)
            if kind in {"load", "mover"}:
                process.kill()  # it may take long
            process.join(10)
            if process.is_alive():
                self._strange.append(f"{kind}: does not end")
                process.kill()
                process.join()
            elif kind != "mover":
                self._expect(kind, 0, -signal.SIGKILL)
        self._proxy_pipe.send(None)
        self._proxy.join()
        self._read_all()
        self._table.delete()
        self._resource.meta.client.close()

    def _read_all(self) -> None:
        """Read the table as it is stored: one item of each key, none of them with a mark, once it is in ``new``."""
        recorder = Recorder(self.folder / "end.jsonl", "end")
        number = recorder.begin("scan")
        if self._admin.read().stage not in {"old", "new"}:
            table: Any = ShardedTable(self._table, ShardMap())
            recorder.end(number, [placed(one) for one in table.scan_items(ConsistentRead=True)])
            return
        pages = SESSION.client("dynamodb", endpoint_url=self.endpoint).get_paginator("scan")
        stored = pages.paginate(TableName=self._table.name, ConsistentRead=True).build_full_result()["Items"]
        items = [{name: next(iter(value.values())) for name, value in one.items()} for one in stored]
        found = [one for one in items if one["pk"] != MAP]
        for one in found:
            one["pk"] = one["pk"].partition(".")[0]
            if "n" in one:
                one["n"] = int(one["n"])
        recorder.end(number, [placed(one) for one in found])
