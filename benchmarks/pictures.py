"""``python -m benchmarks.pictures``: the pictures of the guide that show rules and plans instead of measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.growth import COLOURS, GREY, ROOT, style
from shardkit.partitions import plan_shards

__all__ = ["DECISION", "NUMBER_OF_SHARDS", "PARTITIONS", "RESULT", "SHOWN", "STEPS", "shards_for"]

DECISION = ROOT / "docs" / "do-i-need-this.svg"
NUMBER_OF_SHARDS = ROOT / "docs" / "number-of-shards.svg"
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
        "A suffix on the table does not help.\nChange the index's partition key.",
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


@contextmanager
def _figure(picture: Path, width: float, height: float) -> Iterator[Any]:
    """Yield the axes of a figure of ``width`` × ``height`` inches, and save it as an SVG without background."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with plt.rc_context(style()):
        figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
        yield axes
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


def draw_decision(picture: Path) -> None:
    """Draw the questions from top to bottom, each with what to do beside it."""
    with _figure(picture, 9, 7.2) as axes:
        axes.set(title="When a suffix helps: five questions", xlim=(0, 10), ylim=(-len(STEPS) - 0.4, 0.45))
        axes.axis("off")
        for number, (question, otherwise) in enumerate(STEPS):
            _box(axes, (0.1, -number), 5.3, question, GREY)
            _box(axes, (6.2, -number), 3.7, otherwise, COLOURS[1])
            _arrow(axes, (5.4, -number), (6.2, -number))
            axes.text(5.75, -number + 0.06, "no", ha="center", va="bottom")
            _arrow(axes, (2.75, -number - 0.36), (2.75, -number - 0.64))
            axes.text(2.9, -number - 0.5, "yes", va="center")
        _box(axes, (0.1, -len(STEPS)), 5.3, RESULT, COLOURS[2])


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


def draw_shards(picture: Path) -> None:
    """Draw the shards that a key needs over its load, a line for each number of partitions."""
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}
    with _figure(picture, 9, 4.8) as axes:
        for colour, partitions in zip((GREY, *COLOURS[1:]), PARTITIONS, strict=True):
            label = f"{partitions} partitions" if partitions else "unknown (assumed: they serve twice the load)"
            below = partitions == PARTITIONS[-1]
            found = [(load, shards_for(load, partitions)) for load in LOADS]
            axes.plot(*zip(*found, strict=True), "o-", markersize=3, color=colour, label=label)
            shown = shards_for(SHOWN, partitions)
            axes.annotate(str(shown), (SHOWN, shown), (0, -15 if below else 6), **place, color=colour)
        axes.set(
            title="The more partitions a table has, the fewer shards a hot key needs",
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
        axes.grid(color=GREY, alpha=0.3)
        axes.spines["top"].set_visible(False)
        axes.legend(frameon=False, loc="upper left")


if __name__ == "__main__":
    draw_decision(DECISION)
    draw_shards(NUMBER_OF_SHARDS)
