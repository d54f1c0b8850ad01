"""bulk_load, streaming_bulk and their options."""

from __future__ import annotations

import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from hashlib import sha256
from itertools import islice
from typing import Any, Literal, Self, TypedDict, Unpack, get_args

from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.journal import Journal
from shardkit.bulk.load_end import InterruptedLoadError, log_end, raise_failures
from shardkit.bulk.load_machine import Duplicates, Load, check_choice, check_load
from shardkit.bulk.locked_file import check_path
from shardkit.bulk.report import BulkReport, BulkResult
from shardkit.bulk.sources.base import BadRecord, Item, IterableSource, Place, Record, Source
from shardkit.bulk.writes import drawn_by_key
from shardkit.core.calls import shows_options
from shardkit.core.checks import check_count, check_option_names, check_progress, check_side_by_side
from shardkit.core.shares import SharedRates
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.interrupts import Interruptions
from shardkit.runtime.leases import check_requests
from shardkit.runtime.processes import Connect, Processes
from shardkit.runtime.runner import Runner, runner_of
from shardkit.runtime.transports import Transport, direct_options
from shardkit.sharding.layout import Sharding
from shardkit.sharding.shard_map import ShardMap
from shardkit.strategies import RandomSuffix

OnError = Literal["raise", "collect"]
Progress = Callable[[BulkReport], object]
Path = str | os.PathLike[str]

_MOST_PROCESSES = 256
_log = logging.getLogger("shardkit")


class LoadOptions(TypedDict, total=False):
    """The options of a load; :func:`shardkit.streaming_bulk` documents them."""

    workers: int | None
    processes: int | None
    connect: Connect | None
    transport: Transport | None
    window: int
    write_units: float | str | SharedRates | None
    on_error: OnError
    max_failures: int | None
    duplicates: Duplicates
    journal: Path | None
    dead_letters: Path | None
    progress: Progress | None


