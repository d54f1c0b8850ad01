"""The check of histories: against histories that are known, and against all orders of small ones."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.linearizable import ANY, FAILED, Operation, check, smallest, step


def op(began: float, ended: float | None, *call: Any, answer: Any = ANY) -> Operation:
    return Operation(began, ended, call, answer)


def value(name: str | None, count: int | None = None) -> tuple[Any, Any]:
    return name, count


RIGHT = {
    "one after the other": [op(0, 1, "put", "a"), op(2, 3, "get", answer=value("a"))],
    "a read beside a write sees it or not": [
        op(0, 9, "put", "a"), op(1, 2, "get", answer=None), op(3, 4, "get", answer=value("a")),
    ],
    "an unknown write takes effect late": [
        op(0, None, "put", "a"), op(1, 2, "put", "b"), op(3, 4, "get", answer=value("b")),
        op(5, 6, "get", answer=value("a")),
    ],
    "an unknown write never takes effect": [op(0, None, "put", "a"), op(1, 2, "get", answer=None)],
    "a condition that fails beside a delete": [
        op(0, 1, "put", "a"), op(2, 5, "delete", answer=value("a")), op(3, 4, "put_new", "b", answer=FAILED),
    ],
    "a swap after an unknown write": [op(0, None, "put", "a"), op(1, 2, "swap", "a", "b")],
    "two counts at once": [op(0, 5, "add", answer=2), op(1, 4, "add", answer=1)],
    "a count beside a put": [
        op(0, 9, "put", "a"), op(1, 2, "add", answer=1), op(3, 4, "get", answer=value("a")),
        op(5, 6, "add", answer=1), op(7, 8, "set", "b"), op(10, 11, "get", answer=value("b", 1)),
    ],
}  # fmt: skip

WRONG = {
    "an old value": [op(0, 1, "put", "a"), op(2, 3, "put", "b"), op(4, 5, "get", answer=value("a"))],
    "a value comes and goes": [
        op(0, 9, "put", "a"), op(1, 2, "get", answer=value("a")), op(3, 4, "get", answer=None),
    ],
    "a lost write": [op(0, 1, "put", "a"), op(2, 3, "get", answer=None)],
    "an unknown write takes effect twice": [
        op(0, None, "put", "a"), op(1, 2, "get", answer=value("a")), op(3, 4, "put", "b"),
        op(5, 6, "get", answer=value("a")),
    ],
    "an unknown write before it began": [op(0, 1, "get", answer=value("a")), op(2, None, "put", "a")],
    "two puts of a new item": [op(0, 3, "put_new", "a"), op(1, 2, "put_new", "b")],
    "two swaps of one value": [op(0, 1, "put", "a"), op(2, 5, "swap", "a", "b"), op(3, 4, "swap", "a", "c")],
    "a count is lost": [op(0, 3, "add", answer=1), op(1, 2, "add", answer=1)],
    "a deleted item returns": [
        op(0, 1, "put", "a"), op(2, 3, "delete"), op(4, 5, "get", answer=value("a")),
    ],
    "a condition that should have held": [op(0, 1, "put_new", "a", answer=FAILED)],
    "a value that nobody wrote": [op(0, 1, "get", answer=value("z"))],
}  # fmt: skip


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_right(history: list[Operation]) -> None:
    assert check(history).linearizable


@pytest.mark.parametrize("history", WRONG.values(), ids=WRONG)
def test_wrong(history: list[Operation]) -> None:
    assert check(history).linearizable is False
    assert check(smallest(history)).linearizable is False


def test_the_smallest_part() -> None:
    """Reads that a violation does not need, and what came later, are left out."""
    more = [op(2.5, 3.5, "get", answer=value("b")), op(6, 7, "put", "c"), op(8, 9, "get", answer=value("c"))]
    assert smallest([op(-3, -2, "put", "x"), *WRONG["an old value"], *more]) == WRONG["an old value"][1:]


def test_a_search_that_is_given_up() -> None:
    verdict = check([op(0, 9, "put", str(number)) for number in range(9)] + WRONG["a lost write"], most=50)
    assert verdict == (None, 50, frozenset())


def test_what_comes_before_in_any_case() -> None:
    """A read of what this process wrote, though another one has overwritten it before that write had ended."""
    own, other = op(0, 3, "put", "a")._replace(by="x"), op(1, 2, "put", "b")
    read = op(0, 6, "get", answer=value("a"))
    assert check([own, other, read._replace(began=4)]).linearizable
    before = op(-2, -1, "put", "a")
    read = read._replace(answer=value("b"))
    assert check([before, op(0, 3, "put", "c"), read]).linearizable is False
    assert check([before, other, own, read._replace(began=-1)]).linearizable
    assert check([before, op(5, 6, "put", "b"), own, read._replace(answer=value("a"), began=-1)]).linearizable
    late = op(4, 5, "put", "c")._replace(by="x")
    seen = read._replace(began=-1, answer=value("a"))
    assert check([before, late, seen]).linearizable
    assert check([before, late, seen._replace(after=((4, "x"),))]).linearizable is False


CALLS = st.one_of(
    st.sampled_from([("get",), ("add",), ("delete",)]),
    st.tuples(st.sampled_from(["put", "put_new", "set"]), st.sampled_from("ab")),
    st.tuples(st.just("swap"), st.sampled_from("ab"), st.sampled_from("ab")),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Draw operations whose answers are those of some order, one of which may be wrong."""
    size = draw(st.integers(1, 5))
    # Drawn answers hardly ever fit. So these are carried out in an order of their own, whatever their times are.
    times = [sorted(draw(st.lists(st.integers(0, 12), min_size=2, max_size=2, unique=True))) for _ in range(size)]
    item: Any = None
    history = []
    for began, ended in sorted(times, key=lambda _: draw(st.integers(0, 3))):
        call = draw(CALLS)
        after, answer = step(item, call)
        lost = draw(st.integers(0, 4)) == 0
        item = item if lost and draw(st.booleans()) else after
        told = draw(st.sampled_from([answer, answer, answer, None, ("a", None), 1, FAILED]))
        history.append(Operation(began, None if lost else ended, call, ANY if lost else told))
    return history


def explained(history: list[Operation]) -> bool:
    """Try all orders of all that took effect, by the definition."""
    lost = [one for one in history if one.ended is None]
    for chosen in range(1 << len(lost)):
        out = [one for number, one in enumerate(lost) if chosen >> number & 1]
        for order in permutations([one for one in history if all(one is not other for other in out)]):
            item: Any = None
            for place, one in enumerate(order):
                if any(later.ended is not None and later.ended < one.began for later in order[place:]):
                    break
                item, answer = step(item, one.call)
                if one.ended is not None and answer != one.answer and (one.answer != ANY or answer == FAILED):
                    break
            else:
                return True
    return False


@pytest.mark.long_search
@given(histories())
def test_as_all_orders_say(history: list[Operation]) -> None:
    assert check(history).linearizable is explained(history)
    if not explained(history):
        assert not explained(smallest(history))
