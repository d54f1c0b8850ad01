"""What the verbs of ``shardkit reshard`` share: what was given, the passes over the table, and what they show."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shardkit.cli.command import FAILED, agreed
from shardkit.cli.options import calculated_suffix, parsed_strategy, rate_of
from shardkit.cli.passes import PassProgress, consumed, throttles
from shardkit.cli.screen import Line, columns, duration, say, show_table
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError, InvalidKeyError, brief
from shardkit.migrate import move, plan, verify
from shardkit.migrate.between import described
from shardkit.migrate.marks import Moving
from shardkit.migrate.migrating import plan_return
from shardkit.migrate.move_plan import MovePlan, Units, refused_indexes
from shardkit.migrate.mover import Location, MoveReport, location_of
from shardkit.passes.table_pass import reading
from shardkit.runtime.transports import default_transport
from shardkit.sharding.seam import Operations
from shardkit.strategies import Resharding, Strategy, Unsharded
from shardkit.table import ShardedTable

if TYPE_CHECKING:
    from rich.console import Console

_STRATEGIES = {"old", "new", "by", "shards"}
_KEPT = {
    *_STRATEGIES,
    *("write_units", "read_units", "workers", "journal"),
    *("region", "profile", "endpoint_url"),
}
"""The options that all commands of a move need alike."""


@dataclass
class Done:
    """What a verb did, how to show it, and what to do next."""

    code: int = 0
    told: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    grid: Callable[[Console], None] | None = None

    def show(self, console: Console) -> None:
        for line in self.lines:
            say(console, line)
        if self.grid is not None:
            self.grid(console)
        for number, line in enumerate(self.then):
            say(console, f"{'      ' if number else 'next: '}{line}")


Given = tuple[Any, PassProgress[MovePlan | MoveReport], Mapping[str, Any]]
"""The table, the progress, and the options that were given."""


def done_so_far(report: MovePlan | MoveReport | None) -> str:
    if report is None:
        return ""
    read = [f"{report.read:,} items read"] if report.read else []
    moved = [f"{report.moved:,} moved"] if isinstance(report, MoveReport) and report.read else []
    verified = [f"{report.verified:,} items verified", f"{report.left:,} left"] if report.verified else []
    return ", ".join([*read, *moved, *verified])


def progress_line(report: MovePlan | MoveReport, seconds: float) -> Line:
    moves = report.write_units and report.seconds
    rate = f", {report.write_units / report.seconds:,.0f} write units/s" if moves else ""
    done = done_so_far(report) or "0 items read"
    return Line(report.read + report.verified, f"{done}{rate}{throttles(report)}, {duration(seconds)}")


class ReshardSteps:
    """The passes over a table, and the strategies that were given."""

    def __init__(self, table: Any, progress: PassProgress[MovePlan | MoveReport], given: Mapping[str, Any]) -> None:
        self.table = table
        self.given = given
        self._progress = progress

    def strategies(self) -> Resharding:
        """Return the move from the old strategy to the new one, as given."""
        old, new = self.old, self.new
        if old is None or new is None:
            missing = "--from" if old is None else "--to (or --by and --shards)"
            raise ConfigurationError(
                f"{missing}: missing; for example --from unsharded --by OrderId --shards 200, or JSON: "
                '--to \'{"type": "CalculatedSuffix", "by": "OrderId", "shards": 200}\''
            )
        return Resharding(old, new, stage="move")

    @property
    def old(self) -> Strategy | None:
        given = self.given["old"]
        if given is None:
            return None
        return Unsharded() if given.lower() == "unsharded" else parsed_strategy(given, "--from")

    @property
    def new(self) -> Strategy | None:
        new, by, shards = (self.given[name] for name in ("new", "by", "shards"))
        if new is not None:
            if by is not None or shards is not None:
                raise ConfigurationError("--to: is not supported with --by and --shards; give one or the other")
            return Unsharded() if new.lower() == "unsharded" else parsed_strategy(new, "--to")
        if (by is None) != (shards is None):
            raise ConfigurationError("--by, --shards: give both, or --to")
        return None if by is None else calculated_suffix(by, shards)

    def confirm(self, flag: str, what: str) -> None:
        """Check that the user knows what is to be true before a step."""
        if not (self.given[flag] or agreed(f"{what}: is that so?")):
            raise ConfigurationError(f"--{flag}: {what}; add --{flag} when it is so")

    def sharded(self, strategy: Strategy) -> ShardedTable:
        transport = default_transport(self.given["profile"])
        return ShardedTable(self.table, strategy, max_concurrency=self.given["workers"], transport=transport)

    def again(self, verb: str, *, back: bool = False) -> str:
        """Return the command for another verb, with the options that were given for all of them.

        With ``back``, it moves from the new strategy to the old one.
        """
        context = click.get_current_context()
        kept = _KEPT if context.params["key"] is None and not back else _KEPT - _STRATEGIES
        given = [
            (each.opts[0], context.params[each.name])
            for each in context.command.params
            if each.name in kept and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
        ]
        texts = (f"{one:.15g}" if isinstance(one, float) else str(one) for one in chain(*given))
        exchanged = (("--from", self.strategies().new), ("--to", self.strategies().old)) if back else ()
        forms = chain(*((name, _form(strategy)) for name, strategy in exchanged))
        return shlex.join(["shardkit", "reshard", self.table.name, *forms, *texts, *shlex.split(verb)])

    def check(self, move: Resharding) -> Operations:
        """Refuse a move that the table's key schema or its indexes do not allow; no item is read."""
        description = self.table.meta.client.describe_table(TableName=self.table.name)["Table"]
        sharding = described(self.table.name, move, description, stage="move")
        if sharding.hiding_marks:
            raise ConfigurationError(refused_indexes(sorted(sharding.hiding_marks)))
        return sharding

    def check_old(self, move: Resharding) -> None:
        """Check a move, and refuse an old strategy by which the items of the table's first page are not stored."""
        moving = self.check(move)
        if not move.moves:
            return  # only the number of random shards grows
        assert isinstance(moving, Moving)
        for item in self.table.scan(**reading(moving.key_names))["Items"]:
            with suppress(InvalidKeyError):
                location, homes = location_of(moving, to_wire_item(item))
                if homes.same or location is Location.OLD:
                    continue
            raise ConfigurationError(
                f"--from: by {move.old!r}, no item is stored as {brief(item, 300)}; give the strategy by which the "
                "items are stored, as JSON, or, if that is a key of its own which looks like a shard of another, --to "
                f"with another separator; all such items: {self.again('plan')}"
            )

    def options(self, *names: str) -> Any:
        more = {"write_units": rate_of(self.given["write_units"]), "journal": self.given["journal"]}
        read_units, progress = self.given["read_units"], self._progress.update
        return {"read_units": read_units, "progress": progress, **{name: more[name] for name in names}}

    def plan(self, strategies: Resharding, *then: str) -> Done:
        found = plan(self.sharded(strategies), **self.options("write_units"))
        remedies = tuple(_remedies(found, strategies.new))
        return Done(
            FAILED if remedies else 0,
            asdict(found),
            tuple(str(found).splitlines()),
            remedies or then,
            grid=lambda console: _costs(console, found),
        )

    def at_new_places(self) -> tuple[int, int]:
        """Return how many stubs there are, and how many items stage ``"guard"`` would not find, or not write."""
        found = plan_return(self.sharded(self.strategies()), **self.options())
        return found.stubs, found.ambiguous

    def move(self, strategy: Strategy, *then: str, left: tuple[str, ...]) -> Done:
        """Move and verify; ``left`` says what to do if items are left, beside mending those that failed."""
        report = move(self.sharded(strategy), **self.options("write_units", "journal"))
        return _moved(report, then, left)

    def verify(self, strategy: Strategy, *then: str, left: tuple[str, ...]) -> Done:
        report = verify(self.sharded(strategy), **self.options())
        return _moved(report, then, left)


