"""What is exported: it sums to the meter's figures, and what is estimated stays apart."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity import CapacityMeter, Usage
from shardkit.capacity.charge import Charge, KeyUnits
from shardkit.capacity.exporters.emf import EmbeddedMetrics
from shardkit.capacity.exporters.measurements import (
    HOT_KEYS,
    METRICS,
    Measurements,
    Metric,
    check,
    differences,
    measure,
    present,
)
from shardkit.capacity.exporters.opentelemetry import CapacityInstruments
from shardkit.capacity.exporters.prometheus import CapacityCollector
from shardkit.capacity.tally import Tally
from shardkit.capacity.usage import Units
from shardkit.errors import ConfigurationError
from tests.support.exported import ROWS, Busy, hot_rows, rows
from tests.support.metered import FakeClient, charge, consumed, item

# The figure of Usage that a metric is.
FIGURES = {
    "consumed_read_capacity_units": "read_units",
    "consumed_write_capacity_units": "write_units",
    "estimated_read_capacity_units": "estimated_read_units",
    "estimated_write_capacity_units": "estimated_write_units",
}
NAMES = st.sampled_from(["T", "U", "V"])
OPERATIONS = st.sampled_from(["GetItem", "PutItem", "Query", "BatchWriteItem"])
HALVES = st.integers(0, 40).map(lambda halves: halves / 2)
UNITS = st.builds(Units, HALVES, HALVES, HALVES, HALVES)


@st.composite
def charges(draw: st.DrawFn) -> Charge:
    """One call to some tables and their indexes; a table's units have those of its indexes in them."""
    own = draw(st.dictionaries(NAMES, UNITS, min_size=1))
    places = st.tuples(st.sampled_from(sorted(own)), st.sampled_from(["by-day", "by-name"]))
    indexes = draw(st.dictionaries(places, UNITS))
    tables = dict(own)
    for (table, _), units in indexes.items():
        tables[table] = tables[table].plus(units)
    keys = [KeyUnits(table, "k", None, units) for table, units in tables.items()]
    return charge(draw(OPERATIONS), tables, keys, indexes)


def tally_of(calls: Sequence[Charge]) -> Tally:
    tally = Tally(max_keys=10, window=60)
    for call in calls:
        tally.add(call, 0.0)
    return tally


def of(tally: Tally) -> Measurements:
    return measure(SimpleNamespace(recorder=nullcontext(tally)))


@given(st.lists(charges()))
def test_units_sum_to_the_totals(calls: Sequence[Charge]) -> None:
    tally = tally_of(calls)
    exported = {metric.name: numbers for metric, numbers in of(tally).items()}
    for name, figure in FIGURES.items():
        numbers = exported[name]
        assert sum(numbers.values()) == getattr(tally.total, figure)
        for table, usage in tally.by_table.items():
            assert sum(n for (its, *_), n in numbers.items() if its == table) == getattr(usage, figure)
        for place, usage in tally.by_index.items():
            assert sum(n for (*its, _), n in numbers.items() if tuple(its) == place) == getattr(usage, figure)
        for operation, usage in tally.by_operation.items():
            assert sum(n for (*_, its), n in numbers.items() if its == operation) == getattr(usage, figure)
        assert min(numbers.values(), default=0.0) >= 0.0
    for table, usage in tally.by_table.items():
        assert sum(n for (its, _), n in exported["requests"].items() if its == table) == usage.requests


@given(st.lists(st.lists(charges(), max_size=3), max_size=4))
def test_differences_add_up(flights: Sequence[Sequence[Charge]]) -> None:
    tally, before, sums = tally_of([]), of(tally_of([])), dict[tuple[Metric, tuple[str, ...]], float]()
    for calls in flights:
        for call in calls:
            tally.add(call, 0.0)
        now = of(tally)
        for metric, numbers in differences(now, before).items():
            for place, number in numbers.items():
                assert number > 0
                sums[metric, place] = sums.get((metric, place), 0.0) + number
        before = now
    flat = {(metric, place): n for metric, numbers in of(tally).items() for place, n in numbers.items() if n}
    assert sums == flat


def test_all_that_a_meter_counts() -> None:
    busy = Busy()
    busy.calls()
    assert rows(measure(busy.meter)) == rows(measure(busy.scope)) == ROWS
    assert list(measure(busy.meter)) == list(METRICS)
    assert rows(differences(measure(busy.meter), measure(busy.scope))) == set()


def test_a_meter_that_saw_nothing() -> None:
    assert measure(CapacityMeter()) == {metric: {} for metric in METRICS}
    assert measure(CapacityMeter(), top=3) == {metric: {} for metric in (*METRICS, *HOT_KEYS)}


