"""Parquet and frames: rows as items, row groups as what cursors are spread over."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import ShardedTable, Unsharded
from shardkit.bulk.load import as_source
from shardkit.bulk.sources.base import BadRecord
from shardkit.bulk.sources.opening import open_source
from shardkit.errors import ConfigurationError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "N"},
    ],
}


@pytest.fixture(scope="module")
def orders() -> ShardedTable:
    """A table that is never asked for anything."""
    table = boto3.resource("dynamodb", region_name="us-east-1").Table("Orders")
    return ShardedTable(table, Unsharded(), key_schema=SCHEMA)


keys = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1)), max_size=30).flatmap(
    lambda made: st.sampled_from([made, sorted(made)])
)


@pytest.mark.parametrize("kind", ["parquet", "frame"])
@given(made=keys, group=st.integers(1, 7), cursors=st.integers(1, 9), done=st.sets(st.integers(0, 29)))
def test_every_row_once(
    kind: str, made: list[Any], group: int, cursors: int, done: set[int], tmp_path: Path, orders: ShardedTable
) -> None:
    table = pa.table(
        {
            "Date": pa.array([date for date, _ in made], pa.string()),
            "OrderId": pa.array([order for _, order in made], pa.int64()),
            "Row": pa.array(range(len(made)), pa.int64()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=group)

    def opened() -> Any:
        return open_source(table if kind == "frame" else tmp_path / "a.parquet", table=orders, cursors=cursors)

    source = opened()
    pairs = list(source.read())
    in_order = sorted(pairs, key=lambda pair: pair[0])
    assert [record for _, record in in_order] == [
        {"Date": date, "OrderId": order, "Row": row} for row, (date, order) in enumerate(made)
    ]
    assert source.total == len(made)
    for (first, one), (second, other) in pairwise(in_order):
        if (one["Date"], one["OrderId"]) == (other["Date"], other["OrderId"]):
            assert first.cursor == second.cursor
    for place, record in pairs:
        assert source.where(place).endswith(f", row {record['Row'] + 1}")
    again = opened()
    assert again.identity() == source.identity()
    places = {place for number, (place, _) in enumerate(in_order) if number in done}
    left = sorted(again.read(places.__contains__), key=lambda pair: pair[0])
    assert left == [pair for pair in in_order if pair[0] not in places]


UTC_NOON = dt.datetime(2014, 7, 9, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([True, None]), True),
        (pa.array([2**63 - 1, None]), 2**63 - 1),
        (pa.array([0.1, None], pa.float32()), Decimal("0.1")),
        (pa.array([0.1, None]), Decimal("0.1")),
        (pa.array([1e-7, None]), Decimal("1e-7")),
        (pa.array([Decimal("12.50"), None]), Decimal("12.50")),
        (pa.array(["x", None]), "x"),
        (pa.array(["x", None]).dictionary_encode(), "x"),
        (pa.array([0.5, None]).dictionary_encode(), Decimal("0.5")),
        (pa.array([b"\x00", None]), b"\x00"),
        (pa.array([dt.date(2014, 7, 9), None]), "2014-07-09"),
        (pa.array([dt.time(1, 2, 3), None]), "01:02:03.000000"),
        (pa.array([dt.datetime(2014, 7, 9, 12), None], pa.timestamp("s")), "2014-07-09T12:00:00"),  # noqa: DTZ001
        (pa.array([1404907200000000001, None], pa.timestamp("ns")), "2014-07-09T12:00:00.000000001"),
        (pa.array([UTC_NOON, None], pa.timestamp("s", "Europe/Berlin")), "2014-07-09T12:00:00Z"),
        (pa.array([[1, 2], None]), [1, 2]),
        (pa.array([[0.1, None], None]), [Decimal("0.1"), None]),
        (pa.array([{"a": 0.5, "b": None}, None]), {"a": Decimal("0.5")}),
        (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), {"a": 1}),
        (pa.array([[], None], pa.map_(pa.string(), pa.int64())), {}),
        (pa.array([[dt.date(2014, 7, 9)], None]), ["2014-07-09"]),
        (pa.array([[UTC_NOON], None], pa.list_(pa.timestamp("s", "Europe/Berlin"))), ["2014-07-09T12:00:00Z"]),
        (pa.array([{"a": [dt.time(1, 2, 3), None]}, None]), {"a": ["01:02:03.000000", None]}),
        (pa.array([[0.1], None], pa.list_(pa.float32(), 1)), [Decimal("0.1")]),
        (pa.array([[["x"], []], None], pa.large_list(pa.list_(pa.string()))), [["x"], []]),
        (pa.array([{"a": {"b": b"\x00"}, "c": True}, None]), {"a": {"b": b"\x00"}, "c": True}),
        (pa.array([{}, None], pa.struct([])), {}),
    ],
    ids=str,
)
def test_values(column: Any, expected: Any) -> None:
    table = pa.table({"Date": pa.array(["d", "e"]), "Value": column})
    pairs = list(open_source(table).read())
    assert [record for _, record in pairs] == [{"Date": "d", "Value": expected}, {"Date": "e"}]
    value: Any = pairs[0][1]
    assert type(value["Value"]) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        pa.array([float("nan")]),
        pa.array([float("-inf")]),
        pa.array([[float("nan")]]),
        pa.array([{"a": {"b": float("inf")}}]),
        pa.array([dt.timedelta(1)]),
        pa.array([[dt.timedelta(1)]]),
        pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval())),
        pa.array([2**60], pa.timestamp("s")),
        pa.array([[2**60]], pa.list_(pa.timestamp("s"))),
        pa.array([2**31 - 1], pa.date32()),
        pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())),
        pa.array([[([1], "x")]], pa.map_(pa.list_(pa.int64()), pa.string())),
    ],
    ids=str,
)
def test_what_dynamodb_cannot_hold_is_a_bad_record(value: Any) -> None:
    ((_, record),) = open_source(pa.table({"Date": ["d"], "Value": value})).read()
    assert isinstance(record, BadRecord)
    assert "column 'Value' holds" in str(record.error)
    assert "cannot hold" in str(record.error)


def test_nested_values_of_a_part_of_a_frame() -> None:
    """Sections are slices: what is nested in them begins at an offset."""
    values: list[Any] = [{"l": [n], "m": [("k", n)], "s": {"n": n}} if n % 3 else None for n in range(50)]
    kind = pa.struct(
        [("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64())), ("s", pa.struct([("n", pa.int64())]))]
    )
    frame = pa.table({"Value": pa.array(values, kind)}).slice(7)
    assert [record for _, record in open_source(frame).read()] == [
        {"Value": {"l": [n], "m": {"k": n}, "s": {"n": n}}} if n % 3 else {} for n in range(7, 50)
    ]


@pytest.mark.parametrize("kind", ["parquet", "frame"])
def test_row_labels_of_pandas_without_a_name_are_no_column(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    whole = pandas.DataFrame({"Date": ["d", "e", "f", "g"], "Total": [1, 2, 3, 4]})
    for frame in (whole[whole.Total != 2], whole[whole.Total != 2].set_index("Date")):
        frame.to_parquet(tmp_path / "a.parquet")
        source = open_source(frame if kind == "frame" else tmp_path / "a.parquet")
        assert [record for _, record in source.read()] == [
            {"Date": "d", "Total": 1},
            {"Date": "f", "Total": 3},
            {"Date": "g", "Total": 4},
        ]


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_frames_of(library: str) -> None:
    module = pytest.importorskip(library)
    made = module.table if library == "pyarrow" else module.DataFrame
    frame = made({"Date": ["d", "e"], "Total": [1, 2]})
    assert [record for _, record in as_source(frame).read()] == [{"Date": "d", "Total": 1}, {"Date": "e", "Total": 2}]


def test_missing_values_of_pandas_are_left_out() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"Date": ["d", None], "Total": [1.5, float("nan")]})
    assert [record for _, record in open_source(frame).read()] == [{"Date": "d", "Total": Decimal("1.5")}, {}]


def test_auto_looks_at_row_groups(tmp_path: Path, orders: ShardedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.bulk.sources.opening._SMALL", 0)
    rows = range(40_000)
    mixed = [number * 7919 % 40_000 for number in rows]
    for order, expected in ((rows, 40), (mixed, 1)):
        days = [f"day-{number // 2000:03}" for number in order]
        table = pa.table({"Date": days, "OrderId": list(rows)})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
        assert open_source(tmp_path / "a.parquet", table=orders).cursors == expected
        assert open_source(table, table=orders).cursors == (64 if expected > 1 else 1)


def test_a_key_column_must_be_there(orders: ShardedTable) -> None:
    with pytest.raises(ConfigurationError, match="no column 'OrderId'"):
        open_source(pa.table({"Date": ["d"]}), table=orders)


def test_no_two_columns_have_one_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a name twice"):
        open_source(pa.table([pa.array(["d"]), pa.array(["e"])], names=["Date", "Date"]))
    pair = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    listed = pa.ListArray.from_arrays([0, 1], pair)
    mapped = pa.MapArray.from_arrays([0, 1], pa.array(["k"]), pair)
    for column in (pair, listed, mapped):
        frame = pa.table({"Date": ["d"], "Value": column})
        pq.write_table(frame, tmp_path / "a.parquet")
        for where in (frame, tmp_path / "a.parquet"):
            with pytest.raises(ConfigurationError, match=r"columns: .* has 'Value\.a' twice"):
                open_source(where)


def test_a_map_with_a_key_twice_is_a_bad_record() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    frame = pa.table({"Date": ["d", "e"], "Value": pa.array([[("a", 1), ("b", 2), ("a", 3)], [("a", 1)]], kind)})
    bad, good = (record for _, record in open_source(frame).read())
    assert good == {"Date": "e", "Value": {"a": 1}}
    assert isinstance(bad, BadRecord)
    assert str(bad.error) == (
        "column 'Value' holds [('a', 1), ('b', 2), ('a', 3)], a map that has a key twice; write each key once"
    )


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x" * 100)
    with pytest.raises(ConfigurationError, match="cannot be read as Parquet"):
        open_source(tmp_path / "a.parquet")
    table = pa.table({"Date": [str(number) for number in range(10_000)]})
    pq.write_table(table, tmp_path / "b.parquet", compression="snappy")
    raw = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(raw[:1000] + b"\xff" * 3000 + raw[4000:])
    with pytest.raises(ConfigurationError, match=r"b\.parquet cannot be read as Parquet"):
        list(open_source(tmp_path / "b.parquet").read())
    with pytest.raises(ConfigurationError, match="standard input and pipes cannot be Parquet"):
        open_source("-", format="parquet")
