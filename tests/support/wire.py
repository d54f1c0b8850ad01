"""A service over real HTTP that answers as a test says, the clients that ask it, and a request of every operation."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore.config import Config

from shardkit.core.machine import Answer, Send
from shardkit.runtime.drivers import through_client
from shardkit.runtime.hooks import prepare
from shardkit.sharding.shard_map import is_map_value

Body = dict[str, Any]
BYTES = b"\x00\x01\xff"
TEXT = base64.b64encode(BYTES).decode()
STATUS = {"InternalServerError": 500, "ServiceUnavailable": 503}
THROTTLE = "ProvisionedThroughputExceededException"


def is_look(body: Body) -> bool:
    """Return whether a request looks for a shard map."""
    return any(map(is_map_value, body.get("Key", {}).values()))


class Recorder:
    """Keeps (operation, body) of every request, in the order in which they come."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Body]] = []

    @property
    def calls(self) -> list[tuple[str, Body]]:
        """The requests without looks for a shard map, which tests/functional/test_guarded.py counts."""
        return [(name, body) for name, body in self.requests if not is_look(body)]

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.calls]

    def clear(self) -> None:
        self.requests.clear()

    def bodies(self, operation: str) -> list[Body]:
        return [body for name, body in self.calls if name == operation]


class Service(Recorder):
    """An HTTP service that speaks DynamoDB's protocol: ``answer`` gives status and body for an operation's body.

    It answers looks for a shard map itself: there is none.
    ``headers`` go with every answer that is an error. An answer of None closes the connection.
    """

    def __init__(self, answer: Callable[[str, Body], tuple[int, Any] | None]) -> None:
        super().__init__()
        self.answer = answer
        self.headers: dict[str, str] = {}
        self.url = ""


@contextmanager
def serving(answer: Callable[[str, Body], tuple[int, Any] | None]) -> Iterator[Service]:
    """Answer over real HTTP inside the `with`, whatever the client is; bytes go out as they are, all else as JSON."""
    service = Service(answer)

    def handle(request: BaseHTTPRequestHandler) -> None:
        operation, content = received(request)
        body = json.loads(content)
        service.requests.append((operation, body))
        if is_look(body):
            consumed = {"TableName": body["TableName"], "CapacityUnits": 0.5}
            answered: Any = 200, {"ConsumedCapacity": consumed} if "ReturnConsumedCapacity" in body else {}
        else:
            answered = service.answer(operation, body)
        if answered is None:
            request.close_connection = True
            return
        status, given = answered
        content = given if isinstance(given, bytes) else json.dumps(given).encode()
        respond(request, status, content, service.headers if status != HTTPStatus.OK else {})

    with listening(handle) as service.url:
        yield service


