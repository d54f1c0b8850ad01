"""The rule by which keys get more shards: when, how many, and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest

from shardkit.analysis.tuning import SECONDS, Fleet, Growth, Heat, KeyReport, Memory, Report, Rule, Watched

START = 1_404_900_000.0
KEY = "S:a"


class Run:
    """A memory, minute by minute."""

    def __init__(self, shards: int = 1, **limits: Any) -> None:
        self.memory, self.rule, self.now = Memory(), Rule(**{"partitions": 16, **limits}), START
        self.shards = {KEY: shards}

    def minutes(
        self, heats: Iterable[Heat | dict[str, Heat]], *, index: bool = False
    ) -> tuple[dict[str, int], str, float]:
        decision: tuple[dict[str, int], str, float] = {}, "", 0.0
        for heat in heats:
            self.now += 60
            of = heat if isinstance(heat, dict) else {KEY: heat}
            fleet = Fleet(1, 1, of, {key: self.shards.get(key, 1) for key in of}, index)
            self.memory.take(self.now, fleet)
            decision = self.rule.decide(self.memory, self.now, fleet)
        return decision


HOT, COLD = Heat(peak=1500), Heat(peak=100)


@pytest.mark.parametrize(
    ("minutes", "grows"),
    [
        ([HOT] * 9, False),
        ([HOT] * 10, True),
        ([HOT, HOT, COLD] * 4 + [HOT, HOT], True),
        ([HOT, COLD] * 8, False),
        ([HOT] * 9 + [COLD] * 15 + [HOT] * 9, False),
    ],
)
def test_a_key_grows_after_10_hot_of_15_minutes(minutes: list[Heat], grows: bool) -> None:
    assert bool(Run().minutes(minutes)[0]) == grows


def test_a_job_that_comes_back_is_known_at_its_third_time() -> None:
    run = Run()
    episode = [HOT] * 5 + [COLD] * 55
    assert run.minutes(episode * 2)[0] == {}
    assert run.minutes([HOT])[0] == {KEY: 6}
    assert Run().minutes((episode + [COLD] * 60 * 13) * 2 + [HOT])[0] == {}, "more than 26 hours"


@pytest.mark.parametrize(
    ("heat", "shards", "hot"),
    [
        (Heat(700), 1, True),
        (Heat(699), 1, False),
        (Heat(1399), 2, False),
        (Heat(300, 20), 1, True),
        (Heat(300, 19), 1, False),
    ],
)
def test_a_minute_is_hot_by_the_hottest_shard(heat: Heat, shards: int, hot: bool) -> None:
    watched = Watched(0)
    watched.take(1, heat, shards)
    assert watched.hot == [1] * hot


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        ([300] * 6, 300),
        ([300] * 5 + [2500], 2500),  # a step is not a trend
        ([200, 200, 250, 250, 300, 300], 300 + 50 / 40 * 180),
        ([100, 100, 200, 200, 220, 220], 220 + 20 / 40 * 180),  # the smaller rise
        ([100, 100, 600, 600, 1100, 1100], 2200),  # at most twice
        ([300, 200, 100], 300),
        ([900, 100, 100, 100, 100, 100, 100], 900),  # the day's peak
        ([500, 900], 900),
    ],
)
def test_how_much_is_expected(peaks: list[int], expected: float) -> None:
    assert Watched(0, peaks=peaks).expected() == expected


def test_time_goes_on_also_without_reports() -> None:
    watched = Watched(0, peaks=[5], hot=[10], episodes=[10])
    watched.take(45, None, 1)
    assert (watched.peaks, watched.hot, watched.block) == ([5, 0, 0], [], 2)
    watched.take(20 * 1000, None, 1)
    assert watched.peaks == [0] * 72
    watched.take(0, None, 1)
    assert watched.block == 1000, "time that goes back"


@pytest.mark.parametrize(
    ("heat", "shards", "limits", "number"),
    [
        (Heat(1500), 1, {}, 6),
        (Heat(1500, 1), 1, {}, 10),  # a quarter more
        (Heat(750), 1, {}, None),  # hot, but one shard is enough
        (Heat(3000), 4, {}, 24),  # a multiple
        (Heat(12_100), 17, {"max_shards": 33}, None),
        (Heat(12_100), 17, {"max_shards": 64}, 51),
        (Heat(4400), 5, {"partitions": 10_000}, 10),  # at least double
    ],
)
def test_how_many(heat: Heat, shards: int, limits: dict[str, Any], number: int | None) -> None:
    grown, _, _ = Run(shards, **limits).minutes([heat] * 10)
    assert grown == ({} if number is None else {KEY: number})


def test_at_most_ten_keys_grow_at_once_the_hottest_first() -> None:
    heats = {f"S:{number}": Heat(1000.0 + number) for number in range(14)}
    assert set(Run().minutes([heats] * 10)[0]) == {f"S:{number}" for number in range(4, 14)}


def test_keys_that_have_all_shards_do_not_keep_others_from_growing() -> None:
    run = Run()
    run.shards = {f"S:{number}": 64 for number in range(10)}
    heats = {f"S:{number}": Heat(90_000.0) for number in range(10)} | {"S:other": Heat(1000.0)}
    assert set(run.minutes([heats] * 10)[0]) == {"S:other"}


def test_reads_of_queries_and_of_the_move_have_a_ceiling() -> None:
    """6 shards: 5 more for each of 10 queries; a read for each of 1,500 writes; the mover's 100."""
    heat = Heat(1500, queries=10)
    assert Run().minutes([heat] * 10) == (
        {KEY: 6},
        "hot in 10 of 15 minutes, or for the third time in 26 hours",
        25 + 1500 + 100,
    )
    assert Run(max_read_units=1625).minutes([heat] * 10)[0] == {KEY: 6}
    assert Run(max_read_units=1624).minutes([heat] * 10)[:2] == (
        {},
        "max_shards=64, max_read_units=1624: no more is allowed",
    )
    assert Run(max_read_units=25, moves=False).minutes([heat] * 10)[0] == {KEY: 6}, "random shards: nothing moves"
    other = {"S:b": Heat(900, queries=1)}
    assert Run(max_read_units=1700).minutes([{KEY: heat, **other}] * 10)[0] == {KEY: 6}, "the next one is too much"


