"""Lines as records: JSON Lines, DynamoDB JSON, CSV and TSV, what is wrong in them, and standard input."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import pytest

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.bulk.sources import lines
from shardkit.bulk.sources.base import BadRecord, Place, Source
from shardkit.bulk.sources.cells import Cells, infer_types, item_of, parse_types
from shardkit.bulk.sources.files import Pipe, printable
from shardkit.bulk.sources.opening import open_source
from shardkit.errors import ConfigurationError, InvalidValueError

SCHEMA: dict[str, Any] = {
    "KeySchema": [
        {"AttributeName": "Date", "KeyType": "HASH"},
        {"AttributeName": "OrderId", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "OrderId", "AttributeType": "S"},
    ],
}


@pytest.fixture(scope="module")
def orders() -> ShardedTable:
    """A table that is never asked for anything."""
    table = boto3.resource("dynamodb", region_name="us-east-1").Table("Orders")
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=3), key_schema=SCHEMA)


def wrote(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def items_of(source: Source) -> list[Any]:
    return [record for _, record in source.read()]


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_json_numbers_stay_exact(tmp_path: Path) -> None:
    exact = "0.12345678901234567890123456789012345678"
    path = wrote(tmp_path, "a.jsonl", f'{{"a": {exact}, "b": 12345678901234567890123, "c": null, "d": [1.50]}}\n')
    assert items_of(open_source(path)) == [
        {"a": Decimal(exact), "b": 12345678901234567890123, "c": None, "d": [Decimal("1.50")]}
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not JSON", "cannot be read as an item"),
        ("[1, 2]", "a JSON list"),
        ('{"a": NaN}', "NaN"),
        ('{"a": "\udcff"}', "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_a_bad_line_is_a_bad_record(line: str, says: str, tmp_path: Path) -> None:
    raw = b'{"a": 1}\n' + line.encode(errors="surrogateescape") + b'\n{"a": 2}\n'
    source = open_source(wrote(tmp_path, "a.jsonl", raw))
    good, bad, after = source.read()
    assert (good[1], after) == ({"a": 1}, (Place(0, 2), {"a": 2}))
    assert bad[0] == Place(0, 1)
    assert isinstance(bad[1], BadRecord)
    assert says in str(bad[1].error)
    assert bad[1].text == line.encode(errors="surrogateescape").decode(errors="replace")


@pytest.mark.parametrize(
    "line", ['{"Date": {"S": "d"}, "Raw": {"B": "AP8="}}', '{"Item": {"Date": {"S": "d"}, "Raw": {"B": "AP8="}}}']
)
def test_dynamodb_json_is_known_by_its_first_record(line: str, tmp_path: Path) -> None:
    source = open_source(wrote(tmp_path, "a.json", line + "\n"))
    assert source.format == "dynamodb"
    (item,) = items_of(source)
    assert item == {"Date": "d", "Raw": b"\x00\xff"}


def test_few_records_tell_the_format(tmp_path: Path) -> None:
    """Not a sample of the whole file, which took longer than some loads."""
    path = wrote(tmp_path, "a.jsonl", '{"Date": "d"}\n' * 2000)
    with patch.object(lines, "_loads", wraps=json.loads) as parsed:
        assert open_source(path).format == "jsonl"
    assert parsed.call_count <= 100


def test_dynamodb_json_tells_what_it_cannot_read(tmp_path: Path) -> None:
    lines = [
        '{"Item": {"Date": {"S": "d"}}, "place": "orders.csv, line 18", "code": "X", "reason": "r"}',  # a dead letter
        '{"Item": {"S": "x"}, "Date": {"S": "d"}}',  # an attribute of that name
        '{"Keys": {"Date": {"S": "d"}}, "OldImage": {}}',
        '{"Date": {"Q": "d"}}',
        '{"Item": {"Date": {"S": "d"}}, "ConditionExpression": "attribute_not_exists(Date)"}',
    ]
    source = open_source(wrote(tmp_path, "a.json", "\n".join(lines)), format="dynamodb")
    letter, attribute, incremental, unknown, conditional = items_of(source)
    assert "a condition (ConditionExpression), which a batch cannot check" in str(conditional.error)
    assert letter == {"Date": "d"}
    assert attribute == {"Item": "x", "Date": "d"}
    assert "incremental export" in str(incremental.error)
    assert "must be a wire value" in str(unknown.error)


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = wrote(tmp_path, "a.json", b"[" + b"1," * 4_300_000)
    with pytest.raises(ConfigurationError, match="one record per line"):
        items_of(open_source(path, format="jsonl"))


# -- CSV ---------------------------------------------------------------------------------------------------------------


def test_cells(tmp_path: Path) -> None:
    content = (
        "\ufeffDate,Zip,Total,Gift,Raw,Note\r\n"
        '2014-07-09,01234,1.50,true,AP8=,"a ""quoted"", long\r\nnote"\r\n'
        "2014-07-10,99999,,FALSE,,\r\n\r\n"
        "2014-07-11,00001,NA,,,x\r\n"
    )
    source = open_source(wrote(tmp_path, "a.csv", content), types={"Raw": "B"}, absent=["NA"])
    assert source.types == {"Date": "S", "Zip": "S", "Total": "N", "Gift": "BOOL", "Raw": "B", "Note": "S"}
    assert items_of(source) == [
        {
            "Date": "2014-07-09",
            "Zip": "01234",
            "Total": Decimal("1.50"),
            "Gift": True,
            "Raw": b"\x00\xff",
            "Note": 'a "quoted", long\r\nnote',
        },
        {"Date": "2014-07-10", "Zip": "99999", "Gift": False},
        {"Date": "2014-07-11", "Zip": "00001", "Note": "x"},
    ]
    kept = open_source(tmp_path / "a.csv", types={"Raw": "B"}, absent=["NA"], empty_strings=True)
    assert items_of(kept)[1] == {"Date": "2014-07-10", "Zip": "99999", "Gift": False, "Note": ""}


def test_key_columns_have_the_types_of_the_table(tmp_path: Path, orders: ShardedTable) -> None:
    path = wrote(tmp_path, "a.csv", "Date,OrderId,Total\n20140709,17,5\n")
    source = open_source(path, table=orders)
    assert source.types == {"Date": "S", "OrderId": "S", "Total": "N"}
    assert items_of(source) == [{"Date": "20140709", "OrderId": "17", "Total": Decimal(5)}]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("d,many", "'Total' holds 'many', which is not a number"),
        ("d,1_000", "not a number"),
        ("d,NaN", "not a number"),
        (f"d,{'9' * 39}", "which DynamoDB cannot hold: numbers have up to 38 digits"),
        ("d,1e127", "are below 1E+126"),
        ("d", "1 cells, the header 2"),
        ("d,1,2", "3 cells, the header 2"),
        ('d,"1"2', "cannot be read"),
    ],
)
def test_a_bad_row_is_a_bad_record(row: str, says: str, tmp_path: Path) -> None:
    path = wrote(tmp_path, "a.csv", f"Date,Total\nbefore,1\n{row}\nafter,2\n")
    before, bad, after = open_source(path, types="Total:N").read()
    assert (before[1], after) == (
        {"Date": "before", "Total": Decimal(1)},
        (Place(0, 2), {"Date": "after", "Total": Decimal(2)}),
    )
    assert isinstance(bad[1], BadRecord)
    assert says in str(bad[1].error)
    assert bad[1].text == row


def test_a_row_that_is_not_utf_8_is_a_bad_record(tmp_path: Path) -> None:
    records = items_of(open_source(wrote(tmp_path, "a.csv", b"Date\nok\n\xff\xfe\nok too\n")))
    assert [records[0], records[2]] == [{"Date": "ok"}, {"Date": "ok too"}]
    assert isinstance(records[1].error, InvalidValueError)


def test_an_open_quote_does_not_swallow_what_stands_before_it(tmp_path: Path) -> None:
    records = items_of(open_source(wrote(tmp_path, "a.csv", 'Date\nok\n"never closed\nx\n')))
    assert records[0] == {"Date": "ok"}
    assert isinstance(records[1], BadRecord)
    assert len(records) == 2


def test_tsv_other_delimiters_and_files_without_a_header(tmp_path: Path) -> None:
    expected = [{"Date": "d", "Total": Decimal(1)}, {"Date": "e", "Total": Decimal(2)}]
    assert items_of(open_source(wrote(tmp_path, "a.tsv", "Date\tTotal\nd\t1\ne\t2\n"))) == expected
    assert items_of(open_source(wrote(tmp_path, "a.csv", "Date;Total\nd;1\ne;2\n"), delimiter=";")) == expected
    one = open_source(wrote(tmp_path, "c.csv", "Date;Total\nd;1\n"), delimiter=",")
    assert items_of(one) == [{"Date;Total": "d;1"}]
    bare = open_source(wrote(tmp_path, "b.csv", "d,1\ne,2\n"), columns=["Date", "Total"])
    assert items_of(bare) == expected
    assert bare.where(Place(0, 0)).endswith("line 1")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2.5", "0", "1.5e-7"], "N"),
        (["007"], "S"),
        (["1E5"], "S"),
        (["1", "x"], "S"),
        (["1", ""], "N"),
        ([""], "S"),
        (["true", "False"], "BOOL"),
        (["true", "1"], "S"),
        (["9" * 39], "S"),
        (["NaN"], "S"),
    ],
)
def test_infer_types(cells: list[str], kind: str) -> None:
    assert infer_types([{"a": cell} for cell in cells], frozenset({""})) == {"a": kind}


def test_columns_of_several_files(tmp_path: Path) -> None:
    """A column is inferred wherever it stands, and may be of some of the files only."""
    wrote(tmp_path, "a.csv", "Date,Total\nd,5\n")
    wrote(tmp_path, "b.csv", "Total,Gift,Date,Zip\n6,true,e,7\n")
    source = open_source(tmp_path, types="Zip:S")
    assert source.types == {"Date": "S", "Total": "N", "Gift": "BOOL", "Zip": "S"}
    assert items_of(source) == [{"Date": "d", "Total": 5}, {"Date": "e", "Total": 6, "Gift": True, "Zip": "7"}]


@pytest.mark.parametrize("empty", [b"", gzip.compress(b"", mtime=0)], ids=["plain", "gzip"])
def test_empty_files_beside_others(empty: bytes, tmp_path: Path, orders: ShardedTable) -> None:
    """Jobs write them for parts without rows."""
    for number, content in enumerate([empty, b"Date,OrderId\nd,1\n", empty, b"Date,OrderId\nd,2\n", empty]):
        wrote(tmp_path, f"part-{number}.csv", content)
    source = open_source(tmp_path, table=orders)
    assert items_of(source) == [{"Date": "d", "OrderId": "1"}, {"Date": "d", "OrderId": "2"}]


def test_cells_as_large_as_an_item(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The limit of csv itself is less; one that the program has set higher stays."""
    before = csv.field_size_limit(131_072)
    request.addfinalizer(lambda: csv.field_size_limit(before))
    path = wrote(tmp_path, "a.csv", "Date,Note\nd," + "x" * 400_000 + "\n")
    assert items_of(open_source(path)) == [{"Date": "d", "Note": "x" * 400_000}]
    csv.field_size_limit(2**30)
    assert items_of(open_source(path)) == [{"Date": "d", "Note": "x" * 400_000}]
    assert csv.field_size_limit() == 2**30


