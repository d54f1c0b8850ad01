"""What ``shardkit heat --table`` and ``shardkit size --table`` share: they read random segments of a live table."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

from botocore.exceptions import BotoCoreError, ClientError

from shardkit.analysis.keys import Key
from shardkit.analysis.sample import Estimate, SamplePlan, SegmentSample, plan_sample
from shardkit.cli.command import STOPPED, Call, Outcome
from shardkit.cli.options import connection, option, several
from shardkit.cli.screen import CommandProgress, Line, columns, duration, percent, say, show_table, size
from shardkit.core.checks import check_number
from shardkit.core.hashing import unwrapped
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.schema import Index, KeySchema, indexes_of, throughput_of
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.passes.sampled_scan import Page, SampledScan

if TYPE_CHECKING:
    from rich.console import Console

MOST_UNITS = 1000.0
"""Read units that a sample takes at most, unless the user says otherwise."""
_RATE = 100.0  # read units a second, likewise
_PART = 0.25  # of a provisioned table's read units that a sample takes at most, likewise
_ASSUMED = 1024  # bytes of an item, if only the items were counted, as local engines do
_BURST = 1.0  # seconds whose units may be taken at once
_CONCURRENCY = 8
_LONGEST_WAIT = 86_400.0  # seconds that a page waits for its turn


LIVE = "Live table"  # how --help groups the options
sampling = several(
    option("--table", group=LIVE, help="A live table instead of SOURCE: a random sample of it is read."),
    option("--index", group=LIVE, help="An index of the table to read instead, by its own partition key."),
    option("--max-units", group=LIVE, type=float, default=MOST_UNITS, help="The most read units that a sample takes."),
    option(
        "--max-rate",
        group=LIVE,
        type=float,
        help="The most read units a second; if not given, 100, and at most a quarter of what is provisioned.",
    ),
    connection,
)
"""The option --table, and those of :class:`LiveOptions`."""


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """How to read a live table, as it was typed."""

    index: str | None
    max_units: float
    max_rate: float | None

    @classmethod
    def taken(cls, options: dict[str, Any]) -> LiveOptions:
        """Take them out of a command's options."""
        return cls(**{one.name: options.pop(one.name) for one in fields(cls)})

    @property
    def given(self) -> Mapping[str, Any]:
        """Those that need --table."""
        return {"index": self.index, "max_rate": self.max_rate}

    def reading(self, call: Call) -> SampleOptions:
        return {"most_units": self.max_units, "rate": self.max_rate, "progress": call.shown is not None}


def check_source(
    source: str | None, table: str | None, of_source: Mapping[str, Any], of_table: Mapping[str, Any]
) -> None:
    """Check that there is a source or a table, and no option that only the other one has."""
    if (source is None) == (table is None):
        got = "neither" if source is None else "both"
        raise ConfigurationError(f"SOURCE, --table: must be one of them, got {got}; give a file, or --table Orders")
    for name, value in (of_table if table is None else of_source).items():
        if value:
            needs, refused = "needs --table; add it, or omit this option", "is not for --table; omit one of them"
            how = needs if table is None else refused
            raise ConfigurationError(f"--{name.replace('_', '-')}: {how}")


@dataclass(frozen=True)
class LiveTable:
    """A table, or one of its indexes, as DescribeTable describes it; ``items`` and ``bytes`` are 0 if unknown.

    ``own_keys`` are the table's; ``keys`` are those of the index. ``key_types`` are the types of all key attributes, of
    the table and its indexes. ``global_indexes`` are all of the table's, whichever is read.
    """

    client: Any
    name: str
    index: str | None
    own_keys: KeySchema
    key_types: Mapping[str, str]
    keys: KeySchema
    items: int
    bytes: int
    provisioned: float | None
    global_indexes: tuple[Index, ...] = ()

    @property
    def hot_alone(self) -> list[Index]:
        """The global indexes that can be hot where the table is not: they do not have its partition key in theirs."""
        return [index for index in self.global_indexes if self.own_key not in index.keys.partition]

    @property
    def size(self) -> int:
        """Its bytes, assumed if only its items were counted."""
        return self.bytes or _ASSUMED * self.items

    @property
    def own_key(self) -> str:
        return self.own_keys.partition_key

    @property
    def title(self) -> str:
        return self.name if self.index is None else f"{self.name}, index {self.index}"


