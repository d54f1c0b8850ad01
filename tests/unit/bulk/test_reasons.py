"""What is heard of throttles, and for how long it stands for those that carry no reason."""

from __future__ import annotations

import pytest

from shardkit.bulk.pacing import Reasons
from tests.support.fakes import throttled

NOTHING = ("key", frozenset[str]())
PROVISIONED = ("table", frozenset({"TableWriteProvisionedThroughputExceeded"}))
KEY_RANGE = ("key", frozenset({"TableWriteKeyRangeThroughputExceeded"}))


def test_what_was_heard_stands_for_others_until_another_is_heard() -> None:
    reasons = Reasons()
    assert reasons.lately(0.0) == NOTHING
    assert reasons.heard(throttled("ProvisionedThroughput"), 0.0) == PROVISIONED
    assert reasons.lately(9.9) == PROVISIONED
    assert reasons.heard(throttled("KeyRangeThroughput"), 9.9) == KEY_RANGE
    assert reasons.lately(10.1) == KEY_RANGE
    assert reasons.lately(20.0) == NOTHING


def test_a_reason_is_asked_for_now_and_then() -> None:
    """Ten times a second as long as none is heard, then once a second."""
    reasons = Reasons()
    assert sum(reasons.asks(tick / 1000) for tick in range(1000)) == pytest.approx(10, abs=1)
    reasons.heard(throttled("KeyRangeThroughput"), 1.0)
    assert [reasons.asks(now) for now in (1.0, 1.9, 2.0, 2.05)] == [False, False, True, False]


def test_a_reason_that_may_not_be_asked_for_is_not() -> None:
    reasons = Reasons()
    reasons.not_allowed()
    assert not reasons.asks(0.0)
