"""The faces, each in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import boto3
import pytest
from moto import mock_aws

from tests.functional.contract.faces import AsyncFace, Face, InstalledFace, SyncFace

ASYNC = ("aio", "installed aio client")
FACES = ["sync", "installed client", "installed resource"]
if find_spec("aiobotocore") is not None:
    FACES += ASYNC


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.aio if name in ASYNC else ()) for name in FACES],
)
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Each face over a moto that may hold other tests' tables; aio is left out where aiobotocore is not installed."""
    name: str = request.param
    with _aio(name, request.getfixturevalue("moto_endpoint")) if name in ASYNC else _sync(name) as made:
        yield made


@contextmanager
def _sync(name: str) -> Iterator[Face]:
    with mock_aws():
        plain = boto3.resource("dynamodb")
        if name == "sync":
            yield SyncFace(plain)
        else:
            yield InstalledFace(
                plain, boto3.client("dynamodb") if name == "installed client" else boto3.resource("dynamodb")
            )


@contextmanager
def _aio(name: str, endpoint: str) -> Iterator[Face]:
    from aiobotocore.session import get_session

    loop = asyncio.new_event_loop()
    resource = boto3.resource("dynamodb", endpoint_url=endpoint)
    opening = get_session().create_client("dynamodb", endpoint_url=endpoint)
    client = loop.run_until_complete(opening.__aenter__())
    try:
        if name == "aio":
            yield AsyncFace(resource, client, loop)
        else:
            yield InstalledFace(resource, client, loop.run_until_complete)
    finally:
        loop.run_until_complete(opening.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        resource.meta.client.close()
