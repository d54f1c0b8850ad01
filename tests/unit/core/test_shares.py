"""Max-min fair shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.core.shares import max_min


def test_who_wants_less_leaves_the_rest_to_the_others() -> None:
    assert max_min(100.0, [10.0, 80.0, 100.0]) == [10.0, 45.0, 45.0]
    assert max_min(100.0, [10.0, 20.0]) == [10.0, 20.0]
    assert max_min(100.0, []) == []


@given(st.floats(0.001, 1e9), st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_nobody_could_have_more_without_taking_from_one_with_less(total: float, wants: list[float]) -> None:
    shares = max_min(total, wants)
    assert all(share <= want for share, want in zip(shares, wants, strict=True))
    assert sum(shares) == pytest.approx(min(total, sum(wants)))
    most = max(shares)
    assert all(share == want or share == pytest.approx(most) for share, want in zip(shares, wants, strict=True))
