"""Stand-ins for time, for the service as a bulk load's machine sees it, and faults on a real boto3 client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.parsers import create_parser

from shardkit import BulkResult, ShardedTable, Strategy, Unsharded
from shardkit.bulk.load_machine import Load
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.dynamodb.body import binary_bytes
from shardkit.sharding.layout import Sharding
from tests.support.tables import described
from tests.support.wire import STATUS, THROTTLE, error

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

Fault = Literal[
    "none", "throttle", "unprocessed", "unprocessed by ARN", "500", "lost", "500 after", "lost after", "denied"
]
"""What becomes of one BatchWriteItem; ``after``: it is carried out, and its answer does not arrive."""

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/"
_CODES: Mapping[str, str] = {
    "throttle": THROTTLE,
    "denied": "AccessDeniedException",
    "500": "InternalServerError",
}


def client_error(
    code: str = "ValidationException", message: str = "as scheduled", operation: str = "BatchWriteItem"
) -> ClientError:
    metadata: Any = {"HTTPStatusCode": STATUS.get(code, 400)}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, operation)


def lost_connection() -> ConnectionClosedError:
    return ConnectionClosedError(endpoint_url="http://localhost")


def throttled(*limits: str, kind: Literal["Read", "Write"] = "Write") -> ClientError:
    """What boto3 raises for a throttle with these reasons (``KeyRangeThroughput``, …)."""
    error = client_error(THROTTLE)
    reasons: Any = [{"reason": f"Table{kind}{limit}Exceeded", "resource": f"{ARN}Messages"} for limit in limits]
    error.response["ThrottlingReasons"] = reasons  # type: ignore[typeddict-unknown-key]
    return error


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def timeless(table: ShardedTable) -> Clock:
    clock = Clock()
    table.runner.clock = clock
    table.runner.sleep = clock.sleep
    return clock


# For machines: a table in memory behind BatchWriteItem, and a driver that answers in any order.


class Service:
    """A table of ``pk`` and ``sk`` that takes BatchWriteItem, as strict as DynamoDB, with a fault for each request.

    ``alone`` are the answers to single writes: errors, or None for one that is carried out. ``refuses`` says whether an
    item is one that the service rejects; ``batches`` and ``times`` record the batches, ``singles`` the single writes.
    """

    def __init__(
        self,
        faults: Iterable[Fault] = (),
        refuses: Callable[[Any], bool] = lambda _: False,
        alone: Iterable[ClientError | None] = (),
    ) -> None:
        self.items: dict[Any, Any] = {}
        self.batches: list[list[Any]] = []
        self.singles: list[Any] = []
        self.times: list[float] = []
        self._faults = iter(faults)
        self._alone = iter(alone)
        self._refuses = refuses

    def answer(self, send: Send, now: float) -> Answer:
        if send.operation == "DescribeTable":
            return {"Table": {"TableName": "Messages", "ProvisionedThroughput": {"WriteCapacityUnits": 100}}}
        if send.operation != "BatchWriteItem":
            return self._single(send)
        ((table, requests),) = send.params["RequestItems"].items()
        requests = list(requests)
        self.batches.append(requests)
        self.times.append(now)
        keys = [key_of(request) for request in requests]
        assert 1 <= len(keys) <= 25
        assert len(set(keys)) == len(keys), "two writes of one primary key in a batch"
        fault = next(self._faults, "none")
        if fault in {"throttle", "500", "denied"}:
            return client_error(_CODES[fault])
        if fault == "lost":
            return lost_connection()
        if any(self._refuses(part) for request in requests for body in request.values() for part in body.values()):
            return client_error("ValidationException")
        left: list[Any] = []
        if fault.startswith("unprocessed"):
            left, requests = requests[len(requests) // 2 :], requests[: len(requests) // 2]
        for request in requests:
            self._write(request)
        if fault == "lost after":
            return lost_connection()
        if fault == "500 after":
            return client_error("InternalServerError")
        name = ARN + table if fault == "unprocessed by ARN" else table
        return {
            "UnprocessedItems": {name: left} if left else {},
            "ConsumedCapacity": [{"TableName": table, "CapacityUnits": float(len(requests))}],
        }

    def _single(self, send: Send) -> Answer:
        part = "Item" if send.operation == "PutItem" else "Key"
        request = {"PutRequest" if part == "Item" else "DeleteRequest": {part: send.params[part]}}
        self.singles.append(request)
        error = next(self._alone, None)
        if error is not None:
            return error
        if self._refuses(send.params[part]):
            return client_error("ValidationException")
        self._write(request)
        return {"ConsumedCapacity": {"TableName": send.params["TableName"], "CapacityUnits": 1.0}}

    def _write(self, request: Mapping[str, Any]) -> None:
        if "PutRequest" in request:
            self.items[key_of(request)] = request["PutRequest"]["Item"]
        else:
            self.items.pop(key_of(request), None)


def key_of(request: Mapping[str, Any]) -> tuple[Any, ...]:
    ((_, body),) = request.items()
    ((_, part),) = body.items()
    return tuple(
        Decimal(content) if letter == "N" else binary_bytes(content) if letter == "B" else content
        for name in ("pk", "sk")
        for letter, content in part[name].items()
    )


class Answering(Protocol):
    def answer(self, send: Send, now: float) -> Answer: ...


def drive(
    load: Load,
    source: Iterable[Any],
    service: Answering,
    rng: Random | None = None,
    *,
    now: float = 0.0,
) -> list[BulkResult]:
    """Run a load over a source; requests are carried out in the order that ``rng`` draws, or first come first."""
    items = iter(source)
    results: list[BulkResult] = []
    under_way: list[Send] = []
    while not load.ended:
        while load.wants:
            try:
                load.put(next(items))
            except StopIteration:
                load.close()
        step = load.next(now)
        if isinstance(step, Send):
            under_way.append(step)
            continue
        if isinstance(step, Done):
            results += step.value
            continue
        assert isinstance(step, Wait)
        if under_way:
            send = under_way.pop(rng.randrange(len(under_way)) if rng else 0)
            now += 0.001
            load.receive(send, service.answer(send, now), now)
        else:
            assert step.until is not None, "it waits for nothing"
            now = max(now, step.until)
    assert not under_way
    return results


def sharding(strategy: Strategy | None = None, *, pk: str = "S", sk: str = "S") -> Sharding:
    return described(strategy or Unsharded(), {"pk": pk, "sk": sk}, ["pk", "sk"], name="Messages")


def a_load(table: Sharding | None = None, **options: Any) -> Load:
    return Load(table or sharding(), **{"workers": 1, "draw": lambda: 0.5, **options})


def some(count: int, pk: str = "U1", **more: Any) -> list[dict[str, Any]]:
    return [{"pk": pk, "sk": f"{number:04}", **more} for number in range(count)]


def outcome(results: Iterable[BulkResult]) -> list[tuple[int, bool]]:
    return sorted((result.place, result.ok) for result in results)


def all_written(count: int) -> list[tuple[int, bool]]:
    return [(place, True) for place in range(count)]


def written(results: Iterable[BulkResult]) -> list[int]:
    return sorted(result.place for result in results if result.ok and not result.superseded)


# For clients: botocore's own events, so that what is tested is the way that an error really takes.


def once(resource: DynamoDBServiceResource) -> DynamoDBServiceResource:
    """The same service through a resource whose client tries each request once: botocore's own waits are real."""
    return connected(resource.meta.client.meta.endpoint_url)


