"""Ctrl-C during a bulk load, over moto: what is in flight is finished and kept, and nothing is sent again."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

from shardkit import RandomSuffix, ShardedTable, bulk_load
from shardkit.bulk.load_end import InterruptedLoadError
from shardkit.bulk.load_machine import Load
from tests.support.fakes import Fault, Faults, once, timeless
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

COUNT = 400
ITEMS: list[dict[str, Any]] = [{"Date": f"2014-07-{n % 7}", "OrderId": f"A{n:03}", "n": n} for n in range(COUNT)]


@pytest.fixture(params=["client", "direct"])
def orders(request: pytest.FixtureRequest, resource: DynamoDBServiceResource) -> ShardedTable:
    table = once(resource).Table(make_table(resource, ("Date", "S"), ("OrderId", "S")).name)
    return ShardedTable(table, RandomSuffix(4), transport=request.param)


def interrupt() -> None:
    """Send a SIGINT as a terminal does: to the main thread."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def stored(orders: ShardedTable) -> list[int]:
    return sorted(int(str(item["n"])) for item in orders.scan_items())


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("event", ["before-call", "after-call"])
@pytest.mark.parametrize("requests", [1, 4])
def test_once(orders: ShardedTable, tmp_path: Path, workers: int, event: str, requests: int) -> None:
    """Whenever it comes: every item that was taken is accounted for, and the journal holds what the table holds."""
    faults = Faults(orders.table.meta.client)
    left = [requests]

    def count(**_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            interrupt()

    orders.table.meta.client.meta.events.register(f"{event}.dynamodb.BatchWriteItem", count)
    options: Any = {"workers": workers, "window": 100, "journal": tmp_path / "journal"}
    with pytest.raises(InterruptedLoadError) as raised:
        bulk_load(orders, ITEMS, **options)
    report = raised.value.report
    assert report is not None
    assert report.written + report.failed == report.items < COUNT
    assert report.failed == report.stopped
    assert report.written == len(stored(orders)) > 0
    assert len(faults.batches) <= requests + workers, "what was in flight, and nothing after it"
    again = bulk_load(orders, ITEMS, **options)
    assert (again.resumed, again.written) == (report.written, COUNT - report.written)
    assert stored(orders) == list(range(COUNT))
    assert sum(map(len, faults.batches)) == COUNT


def test_while_all_wait(orders: ShardedTable, tmp_path: Path) -> None:
    """It is not slept through."""
    clock = timeless(orders)
    throttle: Fault = "throttle"
    Faults(orders.table.meta.client, ["none", *[throttle] * 9])

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        interrupt()

    orders.runner.sleep = sleep
    with pytest.raises(InterruptedLoadError) as raised:
        bulk_load(orders, ITEMS, workers=1, window=100, journal=tmp_path / "journal")
    assert len(clock.sleeps) == 1
    assert raised.value.report is not None
    assert raised.value.report.written == 25
    orders.runner.sleep = clock.sleep
    assert bulk_load(orders, ITEMS, journal=tmp_path / "journal").written == COUNT - 25


def test_while_the_source_is_read(orders: ShardedTable, tmp_path: Path) -> None:
    """An interrupted load does not wait for a source that yields nothing for a long time."""

    def source() -> Iterator[dict[str, Any]]:
        for number, item in enumerate(ITEMS):
            if number == 150:
                interrupt()
            yield item

    with pytest.raises(InterruptedLoadError) as raised:
        bulk_load(orders, source(), workers=1, window=100, journal=tmp_path / "journal")
    report = raised.value.report
    assert report is not None
    assert report.items == 150
    assert report.written == len(stored(orders))


def test_twice(orders: ShardedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends there, whatever is in flight; and can be resumed."""
    released = threading.Event()
    under_way: list[None] = []

    def hang(**_: Any) -> None:
        under_way.append(None)
        if len(under_way) == 2:
            interrupt()
        released.wait()

    def stop(load: Load, error: Exception) -> None:
        signal.raise_signal(signal.SIGINT)

    events = orders.table.meta.client.meta.events
    events.register("before-call.dynamodb.BatchWriteItem", hang)
    with monkeypatch.context() as patched:
        patched.setattr(Load, "stop", stop)
        with pytest.raises(KeyboardInterrupt) as raised:
            bulk_load(orders, ITEMS, workers=2, window=100, journal=tmp_path / "journal")
    assert not isinstance(raised.value, InterruptedLoadError)
    assert stored(orders) == []
    events.unregister("before-call.dynamodb.BatchWriteItem", hang)
    released.set()
    assert bulk_load(orders, ITEMS, journal=tmp_path / "journal").written == COUNT
    assert stored(orders) == list(range(COUNT))


def test_between_two_results(orders: ShardedTable) -> None:
    """An interruption has no place there: bulk_load itself runs no line while anything is in flight."""
    written: list[int] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return interrupted if frame.f_code is bulk_load.__code__ else None

    def interrupted(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and written and written[-1] < COUNT:
            pytest.fail("an interruption would be raised here")
        return interrupted

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        report = bulk_load(orders, ITEMS, workers=3, window=100, progress=lambda report: written.append(report.written))
    finally:
        sys.settrace(before)
    assert len(written) > 1
    assert report.written == COUNT


def test_the_program_s_own_handler_is_left_alone(orders: ShardedTable) -> None:
    before = signal.getsignal(signal.SIGINT)
    bulk_load(orders, ITEMS[:50])
    assert signal.getsignal(signal.SIGINT) is before
