"""The guide's bulk load in virtual time, on its 11 partitions: batch_writer's ways, shardkit's, and one day's key.

20 million items of 1,000 bytes, of 133,333 users with 100 to 200 messages each; 11,000 write units on 11 partitions of
1,000, no burst credit beyond the second. The loads are the project's own machines, and the one that sends what boto3's
batch_writer sends. Hashing sets a ceiling: keys do not fall on the partitions evenly, and no order of upload is done
before the busiest partition has taken its part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Literal

from benchmarks import messages
from benchmarks.measure import Figure
from benchmarks.report import Section
from shardkit.core.machine import Program, ProgramMachine, Response, Send
from shardkit.dynamodb.service_errors import is_throttle
from shardkit.partitions import Partitions, Simulator
from shardkit.partitions.scenarios.clients import ATTEMPTS, Retries, batch_writer
from shardkit.partitions.scenarios.running import WatchedTable

__all__ = [
    "DESCRIPTION",
    "ITEMS",
    "KEPT_SECONDS",
    "PARTITIONS",
    "USERS",
    "WRITE_UNITS",
    "EndlessRetries",
    "Run",
    "Way",
    "a_table",
    "figures",
    "runs",
    "section",
    "simulated",
    "together",
]

ITEMS = 20_000_000
USERS = 133_333
PARTITIONS = 11
WRITE_UNITS = 11_000
KEPT_SECONDS = 1
"""What partitions begin with, of the units that they serve in a second."""
PROCESSES = 2
DAY_ITEMS = 1_000_000
"""Orders of the day: every key of it has as many in every minute, so that more of them would change nothing."""
THREADS = 10
"""Of batch_writers that share the input: as many requests under way as shardkit has."""
SHARDS = (1, 10, 50, 200, 1000)
LOST = 1.5
"""Of the ceiling, in %."""
SECONDS = 120.0
"""To simulate the interleaved load, on two cores."""
DESCRIPTION = {
    "TableName": "Messages",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "N"},
    ],
}

Order = Literal["sorted", "random", "interleaved", "day"]
_ORDERS: dict[Order, str] = {"sorted": "input", "random": "random"}


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to load.

    Args:
        name: what it is called.
        order: in which order, or onto the shards of one day.
        items: of how many items.
        users: of how many users.
        shards: of the day.
        threads: of batch_writer, which share the input.
        part: which of the loaders side by side.
        parts: how many of them there are; each has every so-manieth user, and as much of each partition.
    """

    name: str
    order: Order
    items: int
    users: int = 0
    shards: int = 0
    threads: int = 1
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, kw_only=True)
class Run:
    """What became of it.

    Args:
        way: what was run.
        seconds: virtual time, to the last answer.
        read_seconds: virtual time until the last item was read; what was written by then is ``read_items``.
        read_items: see there.
        least_seconds: what the busiest partition needs for its part.
        requests: how many were sent.
        throttles: how many of them were throttled, or left items unprocessed.
        refused: items that came back, as often as they did.
        raised: throttles that boto3 raised to the script.
        cpu_seconds: what simulating it took.
        heat: write units by partition and column.
        column_seconds: how long a column is.
    """

    way: Way
    seconds: float
    read_seconds: float
    read_items: int
    least_seconds: float
    requests: int
    throttles: int
    refused: float
    raised: int = 0
    cpu_seconds: float
    heat: tuple[tuple[float, ...], ...]
    column_seconds: float

    @property
    def share(self) -> float:
        """Of the provisioned write units, in %."""
        return 100 * self.way.items / (WRITE_UNITS * self.seconds)

    @property
    def ceiling(self) -> float:
        """Of the provisioned write units, in %: what hashing leaves."""
        return 100 * self.way.items / (WRITE_UNITS * self.least_seconds)

    @property
    def of_ceiling(self) -> float:
        """The share that it made of the ceiling, in %."""
        return 100 * self.least_seconds / self.seconds

    @property
    def read_share(self) -> float:
        """Of the provisioned write units, in %, until the last item was read."""
        return 100 * self.read_items / (WRITE_UNITS * (self.read_seconds + KEPT_SECONDS))


