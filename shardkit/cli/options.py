"""What several commands share: their options, and how they read sources, report errors and exit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from shardkit.bulk.sources.base import BadRecord, Place, Record
from shardkit.bulk.sources.opening import open_source
from shardkit.bulk.sources.sections import SectionedSource
from shardkit.cli.screen import CommandProgress, say, size
from shardkit.core.checks import did_you_mean
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.strategies import CalculatedSuffix

FAILED, WRONG_USE, STOPPED = 1, 2, 3
"""Exit codes: some records failed · wrong use, nothing was done · stopped before its end."""
SOURCE, OUTPUT, _AWS = "Source", "Output", "AWS"  # how --help groups the options
SHOWN = 10
_WIDE = 200
_COLUMNS = {"csv", "tsv", "parquet"}
SourceArgument = Annotated[
    str, typer.Argument(help="A file, folder, pattern, s3://bucket/prefix, or - (standard input).")
]
Format = Literal["csv", "tsv", "jsonl", "dynamodb", "parquet"]
FormatOption = Annotated[
    Format | None,
    typer.Option(rich_help_panel=SOURCE, help="The format of the files; by their names if not given."),
]
TypesOption = Annotated[
    str | None, typer.Option(rich_help_panel=SOURCE, help="Types of columns: Total:N,Gift:BOOL,Raw:B.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(rich_help_panel=SOURCE, help="Columns of a CSV file without a header: Date,OrderId.")
]
DelimiterOption = Annotated[str | None, typer.Option(rich_help_panel=SOURCE, help="The character between two cells.")]
AbsentOption = Annotated[
    list[str] | None, typer.Option(rich_help_panel=SOURCE, help="A cell that means no value, such as NA; repeatable.")
]
EmptyStringsOption = Annotated[
    bool, typer.Option("--empty-strings", rich_help_panel=SOURCE, help="Keep empty cells as empty strings.")
]
JsonOption = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the report as JSON.")]
ProgressOption = Annotated[bool, typer.Option(rich_help_panel=OUTPUT, help="Show the progress on standard error.")]
RegionOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="The AWS region.")]
ProfileOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="The profile of the AWS configuration.")]
EndpointOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="Another endpoint than the region's.")]


def text_source(
    where: str,
    format: Format | None = None,  # noqa: A002
    types: str | None = None,
    columns: str | None = None,
    delimiter: str | None = None,
    absent: Sequence[str] | None = None,
    **options: Any,
) -> SectionedSource:
    """Open a command's source, with its options as they were typed; ``options`` are :func:`open_source`'s others."""
    return open_source(
        where,
        format=format,
        types=types,
        columns=columns.split(",") if columns else None,
        delimiter=delimiter,
        absent=absent or (),
        **options,
    )


def calculated_suffix(by: str, shards: int) -> CalculatedSuffix:
    """Return the strategy of ``--by``, an attribute (A) or several (A,B)."""
    names = tuple(name.strip() for name in by.split(","))
    return CalculatedSuffix(names[0] if len(names) == 1 else names, shards=shards)


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


def out() -> Console:
    """Return the console for standard output: a file gets lines of up to 200 characters."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


@contextmanager
def refusing(stderr: Console, code: int, what: str) -> Iterator[None]:
    """Report an error as ``what``, and exit with a code; after Ctrl-C with that of a command that stopped."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print("stopped before its end: interrupted")
        raise typer.Exit(STOPPED) from None
    except BrokenPipeError:  # the reader of the output has closed it: end silently
        raise
    except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
        say(stderr, f"{what}: {error}")
        raise typer.Exit(code) from None


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
