"""Which update an existing item needs to be in a sharded index: the one that makes it what a put would have stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    InvalidKeyError,
    RandomSuffix,
    RangeSuffix,
    ShardUnknownError,
    Strategy,
    Unsharded,
)
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import WireItem
from shardkit.migrate.repair import Repair, attributes_read, index_of, repair
from shardkit.sharding.layout import Sharding

TYPES = {"pk": "S", "sk": "S", "status": "S", "ix": "S", "shard": "N", "at": "N"}


def made(index: Strategy, table: Strategy | None = None) -> Sharding:
    parts = ["status", "shard"] if index.attribute else ["ix"] if index.source else ["status"]
    schema = [{"AttributeName": name, "KeyType": "HASH"} for name in parts]
    description = {
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind} for name, kind in TYPES.items()],
        "GlobalSecondaryIndexes": [
            {"IndexName": "by-status", "KeySchema": [*schema, {"AttributeName": "at", "KeyType": "RANGE"}]}
        ],
    }
    return Sharding.described("T", table or Unsharded(), description, sharded={"by-status": index})


def needed(sharding: Sharding, item: Mapping[str, Any], draw: float = 0.0) -> Repair | None:
    return repair(sharding, index_of(sharding, "by-status"), to_wire_item(item), lambda: draw)


def repaired(item: WireItem, found: Repair) -> WireItem:
    """What the service makes of it, if the condition holds."""
    assert all(item.get(name) == value for name, value in found.seen.items())
    after = {name: value for name, value in item.items() if name != found.name}
    return after if found.value is None else {**after, found.name: found.value}


def length(item: Mapping[str, Any]) -> str:
    return str(len(item.get("note", "")))


BYS: list[Any] = ["sk", ("pk", "sk"), "note", lambda item: item["sk"] + item["pk"], length]
ITEMS = st.fixed_dictionaries(
    {"pk": st.sampled_from(["p", "p.1"]), "sk": st.sampled_from(["a", "b", "c", "a.2"])},
    optional={
        "status": st.sampled_from(["open", "open.2", "done"]),
        "at": st.integers(0, 9),
        "note": st.text(max_size=3),
    },
)


@given(
    ITEMS,
    st.sampled_from(BYS),
    st.sampled_from([{"source": "status"}, {"attribute": "shard"}]),
    st.sampled_from([None, "open.1", "open.2.2", "open.70", "done.3", 1, 3, 7]),
    st.sampled_from([Unsharded(), CalculatedSuffix("sk", 2)]),
)
def test_a_repaired_item_is_what_a_put_would_have_stored(
    item: dict[str, Any], by: Any, kind: dict[str, Any], held: str | int | None, table: Strategy
) -> None:
    """Whatever attribute it had before; and it needs no other repair. What a put refuses is reported."""
    strategy = CalculatedSuffix(by, 3, **kind)
    sharding = made(strategy, table)
    name = kind.get("attribute", "ix")
    shard = table.shard_of(item["pk"], item)
    stored = sharding.stored(to_wire_item(item), shard)
    try:
        wanted = sharding.stored(sharding.sharded.stored(to_wire_item(item), item, lambda: 0.0), shard)
    except ShardUnknownError:
        wanted = stored
    if isinstance(held, str if name == "ix" else int):
        stored |= to_wire_item({name: held})
    found = None
    try:
        found = repair(sharding, index_of(sharding, "by-status"), stored, lambda: 0.0)
    except ShardUnknownError:
        assert by == "note"
        assert "note" not in item
        assert {"status", "at"} <= item.keys()
        return
    after = stored if found is None else repaired(stored, found)
    # A shard alone puts no item into an index; nor does an attribute without the index's sort key.
    if "status" in item and (by != "note" or "note" in item):
        assert after == wanted
    elif name == "ix" and "status" not in item:
        assert name not in after
    assert repair(sharding, index_of(sharding, "by-status"), after, lambda: 0.9) is None


@given(ITEMS, st.sampled_from([{"source": "status"}, {"attribute": "shard"}]), st.floats(0, 0.99))
def test_a_random_shard_is_drawn_once(item: dict[str, Any], kind: dict[str, Any], draw: float) -> None:
    sharding = made(RandomSuffix(4, **kind))
    found = needed(sharding, item, draw)
    assert (found is None) == ("status" not in item)
    if found is None:
        return
    shard = 1 + int(draw * 4)
    assert found.value == ({"N": str(shard)} if "attribute" in kind else {"S": f"{item['status']}.{shard}"})
    after = repaired(to_wire_item(item), found)
    assert needed(sharding, from_wire_item(after), 0.5) is None
    # One of another key, or of fewer shards, is wrong.
    assert needed(sharding, {**item, found.name: 9 if "attribute" in kind else f"{item['status']}.9"}) is not None
    if "attribute" not in kind:
        assert needed(sharding, {**item, found.name: "other.1"}) is not None


@pytest.mark.parametrize("kind", [{"source": "status"}, {"attribute": "shard"}])
@pytest.mark.parametrize("strategy", [RandomSuffix(4), CalculatedSuffix("sk", 3)])
def test_what_shardkit_cannot_have_written_is_left(strategy: Any, kind: dict[str, Any]) -> None:
    """Such as the values of another index, which was named by mistake: they are neither replaced nor removed."""
    sharding = made(replace(strategy, **kind))
    name = kind.get("attribute", "ix")
    for other in ("open", "1", ".1", "1.x", ["open.1"], None, b"open.1", "", Decimal("1.5"), -1, Decimal("1E125")):
        for item in ({"status": "open"}, {}):
            if not item and "attribute" in kind:
                continue  # it is not in the index
            with pytest.raises(InvalidKeyError, match=f"{name}: has a value that is not of index 'by-status'.*left un"):
                needed(sharding, {"pk": "p", "sk": "a", **item, name: other})


def test_the_update_is_made_only_if_the_item_is_as_it_was_read() -> None:
    """The value, what the shard is calculated from if that can change, and the attribute itself."""
    by_status = made(CalculatedSuffix("note", 3, source="status"))
    found = needed(by_status, {"pk": "p", "sk": "a", "status": "open", "note": "x", "ix": "open.7"})
    assert found is not None
    send = found.send("T")
    assert (send.operation, send.paced) == ("UpdateItem", True)
    assert send.params == {
        "TableName": "T",
        "Key": {"pk": {"S": "p"}, "sk": {"S": "a"}},
        "UpdateExpression": "SET #i = :i",
        "ConditionExpression": "#s0 = :s0 AND #s1 = :s1 AND #s2 = :s2",
        "ExpressionAttributeNames": {"#i": "ix", "#s0": "status", "#s1": "note", "#s2": "ix"},
        "ExpressionAttributeValues": {
            ":i": found.value, ":s0": {"S": "open"}, ":s1": {"S": "x"}, ":s2": {"S": "open.7"},
        },
        "ReturnConsumedCapacity": "INDEXES",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }  # fmt: skip
    missing = needed(made(RandomSuffix(3, attribute="shard")), {"pk": "p", "sk": "a", "status": "open"})
    assert missing is not None
    # The value is there: without it, the update would create an item that somebody has deleted.
    assert missing.send("T").params["ConditionExpression"] == "#s0 = :s0 AND attribute_not_exists(#s1)"
    stale = needed(by_status, {"pk": "p", "sk": "a", "ix": "open.1"})
    assert stale is not None
    params = stale.send("T").params
    assert params["UpdateExpression"] == "REMOVE #i"
    assert params["ConditionExpression"] == "attribute_not_exists(#s0) AND #s1 = :s1"
    assert params["ExpressionAttributeValues"] == {":s1": {"S": "open.1"}}


def test_a_function_is_watched() -> None:
    """What it reads is in the condition, also what the item does not have."""
    sharding = made(CalculatedSuffix(length, 3, source="status"))
    found = needed(sharding, {"pk": "p", "sk": "a", "status": "open", "other": 1})
    assert found is not None
    assert dict(found.seen) == {"status": {"S": "open"}, "note": None, "ix": None}
    all_of_it = made(CalculatedSuffix(lambda item: str(sorted(item)), 3, source="status"))
    found = needed(all_of_it, {"pk": "p", "sk": "a", "status": "open", "other": 1})
    assert found is not None
    assert [*found.seen] == ["status", "other", "ix"]


@pytest.mark.parametrize("value", ["", 7, None, b"x", ["open"]])
def test_a_value_that_can_be_no_key_is_an_error(value: Any) -> None:
    with pytest.raises(InvalidKeyError, match="status: must be a value of type S"):
        needed(made(CalculatedSuffix("sk", 3, source="status")), {"pk": "p", "sk": "a", "status": value})


def test_ranges_of_the_index() -> None:
    strategy = RangeSuffix("at", [5], source="status")
    sharding = made(strategy)
    found = needed(sharding, {"pk": "p", "sk": "a", "status": "open", "at": 7})
    assert found is not None
    assert found.value == {"S": strategy.physical_key("open", 2)}
    assert needed(sharding, {"pk": "p", "sk": "a", "status": "open"}) is None


def test_which_attributes_are_read() -> None:
    def of(strategy: Strategy) -> tuple[str, ...] | None:
        sharding = made(strategy)
        return attributes_read(sharding, index_of(sharding, "by-status"))

    assert of(CalculatedSuffix(("sk", "note"), 3, source="status")) == ("pk", "sk", "status", "at", "ix", "note")
    assert of(RandomSuffix(3, attribute="shard")) == ("pk", "sk", "status", "at", "shard")
    assert of(CalculatedSuffix(length, 3, source="status")) is None


def test_what_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"index: must have attribute= or source=, got 'by-status', whose suffix"
    ):
        index_of(made(CalculatedSuffix("sk", 3)), "by-status")
    with pytest.raises(ConfigurationError, match=r"index: must be one of indexes= of table 'T' \(\['by-status'\]\)"):
        index_of(made(CalculatedSuffix("sk", 3, source="status")), "by-at")
