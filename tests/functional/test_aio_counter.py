"""The async ShardedCounter: many tasks, and lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from shardkit import ConfigurationError, RandomSuffix, UnknownOutcomeError
from tests.functional.test_counter import HAPPEN, KEY, LOST, SCHEMA, Adds
from tests.support.engines import EngineName
from tests.support.raw_server import RawServer
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")
pytest.importorskip("httptools")  # of the direct transport

from aiobotocore.config import AioConfig  # noqa: E402 - only where it is installed
from aiobotocore.session import get_session  # noqa: E402

from shardkit.aio import ShardedCounter, ShardedTable  # noqa: E402

TASKS = 50
ADDS = 10_000 if settings().max_examples > 100 else 200
"""10,000 in the long search."""
HOME = {"Page": "home"}


@pytest.mark.integration
@pytest.mark.long_search
def test_the_sum_of_many_tasks_is_exact(
    engine_endpoint: Callable[[EngineName], str], boto3_session: boto3.Session
) -> None:
    """Some of them reset meanwhile: what they return and what is left is the sum."""
    url = engine_endpoint("dynoxide")
    resource = boto3_session.resource("dynamodb", endpoint_url=url)
    name = make_table(resource, ("Page", "S")).name
    resource.meta.client.close()

    async def main() -> tuple[Any, Decimal]:
        config = AioConfig(max_pool_connections=TASKS)
        async with get_session().create_client("dynamodb", endpoint_url=url, config=config) as client:
            views = ShardedCounter(client, HOME, "Hits", shards=10, table_name=name)

            async def work(number: int) -> Decimal:
                for _ in range(ADDS // TASKS):
                    await views.add(number)
                return await views.reset() if number % 10 == 0 else Decimal(0)

            taken = await asyncio.gather(*map(work, range(TASKS)))
            return await views.value(ConsistentRead=True), sum(taken, Decimal(0))

    seen, taken = asyncio.run(main())
    assert seen.total + taken == ADDS // TASKS * sum(range(TASKS))
    assert taken > 0
    assert seen.read_units == 10


@pytest.mark.parametrize("transport", ["client", "direct"])
def test_an_add_is_made_at_most_once(transport: Any) -> None:
    service = Adds()

    async def main() -> None:
        config = AioConfig(retries={"total_max_attempts": 4, "mode": "standard"}, read_timeout=0.1)
        async with get_session().create_client("dynamodb", endpoint_url=server.url, config=config) as client:
            table = ShardedTable(client, RandomSuffix(3), table_name="T", key_schema=SCHEMA, transport=transport)
            views = ShardedCounter(table, KEY, "Hits")
            made = service.carried_out["views"]
            for fault in HAPPEN:
                made.clear()
                service.faults = [fault]
                service.heads.clear()
                known = True
                with suppress(UnknownOutcomeError):
                    known = False
                    await views.add()
                    known = True
                assert len(made) == 1 if known else fault in LOST, fault
                assert len(service.heads) == (2 if fault == "throttle" else 1), fault

    with RawServer(repeat(service.respond)) as server:
        asyncio.run(main())


def test_options_belong_to_the_table() -> None:
    async def main() -> None:
        async with get_session().create_client("dynamodb") as client:
            table = ShardedTable(client, RandomSuffix(3), table_name="T", key_schema=SCHEMA)
            with pytest.raises(ConfigurationError, match=r"^table_name: must not be given with a ShardedTable"):
                ShardedCounter(table, KEY, "Hits", table_name="T")

    asyncio.run(main())
