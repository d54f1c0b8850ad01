"""Passes over tables on moto: their sources, what they refuse, and how they are resumed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key

from shardkit import (
    CalculatedSuffix,
    ConfigurationError,
    RandomSuffix,
    Resharding,
    ShardedTable,
    ShardkitError,
    ShardMap,
    ShardMapAdmin,
    StageError,
    Unsharded,
    bulk_load,
    install,
    open_source,
)
from shardkit.passes import compare, copy, count, delete, update
from tests.support.series import a_series
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

FAST: dict[str, Any] = {"write_units": None, "read_units": None, "segments": 3}
ITEMS = [{"Date": "d", "OrderId": f"A{number:02}", "n": number} for number in range(20)]
INDEXES = [GlobalIndex("by-n", ("n", "N")), GlobalIndex("keys", ("n", "N"), projection="KEYS_ONLY")]


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=INDEXES)
    bulk_load(table, [*ITEMS, {"Date": "e", "OrderId": "B"}])
    return table


def test_an_index_as_the_source(table: Any) -> None:
    assert count(table, index="keys").found == 20
    report = update(table, lambda item: {**item, "new": 1}, index="by-n", **FAST)
    assert (report.found, report.changed) == (20, 20)
    # It would move ahead in the index, and be met and changed again.
    moved: list[Any] = [
        ("SET n = n + :one", {"ExpressionAttributeValues": {":one": 150}}),
        (lambda one: one | {"n": 9}, {}),
    ]
    for change, values in moved:
        report = update(table, change, where=lambda one: one["n"] != 9, index="by-n", **values, **FAST)
        assert (report.found, report.changed, report.failed) == (19, 0, 19)
        assert "index: ['n'] would change, by which the index is ordered" in report.failures[0][1]
    with pytest.raises(ConfigurationError, match=r"index: 'keys' does not have all attributes of its items"):
        delete(table, index="keys")
    with pytest.raises(ConfigurationError, match="'other' is not a known index"):
        count(table, index="other")


def test_the_attribute_of_a_sharded_index_is_kept(resource: DynamoDBServiceResource) -> None:
    by_status = CalculatedSuffix("OrderId", shards=4, source="Status")
    raw = make_table(resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[GlobalIndex("by-status", ("gsi", "S"))])
    orders = ShardedTable(raw, Unsharded(), indexes={"by-status": by_status})
    bulk_load(orders, [{**item, "Status": "open"} for item in ITEMS])
    update(orders, "SET #s = :done", where="n < :five", ExpressionAttributeNames={"#s": "Status"},
           ExpressionAttributeValues={":done": "done", ":five": 5}, **FAST)  # fmt: skip
    update(orders, lambda item: {**item, "Status": "late"}, where=Attr("n").gte(15), **FAST)
    for status, items in (("open", 10), ("done", 5), ("late", 5)):
        found = orders.query_items(IndexName="by-status", KeyConditionExpression=Key("Status").eq(status))
        assert len(list(found)) == items
    assert (
        update(orders, "SET n = n", index="by-status", where=lambda item: item["Status"] == "done", **FAST).found == 5
    )
    delete(orders, where=Attr("Status").eq("late"), **FAST)
    assert orders.scan(Select="COUNT")["Count"] == 15


def test_a_table_with_a_map_at_rest_and_one_whose_items_move(table: Table) -> None:
    ShardMapAdmin(table).create(Unsharded())
    assert count(table).found == 21
    mapped = ShardedTable(table, ShardMap())
    both = Attr("n").gte(2) & Attr("n").lt(5)
    assert mapped.scan(FilterExpression=both)["Count"] == count(mapped, where=both).found == 3
    assert count(mapped).found == count(mapped, where=lambda _: True).found == 21
    with pytest.raises(ConfigurationError, match="processes: is not supported for a table with a ShardMap"):
        delete(mapped, processes=2, **FAST)
    assert delete(mapped, **FAST).changed == 21
    assert len(table.scan()["Items"]) == 1
    assert count(mapped).found == 0


@pytest.mark.parametrize("stage", ["guard", "switch", "move"])
def test_items_that_move_are_refused(table: Table, stage: Any) -> None:
    moving = ShardedTable(table, Resharding(Unsharded(), CalculatedSuffix("OrderId", 3), stage=stage))
    for run in (count, delete):
        with pytest.raises(StageError, match="wait until the move has ended"):
            run(moving)


def test_an_installed_table_and_a_series_are_refused_and_a_periods_table_is_not(
    resource: DynamoDBServiceResource, table: Any
) -> None:
    series = a_series(resource)
    for day in ("2016-03-30", "2016-04-02", "2016-04-03"):
        series.put_item(Item={"Customer": "c", "Time": f"{day}T00:00:00Z"})
    period = ShardedTable(resource.Table(series.table_name(datetime(2016, 4, 1, tzinfo=UTC))), series.strategy)
    assert (delete(period, **FAST).changed, series.scan()["Count"]) == (2, 1)
    for tables in ((series, period), (period, series)):
        with pytest.raises(ConfigurationError, match="give the table of a period"):
            copy(*tables)
    with pytest.raises(ConfigurationError, match="must have the same key attributes"):
        copy(table, period)
    sharded = install(table.meta.client, {table.name: CalculatedSuffix("OrderId", 3)})
    with sharded, pytest.raises(ConfigurationError, match="is installed as a sharded table"):
        count(table)


class KilledError(Exception):
    pass


def test_a_killed_pass_goes_on_and_changes_nothing_twice(table: Any, tmp_path: Path) -> None:
    files = {"journal": tmp_path / "journal", "before": tmp_path / "before"}
    add = ("SET n = n + :x", {"where": Attr("n").exists(), "ExpressionAttributeValues": {":x": 100}, **FAST, **files})

    def kill(report: Any) -> None:
        if report.changed >= 5:
            raise KilledError

    with pytest.raises(KilledError):
        update(table, add[0], progress=kill, **add[1])
    with pytest.raises(ConfigurationError, match=r"journal: .* is of another update \(wanted differ"):
        update(table, add[0], **{**add[1], "where": None})
    with pytest.raises(ConfigurationError, match=r"journal: .* is damaged, or not a journal of kind 'delete'"):
        delete(table, **{**add[1], "ExpressionAttributeValues": {}})
    with pytest.raises(ConfigurationError, match=r"before: .* exists"):
        update(table, add[0], **{**add[1], "journal": None})
    report = update(table, add[0], **add[1])
    assert report.changed + report.resumed == 20
    assert sorted(item["n"] for item in table.scan()["Items"] if "n" in item) == [n + 100 for n in range(20)]
    assert not files["journal"].exists()
    with pytest.raises(ConfigurationError, match=r"journal: an update needs before="):
        update(table, add[0], **{**add[1], "before": None})


def test_what_fails_is_in_the_dead_letters_as_text(table: Any, tmp_path: Path) -> None:
    path = tmp_path / "failed"
    report = update(table, "SET n = n + :x", ExpressionAttributeValues={":x": 1}, dead_letters=path, **FAST)
    assert (report.changed, report.failed) == (20, 1)
    assert report.failures[0][0] == "{'Date': 'e', 'OrderId': 'B'}"
    (line,) = path.read_text().splitlines()
    assert line.startswith(
        r'{"text":"{\"Date\":{\"S\":\"e\"},\"OrderId\":{\"S\":\"B\"}}","place":"","code":"Validation'
    )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"where": 5}, "where: must be a condition"),
        ({"segments": 0}, "segments: must be"),
        ({"other": 1}, "other: is not an option of the count"),
        ({"read_units": 0}, "read_units: must be"),
        ({"sample": 1}, "sample: is not an option of the count"),
    ],
)
def test_wrong_arguments(table: Any, given: Any, error: str) -> None:
    with pytest.raises(Exception, match=error if error != "where" else "."):
        count(table, **given)


def test_a_killed_deletion_deletes_also_what_others_have_written_meanwhile(table: Any, tmp_path: Path) -> None:
    files: dict[str, Any] = {"journal": tmp_path / "journal", "before": tmp_path / "before.jsonl"}

    def kill(report: Any) -> None:
        if report.read:
            raise KilledError

    with pytest.raises(KilledError):
        delete(table, progress=kill, **FAST, **files)
    left = table.scan()["Items"]
    for item in left:
        table.put_item(Item={**item, "m": 1})
    report = delete(table, **FAST, **files)
    assert (table.scan()["Items"], report.changed, report.resumed) == ([], len(left), 0)
    bulk_load(table, open_source(files["before"]))
    assert sum(item.get("m", 0) for item in table.scan()["Items"]) == len(left) > 0


def test_a_change_that_no_item_takes_ends_soon(table: Any) -> None:
    """What has an invalid expression is refused at each item; not until all of a page were tried."""
    items = [{"Date": f"x{number}", "OrderId": "C"} for number in range(300)]
    bulk_load(table, items)
    with pytest.raises(ShardkitError, match="none of the first 100 items could be changed"):
        update(table, "SET m = n + :gone", **FAST)
    with pytest.raises(ShardkitError, match="none of the first 100 items could be changed: 'gone'"):
        update(table, lambda item: {**item, "n": item["gone"]}, **FAST)


def test_an_item_that_the_target_has_twice_is_found(
    resource: DynamoDBServiceResource, table: Any, tmp_path: Path
) -> None:
    """Its second copy is in a shard where reads do not look."""
    other = ShardedTable(
        make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Copies"), CalculatedSuffix("OrderId", 4)
    )
    copy(table, other, **FAST)
    whole = compare(table, other, read_units=None, segments=3)
    assert (whole.equal, whole.read) == (True, 42)
    stored = other.physical_key({"Date": "d", "OrderId": "A03"})["Date"]
    other.table.put_item(Item={"Date": f"d.{int(stored[2:]) % 4 + 1}", "OrderId": "A03", "n": 77})
    other.put_item(Item={"Date": "d", "OrderId": "A04", "n": 77})
    found = compare(table, other, read_units=None, segments=3, dead_letters=tmp_path / "letters.jsonl")
    assert (found.equal, found.additional, found.missing, found.different) == (False, 1, 0, 1)
    assert sorted(reason for _, reason in found.failures) == [
        "additional: in a shard where reads do not look",
        "different: n",
    ]
    # Loaded into the target, they repair what differs; what is additional is text.
    letters = [json.loads(line) for line in (tmp_path / "letters.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sorted(("Item" in letter, letter["reason"][:9]) for letter in letters) == [
        (False, "additiona"),
        (True, "different"),
    ]


def test_a_table_whose_keys_are_of_another_type(resource: DynamoDBServiceResource, table: Any) -> None:
    other = make_table(resource, ("Date", "S"), ("OrderId", "N"), name="Numbers")
    for what in (copy, compare):
        with pytest.raises(ConfigurationError, match=r"must have the same key attributes, got .*'S'.* and .*'N'"):
            what(table, other)
    untyped = ShardedTable(table, Unsharded(), key_schema={"KeySchema": table.key_schema})
    alike = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Alike")
    assert copy(untyped, alike, **FAST).changed == 21
    assert compare(alike, untyped, read_units=None).equal


def test_a_table_is_not_copied_into_itself(table: Any) -> None:
    """Also not through another client: the copy would meet its own copies, and copy them again."""
    for same in (table, boto3.resource("dynamodb", region_name="us-east-1").Table(table.name)):
        with pytest.raises(ConfigurationError, match="target: must be another table than the source"):
            copy(table, ShardedTable(same, CalculatedSuffix("OrderId", 3)))


def test_the_journal_of_a_dry_run_or_of_another_file_is_refused(table: Any, tmp_path: Path) -> None:
    """Otherwise items would be left out, or changed twice; and a refused pass leaves no journal."""

    def kill(_: Any) -> None:
        raise KilledError

    files: Any = {"journal": tmp_path / "journal", "before": tmp_path / "before"}
    with pytest.raises(ConfigurationError, match="write_units: must be"):
        update(table, "SET n = n", **{**FAST, **files, "write_units": 0})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KilledError):
        update(table, "SET n = n", dry_run=True, progress=kill, **FAST, **files)
    with pytest.raises(ConfigurationError, match=r"dry_run differ"):
        update(table, "SET n = n", **FAST, **files)
    files["journal"].unlink()
    with pytest.raises(KilledError):
        update(table, "SET n = n", progress=kill, **FAST, **files)
    with pytest.raises(ConfigurationError, match=r"before differ"):
        update(table, "SET n = n", **FAST, **{**files, "before": tmp_path / "other"})


def test_placeholders_of_a_condition_and_of_a_change_are_kept_apart(table: Any) -> None:
    named: Any = {"ExpressionAttributeNames": {"#n0": "new"}, "ExpressionAttributeValues": {":v0": 7}}
    assert update(table, "SET #n0 = :v0", where=Attr("n").lt(5), **named, **FAST).changed == 5
    taken: Any = {"ExpressionAttributeNames": {"#cu0": "n"}, "ExpressionAttributeValues": {":c0": 5}}
    report = update(table, lambda item: {**item, "n": 0, "more": 1}, where="#cu0 < :c0", **taken, **FAST)
    assert (report.changed, count(table, where=Attr("new").eq(7) & Attr("more").eq(1)).found) == (5, 5)


def test_copied_into_a_table_whose_map_has_random_suffixes(resource: DynamoDBServiceResource, table: Any) -> None:
    target = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    ShardMapAdmin(target).create(RandomSuffix(3))
    reports = [copy(table, ShardedTable(target, ShardMap()), **FAST) for _ in range(2)]
    assert [(one.changed, one.unchanged, one.failed) for one in reports] == [(21, 0, 0), (0, 21, 0)]


def test_a_copy_is_tried_first(resource: DynamoDBServiceResource, table: Any) -> None:
    target = ShardedTable(make_table(resource, ("Date", "S"), ("OrderId", "S")), CalculatedSuffix("OrderId", 3))
    report = copy(table, target, dry_run=True, write_units=2, read_units=None)
    assert (report.found, report.changed, report.units.table, report.expected_seconds) == (21, 0, 21, 10.5)
    assert target.scan()["Count"] == 0


def test_a_change_that_is_neither_text_nor_function(table: Any) -> None:
    with pytest.raises(ConfigurationError, match="change: must be an UpdateExpression"):
        update(table, {"n": 1})  # type: ignore[arg-type]
    named = {"ExpressionAttributeNames": {"#d": "Date"}, "ExpressionAttributeValues": {":x": "y"}}
    assert update(table, "SET #d = :x", **{**named, **FAST}).failed == 21
    report = update(table, lambda item: {**item, "Date": "other"}, **FAST)
    assert (report.changed, report.failed) == (0, 21)
    assert "part of the key" in report.failures[0][1]
