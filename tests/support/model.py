"""A table in memory that answers Query and checks requests more strictly than any engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from shardkit.core.machine import Answer, Response, Send
from shardkit.dynamodb.decode import from_wire_item
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.expressions.key_condition import matches, parse_key_condition, sort_value
from shardkit.dynamodb.values import WireItem
from shardkit.sharding.layout import Sharding
from tests.support.fakes import client_error


@dataclass
class ModelTable:
    """Stored items; a page ends after ``page`` of them, as one of 1 MB does.

    ``eager``: return a LastEvaluatedKey whenever a page is full, as DynamoDB does, even if no item follows.
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
        """Answer a Query, or return the error that it ends in."""
        assert send.operation == "Query"
        try:
            return self._page(dict(send.params))
        except ClientError as error:
            return error

    def _page(self, params: dict[str, Any]) -> Response:
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
        size = min(params.get("Limit", self.page), self.page)
        found = candidates[:size]
        self.evaluated += len(found)
        response: Response = {
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
        """Return the logical items in the promised order: by sort key, shard, and order in the shard."""
        params = {"IndexName": index}
        sort = self.sharding.schema(index).sort
        stored = [(item, shard, self.sharding.stored(to_wire_item(item), shard)) for item, shard in rows]
        stored.sort(
            key=lambda row: (
                [sort_value(row[2][name]) for name in sort if name != self.sharding.partition_key],
                row[1],
                self._where(row[2], params),
            ),
            reverse=descending,
        )
        return [from_wire_item(to_wire_item(item)) for item, _, _ in stored]

    def _key_names(self, params: Mapping[str, Any]) -> tuple[str, ...]:
        names = self.sharding.schema(params.get("IndexName")).names + self.sharding.keys.names
        return tuple(dict.fromkeys(names))

    def _where(self, item: WireItem, params: Mapping[str, Any]) -> tuple[Any, ...]:
        index = params.get("IndexName")
        sort = tuple(sort_value(item[name]) for name in self.sharding.schema(index).sort)
        if index is None:
            return sort
        # An index keeps items with equal sort keys in an unspecified, fixed order.
        return *sort, hashlib.sha256(repr([item[name] for name in self.sharding.keys.names]).encode()).hexdigest()

    def _candidates(self, params: Mapping[str, Any]) -> list[WireItem]:
        names = self._key_names(params)
        found = [item for item in self.items if all(name in item for name in names) and _satisfies(item, params)]
        return sorted(
            found, key=lambda item: self._where(item, params), reverse=params.get("ScanIndexForward") is False
        )

    def _checked_start(self, start: WireItem, params: Mapping[str, Any], candidates: list[WireItem]) -> tuple[Any, ...]:
        if set(start) != set(self._key_names(params)) or not _satisfies(start, params):
            raise client_error(message="The provided starting key is outside query boundaries")
        where = self._where(start, params)
        if params.get("IndexName") is not None:
            tied = [item for item in candidates if self._where(item, params)[:-1] == where[:-1]]
            assert not tied or self._was_there(start) or where in [self._where(item, params) for item in tied], (
                "an index was given an invented key"
            )
        return where

    def _was_there(self, key: WireItem) -> bool:
        """Whether an item was at a key when a page ended there: the service still continues after it."""
        return False

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
            raise client_error(message="The expression can not be empty")
        return {name: item[name] for name in wanted if name in item}


def _satisfies(item: WireItem, params: Mapping[str, Any]) -> bool:
    condition = parse_key_condition(params)
    equal = all(bool(sort_value(item[name]) == sort_value(value)) for name, value in condition.equals.items())
    if not equal or condition.range is None:
        return equal
    name, sort_condition = condition.range
    return matches(sort_condition, item[name])
