"""``backfill_index`` and ``shardkit backfill``: what they send, write, show, and exit with."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    ShardedTable,
    ShardkitError,
    Strategy,
    Unsharded,
    backfill_index,
)
from shardkit.cli import build_app
from tests.support.disks import full_disk
from tests.support.fakes import timeless
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, make_table
from tests.support.wire import THROTTLE, Body

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

click_testing = pytest.importorskip("click.testing")
ORDERS = 8
COMMAND: Any = importlib.import_module("shardkit.cli.backfill")
INDEXES = [
    GlobalIndex("by-source", ("ix", "S"), ("At", "N")),
    GlobalIndex("by-attribute", [("Status", "S"), ("shard", "N")], ("At", "N")),
]
BY_SOURCE = CalculatedSuffix("OrderId", shards=4, source="Status")
BY_ATTRIBUTE = CalculatedSuffix("OrderId", shards=4, attribute="shard")
TYPED = ("--index", "by-source", "--by", "OrderId", "--shards", "4", "--source", "Status")


@pytest.fixture
def table(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Orders from before the index was sharded, of which one has no status. The command does not make a session."""
    monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=INDEXES, name="Orders")
    fill(table)
    return table


def fill(table: Any) -> None:
    for number in range(ORDERS):
        table.put_item(
            Item={"Date": f"2014-07-0{number % 3 + 1}", "OrderId": f"A{number:02}", "Status": "open", "At": number}
        )
    table.put_item(Item={"Date": "2014-07-01", "OrderId": "B", "At": 1})


def ids(page: Any) -> list[Any]:
    return [item["OrderId"] for item in page["Items"]]


def ix_of(table: Table) -> dict[Any, Any]:
    return {item["OrderId"]: item.get("ix") for item in table.scan()["Items"]}


@pytest.mark.parametrize(
    ("index", "strategy", "own"),
    [
        ("by-source", BY_SOURCE, Unsharded()),
        ("by-source", RandomSuffix(4, source="Status"), Unsharded()),
        ("by-source", CalculatedSuffix(("Date", "OrderId"), 4, source="Status"), CalculatedSuffix("OrderId", 3)),
        ("by-attribute", BY_ATTRIBUTE, Unsharded()),
        ("by-attribute", RandomSuffix(4, attribute="shard"), CalculatedSuffix("OrderId", 3)),
    ],
    ids=str,
)
def test_the_index_then_has_every_item(
    resource: DynamoDBServiceResource, index: str, strategy: Strategy, own: Strategy
) -> None:
    raw = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=INDEXES)
    fill(ShardedTable(raw, own))
    orders = ShardedTable(raw, own, indexes={index: strategy}, max_concurrency=2)
    timeless(orders)
    orders.put_item(Item={"Date": "2014-07-01", "OrderId": "new", "Status": "open", "At": 99})
    question: Any = {"IndexName": index, "KeyConditionExpression": Key("Status").eq("open")}
    assert ids(orders.query(**question)) == ["new"]
    report = backfill_index(orders, index)
    assert ids(orders.query(**question)) == [*(f"A{number:02}" for number in range(ORDERS)), "new"]
    assert (report.complete, report.read, report.written, report.verified) == (True, ORDERS + 2, ORDERS, ORDERS + 2)
    assert (report.overtaken, report.failed, report.failures, report.left) == (0, 0, (), 0)
    assert "B" in ids(orders.scan())
    again = backfill_index(orders, index)
    assert (again.complete, again.written) == (True, 0)


def test_what_goes_over_the_wire(table: Table) -> None:
    """Two scans, of which the second is strongly consistent; each update under the condition of what was read."""
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE}, max_concurrency=1)
    timeless(orders)
    with recording(orders.meta.client) as sent:
        backfill_index(orders, "by-source")
    assert sent.operations == ["DescribeTable", "Scan", *["UpdateItem"] * ORDERS, "Scan"]
    first, last = sent.bodies("Scan")
    assert (first.get("ConsistentRead"), last["ConsistentRead"]) == (None, True)
    update = next(body for body in sent.bodies("UpdateItem") if body["Key"]["OrderId"] == {"S": "A00"})
    shard = BY_SOURCE.shard_of("open", {"OrderId": "A00"})
    assert update["Key"] == {"Date": {"S": "2014-07-01"}, "OrderId": {"S": "A00"}}
    assert update["UpdateExpression"] == "SET #i = :i"
    assert update["ConditionExpression"] == "#s0 = :s0 AND attribute_not_exists(#s1)"
    assert update["ExpressionAttributeNames"] == {"#i": "ix", "#s0": "Status", "#s1": "ix"}
    assert update["ExpressionAttributeValues"] == {":i": {"S": f"open.{shard}"}, ":s0": {"S": "open"}}