def test_what_is_added_meanwhile_is_not_read(tmp_path: Path) -> None:
    """Else a file of dead letters that is loaded with itself for its dead letters never ends."""
    path = wrote(tmp_path, "a.jsonl", '{"a": 1}\n{"a": 2}\n')
    records = []
    for _, record in open_source(path).read():
        records.append(record)
        with Path(path).open("a", encoding="utf-8") as file:
            file.write('{"a": 3}\n' * 10_000)
        assert len(records) < 10
    assert records == [{"a": 1}, {"a": 2}]


def test_parse_types() -> None:
    assert parse_types("Total:N, a:b:BOOL") == {"Total": "N", "a:b": "BOOL"}
    for wrong in ("Total", "Total:X", ":N"):
        with pytest.raises(ConfigurationError, match="types: "):
            parse_types(wrong)
    with pytest.raises(ConfigurationError, match=r"^types: 'Temp=N' has no colon; give 'Temp:N'$"):
        parse_types("Total:N,Temp=N")


def test_numbers_as_people_write_them() -> None:
    columns = Cells({"a": "N"}, frozenset({""})).converters(["a"])
    for cell in ("+1.50", ".5", "5.", "1e3", "-0", "1E-130"):
        assert item_of(columns, [cell]) == {"a": Decimal(cell)}


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "options", "says"),
    [
        ("a.csv", "Date,Date\n", {}, "a name twice"),
        ("a.csv", "Date,\nd,1\n", {}, "a name twice, or an empty one"),
        ("a.csv", b"\xff\xfeD\0", {}, "header"),
        ("a.csv", "d,e,f\n", {"columns": ["Date", "OrderId", "Date"]}, "a name twice"),
        ("a.csv", "d,e\n", {"columns": "Date,OrderId"}, "columns: must be a list of strings, got 'Date,OrderId'"),
        ("a.csv", "Date\nNA\n", {"absent": "NA"}, "absent: must be a list of strings, got 'NA'"),
        ("a.csv", "Date\nNA\n", {"absent": 5}, "absent: must be a list of strings, got 5"),
        ("a.csv", "Date\nd\n", {"types": [("Date", "S")]}, "types: must be text or a mapping"),
        ("a.csv", "Date;Total\nd;1\n", {}, r"one column, 'Date;Total', if ',' .* delimiter=';' \(--delimiter ';'\)"),
        ("a.csv", "Date\tTotal\nd\t1\n", {}, r"one column, .* give format='tsv' \(--format tsv\), or delimiter=','"),
        ("a.tsv", "Date,Total\nd,1\n", {}, r"one column, 'Date,Total', if '\\t' .* delimiter=',' \(--delimiter ','\)"),
        ("a.csv", "Date\nd\n", {"delimiter": '"'}, "delimiter: must be one character"),
        ("a.csv", "Date\nd\n", {"delimiter": b","}, "delimiter: must be one character"),
        ("a.csv", b"\x1f\x8bDate", {}, "a.csv cannot be read on .* damaged"),
        ("a.csv", gzip.compress(b"Date\nd\n", mtime=0)[:14], {}, "a.csv cannot be read on .* cut off"),
        ("a.csv", b"\x28\xb5\x2f\xfd" + b"x" * 50, {}, "a.csv cannot be read on .* damaged"),
        ("a.csv", "Date\nd\n", {"types": "Totla:N"}, "no column 'Totla'"),
        ("a.csv", "Date\nd\n", {"delimiter": "||"}, "delimiter: must be one character"),
        ("a.csv", "Date\nd\n", {"cursors": 0}, "cursors: must be an integer from 1 to 1,000 .*, got 0"),
        ("a.csv", "Date\nd\n", {"cursors": "many"}, "cursors: must be an integer from 1 to 1,000 .*, got 'many'"),
        ("a.csv", "Date\nd\n", {"cursors": 2}, "cursors: 2 needs table="),
        ("a.csv", "Date\nd\n", {"format": "xml"}, "format: must be one of .*, got 'xml'"),
        ("a.jsonl", "{}\n", {"types": "a:N"}, "only supported for CSV and TSV"),
        ("a.txt", "x", {}, "format: cannot be inferred from the names"),
    ],
)
def test_refused(name: str, content: str | bytes, options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=says):
        open_source(wrote(tmp_path, name, content), **options)


