"""The guide's order of an upload."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.interleave import Interleave


def guide(users: dict[str, int]) -> Interleave[tuple[str, int]]:
    order: Interleave[tuple[str, int]] = Interleave()
    for user, messages in users.items():
        for message in range(1, messages + 1):
            order.add(user, (user, message))
    return order


def test_the_guide_s_own_example() -> None:
    """U1 has messages 1 to 100, U2 1 to 200, U3 1 to 300: first the first of every user, then the second, …."""
    order = guide({"U1": 100, "U2": 200, "U3": 300})
    assert len(order) == 600
    taken = order.drain()
    assert taken[:4] == [("U1", 1), ("U2", 1), ("U3", 1), ("U1", 2)]
    assert taken == [
        (user, message)
        for message in range(1, 301)
        for user, messages in (("U1", 100), ("U2", 200), ("U3", 300))
        if message <= messages
    ]
    assert len(order) == 0
    assert order.take(1) == []


def test_a_key_that_comes_back_has_its_turn_at_the_end() -> None:
    """A key whose queue ran empty is a new one when it comes again."""
    order = guide({"U1": 1, "U2": 2})
    assert order.take(1) == [("U1", 1)]
    order.add("U1", ("U1", 2))
    assert order.drain() == [("U2", 1), ("U1", 2), ("U2", 2)]


def test_a_key_that_is_not_free_rests_until_it_is_woken() -> None:
    """Others go on, and nothing is taken where none is free."""
    order = guide({"U1": 2, "U2": 2})
    assert order.take(1, lambda item: item[0] != "U1") == [("U2", 1)]
    assert order.take(1) == [("U2", 2)]
    assert order.take(1) == []
    assert len(order) == 2
    order.wake(["U1", "U2"])
    assert order.take(2, lambda _: False) == []
    assert order.drain() == [("U1", 1), ("U1", 2)]
    assert order.take(1) == []


def test_an_item_is_put_back() -> None:
    """It is the first of its key again, at the key's turn."""
    order = guide({"U1": 2, "U2": 1})
    assert order.take(2) == [("U1", 1), ("U2", 1)]
    order.add("U2", ("U2", 1), first=True)
    order.add("U1", ("U1", 1), first=True)
    assert order.drain() == [("U1", 1), ("U2", 1), ("U1", 2)]


def test_an_item_is_removed() -> None:
    """The others keep their order; the last of a key takes its key along."""
    order = guide({"U1": 3, "U2": 1})
    order.remove("U1", ("U1", 2))
    order.remove("U2", ("U2", 1))
    assert len(order) == 2
    assert order.drain() == [("U1", 1), ("U1", 3)]
    order.add("U2", ("U2", 9))
    assert order.take(1, lambda _: False) == []
    order.remove("U2", ("U2", 9))  # while its key rests
    order.wake(["U2"])
    assert order.take(1) == []
    order.add("U3", ("U3", 1))
    assert order.take(1) == [("U3", 1)]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers())))
def test_every_item_once_and_in_order_within_its_key(items: list[tuple[str, int]]) -> None:
    """Nothing is lost or doubled, and no key is two turns ahead of one that still has items."""
    order: Interleave[tuple[str, int]] = Interleave()
    for item in items:
        order.add(item[0], item)
    taken = order.drain()
    by_key: dict[str, list[tuple[str, int]]] = defaultdict(list)
    rounds: list[int] = []
    for item in taken:
        by_key[item[0]].append(item)
        rounds.append(len(by_key[item[0]]))
    assert rounds == sorted(rounds)
    assert by_key == {key: [item for item in items if item[0] == key] for key in by_key}
    assert len(taken) == len(items)


def test_one_item_twice() -> None:
    """Items that are equal, or one and the same, are as many items."""
    order: Interleave[str] = Interleave()
    for key in ("U1", "U1", "U2"):
        order.add(key, "again")
    order.add("U1", "again", first=True)
    assert len(order) == 4
    order.remove("U1", "again")
    assert order.drain() == ["again"] * 3
