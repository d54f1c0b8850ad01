"""Key conditions, conditions, updates and projections, read and rewritten."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.dynamodb.types import Binary
from boto3.exceptions import DynamoDBNeedsKeyConditionError

from shardkit.dynamodb.body import binary_text
from shardkit.dynamodb.expressions import key_condition, rewrite, tokens
from shardkit.dynamodb.expressions.key_condition import KeyCondition, SortCondition
from shardkit.errors import UnsupportedExpressionError

S = {
    ":a": {"S": "a"},
    ":b": {"S": "b"},
    ":c": {"S": "c"},
}


def key(text: str, names: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    params = {"KeyConditionExpression": text, "ExpressionAttributeValues": S, **more}
    return {**params, "ExpressionAttributeNames": names} if names else params


# --- tokens


@pytest.mark.parametrize("text", ["", " a = :v\n", "size(info.#b[ 0 ])>=:x AND NOT(a<>:y)", "SET a=a+:b,c = d-:e"])
def test_tokens_rebuild_the_text(text: str) -> None:
    assert tokens.render(tokens.tokenize(text)) == text


@pytest.mark.parametrize("text", ["a = 'x'", "é = :v", "a == :v!", "#", ":", "[x]"])
def test_what_is_not_a_token_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match="placeholder"):
        tokens.tokenize(text)


def test_parentheses_around_an_operand_fall_away() -> None:
    assert [part.text for part in tokens.parts("((pk)) = (:v) AND f((pk)) AND x IN ((:a))")] == (
        ["pk", "=", ":v", "AND", "f", "(", "pk", ")", "AND", "x", "IN", "(", ":a", ")"]
    )


def test_a_path_is_one_part() -> None:
    assert [(part.text, part.nested) for part in tokens.parts("info . pk[0].#x, pk, a b")] == (
        [("info", True), (",", False), ("pk", False), (",", False), ("a", False), ("b", False)]
    )


# --- build_conditions


def test_condition_objects_become_text_with_one_numbering() -> None:
    params = {
        "KeyConditionExpression": Key("d").eq("x") & Key("t").gt(1),
        "FilterExpression": Attr("i.n[0]").is_in([1, 2]),
    }
    built = rewrite.build_conditions(params)
    assert built == {
        "FilterExpression": "#n0.#n1[0] IN (:v0, :v1)",
        "KeyConditionExpression": "(#n2 = :v2 AND #n3 > :v3)",
        "ExpressionAttributeNames": {"#n0": "i", "#n1": "n", "#n2": "d", "#n3": "t"},
        "ExpressionAttributeValues": {":v0": 1, ":v1": 2, ":v2": "x", ":v3": 1},
    }


def test_generated_placeholders_give_way_to_the_callers() -> None:
    params = {
        "ConditionExpression": Attr("a").eq(1) & Attr("b").eq(2),
        "UpdateExpression": "SET #n0 = :v1, #n2 = :v0",
        "ExpressionAttributeNames": {"#n0": "mine", "#n2": "too"},
        "ExpressionAttributeValues": {":v0": 10, ":v1": 11},
    }
    before = copy.deepcopy({k: v for k, v in params.items() if k != "ConditionExpression"})
    built = rewrite.build_conditions(params)
    assert built["ConditionExpression"] == "(#n3 = :v2 AND #n1 = :v3)"
    assert built["ExpressionAttributeNames"] == {"#n0": "mine", "#n2": "too", "#n3": "a", "#n1": "b"}
    assert built["ExpressionAttributeValues"] == {":v0": 10, ":v1": 11, ":v2": 1, ":v3": 2}
    assert {k: v for k, v in params.items() if k != "ConditionExpression"} == before


def test_a_renamed_placeholder_is_not_taken_by_the_next_expression() -> None:
    params = {
        "FilterExpression": Attr("f").eq(1),
        "KeyConditionExpression": Key("k").eq(2),
        "ExpressionAttributeNames": {"#n0": "mine"},
        "ExpressionAttributeValues": {":v0": 0},
    }
    built = rewrite.build_conditions(params)
    names, values = built["ExpressionAttributeNames"], built["ExpressionAttributeValues"]
    for parameter, name, value in (("FilterExpression", "f", 1), ("KeyConditionExpression", "k", 2)):
        left, _, right = built[parameter].split()
        assert (names[left], values[right]) == (name, value)
    assert names["#n0"] == "mine"
    assert values[":v0"] == 0


def test_text_and_conditions_without_values_stay() -> None:
    assert rewrite.build_conditions({"FilterExpression": "a = :a"}) == {"FilterExpression": "a = :a"}
    assert rewrite.build_conditions({"ConditionExpression": Attr("a").exists()}) == {
        "ConditionExpression": "attribute_exists(#n0)",
        "ExpressionAttributeNames": {"#n0": "a"},
    }


def test_wrong_use_of_conditions_is_boto3s_own_error() -> None:
    with pytest.raises(DynamoDBNeedsKeyConditionError):
        rewrite.build_conditions({"KeyConditionExpression": Attr("a").eq(1)})


# --- parse and replace


@pytest.mark.parametrize(
    ("text", "op", "values"),
    [
        ("d = :a", None, ()),
        ("(d = :a)", None, ()),
        (":a = (d)", None, ()),
        ("d = :a AND t < :b", "<", ":b"),
        ("(t<=:b)and((d) = :a)", "<=", ":b"),
        (":b > t AND d = :a", "<", ":b"),
        (":b <= t AND :a=d", ">=", ":b"),
        ("((d = :a) AND ((t > :b)))", ">", ":b"),
        ("d = :a AND (t between :b And :c)", "BETWEEN", ":b :c"),
        ("begins_with(#t, :b) AND d = :a", "begins_with", ":b"),
        ("d = :a AND begins_with ((t), (:b))", "begins_with", ":b"),
    ],
)
def test_key_condition_is_read(text: str, op: str | None, values: str) -> None:
    expected = ("t", SortCondition(op, tuple(S[v] for v in values.split()))) if op else None
    assert key_condition.parse_key_condition(key(text, {"#t": "t"})) == KeyCondition({"d": S[":a"]}, expected)


def test_equalities_may_be_many() -> None:
    assert key_condition.parse_key_condition(key("#x = :a AND t = :b", {"#x": "a.b"})) == KeyCondition(
        {"a.b": S[":a"], "t": S[":b"]}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its end"),
        ("d", "its end"),
        ("d =", "its end"),
        ("d = :a OR d = :b", "'OR' instead of AND"),
        ("NOT d = :a", "'NOT' instead of a key"),
        ("d <> :a", "cannot compare a key"),
        ("d IN (:a)", "cannot compare a key"),
        ("d = :a AND size(t) > :b", "'size' instead of a key"),
        ("d = :a AND begins_with(t :b)", "':b' instead of ,"),
        ("d = :a AND begins_with(:b, t)", "':b' instead of the name"),
        ("d = :a AND begins_with(t, :b", "its end"),
        ("d = t", "'t' instead of a :value"),
        (":a = :b", "':b' instead of the name"),
        ("d.x = :a", "'d' instead of the name"),
        ("d = :a AND t BETWEEN :b, :c", "',' instead of AND"),
        ("d = :a AND :b BETWEEN t AND :c", "':b' instead of the name"),
        ("(d = :a", "without '\\)'"),
        ("d = :a)", "without '\\('"),
        ("d = :a t = :b", "'t' instead of AND"),
        ("d = :zz", "ExpressionAttributeValues"),
        ("#zz = :a", "ExpressionAttributeNames"),
        ("d = :a AND d > :b", "twice"),
        ("d > :a AND d = :b", "twice"),
        ("d > :a AND t > :b", "range on each"),
    ],
)
def test_what_is_no_key_condition_is_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match=message):
        key_condition.parse_key_condition(key(text))


def test_one_key_condition_must_be_given() -> None:
    empty: list[dict[str, Any]] = [{}, {"KeyConditions": {}}, {"KeyConditionExpression": None}]
    for params in empty:
        with pytest.raises(UnsupportedExpressionError, match="KeyConditionExpression: missing"):
            key_condition.parse_key_condition(params)
    with pytest.raises(UnsupportedExpressionError, match="KeyConditions: not supported together"):
        key_condition.parse_key_condition(key("d = :a", KeyConditions={}))
    with pytest.raises(UnsupportedExpressionError, match=r"must be a str .* got int"):
        key_condition.parse_key_condition({"KeyConditionExpression": 3})


def legacy(**conditions: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "KeyConditions": {
            name: {"ComparisonOperator": operator, "AttributeValueList": list(values)}
            for name, (operator, *values) in conditions.items()
        }
    }


@pytest.mark.parametrize(
    ("operator", "op"),
    [("LE", "<="), ("LT", "<"), ("GE", ">="), ("GT", ">"), ("BEGINS_WITH", "begins_with"), ("BETWEEN", "BETWEEN")],
)
def test_legacy_conditions_are_read_and_stay_legacy(operator: str, op: str) -> None:
    values = (S[":b"], S[":c"]) if op == "BETWEEN" else (S[":b"],)
    params = {**legacy(d=("EQ", S[":a"]), t=(operator, *values)), "Limit": 3}
    condition = key_condition.parse_key_condition(params)
    assert condition == KeyCondition({"d": S[":a"]}, ("t", SortCondition(op, values)))
    assert key_condition.replace_key_condition(params, condition) == params


@pytest.mark.parametrize("term", [("NE", S[":a"]), (None, S[":a"]), ("EQ",), ("BETWEEN", S[":a"])])
def test_other_legacy_conditions_are_refused(term: tuple[Any, ...]) -> None:
    with pytest.raises(UnsupportedExpressionError, match="a key takes one of"):
        key_condition.parse_key_condition(legacy(d=term))


def test_a_sort_condition_is_checked() -> None:
    for op, values in (("<>", (S[":a"],)), ("BETWEEN", (S[":a"],)), ("=", ())):
        with pytest.raises(UnsupportedExpressionError, match="a key takes one of"):
            SortCondition(op, values)


def test_replacing_drops_only_what_it_orphans() -> None:
    params = key(
        "#d = :a AND #t = :b",
        {"#d": "d", "#t": "t", "#unused": "u"},
        FilterExpression="x > :b",
        ProjectionExpression="#t, #shardkit_k0",
        Limit=5,
    )
    before = copy.deepcopy(params)
    replaced = key_condition.replace_key_condition(
        params, KeyCondition({"d": {"S": "a.1"}}, ("t", SortCondition("BETWEEN", (S[":a"], S[":c"]))))
    )
    assert params == before
    assert replaced == {
        "KeyConditionExpression": "#shardkit_k1 = :shardkit_k0 AND #shardkit_k2 BETWEEN :shardkit_k1 AND :shardkit_k2",
        "ExpressionAttributeNames": {"#t": "t", "#unused": "u", "#shardkit_k1": "d", "#shardkit_k2": "t"},
        "ExpressionAttributeValues": {
            ":b": S[":b"],
            ":c": S[":c"],
            ":shardkit_k0": {"S": "a.1"},
            ":shardkit_k1": S[":a"],
            ":shardkit_k2": S[":c"],
        },
        "FilterExpression": "x > :b",
        "ProjectionExpression": "#t, #shardkit_k0",
        "Limit": 5,
    }


def test_replacing_twice_does_not_grow() -> None:
    condition = KeyCondition({"d": S[":a"]}, ("t", SortCondition("begins_with", (S[":b"],))))
    once = key_condition.replace_key_condition(
        {"KeyConditionExpression": "d = :a", "ExpressionAttributeValues": {":a": 1}}, condition
    )
    assert once["KeyConditionExpression"] == "#shardkit_k0 = :shardkit_k0 AND begins_with(#shardkit_k1, :shardkit_k1)"
    assert key_condition.replace_key_condition(once, condition) == once


# --- comparables and positions


def test_comparables() -> None:
    assert key_condition.sort_value({"S": "x"}) == "x"
    assert key_condition.sort_value({"N": "9" * 38}) == Decimal("9" * 38)
    for data in (b"x", bytearray(b"x"), memoryview(b"x"), Binary(b"x"), "eA=="):
        assert key_condition.sort_value({"B": data}) == b"x"


@pytest.mark.parametrize(
    "wire", [{}, {"S": 1}, {"N": "x"}, {"N": "NaN"}, {"N": 1}, {"B": 1}, {"B": "x"}, {"BOOL": True}]
)
def test_what_is_no_key_has_no_comparable(wire: Any) -> None:
    with pytest.raises(UnsupportedExpressionError, match="key: must be"):
        key_condition.sort_value(wire)


def n(*values: int) -> tuple[dict[str, str], ...]:
    return tuple({"N": str(value)} for value in values)


@pytest.mark.parametrize(
    ("op", "values", "yes", "no"),
    [
        ("=", (2,), (2,), (1, 3)),
        ("<", (2,), (1,), (2, 3)),
        ("<=", (2,), (1, 2), (3,)),
        (">", (2,), (3,), (1, 2)),
        (">=", (2,), (2, 3), (1,)),
        ("BETWEEN", (2, 3), (2, 3), (1, 4)),
        ("begins_with", (2,), (), (2, 20)),
    ],
)
def test_matches(op: str, values: tuple[int, ...], yes: tuple[int, ...], no: tuple[int, ...]) -> None:
    condition = SortCondition(op, n(*values))
    assert all(key_condition.matches(condition, value) for value in n(*yes))
    assert not any(key_condition.matches(condition, value) for value in n(*no))


def test_matches_beginnings_no_condition_and_other_types() -> None:
    assert key_condition.matches(SortCondition("begins_with", ({"B": b"\x01"},)), {"B": Binary(b"\x01\x02")})
    assert not key_condition.matches(SortCondition("begins_with", ({"S": "ab"},)), {"S": "a"})
    # Base64 text orders otherwise than its bytes: "/w==" comes before "AA==", and "AQI=" does not begin with "AQ==".
    assert key_condition.matches(SortCondition(">", ({"B": "AA=="},)), {"B": "/w=="})
    assert key_condition.matches(SortCondition("begins_with", ({"B": "AQ=="},)), {"B": "AQI="})
    assert key_condition.matches(None, {"S": "x"})
    assert not key_condition.matches(SortCondition(">", ({"N": "1"},)), {"S": "x"})


NOTHING = object()


@pytest.mark.parametrize(
    ("op", "values", "position", "descending", "exclusive", "expected"),
    [
        (None, (), 5, False, False, (">=", 5)),
        (None, (), 5, False, True, (">", 5)),
        (None, (), 5, True, False, ("<=", 5)),
        (None, (), 5, True, True, ("<", 5)),
        ("=", (5,), 5, False, True, ("=", 5)),
        (">", (3,), 5, False, False, (">=", 5)),
        (">", (3,), 5, False, True, (">", 5)),
        (">", (3,), 2, False, False, (">", 3)),
        (">", (3,), 3, False, False, (">", 3)),
        (">=", (3,), 3, False, False, (">=", 3)),
        (">=", (3,), 3, False, True, (">", 3)),
        (">=", (3,), 5, True, False, ("BETWEEN", 3, 5)),
        (">", (3,), 5, True, True, ("BETWEEN", 3, 5)),
        (">=", (3,), 3, True, False, ("BETWEEN", 3, 3)),
        (">=", (3,), 3, True, True, None),
        (">", (3,), 3, True, False, None),
        (">=", (3,), 2, True, False, None),
        ("<", (9,), 5, False, False, ("BETWEEN", 5, 9)),
        ("<=", (9,), 9, False, False, ("BETWEEN", 9, 9)),
        ("<", (9,), 9, False, False, None),
        ("<=", (9,), 10, False, False, None),
        ("<", (9,), 5, True, False, ("<=", 5)),
        ("<", (9,), 9, True, False, ("<", 9)),
        ("<=", (9,), 9, True, False, ("<=", 9)),
        ("<=", (9,), 11, True, True, ("<=", 9)),
        ("BETWEEN", (3, 9), 5, False, True, ("BETWEEN", 5, 9)),
        ("BETWEEN", (3, 9), 5, True, True, ("BETWEEN", 3, 5)),
        ("BETWEEN", (3, 9), 2, False, True, ("BETWEEN", 3, 9)),
        ("BETWEEN", (3, 9), 10, False, True, None),
        ("BETWEEN", (9, 3), 5, False, True, ("BETWEEN", 9, 3)),
    ],
)
def test_from_position(
    op: str | None, values: tuple[int, ...], position: int, descending: bool, exclusive: bool, expected: Any
) -> None:
    condition = SortCondition(op, n(*values)) if op else None
    result = key_condition.from_position(condition, n(position)[0], descending=descending, exclusive=exclusive)
    assert result == (SortCondition(expected[0], n(*expected[1:])) if expected else None)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a" * 1020, "\U0010ffff"),
        ("a" * 1021, "\uffff"),
        ("a" * 1022, "\u07ff"),
        ("a" * 1023, "\x7f"),
        ("a" * 1024, ""),
        ("a" * 1025, ""),
        ("a" * 1015 + "é", "\U0010ffff\uffff"),
    ],
)
def test_the_greatest_string_of_a_prefix(prefix: str, end: str) -> None:
    begins = SortCondition("begins_with", ({"S": prefix},))
    result = key_condition.from_position(begins, {"S": prefix}, descending=False, exclusive=False)
    assert result == (SortCondition("BETWEEN", ({"S": prefix}, {"S": prefix + end})))


def test_positions_in_a_prefix() -> None:
    begins = SortCondition("begins_with", ({"S": "b"},))
    assert key_condition.from_position(begins, {"S": "bx"}, descending=True, exclusive=True) == (
        SortCondition("BETWEEN", ({"S": "b"}, {"S": "bx"}))
    )
    assert key_condition.from_position(begins, {"S": "a"}, descending=False, exclusive=True) == begins
    assert key_condition.from_position(begins, {"S": "c"}, descending=True, exclusive=True) == begins
    assert key_condition.from_position(begins, {"S": "c"}, descending=False, exclusive=True) is None
    assert key_condition.from_position(begins, {"S": "a"}, descending=True, exclusive=True) is None
    binary = SortCondition("begins_with", ({"B": Binary(b"b")},))
    assert key_condition.from_position(binary, {"B": b"bc"}, descending=False, exclusive=True) == (
        SortCondition("BETWEEN", ({"B": b"bc"}, {"B": binary_text(b"b" + b"\xff" * 1023)}))
    )


def test_positions_need_the_types_of_their_condition() -> None:
    with pytest.raises(UnsupportedExpressionError, match="< 1 and the position 'x' have different types"):
        key_condition.from_position(SortCondition("<", n(1)), {"S": "x"}, descending=False, exclusive=False)
    with pytest.raises(UnsupportedExpressionError, match="use BETWEEN"):
        key_condition.from_position(SortCondition("begins_with", n(1)), n(1)[0], descending=False, exclusive=False)
