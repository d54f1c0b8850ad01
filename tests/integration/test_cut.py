"""An answer whose connection was cut is a failed attempt: botocore takes it for an empty answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config

from shardkit import CalculatedSuffix, ShardedTable
from tests.support.engines import EngineName
from tests.support.loading import make_orders
from tests.support.proxy import Proxy

ORDER = {"Date": "2014-07-09", "OrderId": 17}
CALLS: dict[str, Callable[[ShardedTable], Any]] = {
    "Query": lambda orders: orders.query(KeyConditionExpression=Key("Date").eq("2014-07-09"))["Items"],
    "GetItem": lambda orders: [orders.get_item(Key=ORDER)["Item"]],
    "Scan": lambda orders: orders.scan()["Items"],
    "BatchGetItem": lambda orders: orders.batch_get_items([ORDER])["Items"],
}


@pytest.mark.parametrize("operation", CALLS)
def test_a_cut_answer(engine_name: EngineName, engine_endpoint: Callable[[EngineName], str], operation: str) -> None:
    """The request is sent again, and the item is found; it is never just not there."""
    endpoint = engine_endpoint(engine_name)
    with Proxy(endpoint, ["cut"], operation=operation) as proxy:
        resource = boto3.resource(
            "dynamodb",
            region_name="us-east-1",
            endpoint_url=proxy.endpoint,
            config=Config(retries={"total_max_attempts": 2}),
        )
        orders = ShardedTable(resource.Table(make_orders(endpoint)), CalculatedSuffix("OrderId", 2))
        orders.put_item(Item=ORDER)
        found = CALLS[operation](orders)
        resource.meta.client.close()
    assert proxy.counts["cut"] == 1
    assert found == [ORDER]
