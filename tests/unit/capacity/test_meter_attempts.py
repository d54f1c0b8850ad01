"""Throttles and retries: every attempt by its reason, not only the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from shardkit.capacity import CapacityMeter, Usage
from tests.support.metered import ARN, FakeClient, client, consumed, item, key, meter, put

__all__ = ["client", "meter"]

HOT = "TableWriteKeyRangeThroughputExceeded"
FULL = "TableWriteProvisionedThroughputExceeded"
WRITTEN: dict[str, Any] = {"ConsumedCapacity": consumed(1.0), "ResponseMetadata": {"RetryAttempts": 0}}


def throttle(*reasons: str, field: str = "ThrottlingReasons", code: str = "ThrottlingException") -> dict[str, Any]:
    response: dict[str, Any] = {"Error": {"Code": code}}
    if reasons:
        response[field] = [{"reason": reason, "resource": ARN} for reason in reasons]
    return response


def retried(times: int, answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "ResponseMetadata": {"RetryAttempts": times}}


def test_each_attempt_counts_by_its_reason(client: FakeClient, meter: CapacityMeter) -> None:
    with meter.scope("writes", tenant="acme") as used:
        client.call(
            "PutItem",
            retried(4, WRITTEN),
            attempts=[
                throttle(HOT),
                throttle(FULL, field="throttlingReasons"),
                throttle(code="RequestLimitExceeded"),
                EndpointConnectionError(endpoint_url="http://x"),
            ],
            TableName="T",
            Item=item("a"),
        )
    for totals in (meter, used):
        assert totals.throttles == {HOT: 1, FULL: 1, "RequestLimitExceeded": 1}
        assert totals.retries == {HOT: 1, FULL: 1, "RequestLimitExceeded": 1, "EndpointConnectionError": 1}
        expected = Usage(write_units=1, requests=1, throttles=3)
        assert totals.total == totals.by_table["T"] == totals.by_operation["PutItem"] == expected
        # Those for the sake of its partition: without a reason, it is taken for that.
        assert totals.by_key == {("T", "a"): Usage(write_units=1, requests=1, throttles=2)}
        assert totals.rates.usage.throttles == 3


def test_a_hot_key_of_an_index_is_not_the_table_s(client: FakeClient, meter: CapacityMeter) -> None:
    """The items that it holds back are of any of the table's keys."""
    hot = "IndexWriteKeyRangeThroughputExceeded"
    client.call("PutItem", retried(1, WRITTEN), attempts=[throttle(hot)], TableName="T", Item=item("a"))
    assert meter.throttles == {hot: 1}
    assert meter.by_key == {("T", "a"): Usage(write_units=1, requests=1)}


def test_a_call_that_ends_throttled(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("GetItem", retried(2, throttle(HOT)), attempts=[throttle(HOT)] * 2, TableName="T", Key=key("a"))
    assert meter.throttles == {HOT: 3}
    assert meter.retries == {HOT: 2}
    assert meter.total == Usage(requests=1, throttles=3)


def test_a_call_that_a_handler_answered_had_no_attempt(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("GetItem", throttle(HOT), TableName="T", Key=key("a"))
    assert meter.throttles == {HOT: 1}
    assert meter.retries == {}


def test_several_reasons_are_one_throttle(client: FakeClient, meter: CapacityMeter) -> None:
    client.call("GetItem", throttle(HOT, FULL), TableName="T", Key=key("a"))
    assert meter.throttles == {HOT: 1, FULL: 1}
    assert meter.total.throttles == 1
    assert meter.by_key == {}


def test_retries_that_were_not_seen_have_no_reason(client: FakeClient, meter: CapacityMeter) -> None:
    """They are counted by botocore: should it not emit needs-retry any more, the number is still right."""
    client.call("PutItem", retried(3, WRITTEN), attempts=[throttle(HOT)], TableName="T", Item=item("a"))
    assert meter.retries == {HOT: 1, "unknown": 2}


def test_a_batch_that_is_throttled_as_a_whole(client: FakeClient) -> None:
    meter = CapacityMeter()
    meter.attach(client, key_schema={"T": "pk"})
    client.call("BatchWriteItem", throttle(HOT), RequestItems={"T": [put("a")], "U": [put("b")]})
    assert meter.by_table == {"T": Usage(requests=1, throttles=1), "U": Usage(requests=1, throttles=1)}
    assert meter.total == Usage(requests=1, throttles=1)
    assert meter.by_key == {}


@pytest.mark.parametrize("event", ["before", "failed", "after", "added up"])
def test_a_fault_of_the_meter_does_not_reach_the_call(
    client: FakeClient,
    meter: CapacityMeter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    event: str,
) -> None:
    def fault(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    where: dict[str, Callable[[], None]] = {
        "before": lambda: monkeypatch.setattr("shardkit.capacity.meter.scopes_of", fault),
        "failed": lambda: monkeypatch.setattr("shardkit.capacity.meter.is_throttle_code", fault),
        "after": lambda: monkeypatch.setattr("shardkit.capacity.meter.whole_of", fault),
        "added up": lambda: monkeypatch.setattr("shardkit.capacity.recorder.report_of", fault),
    }
    where[event]()
    seen = client.call("PutItem", retried(1, WRITTEN), attempts=[throttle(HOT)], TableName="T", Item=item("a"))
    assert seen["ResponseMetadata"] == {"RetryAttempts": 1}
    assert meter.requests == (1 if event == "failed" else 0)
    assert "a fault of ours" in caplog.text
    assert "PutItem" in caplog.text
