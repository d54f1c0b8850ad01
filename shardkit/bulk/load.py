"""bulk_load and streaming_bulk."""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, Self, get_args

from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.journal import Journal
from shardkit.bulk.load_machine import (
    WINDOW,
    Duplicates,
    Load,
    check_choice,
    check_load,
    interrupted,
    log_end,
    raise_failures,
)
from shardkit.bulk.report import BulkReport, BulkResult
from shardkit.bulk.sources.base import BadRecord, Item, Place, Record, Source
from shardkit.bulk.sources.opening import as_source
from shardkit.core.checks import check_count, check_side_by_side
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.interrupts import Interruptions
from shardkit.runtime.processes import Connect, Processes
from shardkit.runtime.runner import Runner, runner_of
from shardkit.sharding.layout import Sharding

__all__ = ["Loading", "OnError", "Options", "Path", "Progress", "bulk_load", "check_items", "streaming_bulk"]


def streaming_bulk(
    table: Any,
    items: Iterable[Item] | Source,
    *,
    workers: int | None = None,
    processes: int | None = None,
    connect: Connect | None = None,
    window: int = WINDOW,
    write_units: float | str | None = None,
    on_error: OnError = "raise",
    max_failures: int | None = None,
    duplicates: Duplicates = "last",
    journal: Path | None = None,
    dead_letters: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[BulkResult]:
    """Write items, interleaved over their partition keys, and yield one result an item as they are settled.

    Example::

        for result in streaming_bulk(orders, items, on_error="collect"):
            if not result.ok:
                print(result.place, result.error)

    Args:
        table: A ``ShardedTable``, or a boto3 ``Table`` (whose keys are written as they are).
        items: The items, each a mapping with its logical key, or a source of them (``open_source``). It is read as
            there is room.
        workers: Batches on their way at once, of a ``ShardedTable`` at most its ``max_concurrency``; the client's
            ``max_pool_connections`` if not given. At most 1,000. With ``processes``, over all of them, and all three
            for each.
        processes: Processes that send the requests, at most 256, each with a client of its own, so that a load uses
            more than one core. The rest, and all that is promised, stays in this one. Call it under
            ``if __name__ == "__main__":``.
        connect: Makes the client (or resource, or Table) of each process: a function without arguments at the top level
            of a module. If not given, one with the region, endpoint and configuration of the table's client, and with
            the credentials that boto3 finds by itself. What else the client was given in code (credentials, event
            handlers) does not come along; a ``CapacityMeter`` on it sees all requests.
        window: Items that wait to be interleaved, at most 10,000,000; the order is the guide's exactly where it holds
            the data.
        write_units: Write units a second that the load may take of the table and of each global index, or a share of
            their provisioned (or warm) throughput, ``"80%"``, which is asked for again every minute; as many as it can
            if not given.
        on_error: ``"raise"``: BulkLoadError after all else was written; ``"collect"``: results and report say it.
        max_failures: Failed items that end the load when there are more.
        duplicates: Of writes of one primary key (as stored) that wait or are on their way together, ``"last"`` or
            ``"first"`` stays and the others are superseded, or (``"error"``) fail. With ``"last"`` the last of the
            whole input wins, because none overtakes another.
        journal: A file that makes the load resumable: what it holds as done is not sent again.
        dead_letters: A file for the items that fail, with their reasons.
        progress: Called with the report so far after every batch.

    Returns:
        An iterator of BulkResult, in the order in which items are settled. Left early, it sends nothing more.

    Raises:
        ConfigurationError: An argument cannot work, there were no items, the journal is of another load, or a process
            reaches another table than the client.
        BulkLoadError: Items failed (with ``on_error="raise"``); or the load, or its source, could not go on.
        InterruptedLoadError: Ctrl-C, and a KeyboardInterrupt still: what was in flight is finished and kept. The second
            one ends the load at once; with a journal it can be resumed all the same.

    Cost: one BatchWriteItem for every 25 items and for every 25 that are sent again, up to ten PutItem a second where
    items come back without a reason, a DescribeTable a minute for a share; for ``processes`` a DescribeTable, and one
    each. Memory: of each item of the window its JSON and 300 bytes, and what failed; 55 MB a process.
    IAM: ``dynamodb:BatchWriteItem`` (and ``dynamodb:DescribeTable``, unless ``key_schema=`` was given and neither a
    share nor ``processes``; without ``dynamodb:PutItem`` reasons stay unknown).
    Source: the guide, "Distribute Write Activity During Data Upload"; BatchWriteItem API reference.
    """
    runner, loading, through = _started(
        table,
        items,
        Options(
            workers=workers,
            processes=processes,
            connect=connect,
            window=window,
            write_units=write_units,
            on_error=on_error,
            max_failures=max_failures,
            duplicates=duplicates,
            journal=journal,
            dead_letters=dead_letters,
            progress=progress,
        ),
    )
    return (result for results in _results(runner, loading, through) for result in results)


def bulk_load(
    table: Any,
    items: Iterable[Item] | Source,
    *,
    workers: int | None = None,
    processes: int | None = None,
    connect: Connect | None = None,
    window: int = WINDOW,
    write_units: float | str | None = None,
    on_error: OnError = "raise",
    max_failures: int | None = None,
    duplicates: Duplicates = "last",
    journal: Path | None = None,
    dead_letters: Path | None = None,
    progress: Progress | None = None,
) -> BulkReport:
    """Write items, interleaved over their partition keys, and report.

    Example::

        print(bulk_load(orders, items))

    Arguments, exceptions and cost are those of :func:`streaming_bulk`.

    Returns:
        The report; its ``failures`` say which items failed and why.
    """
    runner, loading, through = _started(
        table,
        items,
        Options(
            workers=workers,
            processes=processes,
            connect=connect,
            window=window,
            write_units=write_units,
            on_error=on_error,
            max_failures=max_failures,
            duplicates=duplicates,
            journal=journal,
            dead_letters=dead_letters,
            progress=progress,
        ),
    )
    # Not a loop: Ctrl-C between two results would be raised here, and what is in flight be dropped.
    deque(_results(runner, loading, through), maxlen=0)
    return loading.load.report


def _started(table: Any, items: Any, options: Options) -> tuple[Runner, Loading, Processes | None]:
    check_items(items)
    if hasattr(items, "__aiter__") and not hasattr(items, "__iter__"):
        raise ConfigurationError(f"items is a {type(items).__name__}, an async iterable; use shardkit.aio.bulk_load")
    workers = options.workers
    runner = runner_of(table, max_concurrency=workers)
    most = runner.concurrency * (options.processes or 1)
    workers = min(workers or most, most)
    sharding = runner.run(runner.programs.known())
    through = None
    if options.processes is not None:
        through = Processes(runner, count=options.processes, workers=workers, connect=options.connect)
    return runner, Loading(sharding, items, options, workers=workers, draw=runner.programs.draw), through


def _results(runner: Runner, loading: Loading, through: Processes | None) -> Iterator[Sequence[BulkResult]]:
    load = loading.load
    interruptions = Interruptions()
    driver = runner.driver(load, through=through, waiting=interruptions.waiting)
    with loading, through or nullcontext():
        records = loading.records()
        try:
            while not load.ended:
                if load.wants:
                    loading.fill(records)
                with interruptions:
                    if results := driver.run():
                        loading.keep()
                if results:
                    yield results
                    loading.tell()
        except KeyboardInterrupt:
            # What is in flight is finished and kept; a second interruption ends that too.
            load.stop(ShardkitError("it was interrupted"))
            while not load.ended:
                driver.run()
                loading.keep()
            raise interrupted(load) from None
        finally:
            driver.close()
    loading.finish()


OnError = Literal["raise", "collect"]
Progress = Callable[[BulkReport], object]
Path = str | os.PathLike[str]

_MOST_PROCESSES = 256


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a load, checked; :func:`shardkit.streaming_bulk` says what they mean."""

    workers: int | None = None
    window: int = WINDOW
    write_units: float | str | None = None
    on_error: OnError = "raise"
    max_failures: int | None = None
    duplicates: Duplicates = "last"
    journal: Path | None = None
    dead_letters: Path | None = None
    progress: Progress | None = None
    processes: int | None = None
    connect: Connect | None = None

    def __post_init__(self) -> None:
        check_load(
            window=self.window,
            write_units=self.write_units,
            duplicates=self.duplicates,
            max_failures=self.max_failures,
        )
        if self.processes is not None:
            why = "each is a Python of its own"
            check_count("processes", self.processes, "processes", most=_MOST_PROCESSES, why=why)
        if self.workers is not None:
            check_side_by_side("workers", self.workers, processes=self.processes or 1)
        for name in ("journal", "dead_letters"):
            path = getattr(self, name)
            text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
            if path is not None and (not text or "\0" in os.fsdecode(text)):
                raise ConfigurationError(f"{name}={path!r:.200} is no path; give that of a file")
        if self.progress is not None and not callable(self.progress):
            raise ConfigurationError(f"progress={self.progress!r:.200} cannot be called; give a function of the report")
        check_choice("on_error", self.on_error, get_args(OnError))
        if self.workers is not None and self.processes is not None and self.workers < self.processes:
            raise ConfigurationError(
                f"workers={self.workers} is less than processes={self.processes}, and some would carry nothing; "
                "give each a few requests (workers=), or fewer processes"
            )
        if self.connect is not None and self.processes is None:
            raise ConfigurationError("connect= makes the clients of processes, and there are none; give processes= too")
        if self.journal is not None and self.dead_letters is not None and _same_file(self.journal, self.dead_letters):
            raise ConfigurationError(
                f"journal={os.fspath(self.journal)!r} and dead_letters={os.fspath(self.dead_letters)!r} are one file; "
                "give each a file of its own"
            )


def _same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def check_items(items: Any) -> None:
    """Refuse what is no source of items."""
    if isinstance(items, Source) or hasattr(items, "__arrow_c_stream__"):
        return
    if isinstance(items, Mapping | str | bytes) or not (hasattr(items, "__iter__") or hasattr(items, "__aiter__")):
        raise ConfigurationError(
            f"items is a {type(items).__name__}, not an iterable of items; give a list or a generator"
        )


class Loading:
    """A load under way: feeds the machine with records, and keeps what it says in the journal and the dead letters.

    As a context manager it closes both. Made once the table's key schema is known.
    """

    def __init__(
        self, sharding: Sharding, items: Any, options: Options, *, workers: int, draw: Callable[[], float]
    ) -> None:
        self._options = options
        self._table = sharding.table
        self._source = as_source(items)
        self._files = ExitStack()
        self._journal: Journal | None = None
        self._letters: DeadLetters | None = None
        self._failed: set[Place] = set()
        identity = uuid.uuid4().hex
        if options.journal is not None:
            self._journal = Journal.open(options.journal, _header(sharding, self._source))
            self._files.callback(self._close_journal, self._journal)
            identity = self._journal.load
        done = None if self._journal is None else self._journal.done
        self.load = Load(
            sharding,
            workers=workers,
            draw=draw,
            spread=lambda place: _drawn(identity, place),
            where=self._source.where,
            window=options.window,
            write_units=options.write_units,
            duplicates=options.duplicates,
            max_failures=options.max_failures,
        )
        if self._journal is not None:
            self.load.failed_before(self._journal.failed)
        self.done: Callable[[Place], bool] | None = None if done is None else self._skipped(done)
        if options.dead_letters is not None:
            where = self._source.where
            try:
                self._letters = DeadLetters.open(options.dead_letters, load=identity, where=where, done=done)
            except BaseException:
                self._files.close()
                raise
            self._files.callback(self._letters.close)

    def records(self) -> Iterator[tuple[Place, Record]]:
        """Read the source, without what is done already; its files are closed with the others."""
        records = self._source.read(self.done)
        if isinstance(records, Generator):
            self._files.callback(records.close)
        return records

    def fill(self, records: Iterator[tuple[Place, Record]]) -> None:
        """Hand records to the machine, which wants some, until it wants no more or there are none."""
        load = self.load
        try:
            for place, record in islice(records, load.room):
                self.put(place, record)
        except Exception as error:  # noqa: BLE001 - the source's own: ``end`` decides
            self.end(error)
        else:
            if load.wants:
                self.end()

    def put(self, place: Place, record: Record) -> None:
        """Hand a record to the machine."""
        if isinstance(record, BadRecord):
            self.load.refuse(record, place, record.error)
        else:
            self.load.put(record, place)

    def end(self, error: Exception | None = None) -> None:
        """Take no more; an error of the source is raised once what it gave is written, or now if it gave nothing.

        No items at all is nearly always a source that was read before, or is not there: that is refused.
        """
        self.load.close(error)
        report = self.load.report
        if report.items == 0 and error is not None:
            raise error
        if report.items == report.resumed == 0:
            raise ConfigurationError("there were no items to load; look at the source, or do not load when it is empty")

    def keep(self) -> None:
        """Keep what was settled; where a file cannot be written, stop the load.

        What is in flight is still finished, and has its results. It is not kept: a resumed load sends it again.
        """
        try:
            self._keep(*self.load.settled())
        except ShardkitError as error:
            self._letters = self._journal = None
            self.load.stop(error)

    def _keep(self, done: list[Place], failed: list[tuple[Place, BulkResult]]) -> None:
        # Failures first, so that what the journal holds is written or in the dead letters.
        if self._letters is not None and failed:
            self._letters.add(failed)
        if self._journal is None:
            return
        self._failed.update(place for place, _ in failed)
        # Without dead letters what failed comes again, unless another write of its key is done.
        kept = self._failed if self._letters is not None else self._failed.intersection(done)
        if kept:
            self._journal.record(kept, failed=True)
            self._failed -= kept
        self._journal.record(done)

    def tell(self) -> None:
        """Tell the caller how far it is."""
        if self._options.progress is not None:
            self._options.progress(self.load.report)

    def finish(self) -> BulkReport:
        """Give the report, or raise for what failed."""
        raise_failures(self.load, collect=self._options.on_error == "collect")
        return self.load.report

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        log_end(self.load, self._table)
        self._files.close()

    def _close_journal(self, journal: Journal) -> None:
        load = self.load
        kept = self._letters is not None or not load.report.failures
        try:
            journal.close(ended=load.ended and load.fatal is None and load.broken is None and kept)
        except ShardkitError as error:
            load.stop(error)

    def _skipped(self, done: Callable[[Place], bool]) -> Callable[[Place], bool]:
        def skipped(place: Place) -> bool:
            if not done(place):
                return False
            self.load.skip()
            return True

        return skipped


def _header(sharding: Sharding, source: Source) -> dict[str, Any]:
    keys = {name: sharding.types.get(name) for name in sharding.keys.names}
    return {
        "table": sharding.table,
        "keys": keys,
        "strategy": sharding.strategy.to_dict(),
        "source": source.identity(),
    }


def _drawn(load: str, place: Place) -> float:
    """Draw the random suffix of an item, the same whenever this load is resumed."""
    digest = sha256(f"{load}:{place[0]}:{place[1]}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
