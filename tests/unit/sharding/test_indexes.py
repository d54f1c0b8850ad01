"""Sharded indexes: what is refused of their configuration, and the writes that keep them true."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shardkit.dynamodb.decode import from_wire_item
from shardkit.errors import ConfigurationError, InvalidKeyError, ShardUnknownError, UnsupportedExpressionError
from shardkit.sharding.layout import Sharding
from shardkit.sharding.programs import Programs
from shardkit.strategies import CalculatedSuffix, RandomSuffix, RangeSuffix, Strategy, Unsharded
from tests.support.tables import described

TYPES = {
    "pk": "S", "sk": "S", "status": "S", "kind": "S", "at": "N", "shard": "N", "ix": "S", "ix2": "S", "raw": "B",
    "number": "N", "text": "S",
}  # fmt: skip
INDEXES: dict[str, Any] = {
    "numbered": (["status", "shard"], ["at"]),
    "numbered-too": (["kind", "shard"], []),
    "of-ix": (["ix"], ["at"]),
    "of-ix-too": (["ix"], []),
    "of-ix2": (["ix2"], ["sk"]),
    "of-raw": (["raw"], []),
    "in-place": (["kind"], ["at"]),
    "of-kind": (["text"], ["kind"]),
    "of-number": (["number"], []),
    "of-two": (["status", "text"], []),
    "of-pk": (["text"], ["pk"]),
    "of-sk": (["sk"], ["at"]),
}


def sharding(indexes: Any, strategy: Strategy | None = None, *, secondary: Any = None, **more: Any) -> Sharding:
    used = {name: INDEXES[name] for name in indexes} if secondary is None else secondary
    return described(strategy or Unsharded(), TYPES, ["pk", "sk"], secondary=used, sharded=indexes, **more)


# --- configuration

C = CalculatedSuffix


@pytest.mark.parametrize(
    ("index", "strategy", "message"),
    [
        ("other", RandomSuffix(3), "must be a global secondary index of the table .*create it first"),
        ("of-ixx", RandomSuffix(3), "did you mean of-ix"),
        ("local", RandomSuffix(3), "must be a global secondary index"),
        ("of-ix", Unsharded(), r"must be RandomSuffix\(…\)"),
        ("of-ix", 3, r"must be RandomSuffix\(…\)"),
        ("of-ix", RandomSuffix(3, locate=True), "without locate=True"),
        ("of-pk", RandomSuffix(3), "has the table's partition key 'pk', which has suffixes"),
        ("of-sk", C("pk", 3), "'sk' is a key attribute of the table; create an index .* source='sk'"),
        ("of-ix", RangeSuffix("sk", ["m"], source="status"), "by must be the index's sort key .at.; use Calc"),
        ("of-ix-too", RangeSuffix("sk", ["m"], source="status"), "sort key .it has none."),
        ("of-ix", RandomSuffix(3, attribute="shard"), "must be one of several partition key attributes .*ix"),
        ("of-ix", RandomSuffix(3, attribute="ix"), "must be one of several partition key attributes"),
        ("numbered", RandomSuffix(3, attribute="status"), "'status' must have the type N, got S"),
        ("numbered", RandomSuffix({"open": 3}, attribute="shard"), "shards must be a number"),
        ("numbered", RandomSuffix(3), r"several partition key attributes \(status, shard\); give attribute="),
        ("of-two", RandomSuffix(3, source="kind"), "several partition key attributes"),
        ("of-number", RandomSuffix(3), "'number' is a number, which cannot have a suffix"),
        ("of-ix", RandomSuffix(3, source="ix"), "source must be another attribute than .* 'ix'; leave it out"),
        ("of-ix", C("status", 3, source="status"), "by is 'status', so all items of a key"),
        ("in-place", C("kind", 3), "by is 'kind', so all items of a key"),
    ],
)  # fmt: skip
def test_what_cannot_be_sharded_is_refused(index: str, strategy: Any, message: str) -> None:
    table = CalculatedSuffix("sk", 3) if index == "of-pk" else Unsharded()
    with pytest.raises(ConfigurationError, match=f"indexes: '{index}' of table 'orders'.*{message}"):
        sharding({index: strategy}, table, secondary=INDEXES, local={"local": (["pk"], ["kind"])})


def test_names_of_indexes_must_be_mapped() -> None:
    mappings: list[Any] = [[RandomSuffix(3)], RandomSuffix(3), "by-status"]
    for given in mappings:
        with pytest.raises(ConfigurationError, match="indexes: must map names of global secondary indexes"):
            Programs("T", Unsharded(), None, random.random, indexes=given)


@pytest.mark.parametrize(
    ("indexes", "used"),
    [
        ({"of-ix": C("sk", 3, source="status")}, ["of-ix-too"]),
        ({"of-ix": C("sk", 3, source="status"), "of-ix-too": C("sk", 4, source="status")}, []),
        ({"in-place": RandomSuffix(3)}, ["of-kind"]),
        ({"in-place": RandomSuffix(3), "of-ix": C("sk", 3, source="kind")}, []),
    ],
)
def test_indexes_that_share_an_attribute_have_one_strategy(indexes: Mapping[str, Strategy], used: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"has the shards of index .*give both the same strategy"):
        sharding(indexes, secondary={name: INDEXES[name] for name in (*indexes, *used)})
    one = C("sk", 3, source="status")
    assert len(sharding({"of-ix": one, "of-ix-too": one}).sharded.indexes) == 2


@pytest.mark.parametrize("strategy", [RandomSuffix(3, attribute="shard"), C("sk", 3, source="pk")])
def test_a_table_has_no_attribute_and_no_source(strategy: Strategy) -> None:
    with pytest.raises(ConfigurationError, match="strategy: must not have attribute= or source= for table 'orders'"):
        sharding({}, strategy)
    for given in ({"attribute": "a", "source": "b"}, {"source": ""}, {"attribute": 3}):
        with pytest.raises(ConfigurationError, match=r"attribute, source: must not both|must be the name of an attrib"):
            RandomSuffix(3, **given)


# --- writes

ALL = {
    "numbered": RandomSuffix(4, attribute="shard"),
    "of-ix": C("sk", 5, source="status"),
    "of-ix2": RangeSuffix("sk", ["m"], source="status"),
    "in-place": RandomSuffix(3, separator="#"),
}
KEY: Any = {"pk": {"S": "p"}, "sk": {"S": "s"}}
OPEN, DONE = {"S": "open"}, {"S": "done"}


def written(indexes: Mapping[str, Strategy], operation: str, wire: Any, *, draw: float = 0.5, **place: Any) -> Any:
    before = copy.deepcopy(wire)
    given = wire.get("Item") or wire["Key"]
    known = from_wire_item({name: given[name] for name in ("pk", "sk", "at") if name in given})
    found = sharding(indexes).sharded.rewritten(operation, wire, {**known, **place}, lambda: draw)
    assert wire == before
    return found


def test_what_is_stored_and_shown() -> None:
    """Two indexes keep attributes of one source; a drawn shard is 3 of 4, and 2 of 3."""
    item = {**KEY, "status": OPEN, "kind": {"S": "k#1"}, "n": {"N": "1"}}
    stored = written(ALL, "PutItem", {"Item": item})["Item"]
    assert stored == {
        **item,
        "shard": {"N": "3"},
        "ix": {"S": f"open.{SHARD}"},
        "ix2": {"S": RangeSuffix("sk", ["m"]).physical_key("open", 2)},
        "kind": {"S": "k#1#2"},
    }
    assert sharding(ALL).logical_item(stored) == item
    assert sharding(ALL).logical_item({"ix": stored["ix"], "n": item["n"]}) == {"n": item["n"]}


@pytest.mark.parametrize(
    ("item", "kept"),
    [({}, {"shard"}), ({"status": OPEN}, {"shard", "ix", "ix2"}), ({"kind": DONE}, {"shard"})],
)
def test_sparse_stays_sparse(item: Any, kept: set[str]) -> None:
    stored = written(ALL, "PutItem", {"Item": {**KEY, **item}})["Item"]
    assert stored.keys() == {*KEY, *item, *kept}


def test_an_item_without_the_sort_key_needs_no_shard() -> None:
    """It is not in the index; an update that adds the sort key is refused, so it cannot come in without a shard."""
    for strategy in (C("at", 5, source="status"), RangeSuffix("at", [3], source="status")):
        indexes: Mapping[str, Strategy] = {"of-ix": strategy}
        assert "ix" not in written(indexes, "PutItem", {"Item": {**KEY, "status": OPEN}})["Item"]
        with pytest.raises(UnsupportedExpressionError, match=r"changes \['at'\]"):
            written(indexes, "UpdateItem", {"Key": KEY, "AttributeUpdates": {"at": {"Value": {"N": "3"}}}}, at=3)
    unknown: Sequence[Mapping[str, Strategy]] = (
        {"of-ix": C("x", 5, source="status")},
        {"in-place": C("at", 5)},
        {"of-ix": C(lambda item: item["x"], 5, source="status")},
    )
    for indexes in unknown:
        with pytest.raises(ShardUnknownError):
            written(indexes, "PutItem", {"Item": {**KEY, "status": OPEN, "kind": OPEN}})
    numbered = {"numbered": C("at", 5, attribute="shard")}
    assert "shard" not in written(numbered, "PutItem", {"Item": {**KEY, "status": OPEN}})["Item"]
    assert "shard" in written(numbered, "PutItem", {"Item": {**KEY, "status": OPEN, "at": {"N": "1"}}})["Item"]


@pytest.mark.parametrize("order", [("numbered", "numbered-too"), ("numbered-too", "numbered")])
def test_indexes_of_other_keys_may_share_the_attribute_of_the_shard(order: tuple[str, str]) -> None:
    """An update that brings an item into either of them sets it."""
    for strategy in (C("sk", 5, attribute="shard"), RandomSuffix(1, attribute="shard")):
        for name in ("status", "kind"):
            sent = written(
                dict.fromkeys(order, strategy), "UpdateItem",
                {
                    "Key": KEY, "UpdateExpression": "SET #s = :v",
                    "ExpressionAttributeNames": {"#s": name}, "ExpressionAttributeValues": {":v": OPEN},
                },
            )  # fmt: skip
            assert "shard" in sent["ExpressionAttributeNames"].values()
    # The shard is calculated from the sort key of only one of them: without it, the item would be lost to the other.
    indexes = dict.fromkeys(order, C("at", 5, attribute="shard"))
    with pytest.raises(ShardUnknownError):
        written(indexes, "PutItem", {"Item": {**KEY, "status": OPEN, "kind": DONE}})
    assert "shard" not in written(indexes, "PutItem", {"Item": {**KEY, "status": OPEN}})["Item"]
    indexes = dict.fromkeys(("of-ix", "of-ix-too"), C("at", 5, source="status"))
    with pytest.raises(ShardUnknownError):
        written(dict(reversed(indexes.items())), "PutItem", {"Item": {**KEY, "status": OPEN}})


@pytest.mark.parametrize("value", [{"S": ""}, {"N": "1"}, {"B": b"x"}, {"NULL": True}, {"L": []}, {"S": "a", "N": "1"}])
def test_a_value_that_cannot_be_a_key_is_refused(value: Any) -> None:
    update = {
        "Key": KEY, "UpdateExpression": "SET #s = :v",
        "ExpressionAttributeNames": {"#s": "status"}, "ExpressionAttributeValues": {":v": value},
    }  # fmt: skip
    in_place = {**update, "ExpressionAttributeNames": {"#s": "kind"}}
    for name, wire in (("status", update), ("kind", in_place)):
        with pytest.raises(InvalidKeyError, match=f"{name}: must be a value of type S, not empty, because .* index"):
            written(ALL, "UpdateItem", wire)
        with pytest.raises(InvalidKeyError, match=f"{name}: must be a value of type S"):
            written(ALL, "PutItem", {"Item": {**KEY, name: value}})
    assert written({"numbered": ALL["numbered"]}, "PutItem", {"Item": {**KEY, "status": value}})


SOURCE: Mapping[str, Strategy] = {"of-ix": C("sk", 5, source="status")}
PLACE: Mapping[str, Strategy] = {"in-place": C("sk", 5)}
NUMBERED: Mapping[str, Strategy] = {"numbered": C("sk", 5, attribute="shard")}
SHARD = C("sk", 5).shard_of("open", {"sk": "s"})


def update(text: str | None, **more: Any) -> dict[str, Any]:
    """An update of status and kind, alike."""
    wire: dict[str, Any] = {
        "Key": KEY, "ExpressionAttributeNames": {"#s": "status", "#k": "kind"},
        "ExpressionAttributeValues": {":v": OPEN, ":n": {"N": "1"}}, **more,
    }  # fmt: skip
    return wire if text is None else {**wire, "UpdateExpression": text}


@pytest.mark.parametrize(
    ("indexes", "text", "rewritten"),
    [
        (SOURCE, "SET #s = :v, n = :n", "SET #s = :v, n = :n, #shardkit_u0 = :shardkit_u0"),
        (SOURCE, "REMOVE #s", "REMOVE #s, #shardkit_u0"),
        (SOURCE, "SET #s = if_not_exists(#s, :v)", "SET #s = if_not_exists(#s, :v), #shardkit_u0 = :shardkit_u0"),
        (SOURCE, "SET #s = #s, n = #s", "SET #s = #s, n = #s"),
        (SOURCE, "SET n = :n REMOVE x ADD m :n", "SET n = :n REMOVE x ADD m :n"),
        (PLACE, "SET #k = :v, n = :n", "SET #k = :shardkit_u0, n = :n"),
        (PLACE, "SET #k = if_not_exists(#k, :v)", "SET #k = if_not_exists(#k, :shardkit_u0)"),
        (PLACE, "REMOVE #k SET n = #s", "REMOVE #k SET n = #s"),
        (PLACE, "SET #k = #k", "SET #k = #k"),
        (NUMBERED, "SET #s = #k", "SET #s = #k, #shardkit_u0 = :shardkit_u0"),
        (NUMBERED, "ADD #s :n", "ADD #s :n SET #shardkit_u0 = :shardkit_u0"),
        (NUMBERED, "REMOVE #s", "REMOVE #s"),
        (NUMBERED, "SET n = :n", "SET n = :n"),
        (
            {"numbered": RandomSuffix(4, attribute="shard")},
            "SET #s = :v",
            "SET #s = :v, #shardkit_u0 = if_not_exists(#shardkit_u0, :shardkit_u0)",
        ),
    ],
)
def test_updates_are_rewritten(indexes: Mapping[str, Strategy], text: str, rewritten: str) -> None:
    found = written(indexes, "UpdateItem", update(text))
    # ``if_not_exists`` in the source's way is below.
    ours = found["UpdateExpression"].replace("if_not_exists(#shardkit_u0, :shardkit_u0)", ":shardkit_u0")
    assert rewritten in {found["UpdateExpression"], ours}
    values = {name: value for name, value in found["ExpressionAttributeValues"].items() if "shardkit" in name}
    assert len(values) == (":shardkit_u0" in rewritten)
    if indexes in (SOURCE, PLACE):
        assert all(value == {"S": f"open.{SHARD}"} for value in values.values())
    elif indexes is NUMBERED:
        assert all(value == {"N": str(SHARD)} for value in values.values())
    names = {"of-ix": "ix", "numbered": "shard"}
    assert found["ExpressionAttributeNames"].get("#shardkit_u0", "") in {"", *names.values()}


def test_an_absent_source_is_guarded() -> None:
    """An item from before the index was sharded has the source, and not the index's attribute."""
    wire = update("SET #s = if_not_exists(#s, :v)", ConditionExpression="n = :n OR #k = :v")
    assert written(SOURCE, "UpdateItem", wire) == {
        "Key": KEY,
        "UpdateExpression": (
            "SET #s = if_not_exists(#s, :v), #shardkit_u0 = if_not_exists(#shardkit_u0, :shardkit_u0)"
        ),
        "ConditionExpression": (
            "(n = :n OR #k = :v) AND (attribute_not_exists(#shardkit_s) OR attribute_exists(#shardkit_i))"
        ),
        "ExpressionAttributeNames": {
            "#s": "status", "#k": "kind", "#shardkit_s": "status", "#shardkit_i": "ix", "#shardkit_u0": "ix",
        },
        "ExpressionAttributeValues": {":v": OPEN, ":n": {"N": "1"}, ":shardkit_u0": {"S": f"open.{SHARD}"}},
    }  # fmt: skip
    both: Mapping[str, Strategy] = {**SOURCE, "of-ix2": C("sk", 5, source="status")}
    found = written(both, "UpdateItem", update("SET #s = if_not_exists(#s, :v)"))
    assert found["ConditionExpression"].count("attribute_exists") == 2
    assert {*found["ExpressionAttributeNames"].values()} >= {"ix", "ix2"}
    with pytest.raises(UnsupportedExpressionError, match="Expected: not supported for this write"):
        written(SOURCE, "UpdateItem", update("SET #s = if_not_exists(#s, :v)", Expected={"x": {"Exists": False}}))


