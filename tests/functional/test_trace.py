"""Traces on disk: what is recorded, and what of it is left when something fails."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from shardkit import CalculatedSuffix, ConfigurationError
from shardkit.capacity import CapacityMeter, Trace, TraceRow, read_traces
from tests.support.disks import full_disk
from tests.support.fakes import Clock, sharding
from tests.support.metered import FakeClient, consumed, item, key, put
from tests.support.platforms import require_fork
from tests.support.profiles import LONG

SECRET = b"sixteen bytes or more"
THROTTLED = {
    "Error": {
        "Code": "ThrottlingException",
        "ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": "table/T"}],
    }
}
NOW = 1_404_900_000

UNLESS_LONG = pytest.mark.skipif(not LONG, reason="takes 15 seconds: set HYPOTHESIS_PROFILE=search")


def recording(folder: Path, clock: Callable[[], float] = time.monotonic, **options: Any) -> tuple[Trace, FakeClient]:
    trace = Trace(folder, **{"keys": "plain", **options})
    client = FakeClient()
    CapacityMeter(trace=trace, clock=clock).attach(client, key_schema={"T": DESCRIBED, "U": "pk"})
    return trace, client


DESCRIBED = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "status")],
    "GlobalSecondaryIndexes": [{"IndexName": "G", "KeySchema": [{"AttributeName": "status", "KeyType": "HASH"}]}],
}


def fill(client: FakeClient, count: int = 1, name: str = "a", units: float = 1.0, **more: Any) -> None:
    for _ in range(count):
        client.call("PutItem", {"ConsumedCapacity": consumed(units), **more}, TableName="T", Item=item(name))


def rows(trace: Trace, folder: Path) -> list[TraceRow]:
    trace.flush()
    return [*read_traces(folder)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "keys"),
        ({"keys": "no"}, "keys"),
        ({"keys": "hashed"}, "secret"),
        ({"keys": "plain", "secret": SECRET}, "secret"),
        ({"keys": "hashed", "secret": b"short"}, "secret"),
        ({"keys": "hashed", "secret": "text, not bytes"}, "secret"),
        ({"keys": "plain", "rows_per_second": 0}, "rows_per_second"),
        ({"keys": "plain", "max_bytes": 1000}, "max_bytes"),
    ],
)
def test_arguments_are_checked(tmp_path: Path, given: dict[str, Any], named: str) -> None:
    if not given:
        with pytest.raises(TypeError, match="keys"):
            Trace(tmp_path)  # type: ignore[call-arg]
        return
    with pytest.raises(ConfigurationError, match=f"^{named}: "):
        Trace(tmp_path, **given)
    with pytest.raises(ConfigurationError, match=r"^trace: must be a Trace"):
        CapacityMeter(trace=tmp_path)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"^folder: "):
        Trace(tmp_path / "file" / "x", keys="plain")


def test_units_of_indexes_are_theirs_and_not_the_tables(tmp_path: Path) -> None:
    trace, client = recording(tmp_path)
    report = consumed(3.0, GlobalSecondaryIndexes={"G": {"CapacityUnits": 2.0}})
    client.call("PutItem", {"ConsumedCapacity": report}, TableName="T", Item={**item("a"), "status": {"S": "open"}})
    client.call("DeleteItem", {"ConsumedCapacity": report}, TableName="T", Key=key("a"))
    found = {(row.operation, row.index_name, row.key): row.write_units for row in rows(trace, tmp_path)}
    assert found == {
        ("PutItem", None, "a"): 1.0,
        ("PutItem", "G", "open"): 2.0,
        ("PutItem", None, None): 1.0,
        ("PutItem", "G", None): 2.0,
        ("DeleteItem", None, "a"): 1.0,
        ("DeleteItem", None, None): 1.0,
        ("DeleteItem", "G", None): 2.0,  # a delete does not name the index's key
    }


def test_items_are_looked_at_and_throttled_attempts_counted_by_key(tmp_path: Path) -> None:
    trace, client = recording(tmp_path)
    fill(client, 40)
    client.call("PutItem", THROTTLED, attempts=[THROTTLED], TableName="T", Item=item("b"))
    client.call("BatchWriteItem", THROTTLED, RequestItems={"U": [put("b")]})
    found = rows(trace, tmp_path)
    (a,) = {row.item for row in found if row.key == "a"}
    assert isinstance(a, int)
    assert sum(row.throttled for row in found if row.key == "b") == 2
    assert sum(row.throttled for row in found if row.key is None) == 3


def test_of_a_sharded_table_a_row_has_logical_key_and_shard(tmp_path: Path) -> None:
    trace, client = recording(tmp_path)
    known = sharding(CalculatedSuffix("sk", shards=4))
    client.call(
        "PutItem",
        {"ConsumedCapacity": consumed(1.0, known.table)},
        sharding=known,
        TableName=known.table,
        Item=item("a.3"),
    )
    assert [(row.key, row.shard) for row in rows(trace, tmp_path)] == [("a", 3), (None, None)]


def test_hashed_keys_are_alike_in_all_processes_and_say_nothing(tmp_path: Path) -> None:
    for name, secret in (("x", SECRET), ("y", SECRET), ("z", SECRET[::-1])):
        trace, client = recording(tmp_path / name, keys="hashed", secret=secret)
        fill(client, 20, name="somebody@example.com")
        trace.flush()
        data = b"".join(json.dumps(row).encode() for row in read_traces(tmp_path / name))
        assert b"somebody" not in data
    x, y, z = ({row.key for row in read_traces(tmp_path / name) if row.key is not None} for name in "xyz")
    items = [{row.item for row in read_traces(tmp_path / name) if row.item is not None} for name in "xyz"]
    assert x == y != z
    assert items[0] == items[1] != items[2]
    assert all(re.fullmatch("<hash [0-9a-f]{16}>", one) for one in (*x, *z))


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    trace, client = recording(tmp_path / "new" / "folder")
    fill(client)
    trace.flush()
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{8}\.trace\.jsonl\.gz", file.name)
    assert os.name == "nt" or file.stat().st_mode & 0o777 == 0o600


def test_time_is_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer says that the clock is 1,000 s behind; a date that is a second late changes nothing."""
    monkeypatch.setattr(time, "time", lambda: NOW - 1000.0)
    clock = Clock()
    trace, client = recording(tmp_path, clock)
    for second in range(40):
        date = formatdate(NOW + second - second % 2, usegmt=True)
        fill(client, 20, ResponseMetadata={"HTTPHeaders": {"date": date}})
        trace.flush()
        clock.now += 1.0
    assert sorted({row.second for row in read_traces(tmp_path)}) == [*range(NOW, NOW + 40)]
    clock.now += 100.0  # it was ahead: a suspended machine
    fill(client, 40, ResponseMetadata={"HTTPHeaders": {"date": formatdate(NOW + 50, usegmt=True)}})
    assert max(row.second for row in rows(trace, tmp_path)) == NOW + 50
    clock.now = -5.0
    fill(client, 20)
    assert sum(row.calls for row in rows(trace, tmp_path) if row.key is None) == 40 * 20 + 60


