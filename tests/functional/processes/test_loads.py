"""Loads by several processes: what one process promises holds, over HTTP."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import threading
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any

import boto3
import pytest
from botocore.config import Config

from shardkit import BulkLoadError, CalculatedSuffix, CapacityMeter, ShardedTable, bulk_load, streaming_bulk
from shardkit.bulk.writes import EncodedRequests
from shardkit.cli import build_app
from shardkit.dynamodb.body import encode
from shardkit.runtime.processes import alike
from shardkit.sharding.shard_map import MAP
from tests.support.fakes import connected, timeless
from tests.support.loading import SECONDS, Job, linux, some, soon, stored, write_orders
from tests.support.proxy import PASSING, Proxy, Stage, some_faults

LINES = 600


def test_all_is_written_and_metered(job: Job) -> None:
    """Faults of every kind, keys that come again: the last line of each is stored, what failed is in the dead letters.

    The meter on the caller's client sees what the processes carry, as it would see the client's own calls.
    """
    strategy = CalculatedSuffix("OrderId", 10)
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES, again=0.2)
    meter = CapacityMeter()
    # Each once: ten that lose the answer could all meet one batch, which is then given up.
    with Proxy(job.endpoint, some_faults(Random(LINES), len(PASSING) - 1, share=1.0)) as proxy:
        report = replace(job, endpoint=proxy.endpoint, strategy=strategy).run(
            processes=2, meter=meter, write_units=100_000
        )
    assert proxy.counts.keys() == set(PASSING)
    assert stored(job.endpoint, job.table, strategy) == wanted
    assert job.dead == bad
    assert report.items == LINES == report.written + report.failed + report.duplicates
    assert report.throttles > 0 < report.retried
    assert meter.write_units == pytest.approx(report.write_units)
    assert meter.write_units > 0
    assert {key for _, key in meter.by_key} == {MAP, *(f"2014-07-{day}" for day in range(1, 8))}


def test_requests_are_under_way_in_all_processes_at_once(job: Job, orders: ShardedTable) -> None:
    """With one request for each process, none is answered before each process has sent one."""
    both = threading.Barrier(2)

    def meet(_: int, stage: Stage) -> None:
        if stage == "came":
            both.wait(SECONDS)

    with Proxy(job.endpoint, watch=meet) as proxy:
        resource = connected(proxy.endpoint)
        table = ShardedTable(resource.Table(job.table), orders.strategy)
        assert bulk_load(table, some(100), workers=2, processes=2).written == 100
        resource.meta.client.close()
    assert len(list(orders.scan_items())) == 100


def test_a_throttle_is_the_exception_of_the_callers_client(job: Job) -> None:
    """What stops a load is the exception that one process would have given."""
    write_orders(job.folder / "orders.jsonl", 20, bad=0)
    with Proxy(job.endpoint, repeat("throttle")) as proxy, pytest.raises(BulkLoadError) as stopped:
        replace(job, endpoint=proxy.endpoint).run(processes=1)
    assert stopped.value.report is not None
    assert stopped.value.report.stopped == 20
    assert stopped.value.__cause__ is not None
    error = stopped.value.__cause__.__cause__
    client = connected(job.endpoint).meta.client
    assert type(error).__name__ == client.exceptions.ProvisionedThroughputExceededException.__name__
    client.close()


@linux
def test_a_stream_that_is_left_leaves_nothing_behind(job: Job, orders: ShardedTable) -> None:
    """Requests that are under way are not waited for; no file stays open."""

    def files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    orders.table.load()
    hang = threading.Event()
    stages: list[Stage] = []

    def watch(number: int, stage: Stage) -> None:
        stages.append(stage)
        if number > 2 and stage == "came":
            hang.wait(SECONDS)

    multiprocessing.resource_tracker.ensure_running()  # Python's own, for as long as this process lives
    before = files()
    with Proxy(job.endpoint, watch=watch) as proxy:
        resource = connected(proxy.endpoint)
        table = ShardedTable(resource.Table(job.table), orders.strategy)
        stream = streaming_bulk(table, some(500), workers=4, processes=2, window=100)
        assert next(stream).ok
        assert soon(lambda: stages.count("came") > 2)
        stream.close()  # type: ignore[attr-defined]
        assert multiprocessing.active_children() == []
        resource.meta.client.close()
        hang.set()
    assert soon(lambda: files() <= before), (files(), before)


def test_a_meter_sees_the_attempts(job: Job) -> None:
    """What botocore tries again in a process is counted as if the caller's client had done so."""
    seen = []
    for processes in (None, 1):
        meter = CapacityMeter()
        with Proxy(job.endpoint, ["500", "throttle key", "none"]) as proxy:
            config = Config(retries={"total_max_attempts": 2})
            resource = boto3.resource("dynamodb", endpoint_url=proxy.endpoint, config=config)
            table = ShardedTable(resource.Table(job.table), CalculatedSuffix("OrderId", 10))
            timeless(table)
            with meter.attach(table):
                assert bulk_load(table, some(1), processes=processes).written == 1
            assert proxy.counts.total() == 3
            resource.meta.client.close()
        seen.append((meter.retries, meter.throttles, meter.by_operation, meter.by_key))
    assert seen[0] == seen[1]
    assert seen[0][:2] == ({"InternalServerError": 1}, {"TableWriteKeyRangeThroughputExceeded": 1})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"endpoint_url": "http://localhost:8000"},
        {"config": Config(use_fips_endpoint=True, retries={"total_max_attempts": 7})},
        {"config": Config(use_dualstack_endpoint=True, max_pool_connections=50)},
    ],
    ids=["plain", "endpoint_url", "fips", "dual-stack"],
)
def test_a_client_like_the_tables_own(given: dict[str, Any]) -> None:
    """Of the same region, endpoint and configuration, which asks for the same URL, and has connections enough."""
    client = boto3.client("dynamodb", region_name="eu-west-1", **given)
    like_it = pickle.loads(pickle.dumps(alike(client, connections=20)))()  # noqa: S301 - of this test
    asked = []

    def refuse(request: Any, **_: Any) -> None:
        asked.append(request.url)
        raise RuntimeError(request.url)

    for each in (client, like_it):
        each.meta.events.register("before-send.dynamodb", refuse)
        with pytest.raises(RuntimeError, match="://"):
            each.describe_table(TableName="Orders")
        each.close()
    assert len(set(asked)) == 1
    assert like_it.meta.region_name == "eu-west-1"
    config: Any
    config, other = client.meta.config, like_it.meta.config
    assert other.retries == config.retries
    assert other.max_pool_connections == max(20, config.max_pool_connections)


