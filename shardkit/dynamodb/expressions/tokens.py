"""Tokens and placeholders of DynamoDB expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shardkit.dynamodb.values import WireValue
from shardkit.errors import UnsupportedExpressionError

NAMES = "ExpressionAttributeNames"
VALUES = "ExpressionAttributeValues"
_EXPRESSIONS = (
    "KeyConditionExpression",
    "FilterExpression",
    "ProjectionExpression",
    "ConditionExpression",
    "UpdateExpression",
)
# DynamoDB reads these words as keywords everywhere, in any case; an attribute of that name needs a placeholder.
_KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"})
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<name>[A-Za-z0-9_]+)"
    r"|(?P<placeholder>\#[A-Za-z0-9_]+)"
    r"|(?P<value>:[A-Za-z0-9_]+)"
    r"|(?P<index>\[\s*[0-9]+\s*\])"
    r"|(?P<operator><>|<=|>=|[=<>+-])"
    r"|(?P<mark>[(),.])",
    re.ASCII,
)
_PLACEHOLDER = re.compile(r"[#:][A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression: `kind` is space, name, placeholder, value, index, operator or mark."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """An operand or a sign of an expression; a path such as `info.#b[0]` is one part.

    `kind` is path, value, function, keyword, operator or mark; `text` is a path's first name, a keyword in capitals, or
    the token itself; `at` is the position of the first token.
    """

    kind: str
    text: str
    at: int
    nested: bool = False


@lru_cache(maxsize=512)
def tokenize(text: str) -> tuple[Token, ...]:
    """Split an expression into tokens, spaces included: `a = :v` has five."""
    tokens = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnsupportedExpressionError(
                f"expression: {text!r} has {text[at]!r} at position {at}, which is not part of DynamoDB's expression "
                "language; use a #placeholder for the attribute name, or a :placeholder for the value"
            )
        tokens.append(Token(match.lastgroup or "", match.group()))
        at = match.end()
    return tuple(tokens)


def render(tokens: Iterable[Token]) -> str:
    """Join tokens: `render(tokenize(text)) == text`."""
    return "".join(token.text for token in tokens)


@lru_cache(maxsize=512)
def parts(text: str) -> tuple[Part, ...]:
    """Group the tokens of an expression into operands and signs, without parentheses around a single operand."""
    significant = [(at, token) for at, token in enumerate(tokenize(text)) if token.kind != "space"]
    found: list[Part] = []
    index = 0
    while index < len(significant):
        at, token = significant[index]
        index += 1
        if token.kind == "name" and token.text.upper() in _KEYWORDS:
            found.append(Part("keyword", token.text.upper(), at))
        elif token.kind == "name" and index < len(significant) and significant[index][1].text == "(":
            found.append(Part("function", token.text, at))
        elif token.kind in ("name", "placeholder"):
            start = index
            while index < len(significant) and (
                significant[index][1].kind == "index"
                or significant[index][1].text == "."
                or (significant[index][1].kind in ("name", "placeholder") and significant[index - 1][1].text == ".")
            ):
                index += 1
            found.append(Part("path", token.text, at, nested=index > start))
        else:
            found.append(Part(token.kind, token.text, at))
            if _wraps_operand(found):
                found[-3:] = [found[-2]]
    return tuple(found)


def text_of(params: Mapping[str, Any], parameter: str) -> str | None:
    """Return a parameter's expression, or None; refuse what is not a str."""
    text = params.get(parameter)
    if text is None or isinstance(text, str):
        return text
    raise UnsupportedExpressionError(
        f"{parameter}: must be a str or a condition of boto3.dynamodb.conditions, got {type(text).__name__}: {text!r}"
    )


def name_of(params: Mapping[str, Any], text: str) -> str:
    """Return the attribute's name for a name or a `#placeholder`."""
    if not text.startswith("#"):
        return text
    name = (params.get(NAMES) or {}).get(text)
    if isinstance(name, str):
        return name
    raise UnsupportedExpressionError(
        f"{NAMES}: an expression uses the placeholder {text}, which is missing; add it with the attribute's name"
    )


def value_of(params: Mapping[str, Any], text: str) -> WireValue:
    """Return the wire value of a `:placeholder`."""
    value = (params.get(VALUES) or {}).get(text)
    if isinstance(value, Mapping):
        return value
    raise UnsupportedExpressionError(
        f"{VALUES}: an expression uses the placeholder {text}, which is missing; add it with the value"
    )


def path_name(params: Mapping[str, Any], part: Part) -> str | None:
    """Return the name of the top-level attribute that a part is; None if it is something else."""
    return name_of(params, part.text) if part.kind == "path" and not part.nested else None


def taken_placeholders(params: Mapping[str, Any]) -> set[str]:
    """Return every placeholder that a request defines or uses."""
    return {*(params.get(NAMES) or {}), *(params.get(VALUES) or {}), *_used(params)}


def fresh(prefix: str, taken: set[str]) -> str:
    """Return the first of `prefix0`, `prefix1`, … that is not taken, and add it to `taken`."""
    number = 0
    while (placeholder := f"{prefix}{number}") in taken:
        number += 1
    taken.add(placeholder)
    return placeholder


def rebuilt(
    params: Mapping[str, Any],
    changes: Mapping[str, str],
    *,
    names: Mapping[str, str] | None = None,
    values: Mapping[str, WireValue] | None = None,
    released: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the request with changed expressions, added placeholders, and without the released ones if unused."""
    result = {**params, **changes}
    # DynamoDB refuses unused placeholders: remove those that this change made unused, and keep the caller's other ones.
    gone = set(released) - _used(result)
    for parameter, added in ((NAMES, names or {}), (VALUES, values or {})):
        kept = {key: value for key, value in (params.get(parameter) or {}).items() if key not in gone}
        kept.update(added)
        if kept:
            result[parameter] = kept
        else:
            result.pop(parameter, None)
    return result


def placeholders_in(text: str) -> set[str]:
    """Return the placeholders in an expression, even if it cannot be tokenized."""
    return set(_PLACEHOLDER.findall(text))


def renamed(text: str, renames: Mapping[str, str]) -> str:
    """Return an expression with placeholders renamed, all at once."""
    return _PLACEHOLDER.sub(lambda match: renames.get(match.group(), match.group()), text)


def _wraps_operand(found: Sequence[Part]) -> bool:
    # DynamoDB accepts `(pk) = (:v)`; the parentheses of a function call or an IN list are another matter.
    edge = Part("edge", "", -1)
    before, opening, operand, closing = (edge, edge, edge, *found[-4:])[-4:]
    return (
        (opening.text, closing.text) == ("(", ")")
        and operand.kind in ("path", "value")
        and before.kind != "function"
        and before.text != "IN"
    )


def _used(params: Mapping[str, Any]) -> set[str]:
    texts = (params.get(parameter) for parameter in _EXPRESSIONS)
    return {found for text in texts if isinstance(text, str) for found in placeholders_in(text)}
