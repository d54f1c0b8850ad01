"""Run machines against a simulated table in virtual time: a load of hours takes only its CPU time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Any, TypeVar

from shardkit.bulk.load_machine import WINDOW, Duplicates, Load, check_load
from shardkit.bulk.report import BulkReport
from shardkit.bulk.writes import Drawn, Write
from shardkit.core.checks import check_number, check_side_by_side
from shardkit.core.hashing import stable_hash
from shardkit.core.machine import Answer, Done, Machine, Send, Step
from shardkit.errors import ConfigurationError, brief
from shardkit.migrate.between import described
from shardkit.partitions.simulated_table import SimulatedTable
from shardkit.strategies import Strategy, Unsharded

T = TypeVar("T")

Latency = tuple[float, float] | Callable[[Send, float], float]
"""The seconds until an answer: a range, or a function of the request and a random number in [0, 1)."""


def draws(seed: object) -> Callable[[], float]:
    """Return a function that draws from [0, 1): the same numbers for a seed in every process and version.

    Example:
        >>> draw, again = draws(7), draws(7)
        >>> [draw(), draw()] == [again(), again()]
        True
    """
    number = count()
    return lambda: stable_hash(f"{seed}:{next(number)}") / 2**64


class SimulatedLoad:
    """A bulk load as a machine that returns the report; it reads items (or finished writes) as it has room for them.

    Attributes:
        load: the load's own machine.
        read: the report at the time when the last item had been read.
    """

    def __init__(self, load: Load, items: Iterable[Mapping[str, Any] | Write]) -> None:
        self.load = load
        self.read: BulkReport | None = None
        self._items = iter(items)

    @property
    def ended(self) -> bool:
        """Whether every item has its result."""
        return self.load.ended

    def next(self, now: float) -> Step[BulkReport]:
        """Decide the next step at the time ``now``."""
        while True:
            step = self.load.next(now)
            if not isinstance(step, Done):
                return step
            self.load.settled()  # there is no journal to write
            if self.load.wants:
                self._feed()
            if self.load.ended:
                return Done(self.load.report)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take the answer to an earlier ``Send``."""
        self.load.receive(send, answer, now)

    def _feed(self) -> None:
        load = self.load
        for item in islice(self._items, load.room):
            if isinstance(item, Write):
                load.add(item)
            else:
                load.put(item)
        if load.wants:
            self.read = load.report
            load.close()


