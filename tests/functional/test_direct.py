"""The direct transport, byte by byte: what it sends, which answers it reads, and what it sends again."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import (
    ChecksumError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.stub import Stubber

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, Unsharded
from shardkit.runtime.connections import Connection
from tests.support.certificates import certified
from tests.support.raw_server import Part, RawServer, http

SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
}
FOUND = b'{"Item":{"Id":{"S":"a"}}}'
ITEM = {"Id": "a"}
THROTTLED = http(
    b'{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow down"}',
    status=b"400 Bad Request",
)
GONE = b'{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"no table"}'


# One for all: it reads botocore's data files once.
SESSION = boto3.session.Session("AKID", "secret", region_name="eu-west-1")


@contextmanager
def over(*scripts: Sequence[Part], attempts: int = 1, **config: Any) -> Iterator[tuple[RawServer, ShardedTable]]:
    """Give a table whose first request, through the client, has been answered."""
    settings = Config(retries={"total_max_attempts": attempts, "mode": "standard"}, **config)
    with RawServer([[http(FOUND)], [http(b"{}")], *scripts]) as server:
        resource = SESSION.resource("dynamodb", endpoint_url=server.url, config=settings)
        table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport="direct")
        assert table.get_item(Key=ITEM)["Item"] == ITEM
        table.update_item(Key=ITEM)
        server.requests.clear()
        server.connections = 0
        yield server, table
        resource.meta.client.close()


def chunked(body: bytes) -> list[bytes]:
    return [http(body, b"Transfer-Encoding: chunked"), *(b"1\r\n%c\r\n" % byte for byte in body), b"0\r\n\r\n"]


@pytest.mark.parametrize(
    "script",
    [
        [http(FOUND)],
        [bytes([byte]) for byte in http(FOUND)],
        [b"".join(chunked(FOUND))],
        chunked(FOUND),
        [http(FOUND, b"Connection: close"), "close"],
        [http(FOUND) + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"],
        [http(FOUND) + b"garbage"],
    ],
    ids=["whole", "bytes", "chunked", "chunks", "closes", "a second answer", "garbage behind"],
)
def test_reads_a_complete_answer(script: list[Part]) -> None:
    """And only this request's: what came behind an answer is not the next one."""
    other = http(b'{"Item":{"Id":{"S":"b"}}}')
    with over(script, [other]) as (server, table):
        answer = table.get_item(Key=ITEM)
        assert answer["Item"] == ITEM
        assert answer["ResponseMetadata"]["RequestId"] == "R1"
        assert table.get_item(Key=ITEM)["Item"] == {"Id": "b"}
        assert len(server.requests) == 2


