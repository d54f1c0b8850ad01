"""``shardkit stage``: write files to S3 as DynamoDB JSON, for ``shardkit import``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardkit.cli import options
from shardkit.cli.command import ERRORS, FAILED, Call, Command, Outcome, explained
from shardkit.cli.options import COUNT, OUTPUT, SHOWN, option, show_failures, source_for_table
from shardkit.cli.screen import CommandProgress, Line, duration, say, size
from shardkit.errors import ConfigurationError, StagingError

if TYPE_CHECKING:
    from rich.console import Console

    from shardkit.staging import StageProgress, StageReport

STAGE = "Stage"  # how --help groups the options
_LARGE = 64 * 1024 * 1024  # bytes of a source: below, other processes start longer than they help


@click.command(cls=Command)
@click.argument("source")
@option("--to", required=True, help="Where to write: s3://bucket/prefix.")
@option("--table", required=True, help="Table that the items are for.")
@option("--definition", help="A file with CreateTable's parameters as JSON, if the table does not exist yet.")
@options.spreading
@options.reading
@options.exported
@option("--processes", type=COUNT, group=STAGE, help="Processes that read and upload; default: all cores.")
@option("--work-dir", group=STAGE, help="Folder for temporary files; default: the system's.")
@option(
    "--compression",
    group=STAGE,
    type=click.Choice(["gzip", "zstd", "none"]),
    default="gzip",
    help="Compression of the objects.",
)
@option("--skip-failures", group=STAGE, is_flag=True, help="Stage the other items, if some cannot be staged.")
@options.connection
@option("--dry-run", group=OUTPUT, is_flag=True, help="Read and check all items; write nothing.")
@options.as_json
@options.progress
def stage(
    call: Call,
    source: str,
    to: str,
    table: str,
    definition: str | None,
    processes: int | None,
    skip_failures: bool,
    work_dir: str | None,
    compression: Any,
    dry_run: bool,
    **of_source: Any,
) -> Outcome:
    """Write files to S3 in mixed order, so that DynamoDB imports them at full speed: shardkit import.

    SOURCE is a file, pipe, folder, pattern, s3://bucket/prefix, or - (standard input).

    Items are sharded and checked. Of several items with one primary key, the last one is kept. The manifest is written
    last: without it, nothing can be imported.

    Exit codes: 0 all staged, 1 some items cannot be staged, 2 wrong use, 3 stopped before its end (run it again).
    """
    from shardkit.staging import stage_items
    from shardkit.table import ShardedTable

    shown = call.enter(StageShown(call.shown, _line))
    try:
        schema = None if definition is None else _definition(definition)
        make = partial(ShardedTable, call.dynamodb().Table(table), key_schema=schema)
        s3 = call.s3()
        opened, target = source_for_table(call, source, make, cursors=1, s3=s3, **of_source)
        if processes is None and (opened.bytes_total or 0) >= _LARGE:
            processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        call.say(f"{source} ({options.described(opened)}) to {to} for {table} with {target.strategy!r}")
        options.say_types(call.stderr, opened)
        report = stage_items(
            opened,
            to,
            table=target,
            processes=processes,
            compression=compression,
            on_error="collect" if skip_failures else "raise",
            work_dir=work_dir,
            s3=s3,
            connect=partial(call.aws.client, "s3") if processes else None,
            dry_run=dry_run,
            progress=shown.update,
        )
    except KeyboardInterrupt:
        once = source == "-" or Path(source).is_fifo()
        again = "starts anew; delete what it uploaded, or give another prefix" if once else "goes on"
        raise call.ended(f"stopped before its end: the same command {again}") from None
    except ERRORS as error:
        if not isinstance(error, StagingError) or error.report is None:
            if shown.report is None:
                raise
            raise call.ended(f"stopped before its end: {explained(error, table)}") from None
        call.say(str(error))
        report = error.report
    code = FAILED if report.failed else 0
    return Outcome(
        lambda: {"exit_code": code, **report.to_dict()}, lambda console: _show(console, report, dry_run=dry_run), code
    )


def _definition(path: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, RecursionError, ValueError) as error:
        raise ConfigurationError(
            f"--definition: {path} cannot be read as JSON ({error}); give a file with CreateTable's parameters"
        ) from error
    # As `aws dynamodb describe-table` prints it.
    described = parsed.get("Table", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(described, dict) or "KeySchema" not in described:
        raise ConfigurationError(
            f"--definition: {path} has no KeySchema; give CreateTable's parameters as JSON, or what describe-table "
            "prints"
        )
    return described


def _show(console: Console, report: StageReport, *, dry_run: bool) -> None:
    if dry_run:
        objects = f"{report.objects:,} object{'' if report.objects == 1 else 's'}"
        console.print(f"{report.items:,} items would be staged in {objects}, {report.failed:,} would fail")
        say(
            console,
            f"{size(report.raw_bytes)} before compression, {report.write_units:,} write units of the table; "
            f"temporary files: {size(report.disk_bytes)}",
        )
    else:
        say(console, str(report))
        if report.bytes is not None:
            say(
                console,
                f"{size(report.bytes)}, {size(report.raw_bytes)} before compression, {report.write_units:,} write "
                f"units of the table, {duration(report.seconds)}",
            )
    show_failures(console, [(one.place, one.reason) for one in report.failures[:SHOWN]], report.failed)


class StageShown(CommandProgress["StageProgress"]):
    """Shows a stage's progress, each phase anew."""

    def update(self, report: StageProgress) -> None:
        if self.report is None or report.phase != self.report.phase:
            self.restart(report.total)
        super().update(report)


def _line(progress: StageProgress, _: float) -> Line:
    doing = "reading" if progress.phase == "read" else "sorting and uploading"
    text = f"{doing}: {progress.items:,} items"
    if progress.seconds:
        text += f", {progress.items / progress.seconds:,.0f} items/s"
    left = ""
    if progress.total:
        text += f", {progress.done / progress.total:.0%}"
        if new := progress.done - progress.resumed:
            left = f", about {duration(progress.seconds * (progress.total - progress.done) / new)} left"
    return Line(progress.done, text, left)
