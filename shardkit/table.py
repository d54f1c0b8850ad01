"""ShardedTable: a boto3 ``Table`` with sharded partition keys."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from shardkit.bulk.batch_writer import BatchWriter
from shardkit.core.calls import explains_calls
from shardkit.errors import UnsupportedOperationError
from shardkit.runtime.iterators import QueryItems, ScanItems
from shardkit.runtime.runner import Runner, check_installed, draw_from
from shardkit.runtime.targets import Wrapper, check_unwrapped, client_of_table
from shardkit.runtime.transports import Transport
from shardkit.sharding.form import PYTHON_VALUES
from shardkit.sharding.hedging import HedgeAfter
from shardkit.sharding.operations import decide
from shardkit.sharding.parameters import NOT_OF_WHOLE_SCANS, FanOutOptions, check_keywords
from shardkit.sharding.programs import Programs
from shardkit.sharding.query.stream import QueryRows
from shardkit.sharding.scan import ScanRows
from shardkit.strategies import Strategy
from shardkit.table_types import (
    BatchGetItemsResponse,
    QueryOptions,
    ReadOptions,
    ScanOptions,
    ShardedGetItemResponse,
    ShardedPageResponse,
    ShardedWriteResponse,
    TransactGetItem,
    TransactGetItemsOptions,
    TransactGetItemsResponse,
    TransactWriteItem,
    TransactWriteItemsOptions,
    TransactWriteItemsResponse,
    UpdateItemOptions,
    WriteOptions,
)
from shardkit.tables import programs_of

__all__ = ["QueryItems", "ScanItems", "ShardedTable"]

_KEPT: Any = object()  # default of with_options: keep the table's own setting


@explains_calls
class ItemOperations(Wrapper):
    """The operations on items that a ``ShardedTable`` and a ``TimeSeries`` have."""

    _runner: Runner
    _programs: Programs
    _fan_out: FanOutOptions

    @property
    def strategy(self) -> Strategy:
        """The strategy that chooses suffixes."""
        return self._programs.strategy

    # Single items.

    def get_item(
        self,
        *,
        Key: Mapping[str, Any],
        Shard: int | None = None,
        ReturnShards: bool = False,
        **options: Unpack[ReadOptions],
    ) -> ShardedGetItemResponse:
        """Read one item.

        Example:
            response = orders.get_item(Key={"Date": "2014-07-09", "OrderId": "A17"})
            response.get("Item")  # None: there is no such item

        Args:
            Key: The logical primary key, and the attributes that ``by`` names if they are not part of the key.
            Shard: The number of the shard to read.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.get_item``.

        Returns:
            boto3's response.

        Raises:
            ShardUnknownError: The shard cannot be calculated, and the strategy has no ``locate=True``.
            AmbiguousItemError: ``locate=True`` found the item in more than one shard.

        Cost: one GetItem; with ``locate=True`` one BatchGetItem per 100 shards, at least 0.5 read units per shard.
        IAM: ``dynamodb:GetItem`` (``dynamodb:BatchGetItem``).
        """
        return cast(
            "ShardedGetItemResponse", self._item("GetItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)
        )

    def put_item(
        self,
        *,
        Item: Mapping[str, Any],
        Shard: int | None = None,
        ReturnShards: bool = False,
        **options: Unpack[WriteOptions],
    ) -> ShardedWriteResponse:
        """Write one item.

        Example:
            orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17", "Total": 12})

        With ``RandomSuffix``, write each primary key only once: every put draws a new shard, so it does not replace an
        item that exists.

        Args:
            Item: The item, with its logical key.
            Shard: The number of the shard to write to; with ``CalculatedSuffix`` or ``RangeSuffix``, the calculated
                one.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.put_item``.

        Returns:
            boto3's response; ``Attributes`` show the logical key.

        Raises:
            InvalidKeyError: A key attribute is missing, empty or of the wrong type.
            ConfigurationError: ``Shard`` is not the calculated shard, so :meth:`get_item` would not find the item.
            ShardUnknownError: The put has a condition, and the shard cannot be calculated.
            UnsupportedExpressionError: The condition compares the partition key in a way that a suffix changes.

        Cost: one PutItem; with ``locate=True`` first a strongly consistent BatchGetItem per 100 shards.
        IAM: ``dynamodb:PutItem`` (``dynamodb:BatchGetItem``).
        """
        return cast(
            "ShardedWriteResponse", self._item("PutItem", {"Item": Item, **options}, Shard, return_shards=ReturnShards)
        )

    def update_item(
        self,
        *,
        Key: Mapping[str, Any],
        Shard: int | None = None,
        ReturnShards: bool = False,
        **options: Unpack[UpdateItemOptions],
    ) -> ShardedWriteResponse:
        """Update one item.

        Example:
            orders.update_item(
                Key={"Date": "2014-07-09", "OrderId": "A17"},
                UpdateExpression="SET Amount = :a",
                ExpressionAttributeValues={":a": 13},
            )

        Args:
            Key: As for :meth:`get_item`.
            Shard: The number of the item's shard; must be the calculated shard if it can be calculated.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.update_item``.

        Returns:
            boto3's response; ``Attributes`` show the logical key.

        Raises:
            ConfigurationError: ``Shard`` is not the calculated shard.
            ShardUnknownError: The shard cannot be calculated, a ``by`` function reads attributes other than those of
                ``Key``, or ``locate=True`` found no item.
            AmbiguousItemError: ``locate=True`` found the item in more than one shard.
            UnsupportedExpressionError: An expression changes an attribute that the shard is calculated from, or reads
                the partition key.

        Cost: one UpdateItem; with ``locate=True`` first a strongly consistent BatchGetItem per 100 shards.
        IAM: ``dynamodb:UpdateItem`` (``dynamodb:BatchGetItem``).
        """
        return cast(
            "ShardedWriteResponse", self._item("UpdateItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)
        )

    def delete_item(
        self,
        *,
        Key: Mapping[str, Any],
        Shard: int | None = None,
        ReturnShards: bool = False,
        **options: Unpack[WriteOptions],
    ) -> ShardedWriteResponse:
        """Delete one item.

        Example:
            orders.delete_item(Key={"Date": "2014-07-09", "OrderId": "A17"})

        Args:
            Key: As for :meth:`get_item`.
            Shard: The number of the item's shard.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.delete_item``.

        Returns:
            boto3's response; ``Attributes`` show the logical key.

        Raises:
            ShardUnknownError: The shard cannot be calculated, and the strategy has no ``locate=True``.
            AmbiguousItemError: ``locate=True`` found the item in more than one shard.

        Cost: one DeleteItem; with ``locate=True`` first a strongly consistent BatchGetItem per 100 shards.
        IAM: ``dynamodb:DeleteItem`` (``dynamodb:BatchGetItem``).
        """
        return cast(
            "ShardedWriteResponse", self._item("DeleteItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)
        )

    def _item(
        self, operation: str, params: Mapping[str, Any], shard: int | None, *, return_shards: bool
    ) -> dict[str, Any]:
        return self._runner.run(
            self._programs.item(operation, params, shard=shard, return_shards=return_shards, fan_out=self._fan_out)
        )

    def batch_get_items(
        self, keys: Iterable[Mapping[str, Any]], **options: Unpack[ReadOptions]
    ) -> BatchGetItemsResponse:
        """Read many items by key.

        Example:
            response = orders.batch_get_items([{"Date": "2014-07-09", "OrderId": "A17"}], ConsistentRead=True)
            response["Items"]

        Args:
            keys: Logical primary keys, any number; a repeated key is read once.
            options: ``ConsistentRead``, ``ProjectionExpression``, ``ExpressionAttributeNames``,
                ``ReturnConsumedCapacity``, as in boto3's ``batch_get_item``.

        Returns:
            ``Items``: the items that exist, in the order of ``keys``. ``UnprocessedKeys``: a list of the logical keys
            that were still unprocessed after ten attempts with increasing waits.

        Raises:
            ConfigurationError: ``keys`` is empty.
            ShardUnknownError: The shard of a key cannot be calculated, and the strategy has no ``locate=True``.
            AmbiguousItemError: ``locate=True`` found an item in more than one shard.

        Cost: one BatchGetItem per 100 keys (with ``locate=True``: per 100 of keys × shards).
        IAM: ``dynamodb:BatchGetItem``.
        """
        return cast(
            "BatchGetItemsResponse",
            self._runner.run(self._programs.batch_get_items(keys, options, fan_out=self._fan_out)),
        )

    def transact_write_items(
        self, *, TransactItems: Sequence[TransactWriteItem], **options: Unpack[TransactWriteItemsOptions]
    ) -> TransactWriteItemsResponse:
        """Write several items in one transaction: all or none.

        Example:
            orders.transact_write_items(
                TransactItems=[
                    {"Put": {"Item": {"Date": "2014-07-09", "OrderId": "A17", "Total": 12}}},
                    {"Delete": {"Key": {"Date": "2014-07-09", "OrderId": "A16"}}},
                    {"Put": {"TableName": "Customers", "Item": {"Id": "c8", "Orders": 3}}},
                ]
            )

        A part without ``TableName`` is on this table. A part on another table is passed on unchanged, so that table
        must not be sharded. For a transaction over two sharded tables, use ``shardkit.install`` and the client.

        Args:
            TransactItems: Up to 100 parts: ``Put``, ``Update``, ``Delete`` and ``ConditionCheck``, with logical items
                and keys. A part on this table may have ``Shard``, the number of the item's shard.
            options: ``ClientRequestToken``, ``ReturnConsumedCapacity``, ``ReturnItemCollectionMetrics``, as for boto3's
                client. With one token, random suffixes are always the same, so that you can repeat the call.

        Returns:
            The response of boto3's client; ``ItemCollectionMetrics`` show logical keys. If the transaction is
            cancelled, boto3's ``TransactionCanceledException`` has one reason per part, in which an ``Item`` shows the
            logical key (in wire form).

        Raises:
            The errors of :meth:`put_item`, :meth:`update_item` and :meth:`delete_item`; a note names the part.

        Cost: one TransactWriteItems (twice the write units); with ``locate=True`` first a strongly consistent
        BatchGetItem per 100 shards for each part. An item that moves in between cancels the transaction.
        IAM: ``dynamodb:PutItem``, ``UpdateItem``, ``DeleteItem``, ``ConditionCheckItem`` (``dynamodb:BatchGetItem``).
        """
        return cast(
            "TransactWriteItemsResponse",
            self._transact("TransactWriteItems", {"TransactItems": TransactItems, **options}),
        )

    def transact_get_items(
        self, *, TransactItems: Sequence[TransactGetItem], **options: Unpack[TransactGetItemsOptions]
    ) -> TransactGetItemsResponse:
        """Read several items in one transaction, so that they are of one moment.

        Example:
            keys = [{"Date": "2014-07-09", "OrderId": "A17"}, {"Date": "2014-07-10", "OrderId": "B2"}]
            response = orders.transact_get_items(TransactItems=[{"Get": {"Key": key}} for key in keys])
            response["Responses"]  # one per key, in order

        Args:
            TransactItems: Up to 100 parts: ``Get``, with logical keys. For ``TableName`` and ``Shard`` see
                :meth:`transact_write_items`.
            options: ``ReturnConsumedCapacity``, as for boto3's client.

        Returns:
            The response of boto3's client. ``Responses`` has an entry for each part; if its item does not exist, the
            entry has no ``Item``.

        Raises:
            ShardUnknownError: The shard of a key cannot be calculated, and the strategy has no ``locate=True``.
            AmbiguousItemError: ``locate=True`` found an item in more than one shard.

        Cost: one TransactGetItems (twice the read units of a strongly consistent read); with ``locate=True`` first a
        strongly consistent BatchGetItem per 100 shards for each part. An item that moves in between is not found.
        IAM: ``dynamodb:GetItem`` (``dynamodb:BatchGetItem``).
        """
        return cast(
            "TransactGetItemsResponse", self._transact("TransactGetItems", {"TransactItems": TransactItems, **options})
        )

    def _transact(self, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return self._runner.run(self._programs.transact(operation, params, fan_out=self._fan_out))

    def batch_writer(self, overwrite_by_pkeys: list[str] | None = None) -> BatchWriter:
        """Write many items, as boto3's ``Table.batch_writer`` does.

        Example:
            with orders.batch_writer() as batch:
                batch.put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})

        Args:
            overwrite_by_pkeys: Attribute names. A write replaces an earlier, unsent one with the same values of these
                attributes.

        Returns:
            A context manager with ``put_item(Item=…)`` and ``delete_item(Key=…)``. It retries unprocessed items after
            increasing waits and keeps the order of writes to one primary key. If the block raises, it sends nothing
            more.

        Raises:
            BulkLoadError: When the block ends, some items were not written (see ``failed``); or earlier, if no more
                items can be written.

        Cost: one BatchWriteItem per 25 writes; memory: 25 items.
        IAM: ``dynamodb:BatchWriteItem`` (``dynamodb:PutItem`` and ``dynamodb:DeleteItem``, to learn why items come back
        unprocessed).
        """
        return BatchWriter(self._runner, overwrite_by_pkeys)

    # Reads of many items.

    def with_options(
        self,
        *,
        timeout: float | None = _KEPT,
        on_shard_error: Literal["raise", "partial"] = _KEPT,
        max_concurrency: int | None = None,
        max_buffer_bytes: int = _KEPT,
        hedge_after: HedgeAfter | None = _KEPT,
    ) -> Self:
        """Return a view of the table with other options for merged reads; options that you omit stay the same.

        Example:
            quick = orders.with_options(timeout=0.2, on_shard_error="partial")
            page = quick.query(KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50)
            page.get("ShardErrors")  # {57: TimeoutError(…)}: the shards whose items are missing

        Args:
            timeout: Seconds for a whole fan-out, including waits for throttled shards; None: only botocore's timeouts.
                After it, a :class:`ShardTimeoutError` (also a ``TimeoutError``) is raised. In ``query_items`` and
                ``scan_items``, seconds for each wait for the next items. A request that hangs
                keeps its thread until botocore's own timeout: set ``Config(read_timeout=…, retries=…)`` to match.
            on_shard_error: If a shard fails, ``"raise"`` raises :class:`ShardQueryError`, which holds the other shards'
                items; ``"partial"`` returns them, with the failures in ``ShardErrors`` (``query_items``:
                ``.shard_errors``). If all shards fail, both raise.
            max_concurrency: Concurrent requests of one fan-out, 1 to 1,000; None: as this table.
            max_buffer_bytes: Memory in bytes for pages that ``query_items`` holds or has requested, 64 MB by default.
            hedge_after: Send a read again that is not answered after this time, and use the first answer: seconds, or
                ``"p95"`` or ``"p99"`` of the response times that the table's hedged views have seen; None (the
                default): never. A read is sent at most three times. Applies to ``query``, ``query_items``,
                ``batch_get_items`` and searches with ``locate=True``. A throttled shard's read is not sent again.

        Returns:
            The view. It shares the table's key schema, and what the table has learnt from responses.

        Raises:
            ConfigurationError: An argument is invalid.

        Cost: none. A view with another ``max_concurrency`` has its own thread pool: keep the view and reuse it. With
        ``hedge_after``, at most 5% more requests (and one) over the life of the table and its views. The slower request
        also consumes read units; they are not in the response, but a ``CapacityMeter`` counts them. One connection in
        ten of ``max_concurrency``, at least one, is kept for hedges.
        """
        view = copy(self)
        given: dict[str, Any] = {
            "timeout": timeout,
            "on_shard_error": on_shard_error,
            "max_buffer_bytes": max_buffer_bytes,
            "hedge_after": hedge_after,
        }
        options = {name: value for name, value in given.items() if value is not _KEPT}
        if max_concurrency is not None:
            runner = self._runner
            view.__dict__["_runner"] = Runner(runner.client, self._programs, max_concurrency, runner.transport)
        view.__dict__["_fan_out"] = replace(self._fan_out, connections=view.runner.concurrency, **options)
        return view

    def query(
        self, *, Shard: int | None = None, ReturnShards: bool = False, **query: Unpack[QueryOptions]
    ) -> ShardedPageResponse:
        """Read one page of a logical key's items, merged from all its shards in sort-key order.

        Example:
            page = orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50)

        Args:
            Shard: Read this shard only.
            ReturnShards: Add ``Shards``, parallel to ``Items``.
            query: As for boto3's ``Table.query``. ``ExclusiveStartKey`` is the ``LastEvaluatedKey`` of an earlier page,
                or a primary key if its shard can be calculated.

        Returns:
            boto3's response. ``LastEvaluatedKey`` is ``{"shardkit": token}``; ``ConsumedCapacity`` is the sum of all
            shards. Without ``Limit``, shardkit reads one page (1 MB) of every shard and returns the items up to the
            earliest sort key at which a page ended.

        Raises:
            UnsupportedExpressionError: The partition key has no equality condition, or suffixes change a condition.
            CursorError: The cursor is damaged, or was made for another key, table or index.
            ShardQueryError: Some shards failed; ``partial_items`` holds the other shards' items.

        A throttled shard is retried alone. If ``ThrottlingReasons`` say that the whole table is throttled, all shards
        wait. If the account's limit is reached, the error is raised without a wait.

        Cost: at least one Query and 0.5 read units per shard. With ``Limit``, the first request to a shard is for its
        share of the page, in whole 4 KB blocks; a shard with more items for the page gets another request. Memory:
        shards × page.
        IAM: ``dynamodb:Query``. Source: the guide, "Randomizing Across Multiple Partition Key Values".
        """
        program = self._programs.query(query, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out)
        return cast("ShardedPageResponse", self._runner.run(program))

    def query_items(
        self,
        *,
        Shard: int | None = None,
        ReturnShards: bool = False,
        max_items: int | None = None,
        **query: Unpack[QueryOptions],
    ) -> QueryItems:
        """Iterate over all items of a logical key, merged from all its shards in sort-key order.

        Example:
            for order in orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09")):
                print(order["OrderId"])

        Args:
            Shard: Read this shard only.
            ReturnShards: Yield ``(item, shard)``.
            max_items: Stop after this number of items.
            query: As for :meth:`query`; ``Limit`` is the number of items per page, over all shards.

        Returns:
            An iterator; its ``last_evaluated_key`` is the cursor after the last item that it returned.

        Raises:
            The errors of :meth:`query`: an unknown parameter at once, others when you request the first item.

        Cost: at least one Query per shard; no item is read twice. Pages start small (64 KB per shard) and grow to 1 MB;
        the next pages are read while your code runs. Memory: ``max_buffer_bytes`` (64 MB by default, see
        :meth:`with_options`), but at least one item per shard. IAM: ``dynamodb:Query``.
        """
        check_keywords("Query", query, "max_items")
        return QueryItems(
            self._runner,
            lambda: self._programs.stream(query, Shard, max_items=max_items, fan_out=self._fan_out),
            QueryRows(return_shards=ReturnShards, max_items=max_items),
        )

    def scan(self, *, ReturnShards: bool = False, **scan: Unpack[ScanOptions]) -> ShardedPageResponse:
        """Read one page of the table, or of one segment.

        Example:
            page = orders.scan(FilterExpression=Attr("Total").gt(10), ReturnShards=True)
            page["Shards"]  # parallel to page["Items"]

        Args:
            ReturnShards: Add ``Shards``, parallel to ``Items``; None for an item without a suffix.
            scan: As for boto3's ``Table.scan``.

        Returns:
            boto3's response; items have their logical keys.

        Raises:
            UnsupportedExpressionError: The filter compares the partition key, which is stored with a suffix.
            CursorError: The cursor is damaged or was made for another table or index.

        Cost: one Scan. IAM: ``dynamodb:Scan``.
        """
        return cast("ShardedPageResponse", self._runner.run(self._programs.scan(scan, return_shards=ReturnShards)))

    def scan_items(self, *, segments: int = 1, ReturnShards: bool = False, **scan: Unpack[ScanOptions]) -> ScanItems:
        """Iterate over all items of the table, in no particular order.

        Example:
            for order in orders.scan_items(segments=4):
                print(order["OrderId"])

        Args:
            segments: The number of segments to read concurrently, at most 1,000,000.
            ReturnShards: Yield ``(item, shard)``.
            scan: As for boto3's ``Table.scan``; ``Limit`` is the number of items per page.

        Returns:
            An iterator of items.

        Raises:
            ShardQueryError: Some segments failed, or did not respond within ``timeout=``.

        Cost: a full Scan; memory: segments × page. IAM: ``dynamodb:Scan``.
        """
        check_keywords("Scan", scan, "segments", refused=NOT_OF_WHOLE_SCANS)
        return ScanItems(
            self._runner,
            lambda: self._programs.segments(scan, segments, fan_out=self._fan_out),
            ScanRows(return_shards=ReturnShards),
        )

    # Keys and items as they are stored: for your own requests and streams.

    def physical_key(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """Return a logical primary key as it is stored, for a request of your own.

        Example:
            stored = orders.physical_key({"Date": "2014-07-09", "OrderId": "A17"})
            stored["Date"]  # "2014-07-09.57"

        Args:
            key: The logical primary key, and the attributes that ``by`` names; the result omits the latter.

        Returns:
            The key with its suffix.

        Raises:
            ShardUnknownError: The shard cannot be calculated.

        Cost: none.
        """
        return self._runner.run(self._programs.physical(key, "Key"))

    def physical_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return a logical item as it is stored, for a request of your own; ``RandomSuffix`` draws a suffix.

        Example:
            stored = orders.physical_item({"Date": "2014-07-09", "OrderId": "A17"})
            stored["Date"]  # "2014-07-09.57"

        Args:
            item: The item, with its logical key.

        Returns:
            A new item with its suffix; ``item`` is not changed.

        Raises:
            InvalidKeyError: A key attribute is missing, empty or of the wrong type.

        Cost: none.
        """
        return self._runner.run(self._programs.physical(item, "Item"))

    def logical_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stored item (from a stream or an export) with its logical key.

        Example:
            item = orders.logical_item({"Date": "2014-07-09.57", "OrderId": "A17"})
            item["Date"]  # "2014-07-09"

        Args:
            item: A stored item, or part of one.

        Returns:
            A new item; an item without a suffix is returned unchanged.

        Cost: none.
        """
        return self._runner.run(self._programs.logical(item))

    # Its end.

    def close(self) -> None:
        """End the table's idle threads, and with ``transport="direct"`` close its idle connections.

        Example:
            with ShardedTable(table, CalculatedSuffix("OrderId", shards=200)) as orders:
                orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})

        A closed table stays usable: a later call opens what it needs again. The boto3 client or table that you gave
        stays open. A view with its own ``max_concurrency`` is closed by itself.

        Cost: none.
        """
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def runner(self) -> Runner:
        """The runner of this table's operations; internal."""
        return self._runner

    @property
    def fan_out(self) -> FanOutOptions:
        """How this view runs fan-outs; internal."""
        return self._fan_out


