"""``shardkit load``: what it writes, shows, and exits with."""

from __future__ import annotations

import gzip
import importlib
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import BulkReport, CalculatedSuffix, Resharding, ShardedTable, Unsharded
from shardkit.bulk.load_machine import Load
from shardkit.bulk.pacing import WriteRate
from shardkit.cli import build_app
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

click_testing = pytest.importorskip("click.testing")
show: Any = importlib.import_module("shardkit.cli.load")

SHARDED = ("--table", "Orders", "--shards", "4", "--by", "OrderId")


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["load", *args], env={"COLUMNS": "80"})


def orders_csv(folder: Path, count: int, *more: str) -> list[dict[str, Any]]:
    rows = [f"2014-07-{number % 9 + 1:02},A{number:03},{number}.5," for number in range(count)]
    (folder / "orders.csv").write_text("\n".join(["Date,OrderId,Total,Note", *rows, *more, ""]), encoding="utf-8")
    return [{"Date": row.split(",")[0], "OrderId": row.split(",")[1], "Total": row.split(",")[2]} for row in rows]


def stored(table: Table) -> set[tuple[str, ...]]:
    """What the table holds, under the keys that the application uses."""
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=4))
    return {(str(i["Date"]), str(i["OrderId"]), str(i["Total"])) for i in sharded.scan_items()}


def keys(items: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    return {(item["Date"], item["OrderId"], item["Total"]) for item in items}


def test_loads_a_file(table: Table, folder: Path) -> None:
    items = orders_csv(folder, 60)
    result = invoke("orders.csv", *SHARDED)
    assert result.exit_code == 0, result.output
    assert stored(table) == keys(items)
    assert result.stdout.startswith("60 items: 60 written, 0 failed")
    # One line a shard, each with a bar.
    assert sum(line.split()[:1] in [["1"], ["2"], ["3"], ["4"]] for line in result.stdout.splitlines()) == 4
    assert "types: Date:S, OrderId:S, Total:N, Note:S" in result.stderr
    assert "\x1b" not in result.output


def test_with_counts_per_key_it_says_what_a_shard_is(table: Table, folder: Path) -> None:
    """The first has all keys that have one shard, which is no hot shard."""
    orders_csv(folder, 6)
    for shards, told in (({"hot": 4}, True), (4, False)):
        text = json.dumps({"type": "CalculatedSuffix", "by": "OrderId", "shards": shards})
        shown = invoke("orders.csv", "--table", "Orders", "--strategy", text).output
        assert ("those with one shard are all in shard 1" in shown) is told


def test_loads_a_file_while_items_move(table: Table, folder: Path) -> None:
    """The strategy is a Resharding, as text; items that were there are written where they are."""
    items = orders_csv(folder, 6)
    table.put_item(Item={"Date": items[0]["Date"], "OrderId": items[0]["OrderId"], "Total": 0})
    strategy = Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=4), stage="move")
    text = json.dumps(strategy.to_dict())
    result = invoke("orders.csv", "--table", "Orders", "--strategy", text, "--workers", "1", "--journal", "j")
    assert result.exit_code == 0, result.output
    assert "6 items: 6 written, 0 failed" in result.stdout
    moved = ShardedTable(table, strategy)
    read = moved.batch_get_items([{name: item[name] for name in ("Date", "OrderId")} for item in items])["Items"]
    assert {(str(i["Date"]), str(i["OrderId"]), str(i["Total"])) for i in read} == keys(items)
    assert sum("." not in str(item["Date"]) for item in table.scan()["Items"]) == 1


