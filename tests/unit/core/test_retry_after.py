"""x-amz-retry-after: the wait that the service asks for, wherever shardkit decides how long to wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.retries.standard import ExponentialBackoff

from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from shardkit.bulk.pacing import KeyPace, TablePace
from shardkit.core.backoff import ATTEMPTS, Backoff, backoff_seconds
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.service_errors import retry_after
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.query.plan import QueryPlan
from tests.support.fakes import Service, a_load, client_error, drive, some, throttled, timeless
from tests.support.machines import Timed, a_fan_out, page_machine
from tests.support.model import ModelTable
from tests.support.tables import many
from tests.support.wire import THROTTLE, error, serving


def asking(answer: Any, milliseconds: object) -> Any:
    """The same answer, or error, with the header as botocore shows it."""
    response: Any = answer.response if isinstance(answer, ClientError) else answer
    metadata = response.setdefault("ResponseMetadata", {})
    metadata["HTTPHeaders"] = {"x-amz-retry-after": str(milliseconds)}
    return answer


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("700", 0.7), ("0", 0.0), ("60000", 60.0), ("-5", 0.0), ("soon", 0.0), ("1.5", 0.0), ("", 0.0), ("9" * 400, 0.0)],
)
def test_read_as_botocore_does(header: str, seconds: float) -> None:
    """Milliseconds; what is no whole number of them asks for nothing."""
    assert retry_after(asking(client_error("ThrottlingException"), header)) == seconds
    assert retry_after(asking({"UnprocessedItems": {}}, header)) == seconds


@pytest.mark.parametrize(
    "answer",
    [{}, {"ResponseMetadata": {}}, client_error("x"), ConnectionClosedError(endpoint_url="u"), ValueError(), None],
)
def test_nothing_is_asked(answer: Any) -> None:
    assert retry_after(answer) == 0.0


@pytest.mark.parametrize("asked", [0.0, 0.01, 0.7, 5.0, 60.0])
@pytest.mark.parametrize("attempt", [1, 5, ATTEMPTS])
def test_bounded_as_botocore_does(attempt: int, asked: float) -> None:
    """At least the own wait, at most five seconds more."""
    own = backoff_seconds(attempt, 0.5)
    assert backoff_seconds(attempt, 0.5, asked=asked) == max(own, min(asked, own + 5))
    most = getattr(ExponentialBackoff, "_RETRY_AFTER_MAX_ADDITIONAL", 5)  # older botocores do not know the header
    assert most == backoff_seconds(attempt, 0.5, asked=1e9) - own == pytest.approx(5)


def test_a_backoff_that_is_put_off() -> None:
    """Of what was sent before a wait began only a longer wait is new; the doublings stay."""
    backoff = Backoff()
    backoff.refused(10.0, 0.5, 0.7)
    assert backoff.until == 10.7
    backoff.put_off(10.1, 0.0)
    backoff.put_off(10.1, 0.5)
    assert backoff.until == 10.7
    backoff.put_off(10.1, 2.0)
    assert backoff.until == 12.1
    backoff.put_off(10.1, 99.0)
    assert backoff.until == 15.1
    backoff.refused(20.0, 0.0)
    assert backoff.until == 20.05


# A merged Query and a read of many keys.


@pytest.mark.parametrize("limit", [(), ("ProvisionedThroughput",)])
def test_a_throttled_shard(limit: tuple[str, ...]) -> None:
    """It is not asked before; where the table is short of throughput, none is."""
    table = ModelTable(many(3))
    for number in range(9):
        table.put({"pk": "k", "sk": number}, number % 3 + 1)
    asked: list[tuple[str, int]] = []

    def answer(send: Send) -> tuple[float, Answer]:
        (key,) = (value["S"] for value in send.params["ExpressionAttributeValues"].values())
        asked.append((key, len(asked)))
        first = [name for name, _ in asked].count("k.1") == 1
        return 0.01, asking(throttled(*limit), 700) if key == "k.1" and first else table.answer(send)

    service = Timed(answer)
    plan = QueryPlan.of(many(3), {"KeyConditionExpression": Key("pk").eq("k")})
    page = service.run(page_machine(plan, concurrency=2))
    assert len(page.rows) == 9
    times = [(at, name) for (at, _), (name, _) in zip(service.sent, asked, strict=True)]
    assert [at for at, name in times if name == "k.1"] == [0.0, pytest.approx(0.71)]
    (third,) = [at for at, name in times if name == "k.3"]
    assert third == pytest.approx(0.71 if limit else 0.01)


@pytest.mark.parametrize("unprocessed", [True, False])
def test_a_read_of_many_keys(unprocessed: bool) -> None:
    key = to_wire_item({"pk": "k", "sk": 1})

    def answer(send: Send) -> tuple[float, Answer]:
        if len(service.sent) > 1:
            return 0.01, {"Responses": {"orders": [{**key, "pk": {"S": "k.2"}}]}}
        if unprocessed:
            return 0.01, asking({"UnprocessedKeys": {"orders": send.params["RequestItems"]["orders"]}}, 700)
        return 0.01, asking(throttled(), 700)

    service = Timed(answer)
    batch = service.run(BatchGet(many(3), [(key, 2)], {}, a_fan_out(1)))
    assert len(batch.found) == 1
    assert [at for at, _ in service.sent] == [0.0, pytest.approx(0.71)]


# A load.


class Asking(Service):
    """The first request is refused in one way or another, and a wait is asked for."""

    def __init__(self, refusals: Iterator[Any]) -> None:
        super().__init__()
        self.refusals = refusals

    def answer(self, send: Send, now: float) -> Answer:
        refusal = next(self.refusals, None)
        if refusal is None:
            return super().answer(send, now)
        self.times.append(now)
        refused: Answer = asking(
            {"UnprocessedItems": send.params["RequestItems"]} if refusal == "unprocessed" else refusal, 3000
        )
        return refused


@pytest.mark.parametrize(
    "refusal",
    [throttled("KeyRangeThroughput"), throttled(), throttled("ProvisionedThroughput"), "unprocessed",
     client_error("InternalServerError")],
)  # fmt: skip
def test_a_load_waits(refusal: Any) -> None:
    """Nothing of the request is sent before, not even the one item that is written alone to hear the reason."""
    service = Asking(iter([refusal]))
    load = a_load()
    drive(load, some(25), service)
    assert load.report.written == 25
    first, again, *_ = service.times
    assert first == 0.001
    assert again == pytest.approx(3.001, abs=0.03)
    assert service.singles == []


def test_a_key_that_rests_is_put_off() -> None:
    """It has a second alarm; the first finds it resting still."""
    keys = KeyPace(lambda: 0.5)
    keys.throttled("k", 0.0)
    keys.throttled("k", 0.01, 2.0)
    assert keys.rested(1.0) == ["k"]
    assert not keys.goes("k", 1.0)
    assert keys.alarm == pytest.approx(2.01)
    assert keys.rested(2.01) == ["k"]
    assert keys.goes("k", 2.02)


def test_a_table_that_rests_is_put_off() -> None:
    pace = TablePace(None, lambda: 0.5)
    pace.throttled(0.0)
    pace.throttled(0.01, 2.0)
    assert pace.ready(0.02) == pytest.approx(2.01)


# From the header of a real answer to the wait.


KEYS = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
}


@pytest.mark.parametrize("code", [THROTTLE, "InternalServerError"])
def test_over_the_wire(code: str) -> None:
    """A throttle is raised out of botocore's retries, another error after the last of them: both carry the header."""
    left = 1

    def answer(operation: str, body: dict[str, Any]) -> tuple[int, Any]:
        nonlocal left
        left -= 1
        if left >= 0:
            return error(code)
        return 200, {"Items": [], "Count": 0, "ScannedCount": 0} if operation == "Query" else {"UnprocessedItems": {}}

    with serving(answer) as service:
        service.headers["x-amz-retry-after"] = "4321"
        config = Config(retries={"total_max_attempts": 1, "mode": "standard"})
        resource = boto3.resource("dynamodb", endpoint_url=service.url, config=config)
        orders = ShardedTable(resource.Table("T"), CalculatedSuffix("sk", 1), key_schema=KEYS)
        clock = timeless(orders)
        assert bulk_load(orders, some(3)).written == 3
        assert max(clock.sleeps) == pytest.approx(4.321, abs=0.05)
        if code == THROTTLE:
            left = 1
            clock.sleeps.clear()
            assert orders.query(KeyConditionExpression=Key("pk").eq("k"))["Items"] == []
            assert sum(clock.sleeps) == pytest.approx(4.321, abs=0.05)
        resource.meta.client.close()
