"""Which rows of a trace are kept: sums stay unbiased, hot keys exact, and the number near what was asked."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import mean, stdev

from shardkit.capacity.thinning import MOST_RECENT, RowKey, Thinning


def a_second(random: Random, calls: int, keys: int) -> dict[RowKey, list[float]]:
    """Make the rows of a second: a hot key has a third of the calls, the others are even."""
    counts = Counter("hot" if random.random() < 1 / 3 else f"k{random.randrange(keys)}" for _ in range(calls))
    return {("PutItem", "T", None, key, None): [n, 0.0, 1.5 * n, 0] for key, n in counts.items()}


def test_sums_are_unbiased_over_200_seeds() -> None:
    seconds = [a_second(Random(number), 100, 2_000) for number in range(30)]
    # Two groups of keys, and what they truly took.
    wanted = Counter(key[3][-1] for rows in seconds for key, row in rows.items() for _ in range(int(row[0])))  # type: ignore[index]
    found: dict[str, list[float]] = {group: [] for group in wanted}
    for seed in range(200):
        thinning, sums = Thinning(5.0, Random(seed).random), Counter[str]()
        for second, rows in enumerate(seconds):
            for key, row, weight in thinning.keep(second, rows):
                if key[3] is not None:
                    sums[key[3][-1]] += row[0] * weight  # type: ignore[index, assignment]
        for group in wanted:
            found[group].append(sums[group])
    for group, sums_of in found.items():
        error = stdev(sums_of) / len(sums_of) ** 0.5
        assert abs(mean(sums_of) - wanted[group]) <= 3 * error + 1e-6, group
    assert any(stdev(sums_of) > 0 for sums_of in found.values())  # they are samples


def test_a_hot_key_and_the_totals_are_exact() -> None:
    thinning = Thinning(8.0, Random(1).random)
    for second in range(40):
        rows = a_second(Random(second), 300, 2_000)
        kept = thinning.keep(second, rows)
        (hot,) = [(row, weight) for key, row, weight in kept if key[3] == "hot"]
        assert hot == (rows["PutItem", "T", None, "hot", None], 1.0)
        assert kept[-1][0] == ("PutItem", "T", None, None, None)
        assert kept[-1][1] == [300, 0.0, 450.0, 0]


def test_a_key_that_is_small_in_each_of_200_processes_is_exact_in_all() -> None:
    # 5,000 calls a second, of which 1,000 are of one key: five in each process.
    random = Random(5)
    traces = [Thinning(50.0, Random(number).random) for number in range(200)]
    for second in range(30):
        for thinning in traces:
            rows = a_second(random, 25, 50_000)
            kept = {key[3]: weight for key, _, weight in thinning.keep(second, rows)}
            assert "hot" not in kept or kept["hot"] == 1.0
            assert ("PutItem", "T", None, "hot", None) not in rows or "hot" in kept


def test_about_as_many_rows_are_kept_as_were_asked_for() -> None:
    for wanted in (0.5, 5.0, 50.0):
        thinning, kept = Thinning(wanted, Random(2).random), 0
        for second in range(400):
            rows = a_second(Random(second), 200, 100_000)
            kept += (second >= 100) * (len(thinning.keep(second, rows)) - 1)
        assert 0.6 * wanted <= kept / 300 <= 1.5 * wanted + 0.5, wanted


def test_memory_is_bounded_and_a_clock_that_is_set_back_changes_nothing() -> None:
    thinning = Thinning(10.0, Random(3).random)
    for second in (1000, 1001, 5, 6, 2000):
        rows: dict[RowKey, list[float]] = {
            ("GetItem", "T", None, f"{second}-{n}", None): [1, 0.5, 0.0, 0] for n in range(MOST_RECENT + 5_000)
        }
        assert thinning.keep(second, rows)[-1][1][0] == len(rows)
        assert len(thinning.recent) <= MOST_RECENT


def test_attempts_that_were_throttled_count_as_size() -> None:
    kept = Thinning(1.0, Random(4).random).keep(1, {("PutItem", "T", None, "k", None): [0, 0.0, 0.0, 7]})
    assert [(row, weight) for _, row, weight in kept] == [([0, 0.0, 0.0, 7], 1.0), ([0, 0.0, 0.0, 7], 1.0)]
