"""The faces, each in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import boto3
import pytest
from moto import mock_aws

from tests.functional.contract.faces import AsyncFace, Face, SyncFace

FACES = ["sync"]
if find_spec("aiobotocore") is not None:
    FACES.append("aio")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.aio if name == "aio" else ()) for name in FACES],
)
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Each face over a moto that may hold other tests' tables; aio is left out where aiobotocore is not installed."""
    with _sync() if request.param == "sync" else _aio(request.getfixturevalue("moto_endpoint")) as made:
        yield made


@contextmanager
def _sync() -> Iterator[Face]:
    with mock_aws():
        yield SyncFace(boto3.resource("dynamodb"))


@contextmanager
def _aio(endpoint: str) -> Iterator[Face]:
    from aiobotocore.session import get_session

    loop = asyncio.new_event_loop()
    resource = boto3.resource("dynamodb", endpoint_url=endpoint)
    opening = get_session().create_client("dynamodb", endpoint_url=endpoint)
    client = loop.run_until_complete(opening.__aenter__())
    try:
        yield AsyncFace(resource, client, loop)
    finally:
        loop.run_until_complete(opening.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        resource.meta.client.close()
