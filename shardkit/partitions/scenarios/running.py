"""Run one way of a scenario in virtual time, against a model of its table."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Any

from shardkit.cache.entries import ENTRY_BYTES
from shardkit.cache.options import CacheOptions
from shardkit.core.machine import Answer, Machine, Program, ProgramMachine, Send, Wait
from shardkit.core.popular import PopularValues
from shardkit.dynamodb.service_errors import Kind, throttle_reasons
from shardkit.dynamodb.units import read_units, rounded_up
from shardkit.migrate.between import described
from shardkit.partitions.model import Partitions
from shardkit.partitions.scenarios.clients import AtARate, ConcurrentClients, Retries, batch_writer
from shardkit.partitions.scenarios.items import ScenarioItems, SpreadItems, key_text
from shardkit.partitions.scenarios.scenario import CacheSettings, LoadSettings, ReadSettings, Scenario, Way
from shardkit.partitions.scenarios.way_result import WayResult
from shardkit.partitions.simulated_table import SimulatedTable
from shardkit.partitions.simulator import SimulatedLoad, Simulator, draws
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs

Progress = Callable[[float], object]
UNPROCESSED = "UnprocessedItems"
"""The reason counted for a batch with unprocessed items: the service gives none."""
_PROGRESS_EVERY = 256  # requests


class WatchedTable(SimulatedTable):
    """A simulated table that counts requests and throttles, and calls ``progress`` from time to time.

    ``throttled`` counts throttled requests, and batches with unprocessed items, by reason. ``wrote`` is the time of the
    last write; ``answered``, of the last answer that was not an error.
    """

    def __init__(self, *args: Any, progress: Callable[[], object] = lambda: None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._progress = progress
        self.requests = 0
        self.throttled: Counter[str] = Counter()
        self.written = 0
        self.wrote = 0.0
        self.answered = 0.0

    def answer(self, send: Send, now: float) -> Answer:
        answer = super().answer(send, now)
        self.requests += 1
        if self.requests % _PROGRESS_EVERY == 0:
            self._progress()
        if isinstance(answer, Exception):
            self.throttled.update(throttle_reasons(answer))
            return answer
        self.answered = now
        written = _written(send, answer)
        if written:
            self.written += written
            self.wrote = now
        if answer.get("UnprocessedItems"):
            self.throttled[UNPROCESSED] += 1
        return answer


def _written(send: Send, answer: Mapping[str, Any]) -> int:
    if send.operation == "BatchWriteItem":
        sent, left = send.params["RequestItems"], answer["UnprocessedItems"]
        return sum(map(len, sent.values())) - sum(map(len, left.values()))
    return int(send.operation == "PutItem")


def run(scenario: Scenario, way: Way, items: ScenarioItems, *, progress: Progress = lambda _share: None) -> WayResult:
    """Simulate one way of a scenario; the result is always the same for a scenario and its items.

    ``progress`` is called from time to time with the share that is done, from 0 to 1.

    Raises:
        ConfigurationError: the items do not fit the table.
        InvalidKeyError: an item lacks a key attribute, or has one of a wrong type.

    Cost: no request; 15 to 40 µs a written item, plus the reads. Memory: the window; with reads, all written items.
    """
    return _Run(scenario, way, items, progress).result()


class _Run:
    def __init__(self, scenario: Scenario, way: Way, items: ScenarioItems, progress: Progress) -> None:
        self._scenario = scenario
        self._way = way
        self._items = items
        description = way.table.description(items.types)
        sharding = described(way.table.name, way.strategy, description)
        self._spread = SpreadItems(items, sharding, scenario.seed)
        self._key_units = self._spread.key_units()
        resource = f"table/{way.table.name}"
        self._table = WatchedTable(
            description,
            Partitions(**way.table.throughput, resource=resource, now=0.0),
            indexes={
                index.name: Partitions(**index.throughput, resource=f"{resource}/index/{index.name}", now=0.0)
                for index in way.table.indexes
            },
            keeps_items=way.reads is not None or self._puts > len(items),
            progress=lambda: progress(self._share()),
        )
        self._simulator = Simulator(self._table, latency=scenario.latency_seconds, seed=scenario.seed)
        cache = None if way.reads is None else way.reads.cache
        self._cache = None if cache is None else CachedItems(items.sizes, cache, draws(f"cache {scenario.seed}"))
        self._fan_out = FanOutOptions(10, draws(f"queries {scenario.seed}"))  # as many as botocore pools connections
        self._programs = Programs(way.table.name, way.strategy, description, self._fan_out.draw, described=described)

    @property
    def _puts(self) -> int:
        load = self._way.load
        if load is None:
            return 0
        return len(self._items) if load.seconds is None else rounded_up(load.per_second * load.seconds)

    def _share(self) -> float:
        reads = self._way.reads
        if self._puts:
            return self._table.written / self._puts
        return self._simulator.now / reads.seconds if reads is not None and reads.seconds else 0.0

    def result(self) -> WayResult:
        way, table = self._way, self._table
        load = None if way.load is None else self._load(way.load)
        if load is None:
            for number in range(len(self._items)):
                table.hold(self._spread[number])
        reads = None if way.reads is None else self._reads(way.reads, lambda: load is None or not load.ended)
        self._simulator.run_all(machine for machine in (load, reads) if machine is not None)
        ((key, units),) = self._key_units.most_common(1) or [((), 0)]
        kind: Kind = "read" if load is None else "write"
        partitions = table.admission.partitions
        return WayResult(
            way=way,
            kind=kind,
            seconds=table.answered if load is None else table.wrote,
            items=self._puts - (load.load.report.duplicates if isinstance(load, SimulatedLoad) else 0),
            written=table.written,
            provisioned=table.partitions.total(kind),
            least_seconds=max(_least_seconds(one, kind) for one in partitions.values()),
            requests=table.requests,
            throttled=dict(table.throttled.most_common()),
            reads=0 if reads is None else reads.begun,
            cache_hits=0 if self._cache is None else self._cache.hits,
            saved_read_units=0.0 if self._cache is None else self._cache.saved_read_units,
            failed_reads=0 if reads is None else reads.failed,
            hottest_key=key_text(key),
            hottest_key_share=units / (self._key_units.total() or 1),
            heat={index: one.heat for index, one in partitions.items()},
            stopped=None if load is None else _stopped(load),
        )

    # -- the machines that write and read

    def _load(self, load: LoadSettings) -> SimulatedLoad | ConcurrentClients | AtARate:
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
                spread=lambda place, _: self._spread.draw(numbers[place]),
            )
        retries = Retries(load.attempts, draws(f"retries {seed}"))
        if load.tool == "batch_writer":
            stored = (self._spread[number] for number in order)  # the threads share it
            return ConcurrentClients(
                *(ProgramMachine(batch_writer(name, stored, retries)) for _ in range(load.workers))
            )

        def put(number: int) -> Machine[Any]:
            item = self._spread[order[number % len(order)]]
            return ProgramMachine(retries.call(Send("PutItem", {"TableName": name, "Item": item})))

        return AtARate(load.per_second, put, lambda number, _now: number < self._puts)

    def _reads(self, reads: ReadSettings, loading: Callable[[], bool]) -> AtARate:
        draw = draws(f"reads {self._scenario.seed}")
        retries = Retries(reads.attempts, draws(f"retries of reads {self._scenario.seed}"))

        chosen = _popular(len(self._items), reads.zipf, draws(f"popularity {self._scenario.seed}"))

        def read(_number: int) -> Machine[Any]:
            number = chosen(draw())
            if reads.operation == "query":
                return ProgramMachine(
                    self._query(reads, self._items.attributes(number)[self._way.table.keys.partition_key])
                )
            asked = {"TableName": self._way.table.name, "Key": self._spread.key(number)}
            program = retries.call(Send("GetItem", {**asked, "ConsistentRead": reads.consistent}))
            return ProgramMachine(program if self._cache is None else self._cache.read(number, program))

        def go_on(number: int, _now: float) -> bool:
            return loading() if reads.seconds is None else number < rounded_up(reads.per_second * reads.seconds)

        return AtARate(reads.per_second, read, go_on)

    def _query(self, reads: ReadSettings, key: Any) -> Program[None]:
        """Read a whole key, or its first items, page by page, as ``ShardedTable.query`` does."""
        params: dict[str, Any] = {
            "KeyConditionExpression": "#key = :key",
            "ExpressionAttributeNames": {"#key": self._way.table.keys.partition_key},
            "ExpressionAttributeValues": {":key": key},
            "ConsistentRead": reads.consistent,
        }
        if reads.limit is not None:
            params["Limit"] = reads.limit
        while True:
            page = yield from self._programs.query(params, shard=None, return_shards=False, fan_out=self._fan_out)
            if reads.limit is not None or "LastEvaluatedKey" not in page:
                return
            params["ExclusiveStartKey"] = page["LastEvaluatedKey"]


class CachedItems:
    """The popular items that a process has copies of; ``hits`` are reads that were no request.

    Reads of an item that is being read join that request.
    """

    def __init__(self, sizes: Sequence[int], settings: CacheSettings, draw: Callable[[], float]) -> None:
        self.hits = 0
        self.saved_read_units = 0.0
        self._sizes = sizes
        self._ttl = settings.ttl
        self._draw = draw
        self._until: PopularValues[int, float] = PopularValues(
            settings.max_bytes, lambda number, _: sizes[number] + ENTRY_BYTES
        )
        self._asked: set[int] = set()

    def read(self, number: int, program: Program[Any]) -> Program[None]:
        now = yield Wait()
        until = self._until.get(number)
        if number in self._asked or (until is not None and now < until):
            self.hits += 1
            self.saved_read_units += read_units(self._sizes[number])
            return
        self._asked.add(number)
        try:
            yield from program
        finally:
            self._asked.discard(number)
        now = yield Wait()
        self._until.put(number, now + self._ttl * (1 - CacheOptions.jitter * self._draw()))


def _popular(number: int, exponent: float, draw: Callable[[], float]) -> Callable[[float], int]:
    """Return the function that chooses an item by a number in [0, 1): the popular ones more often."""
    if not exponent:
        return lambda drawn: int(drawn * number)
    weights = list(accumulate(rank**-exponent for rank in range(1, number + 1)))
    ranked = array("L", sorted(range(number), key=[draw() for _ in range(number)].__getitem__))
    return lambda drawn: ranked[min(bisect_right(weights, drawn * weights[-1]), number - 1)]


def in_turn(numbers: Sequence[int], cursors: int) -> Sequence[int]:
    """Return the numbers in the order in which several cursors, evenly spaced, read them in turn."""
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


def _stopped(load: SimulatedLoad | ConcurrentClients | AtARate) -> str | None:
    """Return the error that ended a load early, or its first one; calls at a rate always end on their own."""
    if isinstance(load, AtARate):
        return None
    if isinstance(load, ConcurrentClients):
        return None if load.error is None else str(load.error)
    failures = load.load.report.failures
    return str(failures[0].error) if failures else None


def _least_seconds(partitions: Partitions, kind: Kind) -> float:
    taken = [sum(one.taken[kind]) for one in partitions.heat.partitions]
    return max(sum(taken) / (partitions.total(kind) or inf), max(taken) / (partitions.serves[kind] or inf))