def connected(endpoint: str) -> DynamoDBServiceResource:
    return boto3.resource(
        "dynamodb", region_name="us-east-1", endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1})
    )


class Faults:
    """Lets BatchWriteItem calls of a client fail, one fault of the schedule each; those beyond it succeed.

    A fault before the write is answered from ``before-call`` and never reaches the service. For one after it, and for
    what is left unprocessed, the request goes on (shortened), and ``before-parse`` changes the response.
    ``alone`` is the schedule of single puts. ``batches`` records the batches as the service would have got them, in
    JSON's form.
    """

    def __init__(self, client: Any, schedule: Iterable[Fault] = (), *, alone: Iterable[Fault] = ()) -> None:
        self.batches: list[list[Any]] = []
        self._schedule = iter(schedule)
        self._alone = iter(alone)
        self._lock = threading.Lock()
        self._call = threading.local()  # a call stays on its thread
        client.meta.events.register("before-call.dynamodb.BatchWriteItem", self._before_call)
        client.meta.events.register("before-parse.dynamodb.BatchWriteItem", self._before_parse)
        client.meta.events.register("before-call.dynamodb.PutItem", self._before_put)

    def _before_call(self, model: Any, params: dict[str, Any], **_: Any) -> tuple[AWSResponse, Any] | None:
        body = json.loads(params["body"])
        ((table, requests),) = body["RequestItems"].items()
        with self._lock:
            fault = next(self._schedule, "none")
            self.batches.append(requests)
        self._call.fault, self._call.left = fault, {}
        if fault == "lost":
            raise lost_connection()
        if fault in {"throttle", "500", "denied"}:
            return _answered(model, *error(_CODES[fault]))
        if fault.startswith("unprocessed"):
            kept = len(requests) // 2
            self._call.left = {ARN + table if fault == "unprocessed by ARN" else table: requests[kept:]}
            if not kept:
                return _answered(model, 200, {"UnprocessedItems": self._call.left})
            params["body"] = json.dumps({**body, "RequestItems": {table: requests[:kept]}}).encode()
        return None

    def _before_put(self, model: Any, **_: Any) -> tuple[AWSResponse, Any] | None:
        code = _CODES.get(next(self._alone, "none"))
        return None if code is None else _answered(model, *error(code))

    def _before_parse(self, response_dict: dict[str, Any], **_: Any) -> None:
        if self._call.fault == "lost after":
            raise lost_connection()
        if self._call.fault == "500 after":
            response_dict["status_code"], body = error("InternalServerError")
            response_dict["body"] = json.dumps(body).encode()
        elif self._call.left:
            body = json.loads(response_dict["body"])
            response_dict["body"] = json.dumps({**body, "UnprocessedItems": self._call.left}).encode()


def _answered(model: Any, status: int, body: Mapping[str, Any]) -> tuple[AWSResponse, Any]:
    """What a ``before-call`` handler gives to answer a call: a response, and what its parser would make of it."""
    content: Any = {"body": json.dumps(body).encode(), "headers": {}, "status_code": status}
    headers: Any = {}
    raw: Any = None
    return AWSResponse("", status, headers, raw), create_parser("json").parse(content, model.output_shape)


def hurried(clock: Any) -> Callable[[float], None]:
    """A wait in virtual time, which leaves an engine that works beside it a little of real time."""

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        time.sleep(0.02)

    return sleep
