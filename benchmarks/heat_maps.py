"""Pictures of simulated loads: the write units that each partition took, by time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.growth import GREY, style
from benchmarks.simulate import PARTITIONS, WRITE_UNITS, Run

__all__ = ["draw_heat", "picture_of"]

_COLUMNS = 240


def picture_of(run: Run, folder: Path) -> Path:
    """Give where the picture of a way stands."""
    words = "".join(letter if letter.isalnum() else " " for letter in run.way.name.replace("'s", "")).split()
    return folder / f"simulate-{'-'.join(words)}.png"


def draw_heat(run: Run, picture: Path) -> None:
    """Draw a run: a row for each partition, dark where it took nothing and bright where it took all that it serves."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    rows = [_columns(row, len(max(run.heat, key=len))) for row in run.heat]
    minutes = len(rows[0]) and len(max(run.heat, key=len)) * run.column_seconds / 60
    most = WRITE_UNITS / PARTITIONS
    with plt.rc_context(style()):
        figure, axes = plt.subplots(figsize=(8, 2.6), layout="constrained")
        image = axes.imshow(
            [[units / run.column_seconds for units in row] for row in rows],
            aspect="auto",
            interpolation="nearest",
            cmap="inferno",
            vmin=0,
            vmax=most,
            extent=(0, minutes, PARTITIONS + 0.5, 0.5),
        )
        axes.set_title(f"{run.way.name}: {run.share:.1f}% of {WRITE_UNITS:,} write units", color=GREY, fontsize=10)
        axes.set(xlabel="minutes", ylabel="partition", yticks=range(1, PARTITIONS + 1, 2))
        figure.colorbar(image, label="write units a second")
        figure.savefig(picture, dpi=100, transparent=True, metadata={"Software": None})
        plt.close(figure)


def _columns(row: Sequence[float], count: int) -> list[float]:
    """Give a row in at most so many columns, each the mean of some."""
    padded = [*row, *[0.0] * (count - len(row))]
    if count <= _COLUMNS:
        return padded
    edges = [count * column // _COLUMNS for column in range(_COLUMNS + 1)]
    return [sum(padded[a:b]) / (b - a) for a, b in pairwise(edges)]
