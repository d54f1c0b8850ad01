"""``shardkit load``: files into a table, spread, mixed and resumable.

Exit codes: 0 all is written · 1 some items failed, the others are written · 2 wrong use, nothing is written ·
3 stopped before its end (Ctrl-C, no access, throttles without end), the same command with --journal goes on.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Annotated, Any, Literal, cast

import typer
from boto3.session import Session
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from shardkit import ShardedTable, Strategy, Unsharded, bulk_load
from shardkit.bulk.batch import WINDOW
from shardkit.bulk.finish import InterruptedLoadError
from shardkit.bulk.report import BulkReport
from shardkit.bulk.sources.sections import SectionedSource
from shardkit.cli.aws import EndpointOption, ProfileOption, RegionOption, dynamodb
from shardkit.cli.load_estimate import Estimate, estimate
from shardkit.cli.load_show import Progress, show_estimate, show_plan, show_report, to_json
from shardkit.cli.reading import (
    FAILED,
    OUTPUT,
    SOURCE,
    STOPPED,
    WRONG_USE,
    AbsentOption,
    ColumnsOption,
    DelimiterOption,
    EmptyStringsOption,
    FormatOption,
    JsonOption,
    ProgressOption,
    SourceArgument,
    TypesOption,
    calculated_suffix,
    check_attributes,
    text_source,
)
from shardkit.errors import BulkLoadError, ConfigurationError, ShardkitError

__all__ = ["load"]


# How --help groups the options.
SPREAD, PACE, SAFETY = "Spread", "Pace", "Failures and resuming"


def load(
    source: SourceArgument,
    table: Annotated[str, typer.Option(help="The table to load into.")],
    shards: Annotated[
        int | None, typer.Option(rich_help_panel=SPREAD, min=1, help="Shards of a partition key, with --by.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(rich_help_panel=SPREAD, help="Attributes (A or A,B) that the shard is calculated from."),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(rich_help_panel=SPREAD, help='A strategy\'s text form: {"type": "RandomSuffix", "shards": 10}.'),
    ] = None,
    format: FormatOption = None,  # noqa: A002
    types: TypesOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = None,
    absent: AbsentOption = None,
    empty_strings: EmptyStringsOption = False,
    cursors: Annotated[
        str, typer.Option(rich_help_panel=SOURCE, help="At how many places the source is read in turn.")
    ] = "auto",
    write_units: Annotated[
        str | None, typer.Option(rich_help_panel=PACE, help="Write units a second, or a share: 500, 80%.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(rich_help_panel=PACE, min=1, help="Batches on their way at once; 10 (a process) if not given."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(rich_help_panel=PACE, min=1, help="Processes that send them, to use all cores.")
    ] = None,
    window: Annotated[
        int, typer.Option(rich_help_panel=PACE, min=1, help="Items that wait to be interleaved.")
    ] = WINDOW,
    max_failures: Annotated[
        int | None,
        typer.Option(rich_help_panel=SAFETY, min=0, help="End the load when more items fail; 0: at the first."),
    ] = None,
    duplicates: Annotated[
        Literal["last", "first", "error"],
        typer.Option(rich_help_panel=SAFETY, help="Which of the writes of one key stays."),
    ] = "last",
    journal: Annotated[
        str | None, typer.Option(rich_help_panel=SAFETY, help="A file that makes the load resumable.")
    ] = None,
    dead_letters: Annotated[
        str | None, typer.Option(rich_help_panel=SAFETY, help="A file for the items that fail.")
    ] = None,
    region: RegionOption = None,
    profile: ProfileOption = None,
    endpoint_url: EndpointOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", rich_help_panel=OUTPUT, help="Say what would be written; write nothing.")
    ] = False,
    as_json: JsonOption = False,
    progress: ProgressOption = True,
) -> None:
    """Load files into a table: every partition busy, nothing lost, nothing twice.

    Exit codes: 0 all written, 1 some items failed, 2 wrong use, 3 stopped before its end (--journal: run it again).
    """
    told = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        try:
            connect = partial(dynamodb, profile, region, endpoint_url, max(10, workers or 0))
            spread = _strategy(shards, by, strategy)
            target = _table(stack, table, spread, connect)
            opened = text_source(
                source,
                table=target,
                format=format,
                types=types,
                columns=columns,
                delimiter=delimiter,
                absent=absent,
                empty_strings=empty_strings,
                cursors=_cursors(cursors),
                s3=_s3(stack, region, profile) if source.startswith("s3://") else None,
            )
            check_attributes("--by" if by else "--strategy", spread.by_attributes or (), opened)
            units = _units(write_units)
            show_plan(told, source, opened, target)
            options = {
                "workers": workers,
                "processes": processes,
                "connect": connect if processes else None,
                "window": window,
                "write_units": units,
                "max_failures": max_failures,
                "duplicates": duplicates,
                "journal": journal,
                "dead_letters": dead_letters,
            }
            done = (
                estimate(opened, target, units)
                if dry_run
                else _load(target, opened, told if progress else None, **options)
            )
        except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
            told.print(f"not begun: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(WRONG_USE) from None
        except KeyboardInterrupt:
            told.print("stopped before the first write")
            raise typer.Exit(STOPPED) from None
    if isinstance(done, Estimate):
        if as_json:
            print(json.dumps(done.to_dict()))
        else:
            show_estimate(Console(highlight=False), done)
        raise typer.Exit(FAILED if done.failed else 0)
    code, report, problem = done
    if problem is not None:
        told.print(str(problem), markup=False, soft_wrap=True)
    if as_json:
        print(json.dumps(to_json(report, code)))
    else:
        show_report(Console(highlight=False), report, dead_letters, complete=problem is None)
    if code == STOPPED:
        again = f"the same command goes on from {journal}" if journal else "with --journal it could be resumed"
        told.print(f"stopped before its end: {again}", markup=False, soft_wrap=True)
    raise typer.Exit(code)


def _load(
    table: ShardedTable, source: SectionedSource, told: Console | None, **options: Any
) -> tuple[int, BulkReport, Exception | None]:
    """Load, until the end or Ctrl-C; the exit code, the report, and what stopped it."""
    with Progress(told, source) as shown, _interrupted(told):
        try:
            report = bulk_load(table, source, on_error="collect", progress=shown.update, **options)
        except BulkLoadError as error:
            if error.report is None:
                raise
            return STOPPED, error.report, error
        except InterruptedLoadError as error:
            return STOPPED, error.report or shown.report, None
        except KeyboardInterrupt:  # the second one
            return STOPPED, shown.report, None
        except OSError as error:  # standard error cannot be written
            return STOPPED, shown.report, error
    return (FAILED if report.failed or report.failed_before else 0), report, None


@contextmanager
def _interrupted(told: Console | None) -> Iterator[None]:
    """Say at the first Ctrl-C what is done about it; the second is an interrupt as ever."""

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        if told is not None:
            # It may have come in the midst of a line that is being written.
            with suppress(RuntimeError):
                told.print("stopping: what is in flight is being finished; Ctrl-C once more stops now")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _strategy(shards: int | None, by: str | None, form: str | None) -> Strategy:
    if form is not None:
        if shards is not None or by is not None:
            raise ConfigurationError("give --strategy, or --shards and --by, not both")
        try:
            parsed = json.loads(form)
        except (RecursionError, ValueError) as error:
            raise ConfigurationError(f"--strategy {form!r:.200} is no JSON that can be read: {error}") from error
        return Strategy.from_dict(parsed)
    if (shards is None) != (by is None):
        raise ConfigurationError(
            "give both --shards and --by, or neither; a random suffix is "
            '--strategy \'{"type": "RandomSuffix", "shards": 10}\''
        )
    if shards is None or by is None:
        return Unsharded()
    return calculated_suffix(by, shards)


def _cursors(text: str) -> int | Literal["auto"]:
    # A number that Python does not read (of thousands of digits) is refused as the text that it is.
    with suppress(ValueError):
        return int(text)
    return cast("Literal['auto']", text)


def _units(text: str | None) -> float | str | None:
    """Give a number as one; a share, and what is neither, is read by the load itself."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _table(stack: ExitStack, name: str, strategy: Strategy, connect: Callable[[], Any]) -> ShardedTable:
    resource = connect()
    stack.callback(resource.meta.client.close)
    return ShardedTable(resource.Table(name), strategy)


def _s3(stack: ExitStack, region: str | None, profile: str | None) -> Any:
    client = Session(profile_name=profile, region_name=region).client("s3")
    stack.callback(client.close)
    return client