def describe(client: Any, name: str, index: str | None) -> LiveTable:
    """Send one DescribeTable, and return what it says of the table or of the index."""
    try:
        table = client.describe_table(TableName=name)["Table"]
    except ClientError as error:
        raise ConfigurationError(
            f"--table: DescribeTable of table {name!r} failed: {error}; check the table's name, the region "
            "(--region, --profile) and the permission dynamodb:DescribeTable"
        ) from error
    described, count, of = table, "TableSizeBytes", f"table {name!r}"
    if index is not None:
        indexes = {
            one["IndexName"]: one
            for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
            for one in table.get(kind) or ()
        }
        if index not in indexes:
            known = ", ".join(sorted(indexes)) or "none"
            raise ConfigurationError(f"--index: table {name!r} has no index {index!r}; its indexes are: {known}")
        described, count, of = indexes[index], "IndexSizeBytes", f"index {index!r}"
    own_keys = KeySchema.of(table["KeySchema"], f"table {name!r}")
    return LiveTable(
        client=client,
        name=name,
        index=index,
        own_keys=own_keys,
        key_types={one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]},
        keys=KeySchema.of(described["KeySchema"], of),
        items=int(described.get("ItemCount") or 0),
        bytes=int(described.get(count) or 0),
        provisioned=throughput_of(described).provisioned.read,
        global_indexes=tuple(index for index in indexes_of(table, own_keys) if not index.local),
    )


@dataclass(frozen=True)
class Sampled:
    """What was read of a table.

    ``unfinished`` are the keys of segments that were not read to their end: they have at least what was read.
    ``problem`` is why it stopped early; None: it did not.
    """

    table: LiveTable
    sample: SegmentSample
    units: float
    unfinished: frozenset[Key]
    problem: str | None

    def total(self, name: str) -> Estimate:
        """Estimate the sum of a figure over the whole table; keys that were not read to their end have any number."""
        estimate = self.sample.total(name)
        return estimate._replace(high=math.inf) if self.unfinished else estimate

    @property
    def whole(self) -> bool:
        """Whether all of the table was read."""
        return self.sample.share == 1 and not self.unfinished

    @property
    def unseen(self) -> float:
        """The most of the items that one key that was not read may have; 0: DynamoDB counted no more than expected."""
        estimate, counted = self.sample.total("items"), self.table.items
        return 0.0 if self.whole or counted <= estimate.high else 1 - estimate.low / counted


class SampleOptions(TypedDict):
    """How to read a sample: its most read units, those a second (None: chosen), and whether to show the progress."""

    most_units: float
    rate: float | None
    progress: bool
    rng: NotRequired[random.Random]


def read_sample(
    table: LiveTable,
    take: Callable[[Mapping[str, Any]], Mapping[str, float]],
    stderr: Console,
    **how: Unpack[SampleOptions],
) -> Callable[[], Sampled]:
    """Plan a sample and say what it will take; return the function that reads it.

    ``take`` gets each item, and returns its figures, which are added up by segment; ``items`` and ``keys`` are added.
    """
    most_units, rate = how["most_units"], how["rate"]
    plan = _planned(table, most_units)
    per_second = _RATE if rate is None else check_number("--max-rate", rate, "read units a second", above=True)
    if rate is None and table.provisioned is not None:
        per_second = min(per_second, max(1.0, _PART * table.provisioned))
    _show_plan(stderr, table, plan, most_units, per_second)
    rng = how.get("rng") or random.Random()  # noqa: S311 - samples, keeps no secret
    machine = SampledScan(
        {"TableName": table.name, **({} if table.index is None else {"IndexName": table.index})},
        rng.sample(range(plan.total_segments), plan.segments),
        plan.total_segments,
        most_units=most_units,
        concurrency=_CONCURRENCY,
    )
    return lambda: _read(table, plan, machine, take, per_second, stderr if how["progress"] else None)