def test_an_index_is_sharded(resource: DynamoDBServiceResource, folder: Path) -> None:
    orders_csv(folder, 12)
    index = GlobalIndex("ByDate", ("DateShard", "S"), ("OrderId", "S"))
    make_table(resource, ("OrderId", "S"), name="Indexed", global_indexes=[index])
    strategy = CalculatedSuffix("OrderId", shards=3, source="Date")
    to_load = ("orders.csv", "--table", "Indexed", "--index", "ByDate", json.dumps(strategy.to_dict()))
    estimate = json.loads(invoke(*to_load, "--dry-run", "--json").stdout)
    assert (estimate["table_write_units"], estimate["global_index_write_units"]) == (12, {"ByDate": 12})
    result = invoke(*to_load)
    assert result.exit_code == 0, result.output
    assert "index ByDate with CalculatedSuffix(by='OrderId', shards=3, source='Date')" in " ".join(
        result.stderr.split()
    )
    orders = ShardedTable(resource.Table("Indexed"), Unsharded(), indexes={"ByDate": strategy})
    found = orders.query(IndexName="ByDate", KeyConditionExpression=Key("Date").eq("2014-07-01"))
    assert [order["OrderId"] for order in found["Items"]] == ["A000", "A009"]
    result = invoke(*to_load[:-1], "{")
    assert (result.exit_code, "--index ByDate: '{' is not valid JSON" in result.stderr) == (2, True)


def test_an_export_is_loaded_under_another_strategy(table: Table, folder: Path) -> None:
    items = orders_csv(folder, 20)
    lines = [
        {
            "Item": {
                "Date": {"S": f"{item['Date']}.x41"},
                "OrderId": {"S": item["OrderId"]},
                "Total": {"N": item["Total"]},
            }
        }
        for item in items
    ]
    (folder / "export.json.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    exported = json.dumps({"type": "RangeSuffix", "by": "OrderId", "boundaries": ["A"]})
    for more in ((), ("--journal", "kept")):
        result = invoke("export.json.gz", *SHARDED, "--stored-by", exported, *more)
        assert result.exit_code == 0, result.output
    assert stored(table) == keys(items)
    assert table.scan()["Count"] == len(items)
    result = invoke(
        "export.json.gz", *SHARDED, "--stored-by", '{"type": "RandomSuffix", "shards": 2}', "--journal", "kept"
    )
    assert (result.exit_code, "journal" in result.stderr) == (2, True)


def test_failures_go_to_the_dead_letters_which_can_be_loaded_again(table: Table, folder: Path) -> None:
    items = orders_csv(folder, 30, "2014-07-09,,1,", "2014-07-09,B1,many,", "2014-07-09,B2,2.5,x")
    result = invoke("orders.csv", *SHARDED, "--dead-letters", "dead.json", "--types", "Total:N")
    assert result.exit_code == 1
    assert stored(table) == {*keys(items), ("2014-07-09", "B2", "2.5")}
    assert "failed: orders.csv, line 32: " in result.stdout
    assert "failed: orders.csv, line 33: column 'Total' holds 'many'" in result.stdout
    letters = [json.loads(line) for line in (folder / "dead.json").read_text(encoding="utf-8").splitlines()]
    assert {letter["place"] for letter in letters} == {"orders.csv, line 32", "orders.csv, line 33"}
    (folder / "mended.json").write_text(
        "\n".join(json.dumps(letter).replace('"OrderId":', '"Id":') for letter in letters if "Item" in letter)
        + '\n{"Item": {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "B1"}, "Total": {"N": "7"}}, "place": "here"}\n',
        encoding="utf-8",
    )
    again = invoke("mended.json", *SHARDED, "--format", "dynamodb", "--json")
    assert again.exit_code == 1  # the other one still has no key
    assert json.loads(again.stdout)["written"] == 1
    assert ("2014-07-09", "B1", "7") in stored(table)


def test_a_dead_letter_that_was_not_an_item_names_what_to_correct(table: Table, folder: Path) -> None:
    """Its file is recognized, also if its first letter is such a one, and some letters have become items."""
    orders_csv(folder, 3, "2014-07-09,B1,many,", "2014-07-09,B2,none,")
    invoke("orders.csv", *SHARDED, "--dead-letters", "dead.json", "--types", "Total:N")
    first, second = map(json.loads, (folder / "dead.json").read_text(encoding="utf-8").splitlines())
    del second["text"]
    second["Item"] = {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "B2"}, "Total": {"N": "7"}}
    (folder / "dead.json").write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n", encoding="utf-8")
    result = invoke("dead.json", *SHARDED)
    assert result.exit_code == 1
    assert (
        "failed: dead.json, line 1: the line is a dead letter whose record was not an item (orders.csv, line 5: "
        "column 'Total' holds 'many'"
    ) in result.stdout
    assert ("2014-07-09", "B2", "7") in stored(table)


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ('{"type": "CalculatedSuffix", "by": "OrderId", "shards": 4}', "delete the journal and load all of it again"),
        ('{"type": "CalculatedSuffix", "by": "Total", "shards": 4}', "load only the corrected records"),
        ('{"type": "RandomSuffix", "shards": 4}', "load only the corrected records"),
        ('{"type": "Unsharded"}', "delete the journal and load all of it again"),
    ],
)
def test_a_source_that_was_corrected_is_not_resumed(table: Table, folder: Path, strategy: str, says: str) -> None:
    arguments = ("orders.csv", "--table", "Orders", "--strategy", strategy, "--types", "Total:N", "--journal", "kept")
    orders_csv(folder, 3, "2014-07-09,B1,many,")
    assert invoke(*arguments).exit_code == 1
    orders_csv(folder, 3, "2014-07-09,B1,21.5,")
    again = invoke(*arguments)
    assert again.exit_code == 2
    assert f"orders.csv changed; to load the source as it is now, {says}" in again.stderr
    assert "is of another load: source.files[0]" in invoke(*arguments, "--empty-strings").stderr
    assert len(table.scan()["Items"]) == 3