@pytest.mark.parametrize(
    ("minutes", "index", "said"),
    [
        ([COLD] * 3, False, "nothing is hot"),
        ([HOT] * 3, False, "a flash crowd"),
        ([Heat(300, 200)] * 12, False, "warm keys"),
        ([Heat(300, 200)] * 12, True, "an index is hot"),
        ([Heat(1500, item=900)] * 12, False, "use a counter"),
        ([Heat(65_000)] * 12, False, "hot in 10"),
    ],
)
def test_it_says_what_shards_do_not_help(minutes: list[Heat], index: bool, said: str) -> None:
    assert said in Run().minutes(minutes, index=index)[1]


def _grown(at: float, effect: float | None = None, cold: bool | None = None) -> Growth:
    return Growth(at, {KEY: 1}, {KEY: 14}, effect, cold)


@pytest.mark.parametrize(
    ("growths", "said"),
    [
        ([_grown(START - 80_000)] * 12, "paused: 12 changes in a day"),
        ([_grown(START - 87_000)] * 12, "hot in 10"),
        ([_grown(START, START, cold=True)] * 2, "paused: 2 changes in a day"),
        ([_grown(START, START, cold=False)] * 2, "hot in 10"),
    ],
)
def test_it_pauses(growths: list[Growth], said: str) -> None:
    run = Run()
    run.memory.growths = growths
    assert said in run.minutes([HOT] * 10)[1]