def _planned(table: LiveTable, most_units: float) -> SamplePlan:
    try:
        return plan_sample(table.size, most_units)
    except ConfigurationError as error:
        raise ConfigurationError(f"--max-units: {str(error).removeprefix('read_units: ')}") from None


def _show_plan(stderr: Console, table: LiveTable, plan: SamplePlan, most_units: float, rate: float) -> None:
    if plan.read_units is None:
        say(stderr, f"{table.title}: DynamoDB has not counted its items yet (it does about every six hours)")
        assumed, about = "", f"at most {most_units:,.10g} read units"
    else:
        counted = f"{table.items:,} items" + (f", {size(table.bytes)}" if table.bytes else "")
        say(stderr, f"{table.title}: {counted}, as DynamoDB counted (about every six hours)")
        # Local engines count the items only.
        assumed = "" if table.bytes else f"if an item has {size(_ASSUMED)}, "
        seconds = duration(max(0.0, plan.read_units - rate * _BURST) / rate)
        about = (
            f"about {plan.read_units:,.0f} read units (at most {most_units:,.10g}), {plan.requests:,} "
            f"request{'' if plan.requests == 1 else 's'}, {_CONCURRENCY} at a time, and {seconds} or more"
        )
    of = f"{plan.segments:,} of {plan.total_segments:,} random segments ({percent(plan.share)} of the keys)"
    say(stderr, f"reading {'all of it' if plan.share == 1 else of}, eventually consistent:")
    say(stderr, f"{assumed}this takes {about}, at {rate:,.10g} units a second")


def _read(
    table: LiveTable,
    plan: SamplePlan,
    machine: SampledScan,
    take: Callable[[Mapping[str, Any]], Mapping[str, float]],
    rate: float,
    console: Console | None,
) -> Sampled:
    from shardkit.capacity.budget import CapacityBudget
    from shardkit.runtime.runner import ClientRunner

    segments = _Segments(table.keys.partition, plan.total_segments, take)
    problem = None
    stopped = threading.Event()

    def wait(seconds: float) -> None:
        if stopped.wait(seconds):  # otherwise, pages that wait for their turn would keep the command from ending
            raise ShardkitError("stopped")

    budget = CapacityBudget(read_units=rate, burst=_BURST, timeout=_LONGEST_WAIT, sleep=wait)
    driver = ClientRunner(table.client, {}, _CONCURRENCY).driver(machine)

    def line(read: int, _: float) -> Line:
        return Line(read, f"{read:,} of {plan.segments:,} segments, {machine.units:,.10g} read units")

    try:
        with budget.attach(table.client), CommandProgress(console, line, plan.segments) as shown:
            while (page := driver.run()) is not None:
                segments.add(page)
                shown.update(segments.sample.segments)
    except KeyboardInterrupt:
        problem = "interrupted"
    except (BotoCoreError, ClientError, ShardkitError) as error:
        problem = str(error)
    finally:
        stopped.set()
        driver.close()
    unfinished = segments.end()
    return Sampled(table, segments.sample, machine.units, unfinished, problem)


