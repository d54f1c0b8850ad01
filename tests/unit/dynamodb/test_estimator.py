from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity import CapacityEstimator, ItemChange, TableUnits
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import Binary
from shardkit.errors import ConfigurationError, InvalidValueError


def schema(*names: str) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=False)]


def index(name: str, keys: list[dict[str, str]], kind: str, *included: str) -> dict[str, Any]:
    projection = {"ProjectionType": kind, **({"NonKeyAttributes": list(included)} if included else {})}
    return {"IndexName": name, "KeySchema": keys, "Projection": projection}


DESCRIPTION: dict[str, Any] = {
    "TableName": "Orders",
    "KeySchema": schema("pk", "sk"),
    "LocalSecondaryIndexes": [index("local", schema("pk", "when"), "INCLUDE", "note")],
    "GlobalSecondaryIndexes": [
        index("keys", schema("owner"), "KEYS_ONLY"),
        index("include", schema("owner", "when"), "INCLUDE", "note"),
        index("all", schema("owner"), "ALL"),
    ],
}
ESTIMATOR = CapacityEstimator(DESCRIPTION)
KEY = {"pk": "p", "sk": 1}
WHOLE: dict[str, Any] = {**KEY, "owner": "o", "when": "w", "note": "n", "rest": "r"}


def test_a_new_item_is_put_where_its_attributes_are() -> None:
    assert ESTIMATOR.put_item(KEY) == TableUnits(1)
    assert ESTIMATOR.put_item({**KEY, "when": "w"}) == TableUnits(1, {"local": 1})
    assert ESTIMATOR.put_item({**KEY, "owner": "o"}) == TableUnits(1, {}, {"keys": 1, "all": 1})
    assert ESTIMATOR.put_item(WHOLE) == TableUnits(1, {"local": 1}, {"keys": 1, "include": 1, "all": 1})


def test_an_entry_has_the_size_of_what_is_projected() -> None:
    item = {**WHOLE, "note": "n" * 1500, "rest": "r" * 3000}
    assert ESTIMATOR.put_item(item) == TableUnits(5, {"local": 2}, {"keys": 1, "include": 2, "all": 5})
    # keys: the index's and the table's; names and values: pk p, sk 1, owner o = 3 + 4 + 6; include: when w, note.
    edge = 1024 - (3 + 4 + 6 + 5 + 4)
    for more, units in ((0, 1), (1, 2)):
        changed = ESTIMATOR.put_item({**WHOLE, "note": "n" * (edge + more)})
        assert changed.global_indexes["include"] == units


def test_an_unchanged_item_costs_the_table_only() -> None:
    assert ESTIMATOR.put_item(WHOLE, before=WHOLE) == TableUnits(1)
    assert ESTIMATOR.update_item(WHOLE, {**WHOLE, "rest": "x"}) == TableUnits(1, {}, {"all": 1})


def test_a_changed_entry_costs_the_larger() -> None:
    large = {**WHOLE, "note": "n" * 3000}
    expected = TableUnits(3, {"local": 3}, {"include": 3, "all": 3})
    assert ESTIMATOR.update_item(WHOLE, large) == ESTIMATOR.update_item(large, WHOLE) == expected


def test_a_moved_entry_is_a_delete_and_a_put() -> None:
    before, after = {**WHOLE, "note": "n" * 3000}, {**WHOLE, "owner": "other", "note": "m" * 1500}
    assert ESTIMATOR.update_item(before, after) == TableUnits(3, {"local": 3}, {"keys": 2, "include": 5, "all": 5})
    moved = ESTIMATOR.update_item(before, {**before, "when": "v"})
    assert moved == TableUnits(3, {"local": 6}, {"include": 6, "all": 3})