class Simulator:
    """Runs machines in virtual time against a simulated table.

    Example:
        >>> table = SimulatedTable.described({
        ...     "TableName": "Messages",
        ...     "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
        ...     "ProvisionedThroughput": {"ReadCapacityUnits": 10, "WriteCapacityUnits": 100},
        ... }, burst_seconds=0)
        >>> simulator = Simulator(table)
        >>> report = simulator.load(({"Id": f"{n:04}"} for n in range(1000)), write_units=100)
        >>> report.written, round(report.seconds)
        (1000, 10)

    Args:
        table: the table, or a function that answers a request at a time as :meth:`SimulatedTable.answer` does.
        latency: the seconds until an answer: a range, or a function of the request and a random number in [0, 1).
        seed: the seed of all random numbers: the same seed gives the same run.
        now: the time at the start, in seconds.

    Attributes:
        now: the virtual time, in seconds.
        draw: draws from [0, 1), for machines that need random numbers.

    Raises:
        ConfigurationError: an argument is invalid.

    Cost:
        No request, no clock, no thread. A load takes 10 to 15 µs of CPU per item, 50 if the table keeps items.
    """

    def __init__(
        self,
        table: SimulatedTable | Callable[[Send, float], Answer],
        *,
        latency: Latency = (0.005, 0.010),
        seed: object = 0,
        now: float = 0.0,
    ) -> None:
        self._answer = table.answer if isinstance(table, SimulatedTable) else table
        self._table = table
        self._latency = latency if callable(latency) else _between(latency)
        self._number = count()
        self._arrivals: list[tuple[float, int, Machine[Any], Send, Answer]] = []
        self._alarms: list[tuple[float, int, int]] = []
        self.now = check_number("now", now, "seconds")
        self.draw = draws(seed)

    def run(self, machine: Machine[T]) -> T:
        """Run a machine until it is done, and return its result; a machine that streams can be run again."""
        result: T = self.run_all([machine])[0]
        return result

    def run_all(self, machines: Iterable[Machine[Any]]) -> list[Any]:
        """Run machines side by side until all are done.

        Example:
            reports = simulator.run_all([simulator.loading(orders), simulator.loading(messages)])

        Returns:
            The result of each machine, in order.

        Raises:
            RuntimeError: a machine waits for an answer without a request, or for a time in the past.
        """
        running = {id(machine): machine for machine in machines}
        order = {machine: number for number, machine in enumerate(running)}  # an id differs from run to run
        alarms: dict[int, float] = {}
        results: dict[int, Any] = {}
        asked = [*running]
        while running:
            for machine in asked:
                until = self._ask(running[machine])
                if isinstance(until, Done):
                    results[machine] = until.value
                    del running[machine]
                    alarms.pop(machine, None)
                elif until == inf:
                    alarms.pop(machine, None)
                elif alarms.get(machine) != until:
                    alarms[machine] = until
                    heappush(self._alarms, (until, order[machine], machine))
            if running:
                asked = [machine for machine in self._pass(alarms) if machine in running]
        return [results[machine] for machine in order]

    def load(
        self,
        items: Iterable[Mapping[str, Any] | Write],
        strategy: Strategy | None = None,
        *,
        workers: int = 10,
        window: int = WINDOW,
        write_units: float | str | None = None,
        duplicates: Duplicates = "last",
        max_failures: int | None = None,
    ) -> BulkReport:
        """Load items with the machine of :func:`shardkit.bulk_load`.

        Args:
            items: the items, as an application has them.
            strategy: how to shard them; None: write their keys unchanged.
            workers: batches in flight at once.
            window: as in :func:`shardkit.bulk_load`.
            write_units: likewise.
            duplicates: likewise.
            max_failures: likewise.

        Returns:
            The report, in virtual seconds; ``failures`` has the items that were not written.

        Raises:
            ConfigurationError: the simulator has a function instead of a table, or an argument is invalid.
        """
        return self.run(
            self.loading(
                items,
                strategy,
                workers=workers,
                window=window,
                write_units=write_units,
                duplicates=duplicates,
                max_failures=max_failures,
            )
        )

    def loading(
        self,
        items: Iterable[Mapping[str, Any] | Write],
        strategy: Strategy | None = None,
        *,
        workers: int = 10,
        spread: Drawn | None = None,
        **options: Any,
    ) -> SimulatedLoad:
        """Return a load as a machine, to run beside others (:meth:`run_all`); arguments as of :meth:`load`."""
        if not isinstance(self._table, SimulatedTable):
            raise ConfigurationError(
                "table: a load needs a SimulatedTable, and the simulator has a function; give it a SimulatedTable"
            )
        table = self._table
        check_side_by_side("workers", workers)
        check_load(**options)
        sharding = described(table.name, strategy or Unsharded(), table.description)
        return SimulatedLoad(Load(sharding, workers=workers, draw=self.draw, spread=spread, **options), items)

    def _ask(self, machine: Machine[T]) -> float | Done[T]:
        """Start all requests that a machine sends now; return the time until which it waits, or that it is done."""
        while True:
            step = machine.next(self.now)
            if isinstance(step, Send):
                answer = self._answer(step, self.now)
                arrives = self.now + self._latency(step, self.draw())
                heappush(self._arrivals, (arrives, next(self._number), machine, step, answer))
            elif isinstance(step, Done):
                return step
            elif step.until is None:
                return inf
            elif step.until > self.now:
                return step.until
            else:
                raise RuntimeError(f"{machine!r} waits for {step.until}, and it is {self.now}")

    def _pass(self, alarms: Mapping[int, float]) -> Iterable[int]:
        """Advance the time to the next answer or alarm, and return the machines to ask."""
        while self._alarms and alarms.get(self._alarms[0][2]) != self._alarms[0][0]:
            heappop(self._alarms)  # the machine waits for something else by now
        comes = self._arrivals[0][0] if self._arrivals else inf
        rings = self._alarms[0][0] if self._alarms else inf
        if comes > rings:
            self.now, _, machine = heappop(self._alarms)
            return (machine,)
        if comes == inf:
            raise RuntimeError("a machine waits for an answer, and no request is under way")
        self.now, _, receiver, send, answer = heappop(self._arrivals)
        receiver.receive(send, answer if isinstance(answer, Exception) else send.answer(answer), self.now)
        return (id(receiver),)


def _between(latency: Any) -> Callable[[Send, float], float]:
    ends = [check_number("latency", end, "seconds") for end in latency] if isinstance(latency, list | tuple) else []
    if ends != sorted(ends) or len(ends) != 2:  # noqa: PLR2004 - the two ends
        raise ConfigurationError(
            f"latency: must be a range of seconds such as (0.005, 0.010), or a function, got {brief(latency)}"
        )
    least, most = ends
    return lambda _, drawn: least + drawn * (most - least)
