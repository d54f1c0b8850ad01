"""Pictures of simulated loads: the write units that each partition took, by time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.pictures import draw_both
from benchmarks.simulate import PARTITIONS, WRITE_UNITS, Run

__all__ = ["draw_runs"]

_COLUMNS = 240


def draw_runs(runs: Sequence[Run]) -> None:
    """Draw the loads of all users in one picture, and those of one day's key in another."""
    users, day = ([run for run in runs if bool(run.way.shards) is of_a_day] for of_a_day in (False, True))
    ours = next(run.share for run in users if run.way.order == "interleaved" and run.way.parts == 1)
    least = min(run.share for run in users)
    title = f"shardkit uses {ours:.0f}% of the table's write units, one batch_writer {least:.0f}%"
    draw_both("simulate-users", _height(users), lambda figure: panels(figure, users, title))
    one, *_, most = day
    title = (
        f"One key uses {one.share:.0f}% of the table's write units, with {most.way.shards:,} suffixes {most.share:.0f}%"
    )
    draw_both("simulate-one-day", _height(day), lambda figure: panels(figure, day, title))


def _height(runs: Sequence[Run]) -> float:
    return 0.7 + 1.3 * len(runs)


def panels(figure: Any, runs: Sequence[Run], title: str) -> None:
    """Draw a panel for each run, all on the same time axis: a row for each partition, dark where it took nothing."""
    longest = max(_minutes(run) for run in runs)
    drawn = figure.subplots(len(runs), squeeze=False, sharex=True)[:, 0]
    for axes, run in zip(drawn, runs, strict=True):
        count = len(max(run.heat, key=len))
        axes.imshow(
            [[units / run.column_seconds for units in _columns(row, count)] for row in run.heat],
            aspect="auto",
            interpolation="nearest",
            vmin=0,
            vmax=WRITE_UNITS / PARTITIONS,
            extent=(0, _minutes(run), PARTITIONS + 0.5, 0.5),
        )
        minutes, seconds = divmod(round(run.seconds), 60)
        share = f"{run.share:.0f}% of {WRITE_UNITS:,} write units a second"
        axes.set_title(f"{run.way.name}: {minutes} min {seconds:02} s, {share}")
        axes.set(ylabel="partition", yticks=(1, 6, 11), xlim=(0, longest))
    drawn[-1].set_xlabel("time (minutes)")
    bar = figure.colorbar(drawn[0].images[0], ax=list(drawn), label="write units a second", aspect=40, pad=0.01)
    bar.ax.yaxis.set_major_formatter("{x:,.0f}")
    figure.suptitle(title, x=0.01, ha="left")


def _minutes(run: Run) -> float:
    return len(max(run.heat, key=len)) * run.column_seconds / 60


def _columns(row: Sequence[float], count: int) -> list[float]:
    """Give a row in at most so many columns, each the mean of some."""
    padded = [*row, *[0.0] * (count - len(row))]
    if count <= _COLUMNS:
        return padded
    edges = [count * column // _COLUMNS for column in range(_COLUMNS + 1)]
    return [sum(padded[a:b]) / (b - a) for a, b in pairwise(edges)]
