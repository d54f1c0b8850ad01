"""Writes in parts over moto: what a task does, what a repeated one does, and what the driver makes of all of them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from decimal import Decimal
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import boto3
import pyarrow as pa
import pytest

from shardkit import (
    BulkLoadError,
    BulkReport,
    BulkResult,
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    Resharding,
    ShardkitError,
    ShardMap,
    Unsharded,
)
from shardkit.capacity import SharedBudget
from shardkit.parts import PartConfig, PartReport, merge, write_part
from shardkit.runtime.runner import on_clock
from shardkit.testing.clock import VirtualClock
from tests.support.fakes import Fault, Faults, once
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

BY_ID = CalculatedSuffix("OrderId", shards=4)
Made = Callable[..., PartConfig]


@pytest.fixture
def client(resource: DynamoDBServiceResource) -> Any:
    make_table(resource, ("Date", "S"), ("OrderId", "N"), name="Orders")
    return once(resource).meta.client


@pytest.fixture
def config(client: Any) -> Made:
    def made(**options: Any) -> PartConfig:
        return PartConfig(**{"table": "Orders", "strategy": BY_ID, "connect": lambda: client, **options}).prepared()

    return made


def rows(*numbers: int, price: float = 1.5) -> Iterator[Any]:
    """Orders in batches of ten; the last digit of a number is its day."""
    schema = pa.schema([("Date", pa.string()), ("OrderId", pa.int64()), ("Price", pa.float64())])
    for start in range(0, len(numbers), 10):
        orders = [{"Date": f"D{one % 10}", "OrderId": one, "Price": price} for one in numbers[start : start + 10]]
        yield pa.RecordBatch.from_pylist(orders, schema)


def stored(client: Any) -> dict[tuple[str, int], float]:
    items = client.scan(TableName="Orders")["Items"]
    return {(item["Date"], int(item["OrderId"])): float(item["Price"]) for item in items}


def test_parts_write_their_rows_and_add_up(config: Made, client: Any) -> None:
    ready = config(parts=3)
    reports = [write_part(rows(*range(part * 30, part * 30 + 30)), ready, part=part) for part in (2, 0, 1)]
    report = merge(PartReport.from_json(one.to_json()) for one in reports)
    report.raise_failures()
    assert (report.items, report.written, report.failed, report.load_id) == (90, 90, 0, ready.load_id)
    assert [part.part for part in report.parts] == [0, 1, 2]
    assert report.requests == 6
    assert sum(one.write_units for one in report.per_shard.values()) == pytest.approx(report.write_units)
    assert sum(one.items for one in report.per_shard.values()) == 90
    assert sorted(number for _, number in stored(client)) == [*range(90)]
    assert (report.at_once, "3 parts, at most 1 at once" in str(report)) == (1, True)
    assert report.seconds == pytest.approx(report.parts[1].ended - report.parts[2].started)


@pytest.mark.parametrize("place", [0, 20, 37])
def test_a_repeated_task_makes_no_copies(config: Made, client: Any, place: int) -> None:
    """Random suffixes are drawn by key: also if the rows come in another order, and the first attempt was killed."""
    ready = config(strategy=RandomSuffix(20), load_id="monday")

    def killed() -> Iterator[Any]:
        yield from rows(*range(40))
        raise OSError("the other end is closed")

    with pytest.raises(OSError, match="other end"):
        write_part(killed(), ready, part=0)
    before = stored(client)
    assert len(before) == 40
    assert len({key.partition(".")[2] for key, _ in before}) > 10
    again = write_part(rows(*range(place, 40), *range(place), price=2.5), ready, part=0, attempt=1)
    assert (again.attempt, again.report.written) == (1, 40)
    assert stored(client) == dict.fromkeys(before, 2.5)


def test_the_last_write_of_a_key_wins(config: Made, client: Any) -> None:
    batches = (batch for price in (1.0, 2.0, 3.0) for batch in rows(*range(20), price=price))
    report = write_part(batches, config(), part=0)
    assert (report.report.written, report.report.duplicates) == (20, 40)
    assert {*stored(client).values()} == {3.0}


def test_no_rows_need_no_client(config: Made) -> None:
    ready = replace(config(), connect=None)  # whose default it does not have either
    for batches in (iter(()), (batch.slice(0, 0) for batch in rows(1))):
        report = write_part(batches, ready, part=7)
        assert (report.part, report.report.items, report.error) == (7, 0, None)
    assert (merge([]).items, merge([]).parts, merge([]).seconds) == (0, (), 0.0)
    merge([]).raise_failures()


def bad(*numbers: int) -> Iterator[Any]:
    return rows(*numbers, price=float("nan"))


def test_a_failed_item_does_not_fail_its_task(config: Made, client: Any, tmp_path: Path) -> None:
    """The report has the first hundred; the dead letters, which shardkit load reads, have all."""
    folder = tmp_path / "letters"
    ready = config(dead_letters=folder)
    report = write_part(chain(bad(*range(100, 250)), rows(*range(40))), ready, part=3, attempt=2)
    assert (report.report.written, report.report.failed, len(report.report.failures), report.error) == (
        40,
        150,
        100,
        None,
    )
    (file,) = folder.iterdir()
    assert file.name == "part-00003-attempt-2.jsonl"
    assert report.dead_letters == str(file)
    letters = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert len(letters) == 150
    assert letters[10]["place"] == "part 3, row 11"
    assert letters[0]["load"] == ready.load_id
    merged = merge([PartReport.from_json(report.to_json())])
    assert str(merged.failures[99].error) == letters[99]["reason"]
    merged.raise_failures(collect=True)
    with pytest.raises(
        BulkLoadError, match=r"150 of 190 items were not written; .* part 3, row 1: .*NaN.*dead letters have"
    ) as raised:
        merged.raise_failures()
    assert raised.value.report is merged
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - what was just made here
    assert again.failed[0].place == "part 3, row 1"


def test_items_that_fail_come_back_from_json(config: Made, client: Any) -> None:
    report = write_part(chain(rows(1), rows(2, price=1e200)), config(), part=0)
    again = PartReport.from_json(report.to_json())
    (failure,) = again.report.failures
    assert (failure.place, failure.shard) == ("part 0, row 2", report.report.failures[0].shard)
    assert again.report.per_shard == report.report.per_shard
    assert {**vars_of(again), "report": None} == {**vars_of(report), "report": None}


def vars_of(report: PartReport) -> dict[str, Any]:
    return {one.name: getattr(report, one.name) for one in fields(report)}


def test_dead_letters_and_checkpoints_in_s3(config: Made, resource: DynamoDBServiceResource) -> None:
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="orders")

    def ready() -> PartConfig:
        return config(parts=2, checkpoint="s3://orders/done/", dead_letters="s3://orders/letters")

    first = write_part(chain(bad(5), rows(1)), ready(), part=1)
    assert first.dead_letters == "s3://orders/letters/part-00001-attempt-0.jsonl"
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket="orders")["Contents"]]
    assert keys == ["done/part-00001.json", "done/write.json", "letters/part-00001-attempt-0.jsonl"]
    again = write_part(rows(1), ready(), part=1)
    assert again == replace(first, resumed=True, report=again.report)
    for where in ("s3://nowhere/letters", "s3://"):
        with pytest.raises(ConfigurationError, match=rf"checkpoint: .*{where}"):
            config(checkpoint=where)


def test_a_checkpoint_that_is_lost_stops_the_part(config: Made, client: Any, resource: DynamoDBServiceResource) -> None:
    """Before it wrote anything, or, as its items are written, at its end."""
    s3 = boto3.client("s3", region_name="us-east-1")

    def lose() -> Any:
        s3.delete_object(Bucket="orders", Key="done/write.json")
        s3.delete_bucket(Bucket="orders")
        return client

    for connect, written in [(lose, 20), (None, 0)]:
        s3.create_bucket(Bucket="orders")
        ready = config(checkpoint="s3://orders/done")
        if connect is None:
            lose()
        report = write_part(rows(*range(20)), replace(ready, connect=connect or ready.connect), part=0)
        assert str(report.error).startswith("checkpoint: s3://orders/done/part-00000.json cannot be ")
        assert report.report.written == written
        assert (merge([report]).seconds > 0, merge([report]).at_once) == (True, 1)


def test_a_damaged_report_in_a_checkpoint_stops_the_part(config: Made, tmp_path: Path) -> None:
    ready = config(checkpoint=tmp_path)
    (tmp_path / "part-00000.json").write_text('{"part": 0')
    report = write_part(rows(1), ready, part=0)
    assert report.report.written == 0
    assert str(report.error).startswith(f"checkpoint: {tmp_path}/part-00000.json is damaged (")
    assert (merge([report]).seconds > 0, merge([report]).at_once) == (True, 1)


def test_a_changed_byte_in_a_checkpoint_stops_the_write(config: Made, tmp_path: Path) -> None:
    """Another load_id would draw other shards for the items that are there; another count hides items that failed."""
    ready = config(checkpoint=tmp_path)
    write_part(rows(1), ready, part=0)
    header, report = tmp_path / "write.json", tmp_path / "part-00000.json"
    assert ready.load_id is not None
    header.write_bytes(header.read_bytes().replace(ready.load_id.encode(), ready.load_id[:-1].encode() + b"x"))
    with pytest.raises(ConfigurationError, match=r"write.json that is not a write's \(.*checksum"):
        config(checkpoint=tmp_path)
    report.write_bytes(report.read_bytes().replace(b'"failed":0', b'"failed":1'))
    assert "is damaged (its checksum" in str(write_part(rows(1), ready, part=0).error)


def test_attempts_with_one_process_id_do_not_share_a_file(config: Made, client: Any, tmp_path: Path) -> None:
    """As in two containers that share a folder: the second attempt is done while the first one writes its report."""
    ready = config(checkpoint=tmp_path)
    replaced = Path.replace

    def slowly(path: Path, target: Path) -> Path:
        with patch.object(Path, "replace", replaced):
            assert write_part(rows(1), ready, part=0, attempt=1).error is None
        return replaced(path, target)

    with patch.object(Path, "replace", slowly):
        assert write_part(rows(1), ready, part=0).error is None
    assert write_part(rows(1), ready, part=0).attempt == 0
    assert {one.name for one in tmp_path.iterdir()} == {"write.json", "part-00000.json"}


def test_letters_that_cannot_be_kept_stop_the_part(config: Made, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = write_part(bad(1), config(dead_letters=tmp_path / "file", checkpoint=tmp_path / "done"), part=0)
    assert "dead_letters: " in str(report.error)
    assert {one.name for one in (tmp_path / "done").iterdir()} == {"write.json"}


def test_a_checkpoint_skips_parts_that_are_done(config: Made, client: Any, tmp_path: Path) -> None:
    def ready(**options: Any) -> PartConfig:
        return config(parts=2, strategy=RandomSuffix(9), checkpoint=tmp_path, **options)

    before = ready(load_id="monday")
    done = write_part(rows(*range(20)), before, part=0)
    after = ready()
    assert after.load_id == "monday"
    skipped = write_part(iter([None]), after, part=0, attempt=7)  # reading it would raise
    assert skipped == replace(done, resumed=True, report=skipped.report)
    other = write_part(rows(*range(20, 50)), after, part=1)
    report = merge([skipped, other])
    assert (report.items, report.written, report.resumed, len(stored(client))) == (30, 30, 20, 50)
    assert (report.at_once, report.requests) == (1, 2)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"parts": 3}, "parts was 2, is 3"),
        ({"strategy": Unsharded()}, "strategy was .*CalculatedSuffix.*Unsharded"),
        ({"load_id": "tuesday"}, "load_id was 'monday', is 'tuesday'"),
        ({"table": "Other"}, "table was 'Orders', is 'Other'; keys was"),
        ({"divided_by": "hash of Date"}, "divided_by was None, is 'hash of Date'"),
    ],
)
def test_a_checkpoint_of_another_write(
    config: Made, resource: DynamoDBServiceResource, tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    make_table(resource, ("Id", "S"), name="Other")
    given = {"parts": 2, "load_id": "monday", "checkpoint": tmp_path}
    config(**given)
    with pytest.raises(ConfigurationError, match=f"is of another write: {problem}"):
        config(**{**given, **changed})
    for content in ("{}", "[]", "no json", '{"load_id": 5}'):
        (tmp_path / "write.json").write_text(content)
        with pytest.raises(ConfigurationError, match="is not a write's"):
            config(**given)


def test_a_part_with_failed_items_is_repeated_if_nothing_keeps_them(config: Made, tmp_path: Path) -> None:
    ready = config(checkpoint=tmp_path)
    write_part(chain(bad(5), rows(1)), ready, part=0)
    again = write_part(rows(5, 1), ready, part=0)
    assert (again.resumed, again.report.written) == (False, 2)


@pytest.mark.parametrize(("fault", "reason"), [("denied", "AccessDenied"), ("lost", "Connection was closed")])
def test_a_stop_is_reported_by_the_part(config: Made, client: Any, fault: Fault, reason: str) -> None:
    ready = config(parts=2)
    good = write_part(rows(*range(30)), ready, part=0)
    Faults(client, repeat(fault))
    with on_clock(client, VirtualClock()):
        stopped = write_part(rows(*range(30, 200)), ready, part=1)
    assert (stopped.report.written, stopped.error is None) == (0, False)
    merged = merge(PartReport.from_json(one.to_json()) for one in (good, stopped))
    with pytest.raises(BulkLoadError, match=rf"1 of 2 parts stopped; the first, part 1 on .*{reason}.*; 30 of the"):
        merged.raise_failures(collect=True)


def test_a_part_whose_structs_have_a_name_twice_writes_nothing(config: Made) -> None:
    pair = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    batch = pa.RecordBatch.from_arrays([pa.array(["d"]), pa.array([1]), pair], names=["Date", "OrderId", "Value"])
    report = write_part([batch], config(), part=0)
    assert (str(report.error)[:42], report.report.items) == ("columns: a batch has 'Value.a' twice, as a", 0)


def test_a_task_without_access_reads_nothing(config: Made, client: Any, resource: DynamoDBServiceResource) -> None:
    """Wrong credentials, or those of another account or region: its own DescribeTable tells."""
    ready = config()
    read = []

    def batches() -> Iterator[Any]:
        for batch in rows(*range(30)):
            read.append(batch)
            yield batch

    elsewhere = boto3.resource("dynamodb", region_name="eu-west-1")
    make_table(elsewhere, ("Date", "S"), ("OrderId", "N"), name="Orders")
    for connect, problem in [
        (lambda: elsewhere, "reaches another table"),
        (lambda: boto3.resource("dynamodb", region_name="eu-west-2"), "ResourceNotFound"),
        (lambda: 5, "connect: must return a boto3 client, got 5"),
    ]:
        report = write_part(batches(), replace(ready, connect=connect), part=0)
        assert problem in str(report.error)
    assert len(read) == 3  # the first batch of each
    assert stored(client) == {}


def test_each_part_has_its_share_of_the_rate(config: Made, client: Any) -> None:
    ready = config(parts=20, write_units=20)
    with on_clock(client, VirtualClock()):
        report = write_part(rows(*range(200)), ready, part=0)
        unlimited = write_part(rows(*range(200)), config(), part=0)
    assert (report.limit, unlimited.limit) == (1, None)
    assert report.report.seconds > 5 > unlimited.report.seconds


class Joined(SharedBudget):
    """A budget that knows who joins and leaves, and gives all that is asked for."""

    whole, rate, error, may_change_in = 100.0, 100.0, None, 3.0

    def over(self, client: Any) -> SharedBudget:
        self.events = [client]
        return self

    def close(self) -> None:
        self.events.append("left")

    def shared_rate(self, side: str, option: str) -> Any:
        return self

    def ready(self, now: float) -> float:
        return now

    def take(self, units: float, now: float) -> None:
        self.events.append("took")

    def check(self) -> None:
        pass


def test_a_part_joins_a_shared_budget_through_its_own_client(config: Made, resource: Any, client: Any) -> None:
    budgets = make_table(resource, ("Name", "S"), name="Budgets")
    budget = Joined(budgets, "Orders", write_units=100)
    report = write_part(rows(*range(100)), config(write_units=budget), part=5)
    assert (report.report.written, report.limit) == (100, None)
    assert (budget.events[0], budget.events[-1], "took" in budget.events) == (client, "left", True)
    with pytest.raises(ConfigurationError, match="has no write_units"):
        config(write_units=SharedBudget(budgets, "Orders", read_units=100))


def test_a_percentage_of_what_is_unknown(config: Made, client: Any) -> None:
    def hide(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Table"] = {name: value for name, value in parsed["Table"].items() if "hroughput" not in name}

    client.meta.events.register("after-call.dynamodb.DescribeTable", hide)
    with pytest.raises(ConfigurationError, match="50% of the throughput of table 'Orders' is unknown"):
        config(write_units="50%", parts=1)


@pytest.mark.parametrize(("indexed", "rate"), [(None, 50.0), (40, 20.0), (400, 50.0)])
def test_a_percentage_is_of_the_throughput_of_the_table_and_its_indexes(
    resource: DynamoDBServiceResource, indexed: int | None, rate: float
) -> None:
    throughput: Any = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 100}
    keys = [{"AttributeName": "Id", "KeyType": "HASH"}]
    index = {"IndexName": "all", "KeySchema": keys, "Projection": {"ProjectionType": "ALL"}}
    given = {**index, "ProvisionedThroughput": {**throughput, "WriteCapacityUnits": indexed}}
    resource.meta.client.create_table(
        TableName="Provisioned",
        KeySchema=keys,  # type: ignore[arg-type]
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        ProvisionedThroughput=throughput,
        **({} if indexed is None else {"GlobalSecondaryIndexes": [given]}),  # type: ignore[arg-type]
    )
    made = PartConfig(
        table="Provisioned", strategy=Unsharded(), parts=2, write_units="50%", connect=lambda: resource
    ).prepared()
    assert made.write_units == rate


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": object()}, "table: must be the table's name"),
        ({"table": "Missing"}, "ResourceNotFound"),
        ({"table": "Numbered"}, "partition key 'Id'.*is a number"),
        ({"strategy": 5}, "strategy: must be RandomSuffix"),
        ({"strategy": ShardMap()}, "strategy: a ShardMap is not supported"),
        ({"strategy": Resharding(Unsharded(), BY_ID, stage="move")}, "not possible in stage 'move'"),
        ({"strategy": CalculatedSuffix("Date", shards=2)}, "by: 'Date' is the partition key"),
        ({"parts": 0}, "parts: must be"),
        ({"parts": True}, "parts: must be"),
        ({"load_id": ""}, "load_id: must be a text"),
        ({"load_id": 7}, "load_id: must be a text"),
        ({"workers": 0}, "workers: must be"),
        ({"window": 0}, "window: must be"),
        ({"write_units": 100}, "parts: must be given with write_units=100"),
        ({"write_units": 0, "parts": 1}, "write_units: must be a number"),
        ({"connect": 5}, "connect: must be a function"),
        ({"connect": lambda: 5}, "connect: must return a boto3 client"),
        ({"transport": "quick"}, "transport: must be"),
        ({"dead_letters": ""}, "dead_letters: must be"),
        ({"dead_letters": "s3://"}, "dead_letters: must be s3://bucket/prefix"),
        ({"checkpoint": 5}, "checkpoint: must be"),
        ({"dead_letters": "letters-\udcff"}, "dead_letters: must be a path in UTF-8"),
        ({"dead_letters": "half-\ud800"}, "dead_letters: must be a path in UTF-8"),
        ({"indexes": {"by-total": BY_ID}}, "indexes: 'by-total'.*known: "),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    config: Made, resource: DynamoDBServiceResource, options: dict[str, Any], problem: str
) -> None:
    make_table(resource, ("Id", "N"), name="Numbered")
    with pytest.raises(ShardkitError, match=problem):
        config(**options)


def test_a_part_is_one_of_those_that_were_planned(config: Made, client: Any) -> None:
    with pytest.raises(ConfigurationError, match="config: is not prepared"):
        write_part(rows(1), PartConfig(table="Orders", strategy=BY_ID, load_id="monday"), part=0)
    for number in (-1, 2):
        with pytest.raises(ConfigurationError, match=f"part: must be from 0 to 1, .* got {number}"):
            write_part(rows(1), config(parts=2), part=number)
    assert stored(client) == {}


def test_reports_of_several_writes_are_not_merged() -> None:
    one = PartReport(load_id="monday", part=0)
    with pytest.raises(ConfigurationError, match=r"one write, got .*'monday', 'tuesday'"):
        merge([one, PartReport(load_id="tuesday", part=1)])
    with pytest.raises(ConfigurationError, match="several of part 0"):
        merge([one, one])
    for text in ("", "[]", "{}", '{"report":{},"error":null}'):
        with pytest.raises(ConfigurationError, match="text: is not the report of a part"):
            PartReport.from_json(text)


@pytest.mark.parametrize(("starts", "at_once", "advised"), [((0, 0, 0, 0), 4, False), ((0, 0, 10, 10), 2, True)])
def test_parts_that_wait_for_one_another_waste_the_rate(starts: tuple[int, ...], at_once: int, advised: bool) -> None:
    parts = [
        PartReport(load_id="x", part=number, parts=4, started=start, ended=start + 10, limit=100.0)
        for number, start in enumerate(starts)
    ]
    report = merge(parts)
    assert (report.at_once, report.seconds) == (at_once, max(starts) + 10)
    assert [text.partition(",")[0] for text in report.advice] == ["at most 2 of the 4 parts ran at once"] * advised
    assert merge([replace(one, limit=None) for one in parts]).advice == ()


def test_what_parts_advise_alike_is_said_once() -> None:
    """Whatever keys and counts each of them names."""
    said = ["keys were throttled, 'a\\'b', 5 most: spread them", "keys were throttled, 'c', b'd' most: spread them"]
    said += ["keys were throttled, 7, 8 most: spread them", "raise the units"]
    parts = [
        PartReport(load_id="x", part=number, report=BulkReport(advice=(text,))) for number, text in enumerate(said)
    ]
    assert merge(parts).advice == (f"{said[0]} (and so in 3 of 4 parts)", "raise the units")


def test_reports_of_many_large_failures_stay_small(config: Made) -> None:
    failures = tuple(
        BulkResult({"Date": "D", "Note": "x" * 300_000}, number, None, ok=False, error=ShardkitError("too large"))
        for number in range(50)
    )
    hot = {f"U{number}": 1 for number in range(1000)}
    report = PartReport(load_id="x", part=0, report=BulkReport(failed=50, failures=failures, hot_keys=hot))
    text = report.to_json()
    assert len(text) < 1_100_000
    again = PartReport.from_json(text).report
    assert ([one.place for one in again.failures], again.failed, len(again.hot_keys)) == (["0", "1", "2"], 50, 100)


def test_what_single_parts_advise_is_said_once() -> None:
    report = BulkReport(throttles=3, hot_keys={"U1": 2, b"\x00": 1, Decimal(5): 4}, advice=("raise the units",))
    parts = [PartReport(load_id="x", part=number, report=report) for number in range(3)]
    merged = merge(PartReport.from_json(one.to_json()) for one in parts)
    assert (merged.advice, merged.throttles) == (("raise the units (and so in 3 of 3 parts)",), 9)
    assert merged.hot_keys == {Decimal(5): 12, "U1": 6, b"\x00": 3}
