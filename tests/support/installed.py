"""A library's calls on an engine, plain or sharded by ``install``, and what they leave in the table."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import shardkit
from shardkit import CalculatedSuffix, RandomSuffix
from shardkit.strategies import Strategy
from tests.support.tables import Attribute, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

SHARDS = 4


@dataclass(frozen=True)
class Setting:
    """An engine, and whether the calls of the library under test are sharded."""

    resource: DynamoDBServiceResource
    """Never installed: what it reads is what is stored."""

    sharded: bool

    @property
    def url(self) -> str:
        return self.resource.meta.client.meta.endpoint_url

    def make_table(self, partition_key: str = "pk", sort_key: str | None = "sk") -> Table:
        sort: Attribute | None = None if sort_key is None else (sort_key, "S")
        return make_table(self.resource, (partition_key, "S"), sort, name=f"library-{uuid.uuid4().hex}")

    def install(self, target: Any, table: str, by: str | None = "sk") -> AbstractContextManager[Any]:
        """Shard the table, if this is the sharded run: by its sort key; at random if it has only a partition key."""
        return shardkit.install(target, self._strategies(table, by)) if self.sharded else nullcontext()

    def install_everywhere(self, table: str, by: str | None = "sk") -> AbstractContextManager[Any]:
        return shardkit.install_everywhere(self._strategies(table, by)) if self.sharded else nullcontext()

    @staticmethod
    def _strategies(table: str, by: str | None) -> dict[str, Strategy]:
        return {table: RandomSuffix(SHARDS, locate=True) if by is None else CalculatedSuffix(by, shards=SHARDS)}

    def assert_stored(self, table: Table, items: Mapping[str, int]) -> None:
        """Check the number of items of each logical key; in the sharded run also that all of them have suffixes.

        The items of a key that has at least 10 must be on several shards.
        """
        found: dict[str, list[int | None]] = defaultdict(list)
        partition_key = next(key["AttributeName"] for key in table.key_schema if key["KeyType"] == "HASH")
        strategy = RandomSuffix(SHARDS)
        for page in self.resource.meta.client.get_paginator("scan").paginate(TableName=table.name):
            for item in page["Items"]:
                stored: Any = item[partition_key]
                key, shard = strategy.split(stored) if self.sharded else (stored, None)
                found[str(key)].append(shard)
        assert {key: len(shards) for key, shards in found.items()} == dict(items)
        if not self.sharded:
            return
        assert all(shard is not None for shards in found.values() for shard in shards)
        for key, shards in found.items():
            assert len(shards) < 10 or len(set(shards)) > 1, key
