"""The pictures that `python -m benchmarks.pictures` draws show the questions and the plans of the code."""

from __future__ import annotations

from itertools import chain

import pytest

pytest.importorskip("rich")

from benchmarks.pictures import DECISION, NUMBER_OF_SHARDS, PARTITIONS, RESULT, SHOWN, STEPS, shards_for
from tests.functional.test_docs import texts_of


def test_decision() -> None:
    texts = texts_of(DECISION)
    lines = [line for text in (*chain(*STEPS), RESULT) for line in text.splitlines()]
    assert sorted(set(texts) - {"yes", "no"}) == sorted([*lines, "When a suffix helps: five questions"])
    assert texts.count("yes") == texts.count("no") == len(STEPS)


def test_number_of_shards() -> None:
    texts = texts_of(NUMBER_OF_SHARDS)
    assert [f"{partitions} partitions" in texts for partitions in PARTITIONS] == [False, True, True, True]
    assert {str(shards_for(SHOWN, partitions)) for partitions in PARTITIONS} <= set(texts)
