"""The simulated pass: it reaches what a mixed load reaches, and one that writes page after page does not."""

from __future__ import annotations

import pytest

from benchmarks import passes

ITEMS = 5000


def test_a_pass_reaches_nine_tenths_of_what_a_load_reaches_and_a_naive_one_a_few() -> None:
    least = 0.9 * passes.loaded(ITEMS)
    assert passes.passed(ITEMS).share >= least
    assert passes.naive(ITEMS).share == pytest.approx(100 / passes.PARTITIONS, rel=0.3)