def test_a_resumed_load_with_dead_letters_is_not_all_written(table: Table, folder: Path) -> None:
    """It says so and exits so, however often it is resumed."""
    orders_csv(folder, 30, "2014-07-09,,1,")
    arguments = ("orders.csv", *SHARDED, "--journal", "kept", "--dead-letters", "dead.jsonl")
    assert invoke(*arguments).exit_code == 1
    for _ in range(2):
        again = invoke(*arguments)
        assert again.exit_code == 1
        assert again.stdout.startswith("0 items: 0 written, 0 failed, 31 done before (1 of them failed)")
        assert "those that failed before are in dead.jsonl" in again.stdout
    elsewhere = invoke(*arguments[:-1], "another.jsonl")
    assert "failed before" not in elsewhere.stdout
    report = json.loads(invoke(*arguments, "--json").stdout)
    assert (report["exit_code"], report["resumed"], report["failed_before"]) == (1, 31, 1)


def test_max_failures_ends_it_early(table: Table, folder: Path) -> None:
    """0: at the first."""
    orders_csv(folder, 30, "2014-07-09,,1,")
    result = invoke("orders.csv", *SHARDED, "--max-failures", "0")
    assert result.exit_code == 3
    assert "items failed, more than max_failures=0;" in result.stderr.replace("\n", " ")


