"""stage_items against moto's S3: what is in the objects, whatever the source, strategy and keys."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import pickle
from collections.abc import AsyncIterator, Iterable, Iterator
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    RangeSuffix,
    Resharding,
    ShardedTable,
    ShardMap,
    StageError,
    StagingError,
    Strategy,
    Unsharded,
    bulk_load,
    open_source,
)
from shardkit.runtime.tasks import Task, Tasks, Tell
from shardkit.staging import StageProgress, stage, stage_items
from shardkit.staging.manifest import S3Folder
from shardkit.staging.spill import Kept, Spilled, SpillFile, digest
from tests.support.series import a_series
from tests.support.stage_objects import DEFINITION, TO, manifest_of, orders_table, staged_items

STRATEGIES: list[Strategy] = [
    Unsharded(),
    RandomSuffix(10),
    CalculatedSuffix("OrderId", shards=10),
    RangeSuffix("OrderId", ["A01", "A02"]),
]


def some(count: int = 300, days: int = 7) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{n % days:02}", "OrderId": f"A{n:04}", "n": n, "note": "äöü"} for n in range(count)]


def key(item: Any) -> tuple[Any, ...]:
    return item["Date"], item["OrderId"]


def logical(orders: ShardedTable, s3: Any) -> list[dict[str, Any]]:
    return sorted((orders.logical_item(item) for item in staged_items(s3)), key=key)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_items_are_stored_as_bulk_load_stores_them(s3: Any, resource: Any, strategy: Strategy) -> None:
    resource.create_table(TableName="Orders", **DEFINITION)
    orders = ShardedTable(resource.Table("Orders"), strategy)
    report = stage_items(some(), TO, table=orders, s3=s3)
    assert (report.items, report.failed, report.superseded, report.objects) == (300, 0, 0, 1)
    assert report.manifest == "s3://bucket/orders/manifest.json"
    assert logical(orders, s3) == sorted(some(), key=key)
    bulk_load(orders, some())
    loaded = resource.Table("Orders").scan()["Items"]
    staged = staged_items(s3)
    if isinstance(strategy, RandomSuffix):  # their draws differ
        assert len({item["Date"].partition(".")[2] for item in staged}) == 10
    else:
        assert sorted(staged, key=key) == sorted(loaded, key=key)
    manifest = manifest_of(s3)
    assert Strategy.from_dict(manifest.strategy) == strategy
    assert manifest.definition == DEFINITION
    assert manifest.write_units == 300


def test_the_order_is_mixed(s3: Any, resource: Any) -> None:
    stage_items(sorted(some(), key=key), TO, table=orders_table(resource, Unsharded()), s3=s3)
    days = [item["Date"] for item in staged_items(s3)]
    assert sum(one == other for one, other in pairwise(days)) < 2 * 300 / 7


@pytest.mark.parametrize("source", [[], iter(())])
def test_no_items(s3: Any, resource: Any, temporary: Path, source: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^source: there are no items to stage"):
        stage_items(source, TO, table=orders_table(resource, Unsharded()), s3=s3)
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    assert list(temporary.iterdir()) == []


def test_large_items_fill_a_run_before_many_are_read(s3: Any, resource: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the bytes of a run, not by a number of items."""
    added: list[int] = []
    add = SpillFile.add

    def counted(file: SpillFile, kept: Kept, spilled: Spilled) -> None:
        added.append(len(kept))
        add(file, kept, spilled)

    monkeypatch.setattr(SpillFile, "add", counted)
    monkeypatch.setattr("shardkit.staging.staging.StagePlan", partial(stage.StagePlan, run_bytes=100_000))
    items = [{**item, "text": "x" * 30_000} for item in some(20)]
    stage_items(items, TO, table=orders_table(resource, Unsharded()), s3=s3)
    assert added == [4] * 5
    assert len(staged_items(s3)) == 20


