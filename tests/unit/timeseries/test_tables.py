from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from shardkit import Unsharded
from shardkit.timeseries.plans import Plans
from shardkit.timeseries.settings import Series
from shardkit.timeseries.stream import returned
from shardkit.timeseries.tables import SeriesTables
from tests.support.series import CLICKS


def test_threads_lose_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this client created or wrote to is known at once, though other threads take note of other tables."""
    now = datetime(2016, 4, 15, tzinfo=UTC)
    series = Series("clicks", "Time", "day", CLICKS)
    tables = SeriesTables(Plans(series, Unsharded()), lambda: now)
    monkeypatch.setattr(tables, "_listed", int(now.timestamp()))
    days = [[tables.series.calendar.at(9_000 + 8 * number + own) for number in range(1200)] for own in range(8)]

    together = Barrier(8)

    def write(own: int) -> None:
        together.wait()
        for day in days[own]:
            tables.remember(day)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            [*pool.map(write, range(8))]
    finally:
        sys.setswitchinterval(interval)
    assert returned(tables.existing()) == sorted(day for own in days for day in own)


def test_a_clock_in_local_time() -> None:
    """An hour later it is 02:00 again, and only half a minute seems to have passed since the tables were listed."""
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    now = [first]
    series = Series(name="clicks", at="Time", period="day", schema=CLICKS)
    tables = SeriesTables(Plans(series, Unsharded()), lambda: now[0].astimezone(ZoneInfo("Europe/Berlin")))
    listing: Any = tables.existing()
    assert next(listing).operation == "ListTables"
    with pytest.raises(StopIteration):
        listing.send({"TableNames": []})
    now[0] = first + timedelta(seconds=30)
    assert returned(tables.existing()) == []
    now[0] = first + timedelta(hours=1, seconds=30)
    later: Any = tables.existing()
    assert next(later).operation == "ListTables"
