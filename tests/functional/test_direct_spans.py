"""Spans of calls past the client: what they say, whose children they are, and when they end."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.stub import Stubber

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shardkit import CalculatedSuffix, ConfigurationError, DirectTransport, ShardedTable, Unsharded, bulk_load
from shardkit.runtime.observers import Call
from shardkit.runtime.spans import CallSpans
from tests.support.raw_server import Part, RawServer, http
from tests.support.tables import make_table

SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
}
# One for all: it reads botocore's data files once.
SESSION = boto3.session.Session("AKID", "secret", region_name="eu-west-1")
TRACED = DirectTransport(spans=True)
KEY = {"Id": "secret"}
FOUND = http(b'{"Item":{"Id":{"S":"secret"}},"ConsumedCapacity":{"TableName":"T","CapacityUnits":0.5}}')
THROTTLED = http(b'{"__type":"x#ThrottlingException","message":"secret"}', status=b"400 Bad Request")


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    # A process has one tracer provider, which can be set once.
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    made = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(made))
    return made


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> InMemorySpanExporter:
    exporter.clear()
    return exporter


@contextmanager
def application(name: str = "application") -> Iterator[int]:
    """Make a span of the application the current one, and give its ID."""
    with trace.get_tracer("tests").start_as_current_span(name) as span:
        yield span.get_span_context().span_id


def ours(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [
        span
        for span in spans.get_finished_spans()
        if span.instrumentation_scope is not None and span.instrumentation_scope.name == "shardkit"
    ]


def parents(spans: InMemorySpanExporter) -> list[int | None]:
    return [None if span.parent is None else span.parent.span_id for span in ours(spans)]


@contextmanager
def over(*scripts: Sequence[Part], attempts: int = 1, transport: Any = TRACED) -> Iterator[tuple[str, ShardedTable]]:
    """Give an address and a table whose first GetItem, through the client, has been answered."""
    settings = Config(retries={"total_max_attempts": attempts, "mode": "standard"})
    with RawServer([[FOUND], *scripts]) as server:
        resource = SESSION.resource("dynamodb", endpoint_url=server.url, config=settings)
        table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport=transport)
        table.get_item(Key=KEY)
        yield server.url, table
        resource.meta.client.close()


def test_a_call_past_the_client_is_one_span(spans: InMemorySpanExporter) -> None:
    """With the names of the conventions, and the older ones of botocore's instrumentation; without a key or a value."""
    with over([FOUND]) as (url, table), application() as parent:
        table.get_item(Key=KEY, ConsistentRead=True)
    (span,) = ours(spans)
    address = url.removeprefix("http://")
    assert span.attributes == {
        "db.system.name": "aws.dynamodb",
        "db.system": "dynamodb",
        "db.operation.name": "GetItem",
        "db.operation": "GetItem",
        "db.collection.name": "T",
        "rpc.system.name": "aws-api",
        "rpc.system": "aws-api",
        "rpc.service": "DynamoDB",
        "rpc.method": "GetItem",
        "cloud.region": "eu-west-1",
        "server.address": "localhost",
        "server.port": int(address.removeprefix("localhost:")),
        "net.peer.name": address,
        "aws.dynamodb.table_names": ("T",),
        "aws.dynamodb.consistent_read": True,
        "aws.dynamodb.consumed_capacity": ('{"TableName": "T", "CapacityUnits": 0.5}',),
        "aws.request_id": "R1",
        "http.response.status_code": 200,
        "http.status_code": 200,
        "http.request.resend_count": 0,
        "retry_attempts": 0,
    }
    assert (span.name, span.kind) == ("DynamoDB.GetItem", trace.SpanKind.CLIENT)
    assert span.status.status_code is trace.StatusCode.UNSET
    assert parents(spans) == [parent]
    assert "secret" not in span.to_json()


def test_retries_are_of_one_span_and_the_last_answer_is_its_error(spans: InMemorySpanExporter) -> None:
    with over([THROTTLED], [THROTTLED], attempts=2) as (_, table), pytest.raises(ClientError):
        table.get_item(Key=KEY)
    (span,) = ours(spans)
    assert span.attributes is not None
    assert span.attributes["error.type"] == span.attributes["db.response.status_code"] == "ThrottlingException"
    assert (span.attributes["retry_attempts"], span.attributes["http.response.status_code"]) == (1, 400)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in span.to_json()


