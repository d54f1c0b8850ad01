"""What several commands share: their options, and how they read sources, report errors and exit."""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError
from click.exceptions import Exit
from rich.console import Console

from shardkit.cli.screen import CommandProgress, say, size
from shardkit.core.checks import did_you_mean
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import ConfigurationError, ShardkitError, TableNotDescribedError
from shardkit.strategies import CalculatedSuffix, Strategy, Unsharded

if TYPE_CHECKING:
    from shardkit.bulk.sources.base import Place, Record
    from shardkit.bulk.sources.sections import SectionedSource

FAILED, WRONG_USE, STOPPED = 1, 2, 3
"""Exit codes: some records failed · wrong use, nothing was done · stopped before its end."""
SPREAD, SOURCE, OUTPUT, _AWS = "Spread", "Source", "Output", "AWS"  # how --help groups the options
SHOWN = 10
_WIDE = 200
_MOST_BYTES = 1_000_000  # of a TOML file
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_COLUMNS = {"csv", "tsv", "parquet"}
T = TypeVar("T", bound=Callable[..., Any])


class Option(click.Option):
    """An option that --help shows under the heading ``group``."""

    def __init__(self, *names: Any, group: str = "Options", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group


class Command(click.Command):
    """A command whose options are grouped in --help, and which Ctrl-C stops with the exit code of that."""

    def invoke(self, ctx: click.Context) -> Any:
        # Wherever it is: click would exit with 1, as if records had failed.
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("stopped before its end: interrupted", err=True)
            raise Exit(STOPPED) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option) and (record := each.get_help_record(ctx)):
                groups.setdefault(getattr(each, "group", "Options"), []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


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
        help="Shards of a partition key, with --by. Without a strategy, keys get no suffix.",
    ),
    option("--by", group=SPREAD, help="Attributes (A or A,B) to calculate the shard from."),
    option("--strategy", group=SPREAD, help='A strategy\'s text form: {"type": "RandomSuffix", "shards": 10}.'),
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
"""The options of :func:`spread_strategy` and :func:`index_strategies`."""
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
"""The options of :func:`dynamodb`."""


def text_source(
    where: str, *, columns: str | None, profile: str | None, region: str | None, **options: Any
) -> SectionedSource:
    """Open a command's source, with the options of :data:`reading` and others of :func:`open_source`.

    ``profile`` and ``region`` are those of :data:`connection`: of a source in S3.
    """
    from shardkit.bulk.sources.opening import open_source

    if where.startswith("s3://") and "s3" not in options:
        options["s3"] = s3_client(profile, region)
        click.get_current_context().call_on_close(options["s3"].close)
    return open_source(where, columns=columns.split(",") if columns else None, **options)


def parsed_strategy(form: str, option: str = "--strategy") -> Strategy:
    """Return the strategy of ``--strategy``, or of another option."""
    try:
        parsed = json.loads(form)
    except (RecursionError, ValueError) as error:
        raise ConfigurationError(f"{option}: {form!r:.200} is not valid JSON: {error}") from error
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


def index_strategies(indexes: Iterable[tuple[str, str]]) -> dict[str, Strategy]:
    return {name: parsed_strategy(form, f"--index {name}") for name, form in indexes}


def rate_of(text: str | None) -> float | str | None:
    """Return the number of ``--write-units`` as a float; everything else (a share) is parsed where it is used."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def parsed_toml(option: str, path: str) -> dict[str, Any]:
    """Return the contents of a TOML file."""
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


def dynamodb(profile: str | None, region: str | None, endpoint_url: str | None, connections: int = 10) -> Any:
    session = Session(profile_name=profile, region_name=region)
    try:
        _ = urlsplit(endpoint_url or "").port  # botocore checks it only when it sends
        return session.resource("dynamodb", endpoint_url=endpoint_url, config=Config(max_pool_connections=connections))
    except ValueError as error:
        raise ConfigurationError(f"--endpoint-url: {endpoint_url!r} or the region is invalid: {error}") from error


def s3_client(profile: str | None, region: str | None) -> Any:
    return Session(profile_name=profile, region_name=region).client("s3")


def out() -> Console:
    """Return the console for standard output: a file gets lines of up to 200 characters."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def explained(error: Exception, table: str | None = None) -> str:
    """Return an error's message, with what the command line's options can do about it."""
    of = f"table {table!r}: " if table else ""
    if isinstance(error, NoRegionError):
        return "no AWS region is set; give --region, or set AWS_DEFAULT_REGION"
    if isinstance(error, NoCredentialsError):
        return f"{of}no AWS credentials were found; give --profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    missing = isinstance(error, ClientError) and code_of(error) == "ResourceNotFoundException"
    if isinstance(error, TableNotDescribedError) or (missing and table):
        return (
            f"{of}DescribeTable failed: {error.__cause__ or error}; check the table's name, --region, --profile, and "
            "the permission dynamodb:DescribeTable"
        )
    return str(error)


@contextmanager
def refusing(stderr: Console, code: int, what: str) -> Iterator[None]:
    """Report an error as ``what``, and exit with a code; after Ctrl-C with that of a command that stopped."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print("stopped before its end: interrupted")
        raise Exit(STOPPED) from None
    except BrokenPipeError:  # the reader of the output has closed it: end silently
        raise
    except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
        say(stderr, f"{what}: {explained(error)}")
        raise Exit(code) from None


@dataclass
class BadRecords:
    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, place: str, error: Exception) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append((place, str(error)))

    def show(self, console: Console) -> None:
        for place, reason in self.first:
            say(console, f"bad record: {place}: {reason}")
        if self.count > len(self.first):
            console.print(f"and {self.count - len(self.first):,} more bad records")

    def to_dict(self) -> dict[str, Any]:
        first = [{"place": place, "reason": reason} for place, reason in self.first]
        return {"bad_records": self.count, "first_bad_records": first}


def read_all(
    source: SectionedSource, take: Callable[[Mapping[str, Any]], object], stderr: Console, *, progress: bool
) -> BadRecords:
    """Hand every item of a source to ``take``; return the records that are not items, or that it refuses."""
    from shardkit.bulk.sources.base import BadRecord

    bad = BadRecords()
    stopping = refusing(stderr, STOPPED, "stopped before its end")
    with stopping, ReadProgress(stderr if progress else None, source) as shown:
        for number, (place, record) in enumerate(_unbroken(source)):
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


class ReadProgress(CommandProgress):
    def __init__(
        self, console: Console | None, source: SectionedSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(console, source.bytes_total, clock)
        self._source = source

    def update(self, items: int) -> None:
        if items % 256 or not self.due:
            return
        read, whole = self._source.bytes_read, self._source.bytes_total
        of = f", {size(read)} of {size(whole)}" if whole else ""
        self.show(read, f"{items:,} records read, {items / self.seconds:,.0f}/s", of)
