"""A fan-out through boto3, over real HTTP: shards that are throttled, hang and fail, and streams that read ahead."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError

from shardkit import CalculatedSuffix, CapacityMeter, RandomSuffix, ShardedTable
from shardkit.errors import ConfigurationError, CursorError, ShardQueryError, UnsupportedParameterError
from tests.support.fakes import timeless
from tests.support.wire import THROTTLE, Service, error, serving

SHARDS = 4
K = Key("pk").eq("k")
SCHEMA = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "N"},
    ],
}
TIMEOUT = 30
Answer = Callable[[int, int], Any]
"""(shard, number of its request from 1): a status and a body, or None for the page itself."""


class Orders:
    """40 items over 4 shards, in pages of at most ``most``."""

    def __init__(self, answer: Answer, most: int = 100) -> None:
        self.asked: Counter[int] = Counter()
        self._answer = answer
        self._most = most
        self._lock = threading.Lock()

    def __call__(self, operation: str, body: Any) -> Any:
        assert operation == "Query"
        (stored,) = (value["S"] for value in body["ExpressionAttributeValues"].values() if "S" in value)
        shard = int(stored.rsplit(".", 1)[1])
        with self._lock:
            self.asked[shard] += 1
            nth = self.asked[shard]
        return self._answer(shard, nth) or (200, self.page(shard, body))

    def page(self, shard: int, body: Any) -> Any:
        after = body.get("ExclusiveStartKey")
        items = [
            {"pk": {"S": f"k.{shard}"}, "sk": {"N": str(number)}}
            for number in range(shard - 1, 40, SHARDS)
            if after is None or number > int(after["sk"]["N"])
        ]
        page = items[: min(self._most, body.get("Limit", self._most))]
        more = {"LastEvaluatedKey": page[-1]} if len(page) < len(items) else {}
        return {"Items": page, "Count": len(page), "ScannedCount": len(page), **more}


@contextmanager
def orders(answer: Answer = lambda *_: None, most: int = 100) -> Iterator[tuple[ShardedTable, Orders, Service]]:
    shards = Orders(answer, most)
    with serving(shards) as service:
        resource = boto3.resource(
            "dynamodb",
            endpoint_url=service.url,
            config=Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT),
        )
        yield ShardedTable(resource.Table("orders"), RandomSuffix(SHARDS), key_schema=SCHEMA), shards, service
        resource.meta.client.close()


def sort_keys(items: Any) -> list[int]:
    return [int(item["sk"]) for item in items]


def test_the_first_throttle_is_seen_and_only_its_shard_waits() -> None:
    """It is not botocore that retries it, but shardkit, on its own clock."""
    with orders(lambda shard, nth: error(THROTTLE) if shard == 2 and nth <= 3 else None) as (table, shards, _):
        clock = timeless(table)
        assert sort_keys(table.query(KeyConditionExpression=K)["Items"]) == list(range(40))
        assert shards.asked == {1: 1, 2: 4, 3: 1, 4: 1}
        assert len(clock.sleeps) == 3


def test_botocores_own_retries_and_those_of_shardkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Botocore's default depends on its version, as docs/reference/reads.md says; a fan-out's retries do not."""
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    standard = tuple(map(int, boto3.__version__.split(".")[:2])) >= (1, 44)
    with serving(lambda *_: error(THROTTLE)) as service:
        resource = boto3.resource("dynamodb", endpoint_url=service.url)
        table = ShardedTable(resource.Table("orders"), CalculatedSuffix("sk", 1), key_schema=SCHEMA)

        def requests(call: Callable[[], object]) -> int:
            service.clear()
            with pytest.raises(ClientError, match=THROTTLE):
                call()
            return len(service.requests)

        read = partial(table.get_item, Key={"pk": "k", "sk": 1})
        config: Any = resource.meta.client.meta.config
        assert config.retries["mode"] == ("standard" if standard else "legacy")
        assert requests(read) == (4 if standard else 10)
        if standard:
            assert all(wait < most for wait, most in zip(waits, (1, 2, 4), strict=True))
        else:
            assert sum(waits) == pytest.approx(25.55)
        # The quota of mode standard: 100 retries of throttles without a success.
        assert sum(requests(read) for _ in range(40)) == (40 + 97 if standard else 400)
        timeless(table)
        assert requests(partial(table.query, KeyConditionExpression=K)) == 10
        resource.meta.client.close()


