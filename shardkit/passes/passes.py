"""Passes over a table, one after the other: how they are run, journaled and reported."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from math import inf
from typing import Any, Generic, Self

import orjson

from shardkit.bulk.locked_file import LockedFile, check_path
from shardkit.core.checks import check_option_names, check_progress
from shardkit.core.checksum import with_checksum, without_checksum
from shardkit.core.machine import Machine
from shardkit.dynamodb.body import encode
from shardkit.errors import ConfigurationError
from shardkit.passes.table_pass import PassOptions, R, TablePass
from shardkit.runtime.processes import Processes
from shardkit.runtime.runner import AsyncRunner, Runner
from shardkit.sharding.leases import Held, Leased

RATE = 100.0
"""Units a second, of reads and of writes, unless the caller says otherwise: the table serves others meanwhile."""
_VERSION = 1
_KEEP_SECONDS = 1.0


class Passes(Generic[R]):
    """Passes over a table under way, and their journal, which they write and close.

    ``make`` makes the machine of a pass; ``kinds`` says of each pass whether it only verifies. The first one is
    resumed from the journal, if there is one, whose header names what must not have changed. ``held`` has the leases
    under which the requests go, if there is a shard map; ``begin`` has further options with which passes begin.
    """

    def __init__(
        self,
        runner: Runner | AsyncRunner,
        what: str,
        make: Callable[[PassOptions], TablePass[R]],
        options: Mapping[str, Any],
        *,
        known: Iterable[str],
        kinds: Sequence[bool],
        header: Mapping[str, Any] | None = None,
        held: Held | None = None,
        begin: Mapping[str, Any] | None = None,
    ) -> None:
        self._held = held
        check_option_names(options, [*known], f"the {what}")
        self._progress = options.get("progress")
        check_progress(self._progress)
        path = options.get("journal")
        if path is not None:
            check_path("journal", path)
        given: PassOptions = {
            "workers": runner.concurrency,
            "draw": runner.programs.draw,
            "segments": runner.concurrency,
            "write_units": options.get("write_units", RATE),
            "read_units": options.get("read_units", RATE),
            **(begin or {}),  # type: ignore[typeddict-item]
        }
        self._journal = None if path is None or kinds[0] else _Journal(path, what, header or {}, given)
        first = given if self._journal is None else self._journal.given
        try:
            self._machines = [make({**(given if verify else first), "verify": verify}) for verify in kinds]
        except BaseException:
            self.__exit__()
            raise
        self.report = self._machines[0].report
        if self._journal is not None:
            self._journal.keep(self._machines[0])

    def __iter__(self) -> Iterator[TablePass[R]]:
        """Yield the machines to run to their end."""
        for machine in self._machines:
            machine.report = self.report
            yield machine
        self.report = self._machines[-1].concluded()
        if self._journal is not None:
            self._journal.remove()

    def leased(self, machine: TablePass[R]) -> Machine[None]:
        """Return a machine to run: each of its requests goes under the leases."""
        return machine if self._held is None else Leased(machine, self._held)

    def tell(self, machine: TablePass[R]) -> None:
        """Record and report what a machine has done."""
        self.report = machine.report
        if self._journal is not None and not machine.verify:
            self._journal.keep(machine)
        if self._progress is not None:
            self._progress(machine.report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal is not None:
            self._journal.close()


def run(runner: Runner, passes: Passes[R], second: Runner | None = None, *, through: Processes | None = None) -> R:
    """Run passes to their end, and return the report; ``second``: of the second table, ``through``: what sends."""
    with passes, through or nullcontext():
        for machine in passes:
            driver = runner.driver(passes.leased(machine), second=second, through=through)
            try:
                while not machine.ended:
                    driver.run()
                    passes.tell(machine)
            finally:
                driver.close()
    return passes.report


async def run_async(runner: AsyncRunner, passes: Passes[R], second: AsyncRunner | None = None) -> R:
    """Run passes to their end, and return the report; ``second``: of the second table."""
    with passes:
        for machine in passes:
            driver = runner.driver(passes.leased(machine), second=second)
            try:
                while not machine.ended:
                    await driver.run()
                    passes.tell(machine)
            finally:
                await driver.close()
    return passes.report


class _Journal:
    """Where the segments of a pass go on, on disk: one JSON document, replaced atomically once a second.

    ``header`` is what must be the same when it is resumed, ``what`` the name of its kind, ``given`` the options with
    which it begins or goes on. The last member is a checksum of the others: a damaged position would be another place
    of the table, and what lies between be left out.
    """

    def __init__(self, path: str | os.PathLike[str], what: str, header: Mapping[str, Any], given: PassOptions) -> None:
        self._what = what
        self._header: Mapping[str, Any] = {f"shardkit_{what}": _VERSION, **header}
        self.given = given
        self._machine: TablePass[Any] | None = None
        self._kept = -inf
        self._file = LockedFile(path, "journal")
        try:
            self._restore(self._file.read())
        except BaseException:
            self._file.close()
            raise

    def keep(self, machine: TablePass[Any]) -> None:
        """Keep where a pass is, once a second and at the end."""
        self._machine = machine
        if time.monotonic() - self._kept >= _KEEP_SECONDS:
            self._write()

    def close(self) -> None:
        if not self._file.closed:
            with closing(self._file):
                self._write()

    def remove(self) -> None:
        self._file.path.unlink()
        self._file.close()

    def _write(self) -> None:
        if (machine := self._machine) is None:  # the pass was refused
            if not self._file.size:
                self._file.path.unlink()
        else:
            places = {str(segment): last for segment, last in machine.positions.items()}
            state = {"state": machine.state} if machine.state else {}
            document = encode({**self._header, "segments": self.given["segments"], "positions": places, **state})
            self._file.replace([with_checksum(document)])
            self._kept = time.monotonic()

    def _restore(self, content: bytes) -> None:
        if not content:
            return
        try:
            kept = orjson.loads(without_checksum(content))
        except ValueError:
            kept = {}
        if kept.get(f"shardkit_{self._what}") != _VERSION:
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is damaged, or not a journal of kind {self._what!r} that this "
                f"version of shardkit can read, and is left unchanged; give another path, and the {self._what} begins "
                "anew"
            )
        header = orjson.loads(encode(self._header))
        changed = [name for name, value in header.items() if kept.get(name) != value]
        if changed:
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is of another {self._what} ({', '.join(changed)} differ); resume "
                "with the same arguments, or give another path"
            )
        positions = {int(segment): last for segment, last in kept["positions"].items()}
        state = kept.get("state", self.given.get("state", {}))
        self.given = {**self.given, "segments": kept["segments"], "positions": positions, "state": state}