def test_json(table: Table, folder: Path) -> None:
    orders_csv(folder, 30, "2014-07-09,,1,")
    result = invoke("orders.csv", *SHARDED, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == report["exit_code"] == 1
    assert (report["items"], report["written"], report["failed"]) == (31, 30, 1)
    assert sum(shard["items"] for shard in report["per_shard"]) == 30
    assert report["failures"][0]["place"] == "orders.csv, line 32"


def test_a_strategy_in_text_form(table: Table, folder: Path) -> None:
    orders_csv(folder, 40)
    result = invoke("orders.csv", "--table", "Orders", "--strategy", '{"type": "RandomSuffix", "shards": 3}')
    assert result.exit_code == 0, result.output
    assert {str(item["Date"]).rpartition(".")[2] for item in table.scan()["Items"]} == {"1", "2", "3"}


def test_by_several_attributes(table: Table, folder: Path) -> None:
    items = orders_csv(folder, 20)
    result = invoke("orders.csv", "--table", "Orders", "--shards", "4", "--by", "OrderId, Total", "--types", "Total:S")
    assert result.exit_code == 0, result.output
    strategy = CalculatedSuffix(("OrderId", "Total"), shards=4)
    expected = {(strategy.physical_key(item["Date"], strategy.shard_of(item["Date"], item))) for item in items}
    assert {item["Date"] for item in table.scan()["Items"]} == expected


def test_without_a_strategy_keys_are_written_as_they_are(table: Table, folder: Path) -> None:
    items = orders_csv(folder, 20)
    result = invoke("orders.csv", "--table", "Orders")
    assert result.exit_code == 0
    assert "keys are written without a suffix; if the table's keys have one, give" in result.stderr
    assert {item["Date"] for item in table.scan()["Items"]} == {item["Date"] for item in items}


def orders_jsonl(folder: Path) -> None:
    """Items of which some lack an attribute that others have."""
    items = [{"Date": "2014-07-09", "OrderId": f"A{number:03}", "Total": number} for number in range(40)]
    items[7]["Coupon"] = "C1"
    (folder / "orders.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--json",)])
@pytest.mark.parametrize(
    ("source", "arguments", "says"),
    [
        (
            "orders.csv",
            ("--by", "OrderID"),
            "--by: there is no column 'OrderID' (did you mean OrderId?); the columns are Date",
        ),
        (
            "orders.csv",
            ("--by", "OrderId,Totl"),
            "--by: there is no column 'Totl' (did you mean Total?); the columns are",
        ),
        (
            "orders.csv",
            ("--by", "Colour"),
            "--by: there is no column 'Colour'; the columns are Date, OrderId, Total, Note",
        ),
        (
            "orders.jsonl",
            ("--by", "OrderID"),
            "--by: no item in the sample has an attribute 'OrderID' (did you mean ",
        ),
        ("orders.jsonl", ("--by", "Colour"), "an attribute 'Colour'; they have Coupon, Date, OrderId, Total"),
        ("orders.jsonl", ("--by", "Coupons"), "(did you mean Coupon?)"),
        ("wire.json", ("--by", "OrderID"), "(did you mean OrderId?); they have Date, OrderId"),
        ("-", ("--by", "OrderID", "--format", "jsonl"), "(did you mean OrderId?); they have Coupon, Date, OrderId"),
        ("orders.jsonl.gz", ("--by", "OrderID"), "(did you mean OrderId?)"),
        (
            "orders.parquet",
            ("--by", "OrderID"),
            "--by: there is no column 'OrderID' (did you mean OrderId?); the columns are",
        ),
    ],
)
def test_a_typo_in_by_is_wrong_use(
    source: str, arguments: tuple[str, ...], says: str, more: tuple[str, ...], table: Table, folder: Path
) -> None:
    if source == "orders.parquet":
        pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        pq.write_table(pa.table({"Date": ["2014-07-09"], "OrderId": ["A1"]}), folder / source)
    orders_csv(folder, 40)
    orders_jsonl(folder)
    text = (folder / "orders.jsonl").read_bytes()
    (folder / "orders.jsonl.gz").write_bytes(gzip.compress(text))
    wire = {"Item": {"Date": {"S": "2014-07-09"}, "OrderId": {"S": "A1"}}}
    (folder / "wire.json").write_text(json.dumps(wire), encoding="utf-8")
    result = click_testing.CliRunner().invoke(
        build_app(), ["load", source, "--table", "Orders", "--shards", "4", *arguments, *more], input=text
    )
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert f"not begun: {says}" in result.stderr if says.startswith("--") else says in result.stderr
    assert table.scan()["Count"] == 0


