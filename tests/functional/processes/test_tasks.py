"""Tasks in real processes."""

from __future__ import annotations

import os

import boto3
import pytest

from shardkit import ShardkitError, StagingError
from shardkit.runtime.tasks import Task, Tasks
from tests.support.tasks import doubled, endpoint_of, killed, refused


def test_processes_run_tasks() -> None:
    told: list[int] = []
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9")
    with Tasks(2, "the test") as tasks:
        given: list[Task] = [(doubled, (number,)) for number in range(20)]
        results = list(tasks.run(given, told.append))
        assert sorted(number for _, number in results) == list(range(0, 40, 2))
        assert sorted(told) == list(range(20))
        assert os.getpid() not in {pid for pid, _ in results}
        # The same processes go on: with a client of their own, and with the error of one of them.
        assert list(tasks.run([(endpoint_of, (client,))], told.append)) == ["http://127.0.0.1:9"]
        with pytest.raises(StagingError, match="no room") as it:
            list(tasks.run([(refused, ())], told.append))
        assert it.value.report == {"items": 3}
        with pytest.raises(ShardkitError, match=r"^a process of the test ended with exit code -?9\..*fewer processes"):
            list(tasks.run([(killed, ())], told.append))
    client.close()


def test_what_cannot_be_sent() -> None:
    tasks = Tasks(1, "the test")
    assert not tasks.can_send((doubled, (lambda: 1,)))
    with open(os.devnull) as file:  # noqa: PTH123 - any open file
        assert not tasks.can_send((doubled, (file,)))
    assert tasks.can_send((doubled, (1,)))
