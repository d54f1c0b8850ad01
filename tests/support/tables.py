"""Tables for tests: any key schema, on any engine, and as shardkit knows them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shardkit.migrate import between
from shardkit.sharding.layout import Sharding
from shardkit.sharding.seam import Operations
from shardkit.strategies import RandomSuffix, Strategy

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

AttributeType = Literal["S", "N", "B"]
Attribute = tuple[str, AttributeType]
"""A key attribute: its name and type."""


@dataclass(frozen=True)
class LocalIndex:
    """A local secondary index: the table's partition key and another sort key."""

    name: str
    sort_key: Attribute
    projection: Literal["ALL", "KEYS_ONLY"] | tuple[str, ...] = "ALL"


@dataclass(frozen=True)
class GlobalIndex:
    name: str
    partition_key: Attribute | list[Attribute]
    sort_key: Attribute | list[Attribute] | None = None
    projection: Literal["ALL", "KEYS_ONLY"] | tuple[str, ...] = "ALL"


def make_table(
    resource: DynamoDBServiceResource,
    partition_key: Attribute = ("pk", "S"),
    sort_key: Attribute | None = None,
    *,
    local_indexes: Sequence[LocalIndex] = (),
    global_indexes: Sequence[GlobalIndex] = (),
    name: str | None = None,
) -> Table:
    """Create a table that is ready for use, under a name that no other test has."""
    types: dict[str, AttributeType] = {}

    def schema(*keys: Attribute | list[Attribute] | None) -> list[dict[str, str]]:
        partition, sort = ([] if key is None else key if isinstance(key, list) else [key] for key in keys)
        types.update([*partition, *sort])
        return _key_schema([attribute for attribute, _ in partition], [attribute for attribute, _ in sort])

    def described(index: LocalIndex | GlobalIndex) -> dict[str, Any]:
        projection: dict[str, Any] = {"ProjectionType": index.projection}
        if isinstance(index.projection, tuple):
            projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.projection)}
        partition = partition_key if isinstance(index, LocalIndex) else index.partition_key
        return {"IndexName": index.name, "KeySchema": schema(partition, index.sort_key), "Projection": projection}

    request: dict[str, Any] = {
        "TableName": name or f"table-{uuid.uuid4().hex}",
        "KeySchema": schema(partition_key, sort_key),
        "BillingMode": "PAY_PER_REQUEST",
    }
    for kind, indexes in ("Local", local_indexes), ("Global", global_indexes):
        if indexes:  # the service refuses an empty list
            request[f"{kind}SecondaryIndexes"] = [described(index) for index in indexes]
    table = resource.create_table(**request | {"AttributeDefinitions": _definitions(types)})
    if table.table_status != "ACTIVE":  # moto and the engines have it ready at once, and say so in their answer
        table.wait_until_exists()
    return table


IndexKeys = Mapping[str, tuple[Iterable[str], Iterable[str]]]
"""The key schemas of indexes by name: the attributes of the partition key, and those of the sort key."""


def described(
    strategy: Strategy,
    types: Mapping[str, str],
    keys: Iterable[str],
    *,
    local: IndexKeys | None = None,
    secondary: IndexKeys | None = None,
    sharded: Mapping[str, Strategy] | None = None,
    keys_only: Iterable[str] = (),
    name: str = "orders",
) -> Operations:
    partition, *sort = keys

    def indexes(given: IndexKeys | None) -> list[dict[str, Any]]:
        return [
            {
                "IndexName": index,
                "KeySchema": _key_schema(*names),
                "Projection": {"ProjectionType": "KEYS_ONLY" if index in keys_only else "ALL"},
            }
            for index, names in (given or {}).items()
        ]

    return between.described(
        name,
        strategy,
        {
            "KeySchema": _key_schema([partition], sort),
            "AttributeDefinitions": _definitions(types),
            "LocalSecondaryIndexes": indexes(local),
            "GlobalSecondaryIndexes": indexes(secondary),
        },
        sharded=sharded,
    )


def many(shards: int | Strategy = 3) -> Sharding:
    """One table with every kind of index; numbers are sort keys."""
    return described(
        RandomSuffix(shards) if isinstance(shards, int) else shards,
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


def _key_schema(partition: Iterable[str], sort: Iterable[str]) -> list[dict[str, str]]:
    return [
        *({"AttributeName": attribute, "KeyType": "HASH"} for attribute in partition),
        *({"AttributeName": attribute, "KeyType": "RANGE"} for attribute in sort),
    ]


def _definitions(types: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": attribute, "AttributeType": kind} for attribute, kind in types.items()]
