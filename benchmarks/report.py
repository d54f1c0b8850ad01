"""Figures as tables: on the terminal, in JSON, and in ``docs/reference/figures.md``."""

from __future__ import annotations

import os
import platform
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from rich.markup import escape
from rich.table import Table

from benchmarks.measure import Figure
from benchmarks.units import Case

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Section", "machine", "section_of", "section_of_units", "show", "write_docs", "write_json"]

_LIBRARIES = ("boto3", "botocore", "urllib3", "orjson", "pynamodb", "aiodynamo", "aiohttp", "awswrangler", "pydynox")
_WIDTH = 120


@dataclass(frozen=True)
class Section:
    """A table: its title, its columns, and its rows of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Give the table as Markdown; numbers stand right."""
        numbers = {"shards", "measured", "target"}
        rules = ["---:" if column.split(",")[0] in numbers else "---" for column in self.columns]
        lines = [self.columns, rules, *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def section_of(title: str, figures: Sequence[Figure]) -> Section:
    """Give figures one a row."""
    rows = []
    for figure in figures:
        spread = "" if figure.spread is None else " to ".join(_number(end) for end in figure.spread)
        measured = "not measured" if figure.value is None else f"{_number(figure.value)} {figure.unit}".strip()
        target = "" if figure.target is None else f"≤ {_number(figure.target)}"
        rows.append((figure.name, measured, spread, target, _verdict([figure]), figure.note))
    return Section(title, ("what", "measured", "runs from … to", "target", "", "of it"), tuple(rows))


def section_of_units(title: str, cases: Sequence[Case], figures: Sequence[Figure]) -> Section:
    """Give cases of units one a row, what a fresh table took beside what a warm one took."""
    rows = []
    pairs: dict[tuple[str, int, str], dict[str, Case]] = {}
    for case in cases:
        pairs.setdefault((case.read, case.shards, case.spread), {})[case.state] = case
    for (read, shards, spread), states in pairs.items():
        case = states["fresh"]
        judged = [figure for figure in figures if any(figure.name.startswith(f"{c.name}:") for c in states.values())]
        rows.append(
            (
                read,
                str(shards),
                spread,
                f"{case.obvious:,.1f}",
                f"{case.floor:,.1f}",
                _took(states["fresh"]),
                _took(states["warm"]) if "warm" in states else "",
                " ".join(
                    dict.fromkeys(f"≤ {_number(f.target)}" for f in judged if f.unit and f.target not in {None, 1})
                ),
                _verdict(judged),
            )
        )
    columns = ("read", "shards", "items", "obvious", "floor", "fresh: units, rounds, refills", "warm", "target", "")
    return Section(title, columns, tuple(rows))


def _took(case: Case) -> str:
    page = "" if case.worst_page is None else f", worst page {case.worst_page:.2f} ×"
    return f"{case.units:,.1f} ({case.ratio:.2f} ×{page}), {case.rounds}, {case.refills}"


def _verdict(figures: Sequence[Figure]) -> str:
    judged = [figure for figure in figures if figure.target is not None]
    if not judged:
        return ""
    if any(figure.value is None for figure in judged):
        return "not measured"
    missed = [figure.name.rpartition(": ")[2] for figure in judged if not figure.met]
    if not missed:
        return "met"
    return "**missed**" if len(judged) == 1 else f"**missed**: {', '.join(dict.fromkeys(missed))}"


def _number(value: float | None) -> str:
    assert value is not None
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"  # noqa: PLR2004 - three digits tell enough


def machine() -> str:
    """Describe in general terms what the figures were measured on."""
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}; "
        f"{', '.join(map(_version, _LIBRARIES))}."
    )


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} not installed"


def show(console: Console, section: Section) -> None:
    """Print a section."""
    table = Table(title=section.title, title_justify="left", title_style="bold")
    for column in section.columns:
        table.add_column(column, overflow="fold")
    for row in section.rows:
        table.add_row(*(re.sub(r"\*\*(\w+)\*\*", r"[bold red]\1[/]", escape(cell)) for cell in row))
    console.print(table)


def write_json(file: Path, figures: Sequence[Figure], cases: Sequence[Case], points: Sequence[Any]) -> None:
    """Write everything that was measured."""
    told = {
        "machine": machine(),
        "python": sys.version,
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
        "units": [{**asdict(case), "ratio": case.ratio} for case in cases],
        "growth": [asdict(point) for point in points],
    }
    file.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2))


def write_docs(page: Path, texts: dict[str, str]) -> None:
    """Put texts between a page's comments ``<!-- name -->`` and ``<!-- /name -->``."""
    text = page.read_text(encoding="utf-8")
    for name, written in texts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise RuntimeError(f"{page.name} has no place for {name!r}: it needs {begin.strip()} and {end}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{_wrapped(written)}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")


def _wrapped(text: str) -> str:
    """Break paragraphs, and not the rows of tables, into lines of the pages' width."""
    return "\n".join(line if line.startswith("|") else textwrap.fill(line, _WIDTH) for line in text.split("\n"))
