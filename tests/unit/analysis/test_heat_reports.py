"""Reports of heat: their stored form, and their sum over a fleet."""

from __future__ import annotations

import base64
import random

import pytest

from shardkit.analysis.tuning import SECONDS, Heat, KeyReport, Report, heat_of, key_of, key_text
from shardkit.dynamodb.sizes import item_size
from tests.support.strategies import vectors


def a_key(
    key: str = "S:a", units: float = 1.0, *, index: str | None = None, item: int = 7, share: float = 0.5
) -> KeyReport:
    return KeyReport(key, index, 30.0, 60, item, share, (units,) * SECONDS)


def test_the_stored_form_never_changes() -> None:
    for vector in vectors("heat_report.json"):
        stored = {**vector["item"], "shardkit:units": base64.b64decode(vector["item"]["shardkit:units"])}
        report = Report(
            vector["counter"], tuple(KeyReport._make((*one[:-1], tuple(one[-1]))) for one in vector["keys"])
        )
        assert Report.of(stored) == report
        assert report.to_attributes() == stored


@pytest.mark.parametrize("item", [{}, {"shardkit:heat": '{"form": 2}'}, {"shardkit:tuner": "{}"}])
def test_what_is_no_report_of_this_form_is_left_out(item: dict[str, str]) -> None:
    assert Report.of(item) is None


@pytest.mark.parametrize("length", [1, 36, 200, 2048])
def test_a_report_has_as_many_keys_as_two_write_units_hold(length: int) -> None:
    report = Report(10**9, tuple(a_key("S:" + str(number) * length, 1234.0) for number in range(12)))
    item = report.to_attributes()
    key = {"partition": "shardkit:heat:" + "Orders" * 3, "sort": "Ab3_d-9Z", "shardkit:expires": 1_404_900_000}
    assert item_size({**item, **key}) <= 2048
    read = Report.of(item)
    assert read is not None
    assert read.keys == report.keys[: len(read.keys)]
    assert len(read.keys) == {1: 10, 36: 10, 200: 5, 2048: 0}[length]


@pytest.mark.parametrize("key", ["2014-07-09", b"\x00\xff", "B:"])
def test_keys_are_named_by_their_type(key: str | bytes) -> None:
    assert key_of(key_text(key)) == key


def test_a_fleets_peak_is_that_of_its_seconds_together() -> None:
    """Adding up the peaks of 200 processes would give twice as much."""
    rng = random.Random(1)
    each = [tuple(float(rng.random() < 0.5) * 9 for _ in range(SECONDS)) for _ in range(200)]
    truth = max(map(sum, zip(*each, strict=True)))
    reports = [Report.of(Report(1, (a_key()._replace(units=units),)).to_attributes()) for units in each]
    heat = heat_of(report for report in reports if report is not None)["S:a", None]
    assert heat.peak == truth < 0.7 * sum(map(max, each))
    assert (heat.refused, heat.queries) == (100, 200)


def test_the_hottest_item_is_that_of_all_processes() -> None:
    keys = [a_key(item=1, share=1.0), a_key(item=2, share=0.6), a_key(item=2, share=0.6)]
    assert heat_of(Report(1, (key,)) for key in keys)["S:a", None].item == pytest.approx(1.2)


def test_keys_of_an_index_are_apart() -> None:
    assert set(heat_of([Report(1, (a_key(), a_key(index="G")))])) == {("S:a", None), ("S:a", "G")}


@pytest.mark.parametrize(("heat", "wanted"), [(Heat(100, 50), 150), (Heat(100, 900), 301), (Heat(0, 900), 1)])
def test_what_was_wanted_counts_up_to_three_times_what_was_served(heat: Heat, wanted: float) -> None:
    assert heat.wanted == wanted
