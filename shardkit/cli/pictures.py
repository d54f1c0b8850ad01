"""The one style of all pictures: those of ``--plot``, and those of the documentation, which are light and dark."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from shardkit.errors import ConfigurationError

# Readable on white and on black. Blue is what a partition serves; orange is what is too much for it.
BLUE, ORANGE, GREEN, PURPLE = COLOURS = "#3b82c4", "#d9822b", "#2f9e6e", "#b15fc9"
GREY = "#808080"
_LIGHT = {"ink": "#24292f", "line": "#6e7781", "paper": "#ffffff"}
_DARK = {"ink": "#e6edf3", "line": "#9198a1", "paper": "none"}
_WIDTH = 8.0  # inches

T = TypeVar("T")


def drawing(path: str | None, draw: Callable[[T, str], None]) -> Callable[[T], None]:
    """Check the path of a ``--plot`` before the work begins; return the function that draws into it with ``draw``."""
    if path is None:
        return lambda _drawn: None
    try:
        from matplotlib import figure
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'--plot: the package {error.name!r} is not installed; run pip install "shardkit[plot]"'
        ) from error
    known = figure.Figure().canvas.get_supported_filetypes()
    if (ending := Path(path).suffix.removeprefix(".").lower()) not in known:
        raise ConfigurationError(f"--plot: {path} has the ending {ending!r}; give one of {', '.join(known)}")
    if not Path(path).resolve().parent.is_dir():
        raise ConfigurationError(f"--plot: the folder {Path(path).resolve().parent} does not exist; create it first")
    return lambda drawn: draw(drawn, path)


@contextmanager
def picture(path: str, height: float, *, width: float = _WIDTH, dark: bool = False) -> Iterator[Any]:
    """Yield a figure (in inches) to draw on, and save it: the same data make the same file.

    A dark picture has no background: it is for dark pages.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_style(**(_DARK if dark else _LIGHT))):
        figure = Figure((width, height), layout="constrained")
        yield figure
        with warnings.catch_warnings():
            # Of a key in another script; an SVG has its text all the same.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            # Without today's date in the file.
            figure.savefig(path, metadata={"Date": None} if path.lower().endswith("svg") else None, dpi=150)


def _style(*, ink: str, line: str, paper: str) -> dict[str, Any]:
    return {
        # In an SVG, text stays text.
        "svg.fonttype": "none",
        "svg.hashsalt": "shardkit",
        # Keys and names are data: a $ in them begins no formula.
        "text.parse_math": False,
        "font.size": 9.0,
        "axes.labelsize": 9.0,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "figure.titlesize": 10.5,
        "figure.titleweight": "bold",
        "figure.constrained_layout.h_pad": 0.06,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": line,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": line,
        "grid.alpha": 0.3,
        "xtick.color": line,
        "xtick.labelcolor": ink,
        "ytick.color": line,
        "ytick.labelcolor": ink,
        "image.cmap": "inferno",
        "legend.frameon": False,
        "figure.facecolor": paper,
        "axes.facecolor": "none",
    }