def test_an_entry_comes_and_goes() -> None:
    without = {name: value for name, value in WHOLE.items() if name != "when"}
    large = {**WHOLE, "note": "n" * 1500}
    assert ESTIMATOR.update_item({**without, "note": large["note"]}, large).local_indexes == {"local": 2}
    assert ESTIMATOR.update_item(large, without).local_indexes == {"local": 2}
    assert ESTIMATOR.delete_item(large) == TableUnits(2, {"local": 2}, {"keys": 1, "include": 2, "all": 2})
    assert ESTIMATOR.delete_item(None) == TableUnits(1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"N": "1"}, {"N": "1.0"}), ({"N": "1E+2"}, {"N": "100"}),
        ({"B": "eA=="}, {"B": b"x"}), ({"B": b"x"}, {"B": Binary(b"x")}),
        ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}), ({"NS": ["1", "2.50"]}, {"NS": ["2.5", "1"]}),
        ({"BS": [b"a", bytearray(b"b")]}, {"BS": [b"b", "YQ=="]}), ({"L": [{"N": "1.0"}]}, {"L": [{"N": "1"}]}),
        ({"M": {"a": {"N": "1"}, "b": {"NULL": True}}}, {"M": {"b": {"NULL": True}, "a": {"N": "1.0"}}}),
        ({"M": {"B": {"N": "7"}}}, {"M": {"B": {"N": "7.0"}}}),
    ],
)  # fmt: skip
def test_the_same_value_written_in_another_way_is_no_change(before: Any, after: Any) -> None:
    whole = to_wire_item(WHOLE)
    assert ESTIMATOR.put_item({**whole, "note": after}, before={**whole, "note": before}) == TableUnits(1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"BOOL": True}, {"N": "1"}), ({"S": "1"}, {"N": "1"}), ({"BOOL": True}, {"BOOL": False}),
        ({"L": [{"S": "a"}, {"S": "b"}]}, {"L": [{"S": "b"}, {"S": "a"}]}), ({"M": {}}, {"L": []}),
        ({"S": "eA=="}, {"B": "eA=="}), ({"SS": ["1"]}, {"NS": ["1"]}),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_a_change(before: Any, after: Any) -> None:
    whole = to_wire_item(WHOLE)
    units = ESTIMATOR.put_item({**whole, "note": after}, before={**whole, "note": before})
    assert units == TableUnits(1, {"local": 1}, {"include": 1, "all": 1})


def test_a_number_as_an_index_key_is_compared_by_its_value() -> None:
    before, after = ({**to_wire_item(KEY), "owner": {"N": number}} for number in ("10", "1E1"))
    assert ESTIMATOR.update_item(before, after) == TableUnits(1)


def test_python_values_beside_wire_values() -> None:
    item = {**WHOLE, "note": Decimal("1.5"), "rest": b"x" * 2000}
    assert ESTIMATOR.put_item(item, before=to_wire_item(item)) == TableUnits(2)
    assert ESTIMATOR.put_item(item) == ESTIMATOR.put_item(to_wire_item(item))


def test_keys_of_several_attributes() -> None:
    keys = [{"AttributeName": name, "KeyType": kind} for name, kind in (("a", "HASH"), ("b", "HASH"), ("c", "RANGE"))]
    estimator = CapacityEstimator(
        {"KeySchema": schema("pk"), "GlobalSecondaryIndexes": [index("many", keys, "KEYS_ONLY")]}
    )
    item = {"pk": "p", "a": "a" * 1500, "b": "b", "c": "c"}
    assert estimator.put_item(item).global_indexes == {"many": 2}
    assert estimator.put_item({**item, "b": "x"}, before=item).global_indexes == {"many": 4}
    del item["b"]
    assert estimator.put_item(item).global_indexes == {}


def test_a_failed_condition_touches_no_index() -> None:
    assert ESTIMATOR.failed_condition({**WHOLE, "rest": "r" * 2500}, WHOLE) == TableUnits(3)
    assert ESTIMATOR.failed_condition(WHOLE, {**WHOLE, "rest": "r" * 2500}) == TableUnits(3)
    assert ESTIMATOR.failed_condition(None, {**WHOLE, "rest": "r" * 2500}) == TableUnits(1)


def test_batches_round_each_item() -> None:
    half = {**KEY, "rest": "r" * 600}
    assert ESTIMATOR.batch_get_item([half, half, None]) == TableUnits(1.5)
    assert ESTIMATOR.batch_get_item([half, half, None], consistent=True) == TableUnits(3)
    changes = [ItemChange(None, half), ItemChange(half, None), ItemChange(None, WHOLE)]
    assert ESTIMATOR.batch_write_item(changes) == TableUnits(3, {"local": 1}, {"keys": 1, "include": 1, "all": 1})
    assert ESTIMATOR.batch_write_item([]) == ESTIMATOR.batch_get_item([]) == TableUnits()