def test_legacy_updates_are_rewritten() -> None:
    status: dict[str, Any] = {"Action": "PUT", "Value": OPEN}
    source, place = {"S": f"open.{SHARD}"}, {**status, "Value": {"S": f"open.{SHARD}"}}
    for indexes, updates, rewritten in (
        (SOURCE, {"status": status}, {"status": status, "ix": {"Action": "PUT", "Value": source}}),
        (SOURCE, {"status": {"Action": "DELETE"}}, {"status": {"Action": "DELETE"}, "ix": {"Action": "DELETE"}}),
        (PLACE, {"kind": status, "n": status}, {"kind": place, "n": status}),
        (PLACE, {"kind": {"Action": "DELETE"}}, {"kind": {"Action": "DELETE"}}),
        (NUMBERED, {"status": status}, {"status": status, "shard": {"Action": "PUT", "Value": {"N": str(SHARD)}}}),
        (NUMBERED, {"n": status}, {"n": status}),
    ):
        found = written(indexes, "UpdateItem", {"Key": KEY, "AttributeUpdates": updates})
        assert found == {"Key": KEY, "AttributeUpdates": rewritten}


REFUSED = "must set it to a :value, or to if_not_exists"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET {} = n", REFUSED),
        ("SET {} = :missing", REFUSED),
        ("SET {} = if_not_exists(n, :v)", REFUSED),
        ("SET {} = {} + :n", REFUSED),
        ("SET {} = list_append({}, :v)", REFUSED),
        ("SET {}.x = :v", REFUSED),
        ("SET {}[0] = :v", REFUSED),
        ("REMOVE {}.x", REFUSED),
        ("ADD {} :n", REFUSED),
        ("DELETE {} :v", REFUSED),
    ],
)
def test_what_cannot_be_rewritten_is_refused(text: str, message: str) -> None:
    for indexes, name in ((SOURCE, "#s"), (PLACE, "#k")):
        with pytest.raises(UnsupportedExpressionError, match=message):
            written(indexes, "UpdateItem", update(text.replace("{}", name)))
    assert written(NUMBERED, "UpdateItem", update(text.replace("{}", "#s")))


