"""What the commands that read files have in common: options, progress, and records that are no items."""

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
from shardkit.cli.screen import CommandProgress, size
from shardkit.core.checks import did_you_mean
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.strategies import CalculatedSuffix

__all__ = [
    "FAILED",
    "OUTPUT",
    "SOURCE",
    "STOPPED",
    "WRONG_USE",
    "AbsentOption",
    "BadRecords",
    "ColumnsOption",
    "DelimiterOption",
    "EmptyStringsOption",
    "EndpointOption",
    "FormatOption",
    "JsonOption",
    "ProfileOption",
    "ProgressOption",
    "ReadProgress",
    "RegionOption",
    "SourceArgument",
    "TypesOption",
    "calculated_suffix",
    "check_attributes",
    "dynamodb",
    "out",
    "read_all",
    "refusing",
    "text_source",
]

FAILED, WRONG_USE, STOPPED = 1, 2, 3
"""Exit codes: some records failed · wrong use, nothing was done · stopped before its end."""

SOURCE, OUTPUT = "Source", "Output"  # how --help groups the options
SHOWN = 10
_WIDE = 200
_COLUMNS = {"csv", "tsv", "parquet"}

SourceArgument = Annotated[
    str, typer.Argument(help="A file, folder, pattern, s3://bucket/prefix, or - (standard input).")
]
FormatOption = Annotated[
    Literal["csv", "tsv", "jsonl", "dynamodb", "parquet"] | None,
    typer.Option(rich_help_panel=SOURCE, help="What the files hold; by their names if not given."),
]
TypesOption = Annotated[
    str | None, typer.Option(rich_help_panel=SOURCE, help="Types of columns: Total:N,Gift:BOOL,Raw:B.")
]
ColumnsOption = Annotated[
    str | None, typer.Option(rich_help_panel=SOURCE, help="Columns of a CSV file without a header: Date,OrderId.")
]
DelimiterOption = Annotated[str | None, typer.Option(rich_help_panel=SOURCE, help="What stands between two cells.")]
AbsentOption = Annotated[
    list[str] | None, typer.Option(rich_help_panel=SOURCE, help="A cell that means no value, as NA; repeatable.")
]
EmptyStringsOption = Annotated[
    bool, typer.Option("--empty-strings", rich_help_panel=SOURCE, help="Keep empty cells as empty strings.")
]
JsonOption = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the report as JSON.")]
ProgressOption = Annotated[bool, typer.Option(rich_help_panel=OUTPUT, help="Show how far it is, on standard error.")]


def text_source(
    where: str,
    *,
    types: str | None,
    columns: str | None,
    delimiter: str | None,
    absent: Sequence[str] | None,
    **options: Any,
) -> SectionedSource:
    """Open what a command was given, with its options as they were typed; ``options`` are ``open_source``'s."""
    return open_source(
        where,
        types=types,
        columns=columns.split(",") if columns else None,
        delimiter=delimiter,
        absent=absent or (),
        **options,
    )


def calculated_suffix(by: str, shards: int) -> CalculatedSuffix:
    """Make the strategy of ``--by``: by an attribute (A), or by several (A,B)."""
    names = tuple(name.strip() for name in by.split(","))
    return CalculatedSuffix(names[0] if len(names) == 1 else names, shards=shards)


