"""Batches and transactions on items that move, through all interleavings of their requests; and mutants of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shardkit.migrate import batch_get, batch_write, transactions
from tests.support.checker import Process, Search, search
from tests.support.mutated import Mutant, check_found
from tests.support.resharded import Moves, item

M = Moves()
A = [M.at_old(item("a"))]
AB = [*A, M.at_old(item("b"))]
UPDATE: tuple[str, Mapping[str, Any]] = (
    "Update",
    {"UpdateExpression": "SET x = :new", "ExpressionAttributeValues": {":new": {"S": "x"}}},
)
UPDATE_EXISTING = ("Update", {**UPDATE[1], "ConditionExpression": "attribute_exists(pk)"})
PUT_NEW = (
    "Put",
    {
        "Item": item("a", "1"),
        "ConditionExpression": "attribute_not_exists(pk)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    },
)

PUT_NEW_CONDITION = {name: value for name, value in PUT_NEW[1].items() if name != "Item"}


def mover(name: str = "mover") -> Process:
    return Process(name, [M.pass_of_mover(name)], crashes=True)


def moving(*processes: Process, stored: Any = A, **options: Any) -> Search:
    return M.search(mover(), *processes, stored=stored, names="ab", ends=("switch", "move"), **options)


def before(*processes: Process, stored: Any = A, **options: Any) -> Search:
    return M.search(*processes, stored=stored, names="ab", ends=("guard", "switch"), **options)


SEARCHES: dict[str, Callable[[], Search]] = {
    "BatchGet beside the mover": lambda: moving(
        Process("reader", [M.batch_get("move")]), Process("writer", [M.update("switch", "x")]), stored=AB
    ),
    "BatchGet, eventually": lambda: moving(
        Process("reader", [M.batch_get("switch", consistent=False)]), Process("writer", [M.update("move", "x")])
    ),
    "BatchGet in guard": lambda: before(
        Process("reader", [M.batch_get("guard")]),
        Process("writer", [M.delete("switch"), M.put("switch", "1")]),
        Process("other", [M.put_new("guard", "2", "b")]),
    ),
    "BatchWrite beside the mover": lambda: moving(
        Process("batch", [M.batch_write("move", {"a": "1"}, "b"), M.get("switch")]),
        Process("writer", [M.update("switch", "x")]),
    ),
    "BatchWrite in guard and switch": lambda: before(
        Process("switch", [M.batch_write("switch", {"a": "1"}, "b")]),
        Process("guard", [M.batch_write("guard", {"b": "3"}, "a")]),
        Process("reader", [M.batch_get("guard")]),
        stored=AB,
    ),
    "a transaction beside the mover": lambda: moving(
        Process("transaction", [M.transact("move", a=PUT_NEW, b=UPDATE)]),
        Process("writer", [M.delete("switch")]),
    ),
    "a transaction is read beside the mover": lambda: moving(
        Process("transaction", [M.transact("switch", a=UPDATE_EXISTING, b=UPDATE)]),
        Process("reader", [M.transact_get("move")]),
    ),
    "transactions in guard and switch": lambda: before(
        Process("switch", [M.transact("switch", a=PUT_NEW, b=UPDATE)]),
        Process("guard", [M.transact("guard", a=UPDATE, b=("Delete", {})), M.get("guard", "b")]),
        Process("reader", [M.transact_get("guard")]),
    ),
    "a new item of a transaction": lambda: before(
        Process("switch", [M.transact("switch", a=PUT_NEW, b=UPDATE), M.get("switch")]),
        Process("guard", [M.put_new("guard", "2", "b"), M.put_new("guard", "3")]),
        stored=[],
    ),
    "a transaction gets conflicts": lambda: moving(
        Process("transaction", [M.transact("switch", a=UPDATE, b=("ConditionCheck", PUT_NEW_CONDITION))]), conflicts=1
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_interleaving_is_right(name: str) -> None:
    found = search(SEARCHES[name]())
    assert found.violation is None, found
    assert found.complete
    assert found.states > 25


MUTANTS: dict[str, Mutant] = {
    # Rule 7:
    "a batch reads the new homes eventually": Mutant(
        batch_get, '{**wire, "ConsistentRead": True}', "wire", ["BatchGet, eventually"]
    ),
    "a batch in guard reads an item that is not there at its new home": Mutant(
        batch_get, "if not is_stub(item)]", "]", ["BatchGet in guard"]
    ),
    "a read transaction prefers the new home": Mutant(
        transactions,
        'found = old if state_at_old_home(old.get("Item")) in {"live", "frozen"} else new',
        'found = old if "Item" in old else new',
        ["transactions in guard and switch"],
    ),
    # Rule 10:
    "a batch writes a frozen item at its new home": Mutant(
        batch_write, 'gone = {"absent", "stub"}', 'gone = {"absent", "stub", "frozen"}', ["BatchWrite beside the mover"]
    ),
    "switch batches new items without a stub": Mutant(
        batch_write,
        'if moving.stage == "move" and',
        'if moving.stage != "guard" and',
        ["BatchWrite in guard and switch"],
    ),
    # Rule 11:
    "a transaction in switch puts no stub": Mutant(
        transactions,
        'elif state == "absent" and moving.stage == "switch":',
        "elif False:",
        ["a new item of a transaction"],
    ),
    "a transaction in guard is not planned again": Mutant(
        transactions, 'if state == "stub":', "if False:", ["transactions in guard and switch"]
    ),
    "a transaction is not planned again": Mutant(
        transactions, 'elsewhere = elsewhere or state != "live"', "pass", ["a transaction beside the mover"]
    ),
    "a transaction writes a frozen item at its new home": Mutant(
        transactions,
        'if state == "frozen":\n                    yield',
        "if False:\n                    yield",
        ["a transaction beside the mover"],
    ),
    "every failed condition is planned again": Mutant(
        transactions,
        'elsewhere = elsewhere or state != "live"',
        "elsewhere = True",
        ["transactions in guard and switch"],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    check_found(MUTANTS[name], SEARCHES)
