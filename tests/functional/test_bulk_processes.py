"""Loads by several processes: what one process promises holds, over HTTP, whatever becomes of the processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any

import boto3
import pytest
from botocore.config import Config

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    CapacityMeter,
    ConfigurationError,
    InterruptedLoadError,
    MissingCredentialsError,
    RandomSuffix,
    ShardedTable,
    bulk_load,
    streaming_bulk,
)
from shardkit import aio as shardkit_aio
from shardkit.bulk.processes import alike
from shardkit.bulk.writes import EncodedRequests
from shardkit.cli import build_app
from shardkit.codec import encode
from tests.fakes import timeless
from tests.loading import WORKERS, Job, connected, make_orders, stored, write_orders
from tests.proxy import PASSING, Proxy, Stage, some_faults

moto_server = pytest.importorskip("moto.server", exc_type=ImportError)

ROOT = Path(__file__).resolve().parents[2]
LINES = 600
SECONDS = 30.0  # for what takes well under one
linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def job(endpoint: str, tmp_path: Path) -> Job:
    return Job(endpoint, make_orders(endpoint), RandomSuffix(10), tmp_path)


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


def some(count: int) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{number % 7 + 1}", "OrderId": number, "Note": "x" * 40} for number in range(count)]


def soon(holds: Callable[[], bool]) -> bool:
    """Wait until something holds, which another process or thread brings about."""
    until = time.monotonic() + SECONDS
    while not (held := holds()) and time.monotonic() < until:
        threading.Event().wait(0.01)
    return held


# -- what is carried ---------------------------------------------------------------------------------------------------


def test_all_is_written_and_metered(job: Job) -> None:
    """Faults of every kind, keys that come again: the last line of each is stored, what failed is in the dead letters.

    The meter on the caller's client sees what the processes carry, as it would see the client's own calls.
    """
    strategy = CalculatedSuffix("OrderId", 10)
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES, again=0.2)
    meter = CapacityMeter()
    with Proxy(job.endpoint, some_faults(Random(LINES), 90, share=0.8)) as proxy:
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
    assert {key for _, key in meter.by_key} == {f"2014-07-{day}" for day in range(1, 8)}


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
    """What fails for good fails with the exception that one process would have given."""
    write_orders(job.folder / "orders.jsonl", 20, bad=0)
    with Proxy(job.endpoint, repeat("throttle")) as proxy:
        report = replace(job, endpoint=proxy.endpoint).run(processes=1)
    assert report.failed == 20
    error = report.failures[0].error
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
    testing = pytest.importorskip("typer.testing")
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


# -- processes that end ------------------------------------------------------------------------------------------------


class Killer:
    """Kills some of the processes of a load of this process, when so many requests have come."""

    def __init__(self, at: int, count: int) -> None:
        self._at = at
        self._count = count

    def watch(self, number: int, stage: Stage) -> None:
        if (number, stage) == (self._at, "carried out"):
            for process in multiprocessing.active_children()[: self._count]:
                process.kill()


def test_a_killed_process_loses_nothing(job: Job) -> None:
    """Its requests are sent again by the other one; that it ended is said."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    with Proxy(job.endpoint, watch=Killer(5, 1).watch) as proxy, pytest.warns(RuntimeWarning, match="exit code -9"):
        report = replace(job, endpoint=proxy.endpoint).run(processes=2)
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert (report.written, job.dead) == (LINES - len(bad), bad)
    assert 0 < report.retried <= WORKERS * 25


def test_when_all_are_killed_the_load_stops_and_can_be_resumed(job: Job) -> None:
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    with Proxy(job.endpoint, watch=Killer(5, 2).watch) as proxy:
        with pytest.raises(BulkLoadError, match=r"all processes of the load have ended \(exit code -9, exit code -9"):
            replace(job, endpoint=proxy.endpoint).run(processes=2)
        sent = proxy.writes
    report = job.run()
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert report.items + report.resumed == LINES
    assert sent + report.written <= LINES + (1 + WORKERS) * 25


# -- the caller's process ends -----------------------------------------------------------------------------------------


def _in_a_group_of_its_own(job: Job) -> None:
    os.setpgrp()
    job.run(processes=2)


