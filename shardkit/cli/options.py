"""The options that several commands share, and how a command reads a source."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shardkit.cli.command import STOPPED, Call, Option
from shardkit.cli.screen import CommandProgress, Line, say, size
from shardkit.core.checks import did_you_mean
from shardkit.errors import ConfigurationError, ShardkitError, brief
from shardkit.sharding.shard_map import ShardMap
from shardkit.strategies import CalculatedSuffix, Strategy, Unsharded

if TYPE_CHECKING:
    from rich.console import Console

    from shardkit.bulk.sources.base import Place, Record
    from shardkit.bulk.sources.sections import SectionedSource
    from shardkit.table import ShardedTable

SPREAD, SOURCE, OUTPUT, _AWS = "Spread", "Source", "Output", "AWS"  # how --help groups the options
SHOWN = 10
_MOST_BYTES = 1_000_000  # of a TOML file
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_COLUMNS = {"csv", "tsv", "parquet"}
T = TypeVar("T", bound=Callable[..., Any])


def option(*names: str, **settings: Any) -> Callable[[T], T]:
    return click.option(*names, cls=Option, **settings)


def several(*options: Callable[[T], T]) -> Callable[[T], T]:
    """Return a decorator that adds options to a command, in this order."""
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


COUNT = click.IntRange(min=1)


reading = several(
    option(
        "--format",
        group=SOURCE,
        type=click.Choice(["csv", "tsv", "jsonl", "dynamodb", "parquet"]),
        help="The format of the files; by their names if not given.",
    ),
    option("--types", group=SOURCE, help="Types of columns: Total:N,Gift:BOOL,Raw:B."),
    option("--columns", group=SOURCE, help="Columns of a CSV file without a header: Date,OrderId."),
    option("--delimiter", group=SOURCE, help="The character between two cells."),
    option("--absent", group=SOURCE, multiple=True, help="A cell that means no value, such as NA; repeatable."),
    option("--empty-strings", group=SOURCE, is_flag=True, help="Keep empty cells as empty strings."),
)
"""The options of a source that is read: those of :func:`text_source`."""
spreading = several(
    option(
        "--shards",
        type=COUNT,
        group=SPREAD,
        help="Shards of a partition key, with --by. Without a strategy, the table's shard map is followed, if there is "
        "one; otherwise keys get no suffix.",
    ),
    option("--by", group=SPREAD, help="Attributes (A or A,B) to calculate the shard from."),
    option(
        "--strategy",
        group=SPREAD,
        help='A strategy\'s text form: {"type": "RandomSuffix", "shards": 10}; {"type": "ShardMap"} follows the '
        "table's map.",
    ),
    option(
        "--index",
        "indexes",
        nargs=2,
        multiple=True,
        group=SPREAD,
        metavar="NAME STRATEGY",
        help="A sharded global index and its strategy, as text; may be repeated.",
    ),
)
"""With :data:`exported`, the options of :func:`source_for_table`."""
exported = option(
    "--stored-by",
    group=SOURCE,
    help="The strategy of the sharded table whose export the files are, as text: its suffixes are removed.",
)
as_json = option("--json", "as_json", group=OUTPUT, is_flag=True, help="Print the report as JSON.")
progress = option("--progress/--no-progress", group=OUTPUT, default=True, help="Show the progress on standard error.")
connection = several(
    option("--region", group=_AWS, help="The AWS region."),
    option("--profile", group=_AWS, help="The profile of the AWS configuration."),
    option("--endpoint-url", group=_AWS, help="Another endpoint than the region's."),
)
"""The options of ``Aws``."""


def text_source(call: Call, where: str, *, columns: str | None, **options: Any) -> SectionedSource:
    """Open a command's source, with the options of :data:`reading` and others of :func:`open_source`."""
    from shardkit.bulk.sources.opening import open_source

    if where.startswith("s3://") and "s3" not in options:
        options["s3"] = call.s3()
    return open_source(where, columns=columns.split(",") if columns else None, **options)


def source_for_table(
    call: Call,
    where: str,
    make: Callable[..., ShardedTable],
    *,
    shards: int | None,
    by: str | None,
    strategy: str | None,
    indexes: Iterable[tuple[str, str]],
    stored_by: str | None,
    follows: bool = False,
    **options: Any,
) -> tuple[SectionedSource, ShardedTable]:
    """Make a table by the options of :data:`spreading`, and open a source whose items are written into it.

    ``follows``: without a strategy, the table's shard map is followed, if it has one.
    """
    spread = spread_strategy(shards, by, strategy)
    of_indexes = {name: parsed_strategy(form, f"--index {name}") for name, form in indexes}
    make = partial(make, indexes=of_indexes)
    follows = follows and (shards, by, strategy) == (None, None, None)
    table = following(make) if follows else make(strategy=spread)
    exported = None if stored_by is None else parsed_strategy(stored_by, "--stored-by")
    source = text_source(call, where, table=table, stored_by=exported, **options)
    check_attributes("--by" if by else "--strategy", spread.by_attributes or (), source)
    return source, table


def following(make: Callable[..., ShardedTable]) -> ShardedTable:
    """Make a table that follows its shard map, if it has one, and is unsharded otherwise."""
    table = make(strategy=Unsharded())
    return make(strategy=ShardMap()) if table.runner.run(table.runner.programs.has_map()) else table


def parsed_strategy(form: str, option: str = "--strategy") -> Strategy:
    """Return the strategy of ``--strategy``, or of another option."""
    try:
        parsed = json.loads(form)
    except (RecursionError, ValueError) as error:
        raise ConfigurationError(
            f"{option}: {brief(form, 200)} is not valid JSON ({error}); give for example "
            '\'{"type": "CalculatedSuffix", "by": "OrderId", "shards": 10}\''
        ) from error
    try:
        return Strategy.from_dict(parsed)
    except ConfigurationError as error:
        message = str(error)
        if not message.startswith("form:"):
            raise
        raise ConfigurationError(f"{option}{message.removeprefix('form')}") from error


