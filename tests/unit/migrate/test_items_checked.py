"""Operations on single items while they move, through all interleavings of their requests; and mutants of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardkit.dynamodb.values import WireItem
from shardkit.migrate import freeze, items
from tests.support.checker import Process, Search, search
from tests.support.mutated import Mutant, check_found
from tests.support.resharded import Moves, item

M = Moves()
LIVE = [M.at_old(item("a"))]
STUB = [M.stub("a"), M.at_new(item("a"))]
NEW = [M.at_new(item("a"))]


def mover(name: str = "mover", **options: Any) -> Process:
    return Process(name, [M.pass_of_mover(name, **options)], crashes=True)


def too_large(stored: WireItem) -> bool:
    """A value that is too large beside the suffix of the new home."""
    return stored.get("v") == {"S": "0"} and "." in stored["pk"]["S"]


SEARCHES: dict[str, Callable[[], Search]] = {
    "old and guard": lambda: M.search(
        Process("old", [M.put("old", "1"), M.delete("old")]),
        Process("guard", [M.update_existing("guard", "x"), M.put_new("guard", "2"), M.get("guard")]),
        stored=LIVE,
        ends=("old", "guard"),
    ),
    "guard and switch, a live item": lambda: M.search(
        Process("guard", [M.put("guard", "1"), M.delete("guard"), M.get("guard")]),
        Process("switch", [M.update("switch", "x"), M.put_new("switch", "2"), M.get("switch")]),
        stored=LIVE,
        ends=("guard", "switch"),
    ),
    "guard and switch, no item": lambda: M.search(
        Process("guard", [M.put_new("guard", "1"), M.get("guard")]),
        Process("switch", [M.put_new("switch", "2"), M.delete("switch")]),
        Process("reader", [M.get("switch"), M.get("guard")]),
        stored=[],
        ends=("guard", "switch"),
    ),
    "guard and switch, a stub": lambda: M.search(
        Process("guard", [M.update_existing("guard", "x"), M.put_new("guard", "1")]),
        Process("switch", [M.delete("switch"), M.put("switch", "2")]),
        Process("reader", [M.get("guard", consistent=False)]),
        stored=STUB,
        ends=("guard", "switch"),
    ),
    "switch and move": lambda: M.search(
        mover(),
        Process("switch", [M.update("switch", "x"), M.get("move")]),
        Process("move", [M.delete("move"), M.get("switch")]),
        stored=LIVE,
        ends=("switch", "move"),
    ),
    "switch and move, late requests": lambda: M.search(
        mover(),
        Process("move", [M.delete("move"), M.put_new("move", "1"), M.get("move")]),
        stored=LIVE,
        late=1,
        ends=("switch", "move"),
    ),
    "switch and move, no item, late stubs": lambda: M.search(
        mover(),
        Process("switch", [M.put_new("switch", "1"), M.get("switch")]),
        Process("move", [M.put_new("move", "2"), M.delete("move")]),
        stored=[],
        late=1,
        ends=("switch", "move"),
    ),
    "switch and move, a stub": lambda: M.search(
        mover(),
        Process("switch", [M.update_existing("switch", "x"), M.get("move")]),
        Process("move", [M.delete("move"), M.put("move", "1")]),
        stored=STUB,
        ends=("switch", "move"),
    ),
    "switch and move, deleted since the mover's scan": lambda: M.search(
        mover(),
        Process("switch", [M.delete("switch"), M.delete("switch"), M.get("move")]),
        stored=LIVE,
        ends=("switch", "move"),
    ),
    "eventual reads": lambda: M.search(
        mover(),
        Process("switch", [M.put("switch", "1")]),
        Process("reader", [M.get("move", consistent=False), M.get("switch", consistent=False)]),
        stored=LIVE,
        ends=("switch", "move"),
    ),
    "conflicts with the transaction": lambda: M.search(
        mover(),
        Process("switch", [M.update("switch", "x"), M.get("move")]),
        stored=LIVE,
        conflicts=2,
        ends=("switch", "move"),
    ),
    "two movers": lambda: M.search(
        mover("first"),
        mover("second"),
        Process("move", [M.update("move", "x"), M.get("move")]),
        stored=LIVE,
        ends=("switch", "move"),
    ),
    "a table with a stream": lambda: M.search(
        mover(streamed=True),
        Process("move", [M.update("move", "x"), M.get("move")]),
        Process("reader", [M.get("switch")]),
        stored=LIVE,
        ends=("switch", "move"),
    ),
    "switch and move, too large to move": lambda: M.search(
        mover(fails=True),
        Process("switch", [M.update("switch", "x"), M.get("move")]),
        Process("move", [M.put("move", "1"), M.get("switch")]),
        stored=LIVE,
        too_large=too_large,
        ends=("switch", "move"),
    ),
    "too large to move, two movers": lambda: M.search(
        mover("first", fails=True),
        mover("second", fails=True),
        Process("move", [M.put("move", "1"), M.get("move")]),
        stored=LIVE,
        too_large=too_large,
        ends=("switch", "move"),
    ),
    "too large to move, late transactions": lambda: M.search(
        mover(fails=True),
        Process("move", [M.put("move", "1"), M.get("move")]),
        stored=LIVE,
        too_large=too_large,
        late=2,
        # Not a late freeze: a copy of before the thaw would have to be refused again.
        may_be_late=lambda request: request.operation == "TransactWriteItems",
        ends=("switch", "move"),
    ),
    "move and new": lambda: M.search(
        Process("move", [M.put("move", "1"), M.get("move")]),
        Process("new", [M.delete("new"), M.update("new", "x"), M.get("new")]),
        stored=NEW,
        ends=("move", "new"),
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_interleaving_is_right(name: str) -> None:
    found = search(SEARCHES[name]())
    assert found.violation is None, found
    assert found.complete
    assert found.states > 15


_COPY = '{"TransactItems": [{"Put": put}, {"ConditionCheck": check}]}'
_ANY = '{**check, "ConditionExpression": "attribute_exists(#m) OR attribute_not_exists(#m)"}'
MUTANTS: dict[str, Mutant] = {
    # The tempting protocols:
    "one transaction copies and removes": Mutant(
        freeze, _COPY, '{"TransactItems": [{"Put": put}, {"Delete": check}]}', ["switch and move"]
    ),
    "the copy does not check the freeze": Mutant(
        freeze,
        _COPY,
        f'{{"TransactItems": [{{"Put": put}}, {{"ConditionCheck": {_ANY}}}]}}',
        ["switch and move, late requests"],
    ),
    "a write on the old home without a condition": Mutant(
        items,
        "{**and_condition(on_old, guard,",
        "{**and_condition(on_old, '#shardkit_m = #shardkit_m OR NOT #shardkit_m = #shardkit_m',",
        ["switch and move"],
    ),
    "the last read is eventually consistent": Mutant(
        items, "read(homes.new, ConsistentRead=True)", "read(homes.new)", ["eventual reads"]
    ),
    # Rules 2 and 3, writes in guard and switch:
    "guard does not see a stub": Mutant(
        items, 'there in {"absent", "live"}', 'there in {"absent", "live", "stub"}', ["guard and switch, a stub"]
    ),
    "switch writes a new item without a stub": Mutant(
        items, 'state == "absent" and moving.stage == "switch"', "False", ["guard and switch, no item"]
    ),
    "switch goes on although the stub was not put": Mutant(
        items,
        "        return False\n    return True",
        "        return True\n    return True",
        ["guard and switch, no item"],
    ),
    "a put brings a moved item back to its old home": Mutant(
        items, 'f"attribute_exists(#shardkit_k) AND {_UNMARKED}"', "_UNMARKED", ["switch and move"]
    ),
    "a writer does not wait for the end of a move": Mutant(
        items, 'if state == "frozen":', 'if state == "frozen" and False:', ["switch and move"]
    ),
    "a caller's condition is retried for ever": Mutant(
        items,
        'if not failed_condition(error) or state_at_old_home(there) == "live":',
        "if not failed_condition(error):",
        ["guard and switch, a live item"],
    ),
    # Rule 5, the move:
    "an item is frozen twice": Mutant(
        freeze,
        '"attribute_exists(#k) AND attribute_not_exists(#m)"',
        '"attribute_exists(#k)"',
        ["switch and move, deleted since the mover's scan"],
    ),
    "the snapshot is that of before the freeze": Mutant(
        freeze, '"ReturnValues": "ALL_NEW"', '"ReturnValues": "ALL_OLD"', ["switch and move"]
    ),
    "a frozen item is removed before its copy": Mutant(
        freeze,
        '    marked = mark["S"].endswith(COPY_MARKED)\n',
        '    marked = mark["S"].endswith(COPY_MARKED)\n    yield from _remove_if(send, homes.old, mark)\n',
        ["switch and move"],
    ),
    "a copy keeps its mark": Mutant(
        freeze, "            yield from unmark(send, homes, mark)\n", "            pass\n", ["a table with a stream"]
    ),
    "what is too large is thawed although it was copied": Mutant(
        freeze,
        '{"TransactItems": [{"Update": update}, {"ConditionCheck": check}]}',
        '{"TransactItems": [{"Update": update}]}',
        ["switch and move, too large to move"],
    ),
    # Rule 6, reads:
    "guard does not follow a stub": Mutant(
        items,
        'if state == "stub" or (state == "absent" and moving.stage != "guard"):',
        'if state in {"absent", "stub"} and moving.stage != "guard":',
        ["guard and switch, a stub"],
    ),
    "the new home is not read again": Mutant(
        items,
        'if state == "stub" or (state == "absent" and moving.stage != "guard"):',
        'if state == "stub" or (state == "absent" and moving.stage == "switch"):',
        ["switch and move"],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    check_found(MUTANTS[name], SEARCHES)
