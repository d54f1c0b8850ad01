"""``python -m benchmarks.hot_day``: a week of real flights, metered, with a partition key a day and with ten; drawn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import boto3

from benchmarks.growth import COLOURS, GREY, ROOT, style
from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable
from shardkit.cli.flights import fresh_table, read_flights
from tests.support.engines import engine_endpoint

__all__ = ["DAYS", "PICTURE", "SHARDS", "draw", "hot_day", "week"]

SHARDS = 10
DAYS = 7
PICTURE = ROOT / "docs" / "hot-day.svg"

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


def draw(before: ByDay, after: ByDay, picture: Path) -> None:
    """Draw both side by side as an SVG without background, readable on light and dark pages."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with plt.rc_context(style()):
        figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
        for place, (title, by_day) in enumerate(
            (("one partition key a day", before), (f"{SHARDS} shards a day", after))
        ):
            ax, hottest = axes[place], max(map(max, by_day.values()))
            for number, units in enumerate(by_day.values()):
                width = 0.8 / len(units)
                ax.bar(
                    [number - 0.4 + width * (shard + 0.5) for shard in range(len(units))],
                    units,
                    width * 0.9,
                    color=COLOURS[1 - place],
                )
            ax.axhline(hottest, color=GREY, linewidth=0.8, linestyle="--")
            ax.text(
                DAYS - 0.5, hottest, f"hottest key: {hottest:,.0f}", ha="right", va="bottom", gid=f"hottest-{place}"
            )
            ax.set(title=title, xticks=range(DAYS))
            ax.set_xticklabels([day[5:] for day in by_day])
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("write units of a partition key")
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


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
        ),
        PICTURE,
    )
