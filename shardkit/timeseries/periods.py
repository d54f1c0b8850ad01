"""Periods of a time series, in UTC, and the formats of the attribute that says when an item was."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import floor
from typing import Any, Literal, get_args

from shardkit.dynamodb.decode import as_given, from_wire
from shardkit.dynamodb.expressions.key_condition import SortCondition, SortValue, ends, sort_value
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ConfigurationError, InvalidKeyError, brief

PeriodLength = Literal["day", "week", "month"] | timedelta
TimeFormat = Literal["iso", "iso without zone", "seconds", "milliseconds"]

_DAY = 86_400
_LEAST, _MOST = timedelta(minutes=1), timedelta(days=366)
_NAMES: Mapping[str, str] = {"day": "%Y-%m-%d", "month": "%Y-%m"}
_LONG_NAME = "%Y-%m-%dT%H-%M-%S"  # a table's name has no colons
_WEEK = re.compile(r"(\d{4})-W(\d\d)").fullmatch
# Years whose text has four digits, and sorts as time does; so have those of the periods before and after.
_FIRST, _LAST = (int(datetime(year, 1, 7, tzinfo=UTC).timestamp()) for year in (2, 9998))


@dataclass(frozen=True, slots=True, order=True)
class Period:
    """A period: its number, its first second and that of the next one (since 1970), and its name."""

    number: int
    start: int = field(compare=False)
    end: int = field(compare=False)
    name: str = field(compare=False)

    def __str__(self) -> str:
        return self.name


class Calendar:
    """Divides time into periods.

    A day begins at 00:00 UTC, a week on Monday (ISO 8601), a month on its first day. Periods of a ``timedelta`` are
    counted from 1970-01-01T00:00:00Z.
    """

    def __init__(self, length: PeriodLength) -> None:
        if isinstance(length, timedelta):
            if not _LEAST <= length <= _MOST or length.microseconds:
                raise ConfigurationError(
                    f"period: must be a whole number of seconds, from {_LEAST} to {_MOST}, got {length}; give, for "
                    "example, timedelta(hours=6)"
                )
            seconds = length.days * _DAY + length.seconds
            self._number: Callable[[int], int] = lambda second: second // seconds
            self._start: Callable[[int], int] = lambda number: number * seconds
        elif length == "day":
            self._number, self._start = lambda second: second // _DAY, lambda number: number * _DAY
        elif length == "week":
            # 1970-01-01 was a Thursday.
            self._number = lambda second: (second // _DAY + 3) // 7
            self._start = lambda number: (number * 7 - 3) * _DAY
        elif length == "month":
            self._number, self._start = _month_of, _month_start
        else:
            raise ConfigurationError(
                f"period: must be 'day', 'week', 'month' or a timedelta, got {brief(length)}; give, for example, "
                "period='month'"
            )
        self.length = length
        self._at = lru_cache(1024)(self._made)

    def at(self, number: int) -> Period:
        """Return the period with a number."""
        return self._at(number)

    def of(self, second: int) -> Period:
        """Return the period of a time."""
        return self._at(self._number(second))

    def named(self, name: str) -> Period | None:
        """Return the period with a name; None if no period has exactly this name."""
        try:
            if self.length == "week":
                found = _WEEK(name)
                if found is None:
                    return None
                day = date.fromisocalendar(int(found[1]), int(found[2]), 1)
                start = datetime(day.year, day.month, day.day, tzinfo=UTC)
            else:
                form = _LONG_NAME if isinstance(self.length, timedelta) else _NAMES[self.length]
                start = datetime.strptime(name, form).replace(tzinfo=UTC)
            period = self.of(int(start.timestamp()))
        except (ValueError, OverflowError):
            return None
        return period if period.name == name else None

    def _made(self, number: int) -> Period:
        start = self._start(number)
        first = datetime_of(start)
        if self.length == "week":
            year, week, _ = first.isocalendar()
            name = f"{year:04}-W{week:02}"
        elif isinstance(self.length, timedelta):
            name = _text(first, _LONG_NAME)
        else:
            name = _text(first, _NAMES[self.length])
        return Period(number, start, self._start(number + 1), name)


def _text(moment: datetime, form: str) -> str:
    # Not strftime alone: some platforms write the year 33 without zeros.
    return f"{moment.year:04}" + moment.strftime(form.removeprefix("%Y"))


def _month_of(second: int) -> int:
    moment = datetime_of(second)
    return (moment.year - 1970) * 12 + moment.month - 1


def _month_start(number: int) -> int:
    years, month = divmod(number, 12)
    return int(datetime(1970 + years, month + 1, 1, tzinfo=UTC).timestamp())


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_of(second: int) -> datetime:
    return _EPOCH + timedelta(seconds=second)


def second_of(name: str, moment: Any) -> int:
    """Return the second of a ``datetime``, which must have a zone."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ConfigurationError(
            f"{name}: must be a datetime with a zone, got {brief(moment)}; give, for example, datetime.now(UTC)"
        )
    second = _seconds(moment - _EPOCH)
    if not _FIRST <= second <= _LAST:
        raise ConfigurationError(f"{name}: must be a time from the year 2 to 9997, got {moment}; check the clock")
    return second