@shows_options(LoadOptions)
def streaming_bulk(table: Any, items: Iterable[Item] | Source, **options: Unpack[LoadOptions]) -> Iterator[BulkResult]:
    """Write items, interleaved over their partition keys, and yield one result per item.

    Example:
        for result in streaming_bulk(orders, items, on_error="collect"):
            if not result.ok:
                print(result.place, result.error)

    Args:
        table: A ``ShardedTable``, or a boto3 ``Table`` (its keys are written unchanged).
        items: The items, each a mapping that includes its logical key, or a source (``open_source``). Items are read
            as the window has room.
        **options: The options of the load:

            * ``workers: int | None = None``: Batches in flight at once, at most 1,000. Defaults to the client's
              ``max_pool_connections``, and is at most the ``max_concurrency`` of a ``ShardedTable``. With
              ``processes``, this is the total over all of them, and each of the three limits applies per process.
            * ``processes: int | None = None``: Processes that send the requests, to use more than one core; at most
              256, each with its own client. Call it under ``if __name__ == "__main__":``. Not supported between the
              stages of a ``Resharding``.
            * ``connect: Callable[[], Any] | None = None``: Creates the client (or resource, or Table) of each process:
              a function without arguments at the top level of a module. By default each client has the region, endpoint
              and configuration of the table's client, and the credentials that boto3 finds, but no credentials or event
              handlers that were set in code. A ``CapacityMeter`` on the table's client sees all requests.
            * ``transport: Transport | None = None``: ``"client"``, ``"direct"`` or a DirectTransport, as for
              ``ShardedTable``. Defaults to the table's; for processes whose clients shardkit creates, to ``"direct"``
              if its extra is installed.
            * ``window: int = 50_000``: Items that wait to be interleaved, at most 10,000,000. The first request is sent
              when 1,000 items are read; the window fills while the load sends.
            * ``write_units: float | str | SharedBudget | None = None``: Write units per second that the load may
              consume of the table and of each global index; or a share of their provisioned (or warm) throughput, such
              as ``"80%"``, which is looked up every minute. Of a TimeSeries, it is that of each table. A
              :class:`shardkit.SharedBudget` is shared with other processes (and of a TimeSeries, by its tables). By
              default there is no limit.
            * ``on_error: Literal["raise", "collect"] = "raise"``: ``"raise"`` raises BulkLoadError after all other
              items are written. ``"collect"`` reports failures only in the results and the report.
            * ``max_failures: int | None = None``: The load stops when more items than this have failed.
            * ``duplicates: Literal["last", "first", "error"] = "last"``: Which write of a primary key (as stored) is
              kept, if several are in the window or in flight at once. The others are superseded; with ``"error"``, all
              but the first fail. With ``"last"``, the last write of the whole input wins, because no write overtakes
              another one of its key.
            * ``journal: str | os.PathLike | None = None``: A file that makes the load resumable: items that it records
              as done are not sent again.
            * ``dead_letters: str | os.PathLike | None = None``: A file for the items that fail, with the reasons.
            * ``progress: Callable[[BulkReport], object] | None = None``: Called after every batch, with the report so
              far.

    Returns:
        An iterator of BulkResult, in the order in which items finish. If you stop iterating, nothing more is sent.

    Raises:
        ConfigurationError: An argument is invalid, there are no items, the journal is of another load, or a process
            reaches another table than the client.
        BulkLoadError: Items failed (with ``on_error="raise"``), or the load or its source stopped with an error.
        InterruptedLoadError: Ctrl-C (it is a KeyboardInterrupt). Batches in flight are finished and recorded. A second
            Ctrl-C ends the load at once. With a journal, the load can be resumed after both.

    Cost: one BatchWriteItem per 25 items, and per 25 items that are sent again; up to ten PutItem per second while
        items come back without a reason; one GetItem at the start, which looks for a shard map that says otherwise than
        the strategy (then it raises ConfigurationError); one DescribeTable per minute for a share of the throughput;
        one DescribeTable for ``processes``, and one per process. Memory: the JSON of each item in the window plus 300
        bytes, the failed items, and 55 MB per process.
    IAM: ``dynamodb:BatchWriteItem``; ``dynamodb:GetItem`` (without it, a load goes on); ``dynamodb:DescribeTable``,
        unless ``key_schema=`` was given and neither a share nor ``processes``; ``dynamodb:PutItem`` to find out reasons
        (without it they stay unknown).
    Source: the guide, "Distribute Write Activity During Data Upload"; BatchWriteItem API reference.
    """
    runner, source_load, through = _started(table, items, options)
    return (result for results in _results(runner, source_load, through, Interruptions()) for result in results)


@shows_options(LoadOptions)
def bulk_load(table: Any, items: Iterable[Item] | Source, **options: Unpack[LoadOptions]) -> BulkReport:
    """Write items, interleaved over their partition keys, and return a report.

    Example:
        print(bulk_load(orders, items))

    Arguments, exceptions and cost are those of :func:`streaming_bulk`.

    Returns:
        The report; its ``failures`` are the results of the items that failed.
    """
    runner, source_load, through = _started(table, items, options)
    run_load(runner, source_load, through)
    return source_load.machine.report


def _started(table: Any, items: Any, options: LoadOptions) -> tuple[Runner, SourceLoad, Processes | None]:
    check_options(options)
    check_items(items)
    if hasattr(items, "__aiter__") and not hasattr(items, "__iter__"):
        raise ConfigurationError(f"items: {type(items).__name__} is an async iterable; use shardkit.aio.bulk_load")
    workers, processes = options.get("workers"), options.get("processes")
    runner = runner_of(table, workers, options.get("transport"))
    most = runner.concurrency * (processes or 1)
    workers = min(workers or most, most)
    sharding = runner.run(runner.programs.to_load(look=True))
    through = None
    machine = runner.programs.machine(sharding) or Load
    if processes is not None:
        sharding.refuse_if_moving("processes=", "leave it out, or load in stage 'old' or 'new'")
        if machine is not Load and not runner.programs.leased:
            raise ConfigurationError(
                f"processes: not supported by a load into a TimeSeries, got {processes}; leave it out, or load each "
                "period's table by itself"
            )
        through = Processes(
            runner,
            count=processes,
            workers=workers,
            connect=options.get("connect"),
            transport=options.get("transport"),
        )
    draw = runner.programs.draw
    return runner, SourceLoad(sharding, items, options, workers=workers, draw=draw, machine=machine), through


