from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity.charge import Charge, KeyUnits
from shardkit.capacity.tally import Ledger, Tally
from shardkit.capacity.usage import Units, Usage
from tests.support.metered import charge

HALVES = st.integers(0, 1000).map(lambda n: n / 2)
UNITS = st.builds(Units, HALVES, HALVES, HALVES, HALVES)
KEYS = st.one_of(st.none(), st.integers(0, 30))


def tally(max_keys: int = 100) -> Tally:
    return Tally(max_keys=max_keys, window=60)


def of_keys(*keys: tuple[str, object, Units], operation: str = "BatchWriteItem") -> Charge:
    """A charge of what its keys consumed."""
    tables: dict[str, Units] = {}
    for table, _, units in keys:
        tables[table] = tables.get(table, Units()).plus(units)
    return charge(operation, tables, [KeyUnits(table, key, None, units) for table, key, units in keys])


def units_of(usage: Usage) -> Units:
    return Units(usage.read_units, usage.write_units, usage.estimated_read_units, usage.estimated_write_units)


def test_totals() -> None:
    totals = tally()
    totals.add(of_keys(("A", "x", Units(write=2)), ("A", "y", Units(write=1)), ("B", "x", Units(write=1))), 0.0)
    totals.add(of_keys(("A", "x", Units(read=0.5)), operation="GetItem"), 1.0, [("tenant", "acme")])
    totals.add(of_keys(("A", None, Units(estimated_write=1)), operation="PutItem"), 2.0)
    totals.add(charge("Query", {"A": Units(2)}, indexes={("A", "G"): Units(2)}), 3.0)
    assert totals.total == Usage(2.5, 4, 0, 1, requests=4)
    assert totals.by_table == {"A": Usage(2.5, 3, 0, 1, 4), "B": Usage(0, 1, 0, 0, 1)}
    assert totals.by_index == {("A", "G"): Usage(2, requests=1)}
    assert totals.by_operation["BatchWriteItem"] == Usage(write_units=4, requests=1)
    assert totals.by_operation["PutItem"] == Usage(estimated_write_units=1, requests=1)
    assert totals.keys.usages() == {
        ("A", "x"): Usage(0.5, 2, requests=2),
        ("A", "y"): Usage(write_units=1, requests=1),
        ("B", "x"): Usage(write_units=1, requests=1),
    }
    assert totals.keys.others == Usage(estimated_write_units=1, requests=1)
    assert totals.tags.usages() == {("tenant", "acme"): Usage(0.5, requests=1)}
    assert totals.rates(4.0).usage == totals.total


@given(st.lists(st.lists(st.tuples(st.sampled_from("AB"), KEYS, UNITS), max_size=4)), st.integers(1, 4))
def test_all_parts_sum_to_the_total(calls: list[list[tuple[str, int | None, Units]]], max_keys: int) -> None:
    """Through the sketch too: what is held apart and the rest, reported and estimated each."""
    totals = tally(max_keys)
    whole = Units()
    for number, keys in enumerate(calls):
        totals.add(of_keys(*keys), number / 10)
        for _, _, units in keys:
            whole = whole.plus(units)
    assert units_of(totals.total) == whole
    assert units_of(sum(totals.by_table.values(), Usage())) == whole
    by_key = totals.keys.usages()
    assert units_of(sum(by_key.values(), totals.keys.others)) == whole
    assert sum(usage.requests for usage in by_key.values()) + totals.keys.others.requests == sum(map(len, calls))
    assert len(by_key) <= 2 * max_keys
    assert totals.total.requests == len(calls)


def test_throttles() -> None:
    totals = tally()
    totals.throttled(["A", "B"], 5.0, operation="PutItem", tables=["T"], key=("T", "x"))
    totals.throttled(["A"], 5.0, operation="BatchWriteItem", tables=["T", "U"], key=None)
    assert totals.throttles == {"A": 2, "B": 1}
    assert totals.total == Usage(throttles=2)
    assert totals.by_table == {"T": Usage(throttles=2), "U": Usage(throttles=1)}
    assert totals.keys.usages() == {("T", "x"): Usage(throttles=1)}
    assert totals.rates(6.0).usage == Usage(throttles=2)


def test_reads_and_writes_are_held_apart() -> None:
    ledger: Ledger[str] = Ledger(1)
    for key, units in (("read", Units(read=5)), ("written", Units(write=1)), ("both", Units(4, 0.5))):
        ledger.add(key, units, 1, 0)
    assert ledger.reads.held.keys() == {"both"}
    assert ledger.before("both")[0] == 5
    assert ledger.before("neither") == (5, 1)
    assert ledger.peaks("neither") == (0, 0)
    assert ledger.peaks("both") == (4, 0.5)
    assert sum(ledger.usages().values(), ledger.others) == Usage(9, 1.5, requests=3)