def test_one_item(s3: Any, resource: Any, temporary: Path) -> None:
    report = stage_items(some(1), TO, table=orders_table(resource, RandomSuffix(3)), s3=s3)
    assert (report.items, report.objects) == (1, 1)
    assert list(temporary.iterdir()) == []


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections of 4 KB, runs of 8 KB and objects of 12 KB."""
    sizes = partial(stage.StagePlan, section_bytes=4000, run_bytes=8000, object_bytes=12_000)
    monkeypatch.setattr("shardkit.staging.staging.StagePlan", sizes)


def lines(items: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


REPEATED = [{**item, "n": n} for n, item in enumerate([*some(200), *some(100), *some(150, days=3), *some(90)])]
LAST = sorted({key(item): item for item in REPEATED}.values(), key=key)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("strategy", "processes"), [*((one, 2) for one in STRATEGIES), (RandomSuffix(3), None)])
def test_the_last_of_the_whole_source_wins(
    s3: Any, resource: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: Strategy, processes: int | None
) -> None:
    """Whatever the section, the run and the order in which processes finish them."""
    path = tmp_path / "orders.jsonl"
    path.write_text(lines(REPEATED), "utf-8")
    orders = orders_table(resource, strategy)
    if processes:
        monkeypatch.setattr("shardkit.staging.staging.Tasks", Backwards)
    report = stage_items(
        open_source(str(path), table=orders, format="jsonl"), TO, table=orders, s3=s3, processes=processes
    )
    assert logical(orders, s3) == LAST
    assert (report.items, report.superseded) == (len(LAST), len(REPEATED) - len(LAST))
    assert report.objects > 2
    assert manifest_of(s3).superseded == report.superseded


class Backwards(Tasks):
    """Runs tasks in this process, those at the end first; all that they need is sent as to another one."""

    ran = 0

    def run(self, tasks: Iterable[Task], tell: Tell) -> Iterator[Any]:
        for task in reversed(list(tasks)):
            Backwards.ran += 1
            function, arguments = Here(io.BytesIO(self.packed(task))).load()
            yield function(*arguments, tell)


class Here(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return pickle.loads(pid)()  # noqa: S301 - of this test


@pytest.mark.usefixtures("small")
def test_one_primary_key_is_half_of_the_items(s3: Any, resource: Any) -> None:
    definition = {
        "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "N"}],
    }
    items = [{"Id": Decimal("7.0") if n % 4 else 7, "n": n} if n % 2 else {"Id": n + 1000, "n": n} for n in range(400)]
    orders = orders_table(resource, Unsharded(), definition)
    report = stage_items(iter(items), TO, table=orders, s3=s3)
    found = {int(item["Id"]): int(item["n"]) for item in staged_items(s3)}
    assert found == {int(item["Id"]): item["n"] for item in items}  # 7 and 7.0 are one key
    assert (report.items, report.superseded) == (201, 199)


def test_a_partition_key_with_half_of_the_items_is_spread_over_the_objects(s3: Any, resource: Any, small: None) -> None:
    items = [{"Date": "hot" if n % 2 else f"d{n}", "OrderId": f"{n}"} for n in range(600)]
    stage_items(items, TO, table=orders_table(resource, Unsharded()), s3=s3)
    found = [item["Date"] for item in staged_items(s3)]
    parts = [found[start : start + 100].count("hot") for start in range(0, 600, 100)]
    assert min(parts) > 30


def test_binary_keys(s3: Any, resource: Any) -> None:
    definition = {
        **DEFINITION,
        "AttributeDefinitions": [
            {"AttributeName": "Date", "AttributeType": "B"},
            {"AttributeName": "OrderId", "AttributeType": "B"},
        ],
    }
    items = [{"Date": bytes([n % 3, 0]), "OrderId": bytes([255, n]), "raw": bytes([n]), "s": {b"x"}} for n in range(50)]
    orders = orders_table(resource, CalculatedSuffix("OrderId", shards=4), definition)
    stage_items([*items, *items], TO, table=orders, s3=s3)
    found = sorted(
        (orders.logical_item(item) for item in staged_items(s3)), key=lambda item: bytes(item["OrderId"].value)
    )
    assert [item["OrderId"].value for item in found] == [item["OrderId"] for item in items]
    assert [item["raw"].value for item in found] == [item["raw"] for item in items]


def test_keys_that_look_alike_when_joined() -> None:
    keys: list[dict[str, Any]] = [
        {"p": {"S": "a"}, "s": {"S": "bc"}},
        {"p": {"S": "ab"}, "s": {"S": "c"}},
        {"p": {"N": "1"}, "s": {"S": "x"}},
        {"p": {"N": "10"}, "s": {"S": "x"}},
        {"p": {"B": b"\x80"}, "s": {"S": "x"}},
        {"p": {"B": b"\x81"}, "s": {"S": "x"}},
    ]
    assert len(set(map(digest, keys))) == len(keys)
    assert digest({"p": {"N": "1.0"}, "s": {"S": "x"}}) == digest(keys[2])
    assert digest({"p": {"B": "gA=="}, "s": {"S": "x"}}) == digest(keys[4])


def test_sharded_indexes(s3: Any, resource: Any) -> None:
    """An item has the attributes that bulk_load would store for the index."""
    definition = {
        **DEFINITION,
        "AttributeDefinitions": [
            *DEFINITION["AttributeDefinitions"],
            {"AttributeName": "status.s", "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by-status",
                "KeySchema": [
                    {"AttributeName": "status.s", "KeyType": "HASH"},
                    {"AttributeName": "OrderId", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    }
    resource.create_table(TableName="Orders", **definition)
    index = CalculatedSuffix("OrderId", shards=3, source="status")
    orders = ShardedTable(resource.Table("Orders"), Unsharded(), indexes={"by-status": index})
    items = [{**item, "status": "open"} for item in some(40)]
    stage_items(items, TO, table=orders, s3=s3)
    bulk_load(orders, items)
    stored = resource.Table("Orders").scan()["Items"]
    assert {item["status.s"] for item in stored} == {"open.1", "open.2", "open.3"}
    assert sorted(staged_items(s3), key=key) == sorted(stored, key=key)
    manifest = manifest_of(s3)
    assert list(manifest.indexes) == ["by-status"]
    assert manifest.definition == definition
    bad = [{**items[0], "status": 7}, *items[1:]]
    with pytest.raises(StagingError, match=r"^1 of 40 items cannot be staged.*status"):
        stage_items(bad, "s3://bucket/bad", table=orders, s3=s3)


def csv(items: list[dict[str, Any]]) -> str:
    return "Date,OrderId,n,note\n" + "".join(
        f'{item["Date"]},{item["OrderId"]},{item["n"]},"{item["note"]}"\n' for item in items
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["csv", "folder", "gz", "s3", "parquet", "frame", "pandas-like", "generator"])
def test_sources(s3: Any, resource: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("shardkit.staging.staging.Tasks", Backwards)
    orders = orders_table(resource, RandomSuffix(5))
    folder = tmp_path / "files"
    folder.mkdir()
    items: Any = some()
    if kind == "generator":
        source: Any = (item for item in items)
    elif kind in {"parquet", "frame", "pandas-like"}:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.Table.from_pylist(items)
        if kind == "parquet":
            importlib.import_module("pyarrow.parquet").write_table(table, folder / "a.parquet", row_group_size=50)
        source = open_source(str(folder), table=orders) if kind == "parquet" else table
        source = open_source(table, table=orders) if kind == "frame" else source
    else:
        if kind in {"csv", "s3"}:
            (folder / "a.csv").write_text(csv(items), "utf-8")
        elif kind == "gz":
            (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(items).encode()))
        else:
            (folder / "a.jsonl").write_text(lines(items[:100]), "utf-8")
            (folder / "b.jsonl").write_text(lines(items[100:]), "utf-8")
        if kind == "s3":
            s3.put_object(Bucket="bucket", Key="source/a.csv", Body=csv(items).encode())
        source = open_source("s3://bucket/source/" if kind == "s3" else str(folder), table=orders, s3=s3)
    Backwards.ran = 0
    report = stage_items(source, TO, table=orders, s3=s3, processes=2)
    assert logical(orders, s3) == sorted(items, key=key)
    assert report.objects > 2
    # Files are read by the processes, in several sections unless they are compressed.
    assert (Backwards.ran - report.objects > 1) == (kind in {"csv", "s3", "folder", "parquet"})


def test_a_repeated_stage_is_the_same(s3: Any, resource: Any, tmp_path: Path) -> None:
    """With random suffixes too, in another process and to another prefix."""
    path = tmp_path / "orders.jsonl"
    path.write_text(lines(some()), "utf-8")
    orders = orders_table(resource, RandomSuffix(10))
    for to in (TO, "s3://bucket/again"):
        stage_items(open_source(str(path), table=orders, format="jsonl"), to, table=orders, s3=s3)
    again = S3Folder("bucket", "again")
    assert staged_items(s3) == staged_items(s3, again)
    assert manifest_of(s3).load_id == manifest_of(s3, again).load_id


@pytest.mark.parametrize(
    ("strategy", "error", "said"),
    [
        (Resharding(Unsharded(), CalculatedSuffix("OrderId", 3), stage="switch"), StageError, "stage_items"),
        (Resharding(RandomSuffix(2), RandomSuffix(3), stage="guard"), ConfigurationError, "stage 'guard'"),
        (ShardMap(), ConfigurationError, "ShardMap"),
    ],
    ids=["moving", "growing", "map"],
)
def test_tables_that_cannot_be_staged_for(
    s3: Any, resource: Any, strategy: Strategy, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        stage_items(some(), TO, table=orders_table(resource, strategy), s3=s3)


def test_a_time_series_is_refused(s3: Any, resource: Any) -> None:
    series = a_series(resource)
    with pytest.raises(ConfigurationError, match="must be one table"):
        stage_items(some(), TO, table=series, s3=s3)


def test_a_stage_of_a_resharding_that_has_one_strategy(s3: Any, resource: Any) -> None:
    strategy = Resharding(Unsharded(), CalculatedSuffix("OrderId", 3), stage="new")
    stage_items(some(), TO, table=orders_table(resource, strategy), s3=s3)
    assert Strategy.from_dict(manifest_of(s3).strategy) == CalculatedSuffix("OrderId", 3)


def test_bad_items(s3: Any, resource: Any) -> None:
    orders = orders_table(resource, RandomSuffix(3))
    deep: Any = "x"
    for _ in range(33):
        deep = {"d": deep}
    bad: list[Any] = [
        {"Date": "2014-07-09"},
        {"Date": "2014-07-09", "OrderId": "x" * 1025},
        {"Date": "x" * 2047, "OrderId": "x"},  # with its suffix, 2,049 bytes
        {"Date": "2014-07-09", "OrderId": "A", "text": "x" * 410_000},
        {"Date": "2014-07-09", "OrderId": "A", "total": 1.5},
        {"Date": "2014-07-09", "OrderId": "A", "deep": deep},
        {"Date": "2014-07-09", "OrderId": "A", "empty": [set()]},
        "no item",
    ]
    with pytest.raises(
        StagingError, match=r"^8 of 308 items cannot be staged, so nothing was: 100: OrderId: miss"
    ) as it:
        stage_items([*some()[:100], *bad, *some()[100:]], TO, table=orders, s3=s3)
    failures = it.value.report.failures
    assert [one.place for one in failures] == list(range(100, 108))
    assert [one.code for one in failures[:6]] == [*["InvalidKeyError"] * 4, *["InvalidValueError"] * 2]
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")
    report = stage_items([*bad, *some()], TO, table=orders, s3=s3, on_error="collect")
    assert (report.items, report.failed) == (300, 8)
    with pytest.raises(StagingError, match=r"^8 of 8 items cannot be staged"):
        stage_items(bad, "s3://bucket/all-bad", table=orders, s3=s3, on_error="collect")


def test_progress(s3: Any, resource: Any, tmp_path: Path, small: None) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text(lines(some()), "utf-8")
    orders = orders_table(resource, Unsharded())
    seen: list[StageProgress] = []
    stage_items(open_source(str(path), table=orders, format="jsonl"), TO, table=orders, s3=s3, progress=seen.append)
    read, upload = ([one for one in seen if one.phase == phase] for phase in ("read", "upload"))
    assert (read[-1].done, read[-1].total, read[-1].items) == (path.stat().st_size, path.stat().st_size, 300)
    assert (upload[-1].done, upload[-1].total, upload[-1].items) == (300, 300, 300)
    assert [one.done for one in read] == sorted(one.done for one in read)


async def numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"processes": 0}, "^processes: "),
        ({"compression": "rot13"}, "^compression: "),
        ({"on_error": "ignore"}, "^on_error: "),
        ({"progress": 7}, "^progress: "),
        ({"to": "bucket"}, r"^to: must be s3://bucket/prefix"),
        ({"source": "orders.csv"}, r"^source: must be an iterable .*open_source"),
        ({"source": numbers()}, r"^source: async_generator is an async iterable"),
        ({"work_dir": "/dev/null/x"}, "^work_dir: .* cannot be made"),
    ],
)
def test_wrong_arguments(s3: Any, resource: Any, options: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"source": some(), "to": TO, "table": orders_table(resource, Unsharded()), "s3": s3}
    with pytest.raises(ConfigurationError, match=said):
        stage_items(**{**given, **options})
