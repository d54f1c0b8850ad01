"""HTTP 200 with a body that is not a DynamoDB answer: a failed attempt, never a success and never an empty page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from shardkit import BulkLoadError, CalculatedSuffix, RandomSuffix, ShardedTable, ShardQueryError, bulk_load
from shardkit.core.machine import Send
from shardkit.runtime.hooks import observe
from tests.functional.test_events_throttles import Seen
from tests.support.fakes import Clock, timeless
from tests.support.wire import ANSWERS, PARAMS, Service, serving, wired

HTML = b"<html><body>Please log in to the network.</body></html>"
NO_JSON = {
    "a page": HTML,
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "cut": b'{"Items": [{"pk": {"S"',
    "no UTF-8": b'{"Items": "\xff"}',
    "too deep": b"[" * 100_000,
}
REQUIRED = {
    "Query": ("Items", "Count"),
    "Scan": ("Items", "Count"),
    "BatchWriteItem": ("UnprocessedItems",),
    "BatchGetItem": ("Responses", "UnprocessedKeys"),
    "TransactGetItems": ("Responses",),
}
LACKING = {
    f"{operation} {what}": (operation, {**ANSWERS[operation], **change})
    for operation, members in REQUIRED.items()
    for member in members
    for what, change in (("without " + member, {member: None}), (f"whose {member} is a text", {member: "x"}))
}
KEY = {"Date": "2014-07-09", "OrderId": "A17"}
ITEMS = [{"Date": "2014-07-09", "OrderId": f"A{number}"} for number in range(10)]
SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in KEY],
}
DAY: dict[str, Any] = {"KeyConditionExpression": Key("Date").eq("2014-07-09")}


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let botocore's own retries follow at once."""

    async def at_once(_: float) -> None:
        return

    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(asyncio, "sleep", at_once)


def in_turn(*answers: Any) -> Callable[..., tuple[int, Any]]:
    left = iter(answers)
    return lambda *_: (200, next(left))


@pytest.mark.parametrize("mode", ["legacy", "standard"])
@pytest.mark.parametrize(
    ("operation", "paced", "body"),
    [
        *(pytest.param("GetItem", False, body, id=what) for what, body in NO_JSON.items()),
        *(pytest.param(operation, True, HTML, id=operation) for operation in PARAMS),
    ],
)
def test_what_is_no_json_object_is_a_failed_attempt(mode: str, operation: str, paced: bool, body: bytes) -> None:
    """It is retried by botocore, as a server error is; observers see it."""
    seen = Seen()
    with wired(attempts=3, mode=mode) as wire:
        observe(wire.client, seen)
        wire.service.answer = in_turn(body, ANSWERS[operation])
        answer = wire.send(Send(operation, PARAMS[operation], paced=paced))
        assert answer.pop("ResponseMetadata")["RetryAttempts"] == 1
        assert answer == ANSWERS[operation]
        wire.service.answer = lambda *_: (200, body)
        wire.service.requests.clear()
        answer = wire.send(Send(operation, PARAMS[operation], paced=paced))
        assert len(wire.service.requests) == 3
    assert isinstance(answer, ClientError)
    assert answer.response["ResponseMetadata"]["HTTPStatusCode"] == 502
    assert f"HTTP 200, but not a DynamoDB answer to {operation}: {body[:100]!r}" in str(answer)
    assert seen.attempts == ["502"] * 4
    assert seen.codes == [None, "502"]


@pytest.mark.parametrize(("operation", "body"), LACKING.values(), ids=LACKING)
def test_an_answer_without_its_required_member_is_a_failed_attempt(operation: str, body: Any) -> None:
    """Every engine sends these members with every answer."""
    with wired(attempts=2) as wire:
        wire.service.answer = in_turn(body, ANSWERS[operation], {}, {})
        answer = wire.send(Send(operation, PARAMS[operation]))
        assert {name: answer[name] for name in REQUIRED[operation]} == {
            name: ANSWERS[operation][name] for name in REQUIRED[operation]
        }
        assert isinstance(wire.send(Send(operation, PARAMS[operation])), ClientError)
        assert len(wire.service.requests) == 4