def test_writers_that_are_faster_are_not_overwritten(table: Table) -> None:
    """A put and a delete by new writers, and an update by an old one, between the scan and the backfill's update."""
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE})
    timeless(orders)
    order: dict[str, Any] = {"Date": "2014-07-01", "OrderId": "A00"}
    writes: dict[str, Callable[[], object]] = {
        "A00": lambda: orders.put_item(Item={**order, "Status": "paid", "At": 0}),
        "A01": lambda: orders.delete_item(Key={"Date": "2014-07-02", "OrderId": "A01"}),
        "A02": lambda: table.update_item(
            Key={"Date": "2014-07-03", "OrderId": "A02"}, AttributeUpdates={"Status": {"Value": "sent"}}
        ),
    }

    def answer(body: Body) -> None:
        if (write := writes.pop(body["Key"]["OrderId"]["S"], None)) is not None:
            write()

    with answering(table.meta.client, "UpdateItem", answer):
        report = backfill_index(orders, "by-source")
    assert (report.complete, report.written, report.overtaken) == (True, ORDERS - 2, 3)
    kept = ix_of(table)
    assert "A01" not in kept
    assert [kept[name].partition(".")[0] for name in ("A00", "A02", "A03")] == ["paid", "sent", "open"]


def test_throttles_and_lost_answers_are_repeated(table: Table) -> None:
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE})
    clock = timeless(orders)
    throttles = iter([True, False, True] * 3)

    def answer(body: Body) -> dict[str, Any] | None:
        return {"__type": f"x#{THROTTLE}", "message": "slow"} if next(throttles, False) else None

    with answering(table.meta.client, "UpdateItem", answer), answering(table.meta.client, "Scan", answer):
        report = backfill_index(orders, "by-source", write_units=None, read_units=None)
    assert report.complete
    assert report.throttles == 6
    assert clock.now > 0


def test_it_goes_on_where_it_was_interrupted(table: Table, tmp_path: Path) -> None:
    """The file is a text that names what is done, and is gone when all is done."""
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE}, max_concurrency=3)
    timeless(orders)
    path = tmp_path / "backfill.journal"
    seen = []

    def stop(report: Any) -> None:
        seen.append(report)
        if report.verified:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backfill_index(orders, "by-source", journal=path, progress=stop)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["positions"] == {"0": None, "1": None, "2": None}
    assert kept["strategy"] == {**BY_SOURCE.to_dict(), "hash": {"function": "stable_hash"}}
    assert (kept["table"], kept["index"], kept["segments"]) == ("Orders", "by-source", 3)
    other = ShardedTable(table, Unsharded(), indexes={"by-source": RandomSuffix(4, source="Status")})
    with pytest.raises(ConfigurationError, match=r"is of another backfill \(strategy differ"):
        backfill_index(other, "by-source", journal=path)
    with recording(orders.meta.client) as sent:
        report = backfill_index(orders, "by-source", journal=path)
    assert sent.operations == ["Scan"] * 3
    assert (report.complete, report.read, report.verified) == (True, 0, ORDERS + 1)
    assert not path.exists()
    assert [one.written for one in seen] == sorted(one.written for one in seen)


def test_a_file_that_is_no_journal_is_left(table: Table, tmp_path: Path) -> None:
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE})
    for content in ("my notes", '{"shardkit_backfill": 99}', "[]", '{"shardkit_backfill": 1, "segments": 2}'):
        path = tmp_path / "notes.txt"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigurationError, match="is damaged, or not a journal of kind 'backfill'"):
            backfill_index(orders, "by-source", journal=path)
        assert path.read_text(encoding="utf-8") == content


