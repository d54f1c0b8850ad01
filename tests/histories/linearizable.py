"""Whether an order of the operations on one item explains all answers. It knows nothing of shardkit.

The search is that of Wing and Gong (1993) with the memory of Lowe (2017), as in Knossos and Porcupine: operations are
put in order one after another, each no sooner than it began and no later than it ended. What was tried before, the
operations in order so far and the item after them, is not tried again. An operation without an answer may take effect
at any time after it began, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

ANY = "any"
"""The answer of an operation that took effect and does not tell the item."""
FAILED = "failed"
"""The answer of an operation whose condition did not hold."""


class Operation(NamedTuple):
    """An operation on one item: when it began and ended (None: no answer), what it was, and what it answered."""

    began: float
    ended: float | None
    call: tuple[Any, ...]
    answer: Hashable = ANY
    by: str = ""


class Verdict(NamedTuple):
    """``linearizable`` is None if the search was given up after too many states."""

    linearizable: bool | None
    states: int


def step(item: tuple[Any, Any] | None, call: tuple[Any, ...]) -> tuple[tuple[Any, Any] | None, Hashable]:
    """Carry out an operation on an item (its value and its count, or None); return what is there then, and the answer."""
    kind, *given = call
    if kind == "get":
        return item, item
    if kind == "put" or (kind == "put_new" and item is None):
        return (given[0], None), ANY
    if kind == "swap" and item is not None and item[0] == given[0]:
        return (given[1], None), ANY
    if kind == "set" and item is not None:
        return (given[0], item[1]), ANY
    if kind == "add":
        value, count = item or (None, None)
        return (value, (count or 0) + 1), (count or 0) + 1
    if kind == "delete":
        return None, item
    assert kind in {"put_new", "set", "swap"}, call
    return item, FAILED


def check(
    operations: Iterable[Operation],
    start: Any = None,
    step: Callable[[Any, tuple[Any, ...]], tuple[Any, Hashable]] = step,
    *,
    most: int = 1_000_000,
) -> Verdict:
    """Say whether an order of the operations explains their answers, from the item ``start``."""
    ordered = sorted(operations, key=lambda one: one.began)
    known = [(one.began, one.ended, one.call, one.answer) for one in ordered if one.ended is not None]
    unknown = [(one.began, one.call) for one in ordered if one.ended is None and one.call[0] != "get"]
    # In order are: all known operations before ``first``, and those whose bits are set, counted from there; and the
    # unknown ones whose bits are set in ``used``.
    seen: set[tuple[int, int, int, Any]] = set()
    todo: list[tuple[int, int, int, Any]] = [(0, 0, 0, start)]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        if len(seen) == most:
            return Verdict(None, most)
        seen.add(state)
        first, bits, used, item = state
        while bits & 1:
            first, bits = first + 1, bits >> 1
        if first == len(known):
            return Verdict(True, len(seen))
        limit = float("inf")  # the first end of those not in order: none that began later may come before it
        following = []
        for place in range(first, len(known)):
            began, ended, call, answered = known[place]
            if began > limit:
                break
            if bits >> (place - first) & 1:
                continue
            limit = min(limit, ended)
            after, answer = step(item, call)
            if answer == answered or (answered == ANY and answer != FAILED):
                following.append((first, bits | 1 << (place - first), used, after))
                if call[0] == "get" or answered == FAILED:
                    # Whenever it took effect, it changed nothing. So it may as well be the next one.
                    following, limit = following[-1:], -1.0
        for number, (began, call) in enumerate(unknown):
            if began <= limit and not used >> number & 1 and (after := step(item, call)[0]) != item:
                following.append((first, bits, used | 1 << number, after))
        todo += reversed(following)
    return Verdict(False, len(seen))


def smallest(operations: Sequence[Operation], start: Any = None) -> list[Operation]:
    """Return a part of a history that no order explains, which is enough to see that none explains the whole."""
    # What was known at the first moment from which on no order explains it: all that ended later had not ended yet.
    ends = sorted(one.ended for one in operations if one.ended is not None)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if check(_known_at(operations, ends[middle]), start).linearizable is False:
            high = middle
        else:
            low = middle + 1
    part = _known_at(operations, ends[low])
    # Without an operation that changes nothing, the others have the same orders.
    for one in [*part]:
        less = [other for other in part if other is not one]
        drops = one.call[0] == "get" or one.answer == FAILED or one.ended is None
        if drops and check(less, start).linearizable is False:
            part = less
    return part


def _known_at(operations: Iterable[Operation], moment: float) -> list[Operation]:
    return [
        one if one.ended is not None and one.ended <= moment else one._replace(ended=None, answer=ANY)
        for one in operations
        if one.began <= moment
    ]
