"""langgraph-checkpoint-aws: its checkpointer under a graph, LangGraph's own tests of checkpointers, and its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from tests.conftest import REGION
from tests.support.installed import Setting

pytest.importorskip("langgraph_checkpoint_aws")

from langgraph_checkpoint_aws import DynamoDBSaver, DynamoDBStore

from tests.support.graphs import THREAD, conformance, visits

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table


@pytest.fixture
def table(setting: Setting) -> Table:
    return setting.make_table("PK", "SK")


@pytest.fixture
def session(setting: Setting, table: Table) -> Iterator[boto3.Session]:
    session = boto3.Session("testing", "testing", region_name=REGION)
    with setting.install(session, table.name, by="SK"):
        yield session


@pytest.fixture
def graph(setting: Setting, table: Table, session: boto3.Session) -> Iterator[Any]:
    saver = DynamoDBSaver(table.name, session=session, endpoint_url=setting.url)
    yield visits(saver)
    saver.client.close()


def test_a_graph(setting: Setting, table: Table, graph: Any) -> None:
    assert graph.invoke({"pages": []}, THREAD) == {"pages": [*range(10)]}
    history = list(graph.get_state_history(THREAD))
    assert [len(state.values["pages"]) for state in history] == [*range(10, -1, -1), 0]
    assert graph.get_state(THREAD).values == {"pages": [*range(10)]}
    assert graph.get_state(history[4].config).values == {"pages": [*range(6)]}
    # From an earlier checkpoint, the graph goes on.
    assert graph.invoke(None, history[4].config) == {"pages": [*range(10)]}

    logical = logical_keys(setting, table)
    assert logical["CHECKPOINT_visitor"] == 12 + 5
    setting.assert_stored(table, logical)

    graph.checkpointer.delete_thread("visitor")
    assert list(graph.get_state_history(THREAD)) == []
    setting.assert_stored(table, {})


def logical_keys(setting: Setting, table: Table) -> Counter[str]:
    """How many items each logical key has; shards are written as `.1` to `.4`, which no key here ends with."""
    stored = [str(item["PK"]) for item in table.scan()["Items"]]
    return Counter(key.rpartition(".")[0] if setting.sharded else key for key in stored)


def test_conformance(setting: Setting, table: Table, session: boto3.Session) -> None:
    async def make() -> AsyncGenerator[Any]:
        saver = DynamoDBSaver(table.name, session=session, endpoint_url=setting.url)
        yield saver
        saver.client.close()

    assert conformance(make) == {
        "put": (17, []),
        "put_writes": (10, []),
        "get_tuple": (10, []),
        "list": (16, []),
        "delete_thread": (5, []),
    }
    setting.assert_stored(table, logical_keys(setting, table))


def test_a_store(setting: Setting, table: Table, session: boto3.Session) -> None:
    store = DynamoDBStore(table.name, boto3_session=session, endpoint_url=setting.url, ttl={"default_ttl": 60})
    for number in range(20):
        store.put(("user", "alice"), f"memory-{number:02}", {"number": number})
    setting.assert_stored(table, {"user:alice": 20})
    assert store.get(("user", "alice"), "memory-07").value == {"number": 7}
    assert [item.key for item in store.search(("user", "alice"), limit=5, offset=3)] == [
        f"memory-{number:02}" for number in range(3, 8)
    ]
    assert [item.namespace for item in store.search(("user", "alice"), filter={"number": 4}, limit=20)] == [
        ("user", "alice")
    ]
    assert store.list_namespaces() == [("user", "alice")]
    store.delete(("user", "alice"), "memory-07")
    assert store.get(("user", "alice"), "memory-07") is None
    setting.assert_stored(table, {"user:alice": 19})
    store.client.close()
