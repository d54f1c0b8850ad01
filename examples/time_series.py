"""Store the clicks of a site in a table for each month, and read them as one.

    python examples/time_series.py --name clicks

It creates the tables that are due now, writes some clicks of last month and of this one, reads them in both directions,
and shows what the next maintenance would do. Run `shardkit timeseries maintain timeseries.toml` every hour in a service
of your own. The tables are on-demand, and stay: delete them when you have looked at them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, PeriodError, TimeSeries, bulk_load

SCHEMA: dict[str, Any] = {
    "KeySchema": [
        {"AttributeName": "Customer", "KeyType": "HASH"},
        {"AttributeName": "Time", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Customer", "AttributeType": "S"},
        {"AttributeName": "Time", "AttributeType": "S"},
    ],
}


def now() -> datetime:
    """Return the time, with a zone."""
    return datetime.now(UTC)


def text_of(moment: datetime) -> str:
    """Return a time as it is stored: text in UTC, so that texts sort as times do."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def some_clicks(until: datetime) -> list[dict[str, Any]]:
    """Return a click of each day of the last four weeks, by two customers."""
    return [
        {"Customer": f"c{number % 2}", "Time": text_of(until - timedelta(days=number)), "Url": f"/page/{number}"}
        for number in range(28)
    ]


def tour(name: str, clock: Callable[[], datetime]) -> None:
    """Maintain, write and read a time series."""
    clicks = TimeSeries(
        boto3.resource("dynamodb"),
        name,
        at="Time",
        period="month",
        schema=SCHEMA,
        strategy=CalculatedSuffix("Time", shards=2),
        keep=12,
        missing="create",  # last month's table, for this example
        clock=clock,
    )
    print(f"maintained: {clicks.maintain(on_plan=print)}")
    print(f"loaded: {bulk_load(clicks, some_clicks(clock()))}")
    print(f"tables: {', '.join(clicks.table_names())}")
    of_customer = Key("Customer").eq("c0")
    newest = [item["Url"] for item in clicks.query_items(KeyConditionExpression=of_customer, ScanIndexForward=False)]
    print(f"newest first: {', '.join(newest[:3])} … {newest[-1]}")
    since = of_customer & Key("Time").gte(text_of(clock() - timedelta(days=7)))
    page = clicks.query(KeyConditionExpression=since, Limit=2)
    print(f"a page of the last week: {[item['Url'] for item in page['Items']]}, more: {'LastEvaluatedKey' in page}")
    try:
        clicks.put_item(Item={"Customer": "c0", "Time": text_of(clock() - timedelta(days=500)), "Url": "/"})
    except PeriodError as error:
        print(f"too late: {error}")
    print(f"next: {clicks.plan(clock() + timedelta(days=31))}")


def main(args: Sequence[str] | None = None, clock: Callable[[], datetime] = now) -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="clicks", help="the name of the time series")
    tour(parser.parse_args(args).name, clock)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
