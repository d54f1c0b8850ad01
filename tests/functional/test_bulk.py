"""bulk_load and streaming_bulk over moto, with faults on a real client."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key
from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError

from shardkit import (
    BulkLoadError,
    BulkReport,
    CalculatedSuffix,
    ConfigurationError,
    InvalidKeyError,
    RandomSuffix,
    ShardedTable,
    Unsharded,
    bulk_load,
    streaming_bulk,
)
from shardkit.bulk.load_machine import STALLED_SECONDS
from shardkit.bulk.pacing import TablePace
from tests.support.fakes import Fault, Faults, once, timeless
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

DAY = "2014-07-09"


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    """Orders by day, through a client that tries each request once."""
    return once(resource).Table(make_table(resource, ("Date", "S"), ("OrderId", "S")).name)


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=4))


def some(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"Date": DAY, "OrderId": f"A{number:03}", "n": number} for number in range(start, start + count)]


def stored(table: Table) -> dict[tuple[Any, Any], Any]:
    return {(item["Date"], item["OrderId"]): item for item in table.scan()["Items"]}


def test_a_sharded_table(orders: ShardedTable, table: Table) -> None:
    """Each item is where a read looks for it, and the report's numbers agree with each other."""
    report = bulk_load(orders, some(60), workers=2)
    assert [item["n"] for item in orders.query_items(KeyConditionExpression=Key("Date").eq(DAY))] == list(range(60))
    assert {date for date, _ in stored(table)} == {f"{DAY}.{shard}" for shard in range(1, 5)}
    assert (report.items, report.written, report.failed, report.failures) == (60, 60, 0, ())
    assert (report.requests, report.retried, report.throttles) == (3, 0, 0)
    assert report.per_shard.keys() == {1, 2, 3, 4}
    assert sum(tally.items for tally in report.per_shard.values()) == 60
    assert sum(tally.write_units for tally in report.per_shard.values()) == pytest.approx(report.write_units)
    assert report.write_units > 0
    assert report.seconds > 0


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_a_frame(orders: ShardedTable, library: str) -> None:
    """Given as it is: an Arrow table cannot be iterated over by rows."""
    module = pytest.importorskip(library)
    made = module.table if library == "pyarrow" else module.DataFrame
    frame = made({name: [item[name] for item in some(9)] for name in ("Date", "OrderId", "n")})
    assert bulk_load(orders, frame).written == 9
    assert [item["n"] for item in orders.query_items(KeyConditionExpression=Key("Date").eq(DAY))] == list(range(9))


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_unsharded_table(table: Table, wrapped: bool) -> None:
    """A plain boto3 Table is loaded in the guide's order too; its keys stay as they are."""
    faults = Faults(table.meta.client)
    source = [{"Date": user, "OrderId": str(number)} for user in ("U1", "U2", "U3") for number in range(9)]
    report = bulk_load(ShardedTable(table, Unsharded()) if wrapped else table, source, workers=1)
    assert report.written == 27
    assert list(report.per_shard) == [None]
    assert {key for key, _ in stored(table)} == {"U1", "U2", "U3"}
    order = [
        (request["PutRequest"]["Item"]["Date"]["S"], request["PutRequest"]["Item"]["OrderId"]["S"])
        for batch in faults.batches
        for request in batch
    ]
    assert order == [(user, str(number)) for number in range(9) for user in ("U1", "U2", "U3")]


def test_a_table_whose_partition_key_is_a_number(resource: DynamoDBServiceResource) -> None:
    """It cannot be sharded, and can be loaded."""
    table = make_table(resource, ("pk", "N"))
    assert bulk_load(table, [{"pk": number} for number in range(30)]).written == 30
    assert len(table.scan()["Items"]) == 30


def test_random_shards(table: Table) -> None:
    """All of them are used."""
    report = bulk_load(ShardedTable(table, RandomSuffix(3)), some(60))
    assert report.per_shard.keys() == {1, 2, 3}