def out() -> Console:
    """Give standard output: as wide as the terminal, or wide enough for whole lines where it is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDE)


def check_attributes(option: str, names: Iterable[str], source: SectionedSource, *, rare: bool = False) -> None:
    """Refuse, before it is read, what no record of a source seems to have.

    Where the source has no columns, a sample of it is looked at, at most 16,000 records. ``rare``: few records need to
    have the attributes, so that one which is not in the sample is refused only if it looks like a typo.

    Raises:
        ConfigurationError: an attribute is not there.
    """
    known = source.attributes
    columns = source.format in _COLUMNS
    for name in names:
        near = did_you_mean(name, known)
        if not known or name in known or (rare and not near and not columns):
            continue
        lacking = (
            f"there is no column {name!r}" if columns else f"none of the items looked at has an attribute {name!r}"
        )
        have = f"{'the columns are' if columns else 'they have'} {', '.join(known):.500}"
        raise ConfigurationError(f"{option}: {lacking}{near}; {have}")


@contextmanager
def refusing(told: Console, code: int, what: str) -> Iterator[None]:
    """Say what went wrong, and exit; after Ctrl-C as where a source broke off."""
    try:
        yield
    except KeyboardInterrupt:
        told.print("stopped before its end: it was interrupted")
        raise typer.Exit(STOPPED) from None
    except BrokenPipeError:  # who reads the output has seen enough: the command line ends without a word
        raise
    except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
        told.print(f"{what}: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(code) from None


@dataclass
class BadRecords:
    """Records that are no items, or none that DynamoDB can hold: how many, and the first with place and reason."""

    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, place: str, error: Exception) -> None:
        """Count one."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append((place, str(error)))

    def show(self, console: Console) -> None:
        """Print the first, and how many there are."""
        for place, reason in self.first:
            console.print(f"bad record: {place}: {reason}", markup=False, soft_wrap=True)
        if self.count > len(self.first):
            console.print(f"and {self.count - len(self.first):,} more bad records")

    def to_dict(self) -> dict[str, Any]:
        """Give them for machines."""
        first = [{"place": place, "reason": reason} for place, reason in self.first]
        return {"bad_records": self.count, "first_bad_records": first}


def read_all(
    source: SectionedSource, take: Callable[[Mapping[str, Any]], object], console: Console | None
) -> BadRecords:
    """Hand every item of a source to ``take``; what is none, and what it refuses with an error of ours, is bad.

    Raises:
        ShardkitError: The source broke off.
    """
    bad = BadRecords()
    with ReadProgress(console, source) as progress:
        for number, (place, record) in enumerate(_unbroken(source)):
            progress.update(number)
            if isinstance(record, BadRecord):
                bad.add(source.where(place), record.error)
                continue
            try:
                take(record)
            except (ShardkitError, ArithmeticError) as error:
                bad.add(source.where(place), error)
    return bad


def _unbroken(source: SectionedSource) -> Iterator[tuple[Place, Record]]:
    """Read a source; whatever ends it early (a cut file, a lost connection) is an error of ours."""
    try:
        yield from source.read()
    except Exception as error:
        raise ShardkitError(f"the source broke off ({str(error) or type(error).__name__})") from error


class ReadProgress(CommandProgress):
    """Shows how far the reading of a source is."""

    def __init__(
        self, console: Console | None, source: SectionedSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(console, source.bytes_total, clock)
        self._source = source

    def update(self, items: int) -> None:
        """Take how many records were read, and show it if the last is old enough."""
        if items % 256 or not self.due:
            return
        read, whole = self._source.bytes_read, self._source.bytes_total
        of = f", {size(read)} of {size(whole)}" if whole else ""
        self.show(read, f"{items:,} records read, {items / self.seconds:,.0f}/s", of)


_AWS = "AWS"  # how --help groups the options

RegionOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="The AWS region.")]
ProfileOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="The profile of the AWS configuration.")]
EndpointOption = Annotated[str | None, typer.Option(rich_help_panel=_AWS, help="Another DynamoDB than the region's.")]


def dynamodb(profile: str | None, region: str | None, endpoint_url: str | None, connections: int = 10) -> Any:
    """Make a DynamoDB resource of these options.

    Raises:
        ConfigurationError: the endpoint or the region cannot be used.
    """
    session = Session(profile_name=profile, region_name=region)
    try:
        _ = urlsplit(endpoint_url or "").port  # which botocore looks at only when it sends
        return session.resource("dynamodb", endpoint_url=endpoint_url, config=Config(max_pool_connections=connections))
    except ValueError as error:
        raise ConfigurationError(f"--endpoint-url {endpoint_url!r} or the region cannot be used: {error}") from error