def test_a_shard_that_fails() -> None:
    """By default an error with which and why and the others' items; a view may take those without it."""
    with orders(lambda shard, _: error("InternalServerError") if shard == 2 else None) as (table, _, _):
        with pytest.raises(ShardQueryError, match=r"1 of 4 shards failed \(shard 2: InternalServerError") as caught:
            table.query(KeyConditionExpression=K)
        without = [number for number in range(40) if number % SHARDS != 1]
        assert sort_keys(caught.value.partial_items) == without
        view = table.with_options(on_shard_error="partial")
        page = view.query(KeyConditionExpression=K, ReturnShards=True)
        assert sort_keys(page["Items"]) == without
        assert {1, 3, 4} == set(page["Shards"])
        assert isinstance(page["ShardErrors"][2], ClientError)
        stream = view.query_items(KeyConditionExpression=K)
        assert stream.shard_errors == {}
        assert sort_keys(stream) == without
        assert stream.shard_errors.keys() == {2}
        with pytest.raises(ShardQueryError):
            table.query(KeyConditionExpression=K)


def test_no_errors_no_key() -> None:
    """A whole answer says nothing of errors."""
    with orders() as (table, _, _):
        assert "ShardErrors" not in table.with_options(on_shard_error="partial").query(KeyConditionExpression=K)


@pytest.mark.parametrize("connections", [2, 10])
def test_a_deadline_ends_the_fan_out_whatever_hangs(connections: int) -> None:
    """Also with fewer connections than shards, of which each waits for one that hangs."""
    go = threading.Event()

    def hang(shard: int, _: int) -> Any:
        return (go.wait(TIMEOUT), None)[1] if shard <= 2 else None

    with orders(hang) as (table, _, _):
        try:
            view = table.with_options(timeout=0.3, max_concurrency=connections)
            with pytest.raises(ShardQueryError, match=r"did not answer within 0\.3 seconds") as caught:
                view.query(KeyConditionExpression=K)
            assert caught.value.errors.keys() == ({1, 2, 3, 4} if connections == 2 else {1, 2})
            assert all(isinstance(one, TimeoutError) for one in caught.value.errors.values())
            one = table.with_options(timeout=0.1)
            with pytest.raises(ShardQueryError, match=r"0\.1 seconds"):
                one.query(KeyConditionExpression=K, Shard=1)
        finally:
            go.set()


def test_a_deadline_for_batches() -> None:
    """Reads by key keep it too."""
    go = threading.Event()
    with serving(lambda *_: (go.wait(TIMEOUT), (200, {"Responses": {}}))[1]) as service:
        client = boto3.resource("dynamodb", endpoint_url=service.url)
        table = ShardedTable(client.Table("orders"), CalculatedSuffix("sk", SHARDS), key_schema=SCHEMA)
        try:
            with pytest.raises(ShardQueryError, match=r"0\.1 seconds"):
                table.with_options(timeout=0.1).batch_get_items([{"pk": "k", "sk": 1}])
        finally:
            go.set()


def test_the_next_pages_are_fetched_while_the_caller_works() -> None:
    """Before the caller asks for more, the requests for it are out; after close() none is."""
    ahead = threading.Event()

    def note(_: int, nth: int) -> Any:
        if nth == 2:
            ahead.set()

    with orders(note, most=3) as (table, shards, service):
        stream = table.query_items(KeyConditionExpression=K)
        assert next(stream)["sk"] == 0
        assert ahead.wait(TIMEOUT)
        stream.close()
        assert list(stream) == []
        asked = len(service.requests)
        assert sort_keys(table.query_items(KeyConditionExpression=K)) == list(range(40))
        assert len(service.requests) > asked
        assert set(shards.asked) == {1, 2, 3, 4}


def test_a_stream_that_failed_goes_on_from_its_cursor() -> None:
    """What was handed out is not read again; the failed iterator gives no more."""
    with orders(lambda shard, nth: error("InternalServerError") if (shard, nth) == (3, 2) else None, most=3) as (
        table,
        *_,
    ):
        stream = table.query_items(KeyConditionExpression=K)
        found: list[int] = []
        with pytest.raises(ShardQueryError):
            found.extend(int(item["sk"]) for item in stream)
        assert list(stream) == []
        assert stream.last_evaluated_key
        rest = table.query_items(KeyConditionExpression=K, ExclusiveStartKey=stream.last_evaluated_key)
        assert found + sort_keys(rest) == list(range(40))


