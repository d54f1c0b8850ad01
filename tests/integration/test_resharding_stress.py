"""A table that goes through all stages on real engines, under threads of every face, while movers crash."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from shardkit import CalculatedSuffix, Unsharded
from tests.functional.contract.faces import AsyncFace, Face, InstalledFace, SyncFace
from tests.support.engines import ENGINES, EngineName
from tests.support.stressed import PHASES, Stress
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


def _operations() -> int:
    """Return how many to make, by profile of hypothesis."""
    examples = settings.default.max_examples if settings.default else 30
    return 150 if examples <= 30 else 5_000 if examples <= 250 else 40_000


# In a usual run, one engine is enough.
@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.integration) for name in ENGINES[: 1 if _operations() < 5_000 else 2]]
)
def engine_name(request: pytest.FixtureRequest) -> EngineName:
    name: EngineName = request.param
    return name


@pytest.mark.long_search
def test_all_stages(
    boto3_session: boto3.Session, engine_resource: DynamoDBServiceResource, engine_name: EngineName
) -> None:
    """Every item's operations have an order that explains every answer, and no item is left behind."""
    table = make_table(engine_resource, sort_key=("sk", "S"))
    local = engine_name == "dynamodb_local"
    client = boto3_session.client("dynamodb", endpoint_url=engine_resource.meta.client.meta.endpoint_url)
    stress = Stress(table, client, Unsharded(), CalculatedSuffix("sk", 3), seed=1, deleted=not local)
    with ExitStack() as stack:
        faces = [stack.enter_context(one) for one in _faces(boto3_session, engine_resource)]
        stress.run(faces, -(-_operations() // (len(faces) * len(PHASES))))
    client.close()
    assert stress.problems == []
    assert stress.judged() == []
    left = [item for item in table.scan(ConsistentRead=True)["Items"] if "." not in str(item["pk"])]
    assert left == []
    print(stress.done.total(), "operations,", stress.crashes, "crashes", dict(stress.done))  # noqa: T201


def _faces(session: boto3.Session, resource: Any) -> Iterator[Any]:
    endpoint = resource.meta.client.meta.endpoint_url
    for name in ("client", "direct", "client", "installed client", "installed resource"):
        yield _sync(session, endpoint, name)
    if find_spec("aiobotocore") is not None:
        yield _aio(session, endpoint, "client")
        yield _aio(session, endpoint, "direct")


@contextmanager
def _sync(session: boto3.Session, endpoint: str, name: str) -> Iterator[Face]:
    resource = session.resource("dynamodb", endpoint_url=endpoint)
    target: Any = resource
    if name == "installed client":
        target = session.client("dynamodb", endpoint_url=endpoint)
    yield SyncFace(resource, name) if name in {"client", "direct"} else InstalledFace(resource, target)  # type: ignore[arg-type]
    resource.meta.client.close()
    if target is not resource:
        target.close()


@contextmanager
def _aio(session: boto3.Session, endpoint: str, transport: Any) -> Iterator[Face]:
    from aiobotocore.session import get_session

    loop = asyncio.new_event_loop()
    opening = get_session().create_client("dynamodb", endpoint_url=endpoint)
    client = loop.run_until_complete(opening.__aenter__())
    resource = session.resource("dynamodb", endpoint_url=endpoint)
    yield AsyncFace(resource, client, loop, transport)
    resource.meta.client.close()
    loop.run_until_complete(opening.__aexit__(None, None, None))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
