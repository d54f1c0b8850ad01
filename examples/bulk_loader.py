"""Load files into a sharded table, as a nightly job: resumable, at a rate, with a log.

    python examples/bulk_loader.py orders/*.csv --table Orders --shards 200 --by OrderId --types Total:N
    python examples/bulk_loader.py s3://exports/orders --table Orders --shards 200 --by OrderId --write-units 80%

The journal and the dead letters are files named after the job (--job, in the current folder). To resume a job that was
ended (kill, power, expired credentials), start it again with the same arguments. A job that finishes removes its
journal, so the next night starts from the beginning. Items that were not written are in the dead letters, with line and
reason; after you repair them, load that file as a source.

Exit code: 0 all items written, 1 some items failed, 2 not started, or stopped before the end (start it again).

`shardkit load` does the same from a shell; to write your own loader, start from this example.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shardkit import BulkLoadError, BulkReport, CalculatedSuffix, ShardedTable, ShardkitError, bulk_load
from shardkit.bulk.sources.opening import open_source

LOG = logging.getLogger("loader")
LOG_SECONDS = 30.0


class Log:
    """Logs a line of progress every 30 seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def tell(self, report: BulkReport) -> None:
        """Log a report, unless the last one was less than 30 seconds ago."""
        if time.monotonic() - self.last >= LOG_SECONDS:
            self.last = time.monotonic()
            LOG.info("%s", report)


def load(table: ShardedTable, path: str, job: Path, *, types: str, write_units: float | str | None) -> BulkReport:
    """Load the items at one path, except those that were done before."""
    source = open_source(path, table=table, types=types or None, absent=["NA", "NULL"])
    LOG.info("%s: %s, %d cursors, %s", path, source.format, source.cursors, source.types or "typed by itself")
    journal = job.with_suffix(".journal")
    report = bulk_load(
        table,
        source,
        write_units=write_units,
        on_error="collect",
        journal=journal,
        dead_letters=job.with_suffix(".dead.jsonl"),
        progress=Log().tell,
    )
    journal.unlink()
    LOG.info("%s: %s", path, report)
    for failure in report.failures[:20]:
        LOG.warning("%s: %s", failure.place, failure.error)
    for advice in report.advice:
        LOG.info("advice: %s", advice)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code."""
    parser = argparse.ArgumentParser(description="Load files into a sharded DynamoDB table.")
    parser.add_argument("source", nargs="+", help="files, folders, patterns or s3:// prefixes")
    parser.add_argument("--table", required=True)
    parser.add_argument("--shards", type=int, required=True, help="shards of a partition key")
    parser.add_argument("--by", required=True, help="the attribute that suffixes are calculated from")
    parser.add_argument("--types", default="", help="types of CSV columns, for example Total:N,Gift:BOOL")
    parser.add_argument("--write-units", help="write units per second, or a share of the table's, for example 80%%")
    parser.add_argument("--job", type=Path, default=Path("load"), help="path and name of the journals and dead letters")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    units: str | None = options.write_units
    resource = boto3.resource("dynamodb", config=Config(max_pool_connections=25))
    failed = 0
    try:
        table = ShardedTable(resource.Table(options.table), CalculatedSuffix(options.by, shards=options.shards))
        for number, path in enumerate(options.source):
            job = options.job.with_name(f"{options.job.name}-{number}")
            rate = float(units) if units and not units.endswith("%") else units
            failed += load(table, path, job, types=options.types, write_units=rate).failed
    except BulkLoadError:
        LOG.exception("stopped before the end: start it again with the same arguments to resume")
        return 2
    except (BotoCoreError, ClientError, OSError, ShardkitError):
        LOG.exception("not started")
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