def test_a_typo_in_the_text_form_of_a_strategy_is_wrong_use(table: Table, folder: Path) -> None:
    orders_csv(folder, 5)
    form = {"type": "CalculatedSuffix", "by": "OrderID", "shards": 4}
    result = invoke("orders.csv", "--table", "Orders", "--strategy", json.dumps(form))
    assert result.exit_code == 2
    assert "not begun: --strategy: there is no column 'OrderID' (did you mean OrderId?)" in result.stderr
    assert table.scan()["Count"] == 0


@pytest.mark.parametrize(
    ("unset", "says"),
    [
        ("AWS_DEFAULT_REGION", "not begun: no AWS region is set; give --region, or set AWS_DEFAULT_REGION"),
        ("AWS_ACCESS_KEY_ID", "not begun: table 'Orders': no AWS credentials were found; give --profile, or set"),
    ],
)
def test_what_the_environment_lacks_is_said(
    unset: str, says: str, table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders_csv(folder, 5)
    monkeypatch.delenv(unset)
    if unset == "AWS_ACCESS_KEY_ID":
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    result = invoke("orders.csv", *SHARDED)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "key_schema" not in result.stderr
    assert table.table_name == "Orders"


def test_what_some_items_lack_fails_those(table: Table, folder: Path) -> None:
    """An attribute that only some items have is not a typo."""
    orders_jsonl(folder)
    result = invoke("orders.jsonl", "--table", "Orders", "--shards", "4", "--by", "Coupon", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["written"], report["failed"]) == (1, 39)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("orders.csv", "--table", "Nowhere", "--shards", "4", "--by", "OrderId"),
            "not begun: table 'Nowhere': DescribeTable failed: An error occurred (ResourceNotFoundException)",
        ),
        (("missing.csv", *SHARDED), "there is no file"),
        (("", *SHARDED), "not begun: source: is empty; give a file"),
        (("orders.csv", "--table", "Orders", "--shards", "4"), "--shards, --by: give both or neither"),
        (("orders.csv", *SHARDED, "--strategy", "{}"), "--strategy: is not supported together with --shards and --by"),
        (("orders.csv", "--table", "Orders", "--strategy", "{"), "--strategy: '{' is not valid JSON"),
        (
            ("orders.csv", "--table", "Orders", "--strategy", "CalculatedSuffix"),
            """give for example '{"type": "CalculatedSuffix", "by": "OrderId", "shards": 10}'""",
        ),
        (("orders.csv", *SHARDED, "--stored-by", "{"), "--stored-by: '{' is not valid JSON"),
        (("orders.csv", *SHARDED, "--stored-by", "{}"), "--stored-by: must be a mapping whose type is one of"),
        (("orders.csv", *SHARDED, "--stored-by", '{"type": "Unsharded"}'), "stored_by: is only supported for DynamoDB"),
        (
            ("orders.csv", "--table", "Orders", "--strategy", '{"type": "Other"}'),
            "--strategy: must be a mapping whose type is one of",
        ),
        (("orders.csv", "--table", "Orders", "--strategy", '{"type": "RandomSufix"}'), "(did you mean RandomSuffix?)"),
        (("orders.csv", *SHARDED, "--types", "Totla:N"), "no column 'Totla' (did you mean Total?)"),
        (("orders.csv", *SHARDED, "--write-units", "many"), "write_units"),
        (("orders.csv", *SHARDED, "--journal", "kept", "--dead-letters", "kept"), "are the same file"),
        (("orders.csv", *SHARDED, "--cursors", "some"), "cursors"),
        (("orders.csv", *SHARDED, "--profile", "no-such-profile"), "no-such-profile"),
        (("orders.csv", *SHARDED, "--endpoint-url", "localhost"), "Invalid endpoint"),
        (("orders.csv", *SHARDED, "--region", "a b"), "region_name"),
        (("empty.csv", *SHARDED), "no items to load"),
        (("cut.csv.gz", *SHARDED), "cut off"),
        (("cut.csv.gz", *SHARDED, "--dry-run"), "cut off"),
        (("cut.jsonl.gz", *SHARDED), "cut off"),
    ],
)
def test_wrong_use_exits_2_and_writes_nothing(
    arguments: tuple[str, ...], says: str, table: Table, folder: Path
) -> None:
    orders_csv(folder, 5)
    (folder / "empty.csv").write_text("Date,OrderId\n", encoding="utf-8")
    for name in ("cut.csv.gz", "cut.jsonl.gz"):
        (folder / name).write_bytes(gzip.compress(b"Date,OrderId\n")[:12])
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.output
    assert table.scan()["Count"] == 0


