"""What CI prints of the tests' costs."""

from __future__ import annotations

from tests.support.costs import CONTRIBUTING, START, ceilings, table

PAGE = f"""
| folder | takes | at most |
| --- | --- | --- |
| {START} | 9 s | 10 s |
| `tests/unit` | 80 s | 90 s |
| `tests/unit/core` | 3 s | 5 s |

| folder | holds |
| --- | --- |
| `tests/support` | helpers |
"""


def test_each_row_has_what_its_tests_took() -> None:
    most = ceilings(PAGE)
    assert most == {START: 10, "tests/unit": 90, "tests/unit/core": 5}
    spent = {
        START: 9.0,
        "tests/unit": 60.0,
        "tests/unit/corelike": 30.5,
        "tests/unit/core/deep": 5.0,
        "tests/spark": 1.0,
    }
    assert table(spent, most) == [
        "    1.0 s  other tests",
        "    9.0 s  start of each worker, at most 10 s",
        "   90.5 s  tests/unit, at most 90 s: over",
        "    5.0 s  tests/unit/core, at most 5 s",
    ]
    assert {START, "tests/unit", "tests/functional", "tests/integration"} <= {
        *ceilings(CONTRIBUTING.read_text("utf-8"))
    }
