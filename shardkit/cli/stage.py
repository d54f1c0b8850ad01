"""``shardkit stage``: write files to S3 as DynamoDB JSON, for ``shardkit import``.

Exit codes: 0 all items are staged · 1 some items cannot be staged · 2 wrong use, nothing was begun · 3 stopped before
its end (Ctrl-C, a full disk, S3 refused): the same command goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import click
from botocore.exceptions import BotoCoreError, ClientError
from click.exceptions import Exit
from rich.console import Console

from shardkit.cli import options
from shardkit.cli.options import (
    COUNT,
    FAILED,
    OUTPUT,
    SHOWN,
    STOPPED,
    WRONG_USE,
    check_attributes,
    dynamodb,
    explained,
    option,
    parsed_strategy,
    text_source,
)
from shardkit.cli.screen import CommandProgress, duration, say, size
from shardkit.errors import ConfigurationError, ShardkitError, StagingError

if TYPE_CHECKING:
    from shardkit.staging import StageProgress, StageReport

STAGE = "Stage"  # how --help groups the options
_LARGE = 64 * 1024 * 1024  # bytes of a source: below, other processes start longer than they help


@click.command(cls=options.Command)
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
    source: str,
    to: str,
    table: str,
    definition: str | None,
    shards: int | None,
    by: str | None,
    strategy: str | None,
    indexes: tuple[tuple[str, str], ...],
    stored_by: str | None,
    processes: int | None,
    work_dir: str | None,
    compression: Literal["gzip", "zstd", "none"],
    skip_failures: bool,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
    dry_run: bool,
    as_json: bool,
    progress: bool,
    **reading: Any,
) -> None:
    """Write files to S3 in mixed order, so that DynamoDB imports them at full speed: shardkit import.

    SOURCE is a file, pipe, folder, pattern, s3://bucket/prefix, or - (standard input).

    Items are sharded and checked. Of several items with one primary key, the last one is kept. The manifest is written
    last: without it, nothing can be imported.

    Exit codes: 0 all staged, 1 some items cannot be staged, 2 wrong use, 3 stopped before its end (run it again).
    """
    from shardkit.staging import stage_items
    from shardkit.table import ShardedTable

    stderr = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        shown = stack.enter_context(ShownStage(stderr if progress else None))
        try:
            spread = options.spread_strategy(shards, by, strategy)
            resource = dynamodb(profile, region, endpoint_url)
            stack.callback(resource.meta.client.close)
            schema = None if definition is None else _definition(definition)
            target = ShardedTable(
                resource.Table(table), spread, indexes=options.index_strategies(indexes), key_schema=schema
            )
            s3 = options.s3_client(profile, region)
            stack.callback(s3.close)
            exported = None if stored_by is None else parsed_strategy(stored_by, "--stored-by")
            how = {"table": target, "stored_by": exported, "cursors": 1, "s3": s3, **reading}
            opened = text_source(source, profile=profile, region=region, **how)
            check_attributes("--by" if by else "--strategy", spread.by_attributes or (), opened)
            if processes is None and (opened.bytes_total or 0) >= _LARGE:
                processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            of = f", {size(opened.bytes_total)}" if opened.bytes_total else ""
            say(stderr, f"{source} ({opened.format}{of}) to {to} for {table} with {spread!r}")
            if opened.types:
                say(stderr, "types: " + ", ".join(f"{name}:{letter}" for name, letter in opened.types.items()))
            report = stage_items(
                opened,
                to,
                table=target,
                processes=processes,
                compression=compression,
                on_error="collect" if skip_failures else "raise",
                work_dir=work_dir,
                s3=s3,
                connect=partial(options.s3_client, profile, region) if processes else None,
                dry_run=dry_run,
                progress=shown.update,
            )
        except KeyboardInterrupt:
            once = source == "-" or Path(source).is_fifo()
            again = "starts anew; delete what it uploaded, or give another prefix" if once else "goes on"
            say(stderr, f"stopped before its end: the same command {again}")
            raise Exit(STOPPED) from None
        except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
            if not isinstance(error, StagingError) or error.report is None:
                what = "stopped before its end" if shown.begun else "not begun"
                say(stderr, f"{what}: {explained(error, table)}")
                raise Exit(STOPPED if shown.begun else WRONG_USE) from None
            say(stderr, str(error))
            report = error.report
    code = FAILED if report.failed else 0
    if as_json:
        print(json.dumps({"exit_code": code, **report.to_dict()}))
    else:
        _show(Console(highlight=False), report, dry_run=dry_run)
    raise Exit(code)


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
    for one in report.failures[:SHOWN]:
        say(console, f"failed: {one.place}: {one.reason}")
    if report.failed > SHOWN:
        console.print(f"and {report.failed - SHOWN:,} more failures")


class ShownStage:
    """Shows a stage's progress, each phase with a bar of its own; ``begun``: whether it has read or written."""

    def __init__(self, console: Console | None) -> None:
        self.begun = False
        self._console = console
        self._phase: str | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def update(self, progress: StageProgress) -> None:
        self.begun = True
        if progress.phase != self._phase:
            self._opened.close()
            self._phase = progress.phase
            self._shown = self._opened.enter_context(CommandProgress(self._console, progress.total))
        elif not self._shown.due:
            return
        doing = "reading" if progress.phase == "read" else "sorting and uploading"
        text = f"{doing}: {progress.items:,} items"
        if progress.seconds:
            text += f", {progress.items / progress.seconds:,.0f} items/s"
        left = ""
        if progress.total:
            text += f", {progress.done / progress.total:.0%}"
            if new := progress.done - progress.resumed:
                left = f", about {duration(progress.seconds * (progress.total - progress.done) / new)} left"
        self._shown.show(progress.done, text, left)
