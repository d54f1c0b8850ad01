"""Writes in parts over moto: what a task does, what a repeated one does, and what the driver makes of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from shardkit import CalculatedSuffix, RandomSuffix
from shardkit.parts import PartConfig, PartReport, merge, write_part
from tests.support.fakes import once
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
    def unreachable() -> Any:
        raise AssertionError

    ready = config()
    for batches in (iter(()), (batch.slice(0, 0) for batch in rows(1))):
        report = write_part(batches, ready, part=7)
        assert (report.part, report.report.items, report.error) == (7, 0, None)
    assert (merge([]).items, merge([]).parts, merge([]).seconds) == (0, (), 0.0)
    merge([]).raise_failures()
