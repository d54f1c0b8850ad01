from __future__ import annotations

import pytest

pytest.importorskip("rich")

from benchmarks import meter as bench


def test_metered_calls_are_measured_beside_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench itself ends with an error where the meter did not see each of them."""
    monkeypatch.setattr(bench, "CALLS", 3)
    monkeypatch.setattr(bench, "ITEMS", 30)
    figures = list(bench.meter(short=True))
    assert [figure.target for figure in figures] == [1.03, None, 1.03, None, 1.03, None, 1.03, None, 1.0, 1.0, 1.0]
    assert all(figure.value is not None and 0.3 < figure.value < 5 for figure in figures[:8])
    assert all(figure.value is not None and 0 < figure.value < 5 for figure in figures[8:])
