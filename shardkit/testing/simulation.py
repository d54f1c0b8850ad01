"""Simulated partitions between a client and its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from botocore.exceptions import ClientError

from shardkit.capacity.attach import parts_of, target_of
from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.service_errors import is_throttle
from shardkit.errors import ConfigurationError, brief
from shardkit.partitions.describe import ThroughputEstimate, estimate_table
from shardkit.partitions.model import Partitions
from shardkit.partitions.rules import BURST_SECONDS
from shardkit.runtime.targets import is_async
from shardkit.testing.clock import RealClock
from shardkit.testing.front import in_front
from shardkit.testing.partitioned import PartitionedTable
from shardkit.testing.report import Hot, complaint_of, hottest_keys, hottest_partitions, text_of

T = TypeVar("T")

_REAL_CLOCK = RealClock()  # one object, because all simulations of a client must share a clock


class SimulatedPartitions:
    """The simulated partitions of one table: the value of ``with simulate_partitions(…) as simulated``.

    ``print(simulated)`` shows the throttles, and the hottest partitions and keys, also after the ``with``.

    Attributes:
        clock: the clock of the simulation.
        is_async: whether its client is async. Enter the simulation with ``async with`` then.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        options: Mapping[str, Any],
        indexes: Mapping[str, Mapping[str, Any]],
        clock: RealClock,
    ) -> None:
        self.clock = clock
        self.is_async = is_async(client)
        self._client = client
        self._name = table
        self._options = options
        self._indexes = indexes
        self._table: PartitionedTable | None = None
        self._entered = ExitStack()

    # -- results

    @property
    def partitions(self) -> Partitions:
        """The table's partitions, with their ``heat`` over time."""
        return self._known.partitions[None]

    @property
    def index_partitions(self) -> dict[str, Partitions]:
        """The partitions of each global index, by its name."""
        return {name: partitions for name, partitions in self._known.partitions.items() if name is not None}

    @property
    def throttles(self) -> dict[str, int]:
        """The number of throttles by the service's reason: of each attempt, and of each item of a batch."""
        return dict(self._known.throttles)

    def hottest_partitions(self, count: int = 5) -> list[Hot]:
        """Return the most requested partitions of the table and its global indexes."""
        return hottest_partitions(self._known)[:count]

    def hottest_keys(self, count: int = 5) -> list[Hot]:
        """Return the most requested partition keys, as stored."""
        return hottest_keys(self._known)[:count]

    def assert_not_throttled(self) -> None:
        """Fail the test if a call was throttled, with the hottest partitions and keys, and what to do.

        Raises:
            AssertionError: a call was throttled.
        """
        __tracebackhide__ = True
        complaint = complaint_of(self._known)
        if complaint:
            raise AssertionError(complaint)

    def __str__(self) -> str:
        return text_of(self._known)

    # -- load

    def load(self, call: Callable[[T], object], items: Iterable[T], *, per_second: float) -> int:
        """Call a function for each item at a steady rate; count the calls that are throttled, and go on.

        Example:
            simulated.load(lambda order: orders.put_item(Item=order), orders_of_ten_minutes, per_second=40)

        Args:
            call: the function to call with each item; exceptions other than throttles end the load.
            items: the items.
            per_second: calls a second, above 0. A late call, after others that waited, comes at once.

        Returns:
            The number of calls that were throttled, after all retries by the client.

        Raises:
            ConfigurationError: ``per_second`` is not a number above 0.
        """
        throttled = 0
        for item in self.clock.pace(items, per_second=per_second):
            try:
                call(item)
            except ClientError as error:
                if not is_throttle(error):
                    raise
                throttled += 1
        return throttled

    # -- with

    def __enter__(self) -> Self:
        self._check(asynchronous=False)
        return self._begin(self._client.describe_table(TableName=self._name)["Table"])

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    async def __aenter__(self) -> Self:
        self._check(asynchronous=True)
        return self._begin((await self._client.describe_table(TableName=self._name))["Table"])

    async def __aexit__(self, *_: object) -> None:
        self._entered.close()

    def _check(self, *, asynchronous: bool) -> None:
        if asynchronous != self.is_async:
            kind, enter = ("a sync", "with") if asynchronous else ("an async", "async with")
            raise ConfigurationError(f"simulation of {self._name!r}: it has {kind} client; enter it with '{enter}'")

    def _begin(self, description: Mapping[str, Any]) -> Self:
        estimate = estimate_table(description)
        arn = description.get("TableArn", f"table/{estimate.table_name}")
        unknown = self._indexes.keys() - {index.index for index in estimate.indexes}
        if unknown:
            raise ConfigurationError(
                f"indexes: got {sorted(unknown)}; the global secondary indexes of {estimate.table_name!r} are "
                f"{sorted(str(index.index) for index in estimate.indexes)}; give some of those"
            )
        partitions: dict[str | None, Partitions] = {None: _partitions(estimate.table, arn, **self._options)}
        for index in estimate.indexes:
            options = {**self._options, **self._indexes.get(str(index.index), {})}
            partitions[index.index] = _partitions(index, f"{arn}/index/{index.index}", **options)
        table = PartitionedTable(description, partitions)
        self._entered.enter_context(in_front(self._client, table, self.clock))
        self._table = table
        return self

    @property
    def _known(self) -> PartitionedTable:
        if self._table is None:
            raise ConfigurationError(
                f"simulation of {self._name!r}: not started; enter it with 'with simulate_partitions(…)'"
            )
        return self._table


