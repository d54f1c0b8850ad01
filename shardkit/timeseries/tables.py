"""The tables of a time series, as far as a client knows them: which exist, and which take writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from shardkit.core.machine import Program
from shardkit.errors import ConfigurationError, PeriodError, brief
from shardkit.timeseries.control import created, listed
from shardkit.timeseries.maintenance import to_create
from shardkit.timeseries.periods import Period, second_of
from shardkit.timeseries.plans import Plans

LISTED_SECONDS = 60
"""For how long a list of the tables is used; what this client creates or writes to is added at once."""


class SeriesTables:
    """``clock`` returns the time, with a zone."""

    def __init__(self, plans: Plans, clock: Callable[[], datetime]) -> None:
        if not callable(clock):
            raise ConfigurationError(
                f"clock: must be a function that returns a datetime with a zone, got {brief(clock)}; leave it out for "
                "this machine's clock"
            )
        self.plans, self.series = plans, plans.series
        self.clock = clock
        self._existing: set[Period] = set()  # shared by threads: changed and copied in one step each
        self._listed: int | None = None

    def existing(self) -> Program[list[Period]]:
        """Return the periods whose tables exist, the oldest first; each has a plan."""
        now = second_of("clock", self.clock())  # two times of one zone differ by what its clocks show
        if self._listed is None or abs(now - self._listed) >= LISTED_SECONDS:
            before = {*self._existing}
            found = yield from listed(self.series)
            yield from self.plans.settle(found)
            # What other threads have created meanwhile may be missing in the list.
            self._existing -= before - found
            self._existing |= found
            self._listed = now
        return sorted([*self._existing])

    def list_again(self) -> None:
        """Use the last list no more: others may have created or deleted tables."""
        self._listed = None

    def remember(self, period: Period) -> None:
        """Take note of a table that exists."""
        self._existing.add(period)

    def forget(self, period: Period) -> None:
        """Take note of a table that does not exist."""
        self._existing.discard(period)

    def exists(self, period: Period) -> bool:
        """Return whether a period's table was there when the tables were listed, or since."""
        return period in self._existing

    def check_open(self, period: Period) -> None:
        """Refuse writes to a period that is past keeping, or with ``late="error"`` to one that has ended."""
        series = self.series
        self._check_kept(period)
        if series.late == "error" and period < series.current(self.clock()):
            raise PeriodError(
                f"{series.at}: the period {period} of {series.name!r} has ended, and late='error' refuses late items; "
                "drop the item, or set late='write'",
                period.name,
            )

    def _check_kept(self, period: Period) -> None:
        series = self.series
        if series.is_past_keeping(period, series.current(self.clock())):
            raise PeriodError(
                f"{series.at}: the period {period} of {series.name!r} is older than keep={series.keep}, so its table "
                f"{series.table(period)!r} is deleted or about to be; drop the item, or raise keep="
                + series.times.doubt(period),
                period.name,
            )

    def check_creatable(self, period: Period) -> None:
        """Refuse a period whose table does not exist, unless it may be created."""
        self._check_kept(period)
        series = self.series
        if doubt := series.times.doubt(period):
            raise PeriodError(
                f"{series.at}: the period {period} of {series.name!r} has no table {series.table(period)!r}, and none "
                f"is created for milliseconds of 1970{doubt}",
                period.name,
            )
        newest = series.current(self.clock()).number + 1
        if period.number > newest:
            raise PeriodError(
                f"{series.at}: the period {period} of {series.name!r} is in the future, and no table later than "
                f"{series.table(series.calendar.at(newest))!r} is created; check the item's time and this machine's "
                "clock",
                period.name,
            )
        if series.missing == "error":
            due = period in to_create(series, self.clock())
            raise PeriodError(
                f"{series.at}: the period {period} of {series.name!r} has no table {series.table(period)!r}; "
                f"{'run maintain(), which creates it, or ' * due}set missing='create'",
                period.name,
            )

    def created(self, period: Period, *, to_fill: bool = False) -> Program[None]:
        """Create a period's table, after its plan; one that has ended is cold, unless it is to be filled."""
        series = self.series
        yield from self.plans.settle([period])
        hot = self.plans[period].raised(series.hot)
        ended = period < series.current(self.clock())
        yield from created(series, period, hot if to_fill or not ended else series.cold or hot)
        self.remember(period)
