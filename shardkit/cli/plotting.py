"""``--plot``: what the commands that draw pictures have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from shardkit.errors import ConfigurationError

__all__ = ["drawing", "picture"]

T = TypeVar("T")

_WIDTH = 8.0  # inches
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "shardkit", "font.size": 9.0}


def drawing(path: str | None, plot: Callable[[], Callable[[T, str], None]]) -> Callable[[T], None]:
    """Give what draws the picture, and refuse at once what cannot be drawn.

    Args:
        path: the file; None: no picture is wanted.
        plot: imports what draws it, and gives that.

    Raises:
        ConfigurationError: matplotlib is not installed; no such format, or no such folder.
    """
    if path is None:
        return lambda _shown: None
    try:
        from matplotlib import figure

        draw = plot()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'--plot needs the package {error.name!r}, which is not installed: pip install "shardkit[plot]"'
        ) from error
    known = figure.Figure().canvas.get_supported_filetypes()
    if (ending := Path(path).suffix.removeprefix(".").lower()) not in known:
        raise ConfigurationError(f"--plot {path}: {ending!r} is no format of a picture; give one of {', '.join(known)}")
    if not Path(path).resolve().parent.is_dir():
        raise ConfigurationError(f"--plot {path}: there is no folder {Path(path).resolve().parent}; make it first")
    return lambda shown: draw(shown, path)


@contextmanager
def picture(path: str, height: float) -> Iterator[Any]:
    """Give a figure to draw on, so many inches high, and save it: the same data give the same picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure((_WIDTH, height), layout="constrained")
        yield figure
        # Without the day of drawing.
        figure.savefig(path, metadata={"Date": None} if path.lower().endswith("svg") else None, dpi=150)