def spread_strategy(shards: int | None, by: str | None, form: str | None) -> Strategy:
    """Return the strategy of :data:`spreading`; without options, keys get no suffix."""
    if form is not None:
        if shards is not None or by is not None:
            raise ConfigurationError(
                "--strategy: is not supported together with --shards and --by; give one or the other"
            )
        return parsed_strategy(form)
    if (shards is None) != (by is None):
        raise ConfigurationError(
            "--shards, --by: give both or neither; for a random suffix, give "
            '--strategy \'{"type": "RandomSuffix", "shards": 10}\''
        )
    if shards is None or by is None:
        return Unsharded()
    return calculated_suffix(by, shards)


def described(source: SectionedSource, more: str = "") -> str:
    """Return the format and the size of a source."""
    return f"{source.format}{f', {size(source.bytes_total)}' if source.bytes_total else ''}{more}"


def say_types(console: Console, source: SectionedSource) -> None:
    if source.types:
        say(console, "types: " + ", ".join(f"{name}:{letter}" for name, letter in source.types.items()))


def show_failures(console: Console, failures: Sequence[tuple[Any, str]], count: int, what: str = "failed") -> None:
    """Print the first failures, and how many more there are."""
    for place, reason in failures:
        say(console, f"{what}: {place}: {reason}")
    if more := count - len(failures):
        say(console, f"and {more:,} more {'failures' if what == 'failed' else f'{what}s'}")


def rate_of(text: str | None) -> float | str | None:
    """Return the number of ``--write-units`` as a float; everything else (a share) is parsed where it is used."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def parsed_toml(option: str, path: str) -> dict[str, Any]:
    file = Path(path)
    if file.exists() and not (file.is_file() and file.stat().st_size <= _MOST_BYTES):
        raise ConfigurationError(f"{option}: {path} is not a file of at most {_MOST_BYTES:,} bytes; give a TOML file")
    try:
        parsed: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(f"{option}: there is no file at {path!r}; give a TOML file") from None
    except (RecursionError, ValueError) as error:  # ValueError: also for an integer of thousands of digits
        raise ConfigurationError(f"{option}: {path} is not TOML: {error}") from error
    return parsed


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of a duration: 90s, 30m, 3h, 1d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None:
        raise ConfigurationError(
            f"{option}: {text!r} is not a duration; give seconds, minutes, hours or days: 90s, 30m, 3h, 1d"
        )
    return float(found[1]) * _SECONDS[found[2]]


def calculated_suffix(
    by: str, shards: int, *, source: str | None = None, attribute: str | None = None
) -> CalculatedSuffix:
    """Return the strategy of ``--by``, an attribute (A) or several (A,B); for an index, with the last two."""
    names = tuple(name.strip() for name in by.split(","))
    return CalculatedSuffix(names[0] if len(names) == 1 else names, shards=shards, source=source, attribute=attribute)


def check_attributes(option: str, names: Iterable[str], source: SectionedSource, *, rare: bool = False) -> None:
    """Check, before a source is read, that its records have the attributes that an option names.

    Without columns, a sample of at most 16,000 records is checked. If ``rare``, few records need to have the
    attributes: one that the sample lacks is refused only if it looks like a typo.
    """
    known = source.attributes
    columns = source.format in _COLUMNS
    for name in names:
        near = did_you_mean(name, known)
        if not known or name in known or (rare and not near and not columns):
            continue
        lacking = f"there is no column {name!r}" if columns else f"no item in the sample has an attribute {name!r}"
        have = f"{'the columns are' if columns else 'they have'} {', '.join(known):.500}"
        raise ConfigurationError(f"{option}: {lacking}{near}; {have}")


@dataclass
class BadRecords:
    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, place: str, error: Exception) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append((place, str(error)))

    def show(self, console: Console) -> None:
        show_failures(console, self.first, self.count, "bad record")

    def to_dict(self) -> dict[str, Any]:
        first = [{"place": place, "reason": reason} for place, reason in self.first]
        return {"bad_records": self.count, "first_bad_records": first}


def read_all(source: SectionedSource, take: Callable[[Mapping[str, Any]], object], call: Call) -> BadRecords:
    """Hand every item of a source to ``take``; return the records that are not items, or that it refuses."""
    from shardkit.bulk.sources.base import BadRecord

    bad = BadRecords()
    with call.refusing("stopped before its end", STOPPED), reading_progress(call.shown, source) as shown:
        for number, (place, record) in enumerate(_unbroken(source)):
            if not number % 256:
                shown.update(number)
            if isinstance(record, BadRecord):
                bad.add(source.where(place), record.error)
                continue
            try:
                take(record)
            except (ShardkitError, ArithmeticError) as error:
                bad.add(source.where(place), error)
    return bad


def _unbroken(source: SectionedSource) -> Iterator[tuple[Place, Record]]:
    try:
        yield from source.read()
    except Exception as error:
        # A cut file or a lost connection raises whatever its reader raises.
        raise ShardkitError(f"the source broke off ({str(error) or type(error).__name__})") from error


def reading_progress(console: Console | None, source: SectionedSource, **clock: Any) -> CommandProgress[int]:
    def line(items: int, seconds: float) -> Line:
        read, whole = source.bytes_read, source.bytes_total
        of = f", {size(read)} of {size(whole)}" if whole else ""
        return Line(read, f"{items:,} records read, {items / seconds:,.0f}/s", of)

    return CommandProgress(console, line, source.bytes_total, **clock)
