"""The operations of a table with a shard map: those of a table with a strategy, each under a lease."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Self, TypeVar

from shardkit.core.machine import Answer, Done, Machine, Program, ProgramMachine, Send, Step
from shardkit.core.merge import Rows
from shardkit.errors import ConfigurationError, UnsupportedOperationError
from shardkit.sharding.leases import Held, KnownMap, Leased, MapChangedError, leased
from shardkit.sharding.parameters import FanOutOptions, Params
from shardkit.sharding.programs import Programs
from shardkit.sharding.query.stream import QueryStream
from shardkit.sharding.scan import Row
from shardkit.sharding.seam import Operations
from shardkit.sharding.shard_map import Clocks, ShardMapState, map_key
from shardkit.strategies import RandomSuffix, Strategy, Unsharded

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

    leased = True

    def __init__(self, table: str, *given: Any, clock: Clocks) -> None:
        self._origin = self
        self._held: Held | None = None
        self._given_description: Mapping[str, Any] = {}
        self._map = KnownMap(table, clock, self._operations_in)
        super().__init__(table, *given)

    def under(self, held: Held) -> Self:
        """Return the same operations for one call, whose leases ``held`` collects."""
        programs = copy(self)
        programs._held = held  # noqa: SLF001 - its own
        return programs

    def describe(self, description: Mapping[str, Any]) -> Operations:
        # What is known without the map: the keys.
        known = self._described(self.table, Unsharded(), description, self.form, self.indexes)
        self._origin._given_description = description  # noqa: SLF001 - its own
        self._origin._known = self._known = known  # noqa: SLF001 - its own
        if (lease := self._map.lease) is not None:
            lease.sharding = self._origin._operations_in(lease.state)  # noqa: SLF001 - its own
        return known

    def _operations_in(self, state: ShardMapState) -> Operations:
        known = self._described(self.table, state.strategy, self._given_description, self.form, self.indexes)
        self.shardings[self.table] = known = replace(known, has_map=True)
        return known

    def known(self, index: object = None) -> Program[Operations]:
        if self._held is None:
            raise ConfigurationError(
                f"table: {self.table!r} has a ShardMap, which this call does not support; give a table with the "
                "strategy that ShardMapAdmin(table).read().strategy returns, while no move is under way"
            )
        described = yield from super().known(index)
        key = map_key(described.keys, described.types)
        if self._map.lease is None or not self._map.lease.valid:
            yield from self._map.read(key)
        lease = self._map.lease
        assert lease is not None
        self._held.add(lease, key)
        return lease.sharding

    def in_stage(self) -> Program[tuple[Strategy, Held | None]]:
        held = Held()
        yield from self.under(held).known()
        ((lease, _),) = held.leases
        return lease.state.strategy, held

    def key_names(self) -> Program[tuple[str, ...]]:
        return (yield from super().known()).key_names

    item = _under_lease(Programs.item)
    query = _under_lease(Programs.query)
    scan = _under_lease(Programs.scan)
    batch_get_items = _under_lease(Programs.batch_get_items)
    transact = _under_lease(Programs.transact)
    logical = _under_lease(Programs.logical)
    to_load = _under_lease(Programs.to_load)

    def machine(self, sharding: Operations) -> Callable[..., Any] | None:
        # With random suffixes nothing moves, and the shards that a load began with stay readable in every stage.
        if isinstance(sharding.strategy, RandomSuffix):
            return super().machine(sharding)
        from shardkit.migrate.load import MovingLoad  # noqa: PLC0415 - few processes load

        return partial(MovingLoad, mapped=self)

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        raise UnsupportedOperationError(
            f"physical_key(), physical_item(): not possible with a ShardMap (table {self.table!r}), because an item's "
            "place may change before your request goes; use the operations of the table"
        )

    def stream(
        self, params: Params, shard: int | None, *, max_items: int | None, fan_out: FanOutOptions
    ) -> Program[QueryStream]:
        def opened(start: Params, most: int | None) -> Program[_Opened]:
            def run(held: Held) -> Program[_Opened]:
                given = {**params, **start}
                return (
                    yield from Programs.stream(self.under(held), given, shard, max_items=most, fan_out=fan_out)
                ), held

            return leased(run)

        return _LeasedStream(opened, (yield from opened({}, max_items)), max_items)

    def segments(self, *given: Any, **options: Any) -> Program[Machine[list[Row]]]:
        def run(held: Held) -> Program[Machine[list[Row]]]:
            stream = yield from Programs.segments(self.under(held), *given, **options)
            return Leased(stream, held)

        return leased(run)


_Opened = tuple[QueryStream, Held]


class _LeasedStream:
    """A stream, each of whose requests is checked. If the map changes, it goes on in the new stage, after its last row.

    ``opened`` opens one behind a cursor (``ExclusiveStartKey``), of so many items at most.
    """

    def __init__(
        self, opened: Callable[[Params, int | None], Program[_Opened]], stream: _Opened, max_items: int | None
    ) -> None:
        self._opened = opened
        self._left = max_items
        self._start: Params = {}
        self._stream = stream[0]
        self._machine: Machine[Any] = Leased(stream[0].hedged(), stream[1])
        self._opening: ProgramMachine[_Opened] | None = None
        self._asked: dict[Send, Machine[Any]] = {}
        self.plan = self._stream.plan  # of the rows that were returned last

    @property
    def errors(self) -> Mapping[int | None, Exception]:
        return self._stream.errors

    def hedged(self) -> Machine[Rows]:
        return self

    def next(self, now: float) -> Step[Rows]:
        while True:
            machine: Machine[Any] = self._opening or self._machine
            try:
                step: Step[Any] = machine.next(now)
            except MapChangedError:
                if machine is self._opening:
                    raise
                self._opening = ProgramMachine(self._opened(self._start, self._left))
                continue
            if isinstance(step, Send):
                self._asked[step] = machine
            if not isinstance(step, Done):
                return step
            if machine is not self._opening:
                self._note(step.value)
                return step
            (self._stream, held), self._opening = step.value, None
            self._machine = Leased(self._stream.hedged(), held)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        # After a change of the map, also the answers to requests of the stage before, which nobody needs.
        self._asked.pop(send).receive(send, answer, now)

    def _note(self, rows: Rows) -> None:
        if not rows:
            return
        self.plan = plan = self._stream.plan
        last = {name: rows.items[-1].get(name) for name in plan.key_names}
        self._start = {"ExclusiveStartKey": plan.behind(rows.numbers[-1], last)}
        if self._left is not None:
            self._left -= len(rows)
