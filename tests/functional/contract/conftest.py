"""The faces, each in turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import boto3
import pytest
from moto import mock_aws

from shardkit.runtime.targets import client_of
from tests.functional.contract.faces import ASYNC, FACES, WHOLE, AsyncFace, Face, InstalledFace, SyncFace

ENGINE = os.environ.get("SHARDKIT_CONTRACT_ENGINE")
"""The engine instead of moto: dynoxide or dynamodb_local. CI runs the suite on each."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ENGINE is not None:
        return
    left: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        (left if _left_out(item) else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _left_out(item: Any) -> bool:
    return item.get_closest_marker("few_faces") is not None and item.callspec.params["face"] not in WHOLE


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.aio if name in ASYNC else ()) for name in FACES],
)
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Each face, over an engine that may hold other tests' tables; aio only where aiobotocore is installed."""
    name: str = request.param
    endpoint: str | None = None
    if ENGINE is not None:
        endpoint = request.getfixturevalue("engine_endpoint")(ENGINE)
    elif name in ASYNC:
        endpoint = request.getfixturevalue("moto_endpoint")
    with _aio(name, endpoint) if name in ASYNC else _sync(name, endpoint) as made:
        yield made


@contextmanager
def _sync(name: str, endpoint: str | None) -> Iterator[Face]:
    with mock_aws() if endpoint is None else nullcontext():
        plain = boto3.resource("dynamodb", endpoint_url=endpoint)
        make = boto3.client if name == "installed client" else boto3.resource
        target: Any = make("dynamodb", endpoint_url=endpoint)
        if name in {"sync", "direct"}:
            yield SyncFace(plain, "direct" if name == "direct" else "client")
        else:
            yield InstalledFace(plain, target)
        for client in (plain.meta.client, client_of(target)):
            client.close()


@contextmanager
def _aio(name: str, endpoint: str | None) -> Iterator[Face]:
    from aiobotocore.session import get_session

    loop = asyncio.new_event_loop()
    resource = boto3.resource("dynamodb", endpoint_url=endpoint)
    opening = get_session().create_client("dynamodb", endpoint_url=endpoint)
    client = loop.run_until_complete(opening.__aenter__())
    try:
        if name in {"aio", "direct aio"}:
            yield AsyncFace(resource, client, loop, "direct" if name == "direct aio" else "client")
        else:
            yield InstalledFace(resource, client, loop.run_until_complete)
    finally:
        loop.run_until_complete(opening.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        resource.meta.client.close()
