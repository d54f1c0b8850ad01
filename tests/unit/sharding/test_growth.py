"""Moves in which no item has to move, because only some keys get more shards."""

from __future__ import annotations

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, Resharding, Strategy, Unsharded
from shardkit.sharding.shard_map import is_growth

OLD = CalculatedSuffix("sk", shards={None: 4, "warm": 6})


@pytest.mark.parametrize(
    ("old", "new", "growth"),
    [
        (CalculatedSuffix("sk", 4), CalculatedSuffix("sk", {None: 4, "hot": 8}), True),
        (RandomSuffix(4), RandomSuffix({None: 4, "hot": 8}), True),
        (OLD, CalculatedSuffix("sk", {None: 4, "warm": 12, "hot": 8}), True),
        (OLD, CalculatedSuffix("sk", {None: 4, "warm": 5, "hot": 8}), False),
        (OLD, CalculatedSuffix("sk", {None: 4, "hot": 8}), False),
        (OLD, CalculatedSuffix("sk", {None: 5, "warm": 6, "hot": 8}), False),
        (OLD, CalculatedSuffix("sk", {None: 4, "warm": 6, "hot": 8}, separator="#"), False),
        (CalculatedSuffix("sk", 4), CalculatedSuffix("sk", 8), False),
        (Unsharded(), CalculatedSuffix("sk", {"hot": 8}), False),
        (CalculatedSuffix("sk", 4), Unsharded(), False),
    ],
)
def test_what_is_a_growth(old: Strategy, new: Strategy, growth: bool) -> None:
    assert is_growth(Resharding(old, new, stage="move")) is growth
