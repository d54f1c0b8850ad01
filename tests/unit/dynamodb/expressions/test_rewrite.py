"""Conditions, updates and projections that name the partition key."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shardkit.dynamodb.expressions import rewrite
from shardkit.errors import UnsupportedExpressionError

V = {":a": {"S": "a"}, ":b": {"S": "b"}}


def suffixed(value: Any) -> dict[str, str]:
    return {"S": value["S"] + ".7"}


def condition(text: str, **more: Any) -> dict[str, Any]:
    return {
        "ConditionExpression": text,
        "ExpressionAttributeValues": V,
        "ExpressionAttributeNames": {"#p": "pk"},
        **more,
    }


@pytest.mark.parametrize(
    ("text", "rewritten", "values"),
    [
        ("pk = :a AND x = :b", "pk = :shardkit_v0 AND x = :b", {":b": "b", ":shardkit_v0": "a.7"}),
        (":a = #p AND x = :b", ":shardkit_v0 = #p AND x = :b", {":b": "b", ":shardkit_v0": "a.7"}),
        ("NOT (pk)<>(:a)", "NOT (pk)<>(:shardkit_v0)", {":b": "b", ":shardkit_v0": "a.7"}),
        ("pk = :a OR x = :a", "pk = :shardkit_v0 OR x = :a", {":a": "a", ":b": "b", ":shardkit_v0": "a.7"}),
        ("pk = :a OR #p <> :a", "pk = :shardkit_v0 OR #p <> :shardkit_v0", {":b": "b", ":shardkit_v0": "a.7"}),
        ("pk in (:a, (:b))", "pk in (:shardkit_v0, (:shardkit_v1))", {":shardkit_v0": "a.7", ":shardkit_v1": "b.7"}),
        (
            "attribute_exists(pk) AND pk = :a",
            "attribute_exists(pk) AND pk = :shardkit_v0",
            {":b": "b", ":shardkit_v0": "a.7"},
        ),
    ],
)
def test_comparisons_get_physical_values(text: str, rewritten: str, values: dict[str, str]) -> None:
    params = condition(text)
    before = copy.deepcopy(params)
    assert rewrite.rewrite_partition_key(params, "pk", suffixed) == {
        **params,
        "ConditionExpression": rewritten,
        "ExpressionAttributeValues": {key: {"S": value} for key, value in values.items()},
    }
    assert params == before


@pytest.mark.parametrize(
    "text",
    [
        "attribute_not_exists(pk)",
        "attribute_exists(#p) OR attribute_type(pk, :a)",
        "info.pk = :a AND pk.x > :b",
        "x = :a AND size(y) > :b",
    ],
)
def test_conditions_that_mean_the_same_stay(text: str) -> None:
    assert rewrite.rewrite_partition_key(condition(text), "pk", suffixed) == condition(text)


def test_a_value_of_another_expression_stays() -> None:
    params = condition("pk = :a", UpdateExpression="SET x = :a", ExpressionAttributeValues={":a": V[":a"]})
    rewritten = rewrite.rewrite_partition_key(params, "pk", suffixed)
    assert rewritten["ExpressionAttributeValues"] == {":a": V[":a"], ":shardkit_v0": {"S": "a.7"}}


def test_no_condition_is_no_change() -> None:
    assert rewrite.rewrite_partition_key({"Item": {}}, "pk", suffixed) == {"Item": {}}


@pytest.mark.parametrize(
    "text",
    [
        "pk < :a",
        "pk >= :a",
        "pk BETWEEN :a AND :b",
        ":a BETWEEN pk AND :b",
        ":a BETWEEN :b AND pk",
        "begins_with(pk, :a)",
        "contains(pk, :a)",
        "contains(:a, pk)",
        "size(pk) > :a",
        "attribute_type(x, pk)",
        "pk = x",
        "x = pk",
        "#p = pk",
        ":a = pk = :b",
        "pk IN (:a, x)",
        "pk IN (:a",
        "pk IN ()",
        ":a IN (pk)",
        "pk",
    ],
)
def test_other_uses_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match="suffix, which changes"):
        rewrite.rewrite_partition_key(condition(text), "pk", suffixed)


@pytest.mark.parametrize(
    ("expected", "rewritten"),
    [
        ({"Value": {"S": "a"}}, {"Value": {"S": "a.7"}}),
        ({"Exists": False}, {"Exists": False}),
        ({"Exists": True, "Value": {"S": "a"}}, {"Exists": True, "Value": {"S": "a.7"}}),
        (
            {"ComparisonOperator": "IN", "AttributeValueList": [{"S": "a"}, {"S": "b"}]},
            {"ComparisonOperator": "IN", "AttributeValueList": [{"S": "a.7"}, {"S": "b.7"}]},
        ),
        ({"ComparisonOperator": "NOT_NULL"}, {"ComparisonOperator": "NOT_NULL"}),
    ],
)
def test_legacy_conditions(expected: dict[str, Any], rewritten: dict[str, Any]) -> None:
    other = {"Value": {"S": "a"}}
    params = {"Expected": {"pk": expected, "x": other}}
    assert rewrite.rewrite_partition_key(params, "pk", suffixed) == {"Expected": {"pk": rewritten, "x": other}}
    assert rewrite.rewrite_partition_key({"Expected": {"x": other}}, "pk", suffixed) == {"Expected": {"x": other}}


def test_other_legacy_conditions_are_refused() -> None:
    params = {"Expected": {"pk": {"ComparisonOperator": "BEGINS_WITH", "AttributeValueList": [{"S": "a"}]}}}
    with pytest.raises(UnsupportedExpressionError, match="suffix, which changes"):
        rewrite.rewrite_partition_key(params, "pk", suffixed)


# --- refuse_partition_key


@pytest.mark.parametrize(
    "text", [None, "x = :a", "attribute_exists(pk) AND info.pk = :a AND pk.x = :a", "NOT attribute_type(#p, :a)"]
)
def test_filters_may_ask_for_presence(text: str | None) -> None:
    rewrite.refuse_partition_key(
        {"FilterExpression": text, "ExpressionAttributeNames": {"#p": "pk"}}, "pk", "FilterExpression"
    )


@pytest.mark.parametrize("text", ["pk = :a", "x = #p", "contains(pk, :a)", "size(pk) > :a"])
def test_filters_may_not_compare(text: str) -> None:
    params = {"FilterExpression": text, "ExpressionAttributeNames": {"#p": "pk"}}
    with pytest.raises(UnsupportedExpressionError, match="query the logical key"):
        rewrite.refuse_partition_key(params, "pk", "FilterExpression")


@pytest.mark.parametrize("parameter", ["ScanFilter", "QueryFilter"])
def test_legacy_filters(parameter: str) -> None:
    rewrite.refuse_partition_key({}, "pk", parameter)
    rewrite.refuse_partition_key({parameter: {"pk": {"ComparisonOperator": "NULL"}, "x": {}}}, "pk", parameter)
    with pytest.raises(UnsupportedExpressionError, match="query the logical key"):
        rewrite.refuse_partition_key({parameter: {"pk": {"ComparisonOperator": "EQ"}}}, "pk", parameter)


def test_updates_may_not_touch_the_partition_key() -> None:
    rewrite.refuse_partition_key({"UpdateExpression": "SET x = :a, info.pk = :b REMOVE y"}, "pk", "UpdateExpression")
    rewrite.refuse_partition_key({"UpdateExpression": "SET x = :a"}, "SET", "UpdateExpression")
    rewrite.refuse_partition_key({}, "pk", "AttributeUpdates")
    rewrite.refuse_partition_key({"AttributeUpdates": {"x": {}}}, "pk", "AttributeUpdates")
    for text in ("SET pk = :a", "SET x = pk", "SET x = if_not_exists(pk, :a)", "REMOVE pk.x"):
        with pytest.raises(UnsupportedExpressionError, match="cannot be updated"):
            rewrite.refuse_partition_key({"UpdateExpression": text}, "pk", "UpdateExpression")
    with pytest.raises(UnsupportedExpressionError, match="cannot be updated"):
        rewrite.refuse_partition_key({"AttributeUpdates": {"pk": {}}}, "pk", "AttributeUpdates")


# --- updated_attributes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SET a = :a", "a"),
        (
            "set a=b, c.d[0] = if_not_exists(e, :a), #p = f + :b remove g[1], h ADD i :a DELETE j :b, k :a",
            "a c pk g h i j k",
        ),
        ("REMOVE #p.x", "pk"),
        ("SET a = list_append(b, :a), c = (d)", "a c"),
        ("SET a = list_append(b, c), d = e", "a d"),
    ],
)
def test_updated_attributes(text: str, names: str) -> None:
    params = {"UpdateExpression": text, "ExpressionAttributeNames": {"#p": "pk"}}
    assert rewrite.updated_attributes(params) == set(names.split())


def test_legacy_updated_attributes() -> None:
    assert rewrite.updated_attributes({"AttributeUpdates": {"a": {}, "b": {}}}) == {"a", "b"}
    assert rewrite.updated_attributes({}) == frozenset()


# --- projections


def test_a_projection_gets_the_missing_keys() -> None:
    params = {"ProjectionExpression": "a, #p", "ExpressionAttributeNames": {"#p": "pk", "#shardkit_p0": "z"}}
    before = copy.deepcopy(params)
    assert rewrite.project(params, ["pk", "sk", "sk", "t"]) == (
        {
            "ProjectionExpression": "a, #p, #shardkit_p1, #shardkit_p2",
            "ExpressionAttributeNames": {"#p": "pk", "#shardkit_p0": "z", "#shardkit_p1": "sk", "#shardkit_p2": "t"},
        },
        frozenset({"sk", "t"}),
    )
    assert params == before


def test_projections_that_need_nothing() -> None:
    assert rewrite.project({"Limit": 1}, ["pk"]) == ({"Limit": 1}, frozenset())
    assert rewrite.project({"ProjectionExpression": "pk"}, ["pk"]) == ({"ProjectionExpression": "pk"}, frozenset())


def test_legacy_projection() -> None:
    assert rewrite.project({"AttributesToGet": ["a", "pk"]}, ["pk", "sk"]) == (
        {"AttributesToGet": ["a", "pk", "sk"]},
        frozenset({"sk"}),
    )


def test_a_path_below_a_key_is_refused() -> None:
    with pytest.raises(UnsupportedExpressionError, match="a key attribute has no parts"):
        rewrite.project({"ProjectionExpression": "a.b, pk.x"}, ["pk"])


def test_counts_read_keys_only() -> None:
    assert rewrite.keys_only({"Select": "COUNT", "FilterExpression": "a = b"}, ["pk", "sk", "pk"]) == {
        "FilterExpression": "a = b",
        "ProjectionExpression": "#shardkit_p0, #shardkit_p1",
        "ExpressionAttributeNames": {"#shardkit_p0": "pk", "#shardkit_p1": "sk"},
    }
    assert rewrite.keys_only({"Select": "COUNT", "KeyConditions": {}}, ["pk"]) == {
        "KeyConditions": {},
        "AttributesToGet": ["pk"],
    }
    for wrong in ({"Select": "COUNT", "ProjectionExpression": "a"}, {"Select": "COUNT", "AttributesToGet": ["a"]}):
        assert rewrite.keys_only(wrong, ["pk"]) == wrong


# --- and_condition


@pytest.mark.parametrize(
    ("own", "extra", "both"),
    [
        (None, "x OR y", "x OR y"),
        ("a = :a", "x = :b", "a = :a AND x = :b"),
        ("a = :a OR b = :a", "x = :b", "(a = :a OR b = :a) AND x = :b"),
        ("(a = :a or b = :a)", "x = :b OR y = :b", "(a = :a or b = :a) AND (x = :b OR y = :b)"),
        ("(a = :a) OR (b = :a)", "x = :b", "((a = :a) OR (b = :a)) AND x = :b"),
        (
            "((a = :a OR b = :a) AND c = :a) OR d = :a",
            "x = :b",
            "(((a = :a OR b = :a) AND c = :a) OR d = :a) AND x = :b",
        ),
    ],
)
def test_conditions_are_added(own: str | None, extra: str, both: str) -> None:
    params = {} if own is None else {"ConditionExpression": own}
    assert rewrite.and_condition(params, extra, {}) == {"ConditionExpression": both}


def test_added_placeholders_give_way_to_the_callers() -> None:
    params = {
        "ConditionExpression": "#k = :a AND #free = :b",
        "ExpressionAttributeNames": {"#k": "mine", "#same": "s"},
        "ExpressionAttributeValues": V,
    }
    before = copy.deepcopy(params)
    names = {"#k": "ours", "#same": "s", "#free": "f", "#new": "n"}
    assert rewrite.and_condition(params, "#k = #new AND #same = #free", names) == {
        "ConditionExpression": "#k = :a AND #free = :b AND #k_0 = #new AND #same = #free_0",
        "ExpressionAttributeNames": {"#k": "mine", "#same": "s", "#k_0": "ours", "#free_0": "f", "#new": "n"},
        "ExpressionAttributeValues": V,
    }
    assert params == before


@pytest.mark.parametrize("parameter", ["Expected", "AttributeUpdates"])
def test_conditions_do_not_mix_with_legacy_parameters(parameter: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match=parameter):
        rewrite.and_condition({parameter: {"x": {}}}, "attribute_exists(pk)", {})


# --- rewrite_spread


def on_two_shards(value: Any) -> list[dict[str, str]]:
    return [{"S": f"{value['S']}.{shard}"} for shard in (1, 2)]


A = ":shardkit_v0, :shardkit_v1"
AB = f"{A}, :shardkit_v2, :shardkit_v3"


@pytest.mark.parametrize(
    ("text", "rewritten", "kept"),
    [
        ("pk = :a", f"pk IN ({A})", ":b"),
        (":a = #p AND x = :a", f"#p IN ({A}) AND x = :a", ":a :b"),
        ("(pk)=(:a)", f"pk IN ({A})", ":b"),
        ("((pk) = :a OR x = :b)", f"(pk IN ({A}) OR x = :b)", ":b"),
        ("pk <> :a", f"NOT pk IN ({A})", ":b"),
        ("x = :b AND :a <> pk", f"x = :b AND NOT pk IN ({A})", ":b"),
        ("NOT pk = :a", f"NOT pk IN ({A})", ":b"),
        ("not  pk <> :a", f"  pk IN ({A})", ":b"),
        ("NOT (pk <> :a)", f"NOT (NOT pk IN ({A}))", ":b"),
        ("pk IN (:a, :b)", f"pk IN ({AB})", ""),
        ("NOT pk in ( :a,(:b) ) OR x = :b", f"NOT pk IN ({AB}) OR x = :b", ":b"),
        ("((pk) IN (:b, :a) AND x = :b)", f"(pk IN ({AB}) AND x = :b)", ":b"),
        ("(pk IN ((:a)) AND x = :b)", f"(pk IN ({A}) AND x = :b)", ":b"),
        ("pk = :a AND attribute_exists(pk)", f"pk IN ({A}) AND attribute_exists(pk)", ":b"),
    ],
)
def test_a_comparison_is_spread(text: str, rewritten: str, kept: str) -> None:
    params = condition(text)
    before = copy.deepcopy(params)
    found = rewrite.rewrite_spread(params, "ConditionExpression", "pk", on_two_shards)
    assert found["ConditionExpression"] == rewritten
    assert sorted(name for name in found["ExpressionAttributeValues"] if "shardkit" not in name) == kept.split()
    listed = [value["S"] for name, value in found["ExpressionAttributeValues"].items() if "shardkit" in name]
    assert sorted(listed) == ["a.1", "a.2", "b.1", "b.2"][: rewritten.count(":shardkit")]
    assert params == before


def test_two_comparisons_are_spread() -> None:
    params = condition("pk = :a OR pk <> :b")
    found = rewrite.rewrite_spread(params, "ConditionExpression", "pk", on_two_shards)
    assert found["ConditionExpression"] == f"pk IN ({A}) OR NOT pk IN (:shardkit_v2, :shardkit_v3)"
    assert len(found["ExpressionAttributeValues"]) == 4


@pytest.mark.parametrize("text", ["x = :a AND y <> pk.z", "attribute_not_exists(pk)", "attribute_type(#p, :a)"])
def test_conditions_that_need_not_be_spread_stay(text: str) -> None:
    params = condition(text)
    assert rewrite.rewrite_spread(params, "ConditionExpression", "pk", on_two_shards) == params
    assert rewrite.rewrite_spread({"Key": {}}, "ConditionExpression", "pk", on_two_shards) == {"Key": {}}


@pytest.mark.parametrize(
    "text",
    ["pk < :a", "pk BETWEEN :a AND :b", "begins_with(pk, :a)", "contains(pk, :a)", "size(pk) = :a", "pk = x", "x <> pk",
     "contains(x, pk)", "pk IN (:a, x)"],
)  # fmt: skip
def test_what_cannot_be_spread_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match="stored with the suffix of an index"):
        rewrite.rewrite_spread(condition(text), "ConditionExpression", "pk", on_two_shards)


@pytest.mark.parametrize("parameter", ["Expected", "QueryFilter", "ScanFilter"])
def test_a_legacy_comparison_is_spread(parameter: str) -> None:
    a, b = V[":a"], V[":b"]

    def spread(form: Any) -> Any:
        params = {parameter: {"pk": form, "x": form}}
        found = rewrite.rewrite_spread(params, parameter, "pk", on_two_shards)[parameter]
        assert found["x"] == form
        return found["pk"]

    both = {"ComparisonOperator": "IN", "AttributeValueList": on_two_shards(a)}
    assert spread({"Value": a}) == both
    assert spread({"Exists": True, "Value": a}) == both
    assert spread({"ComparisonOperator": "EQ", "AttributeValueList": [a]}) == both
    of_two = {"ComparisonOperator": "IN", "AttributeValueList": [*on_two_shards(a), *on_two_shards(b)]}
    assert spread({"ComparisonOperator": "IN", "AttributeValueList": [a, b]}) == of_two
    for form in ({"Exists": False}, {"ComparisonOperator": "NULL"}, {"ComparisonOperator": "NOT_NULL"}):
        assert spread(form) == form
    for operator in ("NE", "BEGINS_WITH", "LT"):
        with pytest.raises(UnsupportedExpressionError, match=f"{parameter}: .* stored with the suffix"):
            spread({"ComparisonOperator": operator, "AttributeValueList": [a]})
    absent = {parameter: {"x": {"Value": a}}}
    assert rewrite.rewrite_spread(absent, parameter, "pk", on_two_shards) == absent


def test_at_most_100_values_are_listed() -> None:
    def on(shards: int) -> Any:
        return lambda value: [{"S": f"{value['S']}.{shard}"} for shard in range(shards)]

    params = condition("pk = :a")
    listed = rewrite.rewrite_spread(params, "ConditionExpression", "pk", on(100))["ExpressionAttributeValues"]
    assert len(listed) == 101
    for given, parameter in (
        (params, "ConditionExpression"),
        (condition("pk IN (:a, :b)"), "ConditionExpression"),
        ({"Expected": {"pk": {"Value": V[":a"]}}}, "Expected"),
    ):
        with pytest.raises(
            UnsupportedExpressionError, match=r"has 10[12] stored values .* at most 100; use fewer shards"
        ):
            rewrite.rewrite_spread(given, parameter, "pk", on(51 if "IN" in str(given) else 101))


# --- refuse_attributes, select_instead


def test_kept_attributes_are_refused() -> None:
    params = {
        "ConditionExpression": "x = :a AND #i = :b",
        "ProjectionExpression": "a, #p.x",
        "AttributesToGet": ["a", "ix"],
        "AttributeUpdates": {"ix": {}},
        "ExpressionAttributeNames": {"#i": "ix", "#p": "pk"},
    }
    for parameter in ("ConditionExpression", "AttributesToGet", "AttributeUpdates"):
        with pytest.raises(
            UnsupportedExpressionError, match=f"{parameter}: must not mention 'ix', got .*; shardkit keeps"
        ):
            rewrite.refuse_attributes(params, {"ix", "shard"}, parameter)
    with pytest.raises(UnsupportedExpressionError, match=r"must not mention 'pk', got 'a, #p\.x'; the reason"):
        rewrite.refuse_attributes(params, {"pk"}, "ProjectionExpression", why="the reason")
    rewrite.refuse_attributes(params, {"ix"}, "ProjectionExpression", "UpdateExpression")
    rewrite.refuse_attributes(params, {"a", "b"}, "ConditionExpression")


def test_another_attribute_is_selected_instead() -> None:
    params = {
        "ProjectionExpression": "a, #p, pk",
        "ExpressionAttributeNames": {"#p": "pk"},
        "AttributesToGet": ["pk", "b"],
    }
    assert rewrite.select_instead(params, "pk", "ix") == {
        "ProjectionExpression": "a, #shardkit_s0, #shardkit_s0",
        "ExpressionAttributeNames": {"#shardkit_s0": "ix"},
        "AttributesToGet": ["ix", "b"],
    }
    for same in ({}, {"ProjectionExpression": "a, pk.x"}, {"AttributesToGet": ["b"]}):
        assert rewrite.select_instead(same, "pk", "ix") == same
