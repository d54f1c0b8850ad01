"""The actions of an update: read them, and add others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardkit.dynamodb.expressions.tokens import (
    VALUES,
    Part,
    Token,
    fresh,
    name_of,
    parts,
    path_name,
    rebuilt,
    render,
    taken_placeholders,
    text_of,
    tokenize,
)
from shardkit.dynamodb.values import WireValue

_CLAUSES = frozenset({"SET", "REMOVE", "ADD", "DELETE"})
_LEGACY_CLAUSES = {"PUT": "SET", "ADD": "ADD", "DELETE": "DELETE"}


@dataclass(frozen=True, slots=True)
class Action:
    """What an update does to an attribute: ``SET a = if_not_exists(a, :v)`` sets ``a``, if it is absent, to a value.

    ``clause`` is SET, REMOVE, ADD or DELETE. ``value`` is the value that SET gives; None if it is calculated, from the
    item or otherwise. ``at`` is the position of the value in the expression. ``same``: the attribute is set to itself.
    ``reads`` are the top-level attributes that the new value is calculated from.
    """

    clause: str
    name: str
    nested: bool = False
    value: WireValue | None = None
    if_absent: bool = False
    same: bool = False
    at: int = -1
    reads: frozenset[str] = frozenset()


def actions(params: Mapping[str, Any]) -> list[Action]:
    """Read the UpdateExpression or the legacy AttributeUpdates; the service refuses what is malformed."""
    found = [_legacy(name, update) for name, update in (params.get("AttributeUpdates") or {}).items()]
    for clause, (path, *operand) in _written(text_of(params, "UpdateExpression") or ""):
        if path.kind == "path":
            found.append(_action(params, clause, path, operand[1:] if clause == "SET" else operand))
    return found


def _written(text: str) -> Iterator[tuple[str, list[Part]]]:
    clause, depth = "", 0
    action: list[Part] = []
    for part in parts(text):
        depth += {"(": 1, ")": -1}.get(part.text, 0)
        starts = part.kind == "keyword" and part.text in _CLAUSES
        if not starts and (depth or part.text != ","):
            action.append(part)
            continue
        if action:
            yield clause, action
        action = []
        clause = part.text if starts else clause
    if action:
        yield clause, action


def _action(params: Mapping[str, Any], clause: str, path: Part, operand: list[Part]) -> Action:
    name = name_of(params, path.text)
    reads = frozenset(name_of(params, part.text) for part in operand if part.kind == "path")
    if path.nested or clause != "SET":
        return Action(clause, name, nested=path.nested, reads=reads)
    if [part.kind for part in operand] == ["value"]:
        return Action(clause, name, value=_value(params, operand[0]), at=operand[0].at)
    if len(operand) == 1:
        return Action(clause, name, same=path_name(params, operand[0]) == name, reads=reads)
    if [part.text for part in operand[:2]] == ["if_not_exists", "("] and len(operand) == 6:  # noqa: PLR2004 - with ")"
        _, _, tested, _, given, _ = operand
        if path_name(params, tested) == name and given.kind == "value":
            return Action(clause, name, value=_value(params, given), if_absent=True, at=given.at, reads=reads)
    return Action(clause, name, reads=reads)


def _value(params: Mapping[str, Any], part: Part) -> WireValue | None:
    return (params.get(VALUES) or {}).get(part.text)


def _legacy(name: str, update: Mapping[str, Any]) -> Action:
    clause = _LEGACY_CLAUSES.get(update.get("Action", "PUT"), "ADD")
    if clause == "DELETE" and "Value" not in update:
        clause = "REMOVE"
    return Action(clause, name, value=update.get("Value") if clause == "SET" else None)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value to set, always or only if the attribute is absent."""

    value: WireValue
    if_absent: bool = False


def replace_values(params: Mapping[str, Any], values: Sequence[tuple[Action, WireValue]]) -> dict[str, Any]:
    """Return an update in which some actions set other values."""
    if params.get("AttributeUpdates") is not None:
        updates = params["AttributeUpdates"]
        changed = {action.name: {**updates[action.name], "Value": value} for action, value in values}
        return {**params, "AttributeUpdates": {**updates, **changed}}
    tokens = list(tokenize(params["UpdateExpression"]))
    taken = taken_placeholders(params)
    added: dict[str, WireValue] = {}
    released = {tokens[action.at].text for action, _ in values}
    for action, value in values:
        tokens[action.at] = Token("value", fresh(":shardkit_u", taken))
        added[tokens[action.at].text] = value
    return rebuilt(params, {"UpdateExpression": render(tokens)}, values=added, released=released)


def add_actions(params: Mapping[str, Any], sets: Mapping[str, Setting], removes: Iterable[str]) -> dict[str, Any]:
    """Return an update that also sets and removes these attributes, in the style that the caller used."""
    if any(params.get(name) is not None for name in ("AttributeUpdates", "Expected")):
        updates = dict(params.get("AttributeUpdates") or {})
        updates.update({name: {"Action": "PUT", "Value": setting.value} for name, setting in sets.items()})
        updates.update({name: {"Action": "DELETE"} for name in removes})
        return {**params, "AttributeUpdates": updates}
    text = text_of(params, "UpdateExpression") or ""
    taken = taken_placeholders(params)
    names: dict[str, str] = {}
    values: dict[str, WireValue] = {}

    def placeholder(name: str) -> str:
        key = fresh("#shardkit_u", taken)
        names[key] = name
        return key

    settings = []
    for name, setting in sets.items():
        left, right = placeholder(name), fresh(":shardkit_u", taken)
        values[right] = setting.value
        settings.append(f"{left} = if_not_exists({left}, {right})" if setting.if_absent else f"{left} = {right}")
    text = _with_clause(text, "SET", settings)
    text = _with_clause(text, "REMOVE", [placeholder(name) for name in removes])
    return rebuilt(params, {"UpdateExpression": text} if text else {}, names=names, values=values)


def _with_clause(text: str, clause: str, added: list[str]) -> str:
    if not added:
        return text
    clauses = [part for part in parts(text) if part.kind == "keyword" and part.text in _CLAUSES]
    at = next((number for number, part in enumerate(clauses) if part.text == clause), None)
    if at is None:
        return f"{text} {clause} {', '.join(added)}".lstrip()
    tokens = tokenize(text)
    end = clauses[at + 1].at if at + 1 < len(clauses) else len(tokens)
    after = render(tokens[end:])
    return f"{render(tokens[:end]).rstrip()}, {', '.join(added)}{' ' if after else ''}{after}"