@contextmanager
def interrupted(again: int) -> Iterator[None]:
    """Ctrl-C comes after the first batch, and so many times again while what is in flight is finished."""
    update, stop = show.LoadProgress.update, Load.stop

    def first(self: Any, report: BulkReport) -> None:
        update(self, report)
        if report.written:
            signal.raise_signal(signal.SIGINT)

    def later(self: Load, error: Exception) -> None:
        stop(self, error)
        for _ in range(again):
            signal.raise_signal(signal.SIGINT)

    with patch.object(show.LoadProgress, "update", first), patch.object(Load, "stop", later):
        yield


@pytest.mark.parametrize("again", [0, 1])
def test_ctrl_c(table: Table, folder: Path, again: int) -> None:
    """Nothing more is taken or sent; the journal goes on."""
    items = orders_csv(folder, 400)
    before = signal.getsignal(signal.SIGINT)
    options = (*SHARDED, "--window", "200", "--workers", "1", "--journal", "journal", "--json")
    with interrupted(again):
        result = invoke("orders.csv", *options)
    assert result.exit_code == 3, result.output
    assert "stopping: finishing what is in flight" in result.stderr
    assert "the same command resumes from journal" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before
    first = json.loads(result.stdout)
    assert first["written"] == len(stored(table)) == 25
    assert first["failed"] == first["stopped"]
    second_result = invoke("orders.csv", *options)
    assert second_result.exit_code == 0, second_result.output
    second = json.loads(second_result.stdout)
    assert (second["resumed"], second["written"]) == (25, 375)
    assert stored(table) == keys(items)


def test_what_was_not_sent_is_not_told_as_failed(table: Table, folder: Path) -> None:
    """One of those that were read has no key; no other is in the dead letters."""
    orders_csv(folder, 400)
    lines = (folder / "orders.csv").read_text("utf-8").splitlines()
    (folder / "orders.csv").write_text("\n".join([*lines[:40], "2014-07-09,,1,", *lines[40:], ""]), "utf-8")
    with interrupted(0):
        result = invoke("orders.csv", *SHARDED, "--window", "100", "--workers", "1", "--dead-letters", "dead.jsonl")
    assert result.exit_code == 3, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("101 items: 25 written, 1 failed, 75 not written because it stopped; ")
    assert "it was interrupted" not in result.stdout
    assert [line for line in lines if line.startswith("failed")] == [
        (
            "failed: orders.csv, line 41: OrderId: missing in the item; "
            "it is a key attribute of table 'Orders'; give it a value"
        )
    ]
    assert "all of them are in dead.jsonl" in result.stdout
    assert len((folder / "dead.jsonl").read_text("utf-8").splitlines()) == 1


