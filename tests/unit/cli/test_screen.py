"""How the commands write figures."""

from __future__ import annotations

import io
from math import inf

import pytest

pytest.importorskip("rich")

from rich.console import Console

from shardkit.cli.screen import bar, clipped, duration, percent, size, tell


@pytest.mark.parametrize(
    ("terminal", "said"), [(True, "  a hot key, which\n    takes 875\n    write-units a\n"), (False, None)]
)
def test_prose_is_wrapped_on_a_terminal_alone(terminal: bool, said: str | None) -> None:
    """Between words, and what follows is indented; in a file, lines stay lines."""
    text = "  a hot key, which takes 875 write-units a"
    console = Console(file=io.StringIO(), width=20, force_terminal=terminal, color_system=None)
    tell(console, text)
    tell(console, "")
    assert console.file.getvalue() == (said or f"{text}\n") + "\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (1_234_567, "1.2 MB"),
        (5e9, "5.0 GB"),
        (3e15, "3,000.0 TB"),
    ],
)
def test_size(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.6, "2.6 s"), (65, "1:05 min"), (3600, "1:00:00"), (59.9, "1:00 min"), (inf, "forever")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("share", "text"), [(0, "0%"), (0.174, "17%"), (0.0517, "5.17%"), (1e-6, "0.00%")])
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text


def test_bar() -> None:
    assert bar(1, "utf-8") == "█" * 30
    assert bar(0.5, "ascii", width=10) == "#####"
    assert bar(0.001, "UTF-8") == "█"
    assert not bar(0, "utf-8")


def test_clipped() -> None:
    assert clipped("2014-07-09") == "2014-07-09"
    assert clipped("two\nlines") == "'two\\nlines'"
    assert clipped("x" * 61) == "x" * 57 + "..."
    assert clipped("x" * 9, 8) == "xxxxx..."
    assert clipped("日" * 4, 8) == "日日日日"
    assert clipped("日" * 5, 8) == "日日..."
