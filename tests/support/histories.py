"""The histories of logical items in a search: which answers fit an order of the operations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from shardkit.dynamodb.values import comparable_item
from tests.support.stepwise import Tables, carried_out

IN_TRANSACTION = "in a transaction: "
"""What the operation on an item is called if it is one of several, all or none of which take effect."""
CANCELLED = "cancelled"
"""The outcome for an item whose own condition held, in a transaction that was cancelled because of another."""


def answered(answer: Any) -> Hashable:
    """Return what an operation on one item answered, without what does not concern the item."""
    if isinstance(answer, ClientError):
        item: Any = answer.response.get("Item")
        return answer.response["Error"]["Code"], None if item is None else comparable_item(item)
    if isinstance(answer, Exception):
        raise AssertionError(f"raised {answer!r}") from answer
    shown = {name: answer.get(name) for name in ("Item", "Attributes")}
    return tuple(None if item is None else comparable_item(item) for item in shown.values())


class Histories:
    """The histories of a logical item, and what they allow.

    A history is a set of possibilities: the item's content, the contents that it has ever had (where operations read
    eventually), and each process's operation under way: none, not yet in effect, or in effect with an outcome.
    History 0 is the empty set: no order of the operations explains the answers.
    """

    def __init__(self, processes: int, *, ever: bool) -> None:
        self._processes, self._with_ever = processes, ever
        self._sets: list[frozenset[Any]] = [frozenset()]
        self._numbers: dict[frozenset[Any], int] = {frozenset(): 0}
        self._effects: list[tuple[tuple[str, Mapping[str, Any]], Tables, bool]] = []
        self._effect_numbers: dict[Any, int] = {}
        self._outcomes: list[Hashable] = []
        self._outcome_numbers: dict[Hashable, int] = {}
        self._applied: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._memo: dict[tuple[int, int, int, int], int] = {}

    def start(self, content: int) -> int:
        ever = frozenset([content]) if self._with_ever else frozenset()
        return self._number(frozenset([(content, ever, (None,) * self._processes)]))

    def effect(self, effect: tuple[str, Mapping[str, Any]], tables: Tables, *, eventual: bool) -> int:
        identity = effect[0], repr(effect[1]), eventual
        if identity not in self._effect_numbers:
            self._effect_numbers[identity] = len(self._effects)
            self._effects.append((effect, tables, eventual))
        return self._effect_numbers[identity]

    def outcome(self, outcome: Hashable) -> int:
        return numbered(outcome, self._outcome_numbers, self._outcomes)

    def after(self, history: int, process: int, kind: int, what: int) -> int:
        """Return the history after a begin (``kind=0``, ``what``: an effect) or an end (``1``: an outcome)."""
        identity = history, process, kind, what
        number = self._memo.get(identity)
        if number is None:
            now = self._begun(history, process, what) if kind == 0 else self._ended(history, process, what)
            number = self._memo[identity] = self._number(now)
        return number

    def _number(self, possible: frozenset[Any]) -> int:
        return numbered(possible, self._numbers, self._sets)

    def _begun(self, history: int, process: int, effect: int) -> frozenset[Any]:
        return frozenset(
            (content, ever, (*pending[:process], (effect, None), *pending[process + 1 :]))
            for content, ever, pending in self._sets[history]
        )

    def _ended(self, history: int, process: int, outcome: int) -> frozenset[Any]:
        """Let operations under way take effect in any order, then keep what agrees with the outcome."""
        seen = set(self._sets[history])
        todo = list(seen)
        while todo:
            content, ever, pending = todo.pop()
            for at, one in enumerate(pending):
                if one is None or one[1] is not None or self._effects[one[0]][2]:
                    continue
                for now, result in self._apply(one[0], content):
                    after = (*pending[:at], (one[0], result), *pending[at + 1 :])
                    possible = now, ever | {now} if self._with_ever else ever, after
                    if possible not in seen:
                        seen.add(possible)
                        todo.append(possible)
        kept = set()
        for content, ever, pending in seen:
            effect, result = pending[process]
            if self._effects[effect][2]:
                fits = any(self._apply(effect, value)[0][1] == outcome for value in ever)
            else:
                fits = result == outcome
            if fits:
                kept.add((content, ever, (*pending[:process], None, *pending[process + 1 :])))
        return frozenset(kept)

    def _apply(self, effect: int, content: int) -> list[tuple[int, int]]:
        """Return the possible contents after an operation took effect, each with the outcome."""
        if (effect, content) not in self._applied:
            (operation, params), tables, _ = self._effects[effect]
            after, answer = carried_out(operation.removeprefix(IN_TRANSACTION), params, tables.items[content])
            possible = [(tables.item(after), self.outcome(answered(answer)))]
            if operation.startswith(IN_TRANSACTION) and not isinstance(answer, Exception):
                possible.append((content, self.outcome(CANCELLED)))  # because of another of its items
            self._applied[effect, content] = possible
        return self._applied[effect, content]


def numbered(value: Any, numbers: dict[Any, int], values: list[Any]) -> int:
    number = numbers.get(value)
    if number is None:
        number = numbers[value] = len(values)
        values.append(value)
    return number
