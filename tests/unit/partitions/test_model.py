"""The model of partitions: what they serve, refuse and keep, and how they split."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardkit import stable_hash
from shardkit.core.token_bucket import TokenBucket
from shardkit.errors import ConfigurationError
from shardkit.partitions import model
from shardkit.partitions.model import HASHES, Partitions, hash_of
from shardkit.partitions.partition import COLUMNS, Partition, PartitionHeat, Served
from shardkit.partitions.rules import TablePartitions

TICK = 0.1  # seconds


def of_partition(partitions: Partitions, place: int) -> int:
    """A hash in the middle of a partition's range."""
    return (partitions.ranges[place].start + partitions.ranges[place].stop) // 2


def written(
    partitions: Partitions, loads: list[float], seconds: float, *, since: float, units: float = 5
) -> list[float]:
    """Write items of some units for so long, at a rate for each partition; give what each served a second."""
    hashes = [of_partition(partitions, place) for place in range(len(loads))]
    taken = [0.0] * len(loads)
    for tick in range(round(seconds / TICK)):
        now = since + tick * TICK
        for place, load in enumerate(loads):
            for _ in range(round(load * TICK / units)):
                if partitions.throttle(hashes[place], "write", now, units=units) is None:
                    partitions.take(hashes[place], "write", units, now)
                    taken[place] += units
    return [served / seconds for served in taken]


# The guide's example: Best Practices for Tables, "Avoid Depending on DynamoDB Adaptive Capacity".


@pytest.mark.parametrize("adaptive_seconds", [300, 1800])
def test_the_hot_partition_of_the_guide_bursts_is_throttled_and_adapts(adaptive_seconds: float) -> None:
    """400 write units over four partitions; 50, 50, 50 and 150: burst, then 100 a second, and 150 when it adapted."""
    partitions = Partitions(read_units=0, write_units=400, count=4, adaptive_seconds=adaptive_seconds)
    loads = [50.0, 50.0, 50.0, 150.0]
    written(partitions, [50.0] * 4, 1, since=0)  # and nothing for more than five minutes
    # 300 seconds of 100 units are kept, and 50 a second of them are used: they last for 600 seconds.
    assert written(partitions, loads, 600, since=400) == pytest.approx(loads, rel=0.001)
    later = written(partitions, loads, adaptive_seconds, since=1000)
    assert later == pytest.approx([50, 50, 50, 100], rel=0.01)
    assert written(partitions, loads, 60, since=1000 + adaptive_seconds + 1) == loads


def test_without_adaptive_capacity_it_stays_throttled() -> None:
    partitions = Partitions(read_units=0, write_units=400, count=4, burst_seconds=0, adaptive_seconds=None)
    written(partitions, [0, 0, 0, 150.0], 10, since=0)
    assert written(partitions, [0, 0, 0, 150.0], 60, since=7200)[3] == pytest.approx(100, abs=2)


def test_adaptive_capacity_of_today_serves_it_at_once() -> None:
    """What the others leave is there; all four together get no more than the table has."""
    partitions = Partitions(read_units=0, write_units=400, count=4, burst_seconds=0)
    loads = [50.0, 50.0, 50.0, 150.0]
    assert written(partitions, loads, 60, since=0) == loads
    assert sum(written(partitions, [150.0] * 4, 60, since=60)) == pytest.approx(400, abs=10)
    throttle = partitions.throttle(of_partition(partitions, 0), "write", 120.0, units=401)
    assert throttle is not None
    assert throttle.reason == "TableWriteProvisionedThroughputExceeded"


def test_a_partition_serves_no_more_than_any_can() -> None:
    """However much the table has."""
    partitions = Partitions(read_units=30_000, write_units=10_000, count=20)
    assert written(partitions, [2000.0], 60, since=1000)[0] == pytest.approx(1000, abs=20)
    throttle = partitions.throttle(of_partition(partitions, 0), "read", 1060.0, units=3000)
    assert throttle is None
    partitions.take(of_partition(partitions, 0), "read", 3000, 1060.0)
    throttle = partitions.throttle(of_partition(partitions, 0), "read", 1060.0, units=0.5)
    assert throttle is not None
    assert throttle.reason == "TableReadKeyRangeThroughputExceeded"


# What is kept and served, whatever is asked for.