class _Segments:
    """Adds up the items of each segment, of which several are read at once."""

    def __init__(
        self, attributes: tuple[str, ...], total: int, take: Callable[[Mapping[str, Any]], Mapping[str, float]]
    ) -> None:
        self.sample = SegmentSample(total)
        self._attributes = attributes
        self._take = take
        self._begun: dict[int, tuple[Counter[str], set[Key]]] = {}

    def add(self, page: Page) -> None:
        figures, keys = self._begun.setdefault(page.segment, (Counter(), set()))
        for wire in page.items:
            item = from_wire_item(wire)
            figures.update({"items": 1})
            figures.update(self._take(item))
            keys.add(tuple([unwrapped(item[name]) for name in self._attributes]))
        if page.last:
            self._end(page.segment)

    def _end(self, segment: int) -> set[Key]:
        figures, keys = self._begun.pop(segment)
        self.sample.add({**figures, "keys": len(keys)})
        return keys

    def end(self) -> frozenset[Key]:
        """Add the segments that were not read to their end; return their keys."""
        return frozenset().union(*[self._end(segment) for segment in list(self._begun)])


def live_outcome(report: Any, draw: Callable[[], object] = lambda: None) -> Outcome:
    """Return how a command ended that has read a sample."""
    return Outcome(report.to_json, report.show, STOPPED if report.found.problem else 0, draw=draw)


def show_sampled(console: Console, found: Sampled, names: Mapping[str, str]) -> None:
    """Print what was read, and the estimates of the figures that are named."""
    sample, table = found.sample, found.table
    part = "all of" if found.whole else f"{percent(sample.share)} of the keys of"
    say(
        console,
        f"read {part} {table.title}: {sample.read('items'):,.0f} items of {sample.read('keys'):,.0f} keys, "
        f"{found.units:,.10g} read units",
    )
    for line in _cautions(found):
        say(console, line, "yellow")
    if found.whole:
        return
    grid = columns(console, "the whole table, about", "estimate", "95% interval")
    for name, label in names.items():
        estimate, text = found.total(name), size if "bytes" in name else rounded
        grid.add_row(label, text(estimate.value), interval(estimate, text))
    show_table(console, grid)


def _cautions(found: Sampled) -> Iterator[str]:
    sample, table = found.sample, found.table
    if found.problem is not None:
        yield f"stopped before its end: {found.problem}; what follows is from what was read until then"
    if found.unfinished:
        yield (
            f"the read units were used up in the middle of {len(found.unfinished):,} keys (marked with +): they have "
            "more, and so has the table"
            if found.problem is None
            else f"{len(found.unfinished):,} keys were not read to their end (marked with +): they have more"
        )
    estimate = sample.total("items")
    if found.whole:
        return
    if found.unseen:
        yield (
            f"DynamoDB counted {table.items:,} items, more than the sample suggests ({interval(estimate)}): a few keys "
            "that were not read have most of them"
        )
    elif 0 < table.items < estimate.low:
        yield (
            f"DynamoDB counted {table.items:,} items, fewer than the sample suggests ({interval(estimate)}): the table "
            "has grown since, or one of few very hot keys was read"
        )


def rounded(figure: float) -> str:
    """Return a figure with three digits: an estimate has no more."""
    return f"{float(f'{figure:.3g}'):,.0f}"


def interval(estimate: Estimate, text: Callable[[float], str] = rounded) -> str:
    if estimate.high == float("inf"):
        return f"at least {text(estimate.low)}"
    return f"{text(estimate.low)} to {text(estimate.high)}"


def sample_to_json(found: Sampled, names: Iterable[str]) -> dict[str, Any]:
    sample, table = found.sample, found.table
    return {
        "table": table.name,
        "index": table.index,
        "counted": {"items": table.items, "bytes": table.bytes},
        "sample": {
            "segments": sample.segments,
            "total_segments": sample.total_segments,
            "share": sample.share,
            "items": int(sample.read("items")),
            "keys": int(sample.read("keys")),
            "read_units": found.units,
            "keys_unfinished": len(found.unfinished),
            "stopped": found.problem,
        },
        "estimates": {name: estimate_to_json(found.total(name)) for name in names},
    }


def estimate_to_json(estimate: Estimate) -> dict[str, float | None]:
    high = None if estimate.high == float("inf") else estimate.high
    return {"value": estimate.value, "low": estimate.low, "high": high}
