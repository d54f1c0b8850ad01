"""Segments that are read whole, within a number of read units."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.analysis.sample import LEAST_UNITS, PAGE_UNITS
from shardkit.core.machine import Answer, Send
from shardkit.passes.sampled_scan import Page, SampledScan
from tests.support.fakes import client_error
from tests.support.machines import Timed


def scan(segments: list[int], *, most_units: float = 10_000, concurrency: int = 4) -> SampledScan:
    return SampledScan({"TableName": "T"}, segments, 1000, most_units=most_units, concurrency=concurrency)


def pages_of(machine: SampledScan, timed: Timed) -> list[Page]:
    found = []
    while (page := timed.run(machine)) is not None:
        found.append(page)
    return found


class Segments:
    """Answers from segments of so many pages each, in any order; a page takes up to the most units that it can."""

    def __init__(self, pages: dict[int, int], rng: random.Random) -> None:
        self.pages = pages
        self.rng = rng
        self.asked: defaultdict[int, list[Any]] = defaultdict(list)
        self.in_flight = 0

    def __call__(self, send: Send) -> tuple[float, dict[str, Any]]:
        segment, start = send.params["Segment"], send.params.get("ExclusiveStartKey", {"pk": {"N": "0"}})
        assert (send.params["TotalSegments"], send.params["ReturnConsumedCapacity"]) == (1000, "TOTAL")
        number = int(start["pk"]["N"]) + 1
        self.asked[segment].append(number)
        last = {"LastEvaluatedKey": {"pk": {"N": str(number)}}} if number < self.pages[segment] else {}
        units = self.rng.choice([0.5, 30.0, PAGE_UNITS])
        items = [{"pk": {"S": f"{segment}.{number}"}}]
        return self.rng.random(), {"Items": items, "ConsumedCapacity": {"CapacityUnits": units}, **last}


@given(st.dictionaries(st.integers(0, 999), st.integers(1, 5), max_size=12), st.integers(1, 9), st.randoms())
def test_every_page_of_every_segment_once(pages: dict[int, int], concurrency: int, rng: random.Random) -> None:
    table = Segments(pages, rng)
    found = pages_of(scan(list(pages), concurrency=concurrency), Timed(table))
    assert Counter(page.segment for page in found) == Counter(pages)
    assert {page.items[0]["pk"]["S"] for page in found} == {
        f"{segment}.{number + 1}" for segment, count in pages.items() for number in range(count)
    }
    assert Counter(page.segment for page in found if page.last) == Counter(dict.fromkeys(pages, 1))


@given(
    st.dictionaries(st.integers(0, 999), st.integers(1, 5), min_size=1, max_size=20),
    st.floats(LEAST_UNITS, 2000),
    st.integers(1, 9),
    st.randoms(),
)
def test_never_more_than_the_most_units(
    pages: dict[int, int], most_units: float, concurrency: int, rng: random.Random
) -> None:
    """Whatever its pages take; and it stops only when another page might take too much."""
    machine = scan(list(pages), most_units=most_units, concurrency=concurrency)
    found = pages_of(machine, Timed(Segments(pages, rng)))
    assert machine.units <= most_units
    assert sum(page.last for page in found) == len(pages) or machine.units > most_units - PAGE_UNITS


def test_a_segment_that_was_begun_comes_before_new_ones() -> None:
    table = Segments({1: 3, 2: 1, 3: 1}, random.Random(1))
    timed = Timed(table)
    pages_of(scan([1, 2, 3], concurrency=1), timed)
    assert [send.params["Segment"] for _, send in timed.sent] == [1, 1, 1, 2, 3]


def test_units_that_no_answer_says_are_those_of_the_items() -> None:
    items = [{"pk": {"S": "x" * 4000}}, {"pk": {"S": "y" * 4000}}]
    machine = scan([1])
    pages_of(machine, Timed(lambda _: (0.0, {"Items": items})))
    assert machine.units == 1.0


def test_what_was_read_comes_before_the_error() -> None:
    page: Answer = {"Items": [], "ConsumedCapacity": {"CapacityUnits": 0.5}}
    answers: Iterator[tuple[float, Answer]] = iter([(1.0, page), (0.5, client_error())])
    machine, timed = scan([1, 2, 3], concurrency=2), Timed(lambda _: next(answers))
    assert timed.run(machine) == Page(1, [], last=True)
    with pytest.raises(type(client_error())):
        timed.run(machine)
    assert len(timed.sent) == 2
