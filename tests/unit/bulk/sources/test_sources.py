"""Sources: every record once, in its place, whatever the cursors; cut where no key is divided."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.bulk.load import as_source
from shardkit.bulk.sources.base import BadRecord, IterableSource, Place, Source
from shardkit.bulk.sources.files import Pipe
from shardkit.bulk.sources.opening import open_source
from shardkit.bulk.sources.sections import is_clustered

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


# -- iterables ---------------------------------------------------------------------------------------------------------


def test_an_iterable_has_ordinals() -> None:
    source = IterableSource([{"a": 1}, {"a": 2}, {"a": 3}])
    assert list(source.read()) == [(Place(0, 0), {"a": 1}), (Place(0, 1), {"a": 2}), (Place(0, 2), {"a": 3})]
    assert [place for place, _ in source.read(lambda place: place.number == 1)] == [(0, 0), (0, 2)]
    assert source.where(Place(0, 2)) == 2
    assert source.total == 3
    assert IterableSource(iter([{"a": 1}])).total is None


def test_as_source() -> None:
    source = IterableSource([])
    assert as_source(source) is source
    assert items_of(as_source({"a": n} for n in range(2))) == [{"a": 0}, {"a": 1}]


def test_a_place_is_json() -> None:
    assert json.dumps(Place(3, 17)) == "[3, 17]"
    assert Place(*json.loads("[3, 17]")) == Place(3, 17)


# -- every record once, whatever the cursors ---------------------------------------------------------------------------

text = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=8)
# Few keys, so that neighbours often share one; sorted or not.
rows = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("12"), text), max_size=40).flatmap(
    lambda made: st.sampled_from([made, sorted(made)])
)


def as_csv(made: list[tuple[str, str, str]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([("Date", "OrderId", "Note"), *made])
    return file.getvalue()


def as_json_lines(made: list[tuple[str, str, str]]) -> str:
    return "".join(json.dumps({"Date": d, "OrderId": o, "Note": n}) + "\n" for d, o, n in made)


CSV_OPTIONS: dict[str, Any] = {"types": "Note:S", "empty_strings": True}


@pytest.mark.parametrize(
    ("name", "write", "options"), [("orders.csv", as_csv, CSV_OPTIONS), ("orders.jsonl", as_json_lines, {})]
)
@given(made=rows, cursors=st.integers(1, 12), done=st.sets(st.integers(0, 39)))
def test_every_record_once(
    name: str,
    write: Any,
    options: dict[str, Any],
    made: list[Any],
    cursors: int,
    done: set[int],
    tmp_path: Path,
    orders: ShardedTable,
) -> None:
    path = wrote(tmp_path, name, write(made))
    source = open_source(path, table=orders, cursors=cursors, **options)
    pairs = list(source.read())
    assert all(isinstance(record, Mapping) for _, record in pairs)
    expected = [{"Date": d, "OrderId": o, "Note": n} for d, o, n in made]
    # By place, cursor after cursor, it is the file's own order.
    assert [record for _, record in sorted(pairs, key=lambda pair: pair[0])] == expected
    assert len({place for place, _ in pairs}) == len(pairs)
    assert source.bytes_read == source.bytes_total
    # Neighbours of one primary key have one cursor: they are never written out of order.
    in_order = sorted(pairs, key=lambda pair: pair[0])
    for (first, one), (second, other) in pairwise(in_order):
        if (one["Date"], one["OrderId"]) == (other["Date"], other["OrderId"]):  # type: ignore[index]
            assert first.cursor == second.cursor
    # A source that is opened again is the same, and leaves out exactly what is done.
    again = open_source(path, table=orders, cursors=cursors, **options)
    assert again.identity() == source.identity()
    places = {place for number, (place, _) in enumerate(in_order) if number in done}
    left = sorted(again.read(places.__contains__), key=lambda pair: pair[0])
    assert left == [pair for pair in in_order if pair[0] not in places]


def test_sections_are_read_in_turn(tmp_path: Path, orders: ShardedTable) -> None:
    made = [(day, f"{number:02}", "x") for day in "abcd" for number in range(10)]
    path = wrote(tmp_path, "orders.jsonl", as_json_lines(made))
    source = open_source(path, table=orders, cursors=4)
    dates = [record["Date"] for record in items_of(source)]
    assert [dates[at : at + 4] for at in range(0, 36, 4)] == [["a", "b", "c", "d"]] * 9
    one = open_source(path, table=orders, cursors=1)
    assert [(record["Date"], record["OrderId"]) for record in items_of(one)] == [made_[:2] for made_ in made]


def test_many_files_few_open_at_a_time(tmp_path: Path, orders: ShardedTable) -> None:
    made = [(day, str(number), "x") for day in "abcdefgh" for number in range(3)]
    for day in "abcdefgh":
        part = as_json_lines([one for one in made if one[0] == day]).encode()
        wrote(tmp_path, f"{day}.jsonl.gz", gzip.compress(part))
    wrote(tmp_path, "_SUCCESS", "")
    wrote(tmp_path, "manifest-files.json", "{}")
    for cursors in (1, 3, 99):
        source = open_source(tmp_path, table=orders, cursors=cursors)
        assert len(source.sections) == 8
        assert source.cursors == min(cursors, 8)
        read = [record["Date"] for record in items_of(source)]
        assert Counter(read) == dict.fromkeys("abcdefgh", 3)
        assert read[: min(cursors, 8)] == list("abcdefgh")[: min(cursors, 8)] if cursors > 1 else read == sorted(read)
        assert source.bytes_read == source.bytes_total


def test_auto_uses_many_cursors_only_where_keys_stand_together(
    tmp_path: Path, orders: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkit.bulk.sources.opening._SMALL", 0)
    sorted_rows = [(f"day-{number // 2000:03}", f"{number:06}", "x") for number in range(40_000)]
    mixed = sorted_rows[::7] + sorted_rows[1::7] + sorted_rows[2::7] + sorted_rows[3::7]
    mixed = [mixed[(number * 7919) % len(mixed)] for number in range(len(mixed))]
    for name, made, expected in (("sorted", sorted_rows, 64), ("mixed", mixed, 1)):
        path = wrote(tmp_path, f"{name}.csv", as_csv(made))
        assert open_source(path, table=orders).cursors == expected
        assert open_source(path).cursors == 1  # without a table the key is unknown
    source = open_source(tmp_path / "sorted.csv", table=orders)
    first = [record["Date"] for record, _ in zip(items_of(source), range(1000), strict=False)]
    assert len(set(first)) == 20


@pytest.mark.parametrize(
    ("pairs", "clustered"),
    [
        ([], False),
        ([("a", "a")], False),
        ([("a", "a")] * 9, False),  # one key: reading elsewhere finds the same
        ([("a", "a"), ("b", "b"), ("c", "c")], True),
        ([("a", "b"), ("c", "d"), ("e", "f")], False),
        ([("a", "a")] * 5 + [("b", "b")] * 5, True),
        ([("a", "b"), ("b", "a"), ("a", "a"), ("b", "b")] * 3, False),
    ],
)
def test_is_clustered(pairs: list[Any], clustered: bool) -> None:
    assert is_clustered(pairs) is clustered


# -- where -------------------------------------------------------------------------------------------------------------


@given(made=rows, cursors=st.integers(1, 5))
def test_where_names_the_line(made: list[Any], cursors: int, tmp_path: Path, orders: ShardedTable) -> None:
    made = [(d, o, f"{number}:{note}") for number, (d, o, note) in enumerate(made)]
    content = as_csv(made)
    path = wrote(tmp_path, "orders.csv", content)
    source = open_source(path, table=orders, cursors=cursors, types="Note:S")
    lines = content.split("\n")
    records = list(source.read())
    assert len(records) == len(made)
    for place, record in records:
        assert not isinstance(record, BadRecord)
        where = str(source.where(place))
        assert where.startswith(f"{path}, line ")
        line = lines[int(where.rpartition(" ")[2]) - 1]
        # A note may go on in the lines that follow; it begins in this one.
        begin = f"{record['Date']},{record['OrderId']},"
        assert line.removeprefix(begin).lstrip('"').startswith(record["Note"].partition(":")[0] + ":")


def test_where_in_json_lines_counts_blank_lines(tmp_path: Path) -> None:
    path = wrote(tmp_path, "a.jsonl", '{"a": 1}\n\n\n{"a": 2}\n[]\n')
    source = open_source(path)
    assert [source.where(place) for place, _ in source.read()] == [f"{path}, line {line}" for line in (1, 4, 5)]


# -- which file it is --------------------------------------------------------------------------------------------------

LARGE = [{"Date": f"{number // 1000:03}", "OrderId": f"{number:06}"} for number in range(10_000)]


@pytest.mark.parametrize("changed", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("name", ["orders.jsonl", "orders.jsonl.gz", "orders.parquet"])
def test_another_file_of_the_same_name_size_and_time_is_another_source(
    name: str, changed: int, tmp_path: Path, orders: ShardedTable
) -> None:
    """As a backup that is put back, or an archive without times, makes it."""
    path = tmp_path / name

    def identity(items: list[dict[str, str]]) -> Any:
        if name.endswith("parquet"):
            pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            pq.write_table(pa.Table.from_pylist(items), path, compression="none", use_dictionary=False)
        else:
            raw = b"".join(json.dumps(item).encode() + b"\n" for item in items)
            path.write_bytes(gzip.compress(raw, compresslevel=0, mtime=0) if name.endswith("gz") else raw)
        os.utime(path, ns=(0, 1_700_000_000_000_000_000))
        return open_source(path, table=orders, cursors=1).identity()

    one = identity(LARGE)
    assert one == identity(LARGE)
    items = [dict(item) for item in LARGE]
    items[changed]["OrderId"] = "other!"
    other = identity(items)
    assert other != one
    digests = [of["files"][0].pop("content") for of in (one, other)]
    assert digests[0] != digests[1]
    assert other == one  # nothing else distinguishes them


def test_what_is_piped_in_is_told_apart_by_its_first_megabyte() -> None:
    whole = bytes(2_000_000)
    one = Pipe(stream=io.BytesIO(whole)).identity()
    assert Pipe(stream=io.BytesIO(whole)).identity() == one
    assert Pipe(stream=io.BytesIO(whole[:900_000] + b"x" + whole[900_000:])).identity() != one


# -- which files are found ---------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Folders of files, each with its own path in it; with links to files, to folders, and in circles."""
    for name in ("a.jsonl", "x/b.jsonl", "x/y/c.jsonl", "x/.hidden/d.jsonl", ".e.jsonl", "z/deep/er/f.jsonl"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"file": name}) + "\n", encoding="utf-8")
    (tmp_path / "elsewhere" / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere" / "sub" / "g.jsonl").write_text('{"file": "g"}\n', encoding="utf-8")
    data = tmp_path / "data"
    links = {
        "again.jsonl": data / "x" / "b.jsonl",
        "x/up": data,
        "x/y/round": data / "x",
        "z/deep/here": data / "z",
        "a-first": data / "x" / "y",  # before x by name
        "linked": tmp_path / "elsewhere",
        "gone": tmp_path / "nowhere",
    }
    for name, target in links.items():
        (data / name).symlink_to(target)
    return data


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/*.jsonl", ["a.jsonl", "g", "x/b.jsonl", "x/y/c.jsonl", "z/deep/er/f.jsonl"]),
        ("**", ["a.jsonl", "g", "x/b.jsonl", "x/y/c.jsonl", "z/deep/er/f.jsonl"]),
        ("**/**/*.jsonl", ["a.jsonl", "g", "x/b.jsonl", "x/y/c.jsonl", "z/deep/er/f.jsonl"]),
        ("**/y/*.jsonl", ["x/y/c.jsonl"]),
        ("**/sub/**/*.jsonl", ["g"]),
        ("x/**/*.jsonl", ["a.jsonl", "g", "x/b.jsonl", "x/y/c.jsonl", "z/deep/er/f.jsonl"]),  # by way of x/up
        ("z/**/f.*", ["z/deep/er/f.jsonl"]),
        ("*/*.jsonl", ["x/b.jsonl", "x/y/c.jsonl"]),
        ("*.jsonl", ["a.jsonl", "x/b.jsonl"]),
        ("", ["a.jsonl", "x/b.jsonl", "x/y/c.jsonl", "z/deep/er/f.jsonl"]),
    ],
)
def test_each_file_is_read_once(pattern: str, found: list[str], tree: Path) -> None:
    """However many names it has. A pattern follows links to other folders; a folder means what lies below it."""
    source = open_source(tree / pattern, format="jsonl")
    assert sorted(record["file"] for record in items_of(source)) == found


