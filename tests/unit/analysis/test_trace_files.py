"""Lines and files of traces: what was written is read, as far as it is whole, and nothing else is taken for it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import ConfigurationError
from shardkit.analysis.trace_files import TraceRow, line_of, read_traces, rows_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ONE_KEY = st.one_of(TEXT, st.binary(max_size=8), st.decimals(allow_nan=False, allow_infinity=False))
KEYS = st.one_of(st.none(), ONE_KEY, st.tuples(ONE_KEY, ONE_KEY))
UNITS = st.floats(0, 1e9).map(lambda units: round(units, 3))
COUNT = st.integers(0, 2**40)


ROWS = st.builds(
    TraceRow, st.integers(0, 2**33), TEXT, TEXT, st.none() | TEXT, KEYS, st.none() | COUNT, COUNT, UNITS, UNITS, COUNT,
    st.none() | st.integers(0, 2**32 - 1), st.floats(1, 1e9),
)  # fmt: skip


def row(number: int) -> TraceRow:
    return TraceRow(1404900000 + number, "PutItem", "Orders", None, f"k{number % 7}", None, number + 1, 0.0, 1.5)


def lines(*sizes: int) -> tuple[list[bytes], list[TraceRow]]:
    rows = [row(number) for number in range(sum(sizes))]
    made, begin = [], 0
    for size in sizes:
        made.append(line_of(rows[begin : begin + size]))
        begin += size
    return made, rows


@given(st.lists(ROWS, min_size=1, max_size=6))
def test_a_line_holds_its_rows(rows: list[TraceRow]) -> None:
    read = [*rows_of(line_of(rows))]
    assert read == rows
    assert [type(one.key) for one in read] == [type(one.key) for one in rows]


def test_a_file_cut_anywhere_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    made, rows = lines(3, 2, 4)
    data, ends = b"", []
    for line in made:
        data += gzip.compress(line)
        ends.append(len(data))
    file = tmp_path / "cut.trace.jsonl.gz"
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        read = [*read_traces(file)]
        assert read == rows[: len(read)]
        # A line may be whole before the checksum that ends it is.
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
        gzip.compress(line_of([row(1)]).replace(b'"k1"', b'{"X":"k1"}')),
        gzip.compress(line_of([row(1)]).replace(b'"second":[1404900001]', b'"second":null')),
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
