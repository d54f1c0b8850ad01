"""A load into a time series: each period's items in a load into its table, all of them one machine.

The loads share the window, the workers and the report. A period's table is looked for before its first batch, and made
if it may be (``missing="create"``); otherwise its items fail, and the others go on. Deletes alone find
nothing where no table is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from shardkit.bulk.load_machine import WINDOW, Load, LoadRoom
from shardkit.bulk.report import BulkReport, BulkResult, LoadTally, Settled
from shardkit.core.machine import Answer, Done, Machine, Program, ProgramMachine, Send, Step, Wait
from shardkit.errors import PeriodError
from shardkit.sharding.layout import Sharding
from shardkit.timeseries.control import is_missing, settled
from shardkit.timeseries.periods import Period
from shardkit.timeseries.programs import SeriesPrograms


class SeriesLoad:
    """The machine, with the interface of a :class:`Load`."""

    def __init__(
        self,
        programs: SeriesPrograms,
        sharding: Sharding,
        *,
        workers: int,
        window: int = WINDOW,
        batch_writer: bool = False,
        **options: Any,
    ) -> None:
        self._programs = programs
        self._workers = workers
        self._room = LoadRoom(window)
        self._tally = LoadTally(sharding, batch_writer=batch_writer)
        self._options = {
            **options,
            "workers": workers,
            "window": window,
            "batch_writer": batch_writer,
            "room": self._room,
            "tally": self._tally,
        }
        # Sends nothing: it has the results of the items that belong to no table.
        self._refused = Load(sharding, **self._options)
        self._loads: dict[Period, Load] = {}
        self._turns = deque([self._refused])
        self._closed_to: dict[Period, Exception] = {}
        self._looking: dict[Period, Machine[bool]] = {}
        self._to_put: set[Period] = set()
        self._in_flight: dict[Send, Machine[Any]] = {}
        self._closed = False
        self.what = self._refused.what.replace(" table", " time series")
        self.fatal: Exception | None = None
        self.broken: Exception | None = None

    @property
    def room(self) -> int:
        return 0 if self._closed else self._room.free

    @property
    def wants(self) -> bool:
        return self.room > 0

    @property
    def ended(self) -> bool:
        return self._closed and not self._in_flight and all(load.quiet for load in self._turns)

    @property
    def report(self) -> BulkReport:
        return self._tally.report

    def put(self, item: Mapping[str, Any], place: Any = None) -> None:
        self._add(Load.put, self._placed, item, place)

    def delete(self, key: Mapping[str, Any], place: Any = None) -> None:
        self._add(Load.delete, self._programs.key_to_delete, key, place)

    def _placed(self, item: Mapping[str, Any]) -> tuple[Period, Mapping[str, Any]]:
        period = self._programs.period_to_store(item, "item")
        self._programs.tables.check_open(period)
        self._to_put.add(period)
        return period, item

    def _add(
        self,
        add: Callable[[Load, Mapping[str, Any], Any], None],
        placed: Callable[[Mapping[str, Any]], tuple[Period, Mapping[str, Any]]],
        given: Mapping[str, Any],
        place: Any,
    ) -> None:
        place = self._tally.items if place is None else place
        try:
            period, sent = placed(given)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the load
            self.refuse(given, place, error)
            return
        if (closed := self._closed_to.get(period)) is not None:
            self.refuse(sent, place, closed)
        else:
            add(self._load_of(period), sent, place)

    def _load_of(self, period: Period) -> Load:
        load = self._loads.get(period)
        if load is None:
            load = self._loads[period] = Load(self._programs.sharding_of(period), **self._options)
            self._turns.append(load)
            if self.fatal is not None:
                load.stop(self.fatal)
        if self.fatal is None and not self._programs.tables.exists(period) and period not in self._looking:
            self._looking[period] = ProgramMachine(self._looked_for(period))
        return load

    def _looked_for(self, period: Period) -> Program[bool]:
        """Return whether a period has a table; it is made if something is put there. Deletes alone need none."""
        described = yield from settled(self._programs.series.table(period))
        if described is None or described.get("TableStatus") == "DELETING":
            if period not in self._to_put:
                return False
            self._programs.tables.check_creatable(period)
            yield from self._programs.tables.created(period, to_fill=True)
        self._programs.tables.remember(period)
        return True

    def refuse(self, record: Any, place: Any, error: Exception) -> None:
        self._refused.refuse(record, place, error)

    def skip(self) -> None:
        self._tally.resumed += 1

    def failed_before(self, count: int) -> None:
        self._tally.failed_before = count

    def close(self, broken: Exception | None = None) -> None:
        self._closed = True
        self.broken = broken
        for load in self._turns:
            load.close()

    def stop(self, error: Exception) -> None:
        self._closed = True
        self.fatal = self.fatal or error
        self._looking.clear()
        for load in self._turns:
            load.stop(self.fatal)

    def settled(self) -> Settled:
        done, failed = [], []
        for load in self._turns:
            some, others = load.settled()
            done += some
            failed += others
        return done, failed

    def next(self, now: float) -> Step[Sequence[BulkResult]]:
        if self.fatal is None:
            self._heed_stops()
        if (taken := self._taken(now)) is not None:
            return taken
        until = inf
        if len(self._in_flight) < self._workers:
            for machine, step in self._steps(now):
                if isinstance(step, Send):
                    self._in_flight[step] = machine
                    return step
                if isinstance(step, Done) and len(step.value):
                    return step
                if isinstance(step, Wait) and step.until is not None:
                    until = min(until, step.until)
            if (taken := self._taken(now)) is not None:
                return taken
        if self.wants or self.ended:
            return Done([])
        return Wait(None if until == inf else until)

    def _heed_stops(self) -> None:
        """Stop everything if one of the loads has stopped, unless its table was deleted meanwhile."""
        for period, load in [*self._loads.items()]:
            if load.fatal is not None and is_missing(load.fatal):
                # Only its items fail; later ones look for the table again.
                self._programs.tables.forget(period)
                del self._loads[period]
        for load in self._turns:
            if load.fatal is not None and not is_missing(load.fatal):
                self.stop(load.fatal)
                return

    def _taken(self, now: float) -> Step[Sequence[BulkResult]] | None:
        """Return the results of a load that has some."""
        return next((load.next(now) for load in self._turns if load.has_results), None)

    def _steps(self, now: float) -> Iterator[tuple[Machine[Any], Step[Any]]]:
        """Yield the next step of everything that may send, each time beginning with another load."""
        for period, looking in [*self._looking.items()]:
            try:
                step = looking.next(now)
            except PeriodError as error:
                self._closed_to[period] = error
                self._loads[period].fail_waiting(error)
            except Exception as error:  # noqa: BLE001 - it would be the same for every period
                self.stop(error)
                return
            else:
                if not isinstance(step, Done):
                    yield looking, step
                    continue
                if not step.value:
                    self._loads[period].pass_waiting()
            del self._looking[period]
        self._turns.rotate(-1)
        unseen = {self._loads[period] for period in self._looking}
        for load in [*self._turns]:
            if not load.quiet and load not in unseen:
                yield load, load.next(now)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._in_flight.pop(send).receive(send, answer, now)