def _alive(group: int) -> list[int]:
    """The processes of a group that have not ended; one that nobody has asked for its exit code has."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8")
        except OSError:
            continue  # it ended just now
        state, _, pgrp = text.rpartition(")")[2].split()[:3]
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@linux
@pytest.mark.parametrize(
    ("signals", "to_all"),
    [([signal.SIGINT], True), ([signal.SIGINT] * 2, True), ([signal.SIGKILL], False)],
    ids=["ctrl-c", "ctrl-c twice", "kill -9"],
)
def test_an_ended_caller_leaves_no_process_and_a_load_to_resume(
    job: Job, signals: list[signal.Signals], to_all: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C goes to the whole group: what is in flight is finished; killed, the caller takes the others along."""
    wanted, bad = write_orders(job.folder / "orders.jsonl", LINES)
    group: list[int] = []
    members: list[int] = []

    def watch(number: int, stage: Stage) -> None:
        if (number, stage) == (5, "came"):
            members.extend(_alive(*group))
            for given in signals:
                (os.killpg if to_all else os.kill)(group[0], given)

    with Proxy(job.endpoint, watch=watch) as proxy:
        process = multiprocessing.get_context("spawn").Process(
            target=_in_a_group_of_its_own, args=(replace(job, endpoint=proxy.endpoint),)
        )
        process.start()
        assert process.pid is not None
        group.append(process.pid)
        process.join()
        assert len(members) >= 3, "the caller and two more"
        assert soon(lambda: not _alive(*group))
        assert process.exitcode == (1 if to_all else -signal.SIGKILL)
        process.close()
    assert "Process shardkit-" not in capfd.readouterr().err, "none of the load's processes was interrupted"
    report = job.run()
    assert stored(job.endpoint, job.table, job.strategy) == wanted
    assert job.dead == bad
    assert report.items + report.resumed == LINES
    if signals == [signal.SIGINT]:
        assert proxy.writes + report.written == LINES - len(bad), "nothing is sent twice"


def test_an_interruption_finishes_what_is_in_flight(job: Job, orders: ShardedTable) -> None:
    """Here Ctrl-C reaches the caller alone; its error holds the report."""
    with Proxy(job.endpoint) as proxy:
        resource = connected(proxy.endpoint)
        table = ShardedTable(resource.Table(job.table), orders.strategy)
        told: list[int] = []

        def interrupt(_: Any) -> None:
            told.append(1)
            if len(told) == 2:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(InterruptedLoadError) as raised:
            bulk_load(table, some(2000), workers=4, processes=2, window=100, progress=interrupt)
        resource.meta.client.close()
    assert raised.value.report is not None
    assert raised.value.report.written == proxy.writes == len(list(orders.scan_items())) < 2000


# -- what cannot work --------------------------------------------------------------------------------------------------


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
        (no_client, ConfigurationError, "connect= gave 'Orders', which is no boto3 client"),
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
    """A client that connect= makes has the handlers that it registers; what they raise is told, whatever it is."""
    table = connected(job.endpoint).Table(job.table)
    with pytest.raises(BulkLoadError, match="HomemadeError: not on Sundays"):
        bulk_load(table, some(10), processes=1, connect=partial(homemade, job.endpoint))
    table.meta.client.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processes": 0}, "processes=0 is not a whole number of at least 1"),
        ({"processes": True}, "processes=True is not"),
        ({"processes": 4, "workers": 3}, "workers=3 is less than processes=4"),
        ({"connect": no_client}, "give processes= too"),
        ({"processes": 2, "connect": "Orders"}, "connect='Orders' is not a function"),
        ({"processes": 2, "connect": lambda: None}, "cannot be taken to another process.*top level of a module"),
    ],
)
def test_arguments_that_cannot_work(orders: ShardedTable, options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        bulk_load(orders, some(10), **options)


def test_an_async_table_has_no_processes() -> None:
    table: Any = object.__new__(shardkit_aio.ShardedTable)
    with pytest.raises(ConfigurationError, match=r"not a boto3 Table; give boto3\.resource"):
        bulk_load(table, some(10), processes=2)


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
