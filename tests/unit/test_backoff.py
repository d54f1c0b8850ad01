"""The waits between tries."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shardkit.backoff import ATTEMPTS, backoff_seconds

DRAWS = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, 10_000), DRAWS)
def test_never_at_once_and_bounded(attempt: int, draw: float) -> None:
    """No wait is zero, and none is longer than 20 seconds."""
    assert 0.025 <= backoff_seconds(attempt, draw) <= 20


@given(DRAWS)
def test_growing(draw: float) -> None:
    """With the same draw each wait is twice the one before, until the bound."""
    waits = [backoff_seconds(attempt, draw) for attempt in range(1, ATTEMPTS)]
    assert all(later == 2 * earlier for earlier, later in pairwise(waits))


def test_jittered() -> None:
    """Half of a wait is fixed, half is drawn."""
    assert [backoff_seconds(3, draw) for draw in (0.0, 0.5)] == [0.1, 0.15000000000000002]
    assert backoff_seconds(3, 0.999) < 0.2


def test_how_long_until_a_request_is_given_up() -> None:
    """All waits together: 13 to 26 seconds."""
    assert 12 < sum(backoff_seconds(attempt, 0.0) for attempt in range(1, ATTEMPTS)) < 13
    assert 25 < sum(backoff_seconds(attempt, 0.999) for attempt in range(1, ATTEMPTS)) < 26