@pytest.mark.parametrize("operation", ["Query", "Scan"])
def test_a_count_has_no_items(operation: str) -> None:
    """Only ``Count`` is asked of it."""
    with wired(attempts=2) as wire:
        wire.service.answer = in_turn({"Count": 3, "ScannedCount": 3}, {"ScannedCount": 3}, {})
        count = Send(operation, {**PARAMS[operation], "Select": "COUNT"})
        assert wire.send(count)["Count"] == 3
        assert isinstance(wire.send(count), ClientError)


@pytest.mark.parametrize("operation", ["GetItem", "PutItem", "UpdateItem", "DeleteItem"])
def test_an_empty_answer_to_a_single_item_is_one(operation: str) -> None:
    """That is how a missing item, and a write of which nothing was asked, look."""
    with wired() as wire:
        wire.service.answer = lambda *_: (200, {})
        answer = wire.send(Send(operation, PARAMS[operation]))
        assert set(answer) == {"ResponseMetadata"}


@pytest.mark.parametrize("operation", REQUIRED)
def test_where_botocore_reads_the_answer(operation: str) -> None:
    """Without ``before-parse``, or from a stub: it is not retried there, and it is an error all the same."""
    with wired(attempts=2) as wire:
        with Stubber(wire.client) as stubber:
            stubber.add_response(xform_name(operation), {})
            assert isinstance(wire.send(Send(operation, PARAMS[operation])), ClientError)
        wire.client.meta.events.unregister("before-parse", unique_id="shardkit-read")
        wire.service.answer = lambda *_: (200, HTML)
        answer = wire.send(Send(operation, PARAMS[operation]))
    assert isinstance(answer, ClientError)
    assert "not a DynamoDB answer" in str(answer)


# Faces.


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(lambda *_: (200, HTML)) as made:
        yield made


@pytest.fixture
def client(service: Service) -> Iterator[Any]:
    made = boto3.resource(
        "dynamodb", endpoint_url=service.url, config=Config(retries={"total_max_attempts": 2, "mode": "standard"})
    )
    yield made
    made.meta.client.close()


def orders_over(resource: Any, strategy: Any = None) -> tuple[ShardedTable, Clock]:
    table = ShardedTable(resource.Table("Orders"), strategy or CalculatedSuffix("OrderId", 3), key_schema=SCHEMA)
    return table, timeless(table)


@pytest.mark.parametrize("body", [HTML, b"{}"])
def test_a_bulk_load_of_which_nothing_is_stored(client: Any, service: Service, body: bytes) -> None:
    """Nothing is reported as written, and each batch was tried as often as after server errors."""
    service.answer = lambda *_: (200, body)
    orders, clock = orders_over(client)
    with pytest.raises(BulkLoadError, match="not a DynamoDB answer") as raised:
        bulk_load(orders, ITEMS)
    report = raised.value.report
    assert report is not None
    assert (report.written, report.failed) == (0, 10)
    assert clock.sleeps
    assert len(service.operations) == 2 * 10
    with pytest.raises(BulkLoadError, match="not a DynamoDB answer"), orders.batch_writer() as batch:
        batch.put_item(Item=ITEMS[0])


def test_a_bulk_load_that_goes_on(client: Any, service: Service) -> None:
    """A batch that met such an answer is sent again."""
    bodies = chain([HTML, b"{}", HTML], repeat({"UnprocessedItems": {}}))
    service.answer = lambda operation, _: (200, next(bodies) if operation == "BatchWriteItem" else {})
    orders, _ = orders_over(client)
    report = bulk_load(orders, ITEMS)
    assert (report.written, report.retried) == (10, 10)
    assert len(service.operations) == 4


@pytest.mark.parametrize("body", [HTML, b"{}"])
def test_reads_of_many_items(client: Any, service: Service, body: bytes) -> None:
    """None is empty."""
    service.answer = lambda *_: (200, body)
    orders, _ = orders_over(client)
    located, _ = orders_over(client, RandomSuffix(3, locate=True))
    calls: dict[str, Callable[[], Any]] = {
        "query": lambda: orders.query(**DAY),
        "count": lambda: orders.query(**DAY, Select="COUNT"),
        "one shard": lambda: orders.query(**DAY, Shard=1),
        "query_items": lambda: list(orders.query_items(**DAY)),
        "scan": orders.scan,
        "scan count": lambda: orders.scan(Select="COUNT"),
        "scan_items": lambda: list(orders.scan_items(segments=2)),
        "batch_get_items": lambda: orders.batch_get_items([KEY]),
        "located": lambda: located.get_item(Key=KEY),
        "located put": lambda: located.put_item(Item=KEY),
    }
    for name, call in calls.items():
        with pytest.raises(ClientError, match="not a DynamoDB answer"):
            pytest.fail(f"{name}: {call()}")


