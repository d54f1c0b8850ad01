"""What ``shardkit load`` shows while it loads, and of many shards."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shardkit import BulkReport, ShardTally
from shardkit.bulk.sources.opening import open_source

rich_console = pytest.importorskip("rich.console")
pytest.importorskip("click")
show: Any = importlib.import_module("shardkit.cli.load")

PER_SHARD: dict[int | None, ShardTally] = {shard: ShardTally(500, 1000.0 / shard) for shard in (1, 2)}
REPORT = BulkReport(
    items=1200,
    written=1000,
    failed=2,
    requests=60,
    throttles=5,
    throttles_by_reason={"TableWriteKeyRangeThroughputExceeded": 5},
    write_units=2000.0,
    seconds=10.0,
    per_shard=PER_SHARD,
)


@pytest.fixture
def half_read(tmp_path: Path) -> Any:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"n": 1}\n' * 9, encoding="utf-8")
    source = open_source(str(path))
    source.total = 2004
    return source


@pytest.mark.parametrize("terminal", [False, True])
def test_progress(terminal: bool, half_read: Any) -> None:
    file = io.StringIO()
    console = rich_console.Console(file=file, force_terminal=terminal, width=80, color_system=None)
    now = [0.0]
    with show.LoadProgress(console, half_read, clock=lambda: now[0]) as progress:
        progress.update(BulkReport(items=1200, requests=1))
        assert "written" not in file.getvalue()
        now[0] = 10.0
        progress.update(REPORT)
        shown = file.getvalue()
    for text in (
        "1,000 written",
        "100 items/s, 200 units/s",
        "5 throttles (TableWriteKeyRangeThroughputExceeded 5)",
        "2 failed",
        "50%, about 10.0 s left",
    ):
        assert text in shown
    assert ("write units" in shown) is terminal
    assert progress.report is REPORT


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("by", ["total", "bytes"])
def test_the_progress_of_a_resumed_load(by: str, terminal: bool, half_read: Any) -> None:
    """The rate and the time left are those of this run: 60 s of skipping items that are done do not count."""
    source = half_read
    source.total = 10_000 if by == "total" else None
    if by == "bytes":
        # Nine tenths are read; a tenth of the records that were read waits.
        source.bytes_total = 1_000_000
        source.sections = [SimpleNamespace(bytes_read=900_000)]
    file = io.StringIO()
    console = rich_console.Console(file=file, force_terminal=terminal, width=80, color_system=None)
    now = [0.0]
    with show.LoadProgress(console, source, clock=lambda: now[0]) as progress:
        items = 200 if by == "total" else 1_100
        now[0] = 60.0
        progress.update(BulkReport(items=items, resumed=7_900, requests=1))
        assert "left" not in file.getvalue()
        now[0] = 70.0
        progress.update(
            BulkReport(items=items, written=200, resumed=7_900, requests=9, write_units=400.0, seconds=10.0)
        )
    shown = file.getvalue()
    assert "20 items/s, 40 units/s" in shown
    # Of 10,000 items 8,100 are done, and 1,900 are left at 20 a second.
    assert "81%, about 1:35 min left" in shown


def test_the_time_left_is_not_that_of_a_slow_start(half_read: Any) -> None:
    """A load of four minutes, at full speed after eight seconds: until then nothing is said, then what is true."""
    half_read.total = 99_000
    file = io.StringIO()
    console = rich_console.Console(file=file, width=80, color_system=None)
    now = [0.0]
    with show.LoadProgress(console, half_read, clock=lambda: now[0]) as progress:
        while now[0] < 20.0:
            now[0] += 0.5
            written = int(1000 * now[0] / 8 if now[0] <= 8 else 1000 + (now[0] - 8) * 422)
            progress.update(BulkReport(items=written, written=written, requests=1, seconds=now[0]))
    first, second = file.getvalue().splitlines()
    assert first.endswith(", 2%")
    assert second.endswith(", 6%, about 3:40 min left")


def test_progress_before_the_first_request(half_read: Any) -> None:
    """Items that cannot be read have failed before anything is sent: the rate is not shown yet."""
    file = io.StringIO()
    console = rich_console.Console(file=file, width=80, color_system=None)
    now = [0.0]
    with show.LoadProgress(console, half_read, clock=lambda: now[0]) as progress:
        now[0] = 10.0
        progress.update(BulkReport(items=4, failed=4))
    assert "4 failed" in file.getvalue()
    assert "left" not in file.getvalue()


def test_no_progress_without_a_console(half_read: Any) -> None:
    with show.LoadProgress(None, half_read) as progress:
        progress.update(REPORT)
    assert progress.report is REPORT


def test_many_shards_are_shown_by_the_hottest(capsys: pytest.CaptureFixture[str]) -> None:
    shards: dict[int | None, ShardTally] = {shard: ShardTally(shard, float(shard)) for shard in range(1, 201)}
    show.show_report(rich_console.Console(width=80), BulkReport(per_shard=shards), None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.lstrip()[:1].isdigit()][1:] == [str(n) for n in range(181, 201)]
    assert "and 180 cooler shards" in lines[-1]
