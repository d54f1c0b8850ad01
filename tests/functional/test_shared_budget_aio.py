"""SharedBudget under async clients: its own thread and boto3 client renew it."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import pytest

from shardkit import CapacityBudget, CapacityBudgetError, ConfigurationError, SharedBudget, Unsharded
from shardkit.capacity.membership import MEMBER_LEASE_SECONDS, SILENT_SECONDS
from tests.support.beats import Beats
from tests.support.tables import make_table

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from aiobotocore.session import get_session  # noqa: E402 - only where it is installed

from shardkit.aio import ShardedTable, bulk_load  # noqa: E402


def test_a_load_and_calls_share_a_budget(moto_endpoint: str) -> None:
    resource = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    orders, budgets, beats = make_table(resource), make_table(resource), Beats()
    budget = SharedBudget(budgets, "Orders", 10.0, burst=0.0, clock=beats.read, start=beats.start)

    def stands_still(**_: Any) -> None:
        beats.now += MEMBER_LEASE_SECONDS

    async def main() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=moto_endpoint) as client:
            table = ShardedTable(client, Unsharded(), table_name=orders.name)
            table.runner.clock, table.runner.sleep = beats, beats.sleep_async
            report = await bulk_load(table, [{"pk": f"{number}"} for number in range(200)], write_units=budget)
            assert (report.written, report.failed) == (200, 0)
            assert beats.now >= SILENT_SECONDS + 0.7
            limits = CapacityBudget(write_units=budget, clock=beats, async_sleep=beats.sleep_async)
            with limits.attach(client):
                began = beats.now
                for number in range(20):
                    await table.put_item(Item={"pk": f"{number}"})
                assert beats.now - began >= 1.8
                client.meta.events.register("before-sign", stands_still)
                with pytest.raises(CapacityBudgetError, match="stood still"):
                    await table.put_item(Item={"pk": "decided before"})
            with pytest.raises(ConfigurationError, match="client: must be of boto3"):
                budget.over(client)

    asyncio.run(main())
    resource.meta.client.close()