def _form(strategy: Strategy) -> str:
    return "unsharded" if isinstance(strategy, Unsharded) else json.dumps(strategy.to_dict())


def _remedies(found: MovePlan, new: Strategy) -> Iterator[str]:
    """Say what to do about what a plan has found."""
    if found.refused_indexes:
        yield "make another index that projects ALL attributes, let services read it, and delete the refused one"
    if found.too_large:
        yield "make the items that are too large smaller"
    if not found.ambiguous:
        return
    separator = new.separator
    if not separator or 2 * found.ambiguous > found.read:
        yield "many items look like shards already: check that --from is the strategy by which they are stored"
    if separator:
        form = json.dumps({**new.to_dict(), "separator": "|" if "#" in separator else "#"})
        yield f"choose another separator, which is in no key: --to {shlex.quote(form)}"


def _costs(console: Console, found: MovePlan) -> None:
    grid = columns(console, "read + write units", "get, old", "get, new", "write, old", "write, new", "put, absent")
    for one in found.costs:
        units = (one.get_old, one.get_new, one.write_old, one.write_new, one.write_absent)
        grid.add_row(f"stage {one.stage}", *map(_shown, units))
    show_table(console, grid)
    if found.read:
        say(
            console,
            f"Units of one operation on an item of the mean size, {found.bytes // found.read:,} bytes, which is at its "
            "old or its new place; absent: a put where there is none. Reads are eventually consistent.",
        )


def _shown(units: Units) -> str:
    return f"{units.read:g} + {units.write:g}"


def _moved(report: MoveReport, then: tuple[str, ...], left: tuple[str, ...]) -> Done:
    if report.left:
        then = ("mend what failed", *left) if report.failures else left
    lines = (*str(report).splitlines(), consumed(report))
    return Done(FAILED if report.left else 0, asdict(report), lines, then)
