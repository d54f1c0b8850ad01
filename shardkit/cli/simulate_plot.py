"""``shardkit simulate --plot``: what each partition served over time, a picture a way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardkit.cli.figures import clipped, duration, percent
from shardkit.cli.plotting import picture
from shardkit.cli.simulate_show import pictures, scales
from shardkit.dynamodb.service_errors import Kind
from shardkit.partitions.scenarios.outcome import HeatMap, Outcome

__all__ = ["plot"]

_PANEL, _ROW = 1.1, 0.12  # inches
_MOST_ROWS, _COLUMNS = 60, 400
_MINUTES = 300.0  # from how many seconds on the axis has minutes


def plot(outcomes: Sequence[Outcome], path: str) -> None:
    """Draw a heat map for each way, and for each of its indexes and kinds of units that took any."""
    panels = [(outcome, *one) for outcome in outcomes for one in pictures(outcome)]
    heights = [_PANEL + _ROW * min(_MOST_ROWS, max(4, len(one.heat[index].partitions))) for one, index, _ in panels]
    most = scales(outcomes, _COLUMNS)
    with picture(path, sum(heights)) as figure:
        drawn = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for axes, panel in zip(drawn[:, 0], panels, strict=True):
            _draw(figure, axes, *panel, most[panel[1:]])


def _draw(figure: Any, axes: Any, outcome: Outcome, index: str | None, kind: Kind, most: float) -> None:
    taken = HeatMap.of(outcome.heat[index], kind, _COLUMNS)
    rows = taken.rows
    unit, seconds = ("minutes", 60.0) if taken.seconds * len(rows[0]) >= _MINUTES else ("seconds", 1.0)
    image = axes.imshow(
        rows, aspect="auto", interpolation="nearest", cmap="inferno", vmin=0.0, vmax=most, clip_on=False,
        extent=(0.0, taken.seconds * len(rows[0]) / seconds, len(rows) + 0.5, 0.5),
    )  # fmt: skip
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("partition" if index is None else f"partition of {clipped(index, 20)}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    bar = figure.colorbar(image, ax=axes, pad=0.01)
    bar.set_label(f"{kind} units\na second")
    bar.ax.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(_title(outcome), loc="left", fontsize=9)


def _title(outcome: Outcome) -> str:
    ceiling = "" if outcome.ceiling is None else f", ceiling {percent(outcome.ceiling)}"
    return (
        f"{clipped(outcome.way.name)}: {duration(outcome.seconds)}, {percent(outcome.share)} of the throughput{ceiling}"
    )
