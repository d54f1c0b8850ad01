"""Key conditions: read, write, and narrow them to the keys after a position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, TypeAlias

from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.decode import as_given
from shardkit.dynamodb.expressions.tokens import (
    Part,
    fresh,
    name_of,
    parts,
    placeholders_in,
    rebuilt,
    taken_placeholders,
    text_of,
    value_of,
)
from shardkit.dynamodb.values import WireValue
from shardkit.errors import InvalidValueError, UnsupportedExpressionError

SortValue: TypeAlias = "str | Decimal | bytes"

_SORT_KEY_BYTES = 1024
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LEGACY = {
    "EQ": "=",
    "LE": "<=",
    "LT": "<",
    "GE": ">=",
    "GT": ">",
    "BEGINS_WITH": "begins_with",
    "BETWEEN": "BETWEEN",
}
_TO_LEGACY = {op: legacy for legacy, op in _LEGACY.items()}
_TESTS: Mapping[str, Callable[[Any, Sequence[Any]], bool]] = {
    "=": lambda key, values: bool(key == values[0]),
    "<": lambda key, values: bool(key < values[0]),
    "<=": lambda key, values: bool(key <= values[0]),
    ">": lambda key, values: bool(key > values[0]),
    ">=": lambda key, values: bool(key >= values[0]),
    "BETWEEN": lambda key, values: bool(values[0] <= key <= values[1]),
    "begins_with": lambda key, values: not isinstance(key, Decimal) and key.startswith(values[0]),
}


@dataclass(frozen=True, slots=True)
class SortCondition:
    """A condition on one key attribute: `SortCondition("BETWEEN", ({"N": "1"}, {"N": "9"}))`."""

    op: str
    values: tuple[WireValue, ...]

    def __post_init__(self) -> None:
        if self.op not in _TESTS or len(self.values) != (2 if self.op == "BETWEEN" else 1):
            raise UnsupportedExpressionError(
                f"key condition: {self.op!r} with {len(self.values)} values is not supported; a key takes one of "
                f"{', '.join(_TESTS)}, with one value (BETWEEN: two)"
            )


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """A Query's key condition: attributes equal to values, and at most one other condition on one attribute."""

    equals: Mapping[str, WireValue]
    range: tuple[str, SortCondition] | None = None


def parse_key_condition(params: Mapping[str, Any]) -> KeyCondition:
    """Read the KeyConditionExpression or the legacy KeyConditions of a Query.

    Example:
        >>> parse_key_condition({"KeyConditionExpression": "d = :d", "ExpressionAttributeValues": {":d": {"S": "x"}}})
        KeyCondition(equals={'d': {'S': 'x'}}, range=None)
    """
    text = text_of(params, "KeyConditionExpression")
    legacy = params.get("KeyConditions")
    if text is not None and legacy is not None:
        raise UnsupportedExpressionError(
            "KeyConditions: not supported together with KeyConditionExpression; omit the legacy KeyConditions"
        )
    if text is not None:
        return _collected(text, _Reader(text, params).terms())
    if legacy:
        return _collected(legacy, [(name, _legacy_condition(name, condition)) for name, condition in legacy.items()])
    raise UnsupportedExpressionError(
        "KeyConditionExpression: missing; a Query must have a key condition: Key(partition key).eq(value)"
    )


def replace_key_condition(params: Mapping[str, Any], condition: KeyCondition) -> dict[str, Any]:
    """Return the request with another key condition, written in the style that the caller used."""
    terms = [(name, SortCondition("=", (value,))) for name, value in condition.equals.items()]
    if condition.range is not None:
        terms.append(condition.range)
    if params.get("KeyConditions") is not None:
        legacy = {
            name: {"AttributeValueList": list(term.values), "ComparisonOperator": _TO_LEGACY[term.op]}
            for name, term in terms
        }
        return {**params, "KeyConditions": legacy}
    rest = {parameter: value for parameter, value in params.items() if parameter != "KeyConditionExpression"}
    rest = rebuilt(rest, {}, released=placeholders_in(text_of(params, "KeyConditionExpression") or ""))
    taken = taken_placeholders(rest)
    names: dict[str, str] = {}
    values: dict[str, WireValue] = {}
    texts = []
    for name, term in terms:
        left = fresh("#shardkit_k", taken)
        names[left] = name
        right = [fresh(":shardkit_k", taken) for _ in term.values]
        values.update(zip(right, term.values, strict=True))
        if term.op == "begins_with":
            texts.append(f"begins_with({left}, {right[0]})")
        else:
            texts.append(f"{left} {term.op} {' AND '.join(right)}")
    return rebuilt(rest, {"KeyConditionExpression": " AND ".join(texts)}, names=names, values=values)


