"""A table on an engine with an estimator, and where engines count in another way than the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3

from shardkit.capacity import CapacityEstimator, TableUnits
from shardkit.dynamodb.values import WireItem
from tests.support.engines import EngineName
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

Key = tuple[str, int]

# Where engines are known to part from the rules: rows of the table in docs/reference/sizes-and-units.md.
EMPTY_QUERY = "a Query that finds nothing"
MISSING_GET = "BatchGetItem of a key that has no item"
MISSING_DELETE = "BatchWriteItem that deletes what is not there"
TRANSACTION = "TransactWriteItems that puts an item with three index entries"
INDEX_SCAN = "Scan of a global index (`KEYS_ONLY`) of an item of 5 KB"
LOCAL_SCAN = "Scan of a local index (`KEYS_ONLY`) of an item of 1 KB"
LOCAL_PROJECTION = "Query of a local index for a projected attribute of an item of 5 KB"
LOCAL_FETCH = "Query of a local index for an attribute of an item of 5 KB that is not projected"
LOCAL_FETCH_ALL = "Query of a local index for all attributes of three items of 5 KB"
LOCAL_SIZE = "put of an item of 1,024 bytes with an entry in a local index (`ALL`)"
STRADDLING = "put of 1,024 bytes with a number whose pairs of digits straddle the point (`0.015`)"
LONGEST = "put of 1,025 bytes with `-1.2345678901234567890123456789012345678`"
HALVES = "put of an item that had one half of an index's key, and has the other"

LOCAL_INDEXES = (
    LocalIndex("local.keys", ("when", "N"), "KEYS_ONLY"),
    LocalIndex("local.include", ("when", "N"), ("note", "pad")),
    LocalIndex("local.all", ("owner", "S")),
)
GLOBAL_INDEXES = (
    GlobalIndex("keys", ("owner", "S"), projection="KEYS_ONLY"),
    GlobalIndex("include", ("owner", "S"), ("when", "N"), ("note", "pad")),
    GlobalIndex("all", ("when", "N")),
    GlobalIndex("turned", ("sk", "N"), ("pk", "S"), ("pad",)),
)


class Parting(NamedTuple):
    """Units, of the table + of its indexes, where an engine parts from the rules."""

    rules: str
    dynoxide: str
    dynamodb_local: str


PARTINGS = {
    EMPTY_QUERY: Parting("0.5 + 0", "0.5 + 0", "0 + 0"),
    MISSING_GET: Parting("0.5 + 0", "0.5 + 0", "0 + 0"),
    MISSING_DELETE: Parting("1 + 0", "1 + 0", "2 + 0"),
    TRANSACTION: Parting("2 + 3", "2 + 3", "2 + 6"),
    INDEX_SCAN: Parting("0 + 0.5", "0 + 0.5", "0 + 1"),
    LOCAL_SCAN: Parting("0 + 0.5", "0.5 + 0", "0 + 0.5"),
    LOCAL_PROJECTION: Parting("0 + 0.5", "0 + 0.5", "1 + 0.5"),
    LOCAL_FETCH: Parting("1 + 0.5", "0 + 0.5", "1 + 0.5"),
    LOCAL_FETCH_ALL: Parting("3 + 0.5", "2 + 0.5", "3 + 0.5"),
    LOCAL_SIZE: Parting("1 + 3", "1 + 3", "1 + 4"),
    STRADDLING: Parting("1 + 1", "1 + 1", "2 + 1"),
    LONGEST: Parting("2 + 1", "2 + 1", "1 + 1"),
    HALVES: Parting("1 + 5", "1 + 5", "1 + 6"),
}


def skipped(engine: EngineName) -> frozenset[str]:
    return frozenset(what for what, parting in PARTINGS.items() if getattr(parting, engine) != parting.rules)


def units(consumed: Mapping[str, Any]) -> TableUnits:
    """What one structure says; the total that it gives is the sum of its parts."""
    parts = (
        {name: part["CapacityUnits"] for name, part in consumed.get(kind, {}).items() if part["CapacityUnits"]}
        for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
    )
    said = TableUnits(consumed["Table"]["CapacityUnits"], *parts)
    assert consumed["CapacityUnits"] == said.total
    return said


class Charged:
    """A table with three local and four global indexes, its client and its estimator."""

    def __init__(
        self,
        resource: DynamoDBServiceResource,
        skipped: frozenset[str] = frozenset(),
        *,
        name: str | None = None,
        client: Any = None,
    ) -> None:
        indexes: Any = {"local_indexes": LOCAL_INDEXES, "global_indexes": GLOBAL_INDEXES}
        table = make_table(resource, ("pk", "S"), ("sk", "N"), name=name, **indexes)
        self.name = table.name
        self.skipped = skipped
        self.straddling = STRADDLING not in skipped
        # A client of its own: the resource's takes Python values.
        self.client: Any = client or boto3.client(
            "dynamodb", region_name="us-east-1", endpoint_url=resource.meta.client.meta.endpoint_url
        )
        self.estimator = CapacityEstimator(self.client.describe_table(TableName=self.name)["Table"])

    @staticmethod
    def key(key: Key) -> WireItem:
        return {"pk": {"S": key[0]}, "sk": {"N": str(key[1])}}