def test_a_call_without_an_answer_is_an_error(spans: InMemorySpanExporter) -> None:
    with over(["close"]) as (_, table), pytest.raises(ConnectionClosedError):
        table.get_item(Key=KEY)
    (span,) = ours(spans)
    assert span.attributes is not None
    assert span.attributes["error.type"] == span.status.description == "ConnectionClosedError"
    assert "http.response.status_code" not in span.attributes


def test_requests_of_a_fan_out_are_children_of_the_span_that_is_current(
    spans: InMemorySpanExporter, resource: Any
) -> None:
    """Of a merged read, also of one that streams, and of a load; and the current span stays the application's."""
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    strategy = CalculatedSuffix("OrderId", shards=4)
    items = [{"Date": "2014-07-09", "OrderId": f"A{number:03}"} for number in range(60)]
    orders = ShardedTable(table, strategy, transport=TRACED, max_concurrency=3)
    day = Key("Date").eq("2014-07-09")
    bulk_load(orders, items[:1])
    orders.query(KeyConditionExpression=day)
    spans.clear()
    with application() as parent:
        bulk_load(orders, items)
        orders.query(KeyConditionExpression=day)
        for _ in orders.query_items(KeyConditionExpression=day):
            assert trace.get_current_span().get_span_context().span_id == parent
    made = [span.name for span in ours(spans)]
    assert made.count("DynamoDB.BatchWriteItem") == 3
    assert made.count("DynamoDB.Query") >= 8
    assert {*parents(spans)} == {parent}


def test_by_default_there_is_no_span(spans: InMemorySpanExporter) -> None:
    with over([FOUND], transport="direct") as (_, table):
        table.get_item(Key=KEY)
    assert not ours(spans)


def test_what_a_stub_leaves_out_is_not_in_a_span(spans: InMemorySpanExporter) -> None:
    with over() as (_, table), Stubber(table.meta.client) as stubber:
        stubber.add_response("get_item", {"ResponseMetadata": {"HTTPStatusCode": 200, "RequestId": ""}})
        table.get_item(Key=KEY)
    (span,) = ours(spans)
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 200
    assert not {"aws.request_id", "retry_attempts", "error.type"} & {*span.attributes}


@pytest.mark.usefixtures("spans")
def test_the_opentelemetry_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r'opentelemetry-api: .*"shardkit\[opentelemetry\]"'):
        CallSpans()


def test_an_option_is_checked_and_reaches_other_processes() -> None:
    with pytest.raises(ConfigurationError, match=r"spans: must be True or False, got 'yes'"):
        DirectTransport(spans="yes")  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(TRACED)) == TRACED  # noqa: S301 - what this test wrote


def test_a_span_ends_with_its_call_whichever_call_ends_first(spans: InMemorySpanExporter) -> None:
    """Two calls that one thread runs in turn; the one that is left alone is cancelled."""

    def steps() -> Generator[str, None, dict[str, Any]]:
        yield "a request"
        return {}

    def around(operation: str) -> Generator[str, None, dict[str, Any]]:
        call = Call(operation, {"TableName": "T"}, {})
        return CallSpans().around(call, "https://dynamodb.eu-west-1.amazonaws.com", "eu-west-1", steps())

    first, second = around("Query"), around("Scan")
    with application("one") as one:
        next(first)
    with application("two") as two:
        next(second)
    first.close()
    with pytest.raises(StopIteration):
        next(second)
    assert parents(spans) == [one, two]
    cancelled, answered = ours(spans)
    assert cancelled.attributes is not None
    assert answered.attributes is not None
    assert (cancelled.name, cancelled.attributes["error.type"]) == ("DynamoDB.Query", "cancelled")
    assert "error.type" not in answered.attributes
    assert answered.attributes["server.port"] == 443


@pytest.mark.aio
def test_tasks_have_their_own_parents(spans: InMemorySpanExporter) -> None:
    pytest.importorskip("aiobotocore")
    from aiobotocore.session import get_session

    from shardkit import aio

    async def main(url: str) -> list[int]:
        async with get_session().create_client("dynamodb", endpoint_url=url, region_name="eu-west-1") as client:
            table = aio.ShardedTable(client, Unsharded(), table_name="T", key_schema=SCHEMA, transport=TRACED)
            await table.get_item(Key=KEY)

            async def read(name: str) -> int:
                with application(name) as parent:
                    await table.get_item(Key=KEY)
                    return parent

            return [*await asyncio.gather(read("one"), read("two"))]

    with RawServer([[FOUND]] * 3) as server:
        expected = asyncio.run(main(server.url))
    assert sorted(filter(None, parents(spans))) == sorted(expected)
