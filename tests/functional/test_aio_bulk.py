"""The async bulk load, over HTTP: journal, dead letters, rates, duplicates, cancellation."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import boto3
import pytest

from shardkit import BulkLoadError, BulkReport, CalculatedSuffix, ConfigurationError, RandomSuffix, Strategy, Unsharded
from shardkit.bulk.sources.opening import open_source
from shardkit.migrate.backfill_machine import BackfillReport
from tests.support.disks import full_disk
from tests.support.fakes import Clock
from tests.support.proxy import Fault, Proxy
from tests.support.tables import GlobalIndex, make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.config import AioConfig  # noqa: E402 - only where it is installed
from aiobotocore.session import get_session  # noqa: E402

from shardkit.aio import ShardedTable, backfill_index, bulk_load  # noqa: E402

COUNT = 300
ITEMS: list[dict[str, Any]] = [{"Date": f"2014-07-{n % 7}", "OrderId": f"A{n:03}", "n": n} for n in range(COUNT)]
BAD = {"Date": "2014-07-01", "n": -1}
RANDOM = RandomSuffix(4)

Use = Callable[[ShardedTable], Awaitable[Any]]


@pytest.fixture
def table(moto_endpoint: str) -> Iterator[Any]:
    """Orders by day, in a moto server."""
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    yield make_table(resource, ("Date", "S"), ("OrderId", "S"))
    resource.meta.client.close()


def stored(table: Any) -> list[int]:
    return sorted(int(item["n"]) for item in table.scan()["Items"])


async def opened(endpoint: str, name: str, strategy: Strategy, use: Use) -> Any:
    """Use a table through a client that tries each request once, with time that passes when somebody sleeps."""
    config = AioConfig(retries={"total_max_attempts": 1})
    async with get_session().create_client("dynamodb", endpoint_url=endpoint, config=config) as client:
        orders = ShardedTable(client, strategy, table_name=name)
        clock = Clock()

        async def sleep(seconds: float) -> None:
            clock.sleep(seconds)

        orders.runner.clock = clock
        orders.runner.sleep = sleep
        return await use(orders)


def load(endpoint: str, table: Any, items: Any, strategy: Strategy = RANDOM, **options: Any) -> BulkReport:
    async def use(orders: ShardedTable) -> BulkReport:
        return await bulk_load(orders, items() if callable(items) else items, **options)

    report: BulkReport = asyncio.run(opened(endpoint, table.name, strategy, use))
    return report


async def one_by_one() -> AsyncIterator[dict[str, Any]]:
    for item in ITEMS:
        await asyncio.sleep(0)
        yield item


@pytest.mark.parametrize("items", [ITEMS, one_by_one], ids=["iterable", "async iterable"])
def test_a_journal(moto_endpoint: str, table: Any, tmp_path: Path, items: Any) -> None:
    """A load whose credentials expire goes on where it was, random suffixes included."""
    faults: Iterator[Fault] = chain(["none"] * 4, repeat("expired"))
    options: Any = {"journal": tmp_path / "journal", "workers": 2, "window": 100}
    with Proxy(moto_endpoint, faults) as proxy, pytest.raises(BulkLoadError, match="ExpiredToken") as raised:
        load(proxy.endpoint, table, items, **options)
    assert raised.value.report is not None
    assert raised.value.report.written == 100
    report = load(moto_endpoint, table, items, **options)
    assert (report.resumed, report.items, report.written) == (100, 200, 200)
    assert stored(table) == list(range(COUNT))
    again = load(moto_endpoint, table, items, **options)
    assert (again.resumed, again.items) == (COUNT, 0)
    if items is ITEMS:
        with pytest.raises(ConfigurationError, match=r"journal: .* is of another load"):
            load(moto_endpoint, table, ITEMS[1:], **options)


def test_dead_letters(moto_endpoint: str, table: Any, tmp_path: Path) -> None:
    """What failed is there with its reason, and can be loaded."""
    path = tmp_path / "dead.jsonl"
    report = load(moto_endpoint, table, [*ITEMS[:30], BAD, *ITEMS[30:60]], dead_letters=path, on_error="collect")
    assert (report.written, report.failed) == (60, 1)
    (letter,) = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert letter["place"] == 30
    assert "OrderId: missing" in letter["reason"]
    letter["Item"]["OrderId"] = {"S": "B1"}
    path.write_text(json.dumps(letter) + "\n", "utf-8")
    load(moto_endpoint, table, open_source(str(path), format="dynamodb"))
    assert stored(table) == [-1, *range(60)]


@pytest.mark.parametrize("items", [ITEMS, one_by_one], ids=["iterable", "async iterable"])
def test_a_disk_that_is_full(moto_endpoint: str, table: Any, tmp_path: Path, items: Any) -> None:
    """The load stops, what is in flight has its results, and the next load goes on."""
    options: Any = {"journal": tmp_path / "journal", "workers": 2, "window": 50}
    with full_disk(1_000), pytest.raises(BulkLoadError, match=r"the load stopped: journal: .*too large") as raised:
        load(moto_endpoint, table, items, **options)
    report = raised.value.report
    assert report is not None
    assert report.items == report.written + report.failed
    assert 0 < report.written == len(stored(table)) < COUNT
    assert 0 < load(moto_endpoint, table, items, **options).resumed < COUNT
    assert stored(table) == list(range(COUNT))


def test_failures_beyond_what_is_allowed(moto_endpoint: str, table: Any) -> None:
    """They end the load."""
    items = [BAD if number % 2 else item for number, item in enumerate(ITEMS)]
    with pytest.raises(BulkLoadError, match="items failed, more than max_failures=2;") as raised:
        load(moto_endpoint, table, items, max_failures=2, window=20, on_error="collect")
    assert raised.value.report is not None
    assert raised.value.report.items < 60
    assert load(moto_endpoint, table, items, max_failures=150, on_error="collect").failed == 150


@pytest.mark.parametrize(("duplicates", "kept"), [("last", 4), ("first", 0), ("error", 0)])
def test_duplicates(moto_endpoint: str, table: Any, duplicates: Any, kept: int) -> None:
    """One stays; the others are left out, or fail."""
    items = [{"Date": "2014-07-01", "OrderId": "A1", "n": number} for number in range(5)]
    strategy = CalculatedSuffix("OrderId", 4)
    report = load(moto_endpoint, table, items, strategy, duplicates=duplicates, on_error="collect")
    assert stored(table) == [kept]
    assert (report.written, report.duplicates + report.failed) == (1, 4)
    assert report.failed == (4 if duplicates == "error" else 0)


@pytest.mark.parametrize(("write_units", "rate"), [(5.0, 5.0), ("50%", 10.0)])
def test_a_rate(moto_endpoint: str, table: Any, write_units: Any, rate: float) -> None:
    """A number of units a second, or a share of what DescribeTable says."""
    throughput: Any = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 20}
    table.meta.client.update_table(TableName=table.name, BillingMode="PROVISIONED", ProvisionedThroughput=throughput)

    async def use(orders: ShardedTable) -> tuple[BulkReport, float]:
        report = await bulk_load(orders, ITEMS, write_units=write_units, workers=1)
        return report, orders.runner.clock()

    report, seconds = asyncio.run(opened(moto_endpoint, table.name, RANDOM, use))
    assert report.written == COUNT
    assert report.write_units / rate * 0.8 <= seconds <= report.write_units / rate * 1.2


class Gate:
    """Lets requests through up to a number of them; holds the others until it is opened."""

    def __init__(self, number: int, held: int) -> None:
        self.full = threading.Semaphore(0)
        self.opened = threading.Event()
        self._number = number
        self._held = held

    def watch(self, number: int, stage: str) -> None:
        if stage == "came" and number > self._number:
            self.full.release()
            self.opened.wait()

    async def wait(self) -> None:
        """Wait until as many are held as there will be."""
        for _ in range(self._held):
            assert await asyncio.to_thread(self.full.acquire, timeout=60)


@pytest.mark.parametrize("items", [ITEMS, one_by_one], ids=["iterable", "async iterable"])
def test_cancelled(moto_endpoint: str, table: Any, tmp_path: Path, items: Any) -> None:
    """What is in flight is finished and kept: the journal holds what the table holds, and nothing is sent again."""
    gate = Gate(number=3, held=2)
    options: Any = {"journal": tmp_path / "journal", "workers": 2, "window": 100}
    seen: list[BulkReport] = []

    async def use(orders: ShardedTable) -> None:
        given = items() if callable(items) else items
        task = asyncio.ensure_future(bulk_load(orders, given, progress=seen.append, **options))
        await gate.wait()
        task.cancel()
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.wait([task])
        assert task.cancelled()

    with Proxy(moto_endpoint, watch=gate.watch) as proxy:
        asyncio.run(opened(proxy.endpoint, table.name, RANDOM, use))
        assert seen[-1].written == len(stored(table)) == 125
        assert seen[-1].failed == seen[-1].stopped == seen[-1].items - 125
        report = load(proxy.endpoint, table, items, **options)
        assert (report.resumed, report.written) == (125, COUNT - 125)
        assert proxy.writes == COUNT
    assert stored(table) == list(range(COUNT))


def test_cancelled_twice(moto_endpoint: str, table: Any, tmp_path: Path) -> None:
    """What is in flight is dropped; the files are closed, so that the load can be resumed in the same process."""
    gate = Gate(number=3, held=2)
    options: Any = {"journal": tmp_path / "journal", "dead_letters": tmp_path / "dead.jsonl", "workers": 2}

    async def use(orders: ShardedTable) -> None:
        task = asyncio.ensure_future(bulk_load(orders, [BAD, *ITEMS], window=100, on_error="collect", **options))
        await gate.wait()
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])
        assert task.cancelled()
        gate.opened.set()

    with Proxy(moto_endpoint, watch=gate.watch) as proxy:
        asyncio.run(opened(proxy.endpoint, table.name, RANDOM, use))
    report = load(moto_endpoint, table, [BAD, *ITEMS], on_error="collect", **options)
    assert (report.resumed, report.written, report.failed) == (76, COUNT - 75, 0)
    assert stored(table) == list(range(COUNT))
    assert len((tmp_path / "dead.jsonl").read_text("utf-8").splitlines()) == 1


def test_cancelled_while_its_source_has_nothing(moto_endpoint: str, table: Any, tmp_path: Path) -> None:
    """It is not waited for; what it gave before comes again."""

    async def use(orders: ShardedTable) -> None:
        reached = asyncio.Event()

        async def stalling() -> AsyncIterator[dict[str, Any]]:
            for item in ITEMS[:60]:
                yield item
            reached.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(bulk_load(orders, stalling(), window=50, workers=1, journal=tmp_path / "journal"))
        await reached.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(opened(moto_endpoint, table.name, RANDOM, use))
    assert len(stored(table)) == 25
    load(moto_endpoint, table, one_by_one, journal=tmp_path / "journal")
    assert stored(table) == list(range(COUNT))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processes": 2}, "^processes: is not supported by this load"),
        ({"jurnal": "kept"}, r"^jurnal: is not an option of a load \(did you mean journal\?\)"),
    ],
)
def test_options_that_it_does_not_have(moto_endpoint: str, table: Any, options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load(moto_endpoint, table, ITEMS, **options)


def test_a_backfill(moto_endpoint: str) -> None:
    """The same as of a table of boto3: resumable, and with its progress."""
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    index = GlobalIndex("by-status", ("ix", "S"))
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[index])
    for item in ITEMS[:5]:
        table.put_item(Item={**item, "Status": "open"})
    by_status = CalculatedSuffix("OrderId", 3, source="Status")

    async def use() -> list[BackfillReport]:
        seen: list[BackfillReport] = []
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            orders = ShardedTable(client, Unsharded(), table_name=table.name, indexes={"by-status": by_status})
            options: Any = {"write_units": None, "read_units": None, "progress": seen.append}
            report = await backfill_index(orders, "by-status", **options)
            with pytest.raises(ConfigurationError, match=r"table: must be a shardkit\.aio\.ShardedTable"):
                await backfill_index(table, "by-status")  # type: ignore[arg-type]
        return [*seen, report]

    *seen, report = asyncio.run(use())
    assert (report.complete, report.written, report.verified) == (True, 5, 5)
    assert seen[-1].verified == 5
    assert {str(item["ix"]).partition(".")[0] for item in table.scan()["Items"]} == {"open"}
    resource.meta.client.close()
