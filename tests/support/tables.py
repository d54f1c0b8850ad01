"""Tables for tests: any key schema, on any engine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource
    from mypy_boto3_dynamodb.service_resource import Table
    from mypy_boto3_dynamodb.type_defs import (
        CreateTableInputServiceResourceCreateTableTypeDef,
        KeySchemaElementTypeDef,
        ProjectionTypeDef,
    )

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
    """A global secondary index; a key of several attributes is a list of them."""

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
    attributes: dict[str, AttributeType] = {}

    def schema(
        partition: Attribute | list[Attribute], sort: Attribute | list[Attribute] | None
    ) -> list[KeySchemaElementTypeDef]:
        elements: list[KeySchemaElementTypeDef] = []
        for attribute, kind in _several(partition):
            attributes[attribute] = kind
            elements.append({"AttributeName": attribute, "KeyType": "HASH"})
        for attribute, kind in _several(sort):
            attributes[attribute] = kind
            elements.append({"AttributeName": attribute, "KeyType": "RANGE"})
        return elements

    request: CreateTableInputServiceResourceCreateTableTypeDef = {
        "TableName": name or f"table-{uuid.uuid4().hex}",
        "KeySchema": schema(partition_key, sort_key),
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [],
    }
    # An empty list of indexes is a ValidationException: what a table does not have is left out.
    if local_indexes:
        request["LocalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": schema(partition_key, index.sort_key),
                "Projection": _projection(index.projection),
            }
            for index in local_indexes
        ]
    if global_indexes:
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": schema(index.partition_key, index.sort_key),
                "Projection": _projection(index.projection),
            }
            for index in global_indexes
        ]
    request["AttributeDefinitions"] = [
        {"AttributeName": attribute, "AttributeType": kind} for attribute, kind in attributes.items()
    ]
    table = resource.create_table(**request)
    # Here every engine has the table ready at once; the waiter's first look then finds it, and it never sleeps.
    table.wait_until_exists()
    return table


def _several(key: Attribute | list[Attribute] | None) -> list[Attribute]:
    if key is None:
        return []
    return key if isinstance(key, list) else [key]


def _projection(projection: Literal["ALL", "KEYS_ONLY"] | tuple[str, ...]) -> ProjectionTypeDef:
    if isinstance(projection, tuple):
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(projection)}
    return {"ProjectionType": projection}
