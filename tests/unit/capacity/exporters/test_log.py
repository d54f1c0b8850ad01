"""A meter's figures as one log record."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from shardkit.capacity import CapacityMeter
from shardkit.capacity.exporters.log import log_capacity
from shardkit.errors import ConfigurationError
from tests.support.exported import Busy


@pytest.fixture
def busy() -> Busy:
    busy = Busy()
    busy.calls()
    return busy


def test_one_record(busy: Busy, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_capacity(busy.scope, top=2)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("shardkit.capacity", logging.INFO)
    assert record.getMessage() == (
        "capacity name=busy read_units=3.0 write_units=8.0 estimated_read_units=0.5 estimated_write_units=0.0 "
        "requests=6 throttles=1 vector_search_request_bytes=4096.0 vector_write_request_bytes=1536.0 "
        "throttles.TableWriteKeyRangeThroughputExceeded=1 "
        "retries.TableWriteKeyRangeThroughputExceeded=1 retries.InternalServerError=1 "
        'hottest_keys=[{"table":"T","key":{"S":"a"},"units":6.5},'
        '{"table":"T","key":{"S":"b"},"units":2.5}]'
    )
    figures: dict[str, Any] = record.__dict__["capacity"]
    totals = busy.scope.to_dict(hottest=2)
    del figures["rates"], totals["rates"]  # per second: of the clock
    assert figures == totals
    assert json.loads(json.dumps(figures)) == figures


def test_without_keys(busy: Busy, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_capacity(busy.meter, top=0)
        log_capacity(CapacityMeter())
    for record in caplog.records:
        assert "hottest_keys" not in record.getMessage()
        assert not record.__dict__["capacity"]["hottest_keys"]
    assert caplog.messages[1] == (
        "capacity name=total read_units=0.0 write_units=0.0 estimated_read_units=0.0 estimated_write_units=0.0 "
        "requests=0 throttles=0"
    )


@pytest.mark.parametrize(
    ("name", "written"),
    [("a b", '"a b"'), ('a"b', '"a\\"b"'), ("a=b", '"a=b"'), ("a\nb", '"a\\nb"'), ("", '""'), ("ü%s", "ü%s")],
)
def test_names_of_any_characters(name: str, written: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_capacity(CapacityMeter().scope(name))
    assert caplog.messages[0].startswith(f"capacity name={written} read_units=")


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_what_cannot_be_written(level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is it only said once somebody turns the level on."""
    not_a_meter: Any = "checkout"
    with caplog.at_level(logging.INFO), pytest.raises(ConfigurationError, match="totals: must be a CapacityMeter"):
        log_capacity(not_a_meter, level=level)
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(ConfigurationError, match=r"top: must be an integer >= 0 \(keys\), got"),
    ):
        log_capacity(CapacityMeter(), top=-1, level=level)


def test_level_and_logger(busy: Busy, caplog: pytest.LogCaptureFixture) -> None:
    mine = logging.getLogger("mine")
    with caplog.at_level(logging.INFO):
        log_capacity(busy.meter, level=logging.WARNING, logger=mine)
        log_capacity(busy.meter, logger=logging.LoggerAdapter(mine))
    assert [(record.name, record.levelname) for record in caplog.records] == [("mine", "WARNING"), ("mine", "INFO")]


def test_nothing_is_read_where_the_level_is_off(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable(CapacityMeter):
        def to_dict(self, *, hottest: int = 10) -> dict[str, Any]:
            raise AssertionError

    with caplog.at_level(logging.INFO, logger="shardkit.capacity"):
        log_capacity(Unreadable(), level=logging.DEBUG)
    assert not caplog.records