def test_a_transaction_is_double_on_the_table() -> None:
    assert ESTIMATOR.transact_get_items([WHOLE, None]) == TableUnits(4)
    changes = [ItemChange(None, WHOLE), ItemChange(WHOLE, WHOLE), ItemChange(None, None)]
    indexes = {"keys": 1.0, "include": 1.0, "all": 1.0}
    assert ESTIMATOR.transact_write_items(changes) == TableUnits(6, {"local": 1}, indexes)


def test_a_read_of_an_index() -> None:
    items = [{**WHOLE, "note": "n" * 3000, "rest": "r" * 5000}] * 3 + [KEY]
    assert ESTIMATOR.query(items) == TableUnits(3)
    assert ESTIMATOR.query(items, index="keys") == TableUnits(0, {}, {"keys": 0.5})
    assert ESTIMATOR.scan(items, index="include") == TableUnits(0, {}, {"include": 1.5})
    assert ESTIMATOR.query(items, index="local", consistent=True) == TableUnits(0, {"local": 3})
    assert ESTIMATOR.query(items, index="local", fetch=True) == TableUnits(3, {"local": 1.5})
    assert ESTIMATOR.scan(items, index="local", consistent=True, fetch=True) == TableUnits(6, {"local": 3})
    assert ESTIMATOR.query([], index="all") == TableUnits(0, {}, {"all": 0.5})


def test_units_add_up() -> None:
    one, other = TableUnits(1, {"a": 2}, {"b": 3}), TableUnits(4, {"a": 1, "c": 5}, {"d": 0.5})
    total = TableUnits(5, {"a": 3, "c": 5}, {"b": 3, "d": 0.5})
    assert one + other == other + one == total
    assert total.total == 5 + 8 + 3.5
    with pytest.raises(TypeError):
        one + 1  # type: ignore[operator]


def test_the_table_without_indexes_is_as_it_is_created() -> None:
    assert CapacityEstimator({"KeySchema": schema("pk"), "GlobalSecondaryIndexes": None}).put_item(KEY) == TableUnits(1)


@pytest.mark.parametrize(
    "description",
    [
        None,
        {},
        {"Table": DESCRIPTION},
        {"KeySchema": [{"AttributeName": "pk"}]},
        {**DESCRIPTION, "LocalSecondaryIndexes": [{"IndexName": "x", "KeySchema": schema("pk", "x")}]},
        {**DESCRIPTION, "LocalSecondaryIndexes": [index("x", schema("pk", "x"), "MOST")]},
        {**DESCRIPTION, "GlobalSecondaryIndexes": [{"KeySchema": schema("x")}]},
        {**DESCRIPTION, "GlobalSecondaryIndexes": 5},
    ],
)
def test_a_description_that_is_none(description: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"must be a table's description|must be ALL|not a key schema|invalid index"
    ):
        CapacityEstimator(description)


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ConfigurationError, match="nothing"):
        ESTIMATOR.query([], index="nothing")
    with pytest.raises(ConfigurationError, match="global"):
        ESTIMATOR.query([], index="keys", consistent=True)
    with pytest.raises(ConfigurationError, match="global"):
        ESTIMATOR.scan([], index="keys", fetch=True)
    with pytest.raises(InvalidValueError, match="Float"):
        ESTIMATOR.put_item({**KEY, "owner": 1.5})


ITEMS = st.none() | st.fixed_dictionaries(
    {"pk": st.just("p"), "sk": st.just(1)},
    optional={
        "owner": st.sampled_from("ab"),
        "when": st.sampled_from("cd"),
        "note": st.integers(0, 3000).map(lambda size: "n" * size),
        "rest": st.integers(0, 3000).map(lambda size: b"r" * size),
    },
)


@given(ITEMS, ITEMS)
def test_a_write_and_its_reverse_cost_the_same(before: Any, after: Any) -> None:
    given_items = copy.deepcopy((before, after))
    there = ESTIMATOR.batch_write_item([ItemChange(before, after)])
    assert there == ESTIMATOR.batch_write_item([ItemChange(after, before)])
    assert ESTIMATOR.batch_write_item([ItemChange(before, before)]).total == there.table or before != after
    assert (before, after) == given_items
    # What an index holds is a part of the item: an entry that stays where it is costs no more than the item.
    for units in (*there.local_indexes.values(), *there.global_indexes.values()):
        assert 1 <= units <= 2 * there.table
    double = ESTIMATOR.transact_write_items([ItemChange(before, after)])
    assert double == there + TableUnits(there.table)
