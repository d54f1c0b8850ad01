"""``Resharding``: what it accepts, its text form, and what it makes of a table in each stage."""

import json
import pickle
from typing import Any

import pytest

from shardkit import CalculatedSuffix, ConfigurationError, InvalidKeyError, RandomSuffix, RangeSuffix, Unsharded
from shardkit.migrate import between
from shardkit.migrate.between import Growing
from shardkit.migrate.marks import COPY_MARKED, MARK, Moving, state_at_old_home
from shardkit.sharding.layout import Sharding
from shardkit.strategies import Strategy
from shardkit.strategies.resharding import STAGES, Resharding
from tests.support.strategies import VECTORS

ADOPT = (Unsharded(), CalculatedSuffix("OrderId", shards=10))
SCHEMA = {
    "KeySchema": [
        {"AttributeName": "Date", "KeyType": "HASH"},
        {"AttributeName": "OrderId", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}
BETWEEN = ("guard", "switch", "move")


def described(strategy: Strategy, **more: Any) -> Sharding:
    return between.described("Orders", strategy, {**SCHEMA, **more})


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - just made here


def wire(date: str, order: str = "A17") -> dict[str, Any]:
    return {"Date": {"S": date}, "OrderId": {"S": order}}


@pytest.mark.parametrize("stage", STAGES)
def test_the_text_form_makes_an_equal_strategy(stage: Any) -> None:
    strategy = Resharding(*ADOPT, stage=stage)
    assert Strategy.from_dict(strategy.to_dict()) == strategy
    assert copied(strategy) == strategy
    assert stage in repr(strategy)


def test_stored_forms_do_not_change() -> None:
    """Configurations hold the strategy, and tables the marks."""
    golden = json.loads((VECTORS / "resharding.json").read_text(encoding="utf-8"))
    assert Strategy.from_dict(golden["form"]) == Resharding(*ADOPT, stage="guard")
    assert Resharding(*ADOPT, stage="guard").to_dict() == golden["form"]
    assert [*STAGES] == golden["stages"]
    assert [state_at_old_home(one["item"]) for one in golden["items"]] == [one["state"] for one in golden["items"]]
    copies = [one["item"][MARK]["S"].endswith(COPY_MARKED) for one in golden["items"][2:]]
    assert copies == [False, True]


@pytest.mark.parametrize(
    ("old", "new", "stage", "said"),
    [
        (*ADOPT, "freeze", "stage: must be one of old, guard"),
        (*ADOPT, "gaurd", "did you mean guard"),
        (*ADOPT, None, "stage: must be one of"),
        ("Unsharded", ADOPT[1], "guard", "old: must be"),
        (ADOPT[0], Resharding(*ADOPT, stage="old"), "guard", "new: must be"),
        (ADOPT[0], CalculatedSuffix("OrderId", shards=2, source="x"), "guard", "backfill_index"),
        (ADOPT[1], RandomSuffix(10), "guard", "copy the items to another table"),
        (RandomSuffix(10), ADOPT[1], "guard", "copy the items to another table"),
        (Unsharded(), RandomSuffix(10, locate=True), "guard", "copy the items to another table"),
        (RandomSuffix(20), RandomSuffix(10), "guard", "at least as many"),
        (RandomSuffix({"k": 5}), RandomSuffix({"k": 4}), "guard", "at least as many shards as old for every key"),
        (RandomSuffix({"k": 5}), RandomSuffix({"j": 4}), "guard", "at least as many shards as old for every key"),
        (RandomSuffix(5), RandomSuffix(6, first=0), "guard", "separator and first must not change"),
        (RandomSuffix(5), RandomSuffix(lambda key: 6), "guard", "numbers or mappings"),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_its_remedy(old: Any, new: Any, stage: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Resharding(old, new, stage=stage)


def test_the_first_and_the_last_stage_are_the_plain_table() -> None:
    old, new = ADOPT
    assert described(Resharding(*ADOPT, stage="old")) == described(old)
    assert described(Resharding(*ADOPT, stage="new")) == described(new)


@pytest.mark.parametrize("stage", BETWEEN)
def test_between_them_an_item_has_two_homes(stage: Any) -> None:
    moving = copied(described(Resharding(*ADOPT, stage=stage)))
    assert isinstance(moving, Moving)
    assert moving.stage == stage
    homes = moving.homes(wire("d"))
    assert homes.old == wire("d")
    assert homes.new == described(ADOPT[1]).stored(wire("d"), ADOPT[1].shard_of("d", {"OrderId": "A17"}))
    assert not homes.same
    assert [moving.logical_item({**home, "shardkit:move": {"S": "stub"}}) for home in (homes.old, homes.new)] == [
        wire("d")
    ] * 2


def test_an_item_whose_shard_does_not_change_has_one_home() -> None:
    by = "OrderId"
    moving = described(Resharding(CalculatedSuffix(by, shards=10), CalculatedSuffix(by, shards=20), stage="guard"))
    assert isinstance(moving, Moving)
    same = [moving.homes(wire("d", f"o{number}")).same for number in range(100)]
    assert 30 < sum(same) < 70


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (Unsharded(), CalculatedSuffix("OrderId", shards=10), "v1.5"),
        (CalculatedSuffix("OrderId", shards=10), Unsharded(), "v1.5"),
        (CalculatedSuffix("OrderId", shards=10, separator="#"), CalculatedSuffix("OrderId", shards=10, separator="##"),
         "v#"),
    ],
)  # fmt: skip
def test_a_key_whose_stored_form_is_read_as_another_keys_is_refused(old: Any, new: Any, key: str) -> None:
    moving = described(Resharding(old, new, stage="guard"))
    assert isinstance(moving, Moving)
    with pytest.raises(InvalidKeyError, match="separator="):
        moving.homes(wire(key, "o1"))
    assert moving.homes(wire("v1.50")).old != moving.homes(wire("v1.50")).new


def test_random_suffixes_grow_without_a_mover() -> None:
    old, new = RandomSuffix({"d": 2}), RandomSuffix({"d": 8, "e": 2})
    assert described(Resharding(old, new, stage="old")) == described(old)
    growing = described(Resharding(old, new, stage="guard"))
    assert isinstance(growing, Growing)
    assert [*growing.shards({"S": "d"})] == [*range(1, 9)]
    assert {growing.drawn({"S": "d"}, draw / 10) for draw in range(10)} == {1, 2}
    for stage in ("switch", "move", "new"):
        assert described(Resharding(old, new, stage=stage)) == described(new)


def test_a_table_that_cannot_move_is_refused() -> None:
    total = CalculatedSuffix("Total", shards=10)
    with pytest.raises(ConfigurationError, match="'Total' is not in the primary key"):
        described(Resharding(Unsharded(), total, stage="guard"))
    with pytest.raises(ConfigurationError, match="global table"):
        described(Resharding(*ADOPT, stage="guard"), Replicas=[{"RegionName": "eu-west-1"}])
    with pytest.raises(ConfigurationError, match="must be the sort key"):
        described(Resharding(Unsharded(), RangeSuffix("Total", ["5"]), stage="move"))


def test_a_resharding_reads_the_keys_of_both_strategies() -> None:
    strategy = Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=2), stage="move")
    assert strategy.physical_keys("d") == ("d", "d.1", "d.2")
    assert strategy.split("d.2") == ("d", 2)
    assert strategy.split("d.3") == ("d.3", None)
    assert strategy.physical_key("d", 2) == "d.2"
