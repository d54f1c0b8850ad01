"""``shardkit heat --table T --throttled``: the hot keys that CloudWatch Contributor Insights knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, Unpack

from botocore.exceptions import ClientError
from rich.text import Text

from shardkit.analysis.contributors import MOST_CONTRIBUTORS, PERIOD, Contributor, Kind, contributors_of, rules_of
from shardkit.analysis.hot_index import index_advice
from shardkit.analysis.per_key import SUFFIXED, PerKey, are_few
from shardkit.cli.live_table import LiveTable
from shardkit.cli.screen import clipped, columns, percent, say, show_table
from shardkit.core.checks import check_count
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError
from shardkit.strategies import Strategy

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid

_LONGEST_KEY = 30
# A status instead of a code: the answer is not DynamoDB's, but a page of a local engine.
_UNKNOWN = {"UnknownOperationException", "404", "500", "501"}


@dataclass(frozen=True)
class Throttled:
    """What Contributor Insights reports of a table or an index, by what it measures.

    For advice: ``partition`` are the attributes of an index's partition key, ``by`` those of the table's primary key;
    ``number``: its partition key is a number, though the reports have texts.
    """

    table: str
    index: str | None
    mode: str | None
    since: datetime
    until: datetime
    reports: dict[Kind, list[Contributor]]
    strategy: Strategy | None
    partition: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    number: bool = False

    def show(self, console: Console) -> None:
        name = self.table if self.index is None else f"{self.table}, index {self.index}"
        say(console, f"{name}, {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC")
        for kind, found in self.reports.items():
            console.print()
            say(console, f"{kind.title}{':' if found else ': none'}", "bold")
            if found:
                show_table(console, _grid(console, kind, found))
            for line in (*self._few(kind, found), *self._logical(kind, found), *self._advice(kind, found)):
                say(console, f"  {line}")

    def _few(self, kind: Kind, found: Sequence[Contributor]) -> Iterator[str]:
        """Yield what to write if the table is not sharded and only a few of its keys are hot."""
        if self.strategy is not None or self.index is not None or not self.by[1:]:
            return
        hot = {one.keys[0]: one.shards_needed() for one in found if one.near or kind.throttles}
        if not kind.of_keys or not are_few(hot, None) or None in hot.values():
            return
        if self.number:
            yield "the partition key is a number, which cannot have a suffix: shard a table whose key is its text"
            return
        yield "if these are all hot keys, give shards to them alone; the others keep one shard, and cheap Queries"
        yield SUFFIXED
        if kind.throttles:
            named = PerKey(dict.fromkeys(hot, "N"), self.by[1:])  # what they ask for is not known
            yield f"write: {named.line}, with N from shardkit plan shards"
            return
        few = PerKey(hot, self.by[1:])
        yield f"write: {few.line}"
        yield f"or as an option: {few.option}"

    def _logical(self, kind: Kind, found: Sequence[Contributor]) -> Iterator[str]:
        """Yield what the stored keys, of which there are several, are of each logical key."""
        if self.strategy is None or not kind.of_keys:
            return
        values: dict[Any, float] = {}
        places: dict[Any, set[Any]] = {}
        for one in found:
            key, _ = self.strategy.split(one.keys[0])
            values[key] = values.get(key, 0.0) + one.value
            places.setdefault(key, set()).add(one.keys[0])
        for key, value in sorted(values.items(), key=lambda one: -one[1]):
            of = f"{len(places[key]):,} of its {len(self.strategy.physical_keys(key)):,} shards"
            yield f"{clipped(str(key), _LONGEST_KEY)}: {of}, {value:,.0f} {_unit(kind)} together"

    def _advice(self, kind: Kind, found: Sequence[Contributor]) -> Iterator[str]:
        if kind.code == "PKT" and found:
            yield f"throttled because the key is too hot, or because the whole {self._what} is: the errors"
            yield "say which (docs/troubleshooting.md); more shards help only against the first"
            if self._sharded_as_index:
                yield "a hot index throttles the writes of its table; docs/sharded-indexes.md: how to shard it"
        elif kind.code == "PKC":
            for one in found:
                if one.near:
                    shards = self._shards(one)
                    needed = one.shards_needed(shards)
                    what = "no number of shards is enough" if needed is None else f"{needed:,} shards instead of"
                    yield f"advice: {clipped(one.keys[0], _LONGEST_KEY)}: {what} {shards:,}, for its busiest minute"
                    if needed is not None and self._sharded_as_index and self.strategy is None:
                        yield f"  {index_advice(self.index, self.partition, self.by, needed)}"

    @property
    def _what(self) -> str:
        return "table" if self.index is None else "index"

    @property
    def _sharded_as_index(self) -> bool:
        """Whether shards of the index help: it does not have the table's partition key, which may have shards."""
        return self.index is not None and not {*self.by[:1]} & {*self.partition}

    def _shards(self, one: Contributor) -> int:
        return 1 if self.strategy is None else len(self.strategy.shards_for(self.strategy.split(one.keys[0])[0]))

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "index": self.index,
            "mode": self.mode,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "reports": [
                {
                    "kind": kind.code,
                    "title": kind.title,
                    "keys": [
                        {
                            "keys": list(one.keys),
                            "value": one.value,
                            "peak": one.peak,
                            "peak_at": None if one.peak_at is None else one.peak_at.isoformat(),
                            "peak_share": None if kind.throttles else one.peak_share,
                        }
                        for one in found
                    ],
                }
                for kind, found in self.reports.items()
            ],
        }


