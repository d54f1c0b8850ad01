"""The streams of several periods, one after another, as one stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from shardkit.core.machine import Answer, Done, Machine, Program, Send, Step
from shardkit.core.merge import Rows
from shardkit.dynamodb.service_errors import check_fits
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import QueryStream
from shardkit.timeseries.control import is_missing
from shardkit.timeseries.periods import Period

Opening = Callable[[Period, "int | None"], Program[Any]]
"""Makes the program that returns a period's stream, for at most so many items; it sends no request."""


class StreamOfPeriods:
    """A machine like the streams of its tables: each result is some more rows, an empty one (``nothing``) the end.

    A period whose table does not exist has no rows.
    """

    def __init__(
        self,
        periods: Iterable[Period],
        opening: Opening,
        *,
        table: Callable[[Period], str],
        nothing: Any,
        max_items: int | None = None,
    ) -> None:
        self._table = table
        self._periods = deque(periods)
        self._opening = opening
        self._nothing = nothing
        self._left = max_items
        self._machine: Machine[Any] | None = None
        self._senders: dict[Send, Machine[Any]] = {}

    def _machine_of(self, stream: Any) -> Machine[Any]:
        """Return the machine that reads a period's stream, which begins."""
        machine: Machine[Any] = stream
        return machine

    def next(self, now: float) -> Step[Any]:
        while True:
            if self._machine is None:
                if not self._periods or self._left == 0:
                    return Done(self._nothing)
                self._period = self._periods.popleft()
                self._machine = self._machine_of(returned(self._opening(self._period, self._left)))
            try:
                step = self._machine.next(now)
            except Exception as error:
                if not is_missing(error):
                    check_fits(error, self._table(self._period))
                    raise
                self._machine = None
                continue
            if isinstance(step, Send):
                self._senders[step] = self._machine
            if isinstance(step, Done):
                if not step.value:
                    self._machine = None
                    continue
                if self._left is not None:
                    self._left -= len(step.value)
            return step

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        # It may be for a stream that has ended, if a request was hedged.
        self._senders.pop(send).receive(send, answer, now)


class QueryOfPeriods(StreamOfPeriods):
    """The rows of a Query in order, as a :class:`QueryStream`."""

    def __init__(
        self, periods: Iterable[Period], opening: Opening, *, table: Callable[[Period], str], max_items: int | None
    ) -> None:
        super().__init__(periods, opening, table=table, nothing=Rows(), max_items=max_items)
        self._stream: QueryStream | None = None
        self._plan: QueryPlan | None = None
        self._errors: dict[int | None, Exception] = {}

    @property
    def plan(self) -> QueryPlan:
        assert self._plan is not None
        return self._plan

    @property
    def errors(self) -> dict[int | None, Exception]:
        return self._errors if self._stream is None else {**self._errors, **self._stream.errors}

    def hedged(self) -> QueryOfPeriods:
        """Return itself: the streams of the periods are hedged."""
        return self

    def next(self, now: float) -> Step[Any]:
        step = super().next(now)
        if isinstance(step, Done) and step.value and self._stream is not None:
            self._plan = self._stream.plan
        return step

    def _machine_of(self, stream: QueryStream) -> Machine[Rows]:
        self._errors = self.errors
        self._stream = stream
        return stream.hedged()


def returned(program: Program[Any]) -> Any:
    """Return the result of a program that sends no request, because the schema of a time series is given."""
    try:
        next(program)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a request was sent")
