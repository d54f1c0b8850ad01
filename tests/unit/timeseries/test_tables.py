from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import TYPE_CHECKING

from shardkit.timeseries.settings import Series
from shardkit.timeseries.stream import returned
from shardkit.timeseries.tables import SeriesTables
from tests.support.series import CLICKS

if TYPE_CHECKING:
    import pytest


def test_threads_lose_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this client created or wrote to is known at once, though other threads take note of other tables."""
    now = datetime(2016, 4, 15, tzinfo=UTC)
    tables = SeriesTables(Series("clicks", "Time", "day", CLICKS), lambda: now)
    monkeypatch.setattr(tables, "_listed", now)
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
