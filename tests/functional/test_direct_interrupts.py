"""Runs over the direct transport that are interrupted, closed, forked or held up: no answer goes to another request."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import repeat
from types import FrameType, SimpleNamespace
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.runtime import connections, direct, exchange
from shardkit.runtime.direct import DirectDriver
from tests.support.raw_server import Part, RawServer, http

SHARDS = 4
DAY = Key("Date").eq("2014-07-09")
SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "Id", "AttributeType": "S"},
    ],
}
_session = boto3.session.Session("AKID", "secret", region_name="eu-west-1")


class Orders:
    """A table with one item in each shard, over a server that answers when it may.

    Attributes:
        count: How many requests came.
        hold: From this request on, answers wait for ``may``.
        keys: The stored keys that were asked for, each once.
    """

    def __init__(self) -> None:
        self.count = 0
        self.hold = sys.maxsize
        self.may = threading.Event()
        self.held = threading.Semaphore(0)
        self.sent = threading.Event()
        self.keys: list[str] = []
        self.wanted: list[Any] = []
        self._lock = threading.Lock()

    def respond(self, _: bytes, body: bytes) -> list[Part]:
        with self._lock:
            self.count += 1
            number = self.count  # of this request: another may come before its answer is made
        key = next(part for part in body.decode().split('"') if part.startswith("2014-07-09"))
        if key not in self.keys:
            self.keys.append(key)
        item = f'{{"Date":{{"S":"{key}"}},"Id":{{"S":"{key[-1]}"}}}}'
        answer = http(f'{{"Items":[{item}],"Count":1,"ScannedCount":1}}'.encode())
        return [self._wait, answer, self.sent.set] if number >= self.hold else [answer]

    def _wait(self) -> None:
        self.held.release()
        self.may.wait(30)

    def read(self) -> list[Any]:
        return [item["Id"] for item in self.table.query(KeyConditionExpression=DAY)["Items"]]

    table: ShardedTable


@pytest.fixture
def orders() -> Iterator[Orders]:
    with opened() as orders:
        yield orders


@contextmanager
def opened() -> Iterator[Orders]:
    orders = Orders()
    with RawServer(repeat(orders.respond)) as server:
        resource = _session.resource("dynamodb", endpoint_url=server.url)
        strategy = CalculatedSuffix("Id", shards=SHARDS)
        orders.table = ShardedTable(resource.Table("T"), strategy, key_schema=SCHEMA, transport="direct")
        orders.wanted = orders.read()
        assert len(orders.wanted) == SHARDS
        assert orders.read() == orders.wanted
        orders.count = 0
        yield orders
        orders.may.set()
        orders.table.runner.executor().shutdown()
        resource.meta.client.close()


FILES = {module.__file__ for module in (connections, direct, exchange)}


class Interruption:
    """Raises KeyboardInterrupt once, at the n-th line that this thread runs in the transport."""

    def __init__(self, line: int) -> None:
        self.left = line
        self._in_finalizer = 0

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_name == "__del__":  # Python would only report it
            self._in_finalizer += 1
        return self._line if frame.f_code.co_filename in FILES else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "return" and frame.f_code.co_name == "__del__":
            self._in_finalizer -= 1
        if event == "line" and not self._in_finalizer:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self._line


def lines(orders: Orders) -> int:
    """Return how many lines a read runs."""
    counting = Interruption(sys.maxsize)
    with counting:
        orders.read()
    return sys.maxsize - counting.left


def interrupt(orders: Orders, line: int) -> None:
    """Interrupt a read; the next reads are right."""
    with suppress(KeyboardInterrupt), Interruption(line):
        assert orders.read() == orders.wanted
    assert [orders.read() for _ in range(2)] == [orders.wanted] * 2


# Between two lines, a socket has no owner yet that could close it.
unclosed = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
# Where a generator ends early, Python only reports an exception.
reported = pytest.mark.filterwarnings("ignore:.*Connections._reused:pytest.PytestUnraisableExceptionWarning")


@unclosed
@reported
@pytest.mark.long_search
def test_an_interruption_at_any_line_leaves_no_answer_to_another_request(orders: Orders) -> None:
    @given(st.integers(1, lines(orders)))
    def at(line: int) -> None:
        interrupt(orders, line)

    at()
    gc.collect()  # here, where sockets without an owner are no error


def test_a_handler_that_is_interrupted(orders: Orders) -> None:
    events = orders.table.meta.client.meta.events
    for event in ("before-call", "before-send", "after-call"):
        raising = [KeyboardInterrupt]

        def interrupt(raising: list[Any] = raising, **_: Any) -> None:
            if raising:
                raise raising.pop()

        events.register(f"{event}.dynamodb.Query", interrupt)
        with pytest.raises(KeyboardInterrupt):
            orders.read()
        assert [orders.read() for _ in range(2)] == [orders.wanted] * 2
        events.unregister(f"{event}.dynamodb.Query", interrupt)


def test_a_fan_out_within_a_fan_out(orders: Orders) -> None:
    inner: list[Any] = []
    asking = [True]

    def ask(**_: Any) -> None:
        if asking:
            asking.clear()
            inner.append(orders.read())

    orders.table.meta.client.meta.events.register("after-call.dynamodb.Query", ask)
    assert orders.read() == orders.wanted
    assert inner == [orders.wanted]


def test_an_answer_that_came_in_time_is_read_though_a_handler_took_long(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(direct, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=None))

    def take_long(**_: Any) -> None:
        orders.may.set()
        orders.sent.wait(10)
        clock[0] += 3600

    orders.hold = SHARDS
    orders.table.meta.client.meta.events.register("after-call.dynamodb.Query", take_long)
    assert orders.read() == orders.wanted
    assert orders.count == SHARDS


def test_an_iterator_that_another_thread_closes_while_it_reads(orders: Orders) -> None:
    orders.hold = 1
    items = orders.table.query_items(KeyConditionExpression=DAY)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(items))
    reader.start()
    assert orders.held.acquire(timeout=10)
    items.close()
    orders.may.set()
    reader.join(30)
    assert not reader.is_alive()
    assert [item["Id"] for item in found] in ([], orders.wanted)
    assert [orders.read() for _ in range(2)] == [orders.wanted] * 2


class Two:
    """A machine of two requests, with a result after each answer."""

    def __init__(self, orders: Orders) -> None:
        self._send = [Send("Query", _query(key)) for key in orders.keys[:2]]
        self.answers: list[Answer] = []
        self._shown = 0

    def next(self, now: float) -> Send | Wait | Done[Answer]:
        if self._send:
            return self._send.pop()
        if len(self.answers) > self._shown:
            self._shown += 1
            return Done(self.answers[self._shown - 1])
        return Wait(None)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.answers.append(answer)


def _query(key: str) -> dict[str, Any]:
    return {
        "TableName": "T",
        "KeyConditionExpression": "#d = :d",
        "ExpressionAttributeNames": {"#d": "Date"},
        "ExpressionAttributeValues": {":d": {"S": key}},
    }


def test_a_driver_that_runs_on_after_an_interruption_answers_each_request_once(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load's driver runs on after Ctrl-C. It sends the interrupted request again, and drops the first answer."""
    machine = Two(orders)
    driver: Any = orders.table.runner.driver(machine)
    watch: Any = vars(DirectDriver)["_watch"]

    def interrupted(*arguments: Any) -> None:
        watch(*arguments)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(DirectDriver, "_watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        driver.run()
    first, second = driver.run(), driver.run()
    assert first["Items"] != second["Items"]
    assert len(machine.answers) == 2
    driver.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("does", ["closes", "reads", "collects"])
def test_a_child_leaves_what_is_under_way_to_its_parent(orders: Orders, does: str) -> None:
    """Sockets and the kernel's selector are shared: what the child takes or unregisters, the parent would lose."""
    orders.hold = 2
    driver: Any = orders.table.runner.driver(Two(orders))
    assert isinstance(driver, DirectDriver)
    first = driver.run()
    assert orders.held.acquire(timeout=10)
    child = os.fork()
    if child == 0:
        failed = True
        try:
            if does == "closes":
                driver.close()
            elif does == "reads":
                orders.hold = sys.maxsize
                assert isinstance(driver.run(), dict)
            else:
                del driver
            failed = False
        finally:
            os._exit(failed)
    if does != "reads":
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    orders.may.set()
    second = driver.run()
    if does == "reads":
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    keys = [answer["Items"][0]["Date"]["S"] for answer in (first, second)]
    assert sorted(keys) == sorted(orders.keys[:2])
    driver.close()
    assert orders.read() == orders.wanted


def test_threads_share_a_table_and_its_connections_even_after_its_client_was_closed(orders: Orders) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: orders.read(), range(40))) == [orders.wanted] * 40
    orders.table.meta.client.close()
    assert orders.read() == orders.wanted
    assert orders.count == 41 * SHARDS
