"""The writes that a load holds: what is done is forgotten, and of a key one is on its way."""

from __future__ import annotations

import pytest

from shardkit.bulk.load_window import LoadWindow
from shardkit.bulk.pacing import KeyPace
from shardkit.bulk.writes import Write


def write(number: int, key: str = "U1") -> Write:
    return Write(b"", number, None, (key, "1"), (key, "1"), 1)


@pytest.mark.parametrize("end", ["written", "failed"])
def test_a_write_that_is_done_is_forgotten(end: str) -> None:
    """Another write of its key is a new one, and is not taken for a duplicate."""
    window = LoadWindow(KeyPace(lambda: 0.5))
    first, second = write(1), write(2)
    assert window.offer(first) is None
    assert window.offer(second) is first
    assert window.take(5, 0.0) == [first]
    assert window.offer(second) is first, "it is on its way"
    getattr(window, end)([first])
    assert window.offer(second) is None
    assert window.take(5, 0.0) == [second]


def test_a_newer_write_stays_when_the_older_one_is_done() -> None:
    window = LoadWindow(KeyPace(lambda: 0.5))
    older, newer = write(1), write(2)
    window.add(older)
    assert window.take(5, 0.0) == [older]
    window.add(newer)
    assert window.take(5, 0.0) == [], "the older one is on its way"
    window.written([older])
    assert window.offer(write(3)) is newer
    assert window.take(5, 0.0) == [newer]


def test_a_write_that_is_put_back_is_the_next_of_its_key_unless_a_newer_one_waits() -> None:
    window = LoadWindow(KeyPace(lambda: 0.5))
    first, other, second = write(1), Write(b"", 2, None, ("U1", "2"), ("U1", "2"), 1), write(3)
    window.add(first)
    window.add(other)
    assert window.take(1, 0.0) == [first]
    assert window.put_back([first]) == []
    assert not first.sent
    assert window.take(1, 0.0) == [first]
    window.add(second)
    assert window.put_back([first]) == [first]
    assert window.take(5, 0.0) == [other, second]
