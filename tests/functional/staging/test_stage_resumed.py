"""Stages that stop: killed, on a full disk, refused by S3. No manifest is there, and the same call goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from shardkit import RandomSuffix, ShardedTable, ShardkitError, StagingError, open_source
from shardkit.staging import StageProgress, shuffle, stage, stage_items
from shardkit.staging.spill import Spilled, SpillFile
from shardkit.staging.work import WorkFolder
from tests.support.disks import full_disk
from tests.support.stage_objects import DEFINITION, FOLDER, TO, manifest_of, orders_table, staged_items

COUNT = 400
ITEMS: list[dict[str, Any]] = [{"Date": f"2014-07-{n % 5}", "OrderId": f"A{n % 300:03}", "n": n} for n in range(COUNT)]
LAST = sorted({item["OrderId"] + item["Date"]: item["n"] for item in ITEMS}.values())


class Killed(BaseException):
    """Ends a stage as SIGKILL does: nothing is caught, closed or written."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections of 5 KB, of which there are 5, each a run; objects of 10 KB, of which there are 4."""
    sizes = partial(stage.StagePlan, section_bytes=5000, run_bytes=20_000, object_bytes=10_000)
    monkeypatch.setattr("shardkit.staging.staging.StagePlan", sizes)
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def orders(resource: Any, tmp_path: Path) -> ShardedTable:
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS), "utf-8")
    return orders_table(resource, RandomSuffix(3))


def run(orders: ShardedTable, s3: Any, tmp_path: Path, **options: Any) -> list[StageProgress]:
    seen: list[StageProgress] = []
    source = open_source(str(tmp_path / "orders.jsonl"), table=orders, format="jsonl")
    stage_items(source, TO, table=orders, s3=s3, **{"progress": seen.append, **options})
    return seen


def check(s3: Any, temporary: Path) -> None:
    assert sorted(int(item["n"]) for item in staged_items(s3)) == LAST
    assert manifest_of(s3).superseded == COUNT - len(LAST)
    assert list(temporary.iterdir()) == []


def uploads(s3: Any) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket="bucket").get("Contents", ())]


