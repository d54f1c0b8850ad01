"""Lines and files of traces: what was written is read, as far as it is whole, and nothing else is taken for it."""

from __future__ import annotations

import gzip
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import ConfigurationError
from shardkit.analysis.trace_files import HashedKey, TraceRow, line_of, read_traces, rows_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ONE_KEY = st.one_of(
    TEXT, st.binary(max_size=8), st.decimals(allow_nan=False, allow_infinity=False), TEXT.map(HashedKey)
)
KEYS = [st.none(), TEXT, TEXT.map(HashedKey), st.binary(max_size=8), st.tuples(ONE_KEY, ONE_KEY)]
UNITS = st.floats(0, 1e9).map(lambda units: round(units, 3))
COUNT = st.integers(0, 2**40)


def rows_with(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[TraceRow]]:
    """Draw rows with keys of one type, as a table has them."""
    one = st.builds(
        TraceRow, st.integers(0, 2**33), TEXT, TEXT, st.none() | TEXT, keys, st.none() | COUNT, COUNT, UNITS, UNITS,
        COUNT, st.none() | st.integers(0, 2**32 - 1), st.floats(1, 1e9),
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=6)


def row(number: int) -> TraceRow:
    return TraceRow(1404900000 + number, "PutItem", "Orders", None, f"k{number % 7}", None, number + 1, 0.0, 1.5)


def lines(*sizes: int) -> tuple[list[bytes], list[TraceRow]]:
    rows = [row(number) for number in range(sum(sizes))]
    made, begin = [], 0
    for size in sizes:
        made.append(line_of(rows[begin : begin + size]))
        begin += size
    return made, rows


@given(st.sampled_from(KEYS).flatmap(rows_with))
def test_a_line_holds_its_rows(rows: list[TraceRow]) -> None:
    read = [*rows_of(line_of(rows))]
    assert read == rows
    assert [type(one.key) for one in read] == [type(one.key) for one in rows]


def test_keys_of_several_tables_stay_apart() -> None:
    rows = [row(1)._replace(key=HashedKey("ab")), row(1)._replace(key="ab", table="U"), row(1)._replace(key=Decimal(1))]
    assert [type(one.key) for one in rows_of(line_of(rows))] == [HashedKey, str, Decimal]


def test_a_file_cut_anywhere_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    made, rows = lines(3, 2, 4)
    whole = zlib.compressobj(1, zlib.DEFLATED, 31)
    data, ends = b"", []
    for line in made:
        data += whole.compress(line) + whole.flush(zlib.Z_SYNC_FLUSH)
        ends.append(len(data))
    file = tmp_path / "cut.trace.jsonl.gz"
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        read = [*read_traces(file)]
        assert read == rows[: len(read)]
        # What the flush after a line takes is at its end: the line may be whole before.
        assert len(read) >= [0, 3, 5, 9][sum(end <= size for end in ends)]
    assert [*read_traces(file)] == rows


def test_files_and_folders_add_up_and_rows_are_passed_on(tmp_path: Path) -> None:
    made, rows = lines(2, 2)
    (tmp_path / "a.trace.jsonl.gz").write_bytes(gzip.compress(made[0]))
    (tmp_path / "b.trace.jsonl.gz").write_bytes(gzip.compress(made[1]))
    (tmp_path / "other.txt").write_text("no trace")
    assert [*read_traces(str(tmp_path))] == rows
    assert [*read_traces([tmp_path / "b.trace.jsonl.gz", rows[0]])] == [*rows[2:], rows[0]]
    # What cat makes of several.
    (tmp_path / "c").write_bytes(gzip.compress(made[0]) + gzip.compress(made[1]))
    assert [*read_traces(tmp_path / "c")] == rows


@pytest.mark.parametrize(
    "data",
    [
        b"plain text",
        gzip.compress(b"[]\n"),
        gzip.compress(b"{}\n"),
        gzip.compress(b"no json\n"),
        gzip.compress(line_of([row(1)]).replace(b'"v":1', b'"v":2')),
        gzip.compress(line_of([row(1)]).replace(b'"calls":[2]', b'"calls":[]')),
        gzip.compress(line_of([row(1)]).replace(b'"place":[0]', b'"place":[9]')),
        gzip.compress(line_of([row(1)]).replace(b'"k1"', b'{"X":"k1"}')),
        gzip.compress(line_of([row(1)]).replace(b'"t":1404900001', b'"t":null')),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.trace.jsonl.gz"
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"^files: .*x\.trace\.jsonl\.gz"):
        [*read_traces(file)]


def test_a_file_that_does_not_exist_and_a_line_without_end_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        [*read_traces(tmp_path / "none")]
    monkeypatch.setattr("shardkit.analysis.trace_files._MOST_BYTES", 1000)
    (tmp_path / "long").write_bytes(gzip.compress(b"x" * 100_000))
    with pytest.raises(ConfigurationError, match="is not a trace"):
        [*read_traces(tmp_path / "long")]
