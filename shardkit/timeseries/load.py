"""A load into a time series: each period's items in a load into its table, all of them one machine.

The loads share the window, the workers and the report. Writes of a period whose table is not known wait until it has
been looked for, with its plan. The table is made if it may be (``missing="create"``); otherwise the period's items
fail, and the others go on. Deletes alone find nothing where no table is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from shardkit.bulk.load_machine import WINDOW, Load
from shardkit.bulk.report import BulkResult, Settled
from shardkit.bulk.writes import Write
from shardkit.core.machine import Answer, Done, Program, ProgramMachine, Send, Step, Wait
from shardkit.dynamodb.service_errors import code_of
from shardkit.errors import PeriodError
from shardkit.sharding.layout import Sharding
from shardkit.timeseries.control import is_missing, settled
from shardkit.timeseries.periods import Period
from shardkit.timeseries.tables import SeriesTables

Add = Callable[[Load, Mapping[str, Any], Any], None]
_Waiting = tuple[Add, Mapping[str, Any], Any, Write]


class Periods(Protocol):
    """What a load asks of its series."""

    tables: SeriesTables

    def period_to_store(self, given: Any, what: str) -> Period: ...

    def planned(self, period: Period, kind: Literal["delete", "write"]) -> Program[bool]: ...

    def key_as_sent(self, sharding: Sharding, key: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def sharding_of(self, period: Period) -> Sharding: ...


class SeriesLoad(Load):
    """The machine. Its own window stays empty, and its own results are those of items that belong to no table."""

    def __init__(self, programs: Periods, sharding: Sharding, *, window: int = WINDOW, **options: Any) -> None:
        super().__init__(sharding, window=window, **options)
        self.what = self.what.replace(" table", " time series")
        self._programs = programs
        self._options = {**options, "room": self._room, "tally": self._tally}
        self._loads: dict[Period, _PeriodLoad] = {}
        self._turns: deque[_PeriodLoad] = deque()
        self._senders: dict[Send, _PeriodLoad | ProgramMachine[bool]] = {}
        self._looking: dict[Period, tuple[ProgramMachine[bool], list[_Waiting]]] = {}
        self._closed_by: dict[Period, Exception] = {}

    @property
    def held(self) -> int:
        return super().held + sum([len(waiting) for _, waiting in self._looking.values()])

    @property
    def quiet(self) -> bool:
        return super().quiet and not self._senders and all(load.quiet for load in self._turns)

    def put(self, item: Mapping[str, Any], place: Any = None) -> None:
        self._place(Load.put, item, place)

    def delete(self, key: Mapping[str, Any], place: Any = None) -> None:
        self._place(Load.delete, key, place)

    def _place(self, add: Add, given: Mapping[str, Any], place: Any) -> None:
        place = self._tally.items if place is None else place
        if self.fatal is not None:
            self.refuse(given, place, self.fatal)
            return
        puts, tables = add is Load.put, self._programs.tables
        try:
            period = self._programs.period_to_store(given, "item" if puts else "key")
            if puts:
                tables.check_open(period)
            if period in self._closed_by:
                raise self._closed_by[period]  # noqa: TRY301 - as all else that refuses an item
            if period in self._loads and self._loads[period].fatal is not None:
                # Its table was deleted meanwhile: only its items fail; later ones look for the table again.
                del self._loads[period]
                tables.forget(period)
            if period in self._looking or not tables.exists(period):
                # Refuses what no table could have.
                sent = given if puts else self._programs.key_as_sent(self._sharding, given)
                waiting = add, given, place, (self._writes.put if puts else self._writes.delete)(sent, place)
                if period not in self._looking:
                    self._looking[period] = ProgramMachine(self._looked_for(period, puts=puts)), []
                self._looking[period][1].append(waiting)
                self._tally.items += 1
                return
            load = self._load_of(period)
            add(load, given if puts else self._programs.key_as_sent(load.sharding, given), place)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the load
            self.refuse(given, place, error)

    def _load_of(self, period: Period) -> _PeriodLoad:
        if period not in self._loads:
            load = self._loads[period] = _PeriodLoad(self, self._programs.sharding_of(period), **self._options)
            self._turns.append(load)
            if self._closed:
                load.close()
        return self._loads[period]

    def _looked_for(self, period: Period, *, puts: bool) -> Program[bool]:
        """Return whether a period's table exists, or is made. Deletes alone need none."""
        tables = self._programs.tables
        if not (yield from self._programs.planned(period, "write" if puts else "delete")):
            return False
        described = yield from settled(tables.series.table(period))
        if described is None or described.get("TableStatus") == "DELETING":
            if not puts:
                return False
            tables.check_creatable(period)
            yield from tables.created(period, to_fill=True)
        tables.remember(period)
        return True

    def _look(self, now: float) -> Send | Wait | None:
        """Go on with looking for tables; return a request, or the time to wait for."""
        alarm = None
        for period, (program, waiting) in [*self._looking.items()]:
            try:
                step = program.next(now)
            except Exception as error:  # noqa: BLE001 - it is the reason of items that fail
                # The account's limit of tables: other periods have theirs.
                if not isinstance(error, PeriodError) and code_of(error) != "LimitExceededException":
                    self.stop(error)  # it would be the same for every period
                    return None
                self._closed_by[period] = error
                step = Done(value=True)
            if isinstance(step, Send):
                self._senders[step] = program
                return step
            if isinstance(step, Wait):
                alarm = step if step.until is not None else alarm
                continue
            del self._looking[period]
            self._tally.items -= len(waiting)  # they are counted where they go
            for add, given, place, write in waiting:
                if step.value or add is Load.put or period in self._looking:  # behind a put
                    self._place(add, given, place)
                else:  # nothing is there
                    self._tally.items += 1
                    self._tally.written += 1
                    self._results.written([write])
        return alarm

    def close(self, broken: Exception | None = None) -> None:
        super().close(broken)
        for load in self._turns:
            load.close()

    def _stop(self, writes: Iterable[Write], error: Exception) -> None:
        super()._stop(writes, error)
        looking, self._looking = self._looking, {}
        for _, waiting in looking.values():
            self._tally.items -= len(waiting)
            for _, given, place, _ in waiting:
                self.refuse(given, place, error)
        for load in self._turns:
            load.stop(error)

    def settled(self) -> Settled:
        done, failed = super().settled()
        for load in self._turns:
            some, others = load.settled()
            done += some
            failed += others
        return done, failed

    def next(self, now: float) -> Step[Sequence[BulkResult]]:
        free = len(self._senders) < self._workers
        looked = self._look(now) if free and self.fatal is None else None
        if isinstance(looked, Send):
            return looked
        if self.has_results:
            return super().next(now)
        alarms = [] if looked is None or looked.until is None else [looked.until]
        self._turns.rotate(-1)
        for load in self._turns:
            if not load.has_results and (load.quiet or not free):
                continue
            step = load.next(now)
            if isinstance(step, Send):
                self._senders[step] = load
                return step
            if isinstance(step, Wait):
                alarms += [] if step.until is None else [step.until]
            elif len(step.value):
                return step
        if self.wants or self.ended:
            return Done([])
        return Wait(min(alarms, default=None))

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._senders.pop(send).receive(send, answer, now)


class _PeriodLoad(Load):
    """The load into a period's table."""

    def __init__(self, whole: SeriesLoad, sharding: Sharding, **options: Any) -> None:
        super().__init__(sharding, **options)
        self.sharding = sharding
        self._whole = whole

    def _stop(self, writes: Iterable[Write], error: Exception) -> None:
        super()._stop(writes, error)
        if self._whole.fatal is None and not is_missing(error):
            self._whole.stop(error)