@pytest.mark.parametrize("calls", range(1, 12, 2))
def test_killed_at_any_step(
    orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Just before its journal says that a section is spilled, or an object is uploaded."""
    left = calls

    def killed(*_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Killed
        add(*_)

    add = WorkFolder._add  # noqa: SLF001 - the moment to die at
    with monkeypatch.context() as patched:
        patched.setattr(WorkFolder, "_add", killed)
        try:
            run(orders, s3, tmp_path)
        except Killed:
            assert FOLDER.manifest not in uploads(s3)
            assert len(list(temporary.iterdir())) == 1
        else:
            assert calls > 9
            return
    seen = run(orders, s3, tmp_path)
    check(s3, temporary)
    # What the journal had is not done again.
    read = sum(1 for one in seen if one.phase == "read")
    assert read == max(0, 5 - (calls - 1))
    assert sum(1 for one in seen if one.phase == "upload") == 4 - max(0, calls - 1 - 5)
    assert all(one.resumed for one in seen if one.phase == "read") == (calls > 1)


def test_killed_again_and_again(
    orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try adds one line to the journal."""
    tries, added = 1, 0

    def killed(*_: Any) -> None:
        nonlocal added
        added += 1
        if added > tries:
            raise Killed
        add(*_)

    add = WorkFolder._add  # noqa: SLF001 - the moment to die at
    with monkeypatch.context() as patched:
        patched.setattr(WorkFolder, "_add", killed)
        while True:
            try:
                run(orders, s3, tmp_path)
                break
            except Killed:
                tries += 1
                assert added == tries
                added = tries - 1
    assert tries == 5 + 4
    check(s3, temporary)


@pytest.mark.parametrize(
    "torn", ["spill cut", "spill missing", "spill changed", "journal cut", "journal garbage", "unfinished"]
)
def test_torn_files(
    orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, torn: str
) -> None:
    """After lost power, or on a bad disk: what is not whole is made again."""
    with monkeypatch.context() as patched:
        patched.setattr(shuffle, "read_slots", stopped)
        with pytest.raises(Killed):
            run(orders, s3, tmp_path)
    (folder,) = temporary.iterdir()
    spill, journal = folder / "00002.spill", folder / "stage.journal"
    if torn == "spill cut":
        os.truncate(spill, spill.stat().st_size - 1)
    elif torn == "spill missing":
        spill.unlink()
    elif torn == "spill changed":
        content = bytearray(spill.read_bytes())
        content[content.index(b"A2") + 1] ^= 1  # of a key
        spill.write_bytes(content)
    elif torn == "journal cut":
        os.truncate(journal, journal.stat().st_size - 7)
    elif torn == "journal garbage":
        with journal.open("ab") as file:
            file.write(b"\0" * 4096)
    else:
        (folder / "00002.4711").write_bytes(b"x")
    seen = run(orders, s3, tmp_path)
    check(s3, temporary)
    again = torn in {"spill cut", "spill missing", "spill changed", "journal cut"}
    assert sum(one.phase == "read" for one in seen) == again


def stopped(*_: Any) -> None:
    raise Killed


@contextmanager
def refusing(s3: Any, code: str, after: int, operation: str = "PutObject") -> Iterator[None]:
    """S3 refuses an operation after some calls."""
    calls = 0

    def refuse(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            if code == "network":
                raise EndpointConnectionError(endpoint_url="https://s3")
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, operation)

    s3.meta.events.register(f"before-call.s3.{operation}", refuse)
    try:
        yield
    finally:
        s3.meta.events.unregister(f"before-call.s3.{operation}", refuse)


@pytest.mark.parametrize(
    ("operation", "code", "after", "said"),
    [
        ("PutObject", "AccessDenied", 0, "cannot be written: .*AccessDenied"),
        ("PutObject", "SlowDown", 2, "cannot be written: .*SlowDown"),
        ("PutObject", "network", 1, "cannot be written: .*https://s3"),
        ("PutObject", "AccessDenied", 4, "cannot be written: .*AccessDenied"),  # the manifest
        ("ListObjectsV2", "AccessDenied", 0, "cannot be listed: .*AccessDenied"),
        ("ListObjectsV2", "AccessDenied", 1, "cannot be listed: .*AccessDenied"),
        ("GetObject", "AccessDenied", 0, "cannot be read: .*AccessDenied"),
    ],
)
def test_s3_refuses(
    orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, operation: str, code: str, after: int, said: str
) -> None:
    with refusing(s3, code, after, operation), pytest.raises(StagingError, match=rf"^s3://bucket/orders {said}"):
        run(orders, s3, tmp_path)
    assert FOLDER.manifest not in uploads(s3)
    seen = run(orders, s3, tmp_path)
    check(s3, temporary)
    if operation == "PutObject":
        assert sum(one.phase == "read" for one in seen) == 0
        assert sum(one.phase == "upload" for one in seen) == 4 - after


def test_only_the_manifest_is_left_to_write(orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path) -> None:
    with refusing(s3, "AccessDenied", 4), pytest.raises(StagingError, match="AccessDenied"):
        run(orders, s3, tmp_path)
    assert run(orders, s3, tmp_path, processes=2) == []  # no process has anything to do
    check(s3, temporary)


@pytest.mark.parametrize("room", [0, 3000, 60_000])
def test_a_full_disk(orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, room: int) -> None:
    with (
        full_disk(room),
        pytest.raises(ShardkitError, match=r"^work_dir: '.*' cannot be written .*too large.*make room"),
    ):
        run(orders, s3, tmp_path)
    assert uploads(s3) == []
    run(orders, s3, tmp_path)
    check(s3, temporary)


def test_another_folder_for_temporary_files(orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path) -> None:
    other = tmp_path / "large" / "disk"
    seen: list[list[Path]] = []
    run(orders, s3, tmp_path, work_dir=other, progress=lambda _: seen.append(list(temporary.iterdir())))
    check(s3, temporary)
    assert not any(seen)
    assert list(other.iterdir()) == []


def test_the_same_stage_twice_at_once(orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path) -> None:
    refused: list[str] = []

    def again(_: Any) -> None:
        if not refused:
            with pytest.raises(Exception, match="in use by another process") as it:
                run(orders, s3, tmp_path)
            refused.append(str(it.value))

    run(orders, s3, tmp_path, progress=again)
    assert refused[0].startswith("work_dir: ")
    check(s3, temporary)


def test_a_folder_of_another_user(
    orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(ValueError, match=r"^work_dir: '.*' belongs to another user"):
        run(orders, s3, tmp_path)


def test_a_source_that_changed_starts_anew(
    orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shuffle, "read_slots", stopped)
        with pytest.raises(Killed):
            run(orders, s3, tmp_path)
    with (tmp_path / "orders.jsonl").open("a") as file:
        file.write('{"Date": "2014-07-9", "OrderId": "B1", "n": 1000}\n')
    run(orders, s3, tmp_path)
    assert sorted(int(item["n"]) for item in staged_items(s3)) == [*LAST, 1000]


def test_a_table_whose_throughput_changed_goes_on(resource: Any, s3: Any, tmp_path: Path, temporary: Path) -> None:
    """As auto scaling changes it."""

    def with_units(units: int) -> ShardedTable:
        throughput = {"ReadCapacityUnits": units, "WriteCapacityUnits": units}
        definition = {**DEFINITION, "BillingMode": "PROVISIONED", "ProvisionedThroughput": throughput}
        return orders_table(resource, RandomSuffix(3), definition)

    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS), "utf-8")
    with refusing(s3, "AccessDenied", 2), pytest.raises(StagingError, match="AccessDenied"):
        run(with_units(5), s3, tmp_path)
    seen = run(with_units(500), s3, tmp_path)
    check(s3, temporary)
    assert {one.phase for one in seen} == {"upload"}
    assert manifest_of(s3).definition["ProvisionedThroughput"]["WriteCapacityUnits"] == 500


