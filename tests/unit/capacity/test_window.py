from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity.usage import Units, Usage, Window
from shardkit.errors import ConfigurationError


def test_rates() -> None:
    window = Window(60)
    assert window.rates(1000).to_dict() == dict.fromkeys(window.rates(1000).to_dict(), 0)
    for second in range(1000, 1010):
        window.account(second).add(Units(1, 5, 0.5, 0))
        window.account(second).throttles += 2
    rates = window.rates(1010)
    assert rates.seconds == 10
    assert (rates.read_units, rates.write_units, rates.estimated_read_units) == (1, 5, 0.5)
    assert (rates.estimated_write_units, rates.requests, rates.throttles) == (0, 1, 2)
    assert str(rates) == "1.0 read units/s  5.0 write units/s  over 10 s"
    assert window.rates(1040).write_units == 50 / 40
    assert window.rates(1065).usage == Usage(4, 20, 2, 0, 4, 8)
    assert window.rates(2000).usage == Usage()


def test_one_instant_lasts_a_part() -> None:
    window = Window(60)
    window.account(5.0).add(Units(read=3.0))
    assert window.rates(5.0).read_units == 3.0


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 9))), st.sampled_from([1, 6, 60]))
def test_what_is_in_the_window(uses: list[tuple[float, int]], seconds: int) -> None:
    """All of the last 59 sixtieths is in it, nothing older than the window, and memory is for sixty sums."""
    window = Window(seconds)
    now, done = 100.0, list[tuple[float, int]]()
    for wait, units in uses:
        now += wait
        window.account(now).add(Units(write=units))
        done.append((now, units))
        rates = window.rates(now)
        assert rates.usage.write_units >= sum(units for then, units in done if then > now - seconds * 59 / 60)
        assert rates.usage.write_units <= sum(units for then, units in done if then > now - seconds)
        assert rates.seconds <= seconds * (1 + 1e-9)


def test_times_that_are_a_little_older() -> None:
    """Threads read the clock before they come to write: nothing newer is forgotten for that."""
    window = Window(60)
    for now in (100.0, 99.0, 100.5, 30.0):
        window.account(now).add(Units(write=1))
    assert window.rates(101.0).usage.write_units == 3


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), 10**400, "60", None, True])
def test_the_window_is_checked(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"window: must be a number > 0 \(seconds\), got"):
        Window(seconds)