def test_the_items_are_the_callers() -> None:
    """What the caller does to an item does not move the cursor."""
    with orders(most=3) as (table, *_):
        stream = table.query_items(KeyConditionExpression=K)
        item = [next(stream) for _ in range(5)][-1]
        item["sk"] = 30
        item.pop("pk")
        assert stream.last_evaluated_key
        rest = table.query_items(KeyConditionExpression=K, ExclusiveStartKey=stream.last_evaluated_key)
        assert sort_keys(rest) == list(range(5, 40))


def test_an_interrupted_stream_gives_no_more() -> None:
    """Ctrl-C while an answer is taken must not lose it: the stream has ended, and the cursor goes on."""
    with orders(most=3) as (table, *_):
        interrupting = threading.Event()

        def clock() -> float:
            if interrupting.is_set():
                raise KeyboardInterrupt
            return 0.0

        table.runner.clock = clock
        stream = table.query_items(KeyConditionExpression=K)
        found = [next(stream)["sk"] for _ in range(4)]
        interrupting.set()
        with pytest.raises(KeyboardInterrupt):
            found.extend(item["sk"] for item in stream)
        interrupting.clear()
        assert list(stream) == []
        assert stream.last_evaluated_key
        rest = table.query_items(KeyConditionExpression=K, ExclusiveStartKey=stream.last_evaluated_key)
        assert found + [item["sk"] for item in rest] == list(range(40))


def test_threads_share_a_stream() -> None:
    """Each item goes to one of them, and all of them end."""
    with orders(most=3) as (table, *_):
        stream = table.query_items(KeyConditionExpression=K)
        with ThreadPoolExecutor(4) as pool:
            found = [item["sk"] for part in pool.map(lambda _: list(stream), range(4)) for item in part]
        assert sorted(found) == list(range(40))


def test_a_stream_is_a_context_manager() -> None:
    """Nothing is read after the block."""
    with orders(most=3) as (table, *_), table.query_items(KeyConditionExpression=K) as stream:
        assert next(stream)["sk"] == 0
    assert list(stream) == []


def test_a_cursor_of_one_shard_is_not_one_of_all() -> None:
    """The others' items before it would be left out."""
    with orders(most=3) as (table, *_):
        one = table.query(KeyConditionExpression=K, Shard=3)["LastEvaluatedKey"]
        with pytest.raises(CursorError, match="Shard="):
            table.query(KeyConditionExpression=K, ExclusiveStartKey=one)
        assert table.query(KeyConditionExpression=K, Shard=3, ExclusiveStartKey=one)["Count"] == 3
        merged = table.query(KeyConditionExpression=K)["LastEvaluatedKey"]
        with pytest.raises(CursorError, match="Shard="):
            table.query(KeyConditionExpression=K, Shard=3, ExclusiveStartKey=merged)


@pytest.mark.parametrize("timeout", [float("inf"), 2.0**63])
def test_a_deadline_that_never_comes(timeout: float) -> None:
    """Python's own waits have a bound, which is no bound of a deadline."""
    with orders() as (table, _, _):
        assert table.with_options(timeout=timeout).query(KeyConditionExpression=K)["Count"] == 40


def test_limits_that_no_page_can_fill() -> None:
    """The service takes 32 bits: each shard is asked for what a page can hold at the most."""
    with orders() as (table, _, service):
        assert table.query(KeyConditionExpression=K, Limit=sys.maxsize)["Count"] == 40
        assert len(list(table.query_items(KeyConditionExpression=K, max_items=sys.maxsize))) == 40
    assert {body["Limit"] for _, body in service.requests} == {2**20}


def test_an_event_handler_may_read_what_is_being_read() -> None:
    """Its fan-outs do not wait for the threads that wait for it, however deep: each is in a request of another."""
    inside: ContextVar[int] = ContextVar("inside", default=0)
    counts: list[int] = []

    with orders() as (table, _, _):
        few = table.with_options(max_concurrency=2, timeout=TIMEOUT)

        def read(**_: Any) -> None:
            if inside.get() < 2:
                inside.set(inside.get() + 1)
                counts.append(few.query(KeyConditionExpression=K)["Count"])

        table.meta.client.meta.events.register("before-call.dynamodb.Query", read)
        assert few.query(KeyConditionExpression=K)["Count"] == 40
    assert counts == [40] * (SHARDS + SHARDS**2)


