"""count, update, delete, copy and compare: passes over the items of tables."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, TypedDict, TypeVar, Unpack

from shardkit.analysis.prices import Prices
from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.load import check_workers
from shardkit.bulk.report import BulkResult
from shardkit.bulk.sources.base import BadRecord, Place
from shardkit.core.calls import shows_options
from shardkit.core.checks import check_count, check_number
from shardkit.core.machine import Program
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.schema import indexes_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError
from shardkit.passes.before import Before
from shardkit.passes.changing import ChangeReport, Changing, Copying, Update
from shardkit.passes.choosing import SEGMENTS, Wanted
from shardkit.passes.comparing import AdditionalError, CompareReport, Comparing
from shardkit.passes.passes import Passes, run
from shardkit.passes.table_pass import PassOptions
from shardkit.runtime.processes import Connect, Processes
from shardkit.runtime.runner import AsyncRunner, Runner, runner_of
from shardkit.runtime.transports import Transport
from shardkit.sharding.layout import Sharding
from shardkit.sharding.leases import Held
from shardkit.sharding.programs import Programs

Path = str | os.PathLike[str]
Side = tuple[Sharding, Held | None, Mapping[str, Any]]
"""A table of a pass, the leases by which its items stay where they are, and DescribeTable's answer, if it is needed."""
AnyRunner = Runner | AsyncRunner
T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of passes; :func:`update`, :func:`copy` and :func:`compare` document them."""

    where: Any
    index: str | None
    ExpressionAttributeNames: Mapping[str, str]
    ExpressionAttributeValues: Mapping[str, Any]
    if_unchanged: bool
    overwrite: bool
    sample: float
    before: Path | None
    dead_letters: Path | None
    dry_run: bool
    prices: Prices | None
    write_units: float | str | None
    read_units: float | None
    segments: int
    processes: int | None
    connect: Connect | None
    transport: Transport | None
    journal: Path | None
    progress: Callable[[Any], object] | None


_UNDO = ("if_unchanged", "before", "processes", "connect")
_READ = (*_UNDO, "overwrite", "dry_run", "prices", "write_units")
WITHOUT: Mapping[str, Sequence[str]] = {
    "count": (*_READ, "sample", "dead_letters"),
    "update": ("overwrite", "sample"),
    "delete": ("overwrite", "sample"),
    "copy": (*_UNDO, "sample"),
    "compare": (*_READ, "where", "index", "ExpressionAttributeNames", "ExpressionAttributeValues"),
}
"""The options that a pass does not have; ``OF_THREADS``: that no async pass has."""
OF_THREADS = ("processes", "connect")
_OPERATIONS = {"count": "", "update": "UpdateItem", "delete": "DeleteItem", "copy": "PutItem"}


@shows_options(Options, without=WITHOUT["count"])
def count(table: Any, **options: Unpack[Options]) -> ChangeReport:
    """Count the items of a table that meet a condition.

    Example:
        print(count(orders, where=Attr("Status").eq("open")).found)

    Arguments and exceptions are those of :func:`update`, as far as ``help`` shows them here. An index may project any
    attributes; only items that are in it are counted. The report has ``found``, ``read`` and ``read_units``.

    Cost: a Scan, eventually consistent: 0.5 read units per 4 KB that are read, whatever is found.
    IAM: ``dynamodb:Scan``, ``dynamodb:DescribeTable``, ``dynamodb:GetItem`` (it looks for a shard map).
    """
    return _run(ChangeReport, "count", options, table)


@shows_options(Options, without=WITHOUT["update"])
def update(table: Any, change: Update, **options: Unpack[Options]) -> ChangeReport:
    """Update the items of a table that meet a condition.

    Example:
        more = {":more": 1}
        update(orders, "SET Price = Price + :more", ExpressionAttributeValues=more, before="undo.jsonl")

    Each update has the condition that the item is as it was read, so other writers win. An item that they have changed
    is looked at again, and updated if it still meets ``where``. An update whose answer is lost is never made twice.

    Args:
        table: A ``ShardedTable`` (of a period of a ``TimeSeries``: of its table), whose ``max_concurrency`` limits the
            requests in flight; or a boto3 ``Table``.
        change: An UpdateExpression; or a function of an item, as ``scan_items`` returns it, that returns the new item
            (None: it stays as it is), of which the attributes that differ are written.
        **options: The options:

            * ``where: ConditionBase | str | Callable[[item], bool]``: Which items: a condition of boto3 or its text,
              which the service evaluates; or a function of an item. By default all.
            * ``index: str``: Read this index, which must project all attributes, instead of the table.
            * ``ExpressionAttributeNames``, ``ExpressionAttributeValues``: The placeholders of texts.
            * ``if_unchanged: bool = True``: Change an item only if it is as it was read. If False (items of more than
              140 attributes need it), only if it meets a condition ``where``: a lost answer may make an update twice.
            * ``before: str | os.PathLike``: A new file of the items as they were, in the form of dead letters, each on
              disk before its change is sent. ``shardkit load`` of it undoes the pass.
            * ``dead_letters: str | os.PathLike``: A file of the keys that failed, with the reasons.
            * ``dry_run: bool = False``: Write nothing, and report what it would take; with ``prices: Prices`` in
              dollars too.
            * ``write_units``, ``read_units``, ``progress``: As for :func:`shardkit.backfill_index`.
            * ``segments: int = 100``: Places of the table that are written in turn; at least ``max_concurrency``. Give
              twice the number of partitions of a larger table.
            * ``processes``, ``connect``, ``transport``: As for :func:`shardkit.streaming_bulk`.
            * ``journal: str | os.PathLike``: A file that makes it resumable, deleted at the end. An update needs
              ``before`` too, so that nothing is changed twice.

    Returns:
        A report of this run: ``found``, ``changed``, ``unchanged``, ``overtaken`` (by other writers), ``failed`` with
        ``failures``; of a dry run ``units``, ``expected_seconds``, ``dollars``, a ``sample``.

    Raises:
        ConfigurationError: An argument is invalid, the journal is of another pass, or the items move.
        ShardkitError: The first 100 items all failed, or the service refused all requests for a minute.
        ClientError: The service refused a request, such as one with an invalid condition.

    Cost: a Scan, eventually consistent: 0.5 read units per 4 KB; one UpdateItem per item. Memory: about 10,000 items.
    IAM: that of :func:`count`, and ``dynamodb:UpdateItem``.
    """
    return _run(ChangeReport, "update", options, table, change=change)


@shows_options(Options, without=WITHOUT["delete"])
def delete(table: Any, **options: Unpack[Options]) -> ChangeReport:
    """Delete the items of a table that meet a condition; without ``where``, all.

    Example:
        delete(orders, where=Attr("Status").eq("done"), before="deleted.jsonl")

    Arguments, report, exceptions and cost are those of :func:`update`. An attribute that another writer has added to an
    item since it was read goes unnoticed, and is deleted with it. IAM: that of :func:`count`, ``dynamodb:DeleteItem``.
    """
    return _run(ChangeReport, "delete", options, table)


@shows_options(Options, without=WITHOUT["copy"])
def copy(source: Any, target: Any, **options: Unpack[Options]) -> ChangeReport:
    """Copy the items of a table into another one, of any account, Region and strategy.

    Example:
        copy(boto3.resource("dynamodb", region_name="eu-west-1").Table("Orders"), sharded, write_units="50%")

    Items that are written to the source meanwhile may be copied or not: :func:`compare` says which.

    Args:
        source: A ``ShardedTable``, or a boto3 ``Table``; its client reads.
        target: Likewise, with the same key attributes; its client writes.
        **options: Those of :func:`update`, as far as ``help`` shows them here; ``dead_letters`` are whole items, and
            ``overwrite: bool = False`` says whether to replace items that the target has.

    Returns:
        The report: ``changed`` items were copied, ``unchanged`` ones were in the target.

    Cost: a Scan of the source; one PutItem per item, which costs as much if the target has the item already.
    IAM: that of :func:`count`; on the target ``dynamodb:PutItem`` in place of ``dynamodb:Scan``.
    """
    return _run(ChangeReport, "copy", options, source, target)


@shows_options(Options, without=WITHOUT["compare"])
def compare(source: Any, target: Any, **options: Unpack[Options]) -> CompareReport:
    """Compare the items of two tables, of any account, Region and strategy: after a copy, an import, or a move.

    Example:
        assert compare(old, new, sample=0.05).equal

    Each table is read, and its items are looked up in the other. An item that is written meanwhile may count as
    different. A table with random suffixes must have ``locate=True``.

    Args:
        source: A ``ShardedTable``, or a boto3 ``Table``.
        target: Likewise, with the same key attributes.
        **options: Those of :func:`update`, as far as ``help`` shows them here; ``dead_letters`` has all differences
            (the source's items, loaded into the target, repair it), and ``sample: float = 1`` is the share of the
            partition keys to compare, drawn at random.

    Returns:
        A report: ``equal``; ``missing``, ``different``, ``additional``, ``failures``; of a sample, ``estimates``.

    Cost: a Scan of both, and a BatchGetItem per 100 items, strongly consistent: 1 read unit per 4 KB, and per item.
    IAM: on both that of :func:`count`, and ``dynamodb:BatchGetItem``.
    """
    return _run(CompareReport, "compare", options, source, target)


def _run(_: type[T], what: str, options: Options, *tables: Any, change: Any = None) -> T:
    runners = [runner_of(table, transport=options.get("transport")) for table in tables]
    sides = [one.run(side_of(one.programs, what, options, place)) for place, one in enumerate(runners)]
    through = None
    if (count := options.get("processes")) is not None:
        check_workers(options)
        given: Any = {name: options.get(name) for name in ("connect", "transport")}
        through = Processes(runners[0], count=count, workers=max(runners[0].concurrency, count), **given)
    with ExitStack() as files:
        passes = passes_of(what, runners, sides, change, options, files)
        report: T = run(runners[0], passes, *runners[1:], through=through)
        return report


def side_of(programs: Programs, what: str, options: Options, place: int) -> Program[Side]:
    """Look at the first table of a pass, or at the second one, of which no index is read."""
    index = None if place else options.get("index")
    _, held = yield from programs.in_stage()
    sharding = yield from (programs if held is None else programs.under(held)).known(index)
    sharding.refuse_if_moving(f"passes.{what}()", "wait until the move has ended")
    sharding.schema(index)
    whole = index is not None and what != "count"
    description = (yield from programs.description()) if whole or what == "copy" or options.get("dry_run") else {}
    if whole and any(one.name == index and one.projected is not None for one in indexes_of(description, sharding.keys)):
        raise ConfigurationError(
            f"index: {index!r} does not have all attributes of its items, which {what}() needs; read the table, or an "
            "index that projects ALL"
        )
    return sharding, held, description


def passes_of(
    what: str, runners: Sequence[AnyRunner], sides: Sequence[Side], change: Any, options: Options, files: ExitStack
) -> Passes[Any]:
    """Return a pass over the items of a table, or of two; ``files`` closes those that it opens."""
    shardings, (held, *_), descriptions = zip(*sides, strict=True)
    runner, sharding, programs = runners[0], shardings[0], [one.programs for one in runners]
    without = {*WITHOUT[what], *(() if isinstance(runner, Runner) else OF_THREADS)}
    places = [(one.client.meta.endpoint_url, one.programs.table) for one in runners]
    ids = {one.get("TableId", place) for one, place in zip(descriptions, places, strict=True)}
    if what == "copy" and len(ids) == 1:
        raise ConfigurationError(
            f"target: must be another table than the source, got {programs[1].table!r}; to give a table another "
            "strategy, use shardkit reshard"
        )
    keys = [{name: one.types.get(name) for name in one.key_names} for one in shardings]
    kinds = [{one[name] for one in keys if one.get(name)} for name in sharding.key_names]  # key_schema= may have none
    if [*keys[0]] != [*keys[-1]] or any(len(one) > 1 for one in kinds):
        raise ConfigurationError(f"source, target: must have the same key attributes, got {keys[0]} and {keys[1]}")
    if sum(one.leased for one in programs) > (what != "compare"):
        raise ConfigurationError(
            "source, target: a ShardMap is supported for one table of a copy, and for none of a comparison; give the "
            "table with the strategy that ShardMapAdmin(table).read().strategy returns"
        )
    wanted = Wanted.of(sharding, _OPERATIONS.get(what, ""), options, change)
    dry, path = options.get("dry_run", False), options.get("before")
    if options.get("journal") is not None and path is None and what == "update" and not dry:
        raise ConfigurationError(
            "journal: an update needs before= too, which says what was changed before the pass was killed; give both"
        )
    share = check_number("sample", options.get("sample", 1), "a share of the keys", above=True, most=1)
    segments = options.get("segments", max(runner.concurrency, 0 if dry or what == "count" else SEGMENTS))
    check_count("segments", segments, "segments", most=1_000_000)
    skipped: dict[int, None] = {}
    if what == "compare":
        halves = [sorted(range(first, first + segments), key=lambda _: programs[0].draw()) for first in (0, segments)]
        skipped = {one: None for half in halves for one in half[max(2, round(share * segments)) :]}
        segments *= 2

    def make(given: PassOptions) -> Any:
        machine: Any
        if what == "compare":
            machine = Comparing(shardings, programs, **given)
        else:
            kind = Copying if what == "copy" else Changing
            machine = kind(sharding, wanted, descriptions[-1] if dry else None, programs[-1].table, **given)
            machine.target, machine.stored = programs[-1], shardings[-1]
            for name in {"if_unchanged", "overwrite", "prices"}.intersection(options):
                setattr(machine, name, options[name])  # type: ignore[literal-required]
        if path is not None and not dry:
            state = given["state"]
            since = None if options.get("journal") is None else state.get("before", 0)
            met_again = sharding.key_names if what == "update" else ()
            machine.before = files.enter_context(closing(Before(path, state["pass"], met_again, since)))
        if (letters := options.get("dead_letters")) is not None and not dry:
            kept = files.enter_context(closing(DeadLetters(letters, load=uuid.uuid4().hex, where=lambda _: "")))

            def failed(item: WireItem, error: Exception) -> None:
                # Otherwise keys as text, because to load the items would mend nothing.
                mends = len(runners) > 1 and not isinstance(error, AdditionalError)
                shown = from_wire_item(item) if mends else BadRecord(_text(machine.key(item)), error)
                kept.add([(Place(0, 0), BulkResult(shown, "", None, ok=False, error=error))])

            machine.failed = failed
        return machine

    return Passes(
        runner,
        what,
        make,
        options,
        known=[one for one in Options.__annotations__ if one not in without],
        kinds=(False,),
        header={
            "tables": [one.table for one in programs],
            "strategies": [one.strategy.to_dict() for one in shardings],
            "keys": list(sharding.key_names),
            "sample": share,
            "dry_run": dry,
            "before": path and str(path),
            "wanted": " ".join(_text(one if callable(one) else {"": one}) for one in wanted),
        },
        held=held,
        begin={"segments": segments, "positions": skipped, "state": {"pass": uuid.uuid4().hex}},
    )


def _text(one: Any) -> str:
    return getattr(one, "__qualname__", type(one).__qualname__) if callable(one) else encode(one).decode()