@pytest.mark.parametrize("text", ["SET n = #k", "SET n = if_not_exists(#k, :v)", "SET n = list_append(#k, :v)"])
def test_a_value_with_a_suffix_is_not_copied(text: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match="SET of 'n' reads 'kind', which is stored with the suffix"):
        written(PLACE, "UpdateItem", update(text))


@pytest.mark.parametrize("action", ["ADD", "DELETE", "PUT"])
def test_legacy_actions_that_cannot_be_rewritten_are_refused(action: str) -> None:
    change: Any = {"Action": action, **({} if action == "PUT" else {"Value": {"SS": ["a"]}})}
    for indexes, name in ((SOURCE, "status"), (PLACE, "kind")):
        with pytest.raises(UnsupportedExpressionError, match=REFUSED):
            written(indexes, "UpdateItem", {"Key": KEY, "AttributeUpdates": {name: change}})


def test_kept_attributes_are_not_the_callers() -> None:
    names = {"#i": "ix"}
    for operation, wire in (
        ("PutItem", {"Item": {**KEY, "ix": OPEN}}),
        ("PutItem", {"Item": KEY, "ConditionExpression": "attribute_exists(#i)", "ExpressionAttributeNames": names}),
        ("DeleteItem", {"Key": KEY, "Expected": {"ix": {"Exists": False}}}),
        ("UpdateItem", {"Key": KEY, "UpdateExpression": "REMOVE ix"}),
        ("UpdateItem", {"Key": KEY, "UpdateExpression": "SET a = ix"}),
        ("UpdateItem", {"Key": KEY, "AttributeUpdates": {"ix": {"Action": "DELETE"}}}),
    ):
        with pytest.raises(UnsupportedExpressionError, match=r"'ix', (got .*; shardkit keeps|which shardkit keeps)"):
            written(SOURCE, operation, wire)


