"""The actions of updates: read, replaced, and added to."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shardkit.dynamodb.expressions.update import Action, Setting, actions, add_actions, replace_values

NAMES = {"#s": "status", "#o": "other"}
VALUES = {":v": {"S": "v"}, ":w": {"N": "1"}}


def update(text: str, **more: Any) -> dict[str, Any]:
    return {
        "UpdateExpression": text, "ExpressionAttributeNames": NAMES, "ExpressionAttributeValues": VALUES, **more
    }  # fmt: skip


def reading(*names: str) -> frozenset[str]:
    return frozenset(names)


STATUS: dict[str, Any] = {"clause": "SET", "name": "status"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SET #s = :v", [Action(**STATUS, value=VALUES[":v"], at=6)]),
        ("set status=:v", [Action(**STATUS, value=VALUES[":v"], at=4)]),
        ("SET #s = (:v)", [Action(**STATUS, value=VALUES[":v"], at=7)]),
        ("SET #s = :missing", [Action(**STATUS, at=6)]),
        ("SET #s = status", [Action(**STATUS, same=True, reads=reading("status"))]),
        ("SET #s = (#s)", [Action(**STATUS, same=True, reads=reading("status"))]),
        ("SET #s = #o", [Action(**STATUS, reads=reading("other"))]),
        ("SET #s = #s.x", [Action(**STATUS, reads=reading("status"))]),
        (
            "SET #s = if_not_exists(status, :v)",
            [Action(**STATUS, value=VALUES[":v"], if_absent=True, at=11, reads=reading("status"))],
        ),
        ("SET #s = if_not_exists(#o, :v)", [Action(**STATUS, reads=reading("other"))]),
        ("SET #s = if_not_exists(#s.x, :v)", [Action(**STATUS, reads=reading("status"))]),
        ("SET #s = if_not_exists(#s, #o)", [Action(**STATUS, reads=reading("status", "other"))]),
        ("SET #s = #s + :w", [Action(**STATUS, reads=reading("status"))]),
        ("SET #s = list_append(#s, :v)", [Action(**STATUS, reads=reading("status"))]),
        ("SET #s = if_not_exists(#s, :w) + :w", [Action(**STATUS, reads=reading("status"))]),
        ("SET #s.x[0] = :v", [Action(**STATUS, nested=True)]),
        ("SET #s[1] = #o", [Action(**STATUS, nested=True, reads=reading("other"))]),
        ("REMOVE #s, #o.#s", [Action("REMOVE", "status"), Action("REMOVE", "other", nested=True)]),
        ("ADD #s :w DELETE #o :v", [Action("ADD", "status"), Action("DELETE", "other")]),
        (
            "REMOVE a SET #s = :v, b = list_append(c, :v) ADD d :w",
            [
                Action("REMOVE", "a"),
                Action(**STATUS, value=VALUES[":v"], at=10),
                Action("SET", "b", reads=reading("c")),
                Action("ADD", "d"),
            ],
        ),
        ("", []),
        ("SET", []),
    ],
)
def test_what_an_update_does(text: str, found: list[Action]) -> None:
    assert actions(update(text)) == found


def test_what_a_legacy_update_does() -> None:
    value = {"S": "v"}
    updates = {
        "a": {"Action": "PUT", "Value": value},
        "b": {"Value": value},
        "c": {"Action": "DELETE"},
        "d": {"Action": "DELETE", "Value": {"SS": ["v"]}},
        "e": {"Action": "ADD", "Value": {"N": "1"}},
        "f": {"Action": "PUT"},
    }
    assert actions({"AttributeUpdates": updates}) == [
        Action("SET", "a", value=value),
        Action("SET", "b", value=value),
        Action("REMOVE", "c"),
        Action("DELETE", "d"),
        Action("ADD", "e"),
        Action("SET", "f"),
    ]
    assert actions({}) == []


def test_values_are_replaced_where_they_are_set() -> None:
    """A value that has another use stays; one that has none goes, because the service refuses it."""
    params = update("SET #s = :v, #o = if_not_exists(#o, (:v)), x = :w", ConditionExpression="y = :w")
    before = copy.deepcopy(params)
    first, second, third = actions(params)
    new = {"S": "new"}
    replaced = replace_values(params, [(first, new)])
    assert replaced == {
        **params,
        "UpdateExpression": "SET #s = :shardkit_u0, #o = if_not_exists(#o, (:v)), x = :w",
        "ExpressionAttributeValues": {**VALUES, ":shardkit_u0": new},
    }
    replaced = replace_values(params, [(first, new), (second, new), (third, new)])
    assert replaced["UpdateExpression"] == (
        "SET #s = :shardkit_u0, #o = if_not_exists(#o, (:shardkit_u1)), x = :shardkit_u2"
    )
    assert replaced["ExpressionAttributeValues"].keys() == {":w", ":shardkit_u0", ":shardkit_u1", ":shardkit_u2"}
    assert params == before


def test_legacy_values_are_replaced() -> None:
    updates: dict[str, Any] = {"a": {"Action": "PUT", "Value": {"S": "v"}}, "b": {"Action": "DELETE"}}
    params = {"AttributeUpdates": updates, "ReturnValues": "ALL_NEW"}
    (action, _) = actions(params)
    assert replace_values(params, [(action, {"S": "w"})]) == {
        "AttributeUpdates": {"a": {"Action": "PUT", "Value": {"S": "w"}}, "b": {"Action": "DELETE"}},
        "ReturnValues": "ALL_NEW",
    }
    assert updates["a"]["Value"] == {"S": "v"}


NEW = {"S": "n"}


@pytest.mark.parametrize(
    ("text", "sets", "removes", "added"),
    [
        ("SET a = :v", True, False, "SET a = :v, #shardkit_u0 = :shardkit_u0"),
        ("set a = :v remove b", True, False, "set a = :v, #shardkit_u0 = :shardkit_u0 remove b"),
        ("REMOVE b", True, False, "REMOVE b SET #shardkit_u0 = :shardkit_u0"),
        ("REMOVE b ", False, True, "REMOVE b, #shardkit_u0"),
        ("ADD a :w", False, True, "ADD a :w REMOVE #shardkit_u0"),
        (
            "DELETE c :v SET a = if_not_exists(a, :v) REMOVE b ADD d :w",
            True,
            True,
            "DELETE c :v SET a = if_not_exists(a, :v), #shardkit_u0 = :shardkit_u0 REMOVE b, #shardkit_u1 ADD d :w",
        ),
        (None, True, False, "SET #shardkit_u0 = :shardkit_u0"),
    ],
)
def test_actions_are_added(text: str | None, sets: bool, removes: bool, added: str) -> None:
    params = {} if text is None else update(text)
    before = copy.deepcopy(params)
    more = add_actions(params, {"s": Setting(NEW)} if sets else {}, ["r"] if removes else [])
    assert more["UpdateExpression"] == added
    assert [*more["ExpressionAttributeNames"].values()][-(sets + removes) :] == ["s", "r"][1 - sets : 1 + removes]
    assert more.get("ExpressionAttributeValues", {}).get(":shardkit_u0") == (NEW if sets else None)
    assert params == before


def test_an_attribute_is_set_if_it_is_absent() -> None:
    params = update("SET a = :shardkit_u0", ExpressionAttributeValues={":shardkit_u0": NEW})
    assert add_actions(params, {"s": Setting({"N": "3"}, if_absent=True)}, []) == {
        "UpdateExpression": "SET a = :shardkit_u0, #shardkit_u0 = if_not_exists(#shardkit_u0, :shardkit_u1)",
        "ExpressionAttributeNames": {**NAMES, "#shardkit_u0": "s"},
        "ExpressionAttributeValues": {":shardkit_u0": NEW, ":shardkit_u1": {"N": "3"}},
    }


@pytest.mark.parametrize("parameter", ["AttributeUpdates", "Expected"])
def test_legacy_actions_are_added(parameter: str) -> None:
    """The service refuses an expression beside any legacy parameter."""
    given: dict[str, Any] = {"a": {"Action": "DELETE"}} if parameter == "AttributeUpdates" else {}
    params = {parameter: given}
    assert add_actions(params, {"s": Setting(NEW)}, ["r"]) == {
        **params,
        "AttributeUpdates": {**given, "s": {"Action": "PUT", "Value": NEW}, "r": {"Action": "DELETE"}},
    }
    assert params == {parameter: given}