ASKED = st.lists(
    st.tuples(
        st.floats(0, 5),  # seconds later
        st.integers(0, HASHES - 1),
        st.sampled_from(["read", "write"]),
        st.floats(0.5, 400),
    ),
    max_size=60,
)
TABLES = st.fixed_dictionaries(
    {
        "read_units": st.sampled_from([1.0, 50.0, 6000.0]),
        "write_units": st.sampled_from([1.0, 50.0, 4000.0]),
        "count": st.sampled_from([None, 1, 4, 7]),
        "burst_seconds": st.sampled_from([0, 1, 300]),
        "adaptive_seconds": st.sampled_from([None, 0, 3]),
        "on_demand": st.booleans(),
        "split_for_heat": st.sampled_from([None, 0, 1]),
    }
)


@given(table=TABLES, asked=ASKED)
def test_no_more_is_served_than_there_is(table: dict[str, Any], asked: list[Any]) -> None:
    """In any time: of a partition its limit, of the table the provisioned, with what is kept (and a last request)."""
    partitions = Partitions(**table)
    taken: list[tuple[float, int, str, float]] = []
    now = 0.0
    for later, hashed, kind, units in asked:
        now += later
        if partitions.throttle(hashed, kind, now, units=units) is None:
            partitions.take(hashed, kind, units, now)
            taken.append((now, hashed, kind, units))
    limits = {"read": 3000.0, "write": 1000.0}
    for kind, limit in limits.items():
        of_kind = [(at, hashed, units) for at, hashed, one, units in taken if one == kind]
        total = table[f"{kind}_units"]
        for first, (since, _, _) in enumerate(of_kind):
            part = of_kind[first:]
            served = sum(units for _, _, units in part)
            kept = total * max(1, table["burst_seconds"])
            beyond = max([0.0, *(units - kept for _, _, units in part)])
            assert served <= total * (now - since) + kept + beyond + 1e-6
            for owned in partitions.ranges:
                here = sum(units for _, hashed, units in part if hashed in owned)
                assert here <= limit * (now - since) + limit + 1e-6


@given(table=TABLES, asked=ASKED)
def test_what_is_refused_takes_nothing(table: dict[str, Any], asked: list[Any]) -> None:
    """A refusal, however often, changes nothing of what is served later; the heat adds up."""
    once, twice = Partitions(**{**table, "split_for_heat": None}), Partitions(**{**table, "split_for_heat": None})
    now, taken, refused = 0.0, 0.0, 0.0
    for later, hashed, kind, units in asked:
        now += later
        throttle = once.throttle(hashed, kind, now, units=units)
        assert twice.throttle(hashed, kind, now, units=units) == throttle
        if throttle is None:
            once.take(hashed, kind, units, now)
            twice.take(hashed, kind, units, now)
            taken += units
        else:
            refused += units
            assert twice.throttle(hashed, kind, now, units=units) == throttle
    cells = [(heat.taken, heat.throttled) for heat in once.heat.by_range]
    assert sum(sum(sum(column) for column in one.values()) for one, _ in cells) == pytest.approx(taken)
    assert sum(sum(sum(column) for column in one.values()) for _, one in cells) == pytest.approx(refused)


def test_a_request_larger_than_all_that_is_kept_goes_and_is_paid_off() -> None:
    partitions = Partitions(read_units=0, write_units=10, burst_seconds=0)
    assert partitions.throttle(0, "write", 0.0, units=400) is None
    partitions.take(0, "write", 400, 0.0)
    assert partitions.throttle(0, "write", 39.0, units=1) is not None
    assert partitions.throttle(0, "write", 39.2, units=1) is None


def test_reads_are_billed_after_the_answer() -> None:
    """Of what is not known yet, any goes as long as something is left; the debt holds up the next one."""
    partitions = Partitions(read_units=100, write_units=0, burst_seconds=0)
    assert partitions.throttle(0, "read", 0.0) is None
    partitions.take(0, "read", 250, 0.0)
    assert partitions.throttle(0, "read", 1.4) is not None
    assert partitions.throttle(0, "read", 1.6) is None


# Splits.


def assert_whole(partitions: Partitions) -> None:
    """No hash is without a partition, none has two."""
    assert partitions.ranges[0].start == 0
    assert partitions.ranges[-1].stop == HASHES
    for before, after in zip(partitions.ranges, partitions.ranges[1:], strict=False):
        assert before.stop == after.start
    assert all(partitions.ranges)