def test_close_ends_its_connections() -> None:
    """Those of the client's other tables too; each makes new ones. The client's own stay open."""
    with over(*[[http(FOUND)]] * 4) as (server, table):
        other = ShardedTable(table.table, Unsharded(), key_schema=SCHEMA, transport="direct")
        other.get_item(Key=ITEM)  # the first is the client's
        with table:
            assert table.get_item(Key=ITEM)["Item"] == other.get_item(Key=ITEM)["Item"] == ITEM
        table.close()
        assert other.get_item(Key=ITEM)["Item"] == ITEM
        assert (len(server.requests), server.connections) == (4, 2)  # one before, one after


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (["close"], ConnectionClosedError),
        (["reset"], ConnectionClosedError),
        ([http(FOUND)[:-1], "close"], ConnectionClosedError),
        ([http(FOUND)[:30], "close"], ConnectionClosedError),
        ([http(FOUND, length=len(FOUND) + 1), "close"], ConnectionClosedError),
        ([*chunked(FOUND)[:-1], "close"], ConnectionClosedError),
        ([http(FOUND, length=len(FOUND) - 1)], ChecksumError),
        ([http(FOUND).replace(b'"a"', b'"b"')], ChecksumError),
        (["nothing"], ReadTimeoutError),
        ([http(FOUND)[:-1], "nothing"], ReadTimeoutError),
    ],
    ids=["closed", "reset", "cut body", "cut head", "too long", "cut chunks", "too short", "changed",
         "silent", "silent in the body"],
)  # fmt: skip
def test_an_incomplete_answer_is_an_error(script: list[Part], error: type[Exception]) -> None:
    with over(script, read_timeout=0.05 if "nothing" in script else 60) as (server, table):
        with pytest.raises(error):
            table.get_item(Key=ITEM)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer", [b"garbage\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"], ids=["garbage", "101"]
)
def test_after_an_answer_that_is_not_http_only_a_read_is_sent_again_and_through_the_client(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with over([answer, "close"], [http(FOUND)], [http(FOUND)]) as (server, table):
        assert table.get_item(Key=ITEM)["Item"] == ITEM
        assert table.get_item(Key=ITEM)["Item"] == ITEM
        assert [b"amz-sdk-request" in head for head, _ in server.requests] == [False, True, True]
    assert len([record for record in caplog.records if "go through the client" in record.message]) == 1
    with over([answer, "close"]) as (server, table):
        with pytest.raises(HTTPClientError, match="Not an HTTP/1"):
            table.update_item(Key=ITEM, UpdateExpression="ADD Total :1", ExpressionAttributeValues={":1": 1})
        assert len(server.requests) == 1


def test_a_read_is_repeated_and_an_update_is_not() -> None:
    with over(["close"], [http(FOUND)], ["close"], [http(b"{}")], attempts=3) as (server, table):
        assert table.get_item(Key=ITEM)["Item"] == ITEM
        with pytest.raises(ConnectionClosedError):
            table.update_item(Key=ITEM, UpdateExpression="ADD Total :1", ExpressionAttributeValues={":1": 1})
        assert len(server.requests) == 3


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    with over([http(FOUND), "close"], [http(b"{}")]) as (server, table):
        table.get_item(Key=ITEM)
        assert server.closed.acquire(timeout=10)
        table.update_item(Key=ITEM)
        assert len(server.requests) == server.connections == 2


def test_a_connection_is_kept() -> None:
    with over(*[[http(FOUND)]] * 5) as (server, table):
        for _ in range(5):
            table.get_item(Key=ITEM)
        assert (len(server.requests), server.connections) == (5, 1)


def test_requests_are_signed_as_botocore_signs_them() -> None:
    with over([http(FOUND)]) as (server, table):
        table.get_item(Key=ITEM)
    ((head, body),) = server.requests
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST / HTTP/1.1"
    assert headers["X-Amz-Target"] == "DynamoDB_20120810.GetItem"
    assert headers["User-Agent"].startswith("Boto3/")
    signed = headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest("POST", server.url + "/", {n: v for n, v in headers.items() if n.lower() in signed}, body)
    auth = SigV4Auth(ReadOnlyCredentials("AKID", "secret", None), "dynamodb", "eu-west-1")
    request.context["timestamp"] = headers["X-Amz-Date"]
    request.headers.replace_header("X-Amz-Date", headers["X-Amz-Date"])
    text = auth.string_to_sign(request, auth.canonical_request(request))
    assert headers["Authorization"].endswith("Signature=" + auth.signature(text, request))


def test_errors_are_the_clients() -> None:
    with over([http(GONE, status=b"400 Bad Request")]) as (_, table), pytest.raises(ClientError) as raised:
        table.get_item(Key=ITEM)
    assert type(raised.value) is table.meta.client.exceptions.ResourceNotFoundException
    assert raised.value.response["Error"] == {"Code": "ResourceNotFoundException", "Message": "no table"}
    assert raised.value.response["ResponseMetadata"]["RequestId"] == "R1"


def test_the_clients_retries_apply() -> None:
    with over([THROTTLED], [http(FOUND)], attempts=2) as (_, table):
        assert table.get_item(Key=ITEM)["ResponseMetadata"]["RetryAttempts"] == 1


def test_a_meter_sees_each_call() -> None:
    consumed = b'{"Item":{"Id":{"S":"a"}},"ConsumedCapacity":{"TableName":"T","CapacityUnits":0.5}}'
    with over([http(consumed)]) as (server, table):
        meter = CapacityMeter()
        with meter.attach(table):
            assert "ConsumedCapacity" not in table.get_item(Key=ITEM)
        assert b"ReturnConsumedCapacity" in server.requests[0][1]
    assert meter.read_units == 0.5


def test_a_stubber_answers() -> None:
    with over() as (server, table), Stubber(table.meta.client) as stubber:
        stubber.add_client_error("get_item", "ValidationException")
        with pytest.raises(ClientError, match="ValidationException"):
            table.get_item(Key=ITEM)
        assert not server.requests


def test_the_users_handlers_see_the_call() -> None:
    seen: list[str] = []

    def note(event_name: str, **_: Any) -> None:
        seen.append(event_name)

    def add(params: dict[str, Any], **_: Any) -> None:
        params["headers"]["X-Trace"] = "t1"

    with over([http(FOUND)]) as (server, table):
        events = table.meta.client.meta.events
        for event in ("before-call", "before-send", "after-call"):
            events.register(f"{event}.dynamodb.GetItem", note)
        events.register("before-call.dynamodb.GetItem", add)
        table.get_item(Key=ITEM)
    assert seen == [f"{event}.dynamodb.GetItem" for event in ("before-call", "before-send", "after-call")]
    assert b"X-Trace: t1" in server.requests[0][0]
    assert b"x-trace" in server.requests[0][0]  # signed


@pytest.mark.parametrize(
    ("config", "why"),
    [({"proxies": {"https": "http://localhost:1"}}, "proxy"), ({"signature_version": UNSIGNED}, "signature version")],
)
def test_an_unusual_client_sends_by_itself(config: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with over([http(FOUND)], **config) as (server, table):
        table.get_item(Key=ITEM)
        assert b"amz-sdk-invocation-id" in server.requests[0][0]
    (logged,) = [record for record in caplog.records if record.name == "shardkit"]
    assert why in logged.getMessage()


def test_tls_is_checked_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server_settings = certified(tmp_path, "localhost")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    scripts: list[list[Part]] = [[http(FOUND)], [bytes([byte]) for byte in http(FOUND)], [http(FOUND)]]
    with RawServer(scripts, server_settings) as server:
        resource = SESSION.resource("dynamodb", endpoint_url=server.url)
        table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport="direct")
        assert [table.get_item(Key=ITEM)["Item"] for _ in scripts] == [ITEM] * 3
        assert server.connections == 2  # the client's, and ours
        resource.meta.client.close()


def test_a_certificate_that_is_not_trusted_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a reason to try again, though botocore's retries do; nor to send through the client."""
    settings = certified(tmp_path, "localhost")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    with RawServer([[http(FOUND, b"Connection: close")]], settings) as server:
        resource = SESSION.resource("dynamodb", endpoint_url=server.url, config=Config(retries={"mode": "standard"}))
        table = ShardedTable(resource.Table("T"), Unsharded(), key_schema=SCHEMA, transport="direct")
        table.get_item(Key=ITEM)
        certified(tmp_path, "localhost")  # another authority
        with pytest.raises(SSLError, match="certificate verify failed"):
            table.get_item(Key=ITEM)
        assert (len(server.requests), server.connections) == (1, 2)
        resource.meta.client.close()


SORTED: dict[str, Any] = {
    "KeySchema": [*SCHEMA["KeySchema"], {"AttributeName": "Sort", "KeyType": "RANGE"}],
    "AttributeDefinitions": [*SCHEMA["AttributeDefinitions"], {"AttributeName": "Sort", "AttributeType": "S"}],
}
EMPTY = [http(b'{"Items":[],"Count":0,"ScannedCount":0}')]


@contextmanager
def over_tls(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *scripts: Sequence[Part], shards: int
) -> Iterator[tuple[RawServer, ShardedTable]]:
    """Give a table on so many shards, and its server, after a Query through the client."""
    settings = certified(folder, "localhost")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(folder / "ca.pem"))
    with RawServer([EMPTY, *scripts], settings) as server:
        config = Config(retries={"total_max_attempts": 1})
        table = SESSION.resource("dynamodb", endpoint_url=server.url, config=config).Table("T")
        one, several = (
            ShardedTable(table, strategy, key_schema=SORTED, transport="direct")
            for strategy in (Unsharded(), CalculatedSuffix("Sort", shards=shards))
        )
        one.query(KeyConditionExpression=Key("Id").eq("a"))
        server.requests.clear()
        server.connections = 0
        yield server, several
        table.meta.client.close()


def test_connections_are_made_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server begins no handshake before all connections have come."""
    shards = 4
    with over_tls(tmp_path, monkeypatch, *[EMPTY] * shards, shards=shards) as (server, table):
        server.accepted = threading.Barrier(shards, timeout=20).wait
        table.query(KeyConditionExpression=Key("Id").eq("a"))
        assert len(server.requests) == server.connections == shards


@pytest.mark.parametrize("shards", [1, 2])
def test_a_handshake_that_hangs_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """Alone or beside other requests; the connect timeout counts, and no byte of the request has left."""
    with over_tls(tmp_path, monkeypatch, shards=shards) as (server, table):
        end = threading.Event()
        server.accepted = end.wait
        monkeypatch.setattr(Connection, "patience", property(lambda _: 0.01))
        with pytest.raises(ConnectTimeoutError):
            table.query(KeyConditionExpression=Key("Id").eq("a"))
        assert not server.requests
        end.set()
