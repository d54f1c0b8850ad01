"""Load a CSV or JSON lines file into a table, round-robin over its partition keys.

    python examples/bulk_loader.py orders.csv --table Orders --shards 200 --by OrderId --number Total
    python examples/bulk_loader.py orders.jsonl --table Orders --shards 200 --by OrderId --failures failed.jsonl

Without --shards and --by the keys are written as they are. Items that were not written go to the file of --failures,
one JSON line each, with the line of the source and the reason. Exit code: 0 all written, 1 some items not, 2 not begun.

With a calculated suffix the load can be repeated as a whole: the same items go to the same places.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from shardkit import (
    BulkLoadError,
    BulkReport,
    BulkResult,
    CalculatedSuffix,
    ShardedTable,
    ShardkitError,
    streaming_bulk,
)


class Row(dict[str, Any]):
    """An item that knows where it came from, so that a failure can say it."""

    def __init__(self, item: dict[str, Any], line: int, source: Any) -> None:
        super().__init__(item)
        self.line = line
        self.source = source


Refuse = Callable[[int, Any, Exception], None]


def cells(source: dict[Any, Any], numbers: Sequence[str]) -> dict[str, Any]:
    """Give the item of a line of CSV: cells are text, those of ``numbers`` are numbers, empty ones are left out."""
    if None in source or None in source.values():
        raise ValueError("the line has more or fewer cells than the header")
    return {name: Decimal(cell) if name in numbers else cell for name, cell in source.items() if cell != ""}


def parsed(text: str) -> dict[str, Any]:
    """Give the item of a line of JSON; numbers stay exact."""
    item = json.loads(text, parse_float=Decimal)
    if not isinstance(item, dict):
        raise TypeError(f"the line is a JSON {type(item).__name__}, not an object")
    return item


def csv_rows(file: IO[str], numbers: Sequence[str], refuse: Refuse) -> Iterator[Row]:
    """Read a CSV file with a header."""
    reader = csv.DictReader(file)
    for source in reader:
        try:
            row = Row(cells(source, numbers), reader.line_num, source)
        except (InvalidOperation, ValueError) as error:  # noqa: PERF203 - a line that is wrong must not stop the others
            refuse(reader.line_num, list(source.values()), error)
        else:
            yield row


def json_rows(file: IO[str], refuse: Refuse) -> Iterator[Row]:
    """Read JSON lines, an object each."""
    for line, text in enumerate(file, 1):
        source = text.strip()
        if not source:
            continue
        try:
            row = Row(parsed(source), line, source)
        except (TypeError, ValueError) as error:
            refuse(line, source, error)
        else:
            yield row


def load(table: Any, path: Path, numbers: Sequence[str], workers: int | None, failures: IO[str]) -> int:
    """Load a file; the number of items that were not written."""
    failed = 0
    report = BulkReport()

    def refuse(line: int, source: Any, error: Exception) -> None:
        nonlocal failed
        failed += 1
        failures.write(json.dumps({"line": line, "error": f"{type(error).__name__}: {error}", "source": source}) + "\n")

    def refused(result: BulkResult) -> None:
        assert isinstance(result.item, Row)
        assert result.error is not None
        refuse(result.item.line, result.item.source, result.error)

    def progress(so_far: BulkReport) -> None:
        nonlocal report
        report = so_far
        if sys.stderr.isatty():
            print(f"\r{so_far.written:,} written, {so_far.failed:,} failed", end="", file=sys.stderr, flush=True)

    with path.open(encoding="utf-8", newline="") as file:
        rows = csv_rows(file, numbers, refuse) if path.suffix == ".csv" else json_rows(file, refuse)
        try:
            for result in streaming_bulk(table, rows, workers=workers, on_error="collect", progress=progress):
                if not result.ok:
                    refused(result)
        except BulkLoadError as error:  # the load could not go on (no access), or the file could not be read
            print(error, file=sys.stderr)
            failed = max(failed, 1)
    print(report)
    for shard, tally in report.per_shard.items():
        print(f"  shard {shard}: {tally.items:,} items, {tally.write_units:,.1f} write units")
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loader; the exit code."""
    parser = argparse.ArgumentParser(description="Load a CSV or JSON lines file into a DynamoDB table.")
    parser.add_argument("source", type=Path, help="a .csv file with a header, or a file of JSON lines")
    parser.add_argument("--table", required=True)
    parser.add_argument("--shards", type=int, help="shards of a partition key")
    parser.add_argument("--by", nargs="+", help="the attribute (or several) that suffixes are calculated from")
    parser.add_argument("--number", nargs="+", default=[], help="columns of a CSV file that are numbers")
    parser.add_argument("--workers", type=int, help="batches on their way at once (default: 10)")
    parser.add_argument("--failures", type=Path, default=Path("failures.jsonl"), help="default: failures.jsonl")
    options = parser.parse_args(arguments)
    if (options.shards is None) != (options.by is None):
        parser.error("give both --shards and --by, or neither")

    resource = boto3.resource("dynamodb", config=Config(max_pool_connections=max(10, options.workers or 0)))
    table: Any = resource.Table(options.table)
    try:
        if options.by is not None:
            by = options.by[0] if len(options.by) == 1 else tuple(options.by)
            table = ShardedTable(table, CalculatedSuffix(by, shards=options.shards))
        with options.failures.open("w", encoding="utf-8") as failures:
            failed = load(table, options.source, options.number, options.workers, failures)
    except (BotoCoreError, ClientError, OSError, ShardkitError) as error:
        print(f"not begun: {error}", file=sys.stderr)
        return 2
    if failed:
        print(f"{failed:,} not written, see {options.failures}", file=sys.stderr)
        return 1
    options.failures.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