@given(
    count=st.integers(1, 9),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("store"), st.integers(0, HASHES - 1), st.floats(0, 3e10)),
            st.tuples(st.just("hot"), st.integers(0, HASHES - 1), st.integers(0, HASHES - 1)),
        ),
        max_size=12,
    ),
)
def test_splits_lose_no_key(count: int, steps: list[Any]) -> None:
    partitions = Partitions(read_units=100, write_units=1000, count=count, split_for_heat=0, adaptive_seconds=None)
    before = len(partitions)
    for now, (step, one, other) in enumerate(steps):
        if step == "store":
            partitions.store(one, other, float(now))
        else:
            for hashed in (one, other) * 2:
                if partitions.throttle(hashed, "write", float(now), units=600) is None:
                    partitions.take(hashed, "write", 600, float(now))
        assert_whole(partitions)
        assert len(partitions) >= before, "a table never loses partitions"
        before = len(partitions)


def partitions_of(table: TablePartitions) -> Partitions:
    """The model of a table with one share for all partitions, as doubling leaves them."""
    return Partitions(
        read_units=table.read_units,
        write_units=table.write_units,
        count=table.partitions,
        burst_seconds=0,
        adaptive_seconds=None,
    )


def test_more_throughput_doubles_the_partitions() -> None:
    """The guide's: 4 partitions, 5,000 to 8,000 read units: 8, each 1,000 and 250; less throughput removes none."""
    table = TablePartitions.created(read_units=5000, write_units=2000)
    assert table.partitions == 4
    table = table.set_throughput(read_units=8000)
    assert table.partitions == 8
    assert written(partitions_of(table), [1000.0], 20, since=10)[0] == pytest.approx(250, rel=0.06)
    table = table.set_throughput(read_units=10, write_units=80)
    assert table.partitions == 8
    assert written(partitions_of(table), [1000.0], 20, since=200, units=1)[0] == pytest.approx(10, rel=0.06)


@pytest.mark.parametrize(
    ("count", "write_units", "after"),
    [(1, 1001, 2), (1, 8000, 8), (2, 2001, 4), (2, 8000, 8), (3, 3001, 6), (3, 9000, 12)],
)
def test_more_throughput_doubles_all_partitions_as_often_as_needed(count: int, write_units: int, after: int) -> None:
    """Each is split into equal ranges with equal shares; what they serve already splits none."""
    table = TablePartitions.created(read_units=0, write_units=count * 1000)
    assert table.partitions == count
    table = table.set_throughput(write_units=count * 1000)
    assert table.partitions == count
    partitions = partitions_of(table.set_throughput(write_units=write_units))
    assert len(partitions) == after
    assert_whole(partitions)
    sizes = [owned.stop - owned.start for owned in partitions.ranges]
    assert max(sizes) - min(sizes) <= 1
    share = write_units / after
    served = written(partitions, [0.0] * (after - 1) + [1000.0], 20, since=10, units=1)[-1]
    assert served == pytest.approx(share, rel=0.06)


def test_a_full_partition_is_split_and_its_throughput_divided() -> None:
    """The guide's: a partition of 1,250 and 500 splits, into two of 625 and 250."""
    partitions = Partitions(read_units=5000, write_units=2000, burst_seconds=0, adaptive_seconds=None)
    partitions.store(0, 9e9, 0.0)
    assert len(partitions) == 4
    partitions.store(0, 2e9, 0.0)
    assert len(partitions) == 5
    assert partitions.stored == [5.5e9, 5.5e9, 0, 0, 0]
    for place, units in ((0, 250), (1, 250), (2, 500)):
        loads = [0.0] * place + [1000.0]
        assert written(partitions, loads, 20, since=10 + 100 * place)[place] == pytest.approx(units, rel=0.06)


def two_hot_keys(now: float) -> int:
    return 5 if int(now * 10) % 2 else 9


@pytest.mark.parametrize(("key", "count"), [(two_hot_keys, 2), (lambda _: 5, 1)])
def test_a_partition_that_is_full_is_split_for_heat(key: Callable[[float], int], count: int) -> None:
    """Between its hot keys; one key alone cannot be split."""
    partitions = Partitions(read_units=None, write_units=None, count=1, on_demand=True, split_for_heat=60)
    taken: list[float] = []
    for tick in range(3000):
        now = tick / 10
        for _ in range(16):
            if partitions.throttle(key(now), "write", now, units=10) is None:
                partitions.take(key(now), "write", 10, now)
                taken.append(now)
    assert len(partitions) == count
    assert_whole(partitions)
    after = sum(10 for now in taken if now >= 200) / 100
    assert after == pytest.approx(1000 if count == 1 else 1600, rel=0.02)


