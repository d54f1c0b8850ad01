"""Hedged reads on an async client: the slower request runs to its end as a task, and is counted."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CapacityMeter, RandomSuffix
from shardkit.sharding.parameters import FanOutOptions
from tests.support.wire import Body, serving

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable  # noqa: E402

SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
}
TIMEOUT = 30


def test_the_slower_request_is_counted() -> None:
    go = threading.Event()
    requests: list[Body] = []
    meter = CapacityMeter()

    def answer(_: str, body: Body) -> tuple[int, Any]:
        requests.append(body)
        if len(requests) == 1:
            go.wait(TIMEOUT)
        return 200, {"Items": [], "Count": 0, "ScannedCount": 0}

    async def main(url: str) -> None:
        async with get_session().create_client("dynamodb", endpoint_url=url) as client:
            table = ShardedTable(client, RandomSuffix(4), table_name="orders", key_schema=SCHEMA)
            params = {"KeyConditionExpression": Key("pk").eq("k")}
            fan_out = FanOutOptions(10, lambda: 0.5, hedge_after=0.02)
            with meter.attach(client):
                page = await table.runner.run(
                    table.runner.programs.query(params, shard=1, return_shards=False, fan_out=fan_out)
                )
                assert page["Items"] == []
                assert meter.requests == 1
                (loser,) = asyncio.all_tasks() - {asyncio.current_task()}
                go.set()
                await loser
                assert meter.requests == 2

    with serving(answer) as service:
        try:
            asyncio.run(main(service.url))
        finally:
            go.set()
    assert len(requests) == 2
