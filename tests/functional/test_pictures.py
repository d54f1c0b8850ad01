"""The pictures of the documentation show what the code does, for light pages and for dark ones."""

from __future__ import annotations

import re
from itertools import chain

import pytest

pytest.importorskip("rich")

from benchmarks.pictures import (
    DOCS,
    PARTITIONS,
    RESULT,
    SHOWN,
    STEPS,
    items_per_key,
    queries,
    series,
    shards_for,
    uploads,
)
from shardkit.cli.simulate_series import draw_throughput
from tests.functional.test_docs import PAGES, texts_of


def test_each_is_on_a_page_and_has_a_dark_form() -> None:
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"^!\[[^]]+\]\((.+)\)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    dark = {picture.with_stem(f"{picture.stem}-dark"): picture for picture in shown}
    assert shown | set(dark) == {*DOCS.glob("*.svg"), *DOCS.glob("*.png")}
    for picture, light in dark.items():
        assert texts_of(picture) == texts_of(light), picture.name


def test_hot_key() -> None:
    texts = texts_of(DOCS / "hot-key.svg")
    (logical, whole), *shards = items_per_key()
    assert whole == sum(items for _, items in shards)
    assert [text for text in texts if text.startswith("2014-07-09")] == [logical, *(key for key, _ in shards)]
    assert [f"{items:,}" in texts for _, items in items_per_key()] == [True] * 11


def test_query() -> None:
    assert set(queries()) <= {text.removeprefix("Query ") for text in texts_of(DOCS / "query.svg")}


def test_uploads() -> None:
    source, uploaded = uploads()
    assert list(source) == sorted(source)
    texts = texts_of(DOCS / "upload-order.svg")
    assert [text for text in texts if re.fullmatch(r"U\d \d", text)] == [*source, *uploaded]


def test_decision() -> None:
    texts = texts_of(DOCS / "do-i-need-this.svg")
    lines = [line for text in (*chain(*STEPS), RESULT) for line in text.splitlines()]
    assert set(lines) <= set(texts)
    assert texts.count("yes") == texts.count("no") == len(STEPS)


def test_time_series() -> None:
    texts = texts_of(DOCS / "timeseries.svg")
    last = series().periods[-1]
    for kind in ("write", "read"):
        assert f"{kind} units a second per partition" in texts
        assert f"one table: {getattr(last, f'{kind}_units'):,.0f}" in texts
        assert f"a table for each period: {getattr(last, f'own_{kind}_units'):,.0f}" in texts
    # A step is at its period, the last one is seen too, and no line of a grid crosses a label.
    figure = pytest.importorskip("matplotlib.figure").Figure()
    draw_throughput(figure, series())
    for axes in figure.axes:
        assert axes.get_xlim() == (1, last.period + 1)
        assert {line.get_drawstyle() for line in axes.lines} == {"steps-post"}
        assert not any(line.get_visible() for line in axes.get_ygridlines())


def test_number_of_shards() -> None:
    texts = texts_of(DOCS / "number-of-shards.svg")
    assert [f"{partitions} partitions" in texts for partitions in PARTITIONS] == [False, True, True, True]
    assert {str(shards_for(SHOWN, partitions)) for partitions in PARTITIONS} <= set(texts)
