"""Drawn searches: any operations of neighbouring stages on one or two items, beside movers that crash."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings

from shardkit import CalculatedSuffix, Unsharded
from shardkit.dynamodb.values import WireItem
from shardkit.migrate.marks import MARK
from shardkit.strategies import Stage
from tests.support.checker import Key, Operation, Process, Search, search
from tests.support.resharded import Moves, item

NEIGHBOURS: Sequence[tuple[Stage, Stage]] = [
    ("old", "guard"),
    ("guard", "switch"),
    ("switch", "move"),
    ("switch", "move"),
    ("switch", "move"),
    ("move", "new"),
]
MOVES = (
    Moves(Unsharded(), CalculatedSuffix("sk", 2)),
    Moves(CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 3)),
    Moves(CalculatedSuffix("sk", 2), Unsharded()),
)
ACTIONS: Sequence[Callable[[Key], tuple[str, Mapping[str, Any]]]] = [
    lambda name: ("Put", {"Item": item(name, "3")}),
    lambda name: ("Put", {"Item": item(name, "4"), "ConditionExpression": "attribute_not_exists(pk)"}),
    lambda _: ("Delete", {"ConditionExpression": "attribute_exists(pk)"}),
    lambda _: ("ConditionCheck", {"ConditionExpression": "attribute_exists(x)"}),
    lambda _: (
        "Update",
        {"UpdateExpression": "SET x = :new", "ExpressionAttributeValues": {":new": {"S": "t"}}},
    ),
]
"""What a transaction does to an item."""
Stored = list[tuple[str, WireItem]]


@pytest.mark.long_search
def test_drawn_searches() -> None:
    """By profile: 10,000 states in a usual run, millions in a long search."""
    examples = settings.default.max_examples if settings.default else 30
    most, together = (3_000, 10_000) if examples <= 30 else (400_000, 20_000 * examples)
    seed = secrets.randbits(32)
    explored = complete = turn = 0
    while explored < together:
        turn += 1
        drawn = random.Random(f"{seed}.{turn}")
        found = search(a_search(drawn, most=min(most, together - explored + 1000)))
        assert found.violation is None, f"Random('{seed}.{turn}'): {found}"
        explored += found.states
        complete += found.complete
    assert complete or examples <= 30  # a few drawn searches may all be large


def a_search(drawn: random.Random, *, most: int) -> Search:
    pair = drawn.choice(NEIGHBOURS)
    moves = drawn.choice(MOVES)
    names = drawn.choice(["a", "a", "ad"])
    stored: Stored = []
    for name in names:
        stored += drawn.choice(states(moves, name, pair))
    processes = [
        Process(f"client {number}", [an_operation(drawn, moves, pair, names) for _ in range(drawn.randint(1, 3))])
        for number in range(drawn.choice([1, 1, 2, 2, 3]))
    ]
    if "move" in pair and "new" not in pair:
        streamed = drawn.random() < 0.3
        processes += [
            Process(name, [moves.pass_of_mover(name, streamed=streamed, workers=drawn.choice([1, 1, 2]))], crashes=True)
            for name in ["first", "second"][: drawn.choice([1, 1, 2])]
        ]
    # Of an item that does not move, the caller gets a conflict, as on a plain table: only those that move try again.
    plain = not {"old", "new"}.isdisjoint(pair) or any(
        moves.at_old(item(name)) == moves.at_new(item(name)) for name in names
    )
    return moves.search(
        *processes,
        stored=stored,
        names=names,
        ends=pair,
        moved="move" in pair and "new" not in pair,
        late=drawn.choice([0, 0, 1]),
        conflicts=0 if plain else drawn.choice([0, 0, 1]),
        most=most,
    )


def states(moves: Moves, name: Key, pair: tuple[Stage, Stage]) -> list[Stored]:
    """Return what can be stored of an item in two stages."""
    live, new = moves.at_old(item(name)), moves.at_new(item(name))
    if "new" in pair:
        return [[], [new]]
    if "old" in pair or live == new:
        return [[], [live]]
    stub = moves.stub(name)
    if "guard" in pair:
        return [[], [live], [live], [stub], [stub, new]]
    frozen = moves.at_old(item(name), **{MARK: {"S": "token"}})
    return [[], [live], [live], [live], [stub], [stub, new], [new], [frozen], [frozen, new]]


def an_operation(drawn: random.Random, moves: Moves, pair: tuple[Stage, Stage], names: Sequence[Key]) -> Operation:
    stage = drawn.choice(pair)
    name = drawn.choice(names)
    value = str(drawn.randint(1, 2))
    consistent, forward = drawn.random() < 0.8, drawn.random() < 0.5
    single: list[Callable[[], Operation]] = [
        lambda: moves.get(stage, name, consistent=consistent),
        lambda: moves.put(stage, value, name),
        lambda: moves.put_new(stage, value, name),
        lambda: moves.update(stage, "xyz"[drawn.randrange(3)], name),
        lambda: moves.update_existing(stage, "xyz"[drawn.randrange(3)], name),
        lambda: moves.delete(stage, name),
    ]
    action, other = drawn.choice(ACTIONS), drawn.choice(ACTIONS)
    actions = {one: parts(one) for one, parts in zip(names, (action, other), strict=False)}
    pages = [drawn.choice(pair), drawn.choice(pair)]
    limit = drawn.choice([None, 1, 2])
    several: list[Callable[[], Operation]] = [
        lambda: moves.batch_get(stage, names, consistent=consistent),
        lambda: moves.batch_write(stage, {name: value}, set(names) - {name}),
        lambda: moves.transact(stage, **actions),
        lambda: moves.transact_get(stage, names),
        lambda: moves.pages(pages, names, limit=limit, forward=forward, consistent=consistent),
        lambda: moves.stream(stage, names, Limit=limit or 3),
    ]
    return drawn.choice(single if drawn.random() < 0.8 else several)()