@dataclass(frozen=True)
class ThrottledTable:
    """What Contributor Insights reports of a table and of its global indexes; ``off`` says of which it reports none."""

    reports: Sequence[Throttled]
    off: Sequence[str] = ()

    def show(self, console: Console) -> None:
        for place, one in enumerate(self.reports):
            if place:
                console.print()
            one.show(console)
        if self.off:
            console.print()
        for line in self.off:
            say(console, line)

    def to_json(self) -> dict[str, Any]:
        first, *more = (one.to_json() for one in self.reports)
        return {**first, "indexes": more, "off": [*self.off]}


def _unit(kind: Kind) -> str:
    return "throttles" if kind.throttles else "units"


def _grid(console: Console, kind: Kind, found: Sequence[Contributor]) -> Grid:
    grid = columns(console, "  key", _unit(kind), "busiest minute", "at", *([] if kind.throttles else ["share"]))
    for one in found:
        grid.add_row(
            Text(f"  {clipped('#'.join(one.keys), _LONGEST_KEY)}"),
            f"{one.value:,.0f}",
            f"{one.peak:,.0f}",
            "-" if one.peak_at is None else f"{one.peak_at:%d %H:%M}",
            *([] if kind.throttles else [percent(one.peak_share)]),
        )
    return grid


class _Window(TypedDict):
    """What to ask for, and of which strategy the stored keys are."""

    until: datetime
    last: timedelta
    top: int
    strategy: NotRequired[Strategy | None]


class _NotEnabledError(ConfigurationError):
    """Contributor Insights has no reports of a table or an index."""


def read_throttled_table(dynamodb: Any, cloudwatch: Any, table: LiveTable, **window: Unpack[_Window]) -> ThrottledTable:
    """Read the reports of a table and of its global indexes, or of one index, as far as they are enabled."""
    keys = {index.name: index.keys.partition for index in table.global_indexes}
    found: list[Throttled] = []
    problems: list[_NotEnabledError] = []
    for index in (None, *keys) if table.index is None else (table.index,):
        partition = () if index is None else keys.get(index, ())
        one = window
        if table.index is None and index is not None and table.own_key not in partition:
            one = {**window, "strategy": None}  # it is the table's
        try:
            read = read_throttled(dynamodb, cloudwatch, table.name, index, **one)
        except _NotEnabledError as error:
            problems.append(error)
        else:
            number = table.key_types.get(table.own_key) == "N"
            found.append(replace(read, partition=partition, by=table.own_keys.names, number=number))
    if not found:
        raise problems[0]
    return ThrottledTable(found, [str(one).removeprefix("--throttled: ").partition(";")[0] for one in problems])


def read_throttled(
    dynamodb: Any, cloudwatch: Any, table: str, index: str | None, **window: Unpack[_Window]
) -> Throttled:
    """Read the reports of a table's rules: one DescribeContributorInsights, and one GetInsightRuleReport for each."""
    until, top = window["until"], window["top"]
    check_count("--top", top, "keys", most=MOST_CONTRIBUTORS, why="Contributor Insights reports no more")
    of = {"TableName": table} if index is None else {"TableName": table, "IndexName": index}
    try:
        described = dynamodb.describe_contributor_insights(**of)
    except ClientError as error:
        raise ConfigurationError(_not_described(error, table)) from error
    rules = rules_of(described.get("ContributorInsightsRuleList") or ())
    if described.get("ContributorInsightsStatus") != "ENABLED" or not rules:
        raise _NotEnabledError(_not_enabled(described, table, index))
    since = until - window["last"]
    asked = {"StartTime": since, "EndTime": until, "Period": PERIOD, "MaxContributorCount": top, "OrderBy": "Sum"}
    reports = {
        kind: contributors_of(cloudwatch.get_insight_rule_report(RuleName=rule, **asked))
        for kind, rule in rules.items()
    }
    mode = described.get("ContributorInsightsMode")
    return Throttled(table, index, mode, since, until, reports, window.get("strategy"))


def _not_described(error: ClientError, table: str) -> str:
    if code_of(error) in _UNKNOWN:
        return (
            "--throttled: this endpoint has no Contributor Insights (local engines have none); omit --throttled to "
            "read a sample of the table"
        )
    return (
        f"--throttled: DescribeContributorInsights of table {table!r} failed: {error}; check the table's name, the "
        "region (--region, --profile) and the permission dynamodb:DescribeContributorInsights"
    )


def _not_enabled(described: Any, table: str, index: str | None) -> str:
    status = described.get("ContributorInsightsStatus", "DISABLED")
    failure = (described.get("FailureException") or {}).get("ExceptionDescription")
    of = f"table {table!r}" if index is None else f"index {index!r} of table {table!r}"
    said = f"--throttled: CloudWatch Contributor Insights is {status} for {of}{f' ({failure})' if failure else ''}"
    if status == "ENABLING":
        return f"{said}; try again in a few minutes"
    name = f"--table-name {table}" + ("" if index is None else f" --index-name {index}")
    return (
        f"{said}; enable it with: aws dynamodb update-contributor-insights {name} --contributor-insights-action ENABLE "
        "--contributor-insights-mode THROTTLED_KEYS. CloudWatch charges for each of its rules (one, or two if there is "
        "a sort key) by the month, and for each throttled item: https://aws.amazon.com/cloudwatch/pricing/. Keys are "
        "then shown in plain text in CloudWatch"
    )
