"""``shardkit heat --plot``: the hottest keys of each candidate beside what a partition serves, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardkit.cli.figures import clipped
from shardkit.cli.heat_show import Judged, key_text
from shardkit.cli.plotting import picture

__all__ = ["plot"]

_COOL, _HOT, _LIMIT = "#2a7f62", "#c8553d", "#333333"
_BAR, _PANEL = 0.24, 1.1  # inches
_LONGEST = 32


def plot(judged: Sequence[Judged], path: str) -> None:
    """Draw a panel for each candidate: units a second of its hottest keys, and what a partition serves."""
    heights = [_PANEL + _BAR * len(_bars(one)) for one in judged]
    with picture(path, sum(heights)) as figure:
        panels = figure.subplots(len(judged), squeeze=False, height_ratios=heights)
        for panel, one in zip(panels[:, 0], judged, strict=True):
            _draw(panel, one)


def _bars(one: Judged) -> list[tuple[str, float]]:
    """Give units a second, of writes where there are any: of the hottest keys, or of the hottest of a time."""
    found, (units, heat) = one.found, one.heats[0]
    if found.times:
        return [("the hottest of a time", heat.units)]
    whole = found.write_units if units == "write units" else found.read_units
    used = [(one.write_units if units == "write units" else one.read_units) or 0.0 for one in found.hottest]
    labels = [clipped(key_text(usage.key), _LONGEST) for usage in found.hottest]
    return [(label, heat.rate * part / whole) for label, part in zip(labels, used, strict=True)]


def _draw(panel: Any, one: Judged) -> None:
    units, heat = one.heats[0]
    bars = _bars(one)
    places = range(len(bars))
    values = [value for _, value in bars]
    panel.barh(places, values, height=0.7, color=[_HOT if value > heat.limit else _COOL for value in values])
    panel.set_yticks(places, [label for label, _ in bars])
    panel.set_ylim(max(len(bars), 2) - 0.4, -0.6)
    panel.axvline(heat.limit, color=_LIMIT, linewidth=1.2, linestyle="--")
    panel.annotate(
        f"a partition: {heat.limit:,}", (heat.limit, 1), (3, 2), xycoords=("data", "axes fraction"),
        textcoords="offset points", color=_LIMIT, fontsize=8,
    )  # fmt: skip
    panel.set_xlim(0, 1.15 * max(heat.limit, *values))
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.set_xlabel(f"{units} a second")
    panel.set_title(f"{one.title}\n{one.verdict.reason}", loc="left", fontsize=9, pad=14)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