class EndlessRetries(Retries):
    """The retries of a script that is given a batch back where boto3 raises a throttle, and begins again with it.

    Attributes:
        raised: how often boto3 raised one.
    """

    raised = 0

    def call(self, send: Send) -> Program[Response]:
        """Make a call, until it goes."""
        while True:
            try:
                return (yield from super().call(send))
            except Exception as error:
                if not is_throttle(error):
                    raise
                self.raised += 1


def a_table(parts: int = 1) -> WatchedTable:
    """Make the table, or one loader's part of it: it cannot use what another one leaves of a partition."""
    partitions = Partitions(
        read_units=0,
        write_units=WRITE_UNITS / parts,
        count=PARTITIONS,
        burst_seconds=0,
        adaptive_seconds=0 if parts == 1 else None,
    )
    return WatchedTable(DESCRIPTION, partitions, keeps_items=False)


def simulated(way: Way) -> Run:
    """Run a way in virtual time."""
    table = a_table(way.parts)
    simulator = Simulator(table, seed=messages.SEED + way.part)
    counts = messages.counts(way.items, way.users) if way.users else []
    began = time.process_time()
    raised = 0
    if way.order in {"sorted", "random"}:
        source = messages.in_order(counts) if way.order == "sorted" else messages.in_random_order(counts)
        items = map(messages.stored, source)  # the threads take turns with it
        retries = EndlessRetries(ATTEMPTS, simulator.draw)
        simulator.run_all(ProgramMachine(batch_writer(table.name, items, retries)) for _ in range(way.threads))
        requests, throttles, raised = table.requests, table.throttled.total(), retries.raised
        read_seconds, read_items = simulator.now, way.items
    else:
        if way.order == "day":
            source = messages.of_one_day(way.items, way.shards)
        else:
            source = messages.in_order(counts, range(way.part, way.users, way.parts))
        load = simulator.loading(source, write_units=WRITE_UNITS / way.parts)
        report = simulator.run(load)
        if report.failed:
            raise RuntimeError(f"{way.name}: {report.failed:,} items failed: {report.failures[0].error}")
        requests, throttles = report.requests, report.throttles
        assert load.read is not None
        read_seconds, read_items = load.read.seconds, load.read.written
    cpu_seconds = time.process_time() - began
    by_range = table.partitions.heat.by_range
    heat = tuple(tuple(partition.taken["write"]) for partition in by_range)
    taken = [sum(columns) for columns in heat]
    written = way.items if way.parts == 1 else sum(counts[way.part :: way.parts])
    if sum(taken) != written:
        raise RuntimeError(f"{way.name}: {sum(taken):,.0f} items were written of {written:,}")
    return Run(
        way=way,
        seconds=simulator.now,
        read_seconds=read_seconds,
        read_items=read_items,
        least_seconds=_least_seconds(taken, WRITE_UNITS / way.parts),
        requests=requests,
        throttles=throttles,
        refused=sum(sum(partition.throttled["write"]) for partition in by_range),
        raised=raised,
        cpu_seconds=cpu_seconds,
        heat=heat,
        column_seconds=table.partitions.heat.seconds,
    )


def _least_seconds(taken: Sequence[float], write_units: float) -> float:
    """Give what the busiest partition needs."""
    return max(taken) / (write_units / PARTITIONS) - KEPT_SECONDS


