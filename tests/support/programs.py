"""Random programs of operations on one table, drawn from a seed: the same seed is the same program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, Unsharded
from shardkit.strategies import Strategy
from tests.support.queries import VALUES, Query
from tests.support.tables import AttributeType

TABLE = "the table"
"""Stands for the table's name in the parameters of an operation."""
KINDS = ("calculated", "of both keys", "ranges", "located", "adopted", "doubled", "fewer")
MOVES = {"adopted": Unsharded(), "doubled": CalculatedSuffix("sk", 2), "fewer": CalculatedSuffix("sk", 4)}
"""The old strategy of each kind that moves."""
POSITIONS = 9
"""Of a move: two processes are in the stages 0 and 0, then 0 and 1, then 1 and 1, …, at last 4 and 4."""

_NAMES = ("B", "S", "N", "BS", "M", "L", "v")
_NUMBERS = [Decimal(text) for text in ("0", "1", "-2", "1.5", "1000", "0.1")]
_PROJECTIONS: Sequence[tuple[str, dict[str, str]] | None] = (
    None,
    ("n, pk", {}),
    ("sk, #B", {"#B": "B"}),
    ("#B, #N[0], #M.#S, pk", {"#B": "B", "#N": "N", "#M": "M", "#S": "S"}),
)
_CONDITIONS = (
    "attribute_exists(pk)", "attribute_not_exists(pk)", "n = :n", "#B = :v OR attribute_not_exists(#B)",
    "contains(#S, :v)", "size(#B) > :n", "pk = :pk AND attribute_exists(sk)", "sk <> :b OR n < :n",
    "attribute_type(#B, :t)", "city IN (:city) OR NOT pk = :pk",
)  # fmt: skip
_UPDATES = (
    "SET n = :n", "ADD n :n SET #B = :v", "SET #B = :v, #S = :w", "REMOVE #B, #S", "ADD #S :set", "DELETE #S :set",
    "SET #N = list_append(if_not_exists(#N, :l), :l)", "SET #S = :v, b = :b", "REMOVE b", "SET city = :city",
    "REMOVE city SET n = n + :n", "SET #M.#S = :v",
)  # fmt: skip


@dataclass(frozen=True)
class Op:
    """An operation: its parameters have Python values. ``process``: which of two makes it; ``limit``: of a page.

    ``advance`` brings the move to the position ``limit``; ``move`` lets a mover run, for ``limit`` requests at most.
    """

    number: int
    name: str
    params: Mapping[str, Any]
    process: int = 0
    limit: int | None = None
    sort: str | None = None


@dataclass(frozen=True)
class Program:
    """Operations on a table of some kind. ``faults``: the share of requests that fail."""

    seed: int
    kind: str
    face: str
    """What the caller has: a client, or a resource."""
    cached: bool
    index: bool
    """Whether the index by city is sharded, in place."""
    faults: float
    types: tuple[AttributeType, AttributeType]
    pks: Sequence[Any]
    sks: Sequence[Any]
    ops: Sequence[Op] = ()

    @property
    def strategy(self) -> Strategy:
        made: Mapping[str, Strategy] = {
            "of both keys": CalculatedSuffix(("pk", "sk"), 2, separator="#", first=9),
            "ranges": RangeSuffix("sk", sorted(self.sks[2:5:2])),
            "located": RandomSuffix(3, locate=True),
            "doubled": CalculatedSuffix("sk", 4),
        }
        return made.get(self.kind, CalculatedSuffix("sk", 3))


def program(seed: int, length: int = 30) -> Program:
    draw = _Draw(seed)
    return replace(draw.made, ops=list(draw.ops(length)))


