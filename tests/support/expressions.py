"""Evaluates the expressions that requests carry, on items in wire form: a second opinion, apart from the package's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from shardkit.dynamodb.values import WireItem, WireValue, comparable

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),+-]|:\w+|[#\w.\[\]]+)")
_COMPARES: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: comparable(a) == comparable(b),
    "<>": lambda a, b: comparable(a) != comparable(b),
    "<": lambda a, b: _ordered(a, b) and _plain(a) < _plain(b),
    "<=": lambda a, b: _ordered(a, b) and _plain(a) <= _plain(b),
    ">": lambda a, b: _ordered(a, b) and _plain(a) > _plain(b),
    ">=": lambda a, b: _ordered(a, b) and _plain(a) >= _plain(b),
}
_Test = Callable[[WireItem], bool]
_Value = Callable[[WireItem], "WireValue | None"]


def holds(params: Mapping[str, Any], item: WireItem, parameter: str = "ConditionExpression") -> bool:
    """Return whether an item (``{}``: there is none) satisfies a request's condition or filter."""
    text = params.get(parameter)
    if text is None:
        return True
    assert not {"Expected", "QueryFilter", "ScanFilter", "AttributeUpdates"} & params.keys()
    return _Reader(text, params).condition()(item)


def updated(params: Mapping[str, Any], item: WireItem) -> WireItem:
    """Return an item after a request's ``UpdateExpression``."""
    new = dict(item)
    text = params.get("UpdateExpression", "")
    clauses = re.split(r"\b(SET|REMOVE|ADD|DELETE)\b", text, flags=re.IGNORECASE)
    assert not clauses[0].strip()
    for clause, body in zip(clauses[1::2], clauses[2::2], strict=True):
        reader = _Reader(body, params)
        while True:
            name = reader.path()
            if clause.upper() == "SET":
                reader.expect("=")
                value = reader.sum()(item)
                assert value is not None, f"{name}: the operand is missing; the service refuses it"
                new[name] = value
            elif clause.upper() == "REMOVE":
                new.pop(name, None)
            else:
                assert clause.upper() == "ADD"
                added = reader.operand()(item)
                assert added is not None
                new[name] = _sum(new.get(name, {"N": "0"}), added, 1)
            if not reader.skip(","):
                break
        reader.end()
    return new


def projected(params: Mapping[str, Any], item: WireItem) -> WireItem:
    """Return the attributes of an item that a read's ``ProjectionExpression`` selects (top-level ones)."""
    text = params.get("ProjectionExpression")
    if text is None:
        return dict(item)
    names = params.get("ExpressionAttributeNames", {})
    wanted = [names.get(name.strip(), name.strip()) for name in text.split(",")]
    return {name: item[name] for name in wanted if name in item}


class _Reader:
    """Reads one expression, from left to right."""

    def __init__(self, text: str, params: Mapping[str, Any]) -> None:
        self._tokens, self._at = _tokens(text), 0
        self._names = params.get("ExpressionAttributeNames") or {}
        self._values = params.get("ExpressionAttributeValues") or {}

    def condition(self) -> _Test:
        test = self._or()
        self.end()
        return test

    def _or(self) -> _Test:
        tests = [self._and()]
        while self.skip("OR"):
            tests.append(self._and())
        return lambda item: any(test(item) for test in tests)

    def _and(self) -> _Test:
        tests = [self._not()]
        while self.skip("AND"):
            tests.append(self._not())
        return lambda item: all(test(item) for test in tests)

    def _not(self) -> _Test:
        if self.skip("NOT"):
            test = self._not()
            return lambda item: not test(item)
        if self.skip("("):
            test = self._or()
            self.expect(")")
            return test
        if self._next in {"attribute_exists", "attribute_not_exists", "begins_with", "contains"}:
            return self._function()
        left = self.operand()
        if self.skip("BETWEEN"):
            low = self.operand()
            self.expect("AND")
            high = self.operand()
            return lambda item: _both(">=", left, low)(item) and _both("<=", left, high)(item)
        if self.skip("IN"):
            self.expect("(")
            among = [self.operand()]
            while self.skip(","):
                among.append(self.operand())
            self.expect(")")
            return lambda item: any(_both("=", left, one)(item) for one in among)
        return _both(self._take(), left, self.operand())

    def _function(self) -> _Test:
        function = self._take()
        self.expect("(")
        path = self.path()
        if function.startswith("attribute"):
            self.expect(")")
            return lambda item: (path in item) == (function == "attribute_exists")
        self.expect(",")
        operand = self.operand()
        self.expect(")")

        def test(item: WireItem) -> bool:
            value, wanted = item.get(path), operand(item)
            if value is None or wanted is None:
                return False
            text, part = _plain(value), _plain(wanted)
            return bool(text.startswith(part) if function == "begins_with" else part in text)

        return test

    def sum(self) -> _Value:
        left = self.operand()
        if self._next not in {"+", "-"}:
            return left
        sign = 1 if self._take() == "+" else -1
        right = self.operand()
        return lambda item: _sum(left(item), right(item), sign)

    def operand(self) -> _Value:
        if self.skip("if_not_exists"):
            self.expect("(")
            path = self.path()
            self.expect(",")
            other = self.operand()
            self.expect(")")
            return lambda item: item[path] if path in item else other(item)
        if self._next.startswith(":"):
            value = self._values[self._take()]
            return lambda _: value
        path = self.path()
        return lambda item: item.get(path)

    def path(self) -> str:
        token = self._take()
        assert re.fullmatch(r"#?\w+", token), f"{token}: only top-level attributes are evaluated here"
        return str(self._names[token]) if token.startswith("#") else token

    def skip(self, token: str) -> bool:
        if self._next.upper() != token.upper():
            return False
        self._at += 1
        return True

    def expect(self, token: str) -> None:
        assert self.skip(token), f"expected {token!r}, got {self._next!r} in {self._tokens}"

    def end(self) -> None:
        assert not self._next, f"{self._next!r} is left over in {self._tokens}"

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]


@cache
def _tokens(text: str) -> tuple[str, ...]:
    found = tuple(_TOKEN.findall(text))
    assert "".join(found) == "".join(text.split()), f"{text!r}: not understood"
    return found


def _both(compare: str, left: _Value, right: _Value) -> _Test:
    def test(item: WireItem) -> bool:
        a, b = left(item), right(item)
        return a is not None and b is not None and _COMPARES[compare](a, b)

    return test


def _ordered(a: WireValue, b: WireValue) -> bool:
    return a.keys() == b.keys()


def _plain(value: WireValue) -> Any:
    ((letter, content),) = value.items()
    return Decimal(content) if letter == "N" else content


def _sum(left: WireValue | None, right: WireValue | None, sign: int) -> WireValue:
    assert left is not None, "an operand is missing; the service refuses it"
    assert right is not None, "an operand is missing; the service refuses it"
    return {"N": str(Decimal(left["N"]) + sign * Decimal(right["N"]))}
