"""close() and with: what a table has opened ends, what the caller gave stays, and a later call opens it again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, RangeSuffix, Strategy
from tests.functional.contract.faces import Face, needs
from tests.support.tables import make_table

DAY = "2014-07-09"
ITEMS = [{"Date": DAY, "OrderId": f"A{number}"} for number in range(8)]


def shardkit_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("shardkit")}


@pytest.mark.parametrize("strategy", [CalculatedSuffix("OrderId", 4), RangeSuffix("OrderId", ["A4"])])
def test_a_block_ends_what_the_table_has_opened(face: Face, strategy: Strategy) -> None:
    needs(face, "closing")
    before = shardkit_threads()
    stored = make_table(face.resource, ("Date", "S"), ("OrderId", "S"))
    table = face.sharded(stored, strategy, max_concurrency=3)
    query: dict[str, Any] = {"KeyConditionExpression": Key("Date").eq(DAY)}
    with table:
        table.write(puts=ITEMS)
        assert table.query(**query)["Items"] == ITEMS
        assert table.query_items(**query) == ITEMS
    for thread in shardkit_threads() - before:
        thread.join(10)
        assert not thread.is_alive()
    table.close()  # twice does nothing
    assert table.query(**query)["Items"] == ITEMS
    stored.load()
    table.close()


def test_a_block_that_raises_is_ended_and_raises(face: Face) -> None:
    needs(face, "closing")
    table = face.sharded(make_table(face.resource, ("Date", "S"), ("OrderId", "S")), CalculatedSuffix("OrderId", 4))
    with pytest.raises(ZeroDivisionError), table:
        raise ZeroDivisionError
    assert table.get_item(Key=ITEMS[0]).get("Item") is None
    table.close()
