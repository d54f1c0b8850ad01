"""One way of a scenario, run in virtual time against the model of its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from shardkit.core.machine import Machine, Program, Send, Steps
from shardkit.dynamodb.service_errors import Kind
from shardkit.dynamodb.units import rounded_up
from shardkit.partitions.model import Partitions
from shardkit.partitions.partition import LIMITS
from shardkit.partitions.scenarios.clients import AtARate, SideBySide, batch_writer
from shardkit.partitions.scenarios.items import Items
from shardkit.partitions.scenarios.outcome import Outcome
from shardkit.partitions.scenarios.retries import Retries
from shardkit.partitions.scenarios.scenario import Load, Reads, Scenario, Throughput, Way
from shardkit.partitions.scenarios.spread import SpreadItems
from shardkit.partitions.scenarios.watched import WatchedTable
from shardkit.partitions.simulator import SimulatedLoad, Simulator, draws
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOut
from shardkit.sharding.programs import Programs

_FAN_OUT = FanOut(concurrency=10)  # as many requests side by side as botocore pools connections

Progress = Callable[[float], object]


def run(scenario: Scenario, way: Way, items: Items, *, progress: Progress = lambda _share: None) -> Outcome:
    """Simulate one way of a scenario.

    Args:
        scenario: the scenario.
        way: one of its ways.
        items: its items.
        progress: called now and then with the share of it that is done, from 0 to 1.

    Returns:
        What became of it; the same scenario and items give the same.

    Raises:
        ConfigurationError: the items do not fit the table.
        InvalidKeyError: an item lacks a key attribute, or has one of a wrong type.

    Cost: no request; 15 to 40 µs a written item, and what reads take. Memory: the window; with reads, all that is
    written.
    """
    return _Run(scenario, way, items, progress).outcome()


class _Run:
    def __init__(self, scenario: Scenario, way: Way, items: Items, progress: Progress) -> None:
        self._scenario = scenario
        self._way = way
        self._items = items
        description = way.table.description(items.types)
        sharding = Sharding.described(way.table.name, way.strategy, description)
        self._spread = SpreadItems(items, sharding, scenario.seed)
        self._key_units = self._spread.key_units()
        self._throughputs: dict[str | None, Throughput] = {None: way.table.throughput}
        self._throughputs |= {index.name: index.throughput for index in way.table.indexes}
        resource = f"table/{way.table.name}"
        self._partitions = {
            index: _partitions(throughput, resource if index is None else f"{resource}/index/{index}")
            for index, throughput in self._throughputs.items()
        }
        self._alone = {index: self._serves_alone(index) for index in self._partitions}
        self._table = WatchedTable(
            description,
            self._partitions[None],
            indexes={index: one for index, one in self._partitions.items() if index is not None},
            keeps_items=way.reads is not None or self._puts > len(items),
            progress=lambda: progress(self._share()),
        )
        self._simulator = Simulator(self._table, latency=scenario.latency_seconds, seed=scenario.seed)
        self._programs = Programs(way.table.name, way.strategy, description, draws(f"queries {scenario.seed}"))

    @property
    def _puts(self) -> int:
        """How many writes there are to be."""
        load = self._way.load
        if load is None:
            return 0
        return len(self._items) if load.seconds is None else rounded_up(load.per_second * load.seconds)

    def _share(self) -> float:
        reads = self._way.reads
        if self._puts:
            return self._table.written / self._puts
        return self._simulator.now / reads.seconds if reads is not None and reads.seconds else 0.0

    def outcome(self) -> Outcome:
        """Run it, and say what became of it."""
        way, table = self._way, self._table
        machines: list[Machine[Any]] = []
        load = None if way.load is None else self._load(way.load)
        if load is None:
            for number in range(len(self._items)):
                table.hold(self._spread[number])
        else:
            machines.append(load)
        reads = None if way.reads is None else self._reads(way.reads, lambda: load is None or not load.ended)
        if reads is not None:
            machines.append(reads)
        self._simulator.run_all(machines)
        key, units = self._key_units.hottest
        kind: Kind = "read" if load is None else "write"
        return Outcome(
            way=way,
            seconds=table.answered if load is None else table.wrote,
            items=self._puts - (load.load.report.duplicates if isinstance(load, SimulatedLoad) else 0),
            written=table.written,
            provisioned=self._provisioned(None, kind),
            least_seconds=max(self._least_seconds(index, kind) for index in self._partitions),
            limited=way.load is not None and way.load.tool != "put_item",
            requests=table.requests,
            throttled=dict(table.throttled.most_common()),
            reads=0 if reads is None else reads.begun,
            failed_reads=0 if reads is None else reads.failed,
            hottest_key=key,
            hottest_key_share=units / (self._key_units.total or 1.0),
            heat={index: partitions.heat for index, partitions in self._partitions.items()},
            stopped=None if load is None else _stopped(load),
        )

    # -- what hashing allows

    def _serves_alone(self, index: str | None) -> dict[Kind, float]:
        """Give the units a second that a partition serves; after a split it is no more."""
        throughput, partitions = self._throughputs[index], len(self._partitions[index])
        shared = throughput.adaptive_seconds is None and not throughput.on_demand
        return {
            kind: min(limit, self._provisioned(index, kind) / partitions) if shared else limit
            for kind, limit in LIMITS.items()
        }

    def _least_seconds(self, index: str | None, kind: Kind) -> float:
        taken = [sum(one.taken[kind]) for one in self._partitions[index].heat.partitions]
        return max(sum(taken) / (self._provisioned(index, kind) or inf), max(taken) / (self._alone[index][kind] or inf))

    def _provisioned(self, index: str | None, kind: Kind) -> float:
        throughput = self._throughputs[index]
        given = throughput.write_units if kind == "write" else throughput.read_units
        return len(self._partitions[index]) * LIMITS[kind] if given is None else given

    # -- who writes and reads

    def _load(self, load: Load) -> SimulatedLoad | SideBySide | AtARate:
        name, items, seed = self._way.table.name, self._items, self._scenario.seed
        order = items.order(load.order, self._way.table.keys.partition_key, draws(f"order {seed}"))
        if load.tool == "bulk_load":
            numbers = in_turn(order, load.cursors)
            return self._simulator.loading(
                (items[number] for number in numbers),
                self._way.strategy,
                workers=load.workers,
                window=load.window,
                write_units=load.write_units,
                spread=lambda place: self._spread.draw(numbers[place]),
            )
        retries = Retries(load.attempts, draws(f"retries {seed}"))
        if load.tool == "batch_writer":
            stored = (self._spread[number] for number in order)  # the threads take turns with it
            return SideBySide(*(Steps(batch_writer(name, stored, retries)) for _ in range(load.workers)))

        def put(number: int) -> Machine[Any]:
            item = self._spread[order[number % len(order)]]
            return Steps(retries.call(Send("PutItem", {"TableName": name, "Item": item})))

        return AtARate(load.per_second, put, lambda number, _now: number < self._puts)

    def _reads(self, reads: Reads, loading: Callable[[], bool]) -> AtARate:
        draw = draws(f"reads {self._scenario.seed}")
        retries = Retries(reads.attempts, draws(f"retries of reads {self._scenario.seed}"))

        def read(_number: int) -> Machine[Any]:
            number = int(draw() * len(self._items))
            if reads.operation == "query":
                return Steps(self._query(reads, self._items.attributes(number)[self._way.table.keys.partition_key]))
            asked = {"TableName": self._way.table.name, "Key": self._spread.key(number)}
            return Steps(retries.call(Send("GetItem", {**asked, "ConsistentRead": reads.consistent})))

        def go_on(number: int, _now: float) -> bool:
            return loading() if reads.seconds is None else number < rounded_up(reads.per_second * reads.seconds)

        return AtARate(reads.per_second, read, go_on)

    def _query(self, reads: Reads, key: Any) -> Program[None]:
        """Read a whole key, or the first items of it, as ``ShardedTable.query`` does page by page."""
        params: dict[str, Any] = {
            "KeyConditionExpression": "#key = :key",
            "ExpressionAttributeNames": {"#key": self._way.table.keys.partition_key},
            "ExpressionAttributeValues": {":key": key},
            "ConsistentRead": reads.consistent,
        }
        if reads.limit is not None:
            params["Limit"] = reads.limit
        while True:
            page = yield from self._programs.query(params, shard=None, return_shards=False, fan_out=_FAN_OUT)
            if reads.limit is not None or "LastEvaluatedKey" not in page:
                return
            params["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def in_turn(numbers: Sequence[int], cursors: int) -> Sequence[int]:
    """Give numbers as they are read at several places, evenly spaced, one of each in turn."""
    if cursors == 1:
        return numbers
    each = -(-len(numbers) // cursors)
    starts = range(0, len(numbers), each or 1)
    return [
        numbers[start + step]
        for step in range(each)
        for start in starts
        if start + step < min(start + each, len(numbers))
    ]


def _partitions(throughput: Throughput, resource: str) -> Partitions:
    return Partitions(
        read_units=throughput.read_units,
        write_units=throughput.write_units,
        count=throughput.partitions,
        burst_seconds=throughput.burst_seconds,
        adaptive_seconds=throughput.adaptive_seconds,
        on_demand=throughput.on_demand,
        split_for_heat=throughput.split_for_heat,
        resource=resource,
        now=0.0,
    )


def _stopped(load: SimulatedLoad | SideBySide | AtARate) -> str | None:
    """Say what ended a load early, or the first failure of one that went on; calls at a rate end on their own."""
    if isinstance(load, AtARate):
        return None
    if isinstance(load, SideBySide):
        return None if load.error is None else str(load.error)
    failures = load.load.report.failures
    return str(failures[0].error) if failures else None
