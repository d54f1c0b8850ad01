"""The operations of a table with a shard map: those of a table with a strategy, each under a lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import wraps
from typing import Any, Self, TypeVar

from shardkit.core.machine import Answer, Machine, Program, Send, Step
from shardkit.core.merge import Rows
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError, UnsupportedOperationError
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.leases import Held, KnownMap, Leased, leased
from shardkit.sharding.programs import Programs
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import QueryStream
from shardkit.sharding.scan import Row
from shardkit.sharding.shard_map import Clock, ShardMap, ShardMapState, map_key
from shardkit.strategies import Strategy, Unsharded

T = TypeVar("T")
Run = TypeVar("Run", bound=Callable[..., Program[Any]])


def _under_lease(run: Run) -> Run:
    """Return an operation that runs under a lease, and again if the map has changed before its last request."""

    @wraps(run)
    def leased_run(self: MappedPrograms, *given: Any, **options: Any) -> Program[Any]:
        return leased(lambda held: run(self.under(held), *given, **options))

    return leased_run  # type: ignore[return-value]


class MappedPrograms(Programs):
    """The operations of a table with a shard map."""

    def __init__(
        self,
        table: str,
        strategy: ShardMap,
        key_schema: Mapping[str, Any] | None,
        draw: Callable[[], float],
        form: Form = PYTHON_VALUES,
        shardings: dict[str, Sharding] | None = None,
        indexes: Mapping[str, Strategy] | None = None,
        *,
        clock: Clock,
    ) -> None:
        self._origin = self
        self._held: Held | None = None
        self._given_description: Mapping[str, Any] = {}
        self._map = KnownMap(table, clock, self._sharding_of)
        super().__init__(table, strategy, key_schema, draw, form, shardings, indexes)

    def under(self, held: Held) -> Self:
        """Return the same operations for one call, whose leases ``held`` collects."""
        programs = copy(self)
        programs._held = held  # noqa: SLF001 - its own
        return programs

    def describe(self, description: Mapping[str, Any]) -> Sharding:
        # What is known without the map: the keys.
        sharding = Sharding.described(self.table, Unsharded(), description, self.form, self.indexes)
        if sharding.types.get(sharding.partition_key) == "N":
            raise ConfigurationError(
                f"strategy: the partition key {sharding.partition_key!r} of table {self.table!r} is a number, which "
                "cannot have a suffix, so a ShardMap is of no use; give Unsharded()"
            )
        self._origin._given_description = description  # noqa: SLF001 - its own
        self._origin._sharding = self._sharding = sharding  # noqa: SLF001 - its own
        if (lease := self._map.lease) is not None:
            lease.sharding = self._origin._sharding_of(lease.state)  # noqa: SLF001 - its own
        return sharding

    def _sharding_of(self, state: ShardMapState) -> Sharding:
        sharding = Sharding.described(self.table, state.strategy, self._given_description, self.form, self.indexes)
        self.shardings[table_name(self.table)] = sharding = replace(sharding, has_map=True)
        return sharding

    def known(self, index: object = None) -> Program[Sharding]:
        if self._held is None:
            raise ConfigurationError(
                f"table: {self.table!r} has a ShardMap, which this call does not support; give a table with the "
                "strategy that ShardMapAdmin(table).read().strategy returns, while no move is under way"
            )
        described = yield from super().known(index)
        key = map_key(described.keys, described.types)
        if self._map.lease is None:
            yield from self._map.read(key)
        lease = self._map.lease
        assert lease is not None
        self._held.add(lease, key)
        return lease.sharding

    def _strategy_now(self) -> Program[tuple[Strategy, Held | None]]:
        held = Held()
        yield from self.under(held).known()
        lease = self._map.lease
        assert lease is not None
        return lease.state.strategy, held

    def key_names(self) -> Program[tuple[str, ...]]:
        return (yield from super().known()).key_names

    item = _under_lease(Programs.item)
    query = _under_lease(Programs.query)
    scan = _under_lease(Programs.scan)
    batch_get_items = _under_lease(Programs.batch_get_items)
    transact = _under_lease(Programs.transact)
    logical = _under_lease(Programs.logical)

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        raise UnsupportedOperationError(
            f"physical_key(), physical_item(): not possible with a ShardMap (table {self.table!r}), because an item's "
            "place may change before your request goes; use the operations of the table"
        )

    def stream(self, *given: Any, **options: Any) -> Program[QueryStream]:
        def run(held: Held) -> Program[QueryStream]:
            stream = yield from Programs.stream(self.under(held), *given, **options)
            return _LeasedStream(stream, held)

        return leased(run)

    def segments(self, *given: Any, **options: Any) -> Program[Machine[list[Row]]]:
        def run(held: Held) -> Program[Machine[list[Row]]]:
            stream = yield from Programs.segments(self.under(held), *given, **options)
            return Leased(stream, held)

        return leased(run)


class _LeasedStream:
    """A stream, each of whose requests is checked. If the map has changed, it ends with an error."""

    def __init__(self, stream: QueryStream, held: Held) -> None:
        self._stream = stream
        self._held = held

    @property
    def plan(self) -> Plan:
        return self._stream.plan

    @property
    def errors(self) -> Mapping[int | None, Exception]:
        return self._stream.errors

    def hedged(self) -> Machine[Rows]:
        return Leased(self._stream.hedged(), self._held)

    def next(self, now: float) -> Step[Rows]:
        return self._stream.next(now)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._stream.receive(send, answer, now)