def test_a_full_disk(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops and says so, the journal keeps what it had, and with room again the same call goes on."""
    monkeypatch.setattr("shardkit.passes.passes._KEEP_SECONDS", 0.0)
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE}, max_concurrency=3)
    path = tmp_path / "backfill.journal"
    with full_disk(None) as fill, pytest.raises(ShardkitError, match=r"^journal: '.*' cannot be written \(.*too large"):
        backfill_index(orders, "by-source", journal=path, progress=lambda report: fill(10) if report.written else None)
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208 - names
    report = backfill_index(orders, "by-source", journal=path)
    assert (report.complete, report.left) == (True, 0)
    assert report.written < ORDERS


def test_what_an_old_writer_leaves_is_found(table: Table) -> None:
    """It removes the status, and not the index's attribute; and it puts an item without it."""
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE})
    timeless(orders)
    backfill_index(orders, "by-source")
    key = {"Date": "2014-07-01", "OrderId": "A00"}
    table.update_item(Key=key, UpdateExpression="REMOVE #s", ExpressionAttributeNames={"#s": "Status"})
    table.put_item(Item={"Date": "2014-07-01", "OrderId": "late", "Status": "open", "At": 5})
    found = backfill_index(orders, "by-source", verify_only=True)
    assert (found.complete, found.left, found.read, found.written) == (False, 2, 0, 0)
    assert backfill_index(orders, "by-source").complete
    kept = ix_of(table)
    assert kept["A00"] is None
    assert kept["late"].startswith("open.")


def test_more_shards(table: Table) -> None:
    """A reader with the larger number finds all items, before the backfill moves them and after it."""
    strategies = [CalculatedSuffix("OrderId", shards, source="Status") for shards in (2, 4)]
    old, new = (ShardedTable(table, Unsharded(), indexes={"by-source": strategy}) for strategy in strategies)
    for orders in (old, new):
        timeless(orders)
    backfill_index(old, "by-source")
    question: Any = {"IndexName": "by-source", "KeyConditionExpression": Key("Status").eq("open")}
    assert len(new.query(**question)["Items"]) == ORDERS
    report = backfill_index(new, "by-source")
    assert 0 < report.written < ORDERS
    assert report.complete
    assert len(new.query(**question)["Items"]) == ORDERS
    assert len(old.query(**question)["Items"]) < ORDERS


def test_what_is_refused(table: Table) -> None:
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": CalculatedSuffix("OrderId", 4)})
    with pytest.raises(ConfigurationError, match=r"whose suffix is in 'ix' itself.*with source='ix'"):
        backfill_index(orders, "by-source")
    with pytest.raises(ConfigurationError, match="index: must be one of indexes= of table 'Orders'"):
        backfill_index(table, "by-source")
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE})
    with recording(table.meta.client) as sent:
        for options, says in (
            ({"write_unit": 5}, r"write_unit: is not an option of the backfill \(did you mean write_units\?\)"),
            ({"write_units": -1}, "write_units: must be a number"),
            ({"read_units": "10"}, "read_units: must be a number > 0"),
            ({"progress": True}, "progress: must be a function of one report, got True"),
            ({"journal": 5}, "journal: must be the path of a file, got 5"),
        ):
            wrong: Any = options
            with pytest.raises(ConfigurationError, match=says):
                backfill_index(orders, "by-source", **wrong)
    assert sent.operations == ["DescribeTable"]
    assert list(ix_of(table).values()) == [None] * (ORDERS + 1)


# The command.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args: str) -> Any:
    return click_testing.CliRunner().invoke(build_app(), ["backfill", *args], env={"COLUMNS": "80"})


def test_the_command(table: Table) -> None:
    result = invoke("Orders", *TYPED)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == [f"{ORDERS + 1} items read: {ORDERS} updated", f"{ORDERS + 1} items verified: none is left"]
    assert "write units" in lines[2]
    assert "Orders, index by-source: CalculatedSuffix(by='OrderId', shards=4, source='Status')" in result.stderr
    assert "\x1b" not in result.output
    orders = ShardedTable(table, Unsharded(), indexes={"by-source": BY_SOURCE})
    assert len(orders.query(IndexName="by-source", KeyConditionExpression=Key("Status").eq("open"))["Items"]) == ORDERS


