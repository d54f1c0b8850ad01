"""Loads by several processes that cannot work: said before anything is read or written."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import boto3
import pytest

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    ConfigurationError,
    MissingCredentialsError,
    ShardedTable,
    bulk_load,
)
from tests.support.fakes import connected
from tests.support.loading import Job, some, stored, write_orders

ROOT = Path(__file__).resolve().parents[3]


def elsewhere(endpoint: str) -> Any:
    return boto3.client("dynamodb", endpoint_url=endpoint, region_name="eu-central-1")


def without_credentials(endpoint: str) -> Any:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del os.environ[name]
    return boto3.client("dynamodb", endpoint_url=endpoint, region_name="us-east-1")


def no_client() -> Any:
    return "Orders"


def refusing() -> Any:
    raise PermissionError("no key")


class HomemadeError(Exception):
    """Its pickle cannot be read again: it is not made of its ``args``."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)


def homemade(endpoint: str) -> Any:
    """A client with a handler of the user's."""
    client = boto3.client("dynamodb", endpoint_url=endpoint, region_name="us-east-1")

    def refuse(**_: Any) -> None:
        raise HomemadeError(7, "not on Sundays")

    client.meta.events.register("before-call.dynamodb.BatchWriteItem", refuse)
    return client


@pytest.mark.parametrize(
    ("connect", "kind", "says"),
    [
        (elsewhere, ConfigurationError, r"'Orders-\w+'.*ResourceNotFoundException.* give connect="),
        (without_credentials, MissingCredentialsError, "Unable to locate credentials.* give connect="),
        (no_client, ConfigurationError, "connect: must return a boto3 client, got 'Orders'"),
        (refusing, ConfigurationError, "PermissionError: no key"),
    ],
)
def test_a_process_that_does_not_reach_the_table(
    job: Job, connect: Callable[..., Any], kind: type[ConfigurationError], says: str
) -> None:
    """It is said before anything is read or written."""
    table = connected(job.endpoint).Table(job.table)
    made = partial(connect, job.endpoint) if connect in {elsewhere, without_credentials} else connect
    source = iter(some(10))
    with pytest.raises(kind, match=says.replace(r"Orders-\w+", job.table)):
        bulk_load(table, source, processes=1, connect=made)
    assert len(list(source)) == 10
    table.meta.client.close()


def test_a_table_of_the_same_name_elsewhere_is_another_table(job: Job) -> None:
    """Credentials of another account, or moto in this process only, must not make the load write there."""
    there = boto3.resource("dynamodb", endpoint_url=job.endpoint, region_name="eu-central-1")
    here = connected(job.endpoint).Table(job.table)
    there.create_table(
        TableName=job.table,
        KeySchema=here.key_schema,
        AttributeDefinitions=here.attribute_definitions,
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(ConfigurationError, match=r"reaches another table .*eu-central-1.*us-east-1.* give connect="):
        bulk_load(here, some(10), processes=1, connect=partial(elsewhere, job.endpoint))
    assert there.Table(job.table).scan()["Count"] == here.scan()["Count"] == 0
    for client in (here.meta.client, there.meta.client):
        client.close()


def test_the_users_handlers_in_a_process(job: Job) -> None:
    """The client that connect= creates has its own handlers; whatever they raise is reported."""
    table = connected(job.endpoint).Table(job.table)
    with pytest.raises(BulkLoadError, match="HomemadeError: not on Sundays"):
        bulk_load(table, some(10), processes=1, connect=partial(homemade, job.endpoint))
    table.meta.client.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processes": 0}, "processes: must be an integer from 1 to 256 .*, got 0"),
        ({"processes": True}, "processes: must be an integer from 1 to 256 .*, got True"),
        ({"processes": 4, "workers": 3}, "workers: 3 is less than processes=4"),
        ({"connect": no_client}, "give processes= too"),
        ({"processes": 2, "connect": "Orders"}, "connect: must be a function .*, got 'Orders'"),
        ({"processes": 2, "connect": lambda: None}, "connect: .* cannot be pickled.*top level of a module"),
    ],
)
def test_arguments_that_cannot_work(orders: ShardedTable, options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        bulk_load(orders, some(10), **options)


@pytest.mark.parametrize("options", [{}, {"processes": 2}])
def test_an_async_table_is_refused(options: Any) -> None:
    """Its client is an async context manager: every client has a class of its own."""
    from shardkit import aio as shardkit_aio  # not in each process that imports this file

    client: Any = boto3.client("dynamodb", region_name="us-east-1")
    type(client).__aenter__ = None
    table: Any = shardkit_aio.ShardedTable(client, CalculatedSuffix("OrderId", 2), table_name="Orders")
    for wrap in (lambda: bulk_load(table, some(10), **options), lambda: ShardedTable(table.table, table.strategy)):
        with pytest.raises(ConfigurationError, match=r"must be a boto3 Table, got .+ or use shardkit\.aio"):
            wrap()


SCRIPT = """
    import boto3
    from shardkit import bulk_load

    table = boto3.resource("dynamodb", endpoint_url={endpoint!r}, region_name="us-east-1").Table({table!r})
    print(bulk_load(table, [{{"Date": "2014-07-09", "OrderId": 1}}], processes=1))
"""


def test_a_script_without_its_guard(job: Job) -> None:
    """Each process imports the script, which would load again: refused, and said why."""
    script = job.folder / "script.py"
    script.write_text(dedent(SCRIPT).format(endpoint=job.endpoint, table=job.table), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 1
    assert "does so under `if __name__ == '__main__':`" in ended.stderr.splitlines()[-1]
    assert stored(job.endpoint, job.table, job.strategy) == []


def test_a_process_of_a_pool_cannot_start_others(job: Job) -> None:
    write_orders(job.folder / "orders.jsonl", 10, bad=0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(ConfigurationError, match="not in a process of a pool"):
            pool.apply(job.run, kwds={"processes": 1})
        pool.close()
        pool.join()