def test_one_shard_without_an_answer(client: Any, service: Service) -> None:
    """The others' items are in the error, or, where the caller wants them so, in the page with the shard's error."""

    def answer(_: str, body: Any) -> tuple[int, Any]:
        (value,) = body["ExpressionAttributeValues"].values()
        if value["S"].endswith(".2"):
            return 200, HTML
        return 200, {"Items": [{"Date": value, "OrderId": {"S": value["S"][-1]}}], "Count": 1, "ScannedCount": 1}

    service.answer = answer
    orders, _ = orders_over(client)
    with pytest.raises(ShardQueryError, match="not a DynamoDB answer") as raised:
        orders.query(**DAY)
    assert raised.value.errors.keys() == {2}
    page = orders.with_options(on_shard_error="partial").query(**DAY)
    assert [item["OrderId"] for item in page["Items"]] == ["1", "3"]
    assert page["ShardErrors"].keys() == {2}


@pytest.mark.parametrize("body", [HTML, b"", b"null"])
def test_single_items(client: Any, service: Service, body: bytes) -> None:
    """A get does not say that there is no item, and a write does not say that it is done."""
    service.answer = lambda *_: (200, body)
    orders, _ = orders_over(client)
    change: Any = {"UpdateExpression": "SET Amount = :a", "ExpressionAttributeValues": {":a": 1}}
    calls: list[Callable[[], Any]] = [
        lambda: orders.get_item(Key=KEY),
        lambda: orders.put_item(Item=KEY),
        lambda: orders.update_item(Key=KEY, **change),
        lambda: orders.delete_item(Key=KEY),
    ]
    for call in calls:
        with pytest.raises(ClientError, match="not a DynamoDB answer"):
            call()


@pytest.mark.parametrize("body", [HTML, b"{}"])
def test_the_key_schema(client: Any, service: Service, body: bytes) -> None:
    """DescribeTable is one of shardkit's own calls too."""
    service.answer = lambda *_: (200, body)
    orders = ShardedTable(client.Table("Orders"), CalculatedSuffix("OrderId", 3))
    with pytest.raises(ClientError, match="not a DynamoDB answer to DescribeTable"):
        orders.get_item(Key=KEY)
    assert service.operations == ["DescribeTable"] * 2


@pytest.mark.aio
@pytest.mark.parametrize("mode", ["legacy", "standard"])
@pytest.mark.parametrize("body", [HTML, b"{}"])
def test_async(service: Service, mode: Any, body: bytes) -> None:
    """The same through aiobotocore."""
    pytest.importorskip("aiobotocore")
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    from shardkit import aio

    config = AioConfig(retries={"total_max_attempts": 2, "mode": mode})

    async def run() -> None:
        async with get_session().create_client("dynamodb", endpoint_url=service.url, config=config) as made:
            strategy = CalculatedSuffix("OrderId", 3)
            orders = aio.ShardedTable(made, strategy, table_name="Orders", key_schema=SCHEMA)
            clock = Clock()

            async def sleep(seconds: float) -> None:
                clock.sleep(seconds)

            orders.runner.clock, orders.runner.sleep = clock, sleep
            service.answer = lambda *_: (200, body)
            with pytest.raises(BulkLoadError, match="not a DynamoDB answer") as raised:
                await aio.bulk_load(orders, ITEMS)
            assert raised.value.report is not None
            assert raised.value.report.written == 0
            with pytest.raises(ClientError, match="not a DynamoDB answer"):
                await orders.query(**DAY)
            service.answer = lambda *_: (200, HTML)
            for call in (orders.get_item(Key=KEY), orders.put_item(Item=KEY)):
                with pytest.raises(ClientError, match="not a DynamoDB answer"):
                    await call
            writes = in_turn(body, {"UnprocessedItems": {}})
            # Requests of the failed query that were cancelled may reach the service only now.
            service.answer = lambda operation, _: writes() if operation == "BatchWriteItem" else (200, body)
            assert (await aio.bulk_load(orders, ITEMS)).written == 10

    asyncio.run(run())