def test_an_index_that_is_reported_above_all() -> None:
    client, meter = FakeClient(), CapacityMeter()
    meter.attach(client)
    report = consumed(1.0, GlobalSecondaryIndexes={"by-day": {"CapacityUnits": 2.0}})
    client.call("PutItem", {"ConsumedCapacity": report}, TableName="T", Item=item("a"))
    written = measure(meter)[METRICS[1]]
    assert written == {("T", "", "PutItem"): 0.0, ("T", "by-day", "PutItem"): 2.0}


def test_the_hottest_keys() -> None:
    busy = Busy()
    busy.calls()
    assert hot_rows(busy.meter, 2) == {
        ("hottest_key_consumed_read_capacity_units", ("T", "a"), 0.5),
        ("hottest_key_consumed_write_capacity_units", ("T", "a"), 5.0),
        ("hottest_key_estimated_write_capacity_units", ("T", "a"), 1.0),
        ("hottest_key_consumed_read_capacity_units", ("T", "b"), 2.5),
    }
    keys = {place for _, place, _ in hot_rows(busy.meter, 10)}
    assert keys == {("T", "a"), ("T", "b"), ("T", "c"), ("U", "d"), ("U", "AP8=")}
    assert measure(busy.meter, top=0) == measure(busy.meter)


@pytest.mark.parametrize("top", [-1, True, 1.5, "5", None])
def test_how_many_keys(top: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"top: must be an integer >= 0 \(keys\), got"):
        check(CapacityMeter(), top)


def test_what_is_no_meter() -> None:
    not_a_meter: Any = FakeClient()
    for make in (CapacityCollector, CapacityInstruments, EmbeddedMetrics):
        with pytest.raises(ConfigurationError, match="got a FakeClient"):
            make(not_a_meter)


def test_reading_while_calls_are_counted() -> None:
    """A counter never goes down, though a table's own units are a difference of two."""
    client, meter = FakeClient(), CapacityMeter()
    meter.attach(client)
    answer = {"ConsumedCapacity": consumed(3.0, GlobalSecondaryIndexes={"by-day": {"CapacityUnits": 2.0}})}

    def work() -> None:
        for _ in range(200):
            client.call("PutItem", answer, TableName="T", Item=item("a"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        seen = [measure(meter)]
        while any(thread.is_alive() for thread in threads):
            seen.append(measure(meter))
    finally:
        sys.setswitchinterval(interval)
    for thread in threads:
        thread.join()
    last = measure(meter)
    for before, now in pairwise([*seen, last]):
        for metric, numbers in before.items():
            assert all(now[metric][place] >= number for place, number in numbers.items())
        written = now[METRICS[1]]
        assert written.get(("T", "by-day", "PutItem"), 0) == 2 * written.get(("T", "", "PutItem"), 0)
    assert last[METRICS[1]] == {("T", "", "PutItem"): 400.0, ("T", "by-day", "PutItem"): 800.0}


def test_keys_are_no_label_of_what_is_always_exported() -> None:
    assert {label for metric in METRICS for label in metric.labels} == {"table", "index", "operation", "reason"}


def test_labels_that_do_not_apply() -> None:
    names = {"table": "TableName", "index": "IndexName", "operation": "Operation"}
    assert present(METRICS[0], ("T", "", "GetItem"), names) == {"TableName": "T", "Operation": "GetItem"}


def test_tables_and_indexes_are_the_sums_over_their_operations() -> None:
    busy = Busy()
    busy.calls()
    busy.calls()
    assert busy.meter.by_table == {
        "T": Usage(6.0, 14.0, requests=10, throttles=2),
        "U": Usage(0.0, 2.0, 1.0, 0.0, requests=4),
    }
    assert busy.meter.by_index == {("T", "by-day"): Usage(5.0, 4.0, requests=4)}


def test_importing_shardkit_imports_no_exporter() -> None:
    """In a process of its own, where nothing else has imported them."""
    code = (
        "import sys, shardkit, shardkit.capacity; "
        "print(sorted({name for name in sys.modules if 'exporters' in name} "
        "| {'prometheus_client', 'opentelemetry'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


def test_importing_an_exporter_imports_no_library() -> None:
    """It is asked for when it is used, so that the error can name the extra."""
    modules = ("emf", "log", "opentelemetry", "prometheus")
    code = (
        f"import sys, {', '.join(f'shardkit.capacity.exporters.{name}' for name in modules)}; "
        "print(sorted({'prometheus_client', 'opentelemetry'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"