@contextmanager
def listening(handle: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Pass every HTTP request to a function inside the `with`, each on its own thread; yield the server's URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body go out apart: without this, each answer waits for an acknowledgement (40 ms).
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            try:
                handle(self)
            except OSError:
                self.close_connection = True  # the client went away, as some tests want it

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 100

        def handle_error(self, *_: Any) -> None:
            """Say nothing of a connection that ended in the middle of a request."""
            if not isinstance(sys.exception(), OSError):
                super().handle_error(*_)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def received(request: BaseHTTPRequestHandler) -> tuple[str, bytes]:
    body = request.rfile.read(int(request.headers["Content-Length"]))
    return request.headers["X-Amz-Target"].rpartition(".")[2], body


def respond(
    request: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str], *, half: bool = False
) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Type": "application/x-amz-json-1.0", "Content-Length": len(body)}.items():
        request.send_header(name, str(value))
    request.end_headers()
    request.wfile.write(body[: len(body) // 2] if half else body)
    request.close_connection = half or request.close_connection


@dataclass(frozen=True)
class Wire:
    """A service, a client that shardkit knows, and shardkit's own way through it."""

    service: Service
    client: Any
    send: Callable[[Send], Any]


@contextmanager
def wired(**options: Any) -> Iterator[Wire]:
    with serving(echo) as service:
        client = a_client(service, **options)
        prepare(client)
        yield Wire(service, client, through_client(client, {}))
        client.close()


def error(code: str, **more: Any) -> tuple[int, Any]:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as scheduled", **more}
    return STATUS.get(code, 400), body


def echo(operation: str, body: Any) -> tuple[int, Any]:
    """Gives back the key that was asked for, and something binary."""
    return 200, {"Item": {**body["Key"], "b": {"B": TEXT}}}


def a_client(service: Service, *, attempts: int = 1, mode: Any = "standard") -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=service.url,
        config=Config(retries={"total_max_attempts": attempts, "mode": mode}, max_pool_connections=20),
    )


def get(key: str = "k", **more: Any) -> Send:
    return Send("GetItem", {"TableName": "T", "Key": {"pk": {"S": key}}, **more})


def read_by_us(answer: Answer, key: str = "k") -> bool:
    """Whether the answer is the key's, and binary in it is text: botocore's parser would have made it bytes."""
    assert isinstance(answer, dict), answer
    assert answer["Item"]["pk"] == {"S": key}
    assert answer["Item"]["b"] in ({"B": TEXT}, {"B": BYTES})
    return bool(answer["Item"]["b"] == {"B": TEXT})


A_VALUE = {"B": BYTES}
PARAMS: dict[str, dict[str, Any]] = {
    "BatchGetItem": {"RequestItems": {"T": {"Keys": [{"pk": A_VALUE}], "ConsistentRead": True}}},
    "BatchWriteItem": {"RequestItems": {"T": [{"PutRequest": {"Item": {"pk": A_VALUE}}}]}},
    "DeleteItem": {"TableName": "T", "Key": {"pk": A_VALUE}, "ReturnValues": "ALL_OLD"},
    "GetItem": {"TableName": "T", "Key": {"pk": A_VALUE}, "ConsistentRead": True},
    "PutItem": {"TableName": "T", "Item": {"pk": A_VALUE}, "Expected": {"a": {"Value": A_VALUE}}},
    "Query": {
        "TableName": "T",
        "KeyConditionExpression": "#p = :p",
        "ExpressionAttributeNames": {"#p": "pk"},
        "ExpressionAttributeValues": {":p": A_VALUE},
        "ExclusiveStartKey": {"pk": A_VALUE},
        "Limit": 7,
    },
    "Scan": {
        "TableName": "T",
        "ScanFilter": {"a": {"AttributeValueList": [A_VALUE], "ComparisonOperator": "EQ"}},
        "ExclusiveStartKey": {"pk": A_VALUE},
    },
    "TransactGetItems": {"TransactItems": [{"Get": {"TableName": "T", "Key": {"pk": A_VALUE}}}]},
    "TransactWriteItems": {
        "TransactItems": [
            {"Put": {"TableName": "T", "Item": {"pk": A_VALUE}, "ConditionExpression": "attribute_exists(pk)"}},
            {"Update": {"TableName": "U", "Key": {"pk": A_VALUE}, "UpdateExpression": "REMOVE a"}},
        ],
        "ClientRequestToken": "once",
    },
    "UpdateItem": {
        "TableName": "T",
        "Key": {"pk": A_VALUE},
        "AttributeUpdates": {"a": {"Value": A_VALUE, "Action": "PUT"}},
    },
}
ANSWERS: dict[str, dict[str, Any]] = {
    "BatchGetItem": {"Responses": {"T": [{"pk": {"B": TEXT}}]}, "UnprocessedKeys": {}},
    "BatchWriteItem": {"UnprocessedItems": {"T": [{"PutRequest": {"Item": {"pk": {"B": TEXT}}}}]}},
    "Query": {"Items": [{"pk": {"B": TEXT}}], "Count": 1, "ScannedCount": 1, "LastEvaluatedKey": {"pk": {"B": TEXT}}},
    "Scan": {"Items": [{"pk": {"BS": [TEXT]}}], "Count": 1, "ScannedCount": 2},
    "GetItem": {"Item": {"pk": {"B": TEXT}}},
    "TransactGetItems": {"Responses": [{"Item": {"pk": {"B": TEXT}}}, {}]},
    "TransactWriteItems": {"ItemCollectionMetrics": {"T": [{"ItemCollectionKey": {"pk": {"B": TEXT}}}]}},
    **{operation: {"Attributes": {"pk": {"B": TEXT}}} for operation in ("DeleteItem", "PutItem", "UpdateItem")},
}
