"""Transactions, batches and loads of items that move, with async tables and clients, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import pytest

from shardkit import install
from shardkit.dynamodb.encode import to_wire_item
from tests.support.moving import (
    BETWEEN,
    SCHEMA,
    STATES,
    Held,
    actions,
    after_actions,
    batch,
    contents,
    fill,
    key,
    resharding,
)
from tests.support.tables import make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable, bulk_load  # noqa: E402


@pytest.mark.parametrize("stage", BETWEEN)
def test_several_items(moto_endpoint: str, stage: Any) -> None:
    asyncio.run(written(moto_endpoint, stage))


async def written(moto_endpoint: str, stage: Any) -> None:
    """All actions and writes are done once, whatever they became; a read transaction sees the items."""
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    table: Any = make_table(resource, ("pk", "S"), ("sk", "S"))
    puts = {(state, "put"): 7 for state in STATES[stage]}
    async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
        moved = ShardedTable(client, resharding(stage), table_name=table.name, key_schema=SCHEMA)
        fill(table, stage, "put", "update", "delete", "check")
        await moved.transact_write_items(TransactItems=actions(stage))
        assert contents(table, stage) == after_actions(stage)
        gets: Any = [{"Get": {"Key": key(state, "put")}} for state in STATES[stage]]
        read = (await moved.transact_get_items(TransactItems=gets))["Responses"]
        assert [one["Item"]["n"] for one in read] == [7] * len(gets)

        Held(table).clear()
        fill(table, stage, "put", "delete")
        async with moved.batch_writer() as batch_writer:
            for part in batch(stage):
                if "PutRequest" in part:
                    await batch_writer.put_item(**part["PutRequest"])
                else:
                    await batch_writer.delete_item(**part["DeleteRequest"])
        assert contents(table, stage) == puts

        Held(table).clear()
        fill(table, stage, "put")
        report = await bulk_load(moved, [{**key(state, "put"), "n": 7} for state in STATES[stage]])
        assert (report.written, contents(table, stage)) == (len(puts), puts)

        Held(table).clear()
        fill(table, stage, "put", "delete")
        with install(client, {table.name: resharding(stage)}, key_schemas={table.name: SCHEMA}):
            requests: list[Any] = [
                {kind: {source: to_wire_item(item) for source, item in body.items()}}
                for part in batch(stage)
                for kind, body in part.items()
            ]
            response = await client.batch_write_item(RequestItems={table.name: requests})
        assert (response["UnprocessedItems"], contents(table, stage)) == ({}, puts)
    resource.meta.client.close()
