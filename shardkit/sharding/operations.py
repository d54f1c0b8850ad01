"""What happens to each DynamoDB operation on a sharded table: rewritten, forwarded (no keys in it), or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Decision:
    """What shardkit does with an operation on a sharded table; ``reason`` says why it is refused."""

    action: Literal["rewrite", "forward", "refuse"]
    reason: str = ""


_REWRITE = Decision("rewrite")
_FORWARD = Decision("forward")

_PARTIQL = Decision(
    "refuse",
    "a PartiQL statement sees stored keys; use the item operations, query() or scan()",
)
_SERVER_SIDE_LOAD = Decision(
    "refuse", "the service would write keys without suffixes; use bulk_load(), or stage_items() and import_items()"
)

DECISIONS: dict[str, Decision] = {
    **dict.fromkeys(
        (
            "BatchGetItem",
            "BatchWriteItem",
            "DeleteItem",
            "GetItem",
            "PutItem",
            "Query",
            "Scan",
            "TransactGetItems",
            "TransactWriteItems",
            "UpdateItem",
        ),
        _REWRITE,
    ),
    **dict.fromkeys(("BatchExecuteStatement", "ExecuteStatement", "ExecuteTransaction"), _PARTIQL),
    **dict.fromkeys(("ImportTable", "StartBulkPutItems"), _SERVER_SIDE_LOAD),
    "SearchVectors": Decision(
        "refuse", "its answer has stored keys in order of distance, which shardkit does not merge"
    ),
    **dict.fromkeys(
        (
            "CancelBulkOperation",
            "CreateBackup",
            "CreateGlobalTable",
            "CreateTable",
            "DeleteBackup",
            "DeleteResourcePolicy",
            "DeleteTable",
            "DescribeBackup",
            "DescribeBulkOperation",
            "DescribeContinuousBackups",
            "DescribeContributorInsights",
            "DescribeEndpoints",
            "DescribeExport",
            "DescribeGlobalTable",
            "DescribeGlobalTableSettings",
            "DescribeImport",
            "DescribeKinesisStreamingDestination",
            "DescribeLimits",
            "DescribeTable",
            "DescribeTableReplicaAutoScaling",
            "DescribeTimeToLive",
            "DisableKinesisStreamingDestination",
            "EnableKinesisStreamingDestination",
            "ExportTableToPointInTime",
            "GetResourcePolicy",
            "ListBackups",
            "ListBulkOperations",
            "ListContributorInsights",
            "ListExports",
            "ListGlobalTables",
            "ListImports",
            "ListTables",
            "ListTagsOfResource",
            "PutResourcePolicy",
            "RestoreTableFromBackup",
            "RestoreTableToPointInTime",
            "TagResource",
            "UntagResource",
            "UpdateContinuousBackups",
            "UpdateContributorInsights",
            "UpdateGlobalTable",
            "UpdateGlobalTableSettings",
            "UpdateKinesisStreamingDestination",
            "UpdateTable",
            "UpdateTableReplicaAutoScaling",
            "UpdateTimeToLive",
        ),
        _FORWARD,
    ),
}

_UNDECIDED = Decision("refuse", "this version of shardkit does not know the operation")


def decide(operation: str) -> Decision:
    """Return what to do with an operation, by its API name; unknown operations are refused."""
    return DECISIONS.get(operation, _UNDECIDED)


_READ = ("AttributesToGet", "ConsistentRead", "ExpressionAttributeNames", "ProjectionExpression")
_PAGE = ("ConditionalOperator", "ExclusiveStartKey", "ExpressionAttributeValues", "FilterExpression", "IndexName",
         "Limit", "Select")  # fmt: skip
_WRITE = ("ConditionExpression", "ConditionalOperator", "Expected", "ExpressionAttributeNames",
          "ExpressionAttributeValues", "ReturnItemCollectionMetrics", "ReturnValues",
          "ReturnValuesOnConditionCheckFailure")  # fmt: skip
_ALL = ("ReturnConsumedCapacity", "TableName")
_CHECK = ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues",
          "ReturnValuesOnConditionCheckFailure", "TableName")  # fmt: skip

KEYWORDS: Mapping[str, frozenset[str]] = {
    "BatchGetItem": frozenset({*_READ, "ReturnConsumedCapacity"}),
    "DeleteItem": frozenset({*_ALL, *_WRITE, "Key"}),
    "GetItem": frozenset({*_ALL, *_READ, "Key"}),
    "PutItem": frozenset({*_ALL, *_WRITE, "Item"}),
    "Query": frozenset({*_ALL, *_READ, *_PAGE, "KeyConditionExpression", "KeyConditions", "QueryFilter",
                        "ScanIndexForward"}),
    "Scan": frozenset({*_ALL, *_READ, *_PAGE, "ScanFilter", "Segment", "TotalSegments"}),
    "TransactGetItems": frozenset({"ReturnConsumedCapacity", "TransactItems"}),
    "TransactWriteItems": frozenset({"ClientRequestToken", "ReturnConsumedCapacity", "ReturnItemCollectionMetrics",
                                     "TransactItems"}),
    "UpdateItem": frozenset({*_ALL, *_WRITE, "AttributeUpdates", "Key", "UpdateExpression"}),
    # The parts of transactions:
    "ConditionCheck": frozenset({*_CHECK, "Key", "Shard"}),
    "Delete": frozenset({*_CHECK, "Key", "Shard"}),
    "Get": frozenset({"ExpressionAttributeNames", "Key", "ProjectionExpression", "Shard", "TableName"}),
    "Put": frozenset({*_CHECK, "Item", "Shard"}),
    "Update": frozenset({*_CHECK, "Key", "Shard", "UpdateExpression"}),
}  # fmt: skip
"""The parameters (API reference) of rewritten operations; ``docs/reference/operations.md`` says what happens to each.
Others are refused: they are misspelt, or newer than this version."""
