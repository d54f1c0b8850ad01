"""A job of a load over moto's server, whose processes must be gone afterwards."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkit import CalculatedSuffix, RandomSuffix, ShardedTable
from tests.support.fakes import connected
from tests.support.loading import Job, make_orders


@pytest.fixture
def job(moto_endpoint: str, tmp_path: Path) -> Job:
    return Job(moto_endpoint, make_orders(moto_endpoint), RandomSuffix(10), tmp_path)


@pytest.fixture
def orders(job: Job) -> Iterator[ShardedTable]:
    resource = connected(job.endpoint)
    yield ShardedTable(resource.Table(job.table), CalculatedSuffix("OrderId", 10))
    resource.meta.client.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Whatever a load met, no process and no thread of it stays behind."""
    yield
    assert multiprocessing.active_children() == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("shardkit-processes")]
