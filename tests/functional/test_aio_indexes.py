"""Sharded indexes of the async faces: the table, loads and installed clients."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, RandomSuffix, install
from tests.support.indexed import WAYS, Way
from tests.support.tables import GlobalIndex, make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable, bulk_load  # noqa: E402

STATUS = {"ExpressionAttributeNames": {"#s": "status"}}
SHOWN = {"pk", "sk", "status", "at"}


@pytest.mark.parametrize("way", WAYS)
def test_an_index_of_the_async_faces(moto_endpoint: str, way: Way) -> None:
    key: Any = {"attribute": [("status", "S"), ("shard", "N")], "source": ("ix", "S"), "place": ("status", "S")}
    more: Any = {"attribute": {"attribute": "shard"}, "source": {"source": "status"}, "place": {}}
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    index = GlobalIndex("all", key[way], ("at", "N"))
    name = make_table(resource, sort_key=("sk", "S"), global_indexes=[index]).name
    resource.meta.client.close()
    strategy, sharded = CalculatedSuffix("sk", 2), {"all": RandomSuffix(3, **more[way])}
    items = [{"pk": "p", "sk": f"s{number}", "status": "open", "at": number // 3} for number in range(9)]
    query: Any = {"IndexName": "all", "KeyConditionExpression": Key("status").eq("open")}

    async def main() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            table = ShardedTable(client, strategy, indexes=sharded, table_name=name)
            await table.put_item(Item=items[0])
            async with table.batch_writer() as batch:
                await batch.put_item(Item=items[1])
            await bulk_load(table, items[2:])
            found = (await table.query(**query))["Items"]
            assert [item["at"] for item in found] == [item["at"] for item in items]
            assert sorted(found, key=lambda item: item["sk"]) == items
            assert [item async for item in table.query_items(**query)] == found
            remove: Any = {"UpdateExpression": "REMOVE #s", **STATUS}
            await table.update_item(Key={"pk": "p", "sk": "s0"}, **remove)
            wire: Any = {
                "TableName": name, "IndexName": "all", "KeyConditionExpression": "#s = :o",
                "ExpressionAttributeValues": {":o": {"S": "open"}}, **STATUS,
            }  # fmt: skip
            with install(client, {name: strategy}, indexes={name: sharded}):
                reads: list[Any] = [("query", wire), ("scan", {"TableName": name, "IndexName": "all"})]
                for operation, given in reads:
                    pages = client.get_paginator(operation).paginate(**given, PaginationConfig={"PageSize": 3})
                    rows = [item async for page in pages for item in page["Items"]]
                    assert sorted(item["sk"]["S"] for item in rows) == [f"s{number}" for number in range(1, 9)]
                    assert all(item.keys() == SHOWN for item in rows)

    asyncio.run(main())