def added(second: float, **figures: Any) -> TraceRow:
    return TraceRow(second, "PutItem", "Orders", **figures)  # type: ignore[arg-type]  # a fraction is as good


def test_rows_from_elsewhere(tmp_path: Path) -> None:
    trace = Trace(tmp_path, keys="plain")
    for at, name, units in ((NOW, "a", 1.0), (NOW + 0.9, "a", 2.5), (NOW + 1, b"\x00", 1.0), (NOW + 1, Decimal(7), 1)):
        trace.add(added(at, key=name, write_units=units))
    query = TraceRow(NOW + 2, "Query", "Orders", "G", "a", None, 3, 1.5, 0.0, 1, item=7)
    trace.add(query)
    found = rows(trace, tmp_path)
    assert [(row.second - NOW, row.key, row.write_units) for row in found if row.index_name is None] == [
        (0, "a", 3.5), (0, None, 3.5), (1, b"\x00", 1.0), (1, Decimal(7), 1.0), (1, None, 2.0),
    ]  # fmt: skip
    assert found[-2:] == [query, query._replace(key=None, item=None)]
    for second in range(100):  # faster than a thread writes
        trace.add(added(NOW + second, key="b", write_units=1.0))
    assert sum(row.write_units for row in rows(trace, tmp_path) if row.key == "b") == 100
    assert trace.dropped == 0
    for wrong in (
        {"key": None},
        {"key": "\ud800"},
        {"table": "\ud800"},
        {"second": "today"},
        {"write_units": -1},
        {"calls": 0.5},
        {"throttled": -1},
    ):
        with pytest.raises(ConfigurationError, match=f"^{next(iter(wrong))}: "):
            trace.add(added(NOW, key="a")._replace(**wrong))


