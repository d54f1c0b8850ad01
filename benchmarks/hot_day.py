"""``python -m benchmarks.hot_day``: a week of real flights, metered, with a partition key a day and with ten; drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import boto3

from benchmarks.pictures import DOCS, draw_both
from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable
from shardkit.cli.flights import fresh_table, read_flights
from shardkit.cli.pictures import BLUE, GREY, ORANGE
from tests.support.engines import engine_endpoint

__all__ = ["DAYS", "PICTURE", "SHARDS", "draw", "hot_day", "week"]

SHARDS = 10
DAYS = 7
PICTURE = DOCS / "hot-day.svg"

ByDay = Mapping[str, Sequence[float]]
"""For each day, the write units of each of its partition keys."""


def week() -> dict[str, list[dict[str, Any]]]:
    """Give the flights of a week by day, the busiest day of the year in its middle."""
    by_day: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in read_flights():
        by_day[item["Date"]].append(item)
    days = sorted(by_day)
    middle = days.index(max(days, key=lambda day: len(by_day[day])))
    first = middle - DAYS // 2
    return {day: by_day[day] for day in days[first : first + DAYS]}


def hot_day(resource: Any, flights: Mapping[str, list[dict[str, Any]]]) -> tuple[ByDay, ByDay]:
    """Write the flights one by one, into a plain and into a sharded table, and give what the service reported."""
    strategy = CalculatedSuffix("Flight", shards=SHARDS)
    meter = CapacityMeter()
    with fresh_table(resource, "plain") as plain, fresh_table(resource, "sharded") as over:
        sharded = ShardedTable(over, strategy)
        for table in (plain, sharded):
            with meter.attach(table):
                for item in chain.from_iterable(flights.values()):
                    table.put_item(Item=item)
    before = {day: [meter.by_key["plain", day].write_units] for day in flights}
    after = {
        day: [meter.by_physical_key["sharded", key].write_units for key in strategy.physical_keys(day)]
        for day in flights
    }
    if Counter(meter.by_table).keys() != {"plain", "sharded"} or meter.estimated_write_units:
        raise RuntimeError(f"these are not the units that the service reported: {meter}")
    return before, after


def draw(before: ByDay, after: ByDay) -> None:
    """Draw both side by side into the documentation."""
    titles = "one partition key a day", f"{SHARDS} shards a day"
    hot, spread = (max(map(max, by_day.values())) for by_day in (before, after))
    title = f"With {SHARDS} shards a day, the hottest key takes {spread:,.0f} write units instead of {hot:,.0f}"

    def drawn(figure: Any) -> None:
        panels = zip(figure.subplots(1, 2, sharey=True), titles, (before, after), (ORANGE, BLUE), strict=True)
        for place, (axes, name, by_day, colour) in enumerate(panels):
            hottest = (hot, spread)[place]
            for number, units in enumerate(by_day.values()):
                width = 0.8 / len(units)
                places = [number - 0.4 + width * (shard + 0.5) for shard in range(len(units))]
                axes.bar(places, units, width * 0.9, color=colour)
            axes.axhline(hottest, color=GREY, linewidth=0.8, linestyle="--")
            axes.text(DAYS - 0.5, hottest, f"hottest key: {hottest:,.0f}", ha="right", va="bottom")
            axes.set(title=name, xlabel="day of 2013")
            axes.set_xticks(range(DAYS), [day[5:] for day in by_day])
            axes.yaxis.set_major_formatter("{x:,.0f}")
            if not place:
                axes.set_ylabel("write units of a stored partition key")
        figure.suptitle(title, x=0.01, ha="left")

    draw_both("hot-day", 3.6, drawn, width=10)


if __name__ == "__main__":
    draw(
        *hot_day(
            boto3.resource(
                "dynamodb",
                region_name="us-east-1",
                endpoint_url=engine_endpoint("dynoxide"),
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
            ),
            week(),
        )
    )