@pytest.mark.parametrize(("later", "cold"), [(COLD, True), (HOT, False)])
def test_a_growth_is_judged_two_hours_after_it_took_effect(later: Heat, cold: bool) -> None:
    run = Run(14)
    run.memory.growths = [_grown(START, START + 60)]
    run.minutes([later] * 119)
    assert run.memory.growths[0].cold is None
    run.minutes([later] * 2)
    assert run.memory.growths[0].cold is cold


def test_the_last_growth_is_remembered() -> None:
    run = Run()
    run.memory.growths = [_grown(START - 100_000), _grown(START - 90_000)]
    run.minutes([COLD])
    assert [one.at for one in run.memory.growths] == [START - 90_000]


def test_only_the_hottest_keys_are_remembered_and_the_memory_is_json() -> None:
    run = Run()
    run.minutes([{f"S:{number}": Heat(number) for number in range(60)}])
    run.memory.growths, run.memory.seen = [_grown(START)], {"a": (1, START)}
    assert set(run.memory.keys) == {f"S:{number}" for number in range(30, 60)}
    assert Memory.of(**orjson.loads(orjson.dumps(vars(run.memory)))).keys == run.memory.keys


def _report(counter: int, units: float = 1000.0) -> Report:
    return Report(counter, (KeyReport(KEY, None, 0.0, 0, 0, 0.0, (units,) * SECONDS),))


def _one(_: str) -> int:
    return 1


class TestReports:
    def test_one_that_does_not_change_counts_for_three_minutes(self) -> None:
        memory = Memory()
        seen = [memory.see(START + at, {"p": _report(1)}, _one).reports for at in (0, 60, 179, 180, 3000)]
        assert seen == [1, 1, 1, 0, 0]
        assert memory.see(START + 3001, {"p": _report(2)}, _one).reports == 1

    @pytest.mark.parametrize(("silent", "decides"), [(2, True), (3, False)])
    def test_fewer_than_half_of_the_last_hours_processes_decide_nothing(self, silent: int, decides: bool) -> None:
        memory, fleet = Memory(), Fleet(0, 0, {}, {})
        for minute in range(20):
            reports = {f"p{number}": _report(1 if number < silent else minute) for number in range(4)}
            fleet = memory.see(START + 60 * minute, reports, _one)
        _, reason, _ = Rule().decide(memory, START + 60 * 19, fleet)
        assert reason.startswith("fewer than half") != decides

    def test_one_that_is_gone_or_silent_for_an_hour_is_no_process_any_more(self) -> None:
        """Nor is it new then (the search in tests/functional/test_tuners_together.py found that)."""
        memory = Memory()
        memory.see(START, {"gone": _report(1), "silent": _report(1), "here": _report(1)}, _one)
        seen = [
            memory.see(START + at, {"silent": _report(1), "here": _report(at)}, _one)[:2]
            for at in (3599, 3600, 3601, 7300)
        ]
        assert seen == [(1, 2), (1, 1), (1, 1), (1, 1)]

    def test_what_a_hot_index_refuses_is_not_the_keys(self) -> None:
        of_index = KeyReport("?:open", "G", 0.0, 0, 0, 0.0, (800.0,) * SECONDS)
        of_key = KeyReport(KEY, None, 6000.0, 0, 0, 0.0, (100.0,) * SECONDS)
        fleet = Memory().see(START, {"p": Report(1, (of_index, of_key))}, _one)
        assert fleet.hot_index
        assert fleet.heats == {KEY: Heat(100, 0.0)}

    def test_nobody_reports(self) -> None:
        memory = Memory()
        assert Rule().decide(memory, START, memory.see(START, {}, _one))[1].startswith("fewer than half")


def test_shards_are_asked_for_only_of_keys_that_were_reported() -> None:
    asked: list[str] = []
    count: Callable[[str], int] = lambda key: asked.append(key) or 1  # type: ignore[func-returns-value]  # noqa: E731
    Memory().see(START, {"p": _report(1)}, count)
    assert asked == [KEY]