def simulate_partitions(
    client: Any,
    table: str | None = None,
    *,
    partitions: int | None = None,
    write_units: float | None = None,
    read_units: float | None = None,
    burst: float = BURST_SECONDS,
    adaptive_seconds: float | None = 0.0,
    indexes: Mapping[str, Mapping[str, Any]] | None = None,
    clock: RealClock | None = None,
) -> SimulatedPartitions:
    """Simulate a table's partitions between a client and its engine: moto, or an engine for tests.

    Example:
        with simulate_partitions(orders, partitions=4, write_units=4000, clock=VirtualClock()) as simulated:
            bulk_load(orders, items)
        simulated.assert_not_throttled()

    Reads and writes beyond what a partition serves are throttled as by the service:

    - Single requests raise ``ProvisionedThroughputExceededException`` (``ThrottlingException`` on an on-demand table)
      with the service's reasons, after the client's own retries.
    - Batches return ``UnprocessedItems`` or ``UnprocessedKeys``, and raise if nothing of them was served.
    - Transactions are cancelled.

    Everything else reaches the engine. ``ConsumedCapacity``, if requested, follows the rules of
    :mod:`shardkit.capacity`, whatever the engine reports.

    Args:
        client: a boto3 or aiobotocore client, a ``Table`` of boto3 or aioboto3, or a :class:`shardkit.ShardedTable`,
            also of ``shardkit.aio`` (all calls on its client). It must use moto (inside ``mock_aws``) or an engine for
            tests; AWS itself is refused.
        table: the table's name, if ``client`` is not a table. Use one simulation per table.
        partitions: the number of partitions; None: as many as the throughput makes.
        write_units: write units a second of the table; None: as in its description.
        read_units: read units a second of the table; None: as in its description.
        burst: for how many seconds unused throughput is kept; the service keeps 300.
        adaptive_seconds: seconds until a hot partition may use what the others leave; 0: at once, as today; None:
            never, each has its share.
        indexes: for global secondary indexes, by name, those of the five options above that differ from the table's:
            ``{"ByCustomer": {"partitions": 2, "write_units": 500}}``. An index without enough units throttles writes.
        clock: the machine's clock, or a :class:`VirtualClock`, which shardkit's own loops over the client then use
            too.

    Returns:
        A context manager (``async with`` for an async client); the simulation lasts until its end.

    Raises:
        ConfigurationError: an argument is invalid; also raised on entering.
        ClientError: on entering: the table does not exist.

    botocore's own retries wait in real time, whatever the clock. With a virtual clock, create the client with
    ``Config(retries={"total_max_attempts": 1})``. PartiQL on the table is refused.

    Cost:
        One DescribeTable. On the engine, one BatchGetItem before each write and one after an update, and one more read
        for a projected or filtered read; only ``before-send`` handlers of the client see these. Memory: a few KB per
        partition, and 300 bytes for each of up to 10,000 keys.

    Source:
        :class:`shardkit.partitions.Partitions`; DynamoDB API reference, ``ThrottlingReason``.
    """
    if parts_of(client) is not None and table is None:
        raise ConfigurationError(
            f"client: must be one table, got {brief(client, 200)}; give its client and the name of the table of a "
            "period: simulate_partitions(series.meta.client, series.table_name(time), …)"
        )
    try:
        client, name, _ = target_of(client, {}, describe=False)
    except ConfigurationError:
        raise ConfigurationError(
            "client: must be a boto3 or aiobotocore DynamoDB client, a Table or a ShardedTable, got "
            f"{type(client).__name__}"
        ) from None
    if name is None or table is not None:
        name = table if isinstance(table, str) else None
    if name is None:
        raise ConfigurationError(
            f"table: must be the table's name, got {brief(table)}; give it, or pass a Table instead of a client"
        )
    options = {
        "adaptive_seconds": adaptive_seconds,
        "burst": burst,
        "partitions": partitions,
        "read_units": read_units,
        "write_units": write_units,
    }
    if not isinstance(indexes, Mapping | None):
        raise ConfigurationError(
            f'indexes: must be options by index name, {{"ByCustomer": {{…}}}}, got {brief(indexes, 200)}'
        )
    if not isinstance(clock, RealClock | None):
        raise ConfigurationError(f"clock: must be a VirtualClock or RealClock, got {brief(clock)}")
    for index, of_index in (indexes or {}).items():
        if not isinstance(of_index, Mapping) or not options.keys() >= of_index.keys():
            raise ConfigurationError(
                f"indexes[{index!r}]: must be a mapping with some of {', '.join(options)}, got {brief(of_index, 200)}"
            )
    return SimulatedPartitions(client, name, options, indexes or {}, clock or _REAL_CLOCK)


def _partitions(
    estimate: ThroughputEstimate,
    resource: str,
    *,
    partitions: int | None,
    read_units: float | None,
    write_units: float | None,
    burst: float,
    adaptive_seconds: float | None,
) -> Partitions:
    check_number("burst", burst, "seconds")
    if partitions is not None:
        check_count("partitions", partitions, "partitions")
    described = read_units is None and write_units is None
    on_demand = described and estimate.billing_mode == "PAY_PER_REQUEST"
    if on_demand:
        read_units, write_units = estimate.max_read_units, estimate.max_write_units
    elif estimate.billing_mode == "PROVISIONED":
        if described and partitions is None:
            partitions = estimate.partitions
        read_units = estimate.read_units if read_units is None else read_units
        write_units = estimate.write_units if write_units is None else write_units
    return Partitions(
        read_units=read_units,
        write_units=write_units,
        count=partitions,
        burst_seconds=burst,
        adaptive_seconds=adaptive_seconds,
        on_demand=on_demand,
        resource=resource,
    )
