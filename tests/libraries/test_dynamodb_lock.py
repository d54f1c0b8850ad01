"""python-dynamodb-lock: locks under one key, over a resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installed import Setting

pytest.importorskip("python_dynamodb_lock")

from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient, DynamoDBLockError

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb.service_resource import Table

AT_ONCE = {"retry_period": timedelta(seconds=1), "retry_timeout": timedelta(milliseconds=1)}
"""A lock that is taken is not waited for (a timeout of 0 means the default)."""


@pytest.fixture
def table(setting: Setting) -> Table:
    return setting.make_table("lock_key", "sort_key")


@pytest.fixture
def make_owner(setting: Setting, table: Table, boto3_session: boto3.Session) -> Iterator[Callable[[str], Any]]:
    resource = boto3_session.resource("dynamodb", endpoint_url=setting.url)
    with setting.install(resource, table.name, by="sort_key"), ExitStack() as stack:

        def make(name: str) -> Any:
            executor = stack.enter_context(ThreadPoolExecutor(1))
            owner = DynamoDBLockClient(
                resource,
                table.name,
                owner_name=name,
                heartbeat_period=timedelta(milliseconds=50),
                app_callback_executor=executor,
            )
            stack.callback(owner.close, release_locks=True)
            return owner

        yield make
    resource.meta.client.close()


def test_locks(setting: Setting, table: Table, make_owner: Callable[[str], Any]) -> None:
    one, two = make_owner("one"), make_owner("two")
    locks = [one.acquire_lock("jobs", f"job-{number}", additional_attributes={"n": number}) for number in range(12)]
    setting.assert_stored(table, {"jobs": 12})
    with pytest.raises(DynamoDBLockError) as taken:
        two.acquire_lock("jobs", "job-7", **AT_ONCE)
    assert taken.value.code == DynamoDBLockError.ACQUIRE_TIMEOUT
    locks[7].release(best_effort=False)
    with two.acquire_lock("jobs", "job-7", **AT_ONCE) as lock:
        assert (lock.partition_key, lock.sort_key, lock.owner_name) == ("jobs", "job-7", "two")
    setting.assert_stored(table, {"jobs": 11})
    one.close(release_locks=True)
    setting.assert_stored(table, {})
