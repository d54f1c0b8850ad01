"""Read one part of a table, in a task of another engine; what all parts of a read have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from shardkit.capacity.budget import CapacityBudget
from shardkit.capacity.shared_budget import SharedBudget
from shardkit.core.checks import check_count, check_key
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError, brief
from shardkit.parts.table import check_table, connected, describe, for_tasks
from shardkit.passes.table_pass import reading
from shardkit.runtime.iterators import QueryItems
from shardkit.runtime.processes import Connect, alike
from shardkit.runtime.runner import Runner, draw_from
from shardkit.runtime.transports import default_transport
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.layout import Sharding
from shardkit.sharding.query.stream import QueryRows
from shardkit.strategies import Strategy
from shardkit.tables import programs_of

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLED = 1000  # items
_SAMPLED_PARTS = 8
_BATCH = 500  # items of a query
_MOST_SEGMENTS = 1_000_000  # of a Scan (API reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """What all parts of a read have in common; engines pickle it to their tasks.

    Example:
        config = ReadConfig(table="Orders", strategy=CalculatedSuffix("OrderId", shards=10), parts=8).prepared()
        batches = [batch for part in range(config.parts) for batch in read_part(config, part=part)]  # in tasks

    Args:
        table: The table's name.
        strategy: How its items are spread, as for ``ShardedTable``; no ``ShardMap``, and no ``Resharding`` between its
            stages, because tasks cannot follow a change.
        parts: The number of parts, at most 1,000,000.
        keys: Read the items of these logical partition keys, by fan-out queries. By default the whole table is read, by
            a parallel scan of ``parts`` segments.
        schema: The columns, as a ``pyarrow.Schema``. Attributes of other names are not requested. By default those of a
            sample: the primary key first, then the other attributes by name.
        indexes: The strategies of sharded indexes, as for ``ShardedTable``; their key attributes are hidden.
        read_units: Read units per second of the whole read; each part gets an equal share. Or a ``SharedBudget``, which
            every part that runs joins through its own client. By default no limit.
        consistent_read: Whether reads are strongly consistent, for twice the read units.
        connect: Creates the client (or resource, or Table) of the driver and of each task. By default each has the
            region and the endpoint of the driver's, and the credentials that boto3 finds on its machine.

    Raises:
        ConfigurationError: An argument is invalid.

    Cost: none before ``prepared``.
    """

    table: str
    strategy: Strategy
    parts: int
    keys: Sequence[Any] | None = None
    schema: pa.Schema | None = None
    indexes: Mapping[str, Strategy] | None = None
    read_units: float | SharedBudget | None = None
    consistent_read: bool = False
    connect: Connect | None = None
    # Set by prepared():
    description: Mapping[str, Any] | None = None
    alike: Connect | None = None

    def __post_init__(self) -> None:
        check_table(self.table, self.strategy, self.connect, instead="give the strategy that it has now")
        check_count("parts", self.parts, "parts", most=_MOST_SEGMENTS, why="the limit of Scan")
        if self.read_units is not None:
            CapacityBudget(read_units=self.read_units)
        if self.keys is not None and (isinstance(self.keys, str | bytes) or not isinstance(self.keys, Sequence)):
            raise ConfigurationError(
                f"keys: must be a list of partition keys, got {brief(self.keys)}; omit it to read the whole table"
            )
        for key in self.keys or ():
            check_key(key, "keys")

    def prepared(self) -> ReadConfig:
        """Check the read against its table, once, before the parts begin.

        Example:
            config = ReadConfig(table="Orders", strategy=RandomSuffix(10), parts=8).prepared()

        Returns:
            The same with its ``schema`` and the table's key schema. In an inferred schema, numbers are 64-bit integers
            if all of the sample are, else decimals of 38 digits.

        Raises:
            ConfigurationError: The table or the strategy does not fit the read; a type of the schema has no values of
                DynamoDB; or no schema holds the items of the sample.
            ClientError: The service refused a request.

        Cost: one DescribeTable; without a schema, up to 1,000 items are read, from 8 places of the table or of 8 keys.
        IAM: ``dynamodb:DescribeTable``; without a schema, ``dynamodb:Scan`` or ``dynamodb:Query``.
        """
        from shardkit.bulk.columns import Columns, schema_of  # noqa: PLC0415 - needs pyarrow

        with connected(self.connect, None) as client:
            made = None if self.connect is not None else alike(client, connections=1)
            config = replace(self, alike=made, description=for_tasks(describe(client, self.table, self.strategy)))
            reader = _Reader(config, client)
            key_names = reader.sharding.keys.names
            if self.schema is None:
                config = replace(config, schema=schema_of(reader.sample(), key_names))
            Columns(config.schema, key_names)
        return config


def read_part(config: ReadConfig, *, part: int) -> Iterator[pa.RecordBatch]:
    """Read one part of a table as record batches.

    Example:
        for batch in read_part(config, part=3):
            print(batch.num_rows)

    Args:
        config: What is read; from ``ReadConfig(…).prepared()``.
        part: Which part, from 0. All parts together have each item once. A part that is read again reads the table
            as it then is.

    Returns:
        An iterator of record batches, each of one page of a scan (1 MB) or of up to 500 items of a query.

    Raises:
        InvalidValueError: A value is of another type than its column, or does not fit; names item and column.
        ClientError: The service refused a request, also after the client's own retries.

    Cost: the read units of the whole items, also if ``schema`` has few of their attributes: 0.5 per 4 KB, 1 if strongly
    consistent. Memory: about ten times a page. IAM: ``dynamodb:Scan``, or with ``keys`` ``dynamodb:Query``.
    """
    from shardkit.bulk.columns import Columns  # noqa: PLC0415 - needs pyarrow

    if config.description is None or config.schema is None:
        raise ConfigurationError("config: is not prepared; give ReadConfig(…).prepared()")
    if not 0 <= part < config.parts:
        raise ConfigurationError(f"part: must be from 0 to {config.parts - 1}, got {part}; {config.parts} were planned")
    with connected(config.connect, config.alike) as client, _paced(config, client):
        reader = _Reader(config, client)
        names = reader.sharding.keys.names
        columns = Columns(config.schema, names)
        for items in reader.pages(part, [*names, *(set(config.schema.names) - set(names))]):
            if items:
                yield columns.batch(items)


class _Reader:
    """Reads stored items, shown with their logical keys."""

    def __init__(self, config: ReadConfig, client: Any) -> None:
        self._config = config
        programs = programs_of(
            config.table, config.strategy, config.description, draw_from(None), WIRE_VALUES, indexes=config.indexes
        )
        self._runner = Runner(client, programs, None, default_transport() if config.connect is None else "client")
        self.sharding: Sharding = self._runner.run(programs.known())
        self.sharding.refuse_if_moving(
            "a read in parts", "use scan_items() of ShardedTable, or read in stage 'old' or 'new'"
        )

    def pages(self, part: int, names: Sequence[str] | None = None) -> Iterator[Sequence[WireItem]]:
        """Yield the items of a part with these attributes (None: all)."""
        keys, parts = self._config.keys, self._config.parts
        if keys is None:
            return self._segment(part, parts, reading(names))
        return (page for key in _unique(keys)[part::parts] for page in self._items_of(key, reading(names)))

    def sample(self) -> Iterable[WireItem]:
        """Read some items from several places."""
        keys = None if self._config.keys is None else _unique(self._config.keys)[:_SAMPLED_PARTS]
        most = _SAMPLED // max(1, _SAMPLED_PARTS if keys is None else len(keys))
        if keys is not None:
            return chain.from_iterable(islice(chain.from_iterable(self._items_of(key, {})), most) for key in keys)
        places = (self._segment(part, _SAMPLED_PARTS, {"Limit": most}) for part in range(_SAMPLED_PARTS))
        return chain.from_iterable(islice(chain.from_iterable(pages), most) for pages in places)

    def _segment(self, part: int, parts: int, params: Mapping[str, Any]) -> Iterator[Sequence[WireItem]]:
        params = {**params, "ConsistentRead": self._config.consistent_read, "Segment": part, "TotalSegments": parts}
        start: Mapping[str, Any] = {}
        while True:
            page = self._runner.run(self._runner.programs.scan({**params, **start}, return_shards=False))
            yield page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _items_of(self, key: Any, params: Mapping[str, Any]) -> Iterator[Sequence[WireItem]]:
        programs = self._runner.programs
        names = {**params.get("ExpressionAttributeNames", {}), "#key": self.sharding.partition_key}
        query = {
            **params,
            "ConsistentRead": self._config.consistent_read,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": to_wire_item({":key": key}),
            "KeyConditionExpression": "#key = :key",
        }
        fan_out = self._runner.fan_out(programs.draw)
        rows = QueryRows(return_shards=False, max_items=None)
        with QueryItems(
            self._runner, lambda: programs.stream(query, None, max_items=None, fan_out=fan_out), rows
        ) as items:
            while page := list(islice(items, _BATCH)):
                yield page


@contextmanager
def _paced(config: ReadConfig, client: Any) -> Iterator[None]:
    units = config.read_units
    with ExitStack() as held:
        if isinstance(units, SharedBudget):
            units = held.enter_context(units.over(client))
        elif units is not None:
            units /= config.parts
        if units is not None:
            held.enter_context(CapacityBudget(read_units=units).attach(client))
        yield


def _unique(keys: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(map(check_key, keys)))  # binary keys as bytes, which can be hashed
