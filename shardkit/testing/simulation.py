"""Simulated partitions in front of whatever answers a client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from shardkit.capacity.attach import target_of
from shardkit.core.checks import check_count, check_number
from shardkit.dynamodb.service_errors import Kind, is_throttle
from shardkit.errors import ConfigurationError
from shardkit.partitions.describe import ThroughputEstimate, estimate_table
from shardkit.partitions.model import Partitions
from shardkit.partitions.partition import LIMITS
from shardkit.partitions.rules import BURST_SECONDS
from shardkit.testing.clock import RealClock
from shardkit.testing.front import in_front
from shardkit.testing.partitioned import PartitionedTable
from shardkit.testing.report import Hot, complaint_of, hottest_keys, hottest_partitions, text_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["SimulatedPartitions", "simulate_partitions"]

T = TypeVar("T")

_MACHINES_TIME = RealClock()  # one for all, so that several tables of one client are in the same


class SimulatedPartitions:
    """The partitions of one table, in front of a client: what ``with simulate_partitions(…) as simulated`` gives.

    ``print(simulated)`` shows what was throttled, and the hottest partitions and keys. It can be looked at after its
    ``with`` too.

    Attributes:
        clock: the time it lives in.
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
        self._client = client
        self._name = table
        self._options = options
        self._indexes = indexes
        self._table: PartitionedTable | None = None
        self._entered = ExitStack()

    # -- what it says

    @property
    def partitions(self) -> Partitions:
        """The table's partitions, with their ``heat`` over time."""
        return self._known.partitions[None]

    @property
    def index_partitions(self) -> dict[str, Partitions]:
        """Those of each global index, by its name."""
        return {name: partitions for name, partitions in self._known.partitions.items() if name is not None}

    @property
    def throttles(self) -> dict[str, int]:
        """How often what was refused, by the service's reason: each attempt, and each item of a batch."""
        return dict(self._known.throttles)

    def hottest_partitions(self, count: int = 5) -> list[Hot]:
        """Give the partitions that were asked for most units, of the table and of its global indexes."""
        return hottest_partitions(self._known)[:count]

    def hottest_keys(self, count: int = 5) -> list[Hot]:
        """Give the partition keys, as they are stored, that were asked for most units."""
        return hottest_keys(self._known)[:count]

    def assert_not_throttled(self) -> None:
        """Fail a test whose calls were throttled, with the hottest partitions and keys, and what to do.

        Raises:
            AssertionError: they were.
        """
        __tracebackhide__ = True
        complaint = complaint_of(self._known)
        if complaint:
            raise AssertionError(complaint)

    def __str__(self) -> str:
        """Show what was throttled, and the hottest partitions and keys."""
        return text_of(self._known)

    # -- load

    def load(self, call: Callable[[T], object], items: Iterable[T], *, per_second: float) -> int:
        """Make a call for each item, so many a second; one that ends in a throttle is counted, and the load goes on.

        Example::

            simulated.load(lambda order: orders.put_item(Item=order), orders_of_ten_minutes, per_second=40)

        Args:
            call: what is called with each item; its other exceptions end the load.
            items: the items.
            per_second: calls a second, above 0. Those that are late, because earlier ones waited, come at once.

        Returns:
            How many calls ended in a throttle, after all retries that their client makes.

        Raises:
            ConfigurationError: ``per_second`` is no such number.
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
        """Begin."""
        self._check(asynchronous=False)
        return self._begin(self._client.describe_table(TableName=self._name)["Table"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the client's calls go by again."""
        self._entered.close()

    async def __aenter__(self) -> Self:
        """Begin, with an async client."""
        self._check(asynchronous=True)
        return self._begin((await self._client.describe_table(TableName=self._name))["Table"])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the client's calls go by again."""
        self._entered.close()

    def _check(self, *, asynchronous: bool) -> None:
        if asynchronous != hasattr(self._client, "__aenter__"):
            kind, enter = ("a sync", "with") if asynchronous else ("an async", "async with")
            raise ConfigurationError(
                f"the simulation of {self._name!r} is in front of {kind} client; enter it: {enter}"
            )

    def _begin(self, description: Mapping[str, Any]) -> Self:
        estimate = estimate_table(description)
        arn = description.get("TableArn", f"table/{estimate.table_name}")
        unknown = self._indexes.keys() - {index.index for index in estimate.indexes}
        if unknown:
            raise ConfigurationError(
                f"indexes= names {sorted(unknown)}, and the global secondary indexes of {estimate.table_name!r} are "
                f"{sorted(str(index.index) for index in estimate.indexes)}; give some of those"
            )
        made: dict[str | None, tuple[Partitions, Mapping[Kind, float]]] = {}
        made[None] = _partitions(estimate.table, arn, **self._options)
        for index in estimate.indexes:
            options = {**self._options, **self._indexes.get(str(index.index), {})}
            made[index.index] = _partitions(index, f"{arn}/index/{index.index}", **options)
        partitions = {name: pair[0] for name, pair in made.items()}
        serves = {name: pair[1] for name, pair in made.items()}
        table = PartitionedTable(description, partitions, serves)
        self._entered.enter_context(in_front(self._client, table, self.clock))
        self._table = table
        return self

    @property
    def _known(self) -> PartitionedTable:
        if self._table is None:
            raise ConfigurationError(
                f"the simulation of {self._name!r} has not begun; enter it: with simulate_partitions"
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
    """Put simulated partitions in front of whatever answers a client: moto, or an engine for tests.

    Example::

        with simulate_partitions(orders, partitions=4, write_units=4000, clock=VirtualClock()) as simulated:
            bulk_load(orders, items)
        simulated.assert_not_throttled()

    Reads and writes beyond what a partition serves are answered as the service does: with
    ``ProvisionedThroughputExceededException`` (``ThrottlingException`` on an on-demand table) and its reasons, which go
    through the client's own retries; batches come back with ``UnprocessedItems`` or ``UnprocessedKeys``, and are
    refused where nothing of them was taken; transactions are cancelled. All else is carried out, and
    ``ConsumedCapacity``, where it is asked for, is true to the rules (:mod:`shardkit.capacity`), whatever the engine
    says.

    Args:
        client: a boto3 or aiobotocore client, a boto3 ``Table`` or a :class:`shardkit.ShardedTable` (all calls on the
            client that it holds). It reaches moto (inside ``mock_aws``) or an engine; AWS itself is refused.
        table: the table's name, where ``client`` is no table. For several tables there are several simulations.
        partitions: how many the table has; None: as many as its throughput makes.
        write_units: write units a second that the table has; None: as it is described.
        read_units: read units a second that the table has; None: as it is described.
        burst: seconds for which throughput that is not used is kept; the service's 300.
        adaptive_seconds: until a hot partition may use what the others leave; 0: at once, as today; None: never, each
            has its share.
        indexes: of global secondary indexes, by name, those of the five options above that are other than the table's:
            ``{"ByCustomer": {"partitions": 2, "write_units": 500}}``. An index that is short of units throttles writes.
        clock: the time that it lives in: the machine's, or a :class:`VirtualClock`, which shardkit's own loops over the
            client then live in too.

    Returns:
        A context manager (``async with`` for an async client): inside it, the partitions are there.

    Raises:
        ConfigurationError: an argument cannot work; when it is entered, too.
        ClientError: when it is entered: the table is not there.

    Of botocore's own retries the waits are real, whatever the clock: with a virtual one, give the client
    ``Config(retries={"total_max_attempts": 1})``. PartiQL on the table is refused.

    Cost:
        One DescribeTable. To the engine, one BatchGetItem before a write and one after an update, and for a projected
        or filtered read one more read; of the client's handlers only those of ``before-send`` see them. Memory: a few
        KB a partition, 300 bytes for each of up to 10,000 keys.

    Source:
        :class:`shardkit.partitions.Partitions`; DynamoDB API reference, ``ThrottlingReason``.
    """
    try:
        client, name, _ = target_of(client, {}, describe=False)
    except ConfigurationError:
        raise ConfigurationError(
            "partitions are simulated in front of a boto3 or aiobotocore DynamoDB client, a Table or a ShardedTable, "
            f"got {type(client).__name__}; give one of them"
        ) from None
    if name is None or table is not None:
        name = table if isinstance(table, str) else None
    if name is None:
        raise ConfigurationError(
            f"table= is the table's name, got {table!r:.100}; give it, or a Table in place of a client"
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
            f'indexes= has the options of each index by its name, got {indexes!r:.200}; give {{"ByCustomer": {{…}}}}'
        )
    if not isinstance(clock, RealClock | None):
        raise ConfigurationError(f"clock={clock!r:.100} is no clock; give VirtualClock(), or RealClock()")
    for index, of_index in (indexes or {}).items():
        if not isinstance(of_index, Mapping) or not options.keys() >= of_index.keys():
            raise ConfigurationError(
                f"indexes[{index!r}] has the options of an index ({', '.join(options)}), got {of_index!r:.200}; give "
                "some of those"
            )
    return SimulatedPartitions(client, name, options, indexes or {}, clock or _MACHINES_TIME)


def _partitions(
    estimate: ThroughputEstimate,
    resource: str,
    *,
    partitions: int | None,
    read_units: float | None,
    write_units: float | None,
    burst: float,
    adaptive_seconds: float | None,
) -> tuple[Partitions, Mapping[Kind, float]]:
    """Make the partitions of a table or of an index, and say what each serves."""
    check_number("burst", burst, "seconds")
    if partitions is not None:
        check_count("partitions", partitions, "partitions")
    described = read_units is None and write_units is None
    on_demand = described and estimate.billing_mode == "PAY_PER_REQUEST"
    if on_demand:
        units: dict[Kind, float | None] = {"read": estimate.max_read_units, "write": estimate.max_write_units}
    else:
        units = {"read": read_units, "write": write_units}
        if estimate.billing_mode == "PROVISIONED":
            units = {
                "read": estimate.read_units if read_units is None else read_units,
                "write": estimate.write_units if write_units is None else write_units,
            }
        if described and partitions is None:
            partitions = estimate.partitions
    made = Partitions(
        read_units=units["read"],
        write_units=units["write"],
        count=partitions,
        burst_seconds=burst,
        adaptive_seconds=adaptive_seconds,
        on_demand=on_demand,
        resource=resource,
    )
    shared = adaptive_seconds is None and not on_demand
    shares = {
        kind: limit if (of := units[kind]) is None or not shared else of / len(made) for kind, limit in LIMITS.items()
    }
    return made, {kind: min(limit, shares[kind]) for kind, limit in LIMITS.items()}