def test_the_shard_of_an_item_stays() -> None:
    """What the shard is calculated from is in the key, or given beside it and not changed."""
    by = {"of-ix": C("x", 5, source="status")}
    with pytest.raises(ShardUnknownError, match="x"):
        written(by, "UpdateItem", update("SET #s = :v"))
    shard = C("x", 5).shard_of("open", {"x": "1"})
    found = written(by, "UpdateItem", update("SET #s = :v"), x="1")
    assert found["ExpressionAttributeValues"][":shardkit_u0"] == {"S": f"open.{shard}"}
    with pytest.raises(
        UnsupportedExpressionError, match=r"changes \['x'\], from which the item's shard in index 'of-ix'"
    ):
        written(by, "UpdateItem", update("SET x = :v"), x="1")
    reads = {"of-ix": C(lambda item: item["x"], 5, source="status")}
    with pytest.raises(ShardUnknownError, match="which Key= does not contain"):
        written(reads, "UpdateItem", update("SET n = :n"))


def test_a_key_of_the_table_is_a_source() -> None:
    """The update may create the item, so the index's attribute is set whatever the update does."""
    indexes: Mapping[str, Strategy] = {"of-ix": C("pk", 5, source="sk"), "of-ix2": RandomSuffix(4, source="sk")}
    for wire in (update("SET n = :n"), update("REMOVE n"), {"Key": KEY}):
        found = written(indexes, "UpdateItem", wire)
        assert found["UpdateExpression"].endswith(
            "#shardkit_u0 = :shardkit_u0, #shardkit_u1 = if_not_exists(#shardkit_u1, :shardkit_u1)"
        )
    numbered = {"numbered": RandomSuffix(4, attribute="shard")}
    keys: Any = {"numbered": (["sk", "shard"], [])}
    found = sharding(numbered, secondary=keys).sharded.rewritten("UpdateItem", {"Key": KEY}, {}, lambda: 0.5)
    assert found["UpdateExpression"] == "SET #shardkit_u0 = if_not_exists(#shardkit_u0, :shardkit_u0)"


