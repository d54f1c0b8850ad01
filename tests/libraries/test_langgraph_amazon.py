"""langgraph-checkpoint-amazon-dynamodb: one table, reached by sync and async clients of its own sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installed import Setting

pytest.importorskip("langgraph_checkpoint_dynamodb")

from langgraph_checkpoint_dynamodb import DynamoDBConfig, DynamoDBSaver, DynamoDBTableConfig

from tests.support.graphs import THREAD, conformance, visits

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table


@pytest.fixture
def table(setting: Setting) -> Table:
    return setting.make_table("PK", "SK")


@pytest.fixture
def saver(setting: Setting, table: Table) -> Iterator[Any]:
    config = DynamoDBConfig(DynamoDBTableConfig(table.name), region_name="us-east-1", endpoint_url=setting.url)
    with setting.install_everywhere(table.name, by="SK"):
        saver = DynamoDBSaver(config)
        yield saver
        saver.client.close()
        saver.dynamodb.meta.client.close()


async def close(saver: Any) -> None:
    """Close its async clients, for which it has no method; the next call makes new ones."""
    if saver._async_client is not None:  # noqa: SLF001
        await saver._async_client.__aexit__(None, None, None)  # noqa: SLF001
        await saver._async_resource.__aexit__(None, None, None)  # noqa: SLF001
        saver._async_client = None  # noqa: SLF001


def test_a_graph(setting: Setting, table: Table, saver: Any) -> None:
    graph = visits(saver)
    assert graph.invoke({"pages": []}, THREAD) == {"pages": [*range(10)]}
    history = list(graph.get_state_history(THREAD))
    assert [len(state.values["pages"]) for state in history] == [*range(10, -1, -1), 0]
    assert graph.get_state(history[4].config).values == {"pages": [*range(6)]}
    setting.assert_stored(table, {"visitor": len(table.scan()["Items"])})


def test_a_graph_of_tasks(setting: Setting, table: Table, saver: Any) -> None:
    async def main() -> None:
        graph = visits(saver)
        assert await graph.ainvoke({"pages": []}, THREAD) == {"pages": [*range(10)]}
        history = [state async for state in graph.aget_state_history(THREAD)]
        assert [len(state.values["pages"]) for state in history] == [*range(10, -1, -1), 0]
        await close(saver)

    asyncio.run(main())
    setting.assert_stored(table, {"visitor": len(table.scan()["Items"])})


def test_conformance(setting: Setting, table: Table, saver: Any) -> None:
    async def make() -> AsyncGenerator[Any]:
        yield saver
        await close(saver)

    assert conformance(make) == {"put": (17, []), "put_writes": (10, []), "get_tuple": (10, []), "list": (16, [])}