class _Draw:
    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(seed)
        types: tuple[AttributeType, AttributeType] = (rng.choice(("S", "B")), rng.choice(("S", "N", "B", "B")))
        kind, face = rng.choice(KINDS), rng.choice(("client", "resource"))
        cached, index = rng.random() < 0.3, kind in {"calculated", "ranges"} and rng.random() < 0.5
        # A key that looks like another's shard is refused where a table without suffixes is adopted.
        pks = ("k", "j") if kind in MOVES else ("k", "k.1")
        sks = rng.sample(VALUES[types[1]], 7)
        some = [pk if types[0] == "S" else pk.encode() for pk in pks]
        self.made = Program(seed, kind, face, cached, index, rng.choice((0, 0.2, 0.4)), types, some, sks)

    def ops(self, length: int) -> Iterator[Op]:
        rng, position = self.rng, 0
        yield Op(0, *self.several("BatchWriteItem"))
        for number in range(1, length):
            process, way = rng.randrange(2), rng.random()
            if self.made.kind in MOVES and (way < 0.1 or number == 1):
                if rng.random() < 0.3:
                    yield Op(number, "move", {}, limit=rng.choice((None, 5, 20)))
                else:
                    position = min(POSITIONS - 1, position + (rng.randrange(8) if number == 1 else 1))
                    yield Op(number, "advance", {}, limit=position)
            elif way < 0.35:
                yield self.read(number, process)
            else:
                kinds = ("BatchWriteItem", "BatchGetItem") * 2 + ("TransactWriteItems", "TransactGetItems")
                name, params = self.several(rng.choice(kinds)) if way < 0.65 else self.single()
                params |= {"ReturnConsumedCapacity": rng.choice(("TOTAL", "INDEXES"))} if rng.random() < 0.2 else {}
                yield Op(number, name, params, process)

    # Values.
    def keys(self, most: int) -> list[dict[str, Any]]:
        pairs = [(pk, sk) for pk in self.made.pks for sk in self.made.sks]
        return [{"pk": pk, "sk": self.form(sk)} for pk, sk in self.rng.sample(pairs, self.rng.randint(1, most))]

    def form(self, value: Any) -> Any:
        """Write a number of few digits in one of its forms."""
        few = isinstance(value, Decimal) and abs(value) < 1000
        return value * self.rng.choice((1, Decimal("1.00"), Decimal("1E+0"))) if few else value

    def value(self, depth: int = 0) -> Any:
        rng, way = self.rng, self.rng.randrange(8 if depth > 2 else 10)
        if way == 8:
            return [self.value(depth + 1) for _ in range(rng.randrange(3))]
        if way == 9:
            return {name: self.value(depth + 1) for name in rng.sample(_NAMES, rng.randrange(3))}
        sets: Sequence[Sequence[Any]] = (["a", "é"], _NUMBERS[:2], [b"", b"\xff"])
        if way > 4:
            return set(rng.sample(sets[way - 5], rng.randint(1, 2)))
        texts, numbers, binary = ["", "AAH/", "é\U0001f600"], _NUMBERS, [b"", b"\xfb\xff", *VALUES["B"]]
        return (rng.choice(texts), rng.choice(numbers), rng.choice(binary), rng.random() < 0.5, None)[way]

    def item(self, key: Mapping[str, Any]) -> dict[str, Any]:
        rng = self.rng
        item = {**key, **{name: self.value() for name in rng.sample(_NAMES, rng.randrange(4))}}
        more = {"n": rng.choice(_NUMBERS), "b": rng.choice(self.made.sks), "city": rng.choice("rs"), "keep": True}
        return item | {name: value for name, value in more.items() if rng.random() < 0.7}

    def expressions(self, update: str, conditions: float) -> dict[str, Any]:
        rng = self.rng
        given: dict[str, Any] = {"UpdateExpression": update} if update else {}
        if rng.random() < conditions:
            given["ConditionExpression"] = rng.choice(_CONDITIONS)
            if rng.random() < 0.5:
                given["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        text = f"{update} {given.get('ConditionExpression', '')}"
        values = {
            ":n": rng.choice(_NUMBERS), ":v": self.value(), ":w": self.value(), ":l": [self.value()],
            ":pk": rng.choice(self.made.pks), ":b": rng.choice(self.made.sks), ":t": rng.choice(_NAMES[:6]),
            ":city": rng.choice("rs"), ":set": {"a", "b"},
        }  # fmt: skip
        if used := sorted(set(re.findall(r":\w+", text))):
            given["ExpressionAttributeValues"] = {name: values[name] for name in used}
        if names := sorted(set(re.findall(r"#(\w+)", text))):
            given["ExpressionAttributeNames"] = {f"#{name}": name for name in names}
        return given

    def shown(self) -> dict[str, Any]:
        """How a read shows what it finds."""
        given: dict[str, Any] = {"ConsistentRead": True} if self.rng.random() < 0.3 else {}
        text, names = self.rng.choice(_PROJECTIONS) or ("", {})
        given |= {"ProjectionExpression": text} if text else {}
        return given | ({"ExpressionAttributeNames": names} if names else {})

    # Operations.
    def single(self) -> tuple[str, dict[str, Any]]:
        kind, (key,) = self.rng.choice(("Put", "Put", "Update", "Delete", "Get")), self.keys(1)
        if kind == "Get":
            return "GetItem", {"TableName": TABLE, "Key": key, **self.shown()}
        returned = ("NONE", "ALL_OLD", *(("ALL_NEW", "UPDATED_OLD", "UPDATED_NEW") if kind == "Update" else ()))
        more = {"ReturnItemCollectionMetrics": "SIZE"} if self.rng.random() < 0.2 else {}
        return f"{kind}Item", {**self.write(kind, key, 0.4), **more, "ReturnValues": self.rng.choice(returned)}

    def write(self, kind: str, key: dict[str, Any], conditions: float) -> dict[str, Any]:
        item = {"Item": self.item(key)} if kind == "Put" else {"Key": key}
        if kind == "Put" and self.rng.random() < 0.03:
            item["Item"]["b"] = {"of": "a wrong type"}  # refused, because of the indexes
        update = self.rng.choice(_UPDATES) if kind == "Update" else ""
        return {"TableName": TABLE, **item, **self.expressions(update, conditions)}

    def several(self, name: str) -> tuple[str, dict[str, Any]]:
        rng, keys = self.rng, self.keys(14 if name.startswith("Batch") else 6)
        if name.startswith("Batch") and self.made.faults == 0 and rng.random() < 0.1:
            keys.append(keys[0])  # the service refuses it; faults would hide it from the service
        parts: list[Any] = []
        if name == "BatchGetItem":
            return name, {"RequestItems": {TABLE: {"Keys": keys, **self.shown()}}}
        if name == "BatchWriteItem":
            for key in keys:
                put = rng.random() < 0.7
                parts.append({"PutRequest": {"Item": self.item(key)}} if put else {"DeleteRequest": {"Key": key}})
            return name, {"RequestItems": {TABLE: parts}}
        for key in keys:
            if name == "TransactGetItems":
                # dynoxide shows the keys, whatever the projection.
                shown = {"ProjectionExpression": "n, pk, sk"} if rng.random() < 0.3 else {}
                parts.append({"Get": {"TableName": TABLE, "Key": key, **shown}})
            else:
                kind = rng.choice(("Put", "Put", "Update", "Delete", "ConditionCheck"))
                parts.append({kind: self.write(kind, key, 1 if kind == "ConditionCheck" else 0.2)})
        return name, {"TransactItems": parts}

    def read(self, number: int, process: int) -> Op:
        rng, made, limit = self.rng, self.made, self.rng.choice((None, 1, 2, 5))
        if rng.random() < 0.2 and made.kind not in MOVES:
            given: dict[str, Any] = {"TableName": TABLE, **self.shown()}
            given |= {"FilterExpression": "attribute_exists(n)"} if rng.random() < 0.5 else {}
            if rng.random() < 0.3:
                given = {"TableName": TABLE, "IndexName": rng.choice(("local", "same", "city"))}
            return Op(number, "Scan", given, process, limit)
        index = rng.choice((None, None, "local", "same", "city"))
        compared = rng.choice((None, "eq", "lt", "lte", "gt", "gte", "between", "begins_with"))
        operands = tuple(map(self.form, sorted(rng.sample(made.sks, 2 if compared == "between" else 1))))
        none = compared is None or (compared == "begins_with" and made.types[1] == "N")
        query = Query(
            index,
            "b" if index else "sk",
            None if none else (str(compared), operands),
            descending=rng.random() < 0.5,
            filtered=rng.random() < 0.4,
            projection=rng.choice(_PROJECTIONS),
            counting=rng.random() < 0.1,
            consistent=index in {None, "local"} and rng.random() < 0.5,
            style=rng.choice(("strings", "strings", "legacy", "legacy, conditions only")),
        )
        equals = {"city": rng.choice("rs")} if index == "city" else {"pk": rng.choice(made.pks)}
        given = {"TableName": TABLE, **query.of(equals)}
        if index is None and none and made.kind != "located" and rng.random() < 0.3:
            given["ExclusiveStartKey"] = {**equals, "sk": self.form(rng.choice(made.sks))}
        return Op(number, "Query", given, process, limit, query.sort)
