"""backfill_index: gives the items that a table already has the attribute of a sharded index."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, TypedDict, Unpack

import orjson

from shardkit.bulk.backfill_machine import Backfill, BackfillReport, Positions
from shardkit.bulk.locked_file import LockedFile, check_path
from shardkit.core.checks import check_option_names, check_progress
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError
from shardkit.runtime.runner import AsyncRunner, Runner, runner_of
from shardkit.sharding.backfill import index_of
from shardkit.sharding.indexes import ShardedIndex
from shardkit.sharding.layout import Sharding

RATE = 100.0
"""Units a second, of reads and of writes, unless the caller says otherwise: the table serves others meanwhile."""
_FORMAT = "shardkit_backfill"
_VERSION = 1
_KEEP_SECONDS = 1.0


class BackfillOptions(TypedDict, total=False):
    """The options of :func:`backfill_index`, which documents them."""

    write_units: float | str | None
    read_units: float | None
    verify_only: bool
    journal: str | os.PathLike[str] | None
    progress: Callable[[BackfillReport], object] | None


def backfill_index(table: Any, index: str, **options: Unpack[BackfillOptions]) -> BackfillReport:
    """Give the items that a table already has the attribute of a sharded index, then verify all items.

    Example:
        by_status = CalculatedSuffix("OrderId", shards=10, source="status")
        orders = ShardedTable(table, Unsharded(), indexes={"by-status": by_status})
        report = backfill_index(orders, "by-status", write_units=500)
        report.complete

    First let every writer use ``indexes=``: docs/sharded-indexes.md has the order. Each update has the condition that
    the item is still as it was read, so it undoes no other write. Items that are right already are not written, so you
    can repeat it.

    Args:
        table: A ``ShardedTable`` with ``indexes=``; its ``max_concurrency`` limits the requests in flight.
        index: The name of one of these indexes, with ``attribute=`` or ``source=``.
        **options: The options:

            * ``write_units: float | str | None = 100``: Write units per second that it may consume of the table and of
              each global index; or a share of their throughput, such as ``"20%"``. None: no limit.
            * ``read_units: float | None = 100``: Read units per second. None: no limit.
            * ``verify_only: bool = False``: Only verify, and write nothing.
            * ``journal: str | os.PathLike | None = None``: A file that makes it resumable: pages that were done are not
              read again. It is deleted at the end.
            * ``progress: Callable[[BackfillReport], object] | None = None``: Called after every request, with the
              report so far.

    Returns:
        A report: ``complete``; ``read``, ``written``, ``overtaken`` (a writer was faster), ``failed`` and ``failures``
        of the backfill; ``verified``, ``in_index`` and ``left`` of the verification; ``read_units``, ``write_units``,
        ``requests``, ``throttles``, ``seconds``. If ``complete`` is False, ``left`` items lack the attribute or have a
        wrong one: ``failures`` says why, or a writer does not use ``indexes=`` yet. If ``in_index`` is 0, no item has
        the index's logical key: its name may be misspelt.

    Raises:
        ConfigurationError: An argument is invalid, the index is not sharded or has its suffix in place, the journal is
            of another backfill, or no item has the source although items have the index's attribute.
        ShardkitError: The service refused all requests for a minute.

    Cost: a Scan of the table, eventually consistent, and a second one, strongly consistent, to verify: together 1.5
        read units per 4 KB. One UpdateItem for each item that needs it: the write units of the item, and of its entry
        in the index. Memory: one page for each of ``max_concurrency`` segments.
    IAM: ``dynamodb:DescribeTable``, ``dynamodb:Scan``, ``dynamodb:UpdateItem``.
    """
    runner = runner_of(table)
    with Backfilling(runner, runner.run(runner.programs.known()), index, options) as backfilling:
        for machine in backfilling.passes():
            driver = runner.driver(machine)
            try:
                while not machine.ended:
                    driver.run()
                    backfilling.tell(machine)
            finally:
                driver.close()
    return backfilling.report


class Backfilling:
    """A backfill under way: its passes, one after the other, and its journal, which it writes and closes."""

    def __init__(self, runner: Runner | AsyncRunner, sharding: Sharding, index: str, options: BackfillOptions) -> None:
        check_option_names(options, list(BackfillOptions.__annotations__), "a backfill")
        check_progress(options.get("progress"))
        self._runner = runner
        self._sharding = sharding
        self._index = index_of(sharding, index)
        only, path = options.get("verify_only", False), options.get("journal")
        if path is not None:
            check_path("journal", path)
        self._options = options
        self._progress = options.get("progress")
        self.report = BackfillReport(index)
        self._machines = [self._machine(runner.concurrency, {}, verify=True)]
        self._journal = None if path is None or only else _Journal(path, sharding, self._index, runner.concurrency)
        if not only:
            kept = self._journal
            segments, places = (runner.concurrency, {}) if kept is None else (kept.segments, kept.positions)
            self._machines.insert(0, self._machine(segments, places, verify=False))

    def passes(self) -> Iterator[Backfill]:
        """Yield the machines to run to their end."""
        for machine in self._machines:
            machine.report = self.report
            yield machine
        self.report = replace(self.report, complete=not self.report.left)
        if self._journal is not None:
            self._journal.remove()

    def _machine(self, segments: int, places: Positions, *, verify: bool) -> Backfill:
        return Backfill(
            self._sharding,
            self._index,
            workers=self._runner.concurrency,
            draw=self._runner.programs.draw,
            segments=segments,
            positions=places,
            write_units=self._options.get("write_units", RATE),
            read_units=self._options.get("read_units", RATE),
            verify=verify,
        )

    def tell(self, machine: Backfill) -> None:
        """Record and report what a machine has done."""
        self.report = machine.report
        if self._journal is not None and not machine.verify:
            self._journal.keep(machine.positions)
        if self._progress is not None:
            self._progress(machine.report)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal is not None:
            self._journal.close()


class _Journal:
    """Where the segments of a backfill go on, on disk: one JSON document, replaced atomically once a second."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        sharding: Sharding,
        index: ShardedIndex,
        segments: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._header: Mapping[str, Any] = {
            _FORMAT: _VERSION,
            "table": sharding.table,
            "keys": list(sharding.key_names),
            "table_strategy": sharding.strategy.to_dict(),
            "index": index.name,
            "strategy": index.strategy.to_dict(),
        }
        self.segments = segments
        self.positions: Mapping[int, WireItem | None] = {}
        self._file = LockedFile(path, "journal")
        try:
            self._restore(self._file.read())
            self._write()
        except BaseException:
            self._file.close()
            raise

    def keep(self, positions: Positions) -> None:
        self.positions = dict(positions)
        if self._clock() - self._kept >= _KEEP_SECONDS:
            self._write()

    def close(self) -> None:
        if not self._file.closed:
            try:
                self._write()
            finally:
                self._file.close()

    def remove(self) -> None:
        self._file.path.unlink()
        self._file.close()

    def _write(self) -> None:
        places = {str(segment): last for segment, last in self.positions.items()}
        self._file.replace([encode({**self._header, "segments": self.segments, "positions": places}), b"\n"])
        self._kept = self._clock()

    def _restore(self, content: bytes) -> None:
        if not content:
            return
        try:
            kept = orjson.loads(content)
        except ValueError:
            kept = None
        if not isinstance(kept, dict) or kept.get(_FORMAT) != _VERSION or not _is_whole(kept):
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is not the journal of a backfill that this version of shardkit can "
                "read, and is left unchanged; give another path"
            )
        header = orjson.loads(encode(self._header))
        changed = [name for name, value in header.items() if kept.get(name) != value]
        if changed:
            raise ConfigurationError(
                f"journal: {str(self._file.path)!r} is of another backfill ({', '.join(changed)} differ); resume with "
                "the same arguments, or give another path"
            )
        self.segments = kept["segments"]
        self.positions = {int(segment): last for segment, last in kept["positions"].items()}


def _is_whole(kept: Mapping[str, Any]) -> bool:
    """Return whether a journal has its segments, and no position of others."""
    segments, positions = kept.get("segments"), kept.get("positions")
    return (
        type(segments) is int
        and segments > 0
        and isinstance(positions, dict)
        and all(segment.isdecimal() and int(segment) < segments for segment in positions)
        and all(last is None or isinstance(last, dict) for last in positions.values())
    )
