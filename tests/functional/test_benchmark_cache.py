"""The bench of docs/cache.md: what it compares, and the picture that it draws."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("cachetools")

from benchmarks.cache import EXPONENTS, ITEMS, SHARES, best, hit_ratios, reads
from benchmarks.pictures import DOCS
from tests.functional.test_docs import texts_of


def test_the_best_is_what_no_other_is() -> None:
    ratios = hit_ratios(1.2, ITEMS // 1000, 40_000)
    assert ratios["LRU"] < ratios["shardkit"] < ratios["best"] * 1.02
    assert ratios["shardkit"] > 0.9 * ratios["best"]
    assert best(1.0, ITEMS) == 1.0


def test_reads_are_drawn_by_popularity() -> None:
    drawn = reads(1.0, 20_000)
    first, _ = Counter(drawn).most_common(1)[0]
    assert drawn.count(first) / len(drawn) == pytest.approx(best(1.0, 1), rel=0.2)
    assert drawn == reads(1.0, 20_000)


def test_the_picture_is_of_both_laws() -> None:
    texts = texts_of(DOCS / "hit-ratio.svg")
    assert [text for text in texts if "Zipf" in text] == [f"popularity by Zipf's law, s = {one}" for one in EXPONENTS]
    assert {f"{100 * share:g}" for share in SHARES} <= set(texts)