@pytest.mark.parametrize(
    "faults",
    [
        ["throttle", "none", "throttle", "throttle"],
        ["unprocessed", "unprocessed by ARN", "unprocessed"],
        ["500", "500 after", "lost", "lost after"],
        ["lost after", "unprocessed", "throttle", "500 after", "unprocessed by ARN", "lost"],
    ],
)
@pytest.mark.parametrize("workers", [1, 3])
def test_faults_that_pass(orders: ShardedTable, table: Table, faults: list[Fault], workers: int) -> None:
    """All is written once they have passed, each key by its last write; waits come between."""
    clock = timeless(orders)
    Faults(table.meta.client, faults)
    source = [*some(40), *({**item, "n": -1} for item in some(20))]
    report = bulk_load(orders, source, workers=workers)
    assert (report.items, report.written, report.duplicates) == (60, 40, 20)
    assert report.retried > 0
    assert report.throttles == sum(fault == "throttle" or fault.startswith("unprocessed") for fault in faults)
    found = {item["OrderId"]: item["n"] for item in table.scan()["Items"]}
    assert found == {item["OrderId"]: item["n"] for item in source}
    assert all(seconds > 0 for seconds in clock.sleeps)
    assert workers > 1 or clock.sleeps


def test_a_fault_that_stays(orders: ShardedTable, table: Table) -> None:
    """The load stops after a minute of it, and the caller gets each item back with the reason."""
    clock = timeless(orders)
    Faults(table.meta.client, ["throttle"] * 1000)
    source = some(3)
    with pytest.raises(BulkLoadError, match="the load stopped: nothing was written for 60 s") as raised:
        bulk_load(orders, source)
    assert [source[failure.place] for failure in raised.value.failed] == [one.item for one in raised.value.failed]
    assert {failure.place for failure in raised.value.failed} == {0, 1, 2}
    reason = raised.value.__cause__
    assert {failure.error for failure in raised.value.failed} == {reason}
    assert reason is not None
    assert isinstance(reason.__cause__, ClientError)
    assert STALLED_SECONDS <= clock.now < STALLED_SECONDS + 20
    assert stored(table) == {}


def test_no_access_ends_the_load(orders: ShardedTable, table: Table) -> None:
    """At once, also with ``collect``, and with all accounted for."""
    faults = Faults(table.meta.client, ["none", "denied"])
    with pytest.raises(BulkLoadError, match="the load stopped") as raised:
        bulk_load(orders, iter(some(1000)), workers=1, window=100, on_error="collect")
    report = raised.value.report
    assert report is not None
    assert (report.written, report.failed, report.items) == (25, 100, 125)
    assert len(faults.batches) == 2
    assert len(stored(table)) == 25


def test_a_missing_table(resource: DynamoDBServiceResource) -> None:
    """It is found when its key schema is asked for."""
    with pytest.raises(ClientError, match="nowhere"):
        bulk_load(resource.Table("nowhere"), some(1))


BAD: list[Any] = [{"Date": DAY}, {"Date": "", "OrderId": "1"}, {"Date": DAY, "OrderId": "1", "f": 0.5}, None]


def test_failures_are_raised_after_all_else_was_written(orders: ShardedTable, table: Table) -> None:
    """One bad item does not take 24 good ones down."""
    source = [*some(30), *BAD, *some(30, 30)]
    with pytest.raises(
        BulkLoadError, match=r"4 of 64 items .* at place 30: OrderId: missing .*error\.failed"
    ) as raised:
        bulk_load(orders, source)
    error = raised.value
    assert [(failure.place, failure.item) for failure in error.failed] == list(enumerate(BAD, 30))
    assert isinstance(error.failed[0].error, InvalidKeyError)
    assert error.report is not None
    assert (error.report.written, error.report.failed, error.report.items) == (60, 4, 64)
    assert len(stored(table)) == 60


def test_an_item_that_only_the_service_refuses(orders: ShardedTable, table: Table) -> None:
    """Its batch is halved until it stands alone."""
    source = some(25)
    source[7]["OrderId"] = "x" * 1025
    report = bulk_load(orders, source, on_error="collect")
    (failure,) = report.failures
    assert failure.place == 7
    assert isinstance(failure.error, ClientError)
    assert len(stored(table)) == report.written == 24


def test_failures_are_collected(orders: ShardedTable) -> None:
    """The report says which, and nothing is raised."""
    report = bulk_load(orders, [*BAD, *some(1)], on_error="collect")
    assert [failure.place for failure in report.failures] == [0, 1, 2, 3]
    assert (report.written, report.failed) == (1, 4)