@explains_calls
class ShardedTable(ItemOperations):
    """Wrap a boto3 ``Table`` so that its partition keys are written with suffixes and read back merged.

    Example:
        orders = ShardedTable(boto3.resource("dynamodb").Table("Orders"), CalculatedSuffix("OrderId", shards=200))
        orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17", "Total": 12})
        orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50)

    Method names, keywords, responses and exceptions are those of boto3's ``Table``. Items and keys have their logical
    keys. shardkit adds some methods and two keywords: ``Shard`` (use only the shard with this number) and
    ``ReturnShards`` (add ``Shard`` to the response, or ``Shards`` parallel to ``Items``).

    Args:
        table: A boto3 ``Table``; requests go through its client (``table.meta.client``), so the application's
            credentials, configuration and event handlers apply.
        strategy: How suffixes are chosen.
        indexes: The sharded global secondary indexes: a strategy for the name of each, with ``attribute=``, ``source=``
            or neither (docs/sharded-indexes.md). Every write keeps their keys true. With neither, an item without the
            index's partition key is not in the index. A write cannot tell that from a forgotten ``source=``.
        key_schema: The key schema as for CreateTable: ``{"KeySchema": […], "AttributeDefinitions": […]}`` and the
            indexes. By default, one DescribeTable reads it when it is first needed (IAM: ``dynamodb:DescribeTable``),
            and one GetItem (0.5 read units) looks whether a shard map says otherwise than ``strategy``: the call then
            raises ConfigurationError. Without ``dynamodb:GetItem``, or with ``key_schema``, nothing is looked for.
        max_concurrency: Concurrent requests of one fan-out, 1 to 1,000; by default the client's
            ``max_pool_connections`` (10 unless configured).
        rng: The source of random suffixes and jitter; seed it to repeat a run.
        transport: ``"client"``: requests go through the table's client. ``"direct"`` or a DirectTransport: shardkit
            signs them and sends them past it, with a fraction of its CPU. The client's credentials, configuration and
            most event handlers still apply; docs/direct.md says which do not.
        cursor_secret: A secret of at least 16 bytes that signs ``LastEvaluatedKey``, so that callers cannot make their
            own; all processes need the same. Of a list, the first signs, and all are accepted. By default, cursors are
            not signed.

    Raises:
        ConfigurationError: An argument is invalid, a package that ``transport`` needs is not installed, or the client
            has the table installed with another strategy.
    """

    # Attributes of boto3's ``Table``, from DescribeTable; __getattr__ reads them.
    archival_summary: dict[str, Any]
    attribute_definitions: list[dict[str, Any]]
    billing_mode_summary: dict[str, Any]
    creation_date_time: datetime
    deletion_protection_enabled: bool
    disassociation_protection_enabled: bool
    global_secondary_indexes: list[dict[str, Any]]
    global_table_settings_replication_mode: str
    global_table_version: str
    global_table_witnesses: list[dict[str, Any]]
    item_count: int
    key_schema: list[dict[str, Any]]
    latest_stream_arn: str
    latest_stream_label: str
    local_secondary_indexes: list[dict[str, Any]]
    multi_region_consistency: str
    on_demand_throughput: dict[str, Any]
    provisioned_throughput: dict[str, Any]
    replicas: list[dict[str, Any]]
    restore_summary: dict[str, Any]
    sse_description: dict[str, Any]
    stream_specification: dict[str, Any]
    table_arn: str
    table_class_summary: dict[str, Any]
    table_id: str
    table_name: str
    table_size_bytes: int
    table_status: str
    vector_indexes: list[dict[str, Any]]
    warm_throughput: dict[str, Any]

    def __init__(
        self,
        table: Any,
        strategy: Strategy,
        *,
        indexes: Mapping[str, Strategy] | None = None,
        key_schema: Mapping[str, Any] | None = None,
        max_concurrency: int | None = None,
        rng: random.Random | None = None,
        transport: Transport = "client",
        cursor_secret: bytes | Sequence[bytes] | None = None,
    ) -> None:
        check_unwrapped(table)
        self._table = table
        client = client_of_table(table)
        form = PYTHON_VALUES.signing(cursor_secret)
        self._programs = programs_of(self._table.name, strategy, key_schema, draw_from(rng), form, indexes=indexes)
        self._runner = Runner(client, self._programs, max_concurrency, transport)
        check_installed(client, self._table.name, strategy)
        self._fan_out = self._runner.fan_out(self._programs.draw)

    def __repr__(self) -> str:
        indexes = f", indexes={dict(self._programs.indexes)!r}" if self._programs.indexes else ""
        transport = "" if self._runner.transport == "client" else f", transport={self._runner.transport!r}"
        return f"ShardedTable({self._table!r}, {self.strategy!r}{indexes}{transport})"

    @property
    def table(self) -> Any:
        """The wrapped boto3 ``Table``, which knows no shards."""
        return self._table

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self._table.name)

    @property
    def meta(self) -> Any:
        """boto3's ``Table.meta``; ``meta.client`` is the unsharded client."""
        return self._table.meta

    # Methods of boto3's ``Table`` that sharding does not change.

    def get_available_subresources(self) -> list[str]:
        """Return the names of boto3's subresources of a table (an empty list)."""
        names: list[str] = self._table.get_available_subresources()
        return names

    def load(self) -> None:
        """Read the table's attributes (one DescribeTable)."""
        self._table.load()

    def reload(self) -> None:
        """Read the table's attributes again (one DescribeTable)."""
        self._table.reload()

    def update(self, **options: Any) -> Any:
        """Change the table's settings (UpdateTable)."""
        return self._table.update(**options)

    def delete(self, **options: Any) -> dict[str, Any]:
        """Delete the table and all its items (DeleteTable)."""
        response: dict[str, Any] = self._table.delete(**options)
        return response

    def wait_until_exists(self, **options: Any) -> None:
        """Wait until the table is active."""
        self._table.wait_until_exists(**options)

    def wait_until_not_exists(self, **options: Any) -> None:
        """Wait until the table is deleted."""
        self._table.wait_until_not_exists(**options)

    if not TYPE_CHECKING:  # a checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Forward boto3's attributes; refuse operations that sharding does not support or does not know."""
            if name in ShardedTable.__annotations__:
                return getattr(self._table, name)
            if not name.startswith("_"):
                operation = self.meta.client.meta.method_to_api_mapping.get(name)
                decision = decide(operation or name)
                if decision.action == "refuse" and (operation or hasattr(type(self._table), name)):
                    raise UnsupportedOperationError(
                        f"{name}: is not supported on the sharded table {self.name!r}: {decision.reason}"
                    )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *ShardedTable.__annotations__})