@pytest.mark.parametrize(
    "typed",
    [
        ("--index", "by-attribute", "--by", "Date,OrderId", "--shards", "4", "--attribute", "shard"),
        ("--index", "by-attribute", "--strategy", json.dumps(RandomSuffix(4, attribute="shard").to_dict())),
    ],
)
def test_other_strategies(table: Table, typed: tuple[str, ...]) -> None:
    result = invoke("Orders", *typed, "--json", "--workers", "2")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["exit_code"], report["complete"], report["written"], report["left"]) == (0, True, ORDERS, 0)
    assert {item.get("shard") for item in table.scan()["Items"]} - {None} <= {1, 2, 3, 4}


def test_a_table_with_suffixes_of_its_own(resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needed where the shard is calculated from the table's partition key."""
    monkeypatch.setattr("shardkit.cli.command.Aws.dynamodb", lambda *_: resource)
    raw = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=INDEXES, name="Orders")
    own = CalculatedSuffix("OrderId", 3)
    fill(ShardedTable(raw, own))
    typed = ("Orders", "--index", "by-source", "--by", "Date,OrderId", "--shards", "4", "--source", "Status")
    assert invoke(*typed, "--table-strategy", json.dumps(own.to_dict())).exit_code == 0
    strategy = CalculatedSuffix(("Date", "OrderId"), 4, source="Status")
    orders = ShardedTable(raw, own, indexes={"by-source": strategy})
    assert backfill_index(orders, "by-source", verify_only=True).complete


def test_items_that_are_left(table: Table) -> None:
    """They are named, and the exit code is 1, until they are mended."""
    table.put_item(Item={"Date": "2014-07-01", "OrderId": "odd", "Status": 7, "At": 1})
    result = invoke("Orders", "--index", "by-source", "--by", "OrderId", "--shards", "4", "--source", "Status")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == f"{ORDERS + 2} items read: {ORDERS} updated, 1 failed"
    assert lines[1].startswith("failed: {'Date': '2014-07-01', 'OrderId': 'odd'}: Status: must be a value of type S")
    assert lines[2] == f"{ORDERS + 2} items verified: 1 without the attribute, or with a wrong one"
    table.delete_item(Key={"Date": "2014-07-01", "OrderId": "odd"})
    table.put_item(Item={"Date": "2014-07-01", "OrderId": "late", "Status": "open", "At": 1})
    result = invoke("Orders", *TYPED, "--verify-only")
    assert result.exit_code == 1
    assert "advice: let every writer use indexes=, then run it again" in result.stdout
    assert ix_of(table)["late"] is None
    assert invoke("Orders", *TYPED).exit_code == 0


def test_wrong_attributes(table: Table) -> None:
    """Items without what the shard is calculated from are left, and so are the values of an attribute of others."""
    result = invoke("Orders", "--index", "by-source", "--by", "Nothing", "--shards", "4", "--source", "Status")
    assert result.exit_code == 1
    assert f"{ORDERS + 1} items verified: {ORDERS} without the attribute" in result.stdout
    table.update_item(
        Key={"Date": "2014-07-01", "OrderId": "B"},
        UpdateExpression="SET ix = :v",
        ExpressionAttributeValues={":v": "mine"},
    )
    result = invoke("Orders", *TYPED)
    assert result.exit_code == 1
    assert "ix: has a value that is not of index 'by-source', 'mine', and is left" in result.stdout
    assert ix_of(table)["B"] == "mine"


