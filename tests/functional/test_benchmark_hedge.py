"""The bench of hedged reads, in virtual time: the same figures in every run."""

from __future__ import annotations

import random

import pytest

from benchmarks.hedge import virtual
from benchmarks.stub import drawn_latency


@pytest.mark.parametrize(("shards", "reads"), [(20, 200), (200, 60)])
def test_hedged_reads_meet_their_targets_and_plain_ones_do_not(shards: int, reads: int) -> None:
    plain, *hedged = virtual(shards, reads=reads)
    assert plain.value is not None
    assert plain.value > 105
    assert [figure.name for figure in hedged if figure.target is None or not figure.met] == []


def test_one_answer_in_a_hundred_is_late() -> None:
    draw = random.Random(0).random
    drawn = sorted(drawn_latency(5.0, draw()) for _ in range(100_000))
    assert drawn[50_000] == pytest.approx(5.0, rel=0.02)
    assert sum(latency > 100 for latency in drawn) == pytest.approx(1_000, rel=0.1)
    assert drawn[98_500] < 20
    assert drawn_latency(0.0, 0.0) == 0.0
