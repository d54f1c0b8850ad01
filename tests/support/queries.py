"""Queries for tests: what they are keyed by, at random, written in each of boto3's styles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from boto3.dynamodb.conditions import Attr, ConditionBase, Key
from hypothesis import strategies as st

from tests.support.tables import Attribute, AttributeType

COMPARISONS = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "between": "BETWEEN", "begins_with": ""}
LEGACY = {"lte": "LE", "gte": "GE"}
"""The names of KeyConditions that are not those of boto3's conditions in upper case."""
STYLES = ("objects", "strings", "legacy", "legacy, conditions only")
"""How a Query is written; moto does not know AttributesToGet, and doubles items with QueryFilter."""
PROJECTIONS: tuple[tuple[str, dict[str, str]] | None, ...] = (
    None,
    ("keep", {}),
    ("keep, pk", {}),
    ("#in.#x, #in.many[1], keep", {"#in": "n", "#x": "x.y"}),
)

# Few values, so that index sort keys tie, and those that go wrong elsewhere: prefixes of each other, characters beyond
# U+FFFF (UTF-16 orders them otherwise), numbers that a float or 28 digits cannot tell apart.
VALUES: dict[AttributeType, list[Any]] = {
    "S": ["a", "a.1", "a.10", "b", "é", "\uffee", "\U0001f600", "\U0001f600a"],
    "N": [Decimal(text) for text in ("-1", "0", "0.1", "2", "10", "9" * 38, "9" * 37 + "8", "-" + "9" * 38)],
    "B": [b"\x00", b"a", b"a\x00", b"a.1", b"\x7f", b"\x80", b"\xff", b"\xff\x00"],
}


@dataclass(frozen=True)
class Shape:
    """What a pair of tables is keyed by: the types of the sort key `sk`, if there is one, and of the attribute `b`."""

    sort_key: AttributeType | None
    tie: AttributeType

    @property
    def ways(self) -> dict[str | None, Attribute | None]:
        """Every index (None: the table) with what it is sorted by."""
        tie: Attribute = ("b", self.tie)
        ways: dict[str | None, Attribute | None] = {None: ("sk", self.sort_key) if self.sort_key else None}
        if self.sort_key:
            ways["local"] = tie
        return {**ways, "same": tie, "same-alone": None, "city": tie, "city-pk": None}


SHAPES = {
    "strings": Shape("S", "S"),
    "numbers": Shape("N", "N"),
    "binary": Shape("B", "B"),
    "no sort key": Shape(None, "N"),
}


