"""The journal of a load: what it keeps, through kills, lost power, full disks and mistakes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import ConfigurationError, ShardkitError
from shardkit.bulk.journal import Journal
from shardkit.bulk.sources.base import Place
from tests.support.disks import full_disk, places_in
from tests.support.fakes import Clock

HEADER: dict[str, Any] = {
    "table": "Orders",
    "key_schema": {"partition": ["Date"], "sort": ["OrderId"]},
    "strategy": {"type": "RandomSuffix", "shards": 10},
    "source": {"files": [{"name": "orders.csv", "bytes": 100}, {"name": "more.csv", "bytes": 7}]},
}
PLACES = [Place(cursor, number) for cursor in (0, 1, 7) for number in range(20)]

Batches = list[list[Place]]


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """Some of the places, in any order, in batches."""
    order = draw(st.permutations(PLACES))[: draw(st.integers(0, len(PLACES)))]
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=12)))
    return [order[start:end] for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.journal"


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for one example of a property."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def done(journal: Journal) -> set[Place]:
    return {place for place in PLACES if journal.done(place)}


def all_of(some: Sequence[Sequence[Place]]) -> set[Place]:
    return {place for batch in some for place in batch}


def reopened(path: Path, copy: Path) -> set[Place]:
    """What a journal opened on the file as it is now holds: as after kill -9."""
    shutil.copy(path, copy)
    journal = Journal(copy, HEADER)
    journal.close()
    assert places_in(copy) == len(done(journal))
    return done(journal)


@given(some=batches(), killed=st.integers(0, 12), appended_bytes=st.sampled_from([1, 100, 1_000_000]))
def test_what_was_recorded_is_done_and_nothing_else(some: Batches, killed: int, appended_bytes: int) -> None:
    """At every moment, for the journal at work and for one that is opened after a kill."""
    with folder() as work:
        journal = Journal(work / "a", HEADER, appended_bytes=appended_bytes)
        for count, batch in enumerate(some):
            assert done(journal) == all_of(some[:count])
            if count == killed:
                assert reopened(work / "a", work / "b") == done(journal)
            journal.record(batch)
        journal.close()
        assert done(journal) == reopened(work / "a", work / "b") == all_of(some)


@given(
    some=batches().map(lambda some: [batch for batch in some if batch]),
    seconds=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=13, max_size=13),
    appended_bytes=st.sampled_from([200, 1_000_000]),
    kept=st.floats(0, 1),
    garbage=st.binary(max_size=60) | st.just(b"\n") | st.just(bytes(4096)),
)
def test_lost_power(some: Batches, seconds: list[float], appended_bytes: int, kept: float, garbage: bytes) -> None:
    """Of what was written since the last fsync any part may be lost, or be garbage: batches are lost from the end.

    What was recorded a second or more before the last record is safe, and the load goes on from there.
    """
    clock = Clock()
    with folder() as work, synced_bytes(work / "a") as synced:
        journal = Journal(work / "a", HEADER, clock=clock, appended_bytes=appended_bytes)
        times = []
        for batch, pause in zip(some, seconds, strict=False):
            clock.now += pause
            journal.record(batch)
            times.append(clock.now)
        whole = (work / "a").read_bytes()
        safe = synced()
        (work / "b").write_bytes(whole[: safe + int(kept * (len(whole) - safe))] + garbage)
        journal.close()

        journal = Journal(work / "b", HEADER)
        left = done(journal)
        held = next(count for count in range(len(some) + 1) if all_of(some[:count]) == left)
        assert all(at > clock.now - 1 for at, batch in zip(times, some, strict=False) if not left.issuperset(batch))
        for batch in some[held:]:
            journal.record(batch)
        assert done(journal) == reopened(work / "b", work / "c") == all_of(some)
        journal.close()


@contextmanager
def synced_bytes(path: Path) -> Iterator[Callable[[], int]]:
    """How many bytes of a file were there when it was last handed to fsync."""
    sizes: dict[int, int] = {}
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        sizes[status.st_ino] = status.st_size

    with patch("os.fsync", spy):
        yield lambda: sizes[path.stat().st_ino]


@pytest.mark.parametrize("order", [[0, 1, 3, 4], [0, 1, 1, 2, 3, 4]])
def test_a_line_out_of_its_place_ends_the_journal(path: Path, order: list[int]) -> None:
    """Each line is whole; one is missing, or is there twice."""
    journal = Journal(path, HEADER)
    for number in range(4):
        journal.record([Place(0, number)])
    lines = path.read_bytes().splitlines(keepends=True)
    journal.close()
    path.write_bytes(b"".join(lines[line] for line in order))
    journal = Journal(path, HEADER)
    assert done(journal) == {Place(0, 0)}
    journal.close()


def test_the_file_stays_small(path: Path) -> None:
    """A load of 64 cursors whose items are done in any order of a window; at its end it is ranges."""
    journal = Journal(path, HEADER, appended_bytes=10_000)
    most = 0
    for start in range(0, 100_000, 1000):
        window = [Place(number % 64, number // 64) for number in range(start, start + 1000)]
        for place in range(40):
            journal.record(window[place::40])
            most = max(most, path.stat().st_size)
    assert most < 35_000
    journal.close(ended=True)
    assert path.stat().st_size < 4000
    assert journal.done(Place(31, 1562))


def test_a_load_that_has_ended(path: Path) -> None:
    journal = Journal(path, HEADER)
    assert (places_in(path), journal.ended) == (0, False)
    journal.record(PLACES)
    journal.close(ended=True)
    journal.close()
    for _ in range(2):
        again = Journal(path, HEADER)
        assert (places_in(path), again.ended, again.load) == (len(PLACES), True, journal.load)
        again.close()


def test_each_load_has_its_id(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "a", HEADER), Journal(tmp_path / "b", HEADER)
    assert one.load != other.load
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"table": "Orders2"}, "table was 'Orders' and is 'Orders2'"),
        ({"strategy": {"type": "RandomSuffix", "shards": 20}}, "strategy.shards was 10 and is 20"),
        (
            {"source": {"files": [HEADER["source"]["files"][0], {"name": "more.csv", "bytes": 8}]}},
            "began before more.csv changed; to load the source as it is now, load only",
        ),
        ({"source": {"files": []}}, r"source.files was .* and is \[\]"),
        ({"key_schema": {"partition": ["Date"]}}, r"key_schema.sort was \['OrderId'\] and is None"),
    ],
)
def test_what_was_changed_is_named(path: Path, changed: dict[str, Any], said: str) -> None:
    """The journal is left as it is, and can be opened with what it was begun with."""
    journal = Journal(path, HEADER)
    journal.record(PLACES)
    journal.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=said):
        Journal(path, {**HEADER, **changed})
    assert path.read_bytes() == before
    assert reopened(path, path.with_name("copy")) == set(PLACES)


def test_what_json_reads_back_differently_is_no_change(path: Path) -> None:
    """A tuple comes back as a list."""
    Journal(path, {"keys": ("Date", "OrderId")}).close()
    Journal(path, {"keys": ("Date", "OrderId")}).close()


@pytest.mark.parametrize("content", [b"Date,OrderId\n", b"{}", b"\n", b'{"Item": {}}\n'])
def test_a_file_of_something_else_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is not a journal"):
        Journal(path, HEADER)
    assert path.read_bytes() == content


def test_an_empty_file_is_begun(path: Path) -> None:
    """What mktemp makes."""
    path.touch()
    journal = Journal(path, HEADER)
    assert places_in(path) == 0
    journal.close()


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    journal = Journal(link, HEADER)
    journal.record(PLACES)
    journal.close()
    assert link.is_symlink()
    assert reopened(path, tmp_path / "copy") == set(PLACES)


def test_one_load_at_a_time(path: Path) -> None:
    """Before and after a rewrite, which puts another file in its place."""
    journal = Journal(path, HEADER, appended_bytes=1)
    for place in PLACES[:2]:
        with pytest.raises(ConfigurationError, match="in use by another process"):
            Journal(path, HEADER)
        journal.record([place])
    journal.close()
    Journal(path, HEADER).close()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be opened: .*No such file"):
        Journal(tmp_path / "nowhere" / "orders.journal", HEADER)


@pytest.mark.parametrize("path", [os.devnull, os.curdir])
def test_what_is_no_file(path: str) -> None:
    with pytest.raises(ConfigurationError, match="is a folder, a device or a pipe"):
        Journal(path, HEADER)


@pytest.mark.parametrize("appended_bytes", [1, 1_000_000])
def test_a_full_disk(path: Path, appended_bytes: int) -> None:
    """The record that does not fit is an error, and the journal holds what was recorded before it, and no more."""
    journal = Journal(path, HEADER, appended_bytes=appended_bytes)
    journal.record(PLACES[:5])
    with (
        full_disk(path.stat().st_size + 30),
        pytest.raises(ShardkitError, match=rf"^journal: '.*{path.name}' cannot be written \(.*too large") as raised,
    ):
        journal.record(PLACES[5:])
    assert isinstance(raised.value.__cause__, OSError)
    journal.close()
    kept = Journal(path, HEADER)
    assert done(kept) <= set(PLACES)
    assert done(kept) >= set(PLACES[:5])
    assert len(done(kept)) in {5, len(PLACES)}
    kept.close()


def test_what_failed_is_counted_once(path: Path) -> None:
    """Through kills and rewriting, and where a place is recorded again."""
    journal = Journal(path, HEADER)
    journal.record([Place(0, 0), Place(0, 2)])
    journal.record([Place(0, 1), Place(7, 0)], failed=True)
    assert journal.failed == 2
    for number, closed in enumerate((False, True, False)):
        if closed:
            journal.close()
        killed = path.with_name(f"killed.{number}")
        shutil.copy(path, killed)
        journal.close()
        path, journal = killed, Journal(killed, HEADER)
        assert (journal.failed, places_in(killed)) == (2, 4)
        journal.record([Place(7, 0)], failed=True)
        assert journal.failed == 2
        assert done(journal) == {Place(0, 0), Place(0, 1), Place(0, 2), Place(7, 0)}
    journal.close()