def test_a_partition_is_split_for_heat_when_it_was_full_for_so_long() -> None:
    """Not before; and not where it was not full for ten seconds in between."""
    partitions = Partitions(read_units=None, write_units=None, count=1, on_demand=True, split_for_heat=60)

    def fill(since: float, seconds: int) -> None:
        for second in range(seconds):
            now = since + second
            for hashed in (5, 9):
                partitions.take(hashed, "write", 600, now)
            assert partitions.throttle(5, "write", now, units=1) is not None

    fill(0.0, 60)
    assert len(partitions) == 1
    fill(75.0, 60)
    assert len(partitions) == 1
    fill(135.0, 1)
    assert len(partitions) == 2
    assert_whole(partitions)


def test_a_partition_is_split_by_what_it_took_since_it_was_full() -> None:
    """Not by what made it full an hour ago."""
    partition = Partition(0, Fraction(1), {}, PartitionHeat(0))
    partition.see(7, 100)
    assert partition.heat_split() is None, "it is not full"
    for now, hashes in ((0.0, (100, 200)), (3600.0, (1000, 3000))):
        assert partition.full_for(now) == 0
        for hashed in hashes:
            partition.see(hashed, 10 / (now + 1))
        assert partition.full_for(now + 9) == 9
        assert partition.heat_split() == sum(hashes) // 2


def test_a_partition_that_lacks_only_its_share_is_not_split_for_heat() -> None:
    """Of the table's throughput: two halves would have no more."""
    partitions = Partitions(
        read_units=0, write_units=100, count=1, burst_seconds=0, adaptive_seconds=None, split_for_heat=0
    )
    for now in range(30):
        for hashed in (5, 9):
            partitions.take(hashed, "write", 60, float(now))
        assert partitions.throttle(5, "write", float(now), units=1) is not None
    assert len(partitions) == 1


# Heat, throttles, arguments.


def test_the_memory_of_heat_is_bounded() -> None:
    """Of a long time each column stands for more seconds, and nothing is lost of the units."""
    partitions = Partitions(read_units=None, write_units=None, count=1)
    for hour in range(50):
        partitions.take(7, "write", 2, 5000.0 + hour * 3600)
    (heat,) = partitions.heat.by_range
    assert len(heat.taken["write"]) <= COLUMNS
    assert sum(heat.taken["write"]) == 100
    assert partitions.heat.seconds * COLUMNS > 49 * 3600 >= partitions.heat.seconds * COLUMNS / 2
    assert heat.taken["write"][int(48 * 3600 / partitions.heat.seconds)] == 2


@pytest.mark.parametrize(
    ("on_demand", "code", "reasons", "limit"),
    [
        (False, "ProvisionedThroughputExceededException", "ThrottlingReasons", "ProvisionedThroughput"),
        (True, "ThrottlingException", "throttlingReasons", "MaxOnDemandThroughput"),
    ],
)
@pytest.mark.parametrize(("resource", "name"), [("table/orders", "Table"), ("table/orders/index/by-city", "Index")])
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_throttle_is_in_the_services_shape(
    *, on_demand: bool, code: str, reasons: str, limit: str, resource: str, name: str, kind: Literal["read", "write"]
) -> None:
    partitions = Partitions(
        read_units=100, write_units=100, on_demand=on_demand, resource=resource, burst_seconds=0, count=4
    )
    partitions.take(0, kind, 100, 0.0)
    throttle = partitions.throttle(HASHES - 1, kind, 0.0, units=1)
    assert throttle is not None
    error = throttle.error("Query")
    assert error.operation_name == "Query"
    assert error.response["Error"]["Code"] == code
    reason = f"{name}{kind.capitalize()}{limit}Exceeded"
    arn = f"arn:aws:dynamodb:us-east-1:123456789012:{resource}"
    assert dict(error.response)[reasons] == [{"reason": reason, "resource": arn}]