def _seconds(length: timedelta) -> int:
    return length.days * _DAY + length.seconds


_ISO = re.compile(r"(\d{4}-\d\d-\d\d)(?:T((?!24)\d\d:\d\d):(\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII).fullmatch
_UTC_ZONES = ("Z", "+00:00")
_FORMS: Mapping[str, str] = {
    "iso": "ISO 8601 text with a zone, such as 2014-07-09T10:00:00Z",
    "iso without zone": "ISO 8601 text without a zone (it is taken as UTC), such as 2014-07-09T10:00:00 or 2014-07-09",
    "seconds": "a number of seconds since 1970, such as 1404900000",
    "milliseconds": "a number of milliseconds since 1970, such as 1404900000000",
}


@dataclass(frozen=True)
class Times:
    """Reads the time of items: the attribute, its format, and whether it orders the items of some key.

    Where it does, texts must sort as their times do across periods, so all of them must be in UTC.
    """

    at: str
    form: TimeFormat
    ordered: bool

    def __post_init__(self) -> None:
        if self.form not in get_args(TimeFormat):
            raise ConfigurationError(
                f"time_format: must be one of {', '.join(map(repr, get_args(TimeFormat)))}, got {brief(self.form)}"
            )

    @property
    def letter(self) -> str:
        """The DynamoDB type of the attribute."""
        return "S" if self.form in {"iso", "iso without zone"} else "N"

    def second(self, value: WireValue) -> int:
        """Return the second of a time; it is in the period of its second."""
        ((letter, content),) = value.items()
        second = None
        if letter == self.letter:
            second = self._of_text(content) if letter == "S" else self._of_number(value)
        if second is None or not _FIRST <= second <= _LAST:
            raise InvalidKeyError(
                f"{self.at}: must be {_FORMS[self.form]}, got {as_given(value)}; convert it, or set time_format="
                + ("; is it in milliseconds?" if self.form == "seconds" and second is not None else "")
            )
        return second

    def doubt(self, period: Period) -> str:
        """Return a question to add to an error, if a period's times are probably in another unit."""
        # Seconds until the year 2969, taken as milliseconds, are in 1970.
        mistaken = self.form == "milliseconds" and period.end > 0 and period.start < 365 * _DAY
        return "; is the time in seconds? time_format is 'milliseconds'" if mistaken else ""

    def _of_number(self, value: WireValue) -> int:
        number: Decimal = from_wire(value)
        whole = floor(number)  # exact; a division of Decimals is rounded
        return whole if self.form == "seconds" else whole // 1000

    def _of_text(self, text: str) -> int | None:
        found = _ISO(text)
        if found is None:
            return None
        day, minute, seconds, zone = found.groups()
        if (zone is None) == (self.form == "iso"):
            return None
        if zone and self.ordered and zone not in _UTC_ZONES:
            raise InvalidKeyError(
                f"{self.at}: must be in UTC, because it is a sort key and {text!r} does not sort as its time does; "
                "convert it: moment.astimezone(UTC)"
            )
        # A leap second counts to the second before it.
        clock = f"{minute or '00:00'}:{'59' if seconds == '60' else seconds or '00'}"
        try:
            moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in {None, 'Z'} else zone}")
            return _seconds(moment - _EPOCH)
        except (ValueError, OverflowError):
            return None

    def border(self, second: int) -> SortValue:
        """Return the value that no time before a second reaches, and that every time from it on does."""
        if self.letter == "N":
            return Decimal(second if self.form == "seconds" else 1000 * second)
        text = f"{datetime_of(second).replace(tzinfo=None).isoformat()}"
        # The text of a day sorts before that of its first second, and is the same time.
        return text.removesuffix("T00:00:00")

    def _last(self, period: Period) -> SortValue:
        """Return a value that every time in a period sorts before, and hardly anything else does."""
        if self.letter == "N":
            return self.border(period.end)
        text = datetime_of(period.end - 1).replace(tzinfo=None).isoformat()
        return (text[:-2] + "60" if text.endswith(":59") else text) + "\U0010ffff"

    def can_touch(self, period: Period, term: SortCondition) -> bool:
        """Return whether a time in a period can satisfy a condition."""
        low, high, _, high_open = ends(term)
        try:
            if high is not None:
                first, most = self.border(period.start), sort_value(high)
                if first > most or (high_open and first == most):  # type: ignore[operator]
                    return False
            return low is None or bool(self._last(period) > sort_value(low))  # type: ignore[operator]
        except TypeError:
            return False  # of another type: the service refuses the condition
