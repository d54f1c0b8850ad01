"""A table that a shard map guards: every face refuses a strategy that says otherwise, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ConfigurationError, RandomSuffix, Resharding, Strategy, Unsharded
from tests.functional.contract.faces import Face, FaceTable
from tests.support.mapped import Moment
from tests.support.tables import make_table

NEW = CalculatedSuffix("OrderId", 4)
ITEM = {"Date": "2014-07-09", "OrderId": "A1"}
CALLS: dict[str, Callable[[FaceTable], object]] = {
    "put_item": lambda table: table.put_item(Item=ITEM),
    "get_item": lambda table: table.get_item(Key=ITEM),
    "query": lambda table: table.query(KeyConditionExpression=Key("Date").eq("2014-07-09")),
    "scan": lambda table: table.scan(),
    "batch_get_items": lambda table: table.batch_get_items([ITEM]),
    "write": lambda table: table.write([ITEM]),
}


def guarded(face: Face, stage: str) -> Any:
    """Return a table whose map is in a stage of the move from ``Unsharded()`` to ``NEW``."""
    stored, moment = make_table(face.resource, ("Date", "S"), ("OrderId", "S")), Moment()
    admin = moment.admin(stored)
    admin.create(Unsharded())
    if stage != "old":
        admin.start(NEW)
    moment.advanced(admin, "move" if stage == "new" else stage)
    if stage == "new":
        moment.wait(admin.wait())
        admin.finish()
    return stored


@pytest.mark.parametrize("strategy", [Unsharded(), NEW, Resharding(Unsharded(), NEW, stage="move")], ids=repr)
def test_no_other_strategy_during_a_move(face: Face, strategy: Strategy) -> None:
    stored = guarded(face, "move")
    before = stored.scan()["Items"]
    table = face.sharded(stored, strategy)
    calls = {**CALLS, "bulk_load": lambda table: table.bulk_load([ITEM])} if "loads" in face.offers else CALLS
    for name, call in calls.items():
        with pytest.raises(ConfigurationError) as caught:
            call(table)
        assert f"table {stored.name!r} has a shard map (generation " in str(caught.value), name
        assert "stage 'move')" in str(caught.value), name
        assert str(caught.value).endswith("so give ShardMap()"), name
    assert stored.scan()["Items"] == before


@pytest.mark.parametrize(
    ("stage", "let_in", "refused"),
    [
        ("old", Unsharded(), NEW),
        ("new", NEW, Unsharded()),
        ("new", Resharding(Unsharded(), NEW, stage="new"), RandomSuffix(4)),
    ],
)
def test_the_strategy_of_a_map_without_a_move(face: Face, stage: str, let_in: Strategy, refused: Strategy) -> None:
    """So ``ShardMap()`` can be deployed to one process after another."""
    stored = guarded(face, stage)
    table = face.sharded(stored, let_in)
    table.put_item(Item=ITEM)
    assert table.get_item(Key=ITEM)["Item"] == ITEM
    with pytest.raises(ConfigurationError, match=r"give ShardMap\(\), or, where a ShardMap is not supported, "):
        face.sharded(stored, refused).put_item(Item=ITEM)
