"""The waits between tries."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardkit
from shardkit.core.backoff import ATTEMPTS, Backoff, backoff_seconds

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


def test_a_success_takes_back_all_waits_or_a_part() -> None:
    for ease, waits in ((inf, [0.05, 0.1, 0.05]), (0.5, [0.05, 0.1, 0.1 * 2**0.5])):
        backoff = Backoff(20.0, ease)
        found = []
        for succeeds in (False, True, False):
            backoff.refused(0.0, 0.999999)
            found.append(backoff.until)
            if succeeds:
                backoff.eased()
        assert found == pytest.approx(waits, rel=1e-3)


def test_successes_that_were_never_refused_change_nothing() -> None:
    backoff = Backoff(20.0, 0.5)
    for _ in range(10):
        backoff.eased()
    backoff.refused(0.0, 0.0)
    assert backoff.until == 0.025


def test_tries_are_counted_in_few_places() -> None:
    """A machine's requests wait in its ``InFlight``; a load's batches, a move's and a counter's steps by themselves."""
    package = Path(shardkit.__file__).parent
    files = {str(file.relative_to(package)): file.read_text("utf-8") for file in package.rglob("*.py")}
    others = {"bulk/load_machine.py", "migrate/sending.py", "sharding/counter.py"}
    assert {name for name, text in files.items() if "backoff_seconds(" in text} == {
        "core/backoff.py", "core/in_flight.py", *others
    }  # fmt: skip
