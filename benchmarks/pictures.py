"""``python -m benchmarks.pictures``: the pictures of the guide that show rules, plans and simulations.

Others are drawn where they are measured: ``python -m benchmarks.hot_day``, ``python -m benchmarks --write-docs``.
Every picture is drawn twice, for light and for dark pages.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measure import ROOT
from shardkit import CalculatedSuffix
from shardkit.cli.pictures import BLUE, COLOURS, GREEN, GREY, ORANGE, picture
from shardkit.cli.simulate import draw as draw_simulated
from shardkit.cli.simulate_series import draw_throughput
from shardkit.core.interleave import Interleave
from shardkit.partitions import SeriesPlan, plan_shards
from shardkit.partitions.scenarios.items import generated
from shardkit.partitions.scenarios.reading import read_scenario
from shardkit.partitions.scenarios.running import run
from shardkit.partitions.scenarios.series import read_series
from shardkit.partitions.simulator import draws

__all__ = [
    "DOCS",
    "MESSAGES",
    "PARTITIONS",
    "RESULT",
    "SHOWN",
    "STEPS",
    "draw_both",
    "items_per_key",
    "queries",
    "series",
    "shards_for",
    "uploads",
]

DOCS = ROOT / "docs"
ITEM_SIZE = 350
SHOWN = 4000
"""The load whose numbers of shards stand at the lines."""
LOADS = (*range(1000, 10_000, 500), 10_000)
PARTITIONS: tuple[int | None, ...] = (None, 16, 32, 64)
"""Partitions of the table; None: unknown."""

# Each question, and what to do if the answer is no.
STEPS = (
    (
        "Does one partition key take more than\n1,000 write units or 3,000 read units\nper second?",
        "No suffix. For fast loads, bulk_load\nmixes the keys of a plain table.",
    ),
    (
        "Is it a key of the table\n(not of a global secondary index)?",
        "A suffix on the table does not help.\nShard the index itself: indexes={…}.",
    ),
    (
        "Does it have many items that share\nthe load (not one hot item)?",
        "A suffix does not help: an item is in\none partition. Cache its reads.",
    ),
    (
        "Does the sort key only grow, or has the table\na local index, or are throttles at a\nsudden peak a problem?",
        "Try without a suffix: DynamoDB splits\nthe key by itself, after a while.",
    ),
    (
        "Do you mostly read single items or whole\nkeys (not many small pages, not many\nqueries per second)?",
        "Few shards at most, or a better key:\nevery page asks every shard.",
    ),
)
RESULT = 'Shard it: CalculatedSuffix("sort key", shards=…),\nwith as few shards as the writes need.'

MESSAGES = ("U1 1", "U1 2", "U2 1", "U2 2", "U2 3", "U2 4", "U3 1", "U3 2", "U3 3")
"""Each with its user, in the order of the source."""


def draw_both(name: str, height: float, draw: Callable[[Any], None], *, width: float = 8.0) -> None:
    """Draw a picture of the documentation with ``draw``, for light pages and for dark ones."""
    for dark in (False, True):
        with picture(str(DOCS / f"{name}{'-dark' * dark}.svg"), height, width=width, dark=dark) as figure:
            draw(figure)


def items_per_key() -> tuple[tuple[str, int], ...]:
    """Return the items of each stored key: of 20,000 orders on one key, and then on its ten."""
    strategy = CalculatedSuffix("OrderId", shards=10)
    orders = [{"OrderId": f"A{number:05}"} for number in range(1, 20_001)]
    items = Counter(strategy.physical_key("2014-07-09", strategy.shard_of("2014-07-09", order)) for order in orders)
    return ("2014-07-09", len(orders)), *((str(key), items[key]) for key in strategy.physical_keys("2014-07-09"))


def draw_hot_key(figure: Any) -> None:
    """Draw the items of a hot key, and of its shards."""
    bars = items_per_key()
    axes = figure.subplots()
    places = [0.0, *(place + 0.7 for place in range(1, len(bars)))]
    axes.barh(places, [items for _, items in bars], 0.75, color=[ORANGE] + [BLUE] * (len(bars) - 1))
    for place, (_, items) in zip(places, bars, strict=True):
        axes.annotate(f"{items:,}", (items, place), (5, 0), textcoords="offset points", va="center")
    axes.text(10_000, 0, "without suffixes: one key, on one partition", va="center", ha="center", color="white")
    axes.text(10_000, 6.2, "ten shards: ten keys, which can be on ten partitions", va="center", ha="center")
    axes.set_yticks(places, [key for key, _ in bars])
    axes.set(xlabel="items of the stored partition key", xlim=(0, 22_000), ylim=(places[-1] + 0.6, -0.6))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.suptitle("20,000 orders of one day: all on one key, or about 2,000 on each of ten", x=0.01, ha="left")


def uploads() -> tuple[Sequence[str], Sequence[str]]:
    """Return the messages in the order of the source, and in that of a load."""
    order: Interleave[str] = Interleave()
    for message in MESSAGES:
        order.add(message.split()[0], message)
    return MESSAGES, order.drain()


def draw_uploads(figure: Any) -> None:
    """Draw both orders, a box for each write, in the colour of its key."""
    colours = dict(zip(("U1", "U2", "U3"), (BLUE, ORANGE, GREEN), strict=True))
    titles = "in the order of the source: one partition key at a time", "round-robin: one item of every key in turn"
    for axes, title, order in zip(figure.subplots(2, 1), titles, uploads(), strict=True):
        axes.bar(range(1, len(order) + 1), 1, 0.9, color=[colours[message.split()[0]] for message in order])
        for place, message in enumerate(order, 1):
            axes.text(place, 0.5, message, ha="center", va="center", color="white", size=10)
        axes.set(
            title=title,
            xlabel="number of the write",
            xticks=range(1, len(order) + 1),
            yticks=[],
            xlim=(0.5, len(order) + 0.5),
        )
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    figure.suptitle("A load in round-robin order writes to all partition keys at once", x=0.01, ha="left")


def queries() -> tuple[str, str, str]:
    """Return the first, the second and the last stored key of a key with 200 shards."""
    first, second, *_, last = CalculatedSuffix("OrderId", shards=200).physical_keys("2014-07-09")
    return str(first), str(second), str(last)


def draw_query(figure: Any) -> None:
    """Draw a query as one request per shard, whose answers are merged."""
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(-2.4, 0.4))
    axes.axis("off")
    _box(axes, (0.1, -1), 2.0, "query(Date =\n2014-07-09)", GREY)
    _box(axes, (5.9, -1), 1.9, "merge in the order\nof the sort key", GREY)
    _box(axes, (8.3, -1), 1.6, "one page,\none cursor", BLUE)
    for place, key in zip((0, -1, -2), queries(), strict=True):
        _box(axes, (2.8, place), 2.4, f"Query\n{key}", BLUE)
        _arrow(axes, (2.1, -1), (2.8, place))
        _arrow(axes, (5.2, place), (5.9, -1))
    axes.text(4, -1.5, "⋮", ha="center", va="center", size=9.5)
    _arrow(axes, (7.8, -1), (8.3, -1))
    figure.suptitle("One query is a Query per shard, and their answers are merged", x=0.01, ha="left")


def draw_decision(figure: Any) -> None:
    """Draw the questions from top to bottom, each with what to do beside it."""
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(-len(STEPS) - 0.4, 0.45))
    axes.axis("off")
    for number, (question, otherwise) in enumerate(STEPS):
        _box(axes, (0.1, -number), 5.3, question, GREY)
        _box(axes, (6.2, -number), 3.7, otherwise, ORANGE)
        _arrow(axes, (5.4, -number), (6.2, -number))
        axes.text(5.75, -number + 0.06, "no", ha="center", va="bottom")
        _arrow(axes, (2.75, -number - 0.36), (2.75, -number - 0.64))
        axes.text(2.9, -number - 0.5, "yes", va="center")
    _box(axes, (0.1, -len(STEPS)), 5.3, RESULT, BLUE)
    figure.suptitle("A suffix helps if you answer yes five times", x=0.01, ha="left")


def _box(axes: Any, left: tuple[float, float], width: float, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = left
    axes.add_patch(
        FancyBboxPatch((x, y - 0.36), width, 0.72, "round,pad=0,rounding_size=0.1", edgecolor=colour, facecolor="none")
    )
    axes.text(x + width / 2, y, text, ha="center", va="center", size=9.5)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "shrinkA": 0, "shrinkB": 0})


def shards_for(write_units: int, partitions: int | None) -> int | None:
    """Return the shards of a key that takes so many write units a second; None: no number is enough."""
    return plan_shards(ITEM_SIZE, write_units, partitions=partitions).shards


def draw_shards(figure: Any) -> None:
    """Draw the shards that a key needs over its load, a line for each number of partitions."""
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}
    axes = figure.subplots()
    for colour, partitions in zip((GREY, *COLOURS[1:]), PARTITIONS, strict=True):
        label = f"{partitions} partitions" if partitions else "unknown (assumed: they serve twice the load)"
        below = partitions == PARTITIONS[-1]
        found = [(load, shards_for(load, partitions)) for load in LOADS]
        axes.plot(*zip(*found, strict=True), "o-", markersize=3, color=colour, label=label)
        shown = shards_for(SHOWN, partitions)
        axes.annotate(str(shown), (SHOWN, shown), (0, -15 if below else 6), **place, color=colour)
    axes.set(
        xlabel="write units per second of the key",
        ylabel="shards",
        yscale="log",
        xlim=(800, 10_200),
        ylim=(2, 3000),
        xticks=range(1000, 10_001, 1000),
        yticks=(3, 10, 30, 100, 300, 1000),
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    cost = axes.secondary_yaxis("right", functions=(lambda shards: shards / 2, lambda units: units * 2))
    cost.set(ylabel="read units of each Query, at least", yticks=(1.5, 5, 15, 50, 150, 500))
    cost.yaxis.set_major_formatter("{x:,g}")
    cost.minorticks_off()
    axes.grid(visible=True)
    axes.legend(loc="upper left")
    figure.suptitle("The more partitions a table has, the fewer shards a hot key needs", x=0.01, ha="left")


def series() -> SeriesPlan:
    """Return the plan of the clicks: one table that grows, and a table for each month."""
    file = ROOT / "examples" / "clicks.toml"
    return read_series(tomllib.loads(file.read_text(encoding="utf-8")), file.name)


def draw_hot_day() -> None:
    """Draw what ``shardkit simulate examples/hot_day.toml --plot`` draws."""
    scenario = ROOT / "examples" / "hot_day.toml"
    asked = read_scenario(tomllib.loads(scenario.read_text(encoding="utf-8")), scenario.name)
    items = generated(asked.items, asked.keys, draws(f"items {asked.seed}"))
    ways = [run(asked, way, items) for way in asked.ways]
    for dark in (False, True):
        draw_simulated(ways, str(DOCS / f"simulate-hot-day{'-dark' * dark}.svg"), dark=dark)


if __name__ == "__main__":
    draw_both("hot-key", 4.2, draw_hot_key)
    draw_both("upload-order", 2.6, draw_uploads)
    draw_both("query", 2.6, draw_query)
    draw_both("do-i-need-this", 7.2, draw_decision, width=9)
    draw_both("number-of-shards", 4.8, draw_shards, width=9)
    draw_both("timeseries", 3.2, lambda figure: draw_throughput(figure, series()))
    draw_hot_day()