def sort_value(wire: WireValue) -> SortValue:
    """Return a key's value, which sorts as DynamoDB sorts keys: `Decimal("1.50")` for `{"N": "1.50"}`."""
    for letter, content in wire.items():
        if letter == "S" and isinstance(content, str):
            return content  # by code point, which is the order of its UTF-8 bytes
        try:
            if letter == "B":
                return binary_bytes(content)  # base64 text sorts differently, and boto3's Binary has no order
            if letter == "N" and isinstance(content, str) and (number := Decimal(content)).is_finite():
                return number
        except (InvalidOperation, InvalidValueError):
            pass
    raise UnsupportedExpressionError(
        f"key: must be a string, a number or binary, got {as_given(wire)}; give text, a number or bytes (to a client "
        '{"S": "x"}, {"N": "1"} or {"B": b"x"})'
    )


def matches(condition: SortCondition | None, wire_value: WireValue) -> bool:
    """Return whether a key satisfies a condition (None: always); a key of another type does not."""
    if condition is None:
        return True
    key = sort_value(wire_value)
    values = [sort_value(value) for value in condition.values]
    if any(type(value) is not type(key) for value in values):
        return False
    return _TESTS[condition.op](key, values)


def from_position(
    condition: SortCondition | None, position_wire: WireValue, *, descending: bool, exclusive: bool
) -> SortCondition | None:
    """Narrow a condition to the keys at or after a position in the reading direction; None: no key can match.

    One DynamoDB condition cannot express every range, so the result may match too much at its ends (an exclusive
    position itself, the excluded end of `< b`), but never too little. `< b` ascending from p is `BETWEEN p AND b`.
    """
    if condition is None:
        return SortCondition(_one_sided(descending=descending, exclusive=exclusive), (position_wire,))
    position = sort_value(position_wire)
    values = [sort_value(value) for value in condition.values]
    if any(type(value) is not type(position) for value in values):
        raise UnsupportedExpressionError(
            f"key condition: {condition.op} {' AND '.join(map(as_given, condition.values))} and the position "
            f"{as_given(position_wire)} have different types; compare a sort key with values of its own type"
        )
    low, high, low_open, high_open = ends(condition)
    if condition.op == "=" or (condition.op == "BETWEEN" and values[1] < values[0]):  # type: ignore[operator]
        return condition  # one key cannot be narrowed; the service refuses an inverted range
    before = _TESTS[">" if descending else "<"]
    near, far = (high, low) if descending else (low, high)
    near_open, far_open = (high_open, low_open) if descending else (low_open, high_open)
    if near is not None and before(position, (sort_value(near),)):
        return condition  # the position is before the range
    if far is None:
        at_open_edge = near_open and near is not None and sort_value(near) == position
        return SortCondition(_one_sided(descending=descending, exclusive=exclusive or at_open_edge), (position_wire,))
    end = sort_value(far)
    if before(end, (position,)) or (end == position and (exclusive or far_open)):
        return None
    return SortCondition("BETWEEN", (far, position_wire) if descending else (position_wire, far))


def _one_sided(*, descending: bool, exclusive: bool) -> str:
    return ("<" if descending else ">") + ("" if exclusive else "=")


def ends(condition: SortCondition) -> tuple[WireValue | None, WireValue | None, bool, bool]:
    """Return a condition's lowest and highest key (None: unbounded), and whether each of them is excluded."""
    first, last = condition.values[0], condition.values[-1]
    if condition.op in ("<", "<="):
        return None, last, False, condition.op == "<"
    if condition.op in (">", ">="):
        return first, None, condition.op == ">", False
    if condition.op == "begins_with":
        return first, _max_with_prefix(first), False, False
    return first, last, False, False


def _max_with_prefix(prefix: WireValue) -> WireValue:
    """Return the greatest sort key that starts with a prefix."""
    start = sort_value(prefix)
    if isinstance(start, bytes):
        return {"B": binary_text(start.ljust(_SORT_KEY_BYTES, b"\xff"))}
    if isinstance(start, Decimal):
        raise UnsupportedExpressionError(
            f"begins_with: must be a string or binary, got the number {prefix!r}; use BETWEEN"
        )
    whole, rest = divmod(max(0, _SORT_KEY_BYTES - len(start.encode())), 4)
    # Fill the longest possible sort key with the greatest character of each UTF-8 length.
    return {"S": start + "\U0010ffff" * whole + ("", "\x7f", "\u07ff", "\uffff")[rest]}