def test_refused_without_a_file(tmp_path: Path, orders: ShardedTable) -> None:
    (tmp_path / "folder").mkdir()
    wrote(tmp_path / "folder", "_SUCCESS", "")
    with pytest.raises(ConfigurationError, match=r"source: there is no file at '.*nothing\.csv'; give a file"):
        open_source(tmp_path / "nothing.csv")
    with pytest.raises(ConfigurationError, match=r"source: there is no file in the folder '.*folder' "):
        open_source(tmp_path / "folder")
    with pytest.raises(ConfigurationError, match="source: is empty; give a file"):
        open_source("")
    with pytest.raises(ConfigurationError, match="source: must be a path or a data frame, got int"):
        open_source(17)
    with pytest.raises(ConfigurationError, match="format: is missing for standard input"):
        open_source("-")
    with pytest.raises(ConfigurationError, match="no column 'OrderId', a key attribute"):
        open_source(wrote(tmp_path, "a.csv", "Date\nd\n"), table=orders)


# -- standard input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [lambda raw: raw, gzip.compress])
def test_standard_input(compress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"d,{number},{'x' * 100}\n" for number in range(20_000)]  # more than what is looked at
    content = "".join(["Date,OrderId,Note\n", *rows])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(compress(content.encode()))))
    source = open_source("-", format="csv")
    assert source.bytes_total is None
    assert [item["OrderId"] for item in items_of(source)] == [Decimal(number) for number in range(20_000)]


