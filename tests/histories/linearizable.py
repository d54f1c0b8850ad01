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
    """An operation on one item: when it began and ended (None: no answer), what it was, and what it answered.

    ``after``: what comes before it in any case, though it may have ended later: when each of these began, and by whom.
    """

    began: float
    ended: float | None
    call: tuple[Any, ...]
    answer: Hashable = ANY
    by: str = ""
    after: tuple[tuple[float, str], ...] = ()


class Verdict(NamedTuple):
    """``linearizable`` is None if the search was given up after too many states. ``items``: those that it came to."""

    linearizable: bool | None
    states: int
    items: frozenset[Any] = frozenset()


def step(item: tuple[Any, Any] | None, call: tuple[Any, ...]) -> tuple[tuple[Any, Any] | None, Hashable]:
    """Carry out an operation on an item (its value and count, or None); return what is there then, and the answer."""
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


Step = Callable[[Any, tuple[Any, ...]], tuple[Any, Hashable]]
State = tuple[int, int, int, Any]
"""In order are: all known operations before the first number; those whose bits are set in the second one, counted from
there; and the unknown ones whose bits are set in the third. And the item after them."""


def check(operations: Iterable[Operation], start: Any = None, step: Step = step, *, most: int = 1_000_000) -> Verdict:
    """Say whether an order of the operations explains their answers, from the item ``start``."""
    ordered = sorted(operations, key=lambda one: one.began)
    known = [one for one in ordered if one.ended is not None]
    unknown = [one for one in ordered if one.ended is None and one.call[0] != "get"]
    places = {(one.began, one.by): place for place, one in enumerate(known)}
    needed = [[places[other] for other in one.after if other in places] for one in known]
    seen: set[State] = set()
    todo: list[State] = [(0, 0, 0, start)]
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
        following, limit = _following((first, bits, used, item), known, needed, step)
        for number, one in enumerate(unknown):
            if one.began <= limit and not used >> number & 1 and (after := step(item, one.call)[0]) != item:
                following.append((first, bits, used | 1 << number, after))
        todo += reversed(following)
    return Verdict(False, len(seen), frozenset(item for *_, item in seen))


def _following(
    state: State, known: Sequence[Operation], needed: Sequence[Sequence[int]], step: Step
) -> tuple[list[State], float]:
    """Return the state after each known operation that may be next, and until when an unknown one must have begun."""
    first, bits, used, item = state
    following: list[State] = []
    limit = float("inf")  # the first end of those not in order: none that began later may come before it
    for place in range(first, len(known)):
        began, ended, call, answered, *_ = known[place]
        if began > limit:
            break
        if bits >> (place - first) & 1:
            continue
        limit = min(limit, ended or 0)
        if any(other >= first and not bits >> (other - first) & 1 for other in needed[place]):
            continue
        after, answer = step(item, call)
        if answer == answered or (answered == ANY and answer != FAILED):
            one = first, bits | 1 << (place - first), used, after
            if call[0] == "get" or answered == FAILED:
                # Whenever it took effect, it changed nothing. So it may as well be the next one.
                return [one], float("-inf")
            following.append(one)
    return following, limit


def smallest(operations: Sequence[Operation], start: Any = None) -> list[Operation]:
    """Return a part of a history that no order explains, which is enough to see that none explains the whole."""

    def wrong(part: Sequence[Operation], *starts: Any) -> bool:
        return all(check(part, one).linearizable is False for one in starts)

    # All that was known at the first moment from which on no order explains it.
    ends = sorted(one.ended for one in operations if one.ended is not None)
    moment = ends[_first(len(ends), lambda place: wrong(_known_at(operations, ends[place]), start))]
    part = _known_at(operations, moment)
    # Of that, what ended after a moment: the last one at which no item that could be there explains the rest.
    items = {start, *check(part, start).items}
    begins = sorted({one.began for one in part}, reverse=True)
    later = [[one for one in part if one.ended is None or one.ended >= begin] for begin in begins]
    part = later[_first(len(later), lambda place: wrong(later[place], *items))]
    # Without an operation that changes nothing, the others have the same orders.
    for one in [*part]:
        less = [other for other in part if other is not one]
        if (one.call[0] == "get" or one.answer == FAILED or one.ended is None) and wrong(less, *items):
            part = less
    return part


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """Return the first place at which something holds that holds from there on; at the last one it does."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _known_at(operations: Iterable[Operation], moment: float) -> list[Operation]:
    return [
        one if one.ended is not None and one.ended <= moment else one._replace(ended=None, answer=ANY)
        for one in operations
        if one.began <= moment
    ]