def test_objects_of_others_are_refused(orders: ShardedTable, s3: Any, tmp_path: Path, temporary: Path) -> None:
    s3.put_object(Bucket="bucket", Key=f"{FOLDER.data}other.json", Body=b"x")
    with pytest.raises(StagingError, match=r"^to: s3://bucket/orders/data/ holds 1 objects .*other.json"):
        run(orders, s3, tmp_path)
    s3.delete_object(Bucket="bucket", Key=f"{FOLDER.data}other.json")
    run(orders, s3, tmp_path)
    check(s3, temporary)


def test_objects_of_others_below_a_prefix_like_an_object(orders: ShardedTable, s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="run-00000/data/other.json.gz", Body=b"x")
    with pytest.raises(StagingError, match=r"holds 1 objects .*other.json"):
        stage_items(ITEMS, "s3://bucket/run-00000", table=orders, s3=s3)


def test_objects_that_change_meanwhile_are_found(orders: ShardedTable, s3: Any, tmp_path: Path) -> None:
    def change(progress: StageProgress) -> None:
        if progress.phase == "upload" and progress.done == progress.total:
            s3.delete_object(Bucket="bucket", Key=uploads(s3)[0])

    source = open_source(str(tmp_path / "orders.jsonl"), table=orders, format="jsonl")
    with pytest.raises(StagingError, match=r"is missing"):
        stage_items(source, TO, table=orders, s3=s3, progress=change, on_error="collect")
    assert FOLDER.manifest not in uploads(s3)


def test_a_generator_starts_anew(
    orders: ShardedTable, s3: Any, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells whether its items are the same."""
    with monkeypatch.context() as patched:
        patched.setattr(shuffle, "read_slots", stopped)
        with pytest.raises(Killed):
            stage_items(iter(ITEMS[:100]), TO, table=orders, s3=s3)
    stage_items(iter(ITEMS), TO, table=orders, s3=s3)
    check(s3, temporary)


def test_a_process_that_outlives_its_stage_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends a section after the next stage has begun it, and before that one has ended it."""
    path = tmp_path / "00000.spill"
    with SpillFile(path) as file:
        with monkeypatch.context() as patched:
            patched.setattr("os.getpid", lambda: 4711)
            with SpillFile(path):
                pass
        file.add({b"x" * 16: (b"line\n", 1)}, Spilled(0))
    assert path.stat().st_size == file.size
    assert [*tmp_path.glob("00000.*")] == [path]
