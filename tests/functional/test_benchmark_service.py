"""The bench of a service: threads everywhere, asyncio where aiobotocore is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks.measure import percentile
from benchmarks.service import MISSING, Workload, measure

LOAD = Workload(shards=2, at_once=2, queries=4)


def test_threads() -> None:
    figures = list(measure(LOAD))
    of_threads = [figure for figure in figures if "threads" in figure.name]
    assert all(figure.value for figure in of_threads)
    assert sum("direct" in figure.name for figure in of_threads) == 5
    if find_spec("aiobotocore") is None:
        assert [(one.value, one.note) for one in figures if one not in of_threads] == [(None, MISSING)]


@pytest.mark.aio
def test_threads_beside_asyncio() -> None:
    pytest.importorskip("aiobotocore")
    figures = list(measure(LOAD))
    assert len(figures) == 4 * 4 + 3
    assert all(figure.value for figure in figures)


def test_a_page_that_is_not_whole_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"^page: must have 2 orders, got 1"):
        LOAD.check({"Count": 1})


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (0.001, 1), (1.0, 100)])
def test_a_percentile(share: float, expected: float) -> None:
    assert percentile([*range(100, 0, -1)], share) == expected
