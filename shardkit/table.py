"""ShardedTable: a boto3 ``Table`` whose partition keys are spread over shards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from shardkit.bulk.batch_writer import BatchWriter
from shardkit.errors import ConfigurationError
from shardkit.reading import ReadingTable
from shardkit.runtime.runner import Runner, draw_from, log_retry
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.programs import Programs
from shardkit.strategies import Strategy

__all__ = ["ShardedTable"]


class ShardedTable(ReadingTable):
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
        meta = getattr(table, "meta", None)
        if not hasattr(meta, "client") or not hasattr(table, "name"):
            raise ConfigurationError(
                f"table is {table!r:.100}, not a boto3 Table; give boto3.resource('dynamodb').Table('…')"
            )
        self._table = table
        self._programs = Programs(table.name, strategy, key_schema, draw_from(rng))
        self._runner = Runner(table.meta.client, self._programs, max_concurrency)
        self._fan_out = FanOut(self._runner.concurrency, on_retry=log_retry)

    def __repr__(self) -> str:
        return f"ShardedTable({self._table!r}, {self.strategy!r})"

    @property
    def strategy(self) -> Strategy:
        """How suffixes are chosen."""
        return self._programs.strategy

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
        return self._runner.run(
            self._programs.get_item(
                {"Key": Key, **options}, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out
            )
        )

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
        return self._runner.run(
            self._programs.put_item(
                {"Item": Item, **options}, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out
            )
        )

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
        return self._runner.run(
            self._programs.update_item(
                {"Key": Key, **options}, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out
            )
        )

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
        return self._runner.run(
            self._programs.delete_item(
                {"Key": Key, **options}, shard=Shard, return_shards=ReturnShards, fan_out=self._fan_out
            )
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