def _collected(given: object, terms: Sequence[tuple[str, SortCondition]]) -> KeyCondition:
    equals: dict[str, WireValue] = {}
    ranges: dict[str, SortCondition] = {}
    for name, term in terms:
        if name in equals or name in ranges:
            raise UnsupportedExpressionError(
                f"key condition: {given!r} has {name!r} twice; a key attribute takes one condition; use BETWEEN for "
                "two bounds"
            )
        if term.op == "=":
            equals[name] = term.values[0]
        else:
            ranges[name] = term
    if len(ranges) > 1:
        raise UnsupportedExpressionError(
            f"key condition: {given!r} has a range on each of {sorted(ranges)}; only one attribute may have a range; "
            "compare the others with =, or move them to FilterExpression"
        )
    return KeyCondition(equals, next(iter(ranges.items()), None))


def _legacy_condition(name: str, condition: Mapping[str, Any]) -> SortCondition:
    operator = condition.get("ComparisonOperator")
    op = _LEGACY.get(operator) if isinstance(operator, str) else None
    if op is None:
        raise UnsupportedExpressionError(
            f"KeyConditions: {operator!r} of {name!r} is not supported; a key takes one of {', '.join(_LEGACY)}"
        )
    return SortCondition(op, tuple(condition.get("AttributeValueList") or ()))


class _Reader:
    """Reads the terms of a KeyConditionExpression. Only AND joins them, so parentheses change nothing."""

    def __init__(self, text: str, params: Mapping[str, Any]) -> None:
        self.text = text
        self.params = params
        self.parts = parts(text)
        self.at = 0

    def terms(self) -> list[tuple[str, SortCondition]]:
        found = []
        depth = 0
        while True:
            while self.skip("("):
                depth += 1
            found.append(self.term())
            while self.skip(")"):
                depth -= 1
                if depth < 0:
                    self.fail("a ')' without '('")
            if self.at == len(self.parts):
                if depth:
                    self.fail("a '(' without ')'")
                return found
            if not self.skip("AND"):
                self.fail(f"{self.parts[self.at].text!r} instead of AND or the end")

    def term(self) -> tuple[str, SortCondition]:
        first = self.take()
        if first.kind == "function" and first.text == "begins_with":
            self.expect("(")
            name = self.name(self.take())
            self.expect(",")
            prefix = self.value(self.take())
            self.expect(")")
            return name, SortCondition("begins_with", (prefix,))
        if first.kind not in ("path", "value"):
            self.fail(f"{first.text!r} instead of a key attribute")
        operator = self.take()
        if operator.text == "BETWEEN" and operator.kind == "keyword":
            name = self.name(first)
            low = self.value(self.take())
            self.expect("AND")
            return name, SortCondition("BETWEEN", (low, self.value(self.take())))
        if operator.text not in _FLIPPED:
            self.fail(f"{operator.text!r}, which cannot compare a key")
        second = self.take()
        if first.kind == "value":
            return self.name(second), SortCondition(_FLIPPED[operator.text], (self.value(first),))
        return self.name(first), SortCondition(operator.text, (self.value(second),))

    def name(self, part: Part) -> str:
        if part.kind != "path" or part.nested:
            self.fail(f"{part.text!r} instead of the name of a top-level key attribute")
        return name_of(self.params, part.text)

    def value(self, part: Part) -> WireValue:
        if part.kind != "value":
            self.fail(f"{part.text!r} instead of a :value")
        return value_of(self.params, part.text)

    def skip(self, text: str) -> bool:
        if self.at < len(self.parts) and self.parts[self.at].text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.skip(text):
            self.fail(f"{self.take().text!r} instead of {text}")

    def take(self) -> Part:
        if self.at == len(self.parts):
            self.fail("its end in the middle of a term")
        self.at += 1
        return self.parts[self.at - 1]

    def fail(self, wrong: str) -> NoReturn:
        raise UnsupportedExpressionError(
            f"KeyConditionExpression: {self.text!r} has {wrong}; it must be comparisons of key attributes with values "
            "(=, <, <=, >, >=, BETWEEN, begins_with), joined by AND; move everything else to FilterExpression"
        )
