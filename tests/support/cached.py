"""The steps of a cache's programs, carried out one at a time: so that tests choose what happens in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from shardkit.cache.entries import MARK, Entry
from shardkit.cache.options import CacheOptions
from shardkit.cache.steps import AskTable, CacheProgram, Change, Count, Join, Later, Look
from shardkit.cache.table_cache import TableCache, WriteLog

Answer = Callable[[AskTable], Any]
"""Answers an AskTable, or raises what it raises."""


class Event:
    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True


class FakeStore:
    """A store of several processes, or of one, in a dict; ``fails``: as one that cannot be reached."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.contents: dict[bytes, bytes] = {}
        self.fails = False
        self._marks = 0

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None if self.fails else self.contents.get(key) for key in keys]

    def change(self, change: Change) -> bool:
        if self.fails:
            return False
        for key, content, _, seen in change.put:
            there = self.contents.get(key, b"")
            if change.allowed(key) and (not self.shared or there in {b"", seen}):
                self.contents[key] = content
        for key, content, _ in change.replace:
            if key in self.contents:
                self.contents[key] = content
        for key in change.drop:
            if self.shared:
                self._marks += 1
                self.contents[key] = MARK + b"%d" % self._marks
            else:
                self.contents.pop(key, None)
        if change.clear is not None:
            self.contents.clear()
        return True


class Actor:
    """A program that is run step by step: ``go`` carries out one step, or hands its answer over."""

    def __init__(self, program: CacheProgram[Any], store: FakeStore, now: Callable[[], float], load: Answer) -> None:
        self.program, self.store, self.now, self.load = program, store, now, load
        self.later: list[CacheProgram[Any]] = []
        self.counted: list[Any] = []
        self.result: Any = None
        self.error: Exception | None = None
        self.done = False
        self._step: Any = None
        self._answer: Any = None
        self._resume(program.__next__)

    def go(self) -> None:
        """Carry out the step that the program is at; hand over the answer the next time."""
        if self._answer is not None:
            resume, self._answer = self._answer, None
            self._resume(resume)
            return
        try:
            answer = self._do(self._step)
        except Exception as error:  # noqa: BLE001 - the program's
            thrown = error
            self._answer = lambda: self.program.throw(thrown)
        else:
            self._answer = lambda: self.program.send(answer)

    @property
    def waits(self) -> bool:
        return self._answer is None and isinstance(self._step, Join) and not self._step.waiter.is_set

    def run(self) -> Any:
        while not self.done:
            assert not self.waits
            self.go()
        if self.error is not None:
            raise self.error
        return self.result

    def _do(self, step: Any) -> Any:
        if isinstance(step, Look):
            return self.now(), self.store.get(step.keys)
        if isinstance(step, Change):
            return self.store.change(step)
        if isinstance(step, AskTable):
            return self.load(step)
        if isinstance(step, Later):
            self.later.append(step.program)
        elif isinstance(step, Count):
            self.counted += step.lookups
        return None

    def _resume(self, resume: Callable[[], Any]) -> None:
        try:
            self._step = resume()
        except StopIteration as stop:
            self.done, self.result = True, stop.value
        except Exception as error:  # noqa: BLE001 - the program's
            self.done, self.error = True, error


def table_cache(*, shared: bool = False, **options: Any) -> TableCache:
    given = CacheOptions(**{"ttl": 1000.0, "absent_ttl": 1000.0, "jitter": 0.0, "max_bytes": 1, **options})
    return TableCache(given, not shared, lambda: 0.5, Event, WriteLog(nullcontext()), b"all")


def loader(entry_of: Callable[[Any], Entry | None]) -> Any:
    """A Loader that asks for its places, and makes entries of the answers."""

    def load(places: Sequence[int], options: Mapping[str, Any]) -> CacheProgram[list[Entry | None]]:
        answers = yield AskTable("get", {"places": [*places], **options})
        return [entry_of(answer) for answer in answers]

    return load
