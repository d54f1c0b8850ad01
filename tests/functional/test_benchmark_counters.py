"""The simulation behind docs/counters.md: few shards throttle, more do not, and every add is made once or given up."""

from __future__ import annotations

import re

from benchmarks.counters import PAGE, SHARDS, simulate


def test_shards_take_what_one_partition_does_not() -> None:
    hot, spread = simulate(1, seconds=0.4), simulate(20, seconds=0.4)
    assert hot.asked == spread.asked == 2000
    # One partition: the units of its first second, then 1,000 a second.
    assert hot.in_time <= 1400
    assert spread.in_time > 1950
    assert hot.requests > 1.5 * hot.asked
    assert (spread.requests, spread.given_up) == (2000, 0)
    assert spread.slowest < 0.011 < hot.slowest


def test_the_page_has_its_table() -> None:
    """Written by `python -m benchmarks.counters --write-docs`."""
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \|.*\| ([\d.]+) read units \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [(int(shards), float(units)) for shards, _, units in rows] == [(shards, shards / 2) for shards in SHARDS]
    made = [int(number.replace(",", "")) for _, number, _ in rows]
    assert made[0] < 1_200
    assert made[-1] > 4_900
