"""The token bucket: what it holds, and when."""

from __future__ import annotations

from shardkit.core.token_bucket import TokenBucket


def test_an_empty_bucket_does_not_hold_an_unknown_number() -> None:
    """0 units stand for a number that is not known yet."""
    bucket = TokenBucket(10, burst=10, balance=0.0, now=0.0)
    assert not bucket.holds(0.0, 0.0)
    assert bucket.holds(0.0, 0.1)


def test_a_full_bucket_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(10, burst=10, balance=10.0, now=0.0)
    assert bucket.holds(10.0, 0.0)
    assert bucket.holds(25.0, 0.0)
    bucket.take(1.0, 0.0)
    assert bucket.holds(9.0, 0.0)
    assert not bucket.holds(10.0, 0.0)
