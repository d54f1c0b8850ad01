"""Which batch goes next: those that go again before new ones, and no small ones while others rest."""

from __future__ import annotations

from math import inf

from shardkit.bulk.load_window import BATCH_ITEMS, Departures, LoadWindow
from shardkit.bulk.pacing import KeyPace
from shardkit.bulk.writes import Write


def write(key: str, number: int) -> Write:
    return Write(b"", number, None, (key, number), (key, number), 1)


def held(*, cold: int, hot: int) -> tuple[LoadWindow, KeyPace]:
    """Return a window with ``cold`` keys of one item, and ``hot`` items of a key that rests; and the pace."""
    keys = KeyPace(lambda: 0.5)
    keys.throttled("hot", 0.0)
    window = LoadWindow(keys)
    for number in range(cold):
        window.add(write(f"cold{number}", number))
    for number in range(hot):
        window.add(write("hot", number))
    return window, keys


def departures(*, cold: int, hot: int) -> tuple[Departures, KeyPace]:
    """Return the departures from such a window, and the pace."""
    window, keys = held(cold=cold, hot=hot)
    return Departures(window, 4), keys


def test_full_batches_go_at_once() -> None:
    leaving, _ = departures(cold=2 * BATCH_ITEMS, hot=1)
    for under_way in range(2):
        batch = leaving.next(0.0, under_way=under_way, new=True)
        assert batch is not None
        assert len(batch.writes) == BATCH_ITEMS


def test_a_batch_that_is_not_full_waits_for_what_rests() -> None:
    """The first one goes at once; the next one after 20 ms, with what has come by then."""
    leaving, keys = departures(cold=BATCH_ITEMS + 3, hot=2)
    assert leaving.next(0.0, under_way=0, new=True) is not None
    assert leaving.next(0.0, under_way=1, new=True) is None
    assert len(leaving) == 1
    assert leaving.alarm == 0.02
    assert leaving.next(0.01, under_way=1, new=True) is None
    late = max(keys.alarm, 0.02)
    batch = leaving.next(late, under_way=1, new=True)
    assert batch is not None
    assert len(batch.writes) == 3
    assert len(leaving) == 0
    assert leaving.alarm == inf


def test_what_is_gathered_is_filled_up_and_no_further() -> None:
    """The service takes 25 items: what has come meanwhile goes along as far as there is room."""
    window, _ = held(cold=BATCH_ITEMS + 6, hot=1)
    leaving = Departures(window, 4)
    assert leaving.next(0.0, under_way=0, new=True) is not None
    assert leaving.next(0.0, under_way=1, new=True) is None
    for number in range(BATCH_ITEMS):
        window.add(write(f"later{number}", number))
    batch = leaving.next(0.01, under_way=1, new=True)
    assert batch is not None
    assert len(batch.writes) == BATCH_ITEMS == 25
    assert [one.identity[0] for one in batch.writes[5:7]] == ["cold30", "later0"]


def test_a_batch_that_is_not_full_goes_where_nothing_rests() -> None:
    leaving, _ = departures(cold=BATCH_ITEMS + 3, hot=0)
    assert leaving.next(0.0, under_way=0, new=True) is not None
    batch = leaving.next(0.0, under_way=1, new=True)
    assert batch is not None
    assert len(batch.writes) == 3


def test_what_is_gathered_keeps_its_place() -> None:
    """It goes when it has waited, also where the halves of another batch wait for their next try by then."""
    leaving, _ = departures(cold=BATCH_ITEMS + 3, hot=1)
    batch = leaving.next(0.0, under_way=0, new=True)
    assert batch is not None
    assert leaving.next(0.0, under_way=3, new=True) is None
    assert leaving.alarm == 0.02
    leaving.again(batch, 1.0)
    late = leaving.next(0.02, under_way=3, new=True)
    assert late is not None
    assert len(late.writes) == 3
    assert leaving.alarm == 1.0


def test_what_is_gathered_is_not_lost() -> None:
    leaving, _ = departures(cold=BATCH_ITEMS + 3, hot=1)
    leaving.next(0.0, under_way=0, new=True)
    assert leaving.next(0.0, under_way=1, new=True) is None
    assert len(leaving.drain()) == 3
    assert len(leaving) == 0


def test_what_goes_again_goes_first() -> None:
    """A write alone, then the halves of a batch, then what has waited for its next try; then a new one."""
    leaving, _ = departures(cold=BATCH_ITEMS, hot=0)
    batch = leaving.next(0.0, under_way=0, new=True)
    assert batch is not None
    leaving.again(batch, 1.0)
    leaving.halves(batch)
    leaving.alone(batch.writes[0])
    assert leaving.alarm == 1.0
    sizes = []
    while (gone := leaving.next(2.0, under_way=0, new=True)) is not None:
        sizes.append((len(gone.writes), gone.alone))
    assert sizes == [(1, True), (12, False), (13, False), (25, False)]


def test_what_waits_for_its_next_try_keeps_its_place() -> None:
    leaving, _ = departures(cold=2 * BATCH_ITEMS, hot=0)
    batch = leaving.next(0.0, under_way=0, new=True)
    assert batch is not None
    leaving.again(batch, 1.0)
    assert leaving.next(0.5, under_way=3, new=True) is None
    assert leaving.next(0.5, under_way=2, new=False) is None
    assert leaving.next(0.5, under_way=2, new=True) is not None