def test_hashes_of_keys() -> None:
    """That of every type of key, and of several attributes; numbers are one key however they are written."""
    assert hash_of({"S": "a"}) == stable_hash("a")
    assert hash_of({"N": "1.0"}) == hash_of({"N": "1"}) != hash_of({"N": "2"})
    assert hash_of({"B": b"a"}) == hash_of({"B": "YQ=="})
    assert hash_of({"S": "a"}, {"N": "1"}) == stable_hash(("a", 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"read_units": -1},
        {"write_units": float("nan")},
        {"count": 0},
        {"count": 1.5},
        {"burst_seconds": -1},
        {"adaptive_seconds": "off"},
        {"split_bytes": 0},
        {"split_for_heat": True},
        {"now": "soon"},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        Partitions(**{"read_units": 1, "write_units": 1, **wrong})


def test_a_table_can_have_a_million_partitions_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not made here, for they take gigabytes."""
    assert model.MOST_PARTITIONS == 1_000_000
    monkeypatch.setattr(model, "MOST_PARTITIONS", 10)
    assert len(Partitions(read_units=1, write_units=1, count=10)) == 10
    wrong: tuple[dict[str, Any], ...] = ({"count": 11}, {"write_units": 10_001})
    for too_many in wrong:
        with pytest.raises(ConfigurationError, match="count"):
            Partitions(**{"read_units": 1, "write_units": 1, **too_many})


@pytest.mark.parametrize("adaptive_seconds", [None, 0, 300])
def test_the_most_of_an_on_demand_table_is_not_shared_out(adaptive_seconds: float | None) -> None:
    """One partition may take all of it; together they get no more."""
    partitions = Partitions(
        read_units=None, write_units=400, count=4, on_demand=True, burst_seconds=0, adaptive_seconds=adaptive_seconds
    )
    assert written(partitions, [400.0, 0, 0, 0], 30, since=0)[0] == pytest.approx(400, rel=0.05)
    assert sum(written(partitions, [400.0] * 4, 30, since=30)) == pytest.approx(400, rel=0.05)


def test_a_new_on_demand_table_has_four_partitions() -> None:
    assert len(Partitions(read_units=None, write_units=None, on_demand=True)) == 4
    assert len(Partitions(read_units=None, write_units=9000, on_demand=True)) == 9
    assert len(Partitions(read_units=None, write_units=None)) == 1


# Several calls at once.


def test_what_a_partition_pays_is_taken_of_its_limit_and_of_its_share_or_of_neither() -> None:
    served = Served(
        TokenBucket(1000, burst=1000, balance=500, now=0.0),
        TokenBucket(100, burst=600, balance=600, now=0.0),
        None,
    )
    assert served.share is not None
    assert not served.pays(550, 0.0)
    assert not served.pays(601, 0.0)
    assert (served.limit.spare(0.0), served.share.spare(0.0)) == (500, 600)
    assert served.pays(450, 0.0)
    assert (served.limit.spare(0.0), served.share.spare(0.0)) == (50, 150)


WANTED = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 2, 25, 400, 1500])), max_size=30)


@given(
    batches=st.lists(st.tuples(st.floats(0, 2), WANTED), max_size=12),
    write_units=st.sampled_from([None, 100, 3000]),
    adaptive_seconds=st.sampled_from([None, 0, 2]),
    burst_seconds=st.sampled_from([0, 3]),
    split_for_heat=st.sampled_from([None, 1]),
)
@example(
    batches=[(0.0, []), (1.0, [(0, 1500), (11, 1500), (21, 1)])],
    write_units=3000,
    adaptive_seconds=0,
    burst_seconds=3,
    split_for_heat=None,
)
@example(
    batches=[(0.0, [(0, 400)]), (2.0, [(0, 400)])],
    write_units=100,
    adaptive_seconds=None,
    burst_seconds=3,
    split_for_heat=None,
)
def test_several_calls_at_once_are_served_as_one_by_one(
    batches: list[tuple[float, list[tuple[int, int]]]], **options: Any
) -> None:
    """The same ones are throttled, for the same reasons, and the same is taken of each partition."""
    together, one_by_one = (Partitions(read_units=0, count=4, **options) for _ in range(2))
    now = 0.0
    for seconds, wanted in batches:
        now += seconds
        calls = [(HASHES // 41 * place, float(units)) for place, units in wanted]
        throttles = together.serve_all(calls, "write", now)
        found = {n: one_by_one.serve(hashed, "write", units, now) for n, (hashed, units) in enumerate(calls)}
        assert throttles == {number: throttle for number, throttle in found.items() if throttle is not None}
    heats = [[(one.start, one.taken, one.throttled) for one in each.heat.by_range] for each in (together, one_by_one)]
    assert heats[0] == heats[1]