@pytest.mark.skipif(sys.platform == "win32", reason="needs /dev/fd")
def test_a_pipe_is_read_as_standard_input_is() -> None:
    """As of ``<(…)``. Its name, which the shell draws, does not identify it."""
    content = b'{"n": 1}\n{"n": 2}\n'
    end, begin = os.pipe()
    os.write(begin, content)
    os.close(begin)
    source = open_source(f"/dev/fd/{end}", format="jsonl")
    assert source.identity()["files"] == [Pipe(stream=io.BytesIO(content)).identity()]
    assert [(source.where(place), record) for place, record in source.read()] == [
        (f"/dev/fd/{end}, line 1", {"n": 1}),
        (f"/dev/fd/{end}, line 2", {"n": 2}),
    ]
    with pytest.raises(ConfigurationError, match=f"format: is missing for /dev/fd/{end}; give one of"):
        open_source(f"/dev/fd/{end}")
    os.close(end)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_read_only_by_its_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "orders.csv")
    for where in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(ConfigurationError, match=r"source: there are only pipes at '.*'; give the name of one"):
            open_source(where)


def test_any_name_can_be_printed() -> None:
    """Also one that no file can have: half of a surrogate pair."""
    for name, shown in (("é.csv", "é.csv"), ("\udcff.csv", r"\xff.csv"), ("\ud800\udcff.csv", r"\ud800\udcff.csv")):
        assert printable(name) == shown


def test_standard_input_is_looked_at_and_read_once() -> None:
    file = Pipe(stream=io.BytesIO(b"abcdef"))
    assert file.look().read() == b"abcdef"
    assert file.look(2).read() == b"cdef"
    with file.open() as stream:
        assert stream.read() == b"abcdef"