def run_load(runner: Runner, source_load: SourceLoad, through: Processes | None = None) -> None:
    """Run a load to its end, without looking at its results."""
    interruptions = Interruptions()
    with interruptions.kept():
        # Not a for loop: between two results Ctrl-C would be raised here, and the batches in flight would be dropped.
        deque(_results(runner, source_load, through, interruptions), maxlen=0)


def _results(
    runner: Runner, source_load: SourceLoad, through: Processes | None, interruptions: Interruptions
) -> Iterator[Sequence[BulkResult]]:
    load = source_load.machine
    source_load.watch(runner.client)
    driver = runner.driver(load, through=through, waiting=interruptions.waiting)
    with source_load, through or nullcontext():
        records = source_load.records()
        try:
            while not load.ended:
                if load.wants:
                    source_load.fill(records)
                with interruptions:
                    if results := driver.run():
                        source_load.keep()
                if results:
                    yield results
                    source_load.tell()
        except KeyboardInterrupt:
            # Finish and record what is in flight. A second Ctrl-C ends this too.
            load.stop(ShardkitError("it was interrupted"))
            while not load.ended:
                driver.run()
                source_load.keep()
            report = load.report
            raise InterruptedLoadError(
                f"interrupted: {report.written:,} items are written, {report.resumed:,} were done before; with a "
                "journal, the load can be resumed",
                report,
            ) from None
        finally:
            driver.close()
    source_load.finish()


def check_options(options: LoadOptions, *, unsupported: Sequence[str] = ()) -> None:
    """Check the options of a load; ``unsupported`` are those that only ``shardkit.bulk_load`` has."""
    known = [name for name in LoadOptions.__annotations__ if name not in unsupported]
    if refused := [name for name in options if name in unsupported]:
        raise ConfigurationError(
            f"{refused[0]}: is not supported by this load; leave it out, or use shardkit.bulk_load"
        )
    check_option_names(options, known, "a load")
    check_load(**_machine_options(options))
    if (transport := options.get("transport")) is not None:
        direct_options(transport)
    check_choice("on_error", options.get("on_error", "raise"), get_args(OnError))
    check_workers(options)
    _check_files(options)
    check_progress(options.get("progress"))


def _machine_options(options: LoadOptions) -> dict[str, Any]:
    names = ("window", "write_units", "duplicates", "max_failures")
    return {name: value for name, value in options.items() if name in names}


def check_workers(options: Mapping[str, Any]) -> None:
    workers, processes = options.get("workers"), options.get("processes")
    if processes is not None:
        check_count("processes", processes, "processes", most=_MOST_PROCESSES, why="each is a Python of its own")
    if workers is not None:
        check_side_by_side("workers", workers, processes=processes or 1)
    if workers is not None and processes is not None and workers < processes:
        raise ConfigurationError(
            f"workers: {workers} is less than processes={processes}, so some processes would send nothing; give each "
            "process a few workers, or use fewer processes"
        )
    if options.get("connect") is not None and processes is None:
        raise ConfigurationError("connect: is only used with processes; give processes= too")


