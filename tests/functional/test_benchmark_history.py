"""Figures are kept by date, and one that gets worse is seen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks import history
from benchmarks.__main__ import MEASURES, Bench, main
from benchmarks.measure import Figure


def cpu(value: float | None, target: float | None = 1.0) -> Figure:
    return Figure(bench="single", name="put: CPU, of boto3's", value=value, target=target)


@pytest.mark.parametrize(
    ("kept", "now", "seen"),
    [
        ([], 9.0, False),
        ([0.4], 0.5, False),
        ([0.4], 0.51, True),
        ([0.4], 0.1, False),
        ([0.003], 0.05, False),  # far below the target
        ([0.1, 0.4, 0.4, 0.4], 0.5, False),  # the median: one good day is no measure
        ([0.1, 0.1, 0.4, 0.4, 0.4, 0.4, 0.4], 0.5, False),  # of the last five
    ],
)
def test_a_slide_is_seen(kept: list[float], now: float, seen: bool, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    for value in kept:
        history.keep([cpu(value), cpu(9, None)], "a machine", file)
    found = list(history.slides([cpu(now), cpu(99, None), cpu(None)], file))
    assert found == (["single: put: CPU, of boto3's: 0.51, before 0.40 (median of 1)"] if seen else [])


@pytest.mark.parametrize(
    ("kept", "now", "failed"),
    [
        ([], 2.0, ""),
        ([], 2.1, "2.10, target 1.00, usually 1.00"),
        ([0.4], 2.1, "2.10, target 1.00, usually 0.40"),
        ([1.6], 2.1, ""),  # missed as usual: no news
        ([1.6], 3.3, "3.30, target 1.00, usually 1.60"),
    ],
)
def test_a_short_run_fails_by_what_is_usual(
    kept: list[float], now: float, failed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "history.jsonl"
    for value in kept:
        history.keep([cpu(value)], "a machine", file)
    monkeypatch.setattr(history, "HISTORY", file)
    monkeypatch.setitem(MEASURES, Bench.single, lambda *, short: iter([cpu(now)]))
    ended = CliRunner().invoke(main, ["single", "--short"])
    assert ended.exit_code == bool(failed)
    shown = f"twice its target, and twice what is usual: single: put: CPU, of boto3's: {failed}"
    assert (shown in " ".join(ended.stdout.split())) == bool(failed)


def test_a_written_measurement_is_kept_and_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    value = 0.4
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    monkeypatch.setitem(MEASURES, Bench.single, lambda *, short: iter([cpu(value)]))
    monkeypatch.setattr("benchmarks.report.write_docs", lambda *_: None)
    assert "worse than before" not in CliRunner().invoke(main, ["single", "--write-docs"]).stdout
    value = 0.6
    shown = " ".join(CliRunner().invoke(main, ["single", "--short"]).stdout.split())
    assert "worse than before: single: put: CPU, of boto3's: 0.60, before 0.40" in shown
    (line,) = (tmp_path / "history.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["figures"] == {"single: put: CPU, of boto3's": 0.4}


def test_what_is_kept_can_be_read() -> None:
    """Dates in order, and figures of benches that there are."""
    lines = [json.loads(line) for line in history.HISTORY.read_text(encoding="utf-8").splitlines()]
    dates = [line["date"] for line in lines]
    assert dates == sorted(dates)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
    assert {name.partition(":")[0] for line in lines for name in line["figures"]} <= {*Bench}
