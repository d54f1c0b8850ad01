"""A load into a time series: each period's items in a load into its table, all of them one machine.

The loads share the window, the workers and the report. A period's table is looked for before its first batch, and made
if it may be (``missing="create"``); otherwise its items fail, and the others go on. Deletes alone find
nothing where no table is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

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


class Periods(Protocol):
    """What a load asks of its series."""

    tables: SeriesTables

    def period_to_store(self, given: Any, what: str) -> Period: ...

    def key_to_delete(self, key: Mapping[str, Any]) -> tuple[Period, Mapping[str, Any]]: ...

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
        self._senders: dict[Send, _PeriodLoad] = {}

    @property
    def quiet(self) -> bool:
        return super().quiet and not self._senders and all(load.quiet for load in self._turns)

    def put(self, item: Mapping[str, Any], place: Any = None) -> None:
        self._place(self._placed, Load.put, item, place)

    def delete(self, key: Mapping[str, Any], place: Any = None) -> None:
        self._place(self._programs.key_to_delete, Load.delete, key, place)

    def _placed(self, item: Mapping[str, Any]) -> tuple[Period, Mapping[str, Any]]:
        period = self._programs.period_to_store(item, "item")
        self._programs.tables.check_open(period)
        return period, item

    def _place(
        self,
        placed: Callable[[Mapping[str, Any]], tuple[Period, Mapping[str, Any]]],
        add: Callable[[Load, Mapping[str, Any], Any], None],
        given: Mapping[str, Any],
        place: Any,
    ) -> None:
        place = self._tally.items if place is None else place
        if self.fatal is not None:
            self.refuse(given, place, self.fatal)
            return
        try:
            period, sent = placed(given)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the load
            self.refuse(given, place, error)
            return
        load = self._load_of(period)
        if load.closed_by is not None:
            self.refuse(sent, place, load.closed_by)
            return
        if not self._programs.tables.exists(period):
            load.look(puts=add is Load.put)
        add(load, sent, place)

    def _load_of(self, period: Period) -> _PeriodLoad:
        load = self._loads.get(period)
        if load is None or load.fatal is not None:
            if load is not None:
                # Its table was deleted meanwhile: only its items fail; later ones look for the table again.
                self._programs.tables.forget(period)
            load = self._loads[period] = _PeriodLoad(self, self._programs, period, **self._options)
            self._turns.append(load)
        return load

    def close(self, broken: Exception | None = None) -> None:
        super().close(broken)
        for load in self._turns:
            load.close()

    def _stop(self, writes: Iterable[Write], error: Exception) -> None:
        super()._stop(writes, error)
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
        if self.has_results:
            return super().next(now)
        free = len(self._senders) < self._workers
        alarms = []
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
    """The load into a period's table. It sends nothing else while it looks for the table."""

    def __init__(self, whole: SeriesLoad, programs: Periods, period: Period, **options: Any) -> None:
        super().__init__(programs.sharding_of(period), **options)
        self._whole = whole
        self._tables = programs.tables
        self._period = period
        self._puts = False
        self._looking: ProgramMachine[bool] | None = None
        self._asked: Send | None = None
        self.closed_by: Exception | None = None

    def look(self, *, puts: bool) -> None:
        """Look for the table, unless that is under way; it is made if something is put there."""
        self._puts = self._puts or puts
        if self._looking is None:
            self._looking = ProgramMachine(self._looked_for())

    def _stop(self, writes: Iterable[Write], error: Exception) -> None:
        super()._stop(writes, error)
        if self._whole.fatal is None and not is_missing(error):
            self._whole.stop(error)

    def _looked_for(self) -> Program[bool]:
        """Return whether the table exists, or is made. Deletes alone need none."""
        described = yield from settled(self._sharding.table)
        if described is None or described.get("TableStatus") == "DELETING":
            if not self._puts:
                return False
            self._tables.check_creatable(self._period)
            yield from self._tables.created(self._period, to_fill=True)
        self._tables.remember(self._period)
        return True

    def next(self, now: float) -> Step[Sequence[BulkResult]]:
        if self._looking is not None and self.fatal is None and not self.has_results:
            try:
                step = self._looking.next(now)
            except Exception as error:  # noqa: BLE001 - it is the reason of items that fail
                # The account's limit of tables: other periods have theirs.
                if isinstance(error, PeriodError) or code_of(error) == "LimitExceededException":
                    self.closed_by = error
                    self._fail(self._unsent(), error)
                else:  # it would be the same for every period
                    self.stop(error)
            else:
                if not isinstance(step, Done):
                    self._asked = step if isinstance(step, Send) else self._asked
                    return step
                if not step.value:
                    self._pass()
            self._looking = None
        return super().next(now)

    def _unsent(self) -> list[Write]:
        return [*self._departures.drain(), *self._window.drain()]

    def _pass(self) -> None:
        """Count everything that was not sent as written: deletes from a table that does not exist."""
        writes = self._unsent()
        self._window.failed(writes)
        self._tally.written += len(writes)
        self._results.written(writes)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        if self._looking is not None and send is self._asked:
            self._looking.receive(send, answer, now)
        else:
            super().receive(send, answer, now)