def together(parts: Sequence[Run], wall_seconds: float) -> Run:
    """Give what loaders side by side did together; ``cpu_seconds`` is the wall time that simulating them took."""
    heats = [part.heat for part in parts]
    columns = max(len(row) for heat in heats for row in heat)
    rows = [
        tuple(sum(row[column] for row in same if column < len(row)) for column in range(columns))
        for same in zip(*heats, strict=True)
    ]
    (column_seconds,) = {part.column_seconds for part in parts}
    first = parts[0]
    return replace(
        first,
        way=replace(first.way, part=0),
        seconds=max(part.seconds for part in parts),
        read_seconds=max(part.read_seconds for part in parts),
        read_items=sum(part.read_items for part in parts),
        least_seconds=_least_seconds([sum(row) for row in rows], WRITE_UNITS),
        requests=sum(part.requests for part in parts),
        throttles=sum(part.throttles for part in parts),
        refused=sum(part.refused for part in parts),
        cpu_seconds=wall_seconds,
        heat=tuple(rows),
        column_seconds=column_seconds,
    )


def runs(*, short: bool) -> Iterator[Run]:
    """Run every way, two at a time; first the interleaved load, by two loaders with half of the table each."""
    less = 40 if short else 1
    items, users = ITEMS // less, USERS // less
    halves = [
        Way(name="shardkit, two loaders", order="interleaved", items=items, users=users, part=part, parts=PROCESSES)
        for part in range(PROCESSES)
    ]
    ways = [
        Way(name="shardkit, interleaved", order="interleaved", items=items, users=users),
        *(
            Way(name=f"batch_writer, {name} order{by}", order=order, items=items, users=users, threads=threads)
            for threads, by in ((1, ""), (THREADS, f", {THREADS} threads"))
            for order, name in _ORDERS.items()
        ),
        *(
            Way(
                name=f"one day's key, {shards:,} suffix{'es' * (shards > 1)}",
                order="day",
                items=DAY_ITEMS // 10 if short else DAY_ITEMS,
                shards=shards,
            )
            for shards in SHARDS
        ),
    ]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        began = time.monotonic()
        parts = list(pool.map(simulated, halves))
        yield together(parts, time.monotonic() - began)
        yield from pool.map(simulated, ways)


def figures(measured: Sequence[Run], *, short: bool) -> Iterator[Figure]:
    """Judge what the interleaved load loses of the ceiling, and what simulating it takes.

    A short load ends before the keys that waited last are written: it is judged until its last item is read, and that
    of two loaders, each with a window of its own to fill, not at all.
    """
    for run in measured:
        if run.way.order != "interleaved" or (short and run.way.parts > 1):
            continue
        yield Figure(
            bench="simulate",
            name=f"{run.way.name}: lost of {'the provisioned, until all was read' if short else 'the ceiling'}",
            value=100 - (run.read_share if short else run.of_ceiling),
            unit="%",
            target=LOST,
            note=f"{run.way.items:,} items, {run.refused / run.way.items:.1%} of them sent again",
        )
        yield Figure(
            bench="simulate",
            name=f"{run.way.name}: simulated in",
            value=run.cpu_seconds,
            unit="s",
            target=SECONDS if run.way.parts > 1 else None,
            note=f"{PROCESSES} processes, wall time" if run.way.parts > 1 else "CPU of one process",
        )


def section(title: str, measured: Sequence[Run]) -> Section:
    """Give the runs one a row."""
    rows = []
    for run in measured:
        minutes, seconds = divmod(round(run.seconds), 60)
        raised = f", {run.raised:,} raised" if run.raised else ""
        rows.append(
            (
                run.way.name,
                f"{run.way.items:,}",
                f"{minutes:,} min {seconds:02} s",
                f"{run.share:.1f}%",
                f"{run.ceiling:.1f}%",
                f"{run.of_ceiling:.1f}%",
                f"{run.refused / run.way.items:.1%}",
                f"{run.throttles:,} of {run.requests:,}{raised}",
            )
        )
    columns = ("way", "items", "time", "share used", "ceiling", "of the ceiling", "sent again", "requests throttled")
    return Section(title, columns, tuple(rows))