def test_a_view_of_a_view_keeps_its_options() -> None:
    """Only what is given changes."""
    with orders(lambda shard, _: error("InternalServerError") if shard == 2 else None) as (table, *_):
        view = table.with_options(on_shard_error="partial").with_options(max_buffer_bytes=10**6).with_options(timeout=9)
        assert view.query(KeyConditionExpression=K)["ShardErrors"].keys() == {2}


def test_a_view_is_the_same_table() -> None:
    """It shares what the table knows; the table's own options stay."""
    with orders() as (table, _, service):
        view = table.with_options(timeout=5, max_concurrency=1)
        assert (view.name, view.strategy, repr(view)) == (table.name, table.strategy, repr(table))
        assert sort_keys(view.query(KeyConditionExpression=K, Limit=30)["Items"]) == list(range(30))
        assert sort_keys(table.query(KeyConditionExpression=K, Limit=30)["Items"]) == list(range(30))
        # The size of the items was learnt through the view: a whole block each is asked for now.
        first, later = service.requests[0][1]["Limit"], service.requests[-1][1]["Limit"]
        assert first < later


@pytest.mark.parametrize(
    "wrong", [{"timeout": 0}, {"on_shard_error": "skip"}, {"max_concurrency": 0}, {"hedge_after": 0}]
)
def test_options_that_cannot_work(wrong: Any) -> None:
    """They are refused when the view is made."""
    with orders() as (table, _, _), pytest.raises(ConfigurationError, match=next(iter(wrong))):
        table.with_options(**wrong)


def test_an_unknown_parameter_is_refused_before_anything_is_sent() -> None:
    """It is the error that boto3's users know, and of shardkit's family."""
    with orders() as (table, _, service):
        with pytest.raises(ParamValidationError, match="Limt") as caught:
            table.query(KeyConditionExpression=K, Limt=5)  # type: ignore[call-arg]
        assert isinstance(caught.value, UnsupportedParameterError)
        assert service.requests == []


@pytest.mark.parametrize("read", ["query", "query_items"])
def test_a_slow_request_is_not_waited_for_and_the_meter_counts_it(read: str) -> None:
    """A request to shard 2 hangs until it is let go."""
    go = threading.Event()

    def hang(shard: int, nth: int) -> Any:
        return (go.wait(TIMEOUT), None)[1] if (shard, nth) == (2, 11) else None

    with orders(hang) as (table, shards, _):
        view = table.with_options(hedge_after=0.1)
        for _ in range(10):  # which earn two more hedges: a busy machine may be late for another shard
            view.query(KeyConditionExpression=K)
        before = sum(shards.asked.values())
        meter = CapacityMeter()
        with meter.attach(table):
            try:
                items = getattr(view, read)(KeyConditionExpression=K)
                assert sort_keys(items["Items"] if read == "query" else items) == list(range(40))
                assert shards.asked[2] >= 12
                asked = sum(shards.asked.values()) - before
                assert meter.requests < asked
            finally:
                go.set()
            view.runner.executor().shutdown(wait=True)
        assert meter.requests == asked


def test_a_slow_search_that_ends_during_the_write_is_ignored() -> None:
    """An item is located in a hedged read, and written."""
    go = threading.Event()
    searches: list[Any] = []
    key = {"pk": {"S": "k.2"}, "sk": {"N": "1"}}

    def answer(operation: str, body: Any) -> Any:
        if operation == "UpdateItem":
            go.set()
            return 200, {"Attributes": body["Key"]}
        searches.append(body)
        if len(searches) == 1:
            go.wait(TIMEOUT)
        return 200, {"Responses": {"orders": [key]}, "UnprocessedKeys": {}}

    with serving(answer) as service:
        resource = boto3.resource("dynamodb", endpoint_url=service.url)
        table = ShardedTable(resource.Table("orders"), RandomSuffix(SHARDS, locate=True), key_schema=SCHEMA)
        view = table.with_options(hedge_after=0.02)
        updated = view.update_item(
            Key={"pk": "k", "sk": 1}, UpdateExpression="SET a = :a", ExpressionAttributeValues={":a": 1}
        )
        view.runner.executor().shutdown(wait=True)
        resource.meta.client.close()
    assert updated["Attributes"] == {"pk": "k", "sk": 1}
    assert service.operations.count("BatchGetItem") == 2
