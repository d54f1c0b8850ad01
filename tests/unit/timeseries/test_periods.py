"""Periods tile time without gaps, and an item's period follows from its time, whatever its format."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardkit import ConfigurationError, InvalidKeyError
from shardkit.dynamodb.expressions.key_condition import SortCondition
from shardkit.timeseries.periods import Calendar, PeriodLength, TimeFormat, Times, second_of

LENGTHS: tuple[PeriodLength, ...] = ("day", "week", "month", timedelta(hours=6), timedelta(seconds=90))
FORMS: tuple[TimeFormat, ...] = ("iso", "iso without zone", "seconds", "milliseconds")
moments = st.datetimes(datetime(2, 2, 1), datetime(9997, 11, 1), timezones=st.just(UTC))  # noqa: DTZ001


def written(moment: datetime, form: TimeFormat) -> dict[str, Any]:
    if form == "iso":
        return {"S": moment.isoformat().replace("+00:00", "Z")}
    if form == "iso without zone":
        return {"S": moment.replace(tzinfo=None).isoformat()}
    seconds = Decimal((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)) / 1_000_000
    return {"N": str(seconds if form == "seconds" else seconds * 1000)}


@given(moments, st.sampled_from(LENGTHS), st.sampled_from(FORMS))
@example(datetime(2000, 1, 1, tzinfo=UTC), "day", "seconds")  # a border
def test_a_time_is_in_its_period_and_in_no_other(moment: datetime, length: PeriodLength, form: TimeFormat) -> None:
    calendar, times = Calendar(length), Times("at", form, ordered=True)
    second = times.second(written(moment, form))
    assert second == second_of("now", moment)
    period = calendar.of(second)
    assert period.start <= second < period.end
    assert calendar.of(period.end) == calendar.at(period.number + 1)
    assert calendar.of(period.start) == calendar.of(period.end - 1) == period == calendar.named(period.name)
    # The borders are in the order of the sort keys: what cursors and key conditions rely on.
    value = written(moment, form)
    assert times.can_touch(period, SortCondition("=", (value,)))
    for other in (calendar.at(period.number - 1), calendar.at(period.number + 1)):
        assert not times.can_touch(other, SortCondition("=", (value,)))
        assert times.can_touch(other, SortCondition("<=" if other < period else ">=", (value,)))
        assert not times.can_touch(other, SortCondition(">" if other < period else "<", (value,)))


@pytest.mark.parametrize(
    ("length", "moment", "name"),
    [
        ("month", "2014-07-31T23:59:59.999+00:00", "2014-07"),
        ("month", "2016-02-29T12:00:00+00:00", "2016-02"),  # a leap day
        ("day", "2016-02-29T23:59:59+00:00", "2016-02-29"),
        ("day", "2100-02-28T23:59:59+00:00", "2100-02-28"),  # no leap year
        ("week", "2014-07-09T10:00:00+00:00", "2014-W28"),
        ("week", "2016-01-03T23:59:59+00:00", "2015-W53"),  # a year of 53 weeks
        ("week", "2012-12-31T00:00:00+00:00", "2013-W01"),
        # Daylight saving: 01:30 came twice in New York, an hour apart; and the day there is not the day in UTC.
        (timedelta(hours=1), "2014-11-02T01:30:00-04:00", "2014-11-02T05-00-00"),
        (timedelta(hours=1), "2014-11-02T01:30:00-05:00", "2014-11-02T06-00-00"),
        ("day", "2014-11-02T23:30:00-05:00", "2014-11-03"),
        ("month", "2014-08-01T00:30:00+02:00", "2014-07"),
        ("day", "2016-12-31T23:59:60Z", "2016-12-31"),  # a leap second
    ],
)
def test_names(length: PeriodLength, moment: str, name: str) -> None:
    second = Times("at", "iso", ordered=False).second({"S": moment})
    assert Calendar(length).of(second).name == name


def test_a_number_is_not_rounded() -> None:
    """Neither to 28 digits, nor to what the program's decimal context says."""
    times, month = Times("at", "milliseconds", ordered=True), Calendar("month")
    with localcontext() as context:
        for context.prec in (5, 28):
            for number in ("1459468799999", "1459468799999.9999999999999999999999"):
                assert month.of(times.second({"N": number})).name == "2016-03"


@pytest.mark.parametrize("name", ["2014-7", "2014-07-09", "2014-13", "2014-07-backup", "2014-W28", "", "\uff12014-07"])
def test_a_name_must_be_exact(name: str) -> None:
    assert Calendar("month").named(name) is None


