"""A table in memory that answers a Query's requests, as strict as the strictest engine, and runs machines on it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from shardkit.core.machine import Answer, Done, Machine, Send
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.expressions.key_condition import comparable, matches, parse_key_condition
from shardkit.dynamodb.values import WireItem
from shardkit.sharding.layout import Sharding
from shardkit.strategies import RandomSuffix, Strategy

Where = tuple[Any, ...]


def described(
    strategy: Strategy,
    types: Mapping[str, str],
    keys: Iterable[str],
    *,
    local: Mapping[str, tuple[Iterable[str], Iterable[str]]] | None = None,
    secondary: Mapping[str, tuple[Iterable[str], Iterable[str]]] | None = None,
    name: str = "orders",
) -> Sharding:
    """The sharding of a table: its partition key and sort key, its indexes by name as (partition, sort)."""
    partition, *sort = keys

    def schema(hashes: Iterable[str], ranges: Iterable[str]) -> list[dict[str, str]]:
        return [
            *({"AttributeName": name, "KeyType": "HASH"} for name in hashes),
            *({"AttributeName": name, "KeyType": "RANGE"} for name in ranges),
        ]

    def indexes(given: Mapping[str, tuple[Iterable[str], Iterable[str]]] | None) -> list[dict[str, Any]]:
        return [{"IndexName": index, "KeySchema": schema(*names)} for index, names in (given or {}).items()]

    return Sharding.described(
        name,
        strategy,
        {
            "KeySchema": schema([partition], sort),
            "AttributeDefinitions": [
                {"AttributeName": attribute, "AttributeType": kind} for attribute, kind in types.items()
            ],
            "LocalSecondaryIndexes": indexes(local),
            "GlobalSecondaryIndexes": indexes(secondary),
        },
    )


def many(shards: int = 3) -> Sharding:
    """One table with every kind of index; numbers are sort keys."""
    return described(
        RandomSuffix(shards),
        {"pk": "S", "sk": "N", "a": "N", "b": "S", "city": "S"},
        ["pk", "sk"],
        local={"by-a": (["pk"], ["a"])},
        secondary={
            "same-keys": (["pk"], ["sk"]),
            "no-sort": (["pk"], []),
            "with-a": (["pk"], ["a"]),
            "two-and-a": (["pk", "city"], ["a"]),
            "a-then-b": (["pk"], ["a", "b"]),
            "city": (["city"], ["a"]),
            "city-then-pk": (["city"], ["pk"]),
            "city-then-pk-then-a": (["city"], ["pk", "a"]),
        },
    )


def refused(code: str = "ValidationException", message: str = "refused") -> ClientError:
    """What boto3 raises when the service refuses."""
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": {}}, "Query")  # type: ignore[typeddict-item]


@dataclass
class ModelTable:
    """Stored items; a page without Limit ends after ``page`` of them.

    ``eager`` gives a LastEvaluatedKey whenever a page is full, as DynamoDB does, even if nothing comes behind it.
    """

    sharding: Sharding
    page: int = 1000
    eager: bool = True
    items: list[WireItem] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    evaluated: int = 0

    def put(self, item: Mapping[str, Any], shard: int | None) -> None:
        """Store a logical item (Python values) in a shard."""
        self.items.append(self.sharding.stored(to_wire_item(item), shard))

    def answer(self, send: Send) -> Answer:
        """Answer a Query."""
        assert send.operation == "Query"
        params = dict(send.params)
        self.asked.append(params)
        candidates = self._candidates(params)
        start = params.get("ExclusiveStartKey")
        if start is not None:
            position = self._checked_start(start, params, candidates)
            backwards = params.get("ScanIndexForward") is False
            candidates = [
                item
                for item in candidates
                if (self._where(item, params) < position if backwards else self._where(item, params) > position)
            ]
        size = params.get("Limit", self.page)
        found = candidates[:size]
        self.evaluated += len(found)
        response: dict[str, Any] = {
            "Items": [self._projected(item, params) for item in found if self._kept(item, params)],
            "ScannedCount": len(found),
            "ResponseMetadata": {"HTTPStatusCode": 200, "RequestId": str(len(self.asked))},
        }
        if params.get("ReturnConsumedCapacity"):
            response["ConsumedCapacity"] = {"TableName": "orders", "CapacityUnits": 0.5}
        if found and len(found) == size and (self.eager or len(candidates) > size):
            response["LastEvaluatedKey"] = {name: found[-1][name] for name in self._key_names(params)}
        return response

    def expected(
        self, rows: Iterable[tuple[Mapping[str, Any], int]], index: str | None, *, descending: bool
    ) -> list[Any]:
        """The logical items in the order that is promised: sort key, shard, order in the shard."""
        params = {"IndexName": index}
        sort = self.sharding.schema(index).sort
        stored = [(item, shard, self.sharding.stored(to_wire_item(item), shard)) for item, shard in rows]
        stored.sort(
            key=lambda row: (
                [comparable(row[2][name]) for name in sort if name != self.sharding.partition_key],
                row[1],
                self._where(row[2], params),
            ),
            reverse=descending,
        )
        return [from_wire_item(to_wire_item(item)) for item, _, _ in stored]

    def _key_names(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        names = self.sharding.schema(params.get("IndexName")).names + self.sharding.keys.names
        return tuple(dict.fromkeys(names))

    def _where(self, item: WireItem, params: Mapping[str, Any]) -> Where:
        index = params.get("IndexName")
        sort = tuple(comparable(item[name]) for name in self.sharding.schema(index).sort)
        if index is None:
            return sort
        # Where an index keeps equal sort keys is its own business: some fixed order.
        return *sort, hashlib.sha256(repr([item[name] for name in self.sharding.keys.names]).encode()).hexdigest()

    def _candidates(self, params: Mapping[str, Any]) -> list[WireItem]:
        names = self._key_names(params)
        found = [item for item in self.items if all(name in item for name in names) and _satisfies(item, params)]
        return sorted(
            found, key=lambda item: self._where(item, params), reverse=params.get("ScanIndexForward") is False
        )

    def _checked_start(self, start: WireItem, params: Mapping[str, Any], candidates: list[WireItem]) -> Where:
        if set(start) != set(self._key_names(params)) or not _satisfies(start, params):
            raise refused(message="The provided starting key is outside query boundaries")
        where = self._where(start, params)
        if params.get("IndexName") is not None:
            tied = [item for item in candidates if self._where(item, params)[:-1] == where[:-1]]
            assert not tied or where in [self._where(item, params) for item in tied], (
                "an index was given an invented key"
            )
        return where

    def _kept(self, item: WireItem, params: Mapping[str, Any]) -> bool:
        """A filter of a test is always ``keep = :yes``."""
        if "QueryFilter" in params:
            return bool(item.get("keep") == params["QueryFilter"]["keep"]["AttributeValueList"][0])
        return "FilterExpression" not in params or bool(item.get("keep") == params["ExpressionAttributeValues"][":yes"])

    def _projected(self, item: WireItem, params: Mapping[str, Any]) -> WireItem:
        wanted = params.get("AttributesToGet")
        if "ProjectionExpression" in params:
            given = params.get("ExpressionAttributeNames", {})
            wanted = [given.get(name.strip(), name.strip()) for name in params["ProjectionExpression"].split(",")]
        if wanted is None:
            return dict(item)
        if not all(wanted):
            raise refused(message="The expression can not be empty")
        return {name: item[name] for name in wanted if name in item}


def _satisfies(item: WireItem, params: Mapping[str, Any]) -> bool:
    condition = parse_key_condition(params)
    equal = all(bool(comparable(item[name]) == comparable(value)) for name, value in condition.equals.items())
    if not equal or condition.range is None:
        return equal
    name, sort_condition = condition.range
    return matches(sort_condition, item[name])


@dataclass
class Runner:
    """A driver for tests: keeps up to ``concurrency`` requests under way and answers them in any order."""

    table: ModelTable
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    concurrency: int = 10
    failing: Mapping[int, Exception] = field(default_factory=dict)
    """By the number of the request (from 0): the exception that it ends in."""

    def __post_init__(self) -> None:
        self._under_way: list[tuple[int, Send]] = []
        self._sent = 0

    def run(self, machine: Machine[Any]) -> Any:
        """Run the machine to its next result; a machine that streams can be run again."""
        while True:
            while len(self._under_way) < self.concurrency:
                step = machine.next(0.0)
                if isinstance(step, Done):
                    return step.value
                if not isinstance(step, Send):
                    break
                self._under_way.append((self._sent, step))
                self._sent += 1
            assert self._under_way, "the machine waits for nothing"
            number, send = self._under_way.pop(self.rng.randrange(len(self._under_way)))
            machine.receive(send, self._answer(number, send), 0.0)

    def _answer(self, number: int, send: Send) -> Answer:
        if number in self.failing:
            return self.failing[number]
        try:
            answer = self.table.answer(send)
            return answer if isinstance(answer, Exception) else send.answer(answer)
        except ClientError as error:
            return error
