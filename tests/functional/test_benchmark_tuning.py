"""The rule of ``shardkit tune`` in virtual time: what it was designed for, and what the page says of it."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from benchmarks.tuning import DESIGN, LOADS, PLACEMENTS, Outcome, ceilings, outcomes, played, table
from shardkit.analysis.tuning import Rule
from tests.functional.test_docs import DOCS
from tests.support.profiles import LONG

RULE = Rule(partitions=16)
MOST_CHANGES = {"flash crowd, 5 minutes": 0, "six warm keys on one partition": 0, "noise near the limit": 1}


def check(name: str, outcome: Outcome) -> None:
    refused, queries = DESIGN[name]
    assert outcome.refused <= 1.5 * refused
    assert outcome.queries <= 1.5 * queries
    assert outcome.changes <= MOST_CHANGES.get(name, 12)


def test_a_step_is_served_and_a_flash_crowd_changes_nothing() -> None:
    check("step, 300 to 2,500", played(LOADS["step, 300 to 2,500"], PLACEMENTS[0], RULE))
    flash = played(LOADS["flash crowd, 5 minutes"], PLACEMENTS[0], RULE)
    check("flash crowd, 5 minutes", flash)
    assert any("a flash crowd" in reason for reason in flash.reasons)


@pytest.mark.long_search
@pytest.mark.skipif(not LONG, reason="takes a minute: set HYPOTHESIS_PROFILE=search")
def test_the_nine_loads_on_four_placements() -> None:
    found = outcomes()
    for name, each in found.items():
        for _, rule, _ in each:
            check(name, rule)
    page = (DOCS / "reference" / "tuning.md").read_text("utf-8")
    assert table(found) in page
    assert ceilings() in page
