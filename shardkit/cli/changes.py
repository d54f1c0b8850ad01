"""``shardkit count``, ``update``, ``delete``, ``copy`` and ``compare``: what becomes of a table's items."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import orjson

from shardkit.cli import options
from shardkit.cli.command import FAILED, STOPPED, Aws, Call, Command, Outcome, agreed
from shardkit.cli.live_table import estimate_to_json
from shardkit.cli.options import COUNT, following, option, parsed_strategy, rate_of, several, show_failures
from shardkit.cli.passes import CONNECTIONS, PACE, PassProgress, consumed, read_units, write_units
from shardkit.cli.screen import Line, duration, say
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError, brief
from shardkit.passes import changes
from shardkit.passes.comparing import COUNTED
from shardkit.passes.table_pass import PassReport
from shardkit.runtime.transports import default_transport
from shardkit.table import ShardedTable

if TYPE_CHECKING:
    from rich.console import Console

ITEMS = "Items"  # how --help groups the options
_COUNTED = ("found", "changed", "unchanged", "overtaken", "resumed", *COUNTED, "failed")
_table = several(
    option("--strategy", group=ITEMS, help="The table's strategy as JSON; by default its shard map's, or none."),
    read_units,
    option("--workers", type=COUNT, group=PACE, default=CONNECTIONS, help="Requests in flight at once."),
    option("--segments", type=COUNT, group=PACE, help="Places of the table that are read or written in turn."),
    option("--journal", help="A file that makes it resumable; deleted at the end."),
    options.connection,
    options.as_json,
    options.progress,
)
_where = several(
    option("--where", group=ITEMS, help="Which items: 'Total > :t AND #s = :s'; by default all."),
    option("--values", group=ITEMS, help='The values of the texts, as JSON: {":t": 5, ":s": "open"}.'),
    option("--names", group=ITEMS, help='The names of the texts, as JSON: {"#s": "Status"}.'),
    option("--index", group=ITEMS, help="Read this index instead of the table."),
)
_dead_letters = option("--dead-letters", help="A file of what failed, or of what differs, with the reasons.")
_writing = several(
    option("--dry-run", is_flag=True, help="Read all, and say what it would take; write nothing."),
    option("--yes", is_flag=True, help="Do not ask."),
    write_units,
    _dead_letters,
    _where,
    _table,
)
_before = option("--before", help="A new file of the items as they were; shardkit load of it undoes the change.")
_target = several(
    option("--target-strategy", group="Target", help="The strategy of TARGET as JSON."),
    option("--target-region", group="Target", help="The Region of TARGET."),
    option("--target-profile", group="Target", help="The AWS profile of TARGET."),
    option("--target-endpoint-url", group="Target", help="Another endpoint for TARGET."),
)
_AGAIN = "2 wrong use, 3 stopped before its end (with --journal, the same command goes on)"


def _command(doc: str, arguments: str, *decorators: Callable[[Any], Any], codes: str = "0 done, 1 some failed") -> Any:
    """Return the command that runs the pass whose name ``doc`` begins with."""
    what = doc.split(maxsplit=1)[0].lower()

    def ran(call: Call, **given: Any) -> Outcome:
        names = tuple(given.pop(name) for name in arguments.split() if name != "change")
        change = (given.pop("change"),) if "change" in given else ()
        return _ran(call, what, _opened(call, names, given), given, *change)

    ran.__doc__ = f"{doc}\n\nExit codes: {codes}, {_AGAIN}."
    taken = several(*map(click.argument, arguments.split()), *decorators)
    return click.command(what, cls=Command)(taken(ran))


count = _command("Count the items of a table that meet a condition.", "table", _where, _table, codes="0 counted")
update = _command(
    "Update the items of a table that meet a condition; other writers win.\n\n"
    "CHANGE is an UpdateExpression: 'SET Price = Price + :more REMOVE Draft'.",
    "table change",
    _before,
    _writing,
)
delete = _command("Delete the items of a table that meet a condition; other writers win.", "table", _before, _writing)
copy = _command(
    "Copy the items of a table into another one: account, Region and strategy may differ.",
    "source target",
    _target,
    option("--overwrite", is_flag=True, help="Replace items that TARGET has."),
    _writing,
)
compare = _command(
    "Compare the items of two tables, after a copy, an import or a move.",
    "source target",
    _target,
    option("--sample", type=float, default=1.0, help="The share of the partition keys to compare, drawn at random."),
    _dead_letters,
    _table,
    codes="0 equal, 1 different",
)


def _opened(call: Call, names: tuple[str, ...], given: dict[str, Any]) -> list[ShardedTable]:
    own = {name: given.pop(f"target_{name}", None) for name in ("strategy", *Aws._fields)}
    aws = Aws(*(own[name] or getattr(call.aws, name) for name in Aws._fields))
    connections, tables = max(CONNECTIONS, given["workers"]), []
    resources = {one: call.dynamodb(connections, one) for one in (call.aws, aws)}
    for name, one, form in zip(names, (call.aws, aws), (given.pop("strategy"), own["strategy"]), strict=False):
        how = {"max_concurrency": given["workers"], "transport": default_transport(one.profile)}
        make = partial(ShardedTable, resources[one].Table(name), **how)
        tables.append(following(make) if form is None else make(strategy=parsed_strategy(form)))
        call.say(f"{name}: {tables[-1].strategy!r}")
    return tables


def _ran(call: Call, what: str, tables: list[ShardedTable], given: dict[str, Any], *change: str) -> Outcome:
    """Ask, run a pass, and return its outcome."""
    shown: PassProgress[Any] = call.enter(PassProgress(call.shown, _line))
    taken: dict[str, Any] = {**given, "progress": shown.update}
    for name, parameter in (("names", "ExpressionAttributeNames"), ("values", "ExpressionAttributeValues")):
        taken[parameter] = _parsed(f"--{name}", taken.pop(name, None))
    if "write_units" in given:
        taken["write_units"] = rate_of(given["write_units"])
        if not given["dry_run"]:
            _confirm(call, what if len(tables) == 1 else f"{what} {tables[0].name}", tables[-1], given)
    for name in ("workers", "yes", *(name for name, one in taken.items() if one is None)):
        taken.pop(name, None)
    done = shown.run(call, tables[0].name, lambda: getattr(changes, what)(*tables, *change, **taken))
    report = done or shown.report
    if report is None:
        raise call.ended("stopped before its end: interrupted")
    code, note = FAILED if report.failed else 0, ""
    if done is None:
        again = f"the same command goes on from {given['journal']}" if given["journal"] else "nothing of it is recorded"
        code, note = STOPPED, f"stopped before its end: {again}"
    return Outcome(lambda: {"exit_code": code, **_told(report)}, lambda console: _show(console, report), code, note)


def _confirm(call: Call, what: str, table: ShardedTable, given: Mapping[str, Any]) -> None:
    """Ask whether this is the table to be changed, by its account, Region, name, and the number of its items."""
    described = table.meta.client.describe_table(TableName=table.name)["Table"]
    _, _, _, region, account, *_ = described.get("TableArn", "").split(":") + [""] * 5
    about = f"table {table.name}, account {account}, Region {region}: {described.get('ItemCount', 0):,} items"
    which = f" WHERE {given['where']}" if given["where"] else ", all items"
    asked = f"{what}{which}: {about}, as DynamoDB counted (about every six hours)"
    call.say(asked)
    if not (given["yes"] or agreed("Go on?")):
        raise ConfigurationError(f"--yes: was not given, and nobody could be asked or agreed; it confirms: {asked}")


def _parsed(name: str, text: str | None) -> dict[str, Any] | None:
    try:
        parsed = None if text is None else json.loads(text, parse_float=Decimal)
    except (RecursionError, ValueError):
        parsed = text
    if isinstance(parsed, dict | None):
        return parsed
    raise ConfigurationError(f"{name}: must be a JSON object, got {brief(text, 200)}")


def _told(report: Any) -> dict[str, Any]:
    told = {name: one for name, one in asdict(report).items() if name not in {"verified", "left"}}
    if isinstance(told.get("sample"), tuple):
        told["sample"] = [[one and orjson.loads(encode(to_wire_item(one))) for one in pair] for pair in told["sample"]]
    if "estimates" in told:
        told["estimates"] = {name: estimate_to_json(one) for name, one in report.estimates.items()}
    return told


def _counted(report: Any) -> str:
    # What a comparison failed are the differences.
    counted = {name: getattr(report, name, 0) for name in _COUNTED if name != "failed" or not hasattr(report, "equal")}
    return "".join(f", {number:,} {name}" for name, number in counted.items() if number)


def _line(report: PassReport, seconds: float) -> Line:
    return Line(report.read, f"{report.read:,} items read{_counted(report)}, {duration(seconds)}")


def _show(console: Console, report: Any) -> None:
    say(console, f"{report.read:,} items read{_counted(report)}")
    show_failures(console, report.failures, report.failed, "difference" if hasattr(report, "equal") else "failed")
    for name, estimate in getattr(report, "estimates", {}).items():
        say(console, f"{name} in all: about {estimate.value:,.0f}, at most {estimate.high:,.0f} (95%)")
    if getattr(report, "equal", False):
        say(console, "no difference" if report.sample == 1 else f"no difference in {report.sample:.1%} of the keys")
    if getattr(report, "dry_run", False):
        for before, after in report.sample:
            say(console, f"{before}{'' if after is None else f' -> {after}'}")
        indexes = report.units.global_indexes
        of_indexes = "".join(f", {units:,.0f} of index {name}" for name, units in indexes.items())
        of_table = report.units.total - sum(indexes.values())
        lasts = "" if report.expected_seconds is None else f", {duration(report.expected_seconds)} or more"
        say(console, f"would take {of_table:,.0f} write units of the table{of_indexes}{lasts}")
    say(console, consumed(report))
