"""What the tests cost: seconds of CPU by folder, and what CONTRIBUTING.md allows. SHARDKIT_TEST_COSTS=1 prints it."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

START = "start of each worker"

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
_ROW = re.compile(r"^\| `?([\w/ ]+?)`? \| \d+ s \| (\d+) s \|$", re.MULTILINE)


def ceilings(contributing: str) -> dict[str, int]:
    """What each row of the page's table of costs may take, in seconds."""
    return {name: int(most) for name, most in _ROW.findall(contributing)}


def table(spent: Mapping[str, float], most: Mapping[str, int]) -> list[str]:
    """A line for each row: what its tests took. A test counts in the longest folder that it is in."""
    rows: defaultdict[str, float] = defaultdict(float)
    for name, seconds in spent.items():
        rows[max((row for row in most if f"{name}/".startswith(f"{row}/")), key=len, default="other tests")] += seconds
    allowed = {row: f", at most {limit} s" + ": over" * (rows.get(row, 0) > limit) for row, limit in most.items()}
    return [f"{seconds:7.1f} s  {row}{allowed.get(row, '')}" for row, seconds in sorted(rows.items())]


class Costs:
    """A plugin of pytest. Each worker counts its own; the controller adds them up."""

    def __init__(self, config: pytest.Config) -> None:
        self.workers: list[dict[str, float]] = []
        self._output: dict[str, Any] | None = getattr(config, "workeroutput", None)
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._counted = 0.0

    def _count(self, name: str) -> None:
        now = sum(os.times()[:4])  # of this process, and of the children that have ended
        self._spent[name] += now - self._counted
        self._counted = now

    def pytest_collection_finish(self) -> None:
        self._count(START)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        self._count(item.nodeid.partition("::")[0].rpartition("/")[0])
        return result

    def pytest_sessionfinish(self) -> None:
        if self._output is not None:
            self._output["costs"] = dict(self._spent)
        elif self._spent:
            self.workers.append(dict(self._spent))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.workers.append(getattr(node, "workeroutput", {}).get("costs", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        spent: defaultdict[str, float] = defaultdict(float)
        for worker in self.workers:
            for name, seconds in worker.items():
                spent[name] += seconds / (len(self.workers) if name == START else 1)
        terminalreporter.section("CPU of the tests, CONTRIBUTING.md has the ceilings")
        for line in table(spent, ceilings(CONTRIBUTING.read_text(encoding="utf-8"))):
            terminalreporter.write_line(line)