def test_errors_are_picklable(orders: ShardedTable) -> None:
    """With all that they carry."""
    with pytest.raises(BulkLoadError) as raised:
        bulk_load(orders, [*some(2), *BAD])
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own bytes
    assert str(again) == str(raised.value)
    assert [(one.place, one.item, str(one.error)) for one in again.failed] == [
        (one.place, one.item, str(one.error)) for one in raised.value.failed
    ]
    assert again.report.per_shard == raised.value.report.per_shard  # type: ignore[union-attr]


def test_results_are_streamed_with_their_places(orders: ShardedTable) -> None:
    """One an item, the item itself, in the order of settling; failures too."""
    source = [*some(40), *BAD]
    seen = list(streaming_bulk(orders, source, on_error="collect"))
    assert sorted(result.place for result in seen) == list(range(44))
    assert all(result.item == source[result.place] for result in seen)
    assert [result.place for result in seen if not result.ok] == [40, 41, 42, 43]
    strategy = orders.strategy
    assert all(result.shard == strategy.shard_of(DAY, result.item) for result in seen if result.ok)


def test_streaming_raises_at_its_end(orders: ShardedTable) -> None:
    """After every result was handed out."""
    seen = []
    results = streaming_bulk(orders, [*BAD, *some(3)])
    for _ in range(7):
        seen.append(next(results).place)
    with pytest.raises(BulkLoadError):
        next(results)
    assert sorted(seen) == list(range(7))


def test_the_source_is_read_as_there_is_room(orders: ShardedTable, table: Table) -> None:
    """A generator is not drawn into memory, and what is not asked for is not sent."""
    read = []

    def source() -> Iterator[dict[str, Any]]:
        for item in some(500):
            read.append(item)
            yield item

    results = streaming_bulk(orders, source(), window=50, workers=1)
    assert read == []
    next(results)
    assert len(read) <= 75
    results.close()  # type: ignore[attr-defined]
    assert len(stored(table)) == 25


def test_the_first_items_are_written_before_the_window_is_full(orders: ShardedTable) -> None:
    source = iter(some(2000))
    results = streaming_bulk(orders, source, workers=1)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(list(source)) == 1000


def test_a_source_that_fails(orders: ShardedTable, table: Table) -> None:
    """What it gave before is written, and its own error is the cause."""

    def source(before: int) -> Iterator[dict[str, Any]]:
        yield from some(before)
        raise OSError("disk")

    with pytest.raises(BulkLoadError, match="the source ended in an error after 30 items: disk") as raised:
        bulk_load(orders, source(30), on_error="collect")
    assert isinstance(raised.value.__cause__, OSError)
    assert len(stored(table)) == 30
    with pytest.raises(OSError, match="disk"):
        bulk_load(orders, source(0))


def test_progress(orders: ShardedTable) -> None:
    """A report after every batch, growing, the last one the whole."""
    seen: list[BulkReport] = []
    assert bulk_load(orders, some(60), workers=1, progress=seen.append) == seen[-1]
    assert len(list(streaming_bulk(orders, some(60), workers=1, progress=seen.append))) == 60
    assert [report.written for report in seen] == [25, 50, 60] * 2


@pytest.mark.parametrize("source", [[], (), iter([])])
def test_no_items(orders: ShardedTable, source: Any) -> None:
    """Nearly always a source that was read before."""
    with pytest.raises(ConfigurationError, match="no items"):
        bulk_load(orders, source)