def _check_files(options: LoadOptions) -> None:
    given = {"journal": options.get("journal"), "dead_letters": options.get("dead_letters")}
    paths = {name: path for name, path in given.items() if path is not None}
    for name, path in paths.items():
        check_path(name, path)
    if len(paths) == 2 and len({os.path.realpath(path) for path in paths.values()}) == 1:  # noqa: PLR2004
        journal, dead_letters = (os.fspath(path) for path in paths.values())
        raise ConfigurationError(
            f"journal: {journal!r} and dead_letters={dead_letters!r} are the same file; give two different files"
        )


def check_items(items: Any, option: str = "items") -> None:
    if isinstance(items, Source) or hasattr(items, "__arrow_c_stream__"):
        return
    if isinstance(items, Mapping | str | bytes) or not (hasattr(items, "__iter__") or hasattr(items, "__aiter__")):
        file = "; for a file, give open_source('…', table=…)" if isinstance(items, str | os.PathLike) else ""
        raise ConfigurationError(
            f"{option}: must be an iterable of items, got {type(items).__name__}; give a list or a generator{file}"
        )


def as_source(items: Source | Iterable[Item]) -> Source:
    """Return a source unchanged; turn a frame (Arrow, pandas, polars) or an iterable into one with one cursor."""
    if isinstance(items, Source):
        return items
    if hasattr(items, "__arrow_c_stream__"):
        from shardkit.bulk.sources.opening import open_source  # noqa: PLC0415 - other items need no file formats

        return open_source(items)
    return IterableSource(items)


def _check_types(source: Source, sharding: Sharding) -> None:
    """Refuse a file of which each item would be refused, because its cells were read without the table's types."""
    types: Mapping[str, str] = getattr(source, "types", {})
    for name, wanted in sharding.types.items():
        if (letter := types.get(name, wanted)) != wanted:
            raise ConfigurationError(
                f"{name}: the source reads it as type {letter}, but as a key attribute of table {sharding.table!r} it "
                f'has type {wanted}; give open_source(…, table=table), or types="{name}:{wanted}" (--types)'
            )