def test_the_command(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    testing = pytest.importorskip("click.testing")
    wanted, _ = write_orders(job.folder / "orders.jsonl", 200, bad=0)
    monkeypatch.chdir(job.folder)
    spread = ["--strategy", '{"type": "RandomSuffix", "shards": 10}']
    processes: set[int] = set()
    with Proxy(job.endpoint, watch=lambda *_: processes.add(len(multiprocessing.active_children()))) as proxy:
        where = ["--table", job.table, "--region", "us-east-1", "--endpoint-url", proxy.endpoint]
        command = ["load", "orders.jsonl", *where, *spread, "--processes", "2", "--json"]
        result = testing.CliRunner().invoke(build_app(), command)
    assert result.exit_code == 0, result.output
    assert processes == {2}
    assert json.loads(result.stdout)["written"] == 200
    assert stored(job.endpoint, job.table, job.strategy) == wanted


def test_a_batch_is_taken_along_as_the_bytes_that_it_is() -> None:
    """To read it and write it again would cost more than the processes save."""
    bodies = [encode({"PutRequest": {"Item": {"Date": {"S": "x" * 1000}, "n": {"N": str(n)}}}}) for n in range(25)]
    taken = pickle.dumps(EncodedRequests(bodies))
    assert all(body in taken for body in bodies)
    assert len(taken) < sum(map(len, bodies)) + 500
    again = pickle.loads(taken)  # noqa: S301 - of this test
    assert encode({"T": again}) == b'{"T":[%b]}' % b",".join(bodies)
