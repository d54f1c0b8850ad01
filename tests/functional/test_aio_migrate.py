"""The async ``plan``, ``move`` and ``verify``, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import pytest

from shardkit import ConfigurationError
from tests.functional.test_migrate import ITEMS
from tests.support.moving import resharding
from tests.support.tables import make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable, migrate  # noqa: E402


def test_plan_move_verify(moto_endpoint: str) -> None:
    asyncio.run(planned_moved_verified(moto_endpoint))


async def planned_moved_verified(moto_endpoint: str) -> None:
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    raw: Any = make_table(resource, ("pk", "S"), ("sk", "S"))
    for item in ITEMS:
        raw.put_item(Item=item)
    async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
        orders = ShardedTable(client, resharding("move"), table_name=raw.name, max_concurrency=1)
        assert (await migrate.plan(orders)).moving == len(ITEMS)
        report = await migrate.move(orders, write_units=None, read_units=None)
        assert (report.complete, report.moved) == (True, len(ITEMS))
        assert (await migrate.verify(orders, read_units=None)).complete
        with pytest.raises(ConfigurationError, match=r"table: must be a shardkit\.aio\.ShardedTable"):
            await migrate.move(raw)
    resource.meta.client.close()