@pytest.mark.parametrize("pattern", ["**/*.jsonl", "**"])
def test_links_in_circles_take_no_time(pattern: str, tree: Path) -> None:
    """Each more would double the ways to every file: of forty levels, 2 ** 40."""
    for number in range(10):
        (tree / f"circle-{number}").symlink_to(tree)
    assert len(open_source(tree / pattern, format="jsonl").sections) == 5


def test_a_file_is_called_by_its_own_name(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree.parent)
    source = open_source("data/**/*.jsonl")
    names = [str(source.where(place)).rpartition(",")[0] for place, _ in source.read()]
    own = ("a.jsonl", "linked/sub/g.jsonl", "x/b.jsonl", "x/y/c.jsonl", "z/deep/er/f.jsonl")
    assert names == [f"data/{name}" for name in own]
    assert [entry["name"] for entry in source.identity()["files"]] == [str(Path(name).resolve()) for name in names]


def test_names_with_characters_of_patterns(tmp_path: Path) -> None:
    folder = tmp_path / "[a]*" / "sub"
    folder.mkdir(parents=True)
    (folder / "b.jsonl").write_text('{"n": 1}\n', encoding="utf-8")
    assert items_of(open_source(tmp_path / "**" / "*.jsonl")) == [{"n": 1}]