def test_beyond_50000_keys_a_second_has_one_row_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.capacity.seconds.MOST_ROWS", 50)
    trace = Trace(tmp_path, keys="plain", rows_per_second=1000)
    for number in range(200):
        trace.add(added(NOW, key=f"k{number}", write_units=1.0))
    found = rows(trace, tmp_path)
    assert len([row for row in found if row.key is not None]) == 50
    assert found[-1].write_units == 200


def test_files_take_no_more_than_max_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.capacity.trace._LEAST_BYTES", 1)
    trace = Trace(tmp_path, keys="plain", max_bytes=20_000, rows_per_second=1000)
    for second in range(60):
        for number in range(100):
            trace.add(added(NOW + second, key=f"{second}-{number * 7919}", write_units=1.0))
        trace.flush()
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 20_000
    assert len([*tmp_path.iterdir()]) > 2
    seconds = {row.second for row in read_traces(tmp_path)}
    assert NOW not in seconds
    assert NOW + 59 in seconds


def test_a_full_disk_drops_rows_and_fails_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trace, client = recording(tmp_path)
    fill(client)
    trace.flush()
    with full_disk(0):
        for _ in range(3):
            fill(client)
            trace.flush()
    assert trace.dropped == 6
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    fill(client, 5)
    assert sum(row.calls for row in rows(trace, tmp_path) if row.key == "a") == 6
    assert len([*tmp_path.iterdir()]) == 1


def test_a_folder_that_is_deleted_fails_no_call(tmp_path: Path) -> None:
    trace, client = recording(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    fill(client, 70)
    trace.flush()
    assert trace.dropped > 0


def test_a_forked_process_has_files_of_its_own(tmp_path: Path) -> None:
    require_fork()
    trace, client = recording(tmp_path)
    fill(client, 10)  # of the parent, which has not added them up yet
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fill(client, 3, name="b")
            trace.flush()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    fill(client, 5)
    found = rows(trace, tmp_path)
    assert len([*tmp_path.iterdir()]) == 2
    assert sum(row.calls for row in found if row.key == "a") == 15
    assert sum(row.calls for row in found if row.key == "b") == 3


PROGRAM = """
import sys, time
from shardkit.capacity import CapacityMeter, Trace
from tests.support.metered import FakeClient, consumed, item
trace = Trace(sys.argv[1], keys="plain")
client = FakeClient()
CapacityMeter(trace=trace).attach(client, key_schema={"T": "pk"})
number = 0
while sys.argv[2] == "forever" or number < int(sys.argv[2]):
    client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    number += 1
    if sys.argv[2] == "forever" and number % 20 == 0:
        trace.flush()
        print(number, flush=True)
"""


def program(folder: Path, calls: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), calls],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_all_is_written_when_a_process_ends(tmp_path: Path) -> None:
    with program(tmp_path, "70") as process:
        pass
    assert process.returncode == 0
    assert sum(row.calls for row in read_traces(tmp_path) if row.key == "a") == 70


@pytest.mark.parametrize("lines", [3, pytest.param(50, marks=[pytest.mark.long_search, UNLESS_LONG])])
def test_what_a_killed_process_wrote_can_be_read(tmp_path: Path, lines: int) -> None:
    """Killed at some moment after each of so many lines; rows that were flushed are there."""
    for number in range(lines):
        folder = tmp_path / str(number)
        with program(folder, "forever") as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(1 + number * 7 % 23)]
            process.kill()
        assert sum(row.calls for row in read_traces(folder) if row.key == "a") >= int(seen[-1])
