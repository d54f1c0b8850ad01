"""Properties of key conditions over random conditions, positions and texts."""

from __future__ import annotations

import contextlib
import copy
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardkit.dynamodb.body import binary_text
from shardkit.dynamodb.expressions import key_condition, rewrite, tokens
from shardkit.dynamodb.expressions.key_condition import KeyCondition, SortCondition
from shardkit.errors import UnsupportedExpressionError

OPS = ("=", "<", "<=", ">", ">=", "BETWEEN", "begins_with")
# Few letters, so that equal keys, prefixes and keys next to each other are common; wide ones for the UTF-8 lengths.
STRINGS = st.text("ab\x7f\u07ff\uffff\U0010ffff", max_size=4).map(lambda text: {"S": text})
NUMBERS = st.one_of(
    st.integers(-5, 5).map(str), st.sampled_from(["1.5", "1.50", "-0", "1E+30", "9" * 38, "9" * 37 + "8"])
).map(lambda digits: {"N": digits})
BINARY = st.builds(
    lambda data, form: {"B": form(bytes(data))},
    st.lists(st.sampled_from([0, 1, 127, 128, 255]), max_size=4),
    st.sampled_from([bytes, binary_text]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[SortCondition | None, Any, list[Any]]:
    kind: st.SearchStrategy[Any] = draw(st.sampled_from([STRINGS, NUMBERS, BINARY]))
    op = draw(st.sampled_from((None, *(OPS[:-1] if kind is NUMBERS else OPS))))
    values = tuple(draw(st.lists(kind, min_size=2, max_size=2)))[: 2 if op == "BETWEEN" else 1]
    if op == "BETWEEN":
        assume(key_condition.sort_value(values[0]) <= key_condition.sort_value(values[1]))  # type: ignore[operator]
    condition = SortCondition(op, values) if op else None
    position = draw(st.one_of(kind, st.sampled_from(values)))
    keys = draw(st.lists(kind, max_size=30))
    return condition, position, [*keys, *values, position]


def after(x: Any, position: Any, descending: bool, exclusive: bool) -> bool:
    one, other = key_condition.sort_value(x), key_condition.sort_value(position)
    if one == other:
        return not exclusive
    return (one < other) if descending else (one > other)  # type: ignore[operator]


def assert_narrowed(condition: SortCondition | None, position: Any, keys: list[Any]) -> None:
    """No key after a position is missed, and no other is let in but those of the edges."""
    edges = [key_condition.sort_value(value) for value in (position, *(() if condition is None else condition.values))]
    for descending, exclusive in product((False, True), repeat=2):
        result = key_condition.from_position(condition, position, descending=descending, exclusive=exclusive)
        for x in keys:
            wanted = key_condition.matches(condition, x) and after(x, position, descending, exclusive)
            got = result is not None and key_condition.matches(result, x)
            assert got >= wanted
            assert got == wanted or key_condition.sort_value(x) in edges
        if result is not None and result.op == "BETWEEN":
            assert key_condition.sort_value(result.values[0]) <= key_condition.sort_value(result.values[1])  # type: ignore[operator]


@pytest.mark.long_search
@settings(max_examples=4 * settings().max_examples)
@given(cases())
def test_nothing_after_a_position_is_missed(case: Any) -> None:
    assert_narrowed(*case)


@pytest.mark.parametrize("op", OPS[:-1])
def test_nothing_after_any_small_number_is_missed(op: str) -> None:
    """All conditions, positions and keys from 0 to 4."""
    numbers = [{"N": str(number)} for number in range(5)]
    for values in product(numbers, repeat=2 if op == "BETWEEN" else 1):
        for position in numbers if values == tuple(sorted(values, key=str)) else ():
            assert_narrowed(SortCondition(op, values), position, numbers)


WIRE = st.one_of(STRINGS, NUMBERS, BINARY)
NAMES = st.sampled_from(["d", "t", "a.b", "#x", "AND", "shardkit", "é"])


@st.composite
def key_conditions(draw: st.DrawFn) -> KeyCondition:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    equals = {name: draw(WIRE) for name in names}
    if not draw(st.booleans()):
        return KeyCondition(equals)
    ranged = names[-1]
    del equals[ranged]
    op = draw(st.sampled_from(OPS[1:]))
    values = tuple(draw(WIRE) for _ in range(2 if op == "BETWEEN" else 1))
    return KeyCondition(equals, (ranged, SortCondition(op, values)))


@given(key_conditions(), key_conditions(), st.booleans())
def test_what_is_written_is_read_back(first: KeyCondition, second: KeyCondition, legacy: bool) -> None:
    start: dict[str, Any] = {"KeyConditions": {}} if legacy else {"FilterExpression": "#shardkit_k0 = :shardkit_k1"}
    start["ExpressionAttributeNames"] = {"#shardkit_k0": "mine"}
    once = key_condition.replace_key_condition(start, first)
    assert key_condition.parse_key_condition(once) == first
    before = copy.deepcopy(once)
    twice = key_condition.replace_key_condition(once, second)
    assert once == before
    assert key_condition.parse_key_condition(twice) == second
    assert key_condition.replace_key_condition(twice, first) == once
    assert twice["ExpressionAttributeNames"]["#shardkit_k0"] == "mine"


@given(st.text("ab_9 #:[]0().,=<>+-\t\n'é", max_size=40))
def test_tokens_rebuild_any_text(text: str) -> None:
    try:
        assert tokens.render(tokens.tokenize(text)) == text
        tokens.parts(text)
    except UnsupportedExpressionError:
        pass


PIECES = st.sampled_from(
    [
        "pk",
        "x",
        "#p",
        ":a",
        ":b",
        "=",
        "<>",
        "<",
        "(",
        ")",
        ",",
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "size",
        ".",
        "[0]",
    ]
)


@given(st.lists(PIECES, max_size=14).map(" ".join))
def test_nonsense_is_refused_or_left_to_the_service(text: str) -> None:
    params = {
        **dict.fromkeys(("KeyConditionExpression", "ConditionExpression", "UpdateExpression"), text),
        "ProjectionExpression": text,
        "ExpressionAttributeNames": {"#p": "pk"},
        "ExpressionAttributeValues": {":a": {"S": "a"}, ":b": {"S": "b"}},
    }
    calls: list[Any] = [
        lambda: key_condition.parse_key_condition(params),
        lambda: rewrite.rewrite_partition_key(params, "pk", lambda value: {"S": value["S"] + ".7"}),
        lambda: rewrite.refuse_partition_key(params, "pk", "UpdateExpression"),
        lambda: rewrite.updated_attributes(params),
        lambda: rewrite.project(params, ["pk"]),
        lambda: rewrite.and_condition(params, "x = y", {}),
    ]
    for call in calls:
        with contextlib.suppress(UnsupportedExpressionError):
            call()
