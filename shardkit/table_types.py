"""The types of a table's keywords and responses, and ``TableLike``, which both kinds of table meet.

Only type checkers read them. With the extra ``typing`` (``types-boto3-dynamodb``), the parts of responses that shardkit
passes on from boto3 (``ConsumedCapacity``, …) are typed too; without it, they are ``Any``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NotRequired, Protocol, Required, Self, TypeAlias, TypedDict

from boto3.dynamodb.conditions import ConditionBase

if TYPE_CHECKING:
    from types_boto3_dynamodb.type_defs import (
        ConsumedCapacityTypeDef,
        ItemCollectionMetricsTableTypeDef,
        ResponseMetadataTypeDef,
    )
else:
    ConsumedCapacityTypeDef = ItemCollectionMetricsTableTypeDef = ResponseMetadataTypeDef = Any

_Capacity = Literal["INDEXES", "TOTAL", "NONE"]
_Select = Literal["ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "SPECIFIC_ATTRIBUTES", "COUNT"]
_AndOr = Literal["AND", "OR"]
_Metrics = Literal["SIZE", "NONE"]
_Values = Literal["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"]
_ValuesOnFailure = Literal["ALL_OLD", "NONE"]
_Expression: TypeAlias = str | ConditionBase

# The keywords of requests: those that sharding/operations.py knows. The stubs' own TypedDicts would name keywords that
# are newer than this version, which it refuses.


class ReadOptions(TypedDict, total=False):
    """The keywords of ``batch_get_items``."""

    AttributesToGet: Sequence[str]
    ConsistentRead: bool
    ExpressionAttributeNames: Mapping[str, str]
    ProjectionExpression: str
    ReturnConsumedCapacity: _Capacity


class PageOptions(ReadOptions, total=False):
    """The keywords that ``query`` and ``scan`` share."""

    ConditionalOperator: _AndOr
    ExclusiveStartKey: Mapping[str, Any]
    ExpressionAttributeValues: Mapping[str, Any]
    FilterExpression: _Expression
    IndexName: str
    Limit: int
    Select: _Select


class QueryOptions(PageOptions, total=False):
    """The keywords of ``query``."""

    KeyConditionExpression: _Expression
    KeyConditions: Mapping[str, Any]
    QueryFilter: Mapping[str, Any]
    ScanIndexForward: bool


class ScanOptions(PageOptions, total=False):
    """The keywords of ``scan``."""

    ScanFilter: Mapping[str, Any]
    Segment: int
    TotalSegments: int


class WriteOptions(TypedDict, total=False):
    """The keywords of ``put_item`` and ``delete_item``, without ``Item`` and ``Key``."""

    ConditionExpression: _Expression
    ConditionalOperator: _AndOr
    Expected: Mapping[str, Any]
    ExpressionAttributeNames: Mapping[str, str]
    ExpressionAttributeValues: Mapping[str, Any]
    ReturnConsumedCapacity: _Capacity
    ReturnItemCollectionMetrics: _Metrics
    ReturnValues: _Values
    ReturnValuesOnConditionCheckFailure: _ValuesOnFailure


class UpdateItemOptions(WriteOptions, total=False):
    """The keywords of ``update_item``, without ``Key``."""

    AttributeUpdates: Mapping[str, Any]
    UpdateExpression: str


class TransactGetItemsOptions(TypedDict, total=False):
    """The keywords of ``transact_get_items``, without ``TransactItems``."""

    ReturnConsumedCapacity: _Capacity


class TransactWriteItemsOptions(TransactGetItemsOptions, total=False):
    """The keywords of ``transact_write_items``, without ``TransactItems``."""

    ClientRequestToken: str
    ReturnItemCollectionMetrics: _Metrics


# The parts of transactions.


class _Part(TypedDict, total=False):
    ExpressionAttributeNames: Mapping[str, str]
    Shard: int | None
    TableName: str


class _Write(_Part, total=False):
    ExpressionAttributeValues: Mapping[str, Any]
    ReturnValuesOnConditionCheckFailure: _ValuesOnFailure


class GetPart(_Part, total=False):
    """A read of an item."""

    Key: Required[Mapping[str, Any]]
    ProjectionExpression: str


class PutPart(_Write, total=False):
    """A put of an item."""

    ConditionExpression: _Expression
    Item: Required[Mapping[str, Any]]


class DeletePart(_Write, total=False):
    """A delete of an item."""

    ConditionExpression: _Expression
    Key: Required[Mapping[str, Any]]


class UpdatePart(DeletePart, total=False):
    """An update of an item."""

    UpdateExpression: Required[str]


class ConditionCheckPart(_Write, total=False):
    """A condition on an item that the transaction does not write."""

    ConditionExpression: Required[_Expression]
    Key: Required[Mapping[str, Any]]


class TransactGetItem(TypedDict):
    """A part of ``transact_get_items``."""

    Get: GetPart


class TransactWriteItem(TypedDict, total=False):
    """A part of ``transact_write_items``: one of these."""

    ConditionCheck: ConditionCheckPart
    Delete: DeletePart
    Put: PutPart
    Update: UpdatePart


# Responses. As in the stubs, a key that is there only if the caller asks for it (``ConsumedCapacity``) is not marked.
# Where those of ShardedTable have types of the stubs, those of TableLike have ``Any``: types of mutable keys must be
# equal, and the stubs of the caller's Table may be of another version.


class ItemResponse(TypedDict):
    """What a part of ``transact_get_items`` returns."""

    Item: NotRequired[dict[str, Any]]


class _Attributes(TypedDict):
    Attributes: dict[str, Any]


class _Page(TypedDict):
    Items: list[dict[str, Any]]
    Count: int
    ScannedCount: int
    LastEvaluatedKey: NotRequired[dict[str, Any]]


class _AnyReport(TypedDict):
    ConsumedCapacity: Any
    ResponseMetadata: Any


class _Report(TypedDict):
    ConsumedCapacity: ConsumedCapacityTypeDef
    ResponseMetadata: ResponseMetadataTypeDef


class GetItemResponse(ItemResponse, _AnyReport):
    """What ``get_item`` of both kinds of table returns."""


class WriteResponse(_Attributes, _AnyReport):
    """What ``put_item``, ``update_item`` and ``delete_item`` of both kinds of table return."""

    ItemCollectionMetrics: Any


class PageResponse(_Page, _AnyReport):
    """What ``query`` and ``scan`` of both kinds of table return."""


class ShardedGetItemResponse(ItemResponse, _Report):
    """What ``ShardedTable.get_item`` returns."""

    Shard: NotRequired[int | None]


class ShardedWriteResponse(_Attributes, _Report):
    """What ``put_item``, ``update_item`` and ``delete_item`` of ``ShardedTable`` return."""

    ItemCollectionMetrics: ItemCollectionMetricsTableTypeDef
    Shard: NotRequired[int | None]


class ShardedPageResponse(_Page, _Report):
    """What ``query`` and ``scan`` of ``ShardedTable`` return."""

    Shards: NotRequired[list[int | None]]
    ShardErrors: NotRequired[dict[int | None, Exception]]


class BatchGetItemsResponse(TypedDict):
    """What ``batch_get_items`` returns."""

    Items: list[dict[str, Any]]
    UnprocessedKeys: list[dict[str, Any]]
    ConsumedCapacity: NotRequired[ConsumedCapacityTypeDef]
    ResponseMetadata: ResponseMetadataTypeDef


class CachedGetItemResponse(GetItemResponse):
    """What ``CachedTable.get_item`` returns."""

    Cached: NotRequired[Literal["fresh", "stale"]]


class CachedPageResponse(PageResponse):
    """What ``CachedTable.query`` returns."""

    Cached: NotRequired[Literal["fresh", "stale"]]


class CachedBatchResponse(BatchGetItemsResponse):
    """What ``CachedTable.batch_get_items`` returns; ``Cached`` is parallel to ``Items``."""

    Cached: NotRequired[list[Literal["miss", "fresh", "stale"]]]


class TransactWriteItemsResponse(TypedDict):
    """What ``transact_write_items`` returns."""

    ConsumedCapacity: NotRequired[list[ConsumedCapacityTypeDef]]
    ItemCollectionMetrics: NotRequired[dict[str, list[ItemCollectionMetricsTableTypeDef]]]
    ResponseMetadata: ResponseMetadataTypeDef


class TransactGetItemsResponse(TypedDict):
    """What ``transact_get_items`` returns."""

    Responses: list[ItemResponse]
    ConsumedCapacity: NotRequired[list[ConsumedCapacityTypeDef]]
    ResponseMetadata: ResponseMetadataTypeDef


# Tables.


class BatchWriterLike(Protocol):
    """What ``batch_writer()`` of both kinds of table returns."""

    def put_item(self, Item: dict[str, Any]) -> None:
        """Write an item in a batch with others."""

    def delete_item(self, Key: dict[str, Any]) -> None:
        """Delete an item in a batch with others."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class TableLike(Protocol):
    """A boto3 ``Table`` or a ``ShardedTable``: the type of a parameter that takes either.

    Example:
        def total(table: TableLike, day: str) -> int:
            page = table.query(KeyConditionExpression=Key("Date").eq(day))
            return sum(item["Total"] for item in page["Items"])

    It has what both have for items. It is for type checkers; at run time, use ``isinstance`` with ``ShardedTable``.
    """

    @property
    def name(self) -> str:
        """The table's name."""

    @property
    def table_name(self) -> str:
        """The table's name."""

    @property
    def meta(self) -> Any:
        """boto3's ``Table.meta``."""

    def get_item(
        self,
        *,
        Key: Mapping[str, Any],
        AttributesToGet: Sequence[str] = ...,
        ConsistentRead: bool = ...,
        ExpressionAttributeNames: Mapping[str, str] = ...,
        ProjectionExpression: str = ...,
        ReturnConsumedCapacity: _Capacity = ...,
    ) -> GetItemResponse:
        """Read one item."""

    def put_item(
        self,
        *,
        Item: Mapping[str, Any],
        ConditionExpression: _Expression = ...,
        ConditionalOperator: _AndOr = ...,
        Expected: Mapping[str, Any] = ...,
        ExpressionAttributeNames: Mapping[str, str] = ...,
        ExpressionAttributeValues: Mapping[str, Any] = ...,
        ReturnConsumedCapacity: _Capacity = ...,
        ReturnItemCollectionMetrics: _Metrics = ...,
        ReturnValues: _Values = ...,
        ReturnValuesOnConditionCheckFailure: _ValuesOnFailure = ...,
    ) -> WriteResponse:
        """Write one item."""

    def update_item(
        self,
        *,
        Key: Mapping[str, Any],
        AttributeUpdates: Mapping[str, Any] = ...,
        ConditionExpression: _Expression = ...,
        ConditionalOperator: _AndOr = ...,
        Expected: Mapping[str, Any] = ...,
        ExpressionAttributeNames: Mapping[str, str] = ...,
        ExpressionAttributeValues: Mapping[str, Any] = ...,
        ReturnConsumedCapacity: _Capacity = ...,
        ReturnItemCollectionMetrics: _Metrics = ...,
        ReturnValues: _Values = ...,
        ReturnValuesOnConditionCheckFailure: _ValuesOnFailure = ...,
        UpdateExpression: str = ...,
    ) -> WriteResponse:
        """Update one item."""

    def delete_item(
        self,
        *,
        Key: Mapping[str, Any],
        ConditionExpression: _Expression = ...,
        ConditionalOperator: _AndOr = ...,
        Expected: Mapping[str, Any] = ...,
        ExpressionAttributeNames: Mapping[str, str] = ...,
        ExpressionAttributeValues: Mapping[str, Any] = ...,
        ReturnConsumedCapacity: _Capacity = ...,
        ReturnItemCollectionMetrics: _Metrics = ...,
        ReturnValues: _Values = ...,
        ReturnValuesOnConditionCheckFailure: _ValuesOnFailure = ...,
    ) -> WriteResponse:
        """Delete one item."""

    def query(
        self,
        *,
        AttributesToGet: Sequence[str] = ...,
        ConditionalOperator: _AndOr = ...,
        ConsistentRead: bool = ...,
        ExclusiveStartKey: Mapping[str, Any] = ...,
        ExpressionAttributeNames: Mapping[str, str] = ...,
        ExpressionAttributeValues: Mapping[str, Any] = ...,
        FilterExpression: _Expression = ...,
        IndexName: str = ...,
        KeyConditionExpression: _Expression = ...,
        KeyConditions: Mapping[str, Any] = ...,
        Limit: int = ...,
        ProjectionExpression: str = ...,
        QueryFilter: Mapping[str, Any] = ...,
        ReturnConsumedCapacity: _Capacity = ...,
        ScanIndexForward: bool = ...,
        Select: _Select = ...,
    ) -> PageResponse:
        """Read one page of a partition key's items."""

    def scan(
        self,
        *,
        AttributesToGet: Sequence[str] = ...,
        ConditionalOperator: _AndOr = ...,
        ConsistentRead: bool = ...,
        ExclusiveStartKey: Mapping[str, Any] = ...,
        ExpressionAttributeNames: Mapping[str, str] = ...,
        ExpressionAttributeValues: Mapping[str, Any] = ...,
        FilterExpression: _Expression = ...,
        IndexName: str = ...,
        Limit: int = ...,
        ProjectionExpression: str = ...,
        ReturnConsumedCapacity: _Capacity = ...,
        ScanFilter: Mapping[str, Any] = ...,
        Segment: int = ...,
        Select: _Select = ...,
        TotalSegments: int = ...,
    ) -> PageResponse:
        """Read one page of the table."""

    def batch_writer(self, overwrite_by_pkeys: list[str] = ...) -> BatchWriterLike:
        """Write many items."""

    def load(self) -> None:
        """Read the table's attributes."""

    def reload(self) -> None:
        """Read the table's attributes again."""
