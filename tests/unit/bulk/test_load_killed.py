"""A load that is killed at any moment and resumed, with its journal and dead letters on disk and a table in memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, Strategy, Unsharded
from shardkit.bulk.journal import Journal
from shardkit.bulk.load import SourceLoad
from shardkit.bulk.load_machine import Duplicates
from shardkit.core.machine import Done, Send, Wait
from tests.support.fakes import Fault, Service, sharding

FAULTS: list[Fault] = ["none", "throttle", "unprocessed", "500", "lost", "500 after", "lost after"]
STRATEGIES: list[Strategy] = [Unsharded(), CalculatedSuffix("sk", shards=3)]
KILLS = 8


class KilledError(Exception):
    """What ends a run, at the moment that was chosen."""


@dataclass
class World:
    """What outlasts a run: the service, the files in ``folder``, and how many kills are left.

    ``failed`` is what the last report says of the whole load.
    """

    service: Service
    folder: Path
    rng: Random
    kills: int
    written: set[int]
    runs: int = 0
    failed: int = 0

    def moment(self) -> None:
        """Let the process be killed here, or not."""
        if self.kills and self.rng.random() < 0.1:
            self.kills -= 1
            raise KilledError

    def answer(self, send: Send, now: float) -> Any:
        """Carry out a request, as far as its fault lets it, and note which items were written."""
        answer = self.service.answer(send, now)
        self.written |= {int(item["n"]["N"]) for item in self.service.items.values()}
        return answer

    def run(self, items: list[Any], strategy: Strategy, workers: int, **options: Any) -> bool:
        """Load until the end or a kill; whether it came to its end."""
        self.runs += 1
        record = Journal.record

        def recorded(journal: Journal, places: Any, **failed: bool) -> None:
            self.moment()  # with the dead letters written, and the journal not
            record(journal, places, **failed)
            self.moment()

        files: Any = {
            "journal": self.folder / "journal",
            "dead_letters": self.folder / "dead",
            "on_error": "collect",
            **options,
        }
        under_way: list[Send] = []
        with SourceLoad(sharding(strategy), items, files, workers=workers, draw=self.rng.random) as source_load:
            try:
                with patch.object(Journal, "record", recorded):
                    self._carry(source_load, under_way)
            except KilledError:
                # What is in flight may arrive, or not. The files are what they are: what closing adds is not there.
                for send in under_way:
                    if self.rng.random() < 0.5:
                        self.answer(send, 0.0)
                new = self.folder.with_name(f"run-{self.runs}")
                shutil.copytree(self.folder, new)
                self.folder = new
                return False
        self.failed = source_load.machine.report.failed + source_load.machine.report.failed_before
        return source_load.machine.fatal is None

    def _carry(self, source_load: SourceLoad, under_way: list[Send]) -> None:
        load, records, now = source_load.machine, source_load.records(), 0.0
        while not load.ended:
            if load.wants:
                source_load.fill(records)
            self.moment()
            step = load.next(now)
            if isinstance(step, Send):
                under_way.append(step)
            elif isinstance(step, Done):
                self.moment()
                source_load.keep()
            elif under_way:
                send = under_way.pop(self.rng.randrange(len(under_way)))
                answer = self.answer(send, now)
                self.moment()
                now += 0.001
                load.receive(send, answer, now)
            else:
                assert isinstance(step, Wait)
                assert step.until is not None
                now = max(now, step.until)


@pytest.mark.long_search
@settings(max_examples=settings().max_examples * 2 // 3)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["good"] * 6 + ["refused"])), min_size=10, max_size=60
    ),
    duplicates=st.sampled_from(["error", "first", "last"]),
    strategy=st.sampled_from(STRATEGIES),
    faults=st.lists(st.sampled_from(FAULTS), max_size=8),
    workers=st.integers(1, 3),
    window=st.integers(1, 30),
    seed=st.integers(0, 2**32),
)
def test_nothing_is_lost_and_nothing_wrongly_written(
    rows: list[tuple[str, str]],
    duplicates: Duplicates,
    strategy: Strategy,
    faults: list[Fault],
    workers: int,
    window: int,
    seed: int,
) -> None:
    """Each item is written, left out for another one of its key, or in the dead letters, once, and then never stored.

    Of those of a key that are not in the dead letters, the last that was not left out is what is stored.
    """
    items = [{"pk": "U1", "sk": key, "n": number, "kind": kind} for number, (key, kind) in enumerate(rows)]
    service = Service(faults, refuses=lambda item: item["kind"] == {"S": "refused"})
    # A kill loses nothing that was written: only lost power would, for which the journal has tests of its own.
    with tempfile.TemporaryDirectory() as name, patch.object(os, "fsync"):
        folder = Path(name) / "run-0"
        folder.mkdir()
        world = World(service, folder, Random(seed), KILLS, set())
        while not world.run(items, strategy, workers, window=window, duplicates=duplicates):
            assert world.runs <= KILLS + len(faults)
        letters = [orjson.loads(line) for line in (world.folder / "dead").read_bytes().splitlines()]

    dead = Counter(letter["at"][1] for letter in letters)
    assert world.failed == len(letters)
    assert set(dead.values()) <= {1}
    assert all(int(letter["Item"]["n"]["N"]) == letter["at"][1] for letter in letters)
    stored = {item["sk"]["S"]: int(item["n"]["N"]) for item in service.items.values()}
    assert not stored.keys() & {rows[number][0] for number in dead if stored.get(rows[number][0]) == number}
    for key in {key for key, _ in rows}:
        left = [number for number, row in enumerate(rows) if row[0] == key and number not in dead]
        good = [number for number in left if rows[number][1] == "good"]
        if duplicates == "error":
            assert stored.get(key) == max(left, default=None)
            assert set(left) <= world.written
            assert len(left) == len(good)
        elif any(kind == "refused" for one, kind in rows if one == key):
            assert stored.get(key) in {None, *good}
        elif duplicates == "last":
            assert stored[key] == max(good)
        else:
            assert stored[key] in good
