"""An answer whose connection was cut is an error: botocore takes it for an empty one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ConnectionClosedError, IncompleteReadError

from shardkit import CalculatedSuffix, ShardedTable
from tests.engines import EngineName
from tests.loading import connected, make_orders
from tests.proxy import Proxy

ORDER = {"Date": "2014-07-09", "OrderId": 17}
CALLS: dict[str, Callable[[ShardedTable], Any]] = {
    "Query": lambda orders: orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"))["Items"],
    "GetItem": lambda orders: [orders.get_item(Key=ORDER)["Item"]],
    "Scan": lambda orders: orders.scan()["Items"],
    "BatchGetItem": lambda orders: orders.batch_get_items([ORDER])["Items"],
}


@pytest.mark.parametrize("operation", CALLS)
def test_a_cut_answer(engine_name: EngineName, engine_endpoint: Callable[[EngineName], str], operation: str) -> None:
    """The item is found, or the call fails and the next one finds it; it is never just not there."""
    endpoint = engine_endpoint(engine_name)
    with Proxy(endpoint, ["cut"], operation=operation) as proxy:
        resource = connected(proxy.endpoint)
        orders = ShardedTable(resource.Table(make_orders(endpoint)), CalculatedSuffix("OrderId", 1))
        orders.put_item(Item=ORDER)
        try:
            found = CALLS[operation](orders)
        except (ConnectionClosedError, IncompleteReadError):  # an older botocore sees it for itself
            found = CALLS[operation](orders)
        resource.meta.client.close()
    assert proxy.counts["cut"] == 1
    assert found == [ORDER]
