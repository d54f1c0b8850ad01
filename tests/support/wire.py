"""A service over real HTTP that answers as a test says, the clients that ask it, and a request of every operation."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore.config import Config

from shardkit.core.machine import Answer, Send
from shardkit.runtime.drivers import transport
from shardkit.runtime.hooks import prepare

__all__ = [
    "ANSWERS", "BYTES", "PARAMS", "TEXT", "THROTTLE", "Service", "Wire", "a_client", "echo", "error", "get",
    "read_by_us", "serving", "wired",
]  # fmt: skip

Body = dict[str, Any]
BYTES = b"\x00\x01\xff"
TEXT = base64.b64encode(BYTES).decode()
THROTTLE = "ProvisionedThroughputExceededException"


class Service:
    """An HTTP service that speaks DynamoDB's protocol: ``answer`` gives status and body for an operation's body.

    ``headers`` go with every answer that is no success. An answer of None closes the connection. ``requests`` holds
    what came in.
    """

    def __init__(self, answer: Callable[[str, Body], tuple[int, Any] | None]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Body]] = []
        self.headers: dict[str, str] = {}
        self.url = ""

    @property
    def operations(self) -> list[str]:
        """The names of the operations."""
        return [operation for operation, _ in self.requests]


@contextmanager
def serving(answer: Callable[[str, Body], tuple[int, Any] | None]) -> Iterator[Service]:
    """Answer over real HTTP inside the `with`, whatever the client is; bytes go out as they are, all else as JSON."""
    service = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body go out apart: without this, each answer waits for an acknowledgement (40 ms).
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            service.requests.append((operation, body))
            answered = service.answer(operation, body)
            if answered is None:
                self.close_connection = True
                return
            status, given = answered
            content = given if isinstance(given, bytes) else json.dumps(given).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            for name, value in service.headers.items() if status != HTTPStatus.OK else ():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Wire:
    """A service, a client that shardkit knows, and shardkit's own way through it."""

    service: Service
    client: Any
    send: Callable[[Send], Any]


@contextmanager
def wired(**options: Any) -> Iterator[Wire]:
    """Put them together, the service an echo at first."""
    with serving(echo) as service:
        client = a_client(service, **options)
        prepare(client)
        yield Wire(service, client, transport(client, lambda: None))
        client.close()


def error(code: str, **more: Any) -> tuple[int, Any]:
    status = 500 if code == "InternalServerError" else 400
    return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as scheduled", **more}


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
    **{operation: {"Attributes": {"pk": {"B": TEXT}}} for operation in ("DeleteItem", "PutItem", "UpdateItem")},
}
