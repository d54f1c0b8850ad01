"""PynamoDB: models, batches, transactions, pages and indexes. It makes its own sessions."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installed import Setting

pytest.importorskip("pynamodb")

from pynamodb.attributes import NumberAttribute, UnicodeAttribute, VersionAttribute
from pynamodb.connection import Connection
from pynamodb.exceptions import PutError, TransactWriteError
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex, LocalSecondaryIndex
from pynamodb.models import Model
from pynamodb.transactions import TransactGet, TransactWrite

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table

DAY = "2014-07-09"


@pytest.fixture
def orders(setting: Setting) -> Iterator[Any]:
    """A model of orders by day, with a local index by total and a global one by state; PynamoDB makes its table."""

    class ByTotal(LocalSecondaryIndex):  # type: ignore[misc]
        class Meta:
            index_name = "by-total"
            projection = AllProjection()

        day = UnicodeAttribute(hash_key=True)
        total = NumberAttribute(range_key=True)

    class ByState(GlobalSecondaryIndex):  # type: ignore[misc]
        class Meta:
            index_name = "by-state"
            projection = AllProjection()
            read_capacity_units = 1
            write_capacity_units = 1

        state = UnicodeAttribute(hash_key=True)
        number = UnicodeAttribute(range_key=True)

    class Order(Model):  # type: ignore[misc]
        class Meta:
            table_name = f"orders-{uuid.uuid4().hex}"
            host = setting.url
            region = "us-east-1"

        day = UnicodeAttribute(hash_key=True)
        number = UnicodeAttribute(range_key=True)
        total = NumberAttribute(default=0)
        state = UnicodeAttribute(default="open")
        version = VersionAttribute()
        by_total = ByTotal()
        by_state = ByState()

    with setting.install_everywhere(Order.Meta.table_name, by="number"):
        Order.create_table(read_capacity_units=1, write_capacity_units=1, wait=True)
        yield Order
        Order.delete_table()


@pytest.fixture
def table(setting: Setting, orders: Any) -> Table:
    return setting.resource.Table(orders.Meta.table_name)


@pytest.fixture
def day(setting: Setting, orders: Any, table: Table) -> list[str]:
    """The numbers of the 40 orders of a day, written as a batch; their totals are in the opposite order."""
    numbers = [f"A{number:03}" for number in range(40)]
    with orders.batch_write() as batch:
        for place, number in enumerate(numbers):
            batch.save(orders(DAY, number, total=100 - place))
    setting.assert_stored(table, {DAY: 40})
    return numbers


def numbers_of(found: Any) -> list[str]:
    return [order.number for order in found]


def test_items(setting: Setting, orders: Any, table: Table) -> None:
    for number in range(12):
        orders(DAY, f"A{number}", total=number).save()
    setting.assert_stored(table, {DAY: 12})
    order = orders.get(DAY, "A7")
    assert (order.day, order.number, order.total, order.version) == (DAY, "A7", 7, 1)
    order.update([orders.total.add(10)], condition=orders.total == 7)
    order.refresh()
    assert (order.total, order.version) == (17, 2)
    with pytest.raises(PutError) as refused:
        orders(DAY, "A7").save()
    assert refused.value.cause_response_code == "ConditionalCheckFailedException"
    order.delete()
    with pytest.raises(orders.DoesNotExist):
        order.refresh()
    assert orders.count(DAY) == 11


def test_queries(orders: Any, day: list[str]) -> None:
    assert numbers_of(orders.query(DAY)) == day
    assert numbers_of(orders.query(DAY, scan_index_forward=False)) == day[::-1]
    assert numbers_of(orders.query(DAY, orders.number.between("A010", "A019"), orders.total > 85)) == day[10:15]
    assert numbers_of(orders.query(DAY, limit=7, page_size=3)) == day[:7]
    assert orders.count(DAY, orders.number >= "A030") == 10
    assert numbers_of(orders.query("2014-07-10")) == []


def test_pages(orders: Any, day: list[str]) -> None:
    """PynamoDB builds its page keys from the key's own attributes."""
    found: list[str] = []
    last = None
    while last is not None or not found:
        page = orders.query(DAY, limit=9, last_evaluated_key=last)
        found += numbers_of(page)
        last = page.last_evaluated_key
        assert last is None or set(last) == {"day", "number"}
    assert found == day


