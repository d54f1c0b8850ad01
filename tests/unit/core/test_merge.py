"""The merge: what may be handed out, when, and in which order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.merge import Item, Merge, Position, Rows, Run


def place(sort: Any, number: int) -> Position:
    return Decimal(sort), number


def run(*entries: tuple[Any, Item]) -> Run:
    return Run([sort for sort, _ in entries], [item for _, item in entries])


def entry(sort: Any, number: int, name: str = "") -> tuple[Any, Item]:
    return Decimal(sort), {"name": name or f"{sort}/{number}"}


def names(rows: Rows) -> list[str]:
    return [item["name"] for item in rows.items]


def test_nothing_is_released_before_every_shard_has_answered() -> None:
    """A shard that was not heard of may hold the first item."""
    merge = Merge(2)
    merge.add(0, run(entry(1, 0)), None)
    assert not merge.release()
    assert (merge.silent, merge.count) == (True, 1)
    merge.add(1, Run(), None)
    assert names(merge.release()) == ["1/0"]
    assert merge.count == 0
    assert merge.bound() is None


@pytest.mark.parametrize("descending", [False, True])
def test_of_ranges_those_before_the_first_silent_one_are_released(descending: bool) -> None:
    merge = Merge(4, descending=descending, ranges=True)
    ways = [3, 2, 1, 0] if descending else [0, 1, 2, 3]
    for number in (ways[2], ways[0]):
        merge.add(number, run(entry(number, number)), None)
    assert names(merge.release()) == [f"{ways[0]}/{ways[0]}"]
    merge.add(ways[1], run(entry(ways[1], ways[1])), place(ways[1], ways[1]))
    assert names(merge.release()) == [f"{ways[1]}/{ways[1]}"]
    merge.add(ways[1], Run(), None)
    assert names(merge.release()) == [f"{ways[2]}/{ways[2]}"]
    assert merge.silent


def test_the_bound_is_the_earliest_frontier() -> None:
    """What stands behind the bound waits until the shard that goes on has been read further."""
    merge = Merge(3)
    merge.add(0, run(entry(1, 0), entry(5, 0)), place(5, 0))
    merge.add(1, run(entry(2, 1), entry(3, 1)), place(3, 1))
    merge.add(2, run(entry(3, 2), entry(9, 2)), None)
    assert merge.bound() == place(3, 1)
    assert names(merge.release()) == ["1/0", "2/1", "3/1"]
    assert merge.frontiers == [place(3, 1), place(5, 0)]
    assert (merge.held_by(1), merge.held_by(0), merge.goes_on(1), merge.goes_on(2)) == (0, 1, True, False)
    assert names(merge.held) == ["3/2", "5/0", "9/2"]
    merge.add(1, Run(), None)
    assert names(merge.release()) == ["3/2", "5/0"]
    merge.add(0, Run(), None)
    assert names(merge.release()) == ["9/2"]


def test_descending_is_the_reverse() -> None:
    """Greatest sort key first, and of equal ones the last shard first; within a shard as it was read."""
    merge = Merge(2, descending=True)
    merge.add(0, run(entry(5, 0, "a"), entry(5, 0, "b"), entry(1, 0)), place(1, 0))
    merge.add(1, run(entry(5, 1, "c"), entry(2, 1)), place(2, 1))
    assert merge.bound() == place(2, 1)
    assert names(merge.release()) == ["c", "a", "b", "2/1"]
    assert merge.not_after(place(3, 0), place(2, 9))
    assert not merge.not_after(place(2, 0), place(2, 1))


def test_equal_sort_keys_at_a_limit() -> None:
    """A limit that falls among equal sort keys neither loses nor repeats one."""
    merge = Merge(2)
    merge.add(0, run(entry(1, 0, "a"), entry(1, 0, "b")), None)
    merge.add(1, run(entry(1, 1, "c")), None)
    assert names(merge.release(1)) == ["a"]
    assert names(merge.release(1)) == ["b"]
    assert names(merge.release(5)) == ["c"]


@pytest.mark.parametrize("descending", [False, True])
def test_held_up_to_a_place(descending: bool) -> None:
    """Counted are the items held at or before each place, in the reading direction."""
    merge = Merge(2, descending=descending)
    merge.add(0, run(*(entry(sort, 0) for sort in ((7, 4, 1) if descending else (1, 4, 7)))), None)
    merge.add(1, run(entry(4, 1)), None)
    places = [place(0, 1), place(1, 0), place(4, 0), place(4, 1), place(9, 0)]
    assert merge.up_to(places) == ([4, 4, 3, 2, 0] if descending else [0, 1, 2, 3, 4])


def test_behind_a_place() -> None:
    """Behind are the shards that go on and were read less far; the one that stands on the place is not."""
    merge = Merge(4)
    merge.add(0, Run(), place(1, 0))
    merge.add(1, Run(), place(2, 1))
    merge.add(2, Run(), place(2, 2))
    merge.add(3, Run(), None)
    assert merge.behind(place(2, 1)) == [0]
    backwards = Merge(2, descending=True)
    backwards.add(0, Run(), place(2, 0))
    backwards.add(1, Run(), place(3, 1))
    assert backwards.behind(place(2, 1)) == [1]


@pytest.mark.parametrize(
    "values", [[Decimal("9" * 38), Decimal("9" * 37 + "8")], [b"\xff", b"\x7f"], ["\U0001f600", "\uffee"]]
)
def test_keys_order_as_dynamodb_orders_them(values: list[Any]) -> None:
    """Numbers by value to the 38th digit, binary as unsigned bytes, text by code point."""
    merge = Merge(2)
    for number, value in enumerate(values):
        merge.add(number, Run([value], [{"value": value}]), None)
    assert [item["value"] for item in merge.release().items] == values[::-1]


@given(
    shards=st.lists(st.lists(st.integers(0, 4), max_size=8).map(sorted), min_size=1, max_size=4),
    descending=st.booleans(),
    data=st.data(),
)
def test_every_item_once_and_in_order(shards: list[list[int]], *, descending: bool, data: st.DataObject) -> None:
    """Whatever the pages and the limits, the items come out once each, in the order that is promised."""
    step = -1 if descending else 1
    runs = [[entry(sort, number, f"{number}.{at}") for at, sort in enumerate(held)][::step]
            for number, held in enumerate(shards)]  # fmt: skip
    wanted = [one for held in runs[::step] for one in held]
    wanted.sort(key=lambda one: one[0], reverse=descending)
    merge = Merge(len(runs), descending=descending)
    asking = list(range(len(runs)))
    out = Rows()
    while asking:
        for number in asking:
            size = data.draw(st.integers(1, 4))
            page, runs[number] = runs[number][:size], runs[number][size:]
            merge.add(number, run(*page), (page[-1][0], number) if runs[number] else None)
        out += merge.release(data.draw(st.none() | st.integers(0, 5)))
        out += merge.release()
        asking = [number for _, number in merge.frontiers if not merge.held_by(number)]
    assert merge.count == 0
    assert names(out) == [item["name"] for _, item in wanted]
