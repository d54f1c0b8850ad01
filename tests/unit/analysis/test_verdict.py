"""Good and bad partition keys: the guide's table, and a partition's limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.analysis.keys import KeyUniformity, Uniformity
from shardkit.analysis.shards import shards_for
from shardkit.analysis.verdict import TABLE_UNITS, Verdict, judge
from shardkit.errors import ConfigurationError


def found_in(name: str, counts: dict[str, int]) -> Uniformity:
    uniformity = KeyUniformity([name])
    for key, count in counts.items():
        for _ in range(count):
            uniformity.add((key,), 350, 1.0, 0.5)
    return uniformity.result()


# -- Developer Guide, "Choosing a Partition Key": its table, row by row ------------------------------------------------


def test_user_id_where_the_application_has_many_users_is_good() -> None:
    verdict = judge(found_in("UserId", {f"user{number}": 1 + number % 7 for number in range(2000)}))
    assert verdict.good
    assert verdict.shards == 1
    assert verdict.reason == "it has 2,000 different values, and one partition can serve the hottest"


def test_status_code_where_there_are_only_a_few_is_bad() -> None:
    verdict = judge(found_in("Status", {"200": 900, "301": 50, "404": 40, "500": 10}))
    assert not verdict.good
    assert (
        verdict.reason == "it has too few different values (4): even if all were equally hot, each would take too much"
    )
    assert verdict.needed == shards_for(read_units=36_000, write_units=36_000)  # 90% of 40,000


MINUTES = [f"2014-07-09T{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
HOURS = [f"2014-07-09T{hour:02}" for hour in range(24)]
DAYS = [f"2013-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]


@pytest.mark.parametrize("values", [DAYS, HOURS, MINUTES], ids=["day", "hour", "minute"])
def test_creation_date_rounded_to_day_hour_or_minute_is_bad(values: list[str]) -> None:
    # The data are as even as can be; but all that is written at a time goes to one key.
    found = found_in("Created", dict.fromkeys(values, 10))
    assert found.evenness == pytest.approx(1.0)
    verdict = judge(found)
    assert not verdict.good
    assert verdict.reason == "Created says when an item is written: all items of one time go to one key"
    assert verdict.needed == shards_for(read_units=40_000, write_units=40_000)


def test_values_that_could_share_the_load_are_not_too_few() -> None:
    """Ten values share 8,000 units as 800 each, which a partition serves; but one of them is hotter."""
    found = found_in("Status", {"hot": 191, **{f"s{number}": 1 for number in range(9)}})
    assert judge(found, write_units=8000).reason == "one of its 10 values takes 95.5%, 10 times its even share"
    assert judge(found, write_units=8001).reason.startswith("it has too few different values (10)")


def test_device_id_where_each_is_accessed_alike_is_good() -> None:
    assert judge(found_in("DeviceId", {f"device{number}": 20 for number in range(500)})).good


def test_device_id_where_one_is_by_far_more_popular_is_bad() -> None:
    verdict = judge(found_in("DeviceId", {"popular": 5000, **{f"device{number}": 20 for number in range(500)}}))
    assert not verdict.good
    assert verdict.reason == "one of its 501 values takes 33.3%, 167 times its even share"
    assert verdict.shards == shards_for(write_units=40_000 / 3).shards


def test_what_fits_into_a_single_partition_is_good() -> None:
    # "If ... requirements do not exceed the read and write capabilities of a single partition ..."
    days = found_in("Date", {"2014-07-09": 10})
    verdict = judge(days, write_units=800, read_units=2400)  # 20% is left free
    assert verdict.good
    assert verdict.reason == "it has only one value, but one partition can serve it at this rate"
    assert not judge(days, write_units=800.5).good
    assert not judge(days, read_units=2401).good


def test_a_day_beyond_what_shards_can_serve_has_no_number() -> None:
    verdict = judge(found_in("Date", {"2014-07-09": 10, "2014-07-10": 10}), write_units=200_000)
    assert (verdict.good, verdict.shards) == (False, None)
    assert "on 400 partitions (assumed: twice what this key takes), one gets more" in verdict.needed.reason


# -- the rule ----------------------------------------------------------------------------------------------------------


def test_reads_and_writes_are_judged_apart() -> None:
    uniformity = KeyUniformity(["k"])
    uniformity.add(("written",), 1024 * 10, 10.0, 1.5)
    uniformity.add(("read",), 4096, 4.0, 0.5)
    uniformity.add(("read",), 4096, 4.0, 0.5)
    verdict = judge(uniformity.result(), write_units=9000, read_units=15_000)
    assert verdict.writes is not None
    assert verdict.reads is not None
    assert (verdict.writes.share, verdict.writes.units) == (10 / 18, 5000)
    assert (verdict.reads.share, verdict.reads.units) == (0.6, 9000)
    assert verdict.needed == shards_for(write_units=5000, read_units=9000)
    only_reads = judge(uniformity.result(), read_units=15_000)
    assert only_reads.writes is None
    assert only_reads.shards == shards_for(read_units=9000).shards


def test_without_a_rate_it_is_what_a_table_gets() -> None:
    found = found_in("k", {f"{number}": 1 for number in range(50)})
    assert judge(found) == judge(found, write_units=TABLE_UNITS, read_units=TABLE_UNITS)
    assert judge(found).good
    assert not judge(found_in("k", {f"{number}": 1 for number in range(49)})).good


def test_a_composite_key_with_a_date_is_judged_by_its_keys_of_a_date() -> None:
    uniformity = KeyUniformity(["Date", "Origin"])
    for day in range(1, 29):
        for origin, count in (("EWR", 3), ("JFK", 2), ("LGA", 1)):
            for _ in range(count):
                uniformity.add((f"2013-02-{day:02}", origin), 350, 1.0, 0.5)
    verdict = judge(uniformity.result(), write_units=4000)
    assert (
        verdict.reason
        == "Date says when an item is written: all items of one time go to few keys, 50.0% of them to the hottest"
    )
    assert verdict.shards == shards_for(write_units=2000).shards


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 30), min_size=1),
    st.floats(1, 10_000),
    st.floats(1, 30_000),
)
def test_shards_are_those_that_the_hottest_key_needs(
    counts: dict[str, int], write_units: float, read_units: float
) -> None:
    verdict: Verdict = judge(found_in("k", counts), write_units=write_units, read_units=read_units)
    heats = [heat for heat in (verdict.writes, verdict.reads) if heat is not None]
    assert verdict.good == (verdict.shards == 1)
    assert verdict.good == all(heat.units <= heat.limit * 0.8 * (1 + 1e-8) for heat in heats)
    writes, reads = (max(counts.values()) / sum(counts.values()) * rate for rate in (write_units, read_units))
    assert verdict.shards == shards_for(write_units=writes, read_units=reads).shards


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_what_is_no_rate(rate: float) -> None:
    found = found_in("k", {"a": 1})
    with pytest.raises(ConfigurationError, match=r"write_units: must be a number > 0 \(units a second\), got"):
        judge(found, write_units=rate)
    with pytest.raises(ConfigurationError, match=r"read_units: must be a number > 0 \(units a second\), got"):
        judge(found, read_units=rate)
