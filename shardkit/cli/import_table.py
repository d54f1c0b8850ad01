"""``shardkit import``: let DynamoDB write what ``shardkit stage`` has put into S3, and wait for it.

Exit codes: 0 all items are imported · 1 the import failed, or items of it · 2 wrong use, nothing started · 3 stopped
waiting (Ctrl-C, no access): the import goes on in AWS, and the same command waits for it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Self

import click
from botocore.exceptions import BotoCoreError, ClientError
from click.exceptions import Exit
from rich.console import Console

from shardkit.cli import options
from shardkit.cli.options import FAILED, STOPPED, WRONG_USE, dynamodb, explained, option
from shardkit.cli.screen import CommandProgress, duration, say
from shardkit.errors import ShardkitError, StagingError
from shardkit.staging import ImportReport, import_items
from shardkit.staging.importing import LEAST_WRITE_UNITS

NEW, EXISTING = "A new table", "An existing table"  # how --help groups the options


@click.command("import", cls=options.Command)
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
def import_table(
    where: str,
    region: str | None,
    profile: str | None,
    endpoint_url: str | None,
    as_json: bool,
    progress: bool,
    **how: Any,
) -> None:
    """Let DynamoDB import what shardkit stage has put into S3, and wait for it.

    WHERE is the stage's s3://bucket/prefix. ImportTable makes a table that does not exist. StartBulkPutItems writes
    into one that exists. The import runs in AWS: if this command is stopped, the same command waits for it again.

    Exit codes: 0 all imported, 1 the import or some items failed, 2 wrong use, 3 stopped waiting.
    """
    stderr = Console(stderr=True, highlight=False)
    code, problem = 0, None
    with ExitStack() as stack:
        shown = stack.enter_context(ImportProgress(stderr, progress=progress))
        try:
            client = dynamodb(profile, region, endpoint_url).meta.client
            stack.callback(client.close)
            s3 = options.s3_client(profile, region)
            stack.callback(s3.close)
            report = import_items(where, client=client, s3=s3, progress=shown.update, **how)
        except KeyboardInterrupt:
            if shown.report is None:
                say(stderr, "interrupted: if the import was started, the same command finds it")
                raise Exit(STOPPED) from None
            code, report, problem = STOPPED, shown.report, _goes_on(shown.report)
        except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
            if not isinstance(error, StagingError) or error.report is None:
                say(stderr, f"not begun: {explained(error, how['table'])}")
                raise Exit(WRONG_USE) from None
            report, problem = error.report, str(error)
            code = FAILED if report.ended else STOPPED
    if as_json:
        print(json.dumps({"exit_code": code, **asdict(report)}))
    else:
        say(Console(highlight=False), str(report))
    if problem is None and not report.ended:
        problem = "the import goes on in AWS: the same command without --no-wait waits for it"
    if problem is not None:
        say(stderr, problem)
    raise Exit(code)


def _goes_on(report: ImportReport) -> str:
    lines = [f"stopped waiting: {report.arn} goes on in AWS, and the same command waits for it again"]
    if report.operation == "StartBulkPutItems":
        lines.append(f"to cancel it: aws dynamodb cancel-bulk-operation --bulk-operation-arn {report.arn}")
    return "\n".join(lines)


class ImportProgress:
    """Says which import it is, then shows its progress; ``report`` is the last report."""

    def __init__(self, console: Console, *, progress: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.report: ImportReport | None = None
        self._console = console
        self._progress = progress
        self._clock = clock
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def update(self, report: ImportReport) -> None:
        if self.report is None:
            say(
                self._console, f"{report.operation} {'was started before' if report.found else 'started'}: {report.arn}"
            )
            bar = CommandProgress(self._console if self._progress else None, report.staged, self._clock)
            self._bar = self._opened.enter_context(bar)
            self._first = report.processed
        self.report = report
        if not report.ended:
            done, seconds = report.processed - self._first, self._bar.seconds
            rate = f", {done / seconds:,.0f} items/s" if done and seconds else ""
            failed = f", {report.failed:,} failed" if report.failed else ""
            text = f"{report.processed:,} of {report.staged:,} items{rate}{failed}, {duration(seconds)}"
            self._bar.show(report.processed, text)
