"""``shardkit import``: let DynamoDB write what ``shardkit stage`` has put into S3, and wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardkit.cli import options
from shardkit.cli.command import FAILED, STOPPED, Call, Command, Outcome
from shardkit.cli.options import option
from shardkit.cli.screen import CommandProgress, Line, duration, say
from shardkit.errors import StagingError
from shardkit.staging import ImportReport, import_items
from shardkit.staging.importing import LEAST_WRITE_UNITS

if TYPE_CHECKING:
    from rich.console import Console

NEW, EXISTING = "A new table", "An existing table"  # how --help groups the options


@click.command("import", cls=Command)
@click.argument("where")
@option("--table", required=True, help="Table to import into; made if it does not exist.")
@option("--again", is_flag=True, help="Start another import, even if there was one of this stage.")
@option("--wait/--no-wait", default=True, help="Wait for its end.")
@option("--on-demand", group=NEW, is_flag=True, help="Make the table on-demand, whatever its definition says.")
@option(
    "--max-write-units",
    group=EXISTING,
    type=click.IntRange(min=LEAST_WRITE_UNITS),
    help="Write units per second that it may consume.",
)
@option(
    "--tier",
    group=EXISTING,
    type=click.Choice(["standard", "accelerated"]),
    help="Performance tier; default: standard.",
)
@option("--errors-to", group=EXISTING, help="s3://bucket/prefix for items that fail; default: errors/ in WHERE.")
@options.connection
@options.as_json
@options.progress
def import_table(call: Call, where: str, **how: Any) -> Outcome:
    """Let DynamoDB import what shardkit stage has put into S3, and wait for it.

    WHERE is the stage's s3://bucket/prefix. ImportTable makes a table that does not exist. StartBulkPutItems writes
    into one that exists. The import runs in AWS: if this command is stopped, the same command waits for it again.

    Exit codes: 0 all imported, 1 the import or some items failed, 2 wrong use, 3 stopped waiting.
    """
    shown = call.enter(ImportProgress(call.stderr, progress=call.shown is not None))
    code, note = 0, ""
    try:
        client = call.dynamodb().meta.client
        report = import_items(where, client=client, s3=call.s3(), progress=shown.update, **how)
    except KeyboardInterrupt:
        if shown.report is None:
            raise call.ended("interrupted: if the import was started, the same command finds it") from None
        code, report, note = STOPPED, shown.report, _goes_on(shown.report)
    except StagingError as error:
        if error.report is None:
            raise
        report, note = error.report, str(error)
        code = FAILED if report.ended else STOPPED
    if not note and not report.ended:
        note = "the import goes on in AWS: the same command without --no-wait waits for it"
    return Outcome(lambda: {"exit_code": code, **asdict(report)}, lambda console: say(console, str(report)), code, note)


def _goes_on(report: ImportReport) -> str:
    lines = [f"stopped waiting: {report.arn} goes on in AWS, and the same command waits for it again"]
    if report.operation == "StartBulkPutItems":
        lines.append(f"to cancel it: aws dynamodb cancel-bulk-operation --bulk-operation-arn {report.arn}")
    return "\n".join(lines)


class ImportProgress(CommandProgress[ImportReport]):
    """Says which import it is, then shows its progress each time that its state was read."""

    def __init__(self, console: Console, *, progress: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console if progress else None, self._text, clock=clock)
        self._stderr = console

    def update(self, report: ImportReport) -> None:
        if self.report is None:
            began = "was started before" if report.found else "started"
            say(self._stderr, f"{report.operation} {began}: {report.arn}")
            self._first = report.processed
            self.restart(report.staged)
        super().update(report)

    @property
    def due(self) -> bool:
        return self.report is not None and not self.report.ended

    def _text(self, report: ImportReport, seconds: float) -> Line:
        done = report.processed - self._first
        rate = f", {done / seconds:,.0f} items/s" if done and seconds else ""
        failed = f", {report.failed:,} failed" if report.failed else ""
        text = f"{report.processed:,} of {report.staged:,} items{rate}{failed}, {duration(seconds)}"
        return Line(report.processed, text)