def test_ctrl_c_before_the_first_write(table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and it is not said that items failed."""
    orders_csv(folder, 400)

    def read(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module("shardkit.cli.load"), "estimate", read)
    result = invoke("orders.csv", *SHARDED, "--dry-run")
    assert result.exit_code == 3
    assert "stopped before the first write" in result.stderr


def test_dry_run_says_what_a_load_does(table: Table, folder: Path) -> None:
    orders_csv(folder, 50, f"2014-07-09,B1,1,{'x' * 2000}", "2014-07-09,,1,")
    guess = invoke("orders.csv", *SHARDED, "--dry-run", "--json", "--write-units", "20")
    assert guess.exit_code == 1
    assert table.scan()["Count"] == 0
    estimate = json.loads(guess.stdout)
    assert (estimate["items"], estimate["failed"]) == (52, 1)
    # 2 units for the long one: 2,000 bytes and its names.
    assert (estimate["write_units"], estimate["seconds"]) == (52, 2.6)
    report = json.loads(invoke("orders.csv", *SHARDED, "--json").stdout)
    assert [(s["shard"], s["items"]) for s in estimate["per_shard"]] == [
        (s["shard"], s["items"]) for s in report["per_shard"]
    ]
    shown = invoke("orders.csv", *SHARDED, "--dry-run", "--write-units", "20").stdout
    assert "52 items: 51 would be written, 1 would fail" in shown
    assert "at 20 write units per second: 2.6 s" in shown
    assert "hottest key: 2014-07-" in shown


def test_a_constant_by_is_told(table: Table, folder: Path) -> None:
    """Before the load and after it: the shards do nothing."""
    (folder / "day.csv").write_text("Date,OrderId,Status\n" + "".join(f"1,A{n},new\n" for n in range(120)), "utf-8")
    constant = ("day.csv", "--table", "Orders", "--shards", "10", "--by", "Status")
    says = "'1' has 120 items, all on shard "
    assert f"advice: {says}" in invoke(*constant, "--dry-run").stdout
    (advice,) = json.loads(invoke(*constant, "--dry-run", "--json").stdout)["advice"]
    assert advice.startswith(says)
    (advice, *_) = json.loads(invoke(*constant, "--json").stdout)["advice"]
    assert advice.startswith(says)
    good = ("day.csv", "--table", "Orders", "--shards", "10", "--by", "OrderId")
    assert json.loads(invoke(*good, "--dry-run", "--json").stdout)["advice"] == []
    assert "advice" not in invoke(*good, "--dry-run").stdout
    misspelt = ("--strategy", '{"type": "CalculatedSuffix", "by": "OrderId", "shards": {"11": 8}}')
    for dry_run in (["--dry-run"], []):
        shown = invoke("day.csv", "--table", "Orders", *misspelt, *dry_run).stdout
        assert "advice: no item has the key '11', which shards names (did you mean 1?)" in shown


@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_by_the_partition_key_exits_2(table: Table, folder: Path, dry_run: list[str]) -> None:
    orders_csv(folder, 5)
    result = invoke("orders.csv", "--table", "Orders", "--shards", "10", "--by", "Date", *dry_run)
    assert result.exit_code == 2
    assert "by: 'Date' is the partition key" in result.stderr.replace("\n", " ")
    assert table.scan()["Count"] == 0


def test_dry_run_counts_indexes(resource: DynamoDBServiceResource, folder: Path) -> None:
    """Each by what it would hold; the slowest of them and the table says how long it takes."""
    throughput = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 100}
    keys: Any = [{"AttributeName": "Customer", "KeyType": "HASH"}]
    by_customer: Any = {
        "IndexName": "by-customer",
        "KeySchema": keys,
        "Projection": {"ProjectionType": "KEYS_ONLY"},
        "ProvisionedThroughput": {**throughput, "WriteCapacityUnits": 10},
    }
    attributes: Any = [{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "OrderId", "Customer")]
    attributes.append({"AttributeName": "Total", "AttributeType": "N"})
    schema: Any = [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}]
    resource.create_table(
        TableName="Orders",
        KeySchema=schema,
        AttributeDefinitions=attributes,
        ProvisionedThroughput=throughput,  # type: ignore[arg-type]
        GlobalSecondaryIndexes=[by_customer],
        LocalSecondaryIndexes=[
            {
                "IndexName": "by-total",
                "KeySchema": [schema[0], {"AttributeName": "Total", "KeyType": "RANGE"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    orders: list[dict[str, Any]] = [{"Date": "2014-07-09", "OrderId": f"A{n}", "Note": "x" * 1500} for n in range(100)]
    lines = [{**order, "Customer": "C1"} if n % 4 == 0 else order for n, order in enumerate(orders)]
    lines += [{**order, "OrderId": "B", "Total": n} for n, order in enumerate(orders[:10])]
    lines += [{**orders[0], "Customer": 5}, {**orders[0], "Total": "much"}]
    (folder / "orders.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    arguments = ("orders.jsonl", *SHARDED, "--dry-run", "--write-units")
    estimate = json.loads(invoke(*arguments, "50%", "--json").stdout)
    assert (estimate["items"], estimate["failed"]) == (112, 2)
    assert estimate["table_write_units"] == 220
    assert estimate["local_index_write_units"] == {"by-total": 20}
    assert estimate["global_index_write_units"] == {"by-customer": 25}
    assert estimate["write_units"] == 265
    # Of the table 240 units at 50 a second; of the index 25 at 5.
    assert (estimate["slowest_index"], estimate["seconds"]) == ("by-customer", 5.0)
    # A number holds for both.
    estimate = json.loads(invoke(*arguments, "50", "--json").stdout)
    assert (estimate["slowest_index"], estimate["seconds"]) == (None, 4.8)
    shown = invoke(*arguments, "50%").stdout
    assert "265 write units: 220 of the table" in shown
    assert "20 of the local index by-total" in shown
    assert "25 of the global index by-customer" in shown
    assert "at 50 write units per second, for which index by-customer takes longest: 5.0 s" in shown
    assert "Customer: " in shown
    assert resource.Table("Orders").scan()["Count"] == 0


@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_a_share_of_what_is_not_known(
    table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch, dry_run: list[str]
) -> None:
    """Wrong use, and nothing is written."""
    orders_csv(folder, 5)
    of = WriteRate.of
    monkeypatch.setattr(WriteRate, "of", lambda units, _: of(units, {"TableName": "Orders"}))
    result = invoke("orders.csv", *SHARDED, *dry_run, "--write-units", "50%")
    assert result.exit_code == 2
    assert (
        "table 'Orders' is unknown, because DescribeTable returns none; give write_units as a number"
        in result.stderr.replace("\n", " ")
    )
    assert table.scan()["Count"] == 0


def test_a_shared_budget(table: Table, folder: Path, resource: DynamoDBServiceResource) -> None:
    orders_csv(folder, 50)
    budgets = make_table(resource, name="Budgets")
    # An item that was there before: nobody has to be waited for.
    budgets.put_item(Item={"pk": "Orders", "shardkit:budget": "a", "shardkit:settled": "a"})
    result = invoke("orders.csv", *SHARDED, "--write-units", "500", "--shared-budget", "Budgets", "Orders")
    assert result.exit_code == 0, result.output
    assert len(stored(table)) == 50
    assert set(budgets.get_item(Key={"pk": "Orders"})["Item"]) == {"pk", "shardkit:budget", "shardkit:settled"}


def test_a_shared_budget_in_a_table_that_does_not_exist(table: Table, folder: Path) -> None:
    orders_csv(folder, 5)
    result = invoke("orders.csv", *SHARDED, "--write-units", "500", "--shared-budget", "Nope", "Orders")
    assert result.exit_code == 3
    assert "the load stopped: " in result.stderr
    assert "Table: Nope not found" in result.stderr
    assert table.scan()["Count"] == 0


@pytest.mark.parametrize("units", [(), ("--write-units", "80%")])
def test_a_shared_budget_needs_a_rate(table: Table, folder: Path, units: tuple[str, ...]) -> None:
    orders_csv(folder, 5)
    result = invoke("orders.csv", *SHARDED, *units, "--shared-budget", "Budgets", "Orders")
    assert result.exit_code == 2
    assert "--shared-budget: needs the rate of all loads together" in result.output