def test_a_local_index(orders: Any, day: list[str]) -> None:
    assert numbers_of(orders.by_total.query(DAY)) == day[::-1]
    page = orders.by_total.query(DAY, orders.total > 80, limit=8)
    found = numbers_of(page)
    assert set(page.last_evaluated_key) == {"day", "number", "total"}
    rest = orders.by_total.query(DAY, orders.total > 80, last_evaluated_key=page.last_evaluated_key)
    assert [*found, *numbers_of(rest)] == day[:20][::-1]


def test_a_global_index(orders: Any, day: list[str]) -> None:
    """It is not sharded; its page keys have the table's key."""
    page = orders.by_state.query("open", limit=8, consistent_read=False)
    found = list(page)
    assert [(order.day, order.number) for order in found] == [(DAY, number) for number in day[:8]]
    assert set(page.last_evaluated_key) == {"day", "number", "state"}
    rest = orders.by_state.query("open", last_evaluated_key=page.last_evaluated_key)
    assert numbers_of(rest) == day[8:]
    assert orders.by_state.count("open", orders.number < "A010") == 10


def test_rates(orders: Any, day: list[str]) -> None:
    """PynamoDB paces itself by ``ConsumedCapacity``."""
    page = orders.query(DAY, rate_limit=10_000, page_size=15)
    assert numbers_of(page) == day
    assert page.total_count == 40
    assert sorted(numbers_of(orders.scan(rate_limit=10_000, page_size=15))) == day


def test_segments(orders: Any, day: list[str]) -> None:
    found = [numbers_of(orders.scan(segment=segment, total_segments=3)) for segment in range(3)]
    assert sorted(itertools.chain.from_iterable(found)) == day


def test_batches_and_scans(setting: Setting, orders: Any, table: Table, day: list[str]) -> None:
    keys = [(DAY, "A003"), (DAY, "A033"), (DAY, "none")]
    assert sorted(numbers_of(orders.batch_get(keys))) == ["A003", "A033"]
    assert sorted(numbers_of(orders.scan(page_size=6))) == day
    assert sorted(numbers_of(orders.scan(orders.total > 90))) == day[:10]
    with orders.batch_write() as batch:
        for order in orders.query(DAY, orders.number < "A030"):
            batch.delete(order)
    setting.assert_stored(table, {DAY: 10})


def test_transactions(setting: Setting, orders: Any, table: Table) -> None:
    connection = Connection(region="us-east-1", host=setting.url)
    first, second = orders(DAY, "A1", total=5), orders(DAY, "A2", total=5)
    with TransactWrite(connection=connection) as writes:
        writes.save(first, condition=orders.day.does_not_exist())
        writes.save(second)
    setting.assert_stored(table, {DAY: 2})
    with TransactWrite(connection=connection) as writes:
        writes.update(first, [orders.total.add(-5)], condition=orders.total >= 5)
        writes.condition_check(orders, DAY, "A3", condition=orders.day.does_not_exist())
        writes.delete(second)
    with TransactGet(connection=connection) as reads:
        one, two = reads.get(orders, DAY, "A1"), reads.get(orders, DAY, "A2")
    assert (one.get().day, one.get().total, one.get().version) == (DAY, 0, 2)
    with pytest.raises(orders.DoesNotExist):
        two.get()
    with pytest.raises(TransactWriteError) as cancelled, TransactWrite(connection=connection) as writes:
        writes.save(orders(DAY, "A1"), return_values="ALL_OLD")
    assert [reason.code for reason in cancelled.value.cancellation_reasons] == ["ConditionalCheckFailed"]
    assert cancelled.value.cancellation_reasons[0].raw_item == one.get().to_dynamodb_dict()