async def async_source() -> Any:
    yield {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"items": {"Date": DAY}}, "items: must be an iterable of items, got dict"),
        ({"items": "text"}, "items: must be an iterable of items, got str"),
        ({"items": 5}, "items: must be an iterable of items, got int"),
        ({"items": async_source()}, r"shardkit\.aio"),
        ({"workers": 0}, "workers: must be an integer from 1 to 1,000 .*, got 0"),
        ({"workers": True}, "workers: must be an integer from 1 to 1,000 .*, got True"),
        ({"window": -1}, "window: must be an integer .*, got -1"),
        ({"window": 2.5}, r"window: must be an integer .*, got 2\.5"),
        ({"on_error": "ignore"}, "on_error: must be one of 'raise', 'collect', got 'ignore'"),
        ({"journal": 5}, "journal: must be the path of a file, got 5"),
        ({"journal": b"x"}, "journal: must be the path of a file, got b'x'"),
        ({"dead_letters": ""}, "dead_letters: must be the path of a file, got ''"),
        (
            {"journal": "./kept", "dead_letters": "kept"},
            r"journal: '\./kept' and dead_letters='kept' are the same file",
        ),
        ({"progress": "yes"}, "progress: must be a function of one report, got 'yes'"),
        (
            {"on_eror": "collect"},
            r"on_eror: is not an option of a load \(did you mean on_error\?\); the options are workers,",
        ),
        ({"table": "Orders"}, "must be a boto3 Table, got 'Orders'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(orders: ShardedTable, options: dict[str, Any], says: str) -> None:
    """Before the first item is asked for, also by the streaming form."""
    for load in (bulk_load, streaming_bulk):
        with pytest.raises(ConfigurationError, match=says):
            load(**{"table": orders, "items": some(1), **options})


def test_a_share_of_what_is_not_known_is_an_argument_that_cannot_work(
    orders: ShardedTable, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table on demand without warm throughput: nothing is sent."""
    described = TablePace.described
    monkeypatch.setattr(TablePace, "described", lambda self, table, now: described(self, {"TableName": "Orders"}, now))
    with pytest.raises(
        ConfigurationError,
        match=r"^write_units: 80% of the throughput of table .* is unknown, because DescribeTable returns none",
    ):
        bulk_load(orders, some(30), write_units="80%")
    assert stored(table) == {}


@pytest.mark.parametrize("letters", [True, False])
def test_a_resumed_load_says_what_failed_before(orders: ShardedTable, tmp_path: Path, letters: bool) -> None:
    """Every time, until what failed is loaded anew; and nothing of it is sent again."""
    options: dict[str, Any] = {"journal": tmp_path / "journal", "duplicates": "error", "workers": 1}
    if letters:
        options["dead_letters"] = tmp_path / "dead.jsonl"
    source = [*some(60), *some(1)]
    with pytest.raises(BulkLoadError, match="1 of 61 items were not written"):
        bulk_load(orders, source, **options)
    for _ in range(2):
        with pytest.raises(
            BulkLoadError, match="1 of the 61 items that the journal records as done failed in an earlier load"
        ) as raised:
            bulk_load(orders, source, **options)
        report = raised.value.report
        assert report is not None
        assert (report.items, report.resumed, report.failed_before, report.requests) == (0, 61, 1, 0)
        assert "61 done before (1 of them failed)" in str(report)
    report = bulk_load(orders, source, on_error="collect", **options)
    assert (report.failed, report.failed_before) == (0, 1)


def test_the_caller_s_items_are_not_changed(orders: ShardedTable) -> None:
    """Whatever they hold, and whatever happens."""
    source = [
        {
            **item,
            "set": {"a", "b"},
            "list": [1, {"deep": [Decimal("1.50"), None]}],
            "binary": Binary(b"x"),
            "bytes": bytearray(b"y"),
        }
        for item in some(30)
    ] + [{"Date": DAY, "n": 1.5}]
    before = copy.deepcopy(source)
    with pytest.raises(BulkLoadError):
        bulk_load(orders, source)
    assert source == before


def test_the_users_handlers_see_the_requests(orders: ShardedTable, table: Table) -> None:
    """The load goes through the client that the table holds."""
    seen = []

    def handler(params: dict[str, Any], **_: Any) -> None:
        seen.append(params)

    table.meta.client.meta.events.register("before-call.dynamodb.BatchWriteItem", handler)
    bulk_load(orders, some(30), workers=1)
    assert len(seen) == 2


def test_no_more_side_by_side_than_the_table_allows(table: Table) -> None:
    """``workers`` does not go beyond ``max_concurrency``."""
    report = bulk_load(ShardedTable(table, RandomSuffix(2), max_concurrency=1), some(60), workers=8)
    assert report.written == 60


def test_both_have_the_same_options() -> None:
    """The two functions differ only in what they return."""
    assert inspect.signature(bulk_load).parameters == inspect.signature(streaming_bulk).parameters