def test_conditions_compare_what_is_stored() -> None:
    wire = {"Key": KEY, "ConditionExpression": "#k = :v OR n = :n", **update(None)}
    found = written({"in-place": RandomSuffix({"open": 3}, first=0)}, "DeleteItem", wire)
    assert found["ConditionExpression"] == "#k IN (:shardkit_v0, :shardkit_v1, :shardkit_v2) OR n = :n"
    assert [value["S"] for value in found["ExpressionAttributeValues"].values() if "S" in value] == [
        "open.0", "open.1", "open.2",
    ]  # fmt: skip
    other_type = {**wire, "ConditionExpression": "#k = :n"}
    assert written(PLACE, "DeleteItem", other_type)["ConditionExpression"] == "#k IN (:shardkit_v0)"
    assert written(SOURCE, "DeleteItem", wire) == wire


def test_an_item_from_before_the_index_may_have_any_value() -> None:
    """The service does not index an item whose attribute has another type than the index's key."""
    item: Any = {**KEY, "kind": {"L": [{"S": "a"}]}}
    assert sharding(PLACE).logical_item(item) == item


def test_a_sharding_can_be_pickled() -> None:
    made = sharding(ALL)
    item = {**KEY, "status": OPEN}
    stored = made.sharded.stored(item, from_wire_item(item), lambda: 0.5)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
    assert again == made
    assert again.sharded.stored(item, from_wire_item(item), lambda: 0.5) == stored
    assert again.sharded.to_dict() == {name: strategy.to_dict() for name, strategy in ALL.items()}