def test_dry_run(table: Table) -> None:
    """Of a small table, all is read, and the figures are exact; nothing is written."""
    result = invoke("Orders", *TYPED, "--dry-run", "--write-units", "2")
    assert result.exit_code == 0, result.output
    assert f"{ORDERS} of {ORDERS + 1} items would be updated" in result.stdout
    assert f"{ORDERS} write units of the table, {ORDERS} of its indexes" in result.stdout
    assert "with the verification; at the given rates 4." in result.stdout
    assert list(ix_of(table).values()) == [None] * (ORDERS + 1)
    found = json.loads(invoke("Orders", *TYPED, "--dry-run", "--json", "--write-units", "2").stdout)
    assert found["estimates"]["to_write"] == {"value": ORDERS, "low": ORDERS, "high": ORDERS}
    assert found["seconds"] >= ORDERS / 2
    share = json.loads(invoke("Orders", *TYPED, "--dry-run", "--json", "--write-units", "20%").stdout)
    assert share["seconds"] < 1  # of 12,000 warm units
    assert (found["index"], found["estimates"]["failed"]["value"]) == ("by-source", 0)


def test_a_misspelt_source(table: Table) -> None:
    """It is said where there is nothing to remove, and refused where there is."""
    misspelt = (*TYPED[:-1], "Sttus")
    result = invoke("Orders", *misspelt)
    assert result.exit_code == 0, result.output
    assert "no item has the logical key of the index: check --source" in result.stdout
    assert invoke("Orders", *TYPED).exit_code == 0
    filled = ix_of(table)
    found = invoke("Orders", *misspelt, "--dry-run")
    assert f"{ORDERS} of the items that were read have no logical key, and would leave the index" in found.stdout
    told = json.loads(invoke("Orders", *misspelt, "--dry-run", "--json").stdout)
    assert told["estimates"]["to_remove"]["value"] == ORDERS
    result = invoke("Orders", *misspelt)
    assert result.exit_code == 2
    assert "the same command" not in result.stderr
    assert "source: must be an attribute of items in index 'by-source' of table 'Orders', got 'Sttus'" in result.stderr
    assert ix_of(table) == filled


def test_an_interruption(table: Table, folder: Path) -> None:
    """The report so far, how to go on, and exit code 3."""
    count = 0

    progress = COMMAND.PassProgress
    update = progress.update

    def interrupt(self: Any, report: Any) -> None:
        nonlocal count
        update(self, report)
        count += 1
        if count == 5:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(progress, "update", interrupt)
        result = invoke("Orders", *TYPED, "--journal", "b.journal")
    assert result.exit_code == 3
    assert "stopped before its end: the same command goes on from b.journal" in result.stderr
    assert (folder / "b.journal").exists()
    result = invoke("Orders", *TYPED, "--journal", "b.journal")
    assert result.exit_code == 0
    assert not (folder / "b.journal").exists()


def test_wrong_use(table: Table) -> None:
    for typed, says in (
        (("--index", "by-source"), "--by, --shards, --source: give all three, or --attribute instead of --source"),
        (("--index", "by-source", "--by", "OrderId", "--shards", "4"), "--by, --shards, --source: give all three"),
        ((*TYPED, "--attribute", "shard"), "--by, --shards, --source: give all three"),
        ((*TYPED, "--strategy", "{}"), "--strategy: is not supported together with --source, --by, --shards"),
        (("--index", "by-source", "--strategy", "{}"), "--strategy: must be a mapping whose type is one of"),
        ((*TYPED, "--table-strategy", "x"), "--table-strategy: 'x' is not valid JSON"),
        (("--index", "by-sauce", *TYPED[2:]), "(did you mean by-source?)"),
        ((*TYPED, "--write-units", "many"), "write_units: must be a number"),
        ((*TYPED, "--read-units", "0"), "read_units: must be a number > 0"),
        ((*TYPED, "--read-units", "0", "--dry-run"), "--read-units: must be a number > 0"),
        (("--index", "by-source", "--strategy", '{"type": "RandomSuffix", "shards": 4}'), "with source='ix'"),
    ):
        result = invoke("Orders", *typed)
        assert result.exit_code == 2
        assert "not begun: " in result.stderr
        assert says in result.stderr
    assert list(ix_of(table).values()) == [None] * (ORDERS + 1)


def test_no_such_table(resource: DynamoDBServiceResource) -> None:
    result = invoke("Nothing", *TYPED)
    assert result.exit_code == 2
    assert "not begun: table 'Nothing': DescribeTable failed" in result.stderr
