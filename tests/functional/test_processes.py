"""What an interruption and a fork leave behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, InvalidKeyError, ShardedTable
from shardkit.runtime.runner import draw_from
from tests.support.recorder import recording
from tests.support.tables import make_table

DAY = Key("Date").eq("2014-07-09")


@pytest.fixture
def orders(resource: Any) -> ShardedTable:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(orders: ShardedTable) -> None:
    """A pool's threads do not come along into a child, which must not wait for them."""
    before = orders.runner.executor()
    assert before.submit(int).result() == 0
    child = os.fork()
    if child == 0:
        # Asked of a pool whose threads stayed behind, this would never come back.
        answered = orders.runner.executor().submit(int).result(timeout=20) == 0
        os._exit(0 if answered and orders.runner.executor() is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert orders.runner.executor() is before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_processes_draw_other_shards() -> None:
    """Else all workers of a server that loads the application first would write to the same shards in turn."""
    draw = draw_from(None)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, str(draw()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert float(os.read(ours, 100)) != draw()
    os.close(ours)
    os.close(theirs)


def test_a_stream_ends_at_an_interruption(resource: Any) -> None:
    """As a generator does: an answer may be lost, so it gives no more, and a new one reads all."""
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=1))
    orders.put_item(Item={"Date": "2014-07-09", "OrderId": "1"})
    events = orders.meta.client.meta.events
    raising = [KeyboardInterrupt]

    def interrupt(**_: Any) -> None:
        if raising:
            raise raising.pop()

    stream = orders.query_items(KeyConditionExpression=DAY)
    events.register("before-call.dynamodb.Query", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert list(stream) == []
    assert [item["OrderId"] for item in orders.query_items(KeyConditionExpression=DAY)] == ["1"]


@pytest.mark.parametrize(
    "call", [lambda table, key: table.put_item(Item=key), lambda table, key: table.get_item(Key=key)]
)
def test_a_key_that_cannot_be_written_is_refused(orders: ShardedTable, call: Callable[..., Any]) -> None:
    """An unpaired surrogate has no UTF-8: said before anything is sent."""
    with recording(orders.meta.client) as wire, pytest.raises(InvalidKeyError, match="surrogate"):
        call(orders, {"Date": "\ud800", "OrderId": "1"})
    assert set(wire.operations) <= {"DescribeTable"}


def test_handlers_see_which_table_is_meant(orders: ShardedTable) -> None:
    """Before the parameters are put in, a handler sees the table; from before-call on, the real request."""
    seen: list[Any] = []
    events = orders.meta.client.meta.events
    events.register("provide-client-params.dynamodb.BatchGetItem", lambda params, **_: seen.append(params))
    orders.batch_get_items([{"Date": "2014-07-09", "OrderId": "1"}])
    assert seen == [{"RequestItems": {orders.name: {"Keys": []}}}]
