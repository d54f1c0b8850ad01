"""How long a job still takes: the estimate, and when there is none yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardkit.core.remaining import History, seconds_left


def history(until: float, done: Callable[[float], float], step: float = 0.25) -> list[tuple[float, float]]:
    return [(100.0 + number * step, done(number * step)) for number in range(round(until / step) + 1)]


def slow_start(seconds: float) -> float:
    """A load of 100,000 items in 4 minutes, at full speed after 6 seconds: 1% of it is done then."""
    return 1000 * seconds / 6 if seconds <= 6 else 1000 + (seconds - 6) * 423


@pytest.mark.parametrize("done", [lambda seconds: 100 * seconds, slow_start])
def test_nothing_is_said_of_the_first_seconds(done: Callable[[float], float]) -> None:
    assert seconds_left([], 1000) is None
    for seconds in (0, 1, 4.75):
        assert seconds_left(history(seconds, done), 1000) is None


def test_nothing_is_said_while_the_pace_still_grows_and_then_what_is_true() -> None:
    said = {seconds: seconds_left(history(seconds, slow_start), 100_000 - slow_start(seconds)) for seconds in range(60)}
    assert all(said[seconds] is None for seconds in range(7, 10))
    # The pace of the first six seconds gave 9:54 minutes at the sixth.
    for seconds in range(16, 60):
        assert said[seconds] == pytest.approx(240 - seconds, rel=0.02)


def test_a_steady_pace() -> None:
    assert seconds_left(history(5, lambda seconds: 100 * seconds), 1000) == pytest.approx(10)
    # Entries that are far apart, and at any times.
    assert seconds_left([(0, 0), (1, 100), (9, 900), (20, 2000)], 500) == pytest.approx(5)
    assert seconds_left(history(5, lambda seconds: 100 * seconds), 0) == 0


def test_only_the_pace_of_lately_counts() -> None:
    """It was slow for a minute: after another minute, that is forgotten."""
    done = history(120, lambda seconds: seconds if seconds < 60 else 60 + (seconds - 60) * 100)
    assert seconds_left(done, 1000) == pytest.approx(10)


def test_what_was_there_at_the_beginning_does_not_count() -> None:
    assert seconds_left(history(10, lambda seconds: 10**9 + 100 * seconds), 1000) == pytest.approx(10)


def test_an_uneven_pace_has_an_estimate_after_half_a_minute() -> None:
    def done(seconds: float) -> float:
        return 25 * (seconds // 5)  # a batch every five seconds

    assert seconds_left(history(29, done), 100) is None
    assert seconds_left(history(30, done), 100) == pytest.approx(20)


def test_nothing_is_said_while_nothing_is_done() -> None:
    assert seconds_left(history(60, lambda seconds: min(seconds, 10) * 100), 1000) is None


def test_the_last_half_of_a_long_run_counts() -> None:
    """Ten minutes, of which the last two are slow: three fifths of the last half are fast. Few entries are kept."""
    kept = History()
    for now, done in history(600, lambda seconds: 100 * min(seconds, 480) + 10 * max(0, seconds - 480)):
        kept.add(now, done)
    assert seconds_left(kept.entries, 10_000) == pytest.approx(10_000 / 64, rel=0.02)
    assert len(kept.entries) <= 480
