"""A Query of items that move, through all interleavings of its requests with those of others; and mutants of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from shardkit import CalculatedSuffix, Unsharded
from shardkit.migrate import query
from tests.support.checker import Process, Search, search
from tests.support.mutated import Mutant, check_found
from tests.support.resharded import Moves, item

# The items a and d have different shards of two.
ADOPT = Moves(Unsharded(), CalculatedSuffix("sk", 2))
MORE = Moves(CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 4))
OVERLAPPING = Moves(CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 3))


def moving(*processes: Process, moves: Moves = ADOPT, stored: Iterable[str] = "ad") -> Search:
    mover = Process("mover", [moves.pass_of_mover("mover")], crashes=True)
    return moves.search(
        mover, *processes, stored=[moves.at_old(item(name)) for name in stored], names="ad", ends=("switch", "move")
    )


def before(*processes: Process, stored: Iterable[str] = "a") -> Search:
    return ADOPT.search(
        *processes, stored=[ADOPT.at_old(item(name)) for name in stored], names="ad", ends=("guard", "switch")
    )


SEARCHES: dict[str, Callable[[], Search]] = {
    "pages of one item beside the mover": lambda: moving(
        Process("reader", [ADOPT.pages(["switch", "move"], "ad", limit=1)])
    ),
    "pages of two items, backwards": lambda: moving(
        Process("reader", [ADOPT.pages(["move", "switch"], "ad", limit=2, forward=False)]),
        Process("writer", [ADOPT.update("switch", "x", "d")]),
    ),
    "a page without a limit beside the mover": lambda: moving(
        Process("reader", [ADOPT.pages(["move"], "ad")]), Process("writer", [ADOPT.delete("move", "d")])
    ),
    "a filter": lambda: moving(
        Process("reader", [ADOPT.pages(["move"], "ad", FilterExpression="attribute_exists(v)")])
    ),
    "a page, eventually": lambda: moving(
        Process("reader", [ADOPT.pages(["switch"], "ad", consistent=False)]),
        Process("writer", [ADOPT.put("switch", "1")]),
        stored="a",
    ),
    "pages from guard to switch": lambda: before(
        Process("reader", [ADOPT.pages(["guard", "switch"], "ad", limit=1)]),
        Process("switch", [ADOPT.put_new("switch", "2", "d"), ADOPT.delete("switch", "a")]),
    ),
    "pages from switch to guard": lambda: before(
        Process("reader", [ADOPT.pages(["switch", "guard"], "ad", limit=1)]),
        Process("guard", [ADOPT.put("guard", "3", "a")]),
        Process("switch", [ADOPT.delete("switch", "d")]),
        stored="ad",
    ),
    "a stream beside the mover": lambda: moving(
        Process("reader", [ADOPT.stream("move", "ad")]), Process("writer", [ADOPT.update("move", "x", "d")])
    ),
    "a stream of small pages": lambda: moving(Process("reader", [ADOPT.stream("switch", "ad", Limit=1)])),
    "the first item of a stream": lambda: moving(Process("reader", [ADOPT.stream("switch", "ad", max_items=1)])),
    "more shards": lambda: moving(Process("reader", [MORE.pages(["move"], "ad")]), moves=MORE, stored="a"),
    "overlapping shards": lambda: moving(
        Process("reader", [OVERLAPPING.pages(["move"], "ad")]), moves=OVERLAPPING, stored="a"
    ),
    "pages beside a stub in a shard of both strategies": lambda: OVERLAPPING.search(
        Process("reader", [OVERLAPPING.pages(["move"], "a", limit=1)]),
        Process("mover", [OVERLAPPING.pass_of_mover("mover")]),
        stored=[OVERLAPPING.stub("a"), OVERLAPPING.at_new(item("a"))],
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_each_item_once(name: str) -> None:
    """Over all pages, an item that is there all the while is there once, as it was at some time of reading."""
    found = search(SEARCHES[name]())
    assert found.violation is None, found
    assert found.complete
    assert found.states > 25


MUTANTS: dict[str, Mutant] = {
    "new places are read ahead": Mutant(
        query, "after if end is None else after.up_to(end)", "after", ["a stream of small pages"]
    ),
    "new places are read before the old ones": Mutant(
        query, "self._old, self._new = _Side(old), _Side(new)", "self._old, self._new = _Side(new), _Side(old)",
        ["a page without a limit beside the mover"],
    ),
    "new places are read eventually": Mutant(
        query, 'exact = {"ConsistentRead": True}', 'exact = {"ConsistentRead": False}', ["a page, eventually"]
    ),
    "stubs are items": Mutant(
        query, "if item.get(MARK) not in (STUB, self._stub)]", "]",
        ["pages from guard to switch"],
    ),
    "an item at both places is shown twice": Mutant(
        query, "rows[order] = item", "rows[*order, side is new] = item", ["a page without a limit beside the mover"]
    ),
    "a place of both strategies is read once": Mutant(
        query, "once = one or _nested(moving.strategy.old, moving.strategy.new, plain(logical))", "once = True",
        ["overlapping shards"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    check_found(MUTANTS[name], SEARCHES)
