"""ShardedTable: a boto3 ``Table`` whose partition keys are spread over shards."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self

from shardkit.bulk.batch_writer import BatchWriter
from shardkit.errors import UnsupportedOperationError
from shardkit.runtime.drivers import Driver
from shardkit.runtime.runner import Runner, log_retry, table_runner
from shardkit.sharding.operations import decide
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import Rows, StreamOfShards
from shardkit.strategies import Strategy

__all__ = ["QueryItems", "ShardedTable"]

_KEPT: Any = object()  # of a view: as in the table that it is made from
# What boto3's ``Table`` shows of DescribeTable, most of it read from one call, made when the first is asked for.
_ATTRIBUTES = frozenset(
    (
        "archival_summary",
        "attribute_definitions",
        "billing_mode_summary",
        "creation_date_time",
        "deletion_protection_enabled",
        "disassociation_protection_enabled",
        "global_secondary_indexes",
        "global_table_settings_replication_mode",
        "global_table_version",
        "global_table_witnesses",
        "item_count",
        "key_schema",
        "latest_stream_arn",
        "latest_stream_label",
        "local_secondary_indexes",
        "multi_region_consistency",
        "on_demand_throughput",
        "provisioned_throughput",
        "replicas",
        "restore_summary",
        "sse_description",
        "stream_specification",
        "table_arn",
        "table_class_summary",
        "table_id",
        "table_name",
        "table_size_bytes",
        "table_status",
        "vector_indexes",
        "warm_throughput",
    )
)


class ShardedTable:
    """Wrap a boto3 ``Table`` so that its partition keys are written with suffixes and read back merged.

    Example::

        orders = ShardedTable(boto3.resource("dynamodb").Table("Orders"), CalculatedSuffix("OrderId", shards=200))
        orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17", "Total": 12})
        orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50)

    Method names, keywords, response shapes and exceptions are those of boto3's ``Table``. Items and keys are shown with
    their logical keys. What shardkit adds are the keywords ``Shard`` (only this shard, by its number) and
    ``ReturnShards`` (adds ``Shard``, or ``Shards`` parallel to ``Items``) and the methods that boto3 has not.

    Args:
        table: A boto3 ``Table``; requests go through its client (``table.meta.client``), so the application's
            credentials, configuration and event handlers apply.
        strategy: How suffixes are chosen.
        key_schema: What CreateTable takes: ``{"KeySchema": […], "AttributeDefinitions": […]}`` and the indexes. Without
            it, one DescribeTable is made when the schema is first needed (IAM: ``dynamodb:DescribeTable``).
        max_concurrency: Requests of one fan-out that run side by side; the client's ``max_pool_connections`` (10 unless
            configured) if not given. At most 1,000.
        rng: The source of random suffixes and jitter; seed it to repeat a run.

    Raises:
        ConfigurationError: An argument cannot work.
    """

    def __init__(
        self,
        table: Any,
        strategy: Strategy,
        *,
        key_schema: Mapping[str, Any] | None = None,
        max_concurrency: int | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._runner = table_runner(table, strategy, key_schema=key_schema, max_concurrency=max_concurrency, rng=rng)
        self._programs = self._runner.programs
        self._table = table
        self._fan_out = FanOut(self._runner.concurrency, on_retry=log_retry)

    def __repr__(self) -> str:
        return f"ShardedTable({self._table!r}, {self.strategy!r})"

    @property
    def strategy(self) -> Strategy:
        """How suffixes are chosen."""
        return self._programs.strategy

    @property
    def table(self) -> Any:
        """The boto3 ``Table`` itself, unsharded."""
        return self._table

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self._table.name)

    @property
    def meta(self) -> Any:
        """boto3's ``Table.meta``; ``meta.client`` is the unsharded client."""
        return self._table.meta

    # Single items.

    def get_item(
        self, *, Key: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Read one item.

        Example::

            orders.get_item(Key={"Date": "2014-07-09", "OrderId": "A17"})["Item"]

        Args:
            Key: The logical primary key; also the attribute that ``by`` names, where that is not in the key.
            Shard: The number of the shard to look in.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.get_item``.

        Returns:
            boto3's response.

        Raises:
            ShardUnknownError: The shard cannot be calculated, and the strategy does not locate.
            AmbiguousItemError: ``locate=True`` found the item in more than one shard.

        Cost: one GetItem; with ``locate=True`` a BatchGetItem for every 100 shards, each key at least 0.5 read units.
        IAM: ``dynamodb:GetItem`` (``dynamodb:BatchGetItem``).
        """
        return self._item("GetItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)

    def put_item(
        self, *, Item: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Write one item.

        Example::

            orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17", "Total": 12})

        With ``RandomSuffix`` each primary key is written once: a put draws a shard and never replaces.

        Args:
            Item: The item, with its logical key.
            Shard: The number of the shard to write to; with ``CalculatedSuffix`` it must be the calculated one.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.put_item``.

        Returns:
            boto3's response; ``Attributes`` show the logical key.

        Raises:
            InvalidKeyError: A key attribute is missing, empty or of the wrong type.
            ConfigurationError: ``Shard`` is not the calculated shard, the only one that :meth:`get_item` looks in.
            ShardUnknownError: A conditional put, and the shard cannot be calculated.
            UnsupportedExpressionError: The condition compares the partition key in a way that a suffix would change.

        Cost: one PutItem; with ``locate=True`` a consistent BatchGetItem over the shards before it.
        IAM: ``dynamodb:PutItem`` (``dynamodb:BatchGetItem``).
        """
        return self._item("PutItem", {"Item": Item, **options}, Shard, return_shards=ReturnShards)

    def update_item(
        self, *, Key: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Change one item where it is.

        Example::

            orders.update_item(
                Key={"Date": "2014-07-09", "OrderId": "A17"},
                UpdateExpression="SET Total = :t",
                ExpressionAttributeValues={":t": 13},
            )

        Args:
            Key: As for :meth:`get_item`.
            Shard: The number of the item's shard; it must be the calculated one, where that can be calculated.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.update_item``.

        Returns:
            boto3's response; ``Attributes`` show the logical key.

        Raises:
            ConfigurationError: ``Shard`` is not the calculated shard.
            ShardUnknownError: The shard cannot be calculated, or a ``by`` function reads more than ``Key`` holds; or
                ``locate=True`` found no item to change.
            AmbiguousItemError: ``locate=True`` found the item in more than one shard.
            UnsupportedExpressionError: It would change what the shard is calculated from, or read the partition key.

        Cost: one UpdateItem; with ``locate=True`` a consistent BatchGetItem over the shards before it.
        IAM: ``dynamodb:UpdateItem`` (``dynamodb:BatchGetItem``).
        """
        return self._item("UpdateItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)

    def delete_item(
        self, *, Key: Mapping[str, Any], Shard: int | None = None, ReturnShards: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Delete one item where it is.

        Example::

            orders.delete_item(Key={"Date": "2014-07-09", "OrderId": "A17"})

        Args:
            Key: As for :meth:`get_item`.
            Shard: The number of the item's shard.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.delete_item``.

        Returns:
            boto3's response; ``Attributes`` show the logical key.

        Raises:
            ShardUnknownError: The shard cannot be calculated, and the strategy does not locate.
            AmbiguousItemError: ``locate=True`` found the item in more than one shard.

        Cost: one DeleteItem; with ``locate=True`` a consistent BatchGetItem over the shards before it.
        IAM: ``dynamodb:DeleteItem`` (``dynamodb:BatchGetItem``).
        """
        return self._item("DeleteItem", {"Key": Key, **options}, Shard, return_shards=ReturnShards)

    def _item(
        self, operation: str, params: Mapping[str, Any], shard: int | None, *, return_shards: bool
    ) -> dict[str, Any]:
        return self._runner.run(
            self._programs.item(operation, params, shard=shard, return_shards=return_shards, fan_out=self._fan_out)
        )

    def batch_get_items(self, keys: Iterable[Mapping[str, Any]], **options: Any) -> dict[str, Any]:
        """Read many items by key.

        Example::

            orders.batch_get_items([{"Date": "2014-07-09", "OrderId": "A17"}], ConsistentRead=True)["Items"]

        Args:
            keys: Any number of logical primary keys; one that is given twice is read once.
            options: ``ConsistentRead``, ``ProjectionExpression``, ``ExpressionAttributeNames``,
                ``ReturnConsumedCapacity``, as in boto3's ``batch_get_item``.

        Returns:
            ``Items`` (those that exist, in the order of their keys) and ``UnprocessedKeys`` (a list of the logical keys
            that the service left unprocessed after ten tries with growing waits).

        Raises:
            ConfigurationError: No keys.
            ShardUnknownError: The shard of a key cannot be calculated, and the strategy does not locate.
            AmbiguousItemError: ``locate=True`` found an item in more than one shard.

        Cost: one BatchGetItem for every 100 keys (with ``locate=True``: keys × shards).
        IAM: ``dynamodb:BatchGetItem``.
        """
        return self._runner.run(self._programs.batch_get_items(keys, options, fan_out=self._fan_out))

    def batch_writer(self, overwrite_by_pkeys: list[str] | None = None) -> BatchWriter:
        """Write many items, as boto3's ``Table.batch_writer`` does.

        Example::

            with orders.batch_writer() as batch:
                batch.put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})

        Args:
            overwrite_by_pkeys: Attribute names; a write replaces an earlier one, not yet sent, of the same values.

        Returns:
            A context manager with ``put_item(Item=…)`` and ``delete_item(Key=…)``. Unprocessed items are sent again
            after growing waits; writes of one primary key keep their order; nothing is sent when the body raises.

        Raises:
            BulkLoadError: On leaving the block: some items were not written; ``failed`` says which and why. Or earlier,
                where nothing more can be written.

        Cost: one BatchWriteItem for every 25 writes; memory: 25 items.
        IAM: ``dynamodb:BatchWriteItem`` (``dynamodb:PutItem`` and ``dynamodb:DeleteItem``, to hear why some come back).
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
    ) -> Self:
        """Give a view of the same table whose merged reads have other options; those not given stay as they are.

        Example::

            page = orders.with_options(timeout=0.2, on_shard_error="partial").query(
                KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50
            )
            page.get("ShardErrors")  # {57: TimeoutError(…)}: the shards whose items are missing

        Args:
            timeout: Seconds for a whole fan-out, waits for throttled shards included; None: no end but botocore's own.
                In ``query_items`` and ``scan_items`` it is what each wait for the next items may take. A request that
                hangs keeps its thread until botocore gives it up: set ``Config(read_timeout=…, retries=…)`` to match.
            on_shard_error: ``"raise"``: a shard that fails raises :class:`ShardQueryError` with the others' items;
                ``"partial"``: they are returned, and ``ShardErrors`` (``query_items``: ``.shard_errors``) says what is
                missing. When all shards fail, the error is raised in any case.
            max_concurrency: Requests of one fan-out that run side by side; None: as this table.
            max_buffer_bytes: Bytes of memory that ``query_items`` may hold and have under way, 64 MB unless given.

        Returns:
            The view; it shares what this table has learnt (key schema, item sizes).

        Raises:
            ConfigurationError: An argument cannot work.

        Cost: none. A view with another ``max_concurrency`` has a pool of threads of its own: keep it.
        """
        view = copy(self)
        given: dict[str, Any] = {
            "timeout": timeout,
            "on_shard_error": on_shard_error,
            "max_buffer_bytes": max_buffer_bytes,
        }
        options = {name: value for name, value in given.items() if value is not _KEPT}
        if max_concurrency is not None:
            view.__dict__["_runner"] = Runner(self.meta.client, self._programs, max_concurrency)
        view.__dict__["_fan_out"] = replace(self._fan_out, concurrency=view.runner.concurrency, **options)
        return view

    def query(self, *, Shard: int | None = None, ReturnShards: bool = False, **query: Any) -> dict[str, Any]:
        """Read one page of a logical key's items, merged over its shards in the order of the sort key.

        Example::

            page = orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"), Limit=50)

        Args:
            Shard: Read this shard only.
            ReturnShards: Add ``Shards``, parallel to ``Items``.
            query: As for boto3's ``Table.query``; ``ExclusiveStartKey`` is the ``LastEvaluatedKey`` of an earlier page,
                or a primary key where the shard can be calculated from it.

        Returns:
            boto3's response. ``LastEvaluatedKey`` is ``{"shardkit": token}``; ``ConsumedCapacity`` is summed. Without
            ``Limit`` a page is one page (1 MB) of every shard, up to the earliest place that a shard stopped at.

        Raises:
            UnsupportedExpressionError: No equality on the partition key, or a condition that suffixes would change.
            CursorError: The cursor is damaged, or was made for another key, table or index.
            ShardQueryError: Some shards failed; ``partial_items`` holds what the others brought.

        A throttled shard is asked again, alone, from its first throttle on; where ``ThrottlingReasons`` say that the
        table is short of throughput, all shards wait; the account's limit is not waited for.

        Cost: at least one Query a shard, each at least 0.5 read units; with ``Limit`` each shard is asked for its share
        in whole 4 KB blocks, and the ones that hold the page back are asked again; memory: shards × page.
        IAM: ``dynamodb:Query``. Source: the guide, "Randomizing Across Multiple Partition Key Values".
        """
        return self._runner.run(
            self._programs.query(
                query,
                shard=Shard,
                return_shards=ReturnShards,
                fan_out=self._fan_out,
            )
        )

    def query_items(
        self, *, Shard: int | None = None, ReturnShards: bool = False, max_items: int | None = None, **query: Any
    ) -> QueryItems:
        """Stream all items of a logical key, merged over its shards in the order of the sort key.

        Example::

            for order in orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09")):
                print(order["OrderId"])

        Args:
            Shard: Read this shard only.
            ReturnShards: Yield ``(item, shard)``.
            max_items: End after so many items.
            query: As for :meth:`query`; ``Limit`` is the size of a page, in items over all shards.

        Returns:
            An iterator; its ``last_evaluated_key`` is the cursor behind the last item handed out.

        Raises:
            The same as :meth:`query`, when the first item is asked for.

        Cost: nothing is read twice; pages start small (64 KB a shard) and grow to 1 MB, the next ones are fetched while
        the caller works; at least one Query a shard. Memory: ``max_buffer_bytes`` (64 MB unless :meth:`with_options`
        says otherwise), and at least one item a shard. IAM: ``dynamodb:Query``.
        """
        rows = Rows(return_shards=ReturnShards, max_items=max_items)
        return QueryItems(
            lambda: self._runner.run(self._programs.plan(query, Shard)),
            lambda plan: self._programs.stream(plan, max_items=max_items, fan_out=self._fan_out),
            self._runner.driver,
            rows,
        )

    def scan(self, *, ReturnShards: bool = False, **scan: Any) -> dict[str, Any]:
        """Read one page of the table (or of one segment), items with their logical keys.

        Example::

            orders.scan(FilterExpression=Attr("Total").gt(10), ReturnShards=True)["Shards"]

        Args:
            ReturnShards: Add ``Shards``, parallel to ``Items``; None for an item that carries no suffix.
            scan: As for boto3's ``Table.scan``.

        Returns:
            boto3's response.

        Raises:
            UnsupportedExpressionError: The filter compares the partition key, which is stored with a suffix.
            CursorError: The cursor is damaged or was made for another table or index.

        Cost: one Scan. IAM: ``dynamodb:Scan``.
        """
        return self._runner.run(self._programs.scan(scan, return_shards=ReturnShards))

    def scan_items(self, *, segments: int = 1, ReturnShards: bool = False, **scan: Any) -> Iterator[Any]:
        """Stream the whole table, its segments side by side; the order is nobody's.

        Example::

            total = sum(order["Total"] for order in orders.scan_items(segments=4))

        Args:
            segments: How many parts are read at once.
            ReturnShards: Yield ``(item, shard)``.
            scan: As for boto3's ``Table.scan``; ``Limit`` is the size of a page.

        Returns:
            An iterator of items.

        Raises:
            ShardQueryError: Some segments failed, or did not answer within ``timeout=``.

        Cost: a full Scan; memory: segments × page. IAM: ``dynamodb:Scan``.
        """
        stream = self._runner.run(self._programs.segments(scan, segments, fan_out=self._fan_out))
        driver = self._runner.driver(stream)
        try:
            while rows := driver.run():
                yield from rows if ReturnShards else (item for item, _ in rows)
        finally:
            driver.close()

    # The ways out, for one's own transactions and streams.

    def physical_key(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """Give a logical primary key as it is stored, for a call of one's own.

        Example::

            delete = {"Delete": {"TableName": "Orders", "Key": orders.physical_key(key)}}
            orders.meta.client.transact_write_items(TransactItems=[delete])

        Args:
            key: The logical key; also what ``by`` names, which is used and left out.

        Returns:
            The key with its suffix.

        Raises:
            ShardUnknownError: The shard cannot be calculated.

        Cost: none.
        """
        return self._runner.run(self._programs.physical(key, "Key"))

    def physical_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Give a logical item as it is stored, for a call of one's own; a random suffix is drawn.

        Example::

            table.put_item(Item=orders.physical_item({"Date": "2014-07-09", "OrderId": "A17"}))

        Args:
            item: The item, with its logical key.

        Returns:
            A new item with its suffix; the given one is not changed.

        Raises:
            InvalidKeyError: A key attribute is missing, empty or of the wrong type.

        Cost: none.
        """
        return self._runner.run(self._programs.physical(item, "Item"))

    def logical_item(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Give a stored item (from a stream, an export, a transaction) as the application sees it.

        Example::

            orders.logical_item({"Date": "2014-07-09.57", "OrderId": "A17"})["Date"]  # "2014-07-09"

        Args:
            item: A stored item, or part of one.

        Returns:
            A new item; one without a suffix is returned as it is.

        Cost: none.
        """
        return self._runner.run(self._programs.logical(item))

    @property
    def runner(self) -> Runner:
        """What runs this table's operations; for the other rooms of shardkit."""
        return self._runner

    # What boto3's ``Table`` does, and sharding does not touch.

    def get_available_subresources(self) -> list[str]:
        """Name boto3's subresources of a table (there are none)."""
        names: list[str] = self._table.get_available_subresources()
        return names

    def load(self) -> None:
        """Fetch the table's attributes (one DescribeTable)."""
        self._table.load()

    def reload(self) -> None:
        """Fetch the table's attributes again (one DescribeTable)."""
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
        """Wait until the table is gone."""
        self._table.wait_until_not_exists(**options)

    def __getattr__(self, name: str) -> Any:
        """Forward boto3's own attributes; refuse what it offers and nobody has decided on, or has decided against."""
        if name in _ATTRIBUTES:
            return getattr(self._table, name)
        if not name.startswith("_"):
            operation = self.meta.client.meta.method_to_api_mapping.get(name)
            decision = decide(operation or name)
            if decision.action == "refuse" and (operation or hasattr(type(self._table), name)):
                raise UnsupportedOperationError(
                    f"{name} is not done on the sharded table {self.name!r}: {decision.reason}"
                )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ATTRIBUTES})


class QueryItems(Iterator[Any]):
    """The items of a merged Query, read as they are asked for; ``ShardedTable.query_items()`` makes it.

    Example::

        with orders.query_items(KeyConditionExpression=Key("Date").eq("2014-07-09")) as day:
            first = next(day)  # nothing is read ahead after the block

    Threads may share one.
    """

    def __init__(
        self,
        plan: Callable[[], Plan],
        stream: Callable[[Plan], StreamOfShards],
        driver: Callable[[StreamOfShards], Driver[Any]],
        rows: Rows,
    ) -> None:
        self._plan = plan
        self._stream_of = stream
        self._driver_over = driver
        self._rows = rows
        self._lock = threading.Lock()
        self._stream: StreamOfShards | None = None
        self._driver: Driver[Any] | None = None

    def __next__(self) -> Any:
        with self._lock:
            if self._rows.wanting:
                self._read()
            return self._rows.take()

    def _read(self) -> None:
        if self._driver is None:
            self._rows.plan = self._plan()
            self._stream = self._stream_of(self._rows.plan)
            self._driver = self._driver_over(self._stream)
        try:
            self._rows.add(self._driver.run())
        except BaseException:
            # As with a generator: what has failed, or was interrupted, gives no more; the cursor tells where it stood.
            self._rows.end()
            raise

    @property
    def last_evaluated_key(self) -> dict[str, str] | None:
        """The cursor behind the last item handed out; None: before the first, and when all has been read."""
        return self._rows.last_evaluated_key

    @property
    def shard_errors(self) -> dict[int | None, Exception]:
        """With ``on_shard_error="partial"``: the shards that have failed so far, and why; their items are missing."""
        return {} if self._stream is None else dict(self._stream.errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Read no more."""
        self._rows.end()
        if self._driver is not None:
            self._driver.close()