@pytest.mark.parametrize("name", ["2014-W00", "2014-W54", "2014-W1", "2014-07", "2014-W28-1"])
def test_a_week_must_exist(name: str) -> None:
    assert Calendar("week").named(name) is None


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        ("iso", {"S": "2014-07-09T10:00:00"}, "with a zone"),
        ("iso", {"S": "2014-07-09"}, "with a zone"),
        ("iso", {"S": "2014-07-09 10:00:00Z"}, "with a zone"),  # a space sorts before T
        ("iso", {"S": "2014-07-09T10:00Z"}, "with a zone"),
        ("iso", {"S": "20140709T100000Z"}, "with a zone"),
        ("iso", {"S": "2014-02-29T10:00:00Z"}, "with a zone"),
        ("iso", {"S": "2014-07-31T24:00:00Z"}, "with a zone"),  # sorts before its day
        ("iso", {"S": "0001-01-01T00:00:00Z"}, "with a zone"),
        ("iso", {"N": "1404900000"}, "with a zone.*, got 1404900000;"),
        ("iso", {"M": {"S": {"S": "2014"}}}, "with a zone.*, got {'S': '2014'};"),
        ("iso", {"S": "2014-07-09T12:00:00+02:00"}, "must be in UTC"),
        ("iso without zone", {"S": "2014-07-09T10:00:00Z"}, "without a zone"),
        ("seconds", {"S": "1404900000"}, "number of seconds"),
        ("seconds", {"N": "1404900000000"}, "number of seconds.*; is it in milliseconds\\?"),
        ("milliseconds", {"N": "1E+30"}, "number of milliseconds"),
    ],
)
def test_other_formats_are_refused(form: TimeFormat, value: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidKeyError, match=f"^at: .*{message}"):
        Times("at", form, ordered=True).second(value)


def names(form: TimeFormat, term: SortCondition) -> list[str]:
    calendar, times = Calendar("month"), Times("at", form, ordered=True)
    first = calendar.named("2014-05")
    assert first is not None
    periods = [calendar.at(first.number + number) for number in range(6)]
    return [period.name[-2:] for period in periods if times.can_touch(period, term)]


@pytest.mark.parametrize(
    ("term", "touched"),
    [
        (("BETWEEN", "2014-06-30T23:59:59Z", "2014-08-01T00:00:00Z"), ["06", "07", "08"]),
        (("BETWEEN", "2014-07", "2014-07-31T"), ["07"]),
        (("begins_with", "2014-07"), ["07"]),
        (("begins_with", "2014-0"), ["05", "06", "07", "08", "09"]),
        (("<", "2014-07-01"), ["05", "06"]),
        (("<=", "2014-07-01"), ["05", "06", "07"]),
        ((">", "2014-08-31T23:59:59Z"), ["08", "09", "10"]),
        ((">=", "2014-08-31T23:59:60.5Z"), ["08", "09", "10"]),
        ((">=", "2014-08-31~"), ["09", "10"]),
        (("=", "not a time"), []),
    ],
)
def test_a_condition_touches_few_tables(term: tuple[str, ...], touched: list[str]) -> None:
    op, *values = term
    assert names("iso", SortCondition(op, tuple({"S": value} for value in values))) == touched


def test_a_condition_of_another_type_touches_none() -> None:
    assert names("seconds", SortCondition("=", ({"S": "2014-07"},))) == []
    assert names("seconds", SortCondition("<", ({"N": "1404172800"},))) == ["05", "06"]


@pytest.mark.parametrize(
    "length", ["year", 30, timedelta(seconds=59), timedelta(minutes=5, microseconds=1), timedelta(367)]
)
def test_other_lengths_are_refused(length: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^period: must be"):
        Calendar(length)


class _NoOffset(tzinfo):
    """A zone that does not know its offset: Python takes such a datetime as one without a zone."""

    def utcoffset(self, _: datetime | None, /) -> None:
        return None

    def dst(self, _: datetime | None, /) -> None:
        return None

    def tzname(self, _: datetime | None, /) -> None:
        return None


def test_a_moment_needs_a_zone() -> None:
    with pytest.raises(ConfigurationError, match=r"^now: must be a datetime with a zone"):
        second_of("now", datetime(2026, 1, 1, tzinfo=_NoOffset()))
    with pytest.raises(ConfigurationError, match=r"^now: must be a datetime with a zone"):
        second_of("now", datetime(2014, 7, 9))  # noqa: DTZ001


@pytest.mark.parametrize("year", [1, 9999])
def test_a_moment_is_not_at_an_end_of_time(year: int) -> None:
    """The periods around it have names too."""
    with pytest.raises(ConfigurationError, match=r"^now: must be a time from the year 2 to 9997"):
        second_of("now", datetime(year, 12, 31, tzinfo=UTC))