@dataclass(frozen=True)
class Query:
    index: str | None
    sort: str | None
    condition: tuple[str, tuple[Any, ...]] | None = None
    descending: bool = False
    filtered: bool = False
    projection: tuple[str, dict[str, str]] | None = None
    counting: bool = False
    consistent: bool = False
    style: str = "objects"

    def params(self, pk: str, city: str) -> dict[str, Any]:
        equals = {"city": city} if self.index in {"city", "city-pk"} else {"pk": pk}
        if self.index == "city-pk":
            equals["pk"] = pk
        return self.of(equals)

    def of(self, equals: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, with a partition key of these values."""
        params: dict[str, Any] = getattr(self, f"_{self.style.split(',')[0]}")(equals)
        if self.index:
            params["IndexName"] = self.index
        if self.descending:
            params["ScanIndexForward"] = False
        if self.counting:
            params["Select"] = "COUNT"
        if self.consistent:
            params["ConsistentRead"] = True
        return params

    def _objects(self, equals: Mapping[str, Any]) -> dict[str, Any]:
        first, *rest = (Key(name).eq(value) for name, value in equals.items())
        condition: ConditionBase = first
        for more in rest:
            condition &= more
        if self.condition is not None:
            op, values = self.condition
            condition &= getattr(Key(str(self.sort)), op)(*values)
        params: dict[str, Any] = {"KeyConditionExpression": condition}
        if self.filtered:
            params["FilterExpression"] = Attr("keep").eq(True) & ~Attr("n").eq("x")
        return {**params, **self._projected()}

    def _strings(self, equals: Mapping[str, Any]) -> dict[str, Any]:
        texts = [f"#{name} = :{name}" for name in equals]
        values: dict[str, Any] = {f":{name}": value for name, value in equals.items()}
        if self.condition is not None:
            op, operands = self.condition
            values.update({f":v{place}": value for place, value in enumerate(operands)})
            compared = f"#s {COMPARISONS[op]} {' AND '.join(f':v{place}' for place in range(len(operands)))}"
            texts.append("begins_with(#s, :v0)" if op == "begins_with" else compared)
        params: dict[str, Any] = {"KeyConditionExpression": " and ".join(texts), **self._projected()}
        names = {**params.get("ExpressionAttributeNames", {}), **{f"#{name}": name for name in equals}}
        if self.condition is not None:
            names["#s"] = self.sort
        if self.filtered:
            params["FilterExpression"] = "#k = :k AND NOT n = :k"
            names["#k"] = "keep"
            values[":k"] = True
        return {**params, "ExpressionAttributeNames": names, "ExpressionAttributeValues": values}

    def _legacy(self, equals: Mapping[str, Any]) -> dict[str, Any]:
        conditions = {
            name: {"AttributeValueList": [value], "ComparisonOperator": "EQ"} for name, value in equals.items()
        }
        if self.condition is not None:
            op, values = self.condition
            conditions[str(self.sort)] = {
                "AttributeValueList": list(values),
                "ComparisonOperator": LEGACY.get(op, op.upper()),
            }
        params: dict[str, Any] = {"KeyConditions": conditions}
        if self.style != "legacy":
            return params
        if self.filtered:
            params["QueryFilter"] = {"keep": {"AttributeValueList": [True], "ComparisonOperator": "EQ"}}
        if self.projection is not None and not self.counting:
            params["AttributesToGet"] = ["keep", "n"]
        return params

    def _projected(self) -> dict[str, Any]:
        if self.projection is None or self.counting:
            return {}
        text, names = self.projection
        return {"ProjectionExpression": text, **({"ExpressionAttributeNames": names} if names else {})}


def queries(
    shape: Shape, *, styles: Sequence[str] = STYLES, values: Mapping[AttributeType, Sequence[Any]] = VALUES
) -> st.SearchStrategy[Query]:
    """Any Query on a shape's tables, its sort keys compared with some of the values."""
    return queries_of(shape.ways, styles=styles, values=values)


def queries_of(
    ways: Mapping[str | None, Attribute | None],
    *,
    styles: Sequence[str] = STYLES,
    values: Mapping[AttributeType, Sequence[Any]] = VALUES,
    projections: Sequence[tuple[str, dict[str, str]] | None] = PROJECTIONS,
) -> st.SearchStrategy[Query]:
    """Any Query in one of these ways: on an index (None: the table) with what it is sorted by."""

    def on(index: str | None) -> st.SearchStrategy[Query]:
        sort = ways[index]
        return st.builds(
            Query,
            index=st.just(index),
            sort=st.just(sort[0] if sort else None),
            condition=_conditions(sort[1], values[sort[1]]) if sort else st.none(),
            descending=st.booleans(),
            filtered=st.booleans(),
            projection=st.sampled_from(projections),
            counting=st.sampled_from([False, False, False, True]),
            # The service refuses a consistent read of a global index.
            consistent=st.booleans() if index in {None, "local"} else st.just(False),
            style=st.sampled_from(styles),
        )

    return st.sampled_from(list(ways)).flatmap(on)


def _conditions(kind: AttributeType, values: Sequence[Any]) -> st.SearchStrategy[tuple[str, tuple[Any, ...]] | None]:
    value = st.sampled_from(values)
    singles = ["eq", "lt", "lte", "gt", "gte"] + (["begins_with"] if kind != "N" else [])
    between = st.tuples(value, value).map(lambda two: ("between", tuple(sorted(two))))
    return st.none() | between | st.tuples(st.sampled_from(singles), st.tuples(value))
