"""Reads of many items: merged queries, scans, and how they are carried out."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Literal, TypeVar

from shardkit.forwarded import ForwardingTable
from shardkit.runtime.runner import Runner
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.programs import Programs
from shardkit.sharding.query.stream import Rows
from shardkit.streams import QueryItems

__all__ = ["ReadingTable"]

T = TypeVar("T", bound="ReadingTable")
_KEPT: Any = object()  # of a view: as in the table that it is made from


class ReadingTable(ForwardingTable):
    """The part of a sharded table that reads many items."""

    _programs: Programs
    _runner: Runner
    _fan_out: FanOut

    def with_options(  # noqa: PYI019 - typing.Self needs Python 3.11
        self: T,
        *,
        timeout: float | None = _KEPT,
        on_shard_error: Literal["raise", "partial"] = _KEPT,
        max_concurrency: int | None = None,
        max_buffer_bytes: int = _KEPT,
    ) -> T:
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