class SourceLoad:
    """A load under way: feeds the machine with records; writes the journal and the dead letters, and closes them.

    ``load_id``: of a load whose items have no fixed place, because another engine reads them. Random suffixes are then
    drawn by the logical key. ``more`` are options of the machine.
    """

    def __init__(
        self,
        sharding: Sharding,
        items: Any,
        options: LoadOptions,
        *,
        workers: int,
        draw: Callable[[], float],
        machine: Callable[..., Load] = Load,
        load_id: str | None = None,
        **more: Any,
    ) -> None:
        self._options = options
        self._table = sharding.table
        self._source = as_source(items)
        _check_types(self._source, sharding)
        self._files = ExitStack()
        self._journal: Journal | None = None
        self._letters: DeadLetters | None = None
        self._failed: set[Place] = set()
        identity = load_id or uuid.uuid4().hex
        done = None
        if (path := options.get("journal")) is not None:
            self._journal = Journal(path, _header(sharding, self._source))
            self._files.callback(self._close_journal, self._journal)
            identity, done = self._journal.load, self._journal.done
        self.machine = machine(
            sharding,
            workers=workers,
            draw=draw,
            spread=drawn_by_key(load_id) if load_id else lambda place, _: _drawn(identity, place),
            where=self._source.where,
            **_machine_options(options),
            **more,
        )
        if self._journal is not None:
            self.machine.failed_before(self._journal.failed)
        self.done = None if done is None else self._skipped(done)
        if (path := options.get("dead_letters")) is not None:
            try:
                self._letters = DeadLetters(path, load=identity, where=self._source.where, done=done)
            except BaseException:
                self._files.close()
                raise
            self._files.callback(self._letters.close)
            if self._journal is not None and self._letters.kept < self._journal.failed:
                _log.warning(
                    "dead_letters: %r has %s of the %s items that failed before, by the journal; the others are not "
                    "sent again: look for their letters where they were moved, or load these items again",
                    os.fspath(path),
                    self._letters.kept,
                    self._journal.failed,
                )

    def watch(self, client: Any) -> None:
        """If the pace is a share of a budget, which may end, let each request be checked just before it goes."""
        if isinstance(self._options.get("write_units"), SharedRates):
            check_requests(client)

    def records(self) -> Iterator[tuple[Place, Record]]:
        """Read the source, without the records that are done; its files are closed with the load's."""
        records = self._source.read(self.done)
        if isinstance(records, Generator):
            self._files.callback(records.close)
        return records

    def fill(self, records: Iterator[tuple[Place, Record]]) -> None:
        with self.feeding():
            for place, record in islice(records, self.machine.room):
                self.put(place, record)

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Read records within this block, until the machine has no room or none are left.

        If none are left, the source has ended. An error of the source is raised once everything that was read is
        written, or at once if nothing was read.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever the caller's source raises
            self._end(error)
        else:
            if self.machine.wants:
                self._end()

    def put(self, place: Place, record: Record) -> None:
        if isinstance(record, BadRecord):
            self.machine.refuse(record, place, record.error)
        else:
            self.machine.put(record, place)

    def _end(self, error: Exception | None = None) -> None:
        self.machine.close(error)
        report = self.machine.report
        if report.items == 0 and error is not None:
            raise error
        # Nearly always a source that was read before, or that does not exist.
        if report.items == report.resumed == 0:
            raise ConfigurationError("items: there are no items to load; check the source, or skip empty ones")

    def keep(self) -> None:
        """Record what is settled in the files; if a file cannot be written, stop the load.

        What is in flight then still gets its result. It is not recorded, so a resumed load sends it again.
        """
        try:
            self._keep(*self.machine.settled())
        except ShardkitError as error:
            self._letters = self._journal = None
            self.machine.stop(error)

    def _keep(self, done: list[Place], failed: list[tuple[Place, BulkResult]]) -> None:
        # Dead letters first: every item that the journal records as done is then either written or in them.
        if self._letters is not None and failed:
            self._letters.add(failed)
        if self._journal is None:
            return
        self._failed.update(place for place, _ in failed)
        # Without dead letters, a failed item is loaded again, unless another write of its key is done.
        kept = self._failed if self._letters is not None else self._failed.intersection(done)
        if kept:
            self._journal.record(kept, failed=True)
            self._failed -= kept
        self._journal.record(done)

    def tell(self) -> None:
        if (progress := self._options.get("progress")) is not None:
            progress(self.machine.report)

    def finish(self) -> BulkReport:
        raise_failures(self.machine, collect=self._options.get("on_error") == "collect")
        return self.machine.report

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        log_end(self.machine, self._table)
        self._files.close()

    def _close_journal(self, journal: Journal) -> None:
        load = self.machine
        kept = self._letters is not None or not load.report.failures
        try:
            journal.close(ended=load.ended and load.fatal is None and load.broken is None and kept)
        except ShardkitError as error:
            load.stop(error)

    def _skipped(self, done: Callable[[Place], bool]) -> Callable[[Place], bool]:
        def skipped(place: Place) -> bool:
            if not done(place):
                return False
            self.machine.skip()
            return True

        return skipped


def _header(sharding: Sharding, source: Source) -> dict[str, Any]:
    strategy = sharding.strategy.to_dict()
    if sharding.has_map and not isinstance(sharding.strategy, RandomSuffix):
        strategy = ShardMap().to_dict()  # a load can be resumed in any stage
    strategy.pop("stage", None)  # a load can be resumed in the next one
    return {
        "table": sharding.table,
        "keys": {name: sharding.types.get(name) for name in sharding.keys.names},
        "strategy": strategy,
        **({"indexes": sharding.sharded.to_dict()} if sharding.sharded else {}),
        "source": source.identity(),
    }


def _drawn(load: str, place: Place) -> float:
    """Return the draw for the random suffix of an item: the same each time this load is resumed."""
    digest = sha256(f"{load}:{place[0]}:{place[1]}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
