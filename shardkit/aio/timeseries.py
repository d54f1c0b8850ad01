"""The async TimeSeries.

Generated from shardkit/timeseries/series.py by .ci/generate_aio.py: change it there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Unpack, cast

from shardkit.analysis.prices import Prices
from shardkit.aio.table import ItemOperations
from shardkit.core.calls import explains_calls
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.runner import AsyncRunner, draw_from
from shardkit.runtime.targets import client_of, is_async
from shardkit.runtime.transports import Transport
from shardkit.sharding.form import PYTHON_VALUES
from shardkit.strategies import Strategy, Unsharded
from shardkit.table_types import BatchGetItemsResponse, ReadOptions, ShardedGetItemResponse
from shardkit.timeseries.periods import PeriodLength, TimeFormat, second_of
from shardkit.timeseries.plans import Tuning
from shardkit.timeseries.programs import SeriesPrograms
from shardkit.timeseries.settings import Late, Missing, Series, Throughput
from shardkit.timeseries.steps import Maintenance, MaintenanceReport

__all__ = ["TimeSeries"]


def _now() -> datetime:
    return datetime.now(UTC)


@explains_calls
class TimeSeries(ItemOperations):
    """One logical table that stores the items of each period in a table of its own.

    Example:
        clicks = TimeSeries(
            client, "clicks", at="Time", period="month",
            schema={
                "KeySchema": [
                    {"AttributeName": "Customer", "KeyType": "HASH"}, {"AttributeName": "Time", "KeyType": "RANGE"},
                ],
                "AttributeDefinitions": [
                    {"AttributeName": name, "AttributeType": "S"} for name in ("Customer", "Time")
                ],
            },
            hot=Throughput(read_units=5000, write_units=8000), cold=Throughput(read_units=50, write_units=1), keep=12,
        )
        await clicks.maintain()
        clicks.put_item(Item={"Customer": "c1", "Time": "2014-07-09T10:00:00Z", "Url": "/"})  # into clicks-2014-07

    Methods for items are those of :class:`ShardedTable`. An item's table follows from its time alone. A key must have
    the time too, if it is not part of the primary key: ``Key={"Id": "A17", "Time": "2014-07-09T10:00:00Z"}``.

    Queries and scans read only the tables that can have matching items, one after another. If the sort key of the table
    (or index) is ``at``, the order is that of one table. Otherwise the items come period by period, each period in the
    order of its sort key. One cursor goes over all tables.

    Args:
        target: An aiobotocore client, or an aioboto3 resource.
        name: The name of the series; its tables are ``clicks-2014-07``, ``clicks-2014-07-09`` or ``clicks-2014-W28``.
        at: The attribute with the item's time, which never changes.
        period: ``"day"``, ``"week"`` (from Monday), ``"month"``, or a timedelta from a minute to 366 days, counted from
            1970-01-01. All periods begin and end in UTC.
        schema: The arguments of CreateTable, without ``TableName`` and throughput: keys, indexes, stream, tags.
        strategy: How the keys of tables without a plan are sharded, as for ``ShardedTable``; None: not at all.
        indexes: The sharded global secondary indexes, as for ``ShardedTable``.
        time_format: The format of ``at``: ``"iso"`` (text with a zone: ``2014-07-09T10:00:00Z``; a sort key must be in
            UTC), ``"iso without zone"`` (text that is taken as UTC: ``2014-07-09T10:00:00``), ``"seconds"`` or
            ``"milliseconds"`` since 1970 (numbers).
        hot: The throughput and table class of the current period's table, and of the next one; by default on-demand.
        cold: The same for tables of periods that have ended; None: they stay as they are.
        keep: How many periods that have ended are kept, beside the current one, at most 1,000,000; None: all.
        archive: Where tables that are older than ``keep`` are exported to before they are deleted:
            ``"s3://bucket/prefix"``.
        delete: Whether :meth:`maintain` deletes tables that are older than ``keep``.
        late: What to do with puts and updates in a period that has ended: ``"write"`` them to its table, or
            ``"error"``. Periods older than ``keep`` always refuse them.
        missing: What to do with writes to a period whose table does not exist: ``"create"`` it, or ``"error"``. No
            table later than the next period's is created.
        ahead: How long before its start a period's table is created; by default a tenth of a period, at most a day.
            Must be longer than the time between two runs of :meth:`maintain`.
        cool_after: How long after its end a period's table stays hot.
        prices: Prices, to show in dollars what :meth:`maintain` saves.
        plans: The control table (a boto3 ``Table``, or its name), with a string partition key and sort key. It has the
            strategy of each period, so that periods can differ. All processes must give it.
        max_concurrency: As for ``ShardedTable``.
        rng: As for ``ShardedTable``.
        transport: As for ``ShardedTable``.
        cursor_secret: As for ``ShardedTable``.
        clock: Returns the time, a datetime with a zone; by default the machine's clock.

    Raises:
        ConfigurationError: An argument is invalid.

    Cost: none. Reads of several tables list the tables, at most once a minute. So a table that another process creates
    is read after a minute at the latest. With ``plans``, a Query of the control table for periods new to this client.
    IAM: ``dynamodb:ListTables`` (on ``table/clicks-*``); with ``plans``, ``DescribeTable``, ``Query``, ``PutItem``.
    """

    _programs: SeriesPrograms

    def __init__(
        self,
        target: Any,
        name: str,
        *,
        at: str,
        period: PeriodLength,
        schema: Mapping[str, Any],
        strategy: Strategy | None = None,
        indexes: Mapping[str, Strategy] | None = None,
        time_format: TimeFormat = "iso",
        hot: Throughput = Throughput(),  # noqa: B008 - frozen
        cold: Throughput | None = None,
        keep: int | None = None,
        archive: str | None = None,
        delete: bool = False,
        late: Late = "write",
        missing: Missing = "error",
        ahead: timedelta | None = None,
        cool_after: timedelta = timedelta(),
        prices: Prices | None = None,
        plans: Any = None,
        max_concurrency: int | None = None,
        rng: random.Random | None = None,
        transport: Transport = "client",
        cursor_secret: bytes | Sequence[bytes] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        client = client_of(target)
        if not is_async(client):
            raise ConfigurationError(
                f"target: must be an aiobotocore client or aioboto3 resource, got {brief(target)}; use "
                "shardkit.TimeSeries for one of boto3"
            )
        series = Series(
            name=name,
            at=at,
            period=period,
            schema=schema,
            time_format=time_format,
            hot=hot,
            cold=cold,
            keep=keep,
            archive=archive,
            delete=delete,
            late=late,
            missing=missing,
            ahead=ahead,
            cool_after=cool_after,
            prices=prices,
        )
        form = PYTHON_VALUES.signing(cursor_secret)
        self._programs = SeriesPrograms(series, strategy or Unsharded(), draw_from(rng), clock, indexes, form, plans)
        self._runner = AsyncRunner(client, self._programs, max_concurrency, transport)
        self._fan_out = self._runner.fan_out(self._programs.draw)

    def __repr__(self) -> str:
        series = self._programs.series
        return f"TimeSeries({series.name!r}, at={series.at!r}, period={series.period!r}, strategy={self.strategy!r})"

    @property
    def name(self) -> str:
        """The name of the series, with which its tables' names begin."""
        return self._programs.series.name

    @property
    def meta(self) -> Any:
        """As boto3's ``Table.meta``: ``meta.client`` is the unsharded client."""
        return SimpleNamespace(client=self._runner.client)

    def table_name(self, time: datetime) -> str:
        """Return the name of the table that has the items of a time.

        Example:
            clicks.table_name(datetime(2014, 7, 9, tzinfo=UTC))  # "clicks-2014-07"

        Args:
            time: A datetime with a zone.

        Returns:
            The name; the table may not exist.

        Raises:
            ConfigurationError: The time has no zone.

        Cost: none.
        """
        series = self._programs.series
        return series.table(series.calendar.of(second_of("time", time)))

    async def table_names(self) -> list[str]:
        """Return the names of the tables that exist, the oldest first.

        Example:
            await clicks.table_names()  # ["clicks-2014-06", "clicks-2014-07"]

        Cost: one ListTables per 100 tables of the account, at most once a minute. IAM: ``dynamodb:ListTables``.
        """
        periods = await self._runner.run(self._programs.tables.existing())
        return [self._programs.series.table(period) for period in periods]

    async def get_item(
        self,
        *,
        Key: Mapping[str, Any],
        since: datetime | None = None,
        Shard: int | None = None,
        ReturnShards: bool = False,
        **options: Unpack[ReadOptions],
    ) -> ShardedGetItemResponse:
        """Read one item.

        Example:
            response = await clicks.get_item(Key={"Customer": "c1", "Time": "2014-07-09T10:00:00Z"})
            response.get("Item")  # None if there is no such item

        If the key has no time, it asks one table after another, the newest first, until one has the item.

        Args:
            Key: The logical primary key, the time if known, and the attributes that ``by`` names.
            since: For keys without a time: ask no table of a period before this time's.
            Shard: The number of the shard to read.
            ReturnShards: Add ``Shard`` to the response.
            options: As for boto3's ``Table.get_item``.

        Returns:
            boto3's response; without ``Item`` if the item, or its table, does not exist.

        Raises:
            InvalidKeyError: The time is not in the format that ``time_format`` says.
            ShardUnknownError: The shard cannot be calculated.

        Cost: one GetItem; for a key without a time, one for each table from the newest to that with the item (at least
        0.5 read units each), and for all of them if there is no such item.
        IAM: ``dynamodb:GetItem`` (``dynamodb:ListTables``).
        """
        program = self._programs.item(
            "GetItem",
            {"Key": Key, **options},
            shard=Shard,
            return_shards=ReturnShards,
            fan_out=self._fan_out,
            since=since,
        )
        return cast("ShardedGetItemResponse", await self._runner.run(program))

    async def batch_get_items(
        self, keys: Iterable[Mapping[str, Any]], *, since: datetime | None = None, **options: Unpack[ReadOptions]
    ) -> BatchGetItemsResponse:
        """Read many items by key, one table after another, the newest first.

        Example:
            response = await clicks.batch_get_items([{"Customer": "c1", "Time": "2014-07-09T10:00:00Z"}])
            response["Items"]

        Args:
            keys: Logical primary keys, each with its time if known; a key without one is looked for in all tables.
            since: As for :meth:`get_item`.
            options: As for :meth:`ShardedTable.batch_get_items`.

        Returns:
            As :meth:`ShardedTable.batch_get_items` returns.

        Raises:
            The errors of :meth:`get_item`.

        Cost: one BatchGetItem per 100 keys and table. IAM: ``dynamodb:BatchGetItem`` (``dynamodb:ListTables``).
        """
        program = self._programs.batch_get_items(keys, options, fan_out=self._fan_out, since=since)
        return cast("BatchGetItemsResponse", await self._runner.run(program))

    async def plan(self, now: datetime | None = None, *, tuning: Tuning | None = None) -> Maintenance:
        """Return what :meth:`maintain` would do, and what that saves.

        Example:
            print(await clicks.plan())

        Args:
            now: The time, with a zone; None: the clock's.
            tuning: As for :meth:`maintain`.

        Returns:
            The plan; ``print`` shows it.

        Cost: one ListTables per 100 tables of the account, and one DescribeTable per table of the series; for each one
        that is older than ``keep``, with ``archive``: one DescribeContinuousBackups, ListExports and one DescribeExport
        per export.
        IAM: ``dynamodb:ListTables``, ``DescribeTable``, ``DescribeContinuousBackups``, ``ListExports``,
        ``DescribeExport``.
        """
        return await self._runner.over("client").run(self._programs.maintenance(now, tuning))

    async def maintain(
        self,
        now: datetime | None = None,
        *,
        on_plan: Callable[[Maintenance], object] | None = None,
        tuning: Tuning | None = None,
    ) -> MaintenanceReport:
        """Create, dial down, archive and delete the tables that are due. Run it regularly, for example every hour.

        Example:
            print(await clicks.maintain(on_plan=print))

        1. It creates the tables of the current period, and ``ahead`` of time that of the next one.
        2. It gives tables of periods that have ended the throughput and the table class of ``cold``.
        3. It exports tables that are older than ``keep`` to ``archive``. The export takes from minutes to hours; a
           later run goes on.
        4. It deletes tables that are older than ``keep``, if ``delete=True``, and with ``archive`` only those whose
           export is complete.

        Every step follows from what the tables are at that moment. So you can stop it at any point, and run it again or
        twice at once.

        Args:
            now: The time, with a zone; None: the clock's.
            on_plan: Called with the plan before anything is done.
            tuning: By what new tables are planned; needs ``plans``. None: they have ``strategy`` and ``hot``.

        Returns:
            What was done, what waits for a later run, and what was refused.

        Raises:
            MaintenanceError: Some steps failed; the others are done. Its ``report`` says which.

        Cost: as for :meth:`plan`, and one request per step. It waits until a table is active before its next step.
        IAM: as for :meth:`plan`, and ``dynamodb:CreateTable``, ``UpdateTable``, ``UpdateContinuousBackups``,
        ``ExportTableToPointInTime``, ``DeleteTable``; ``s3:AbortMultipartUpload``, ``s3:PutObject`` and
        ``s3:PutObjectAcl`` for the archive.
        """
        return await self._runner.over("client").run(self._programs.maintained(now, on_plan or _ignored, tuning))


def _ignored(plan: Maintenance) -> None:
    pass
