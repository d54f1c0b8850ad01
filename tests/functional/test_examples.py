"""examples/: each is run by its main(), over moto, and its effects are looked at."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from examples import bulk_loader, fan_out_read, popular_items, time_series, what_if, wrap_existing_table
from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

DAY = "2014-07-09"
Stored = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")


def stored(table: Any) -> Stored:
    """What a plain Scan shows."""
    return {(str(item["Date"]), str(item["OrderId"])): dict(item) for item in table.scan()["Items"]}


def expected(items: list[dict[str, Any]], shards: int) -> Stored:
    """The items as they are stored with a suffix calculated from OrderId."""
    strategy = CalculatedSuffix("OrderId", shards=shards)
    places = [(strategy.physical_key(item["Date"], strategy.shard_of(item["Date"], item)), item) for item in items]
    return {(str(key), item["OrderId"]): {**item, "Date": key} for key, item in places}


# -- wrap_existing_table.py --------------------------------------------------------------------------------------------


def wrap(*more: str) -> int:
    return wrap_existing_table.main(
        ["--table", "Orders", "--sharded-table", "Sharded", "--by", "OrderId", "--shards", "4", *more]
    )


def test_wrap_existing_table(
    resource: DynamoDBServiceResource, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [{"Date": DAY, "OrderId": f"A{number:02}", "Total": Decimal(number)} for number in range(30)]
    bulk_load(table, items)
    before = stored(table)
    assert wrap() == 0
    assert stored(table) == before
    # What the tour put, it deleted.
    assert stored(resource.Table("Sharded")) == expected(items, 4)
    assert len({key for key, _ in stored(resource.Table("Sharded"))}) == 4
    output = capsys.readouterr().out
    assert "30 written, 0 failed" in output
    assert "'shardkit-example': Decimal('15')" in output
    assert "in order: [['A00'], ['A01'], ['A02'], ['A03'], ['A04']]" in output


def test_wrap_existing_table_that_is_not_there(
    resource: DynamoDBServiceResource, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrap() == 1
    assert "ResourceNotFoundException" in capsys.readouterr().out
    assert list(resource.tables.all()) == []


@pytest.mark.parametrize(
    ("keys", "by", "values"),
    [
        ([("Id", "S")], "Customer", {"Id": "A1"}),
        ([("Id", "B")], "Customer", {"Id": b"A1"}),
        ([("Date", "S"), ("Number", "N")], "Number", {"Date": DAY, "Number": Decimal(0)}),
        ([("Date", "B"), ("OrderId", "B")], "OrderId", {"Date": b"\x00\xff", "OrderId": b"A1"}),
        ([("Date", "S"), ("OrderId", "S")], "Customer", {"Date": DAY, "OrderId": "shardkit-example"}),
    ],
    ids=["hash only", "hash only, binary", "a number", "binary", "by no key"],
)
@pytest.mark.parametrize("count", [0, 1])
def test_wrap_existing_table_of_any_keys(
    keys: list[tuple[str, Any]],
    by: str,
    values: dict[str, Any],
    count: int,
    resource: DynamoDBServiceResource,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = make_table(resource, *keys, name="Orders")
    item = {**values, "Total": Decimal(7)}
    item.setdefault(by, "C1")
    if count:
        table.put_item(Item=item)
    assert wrap("--by", by) == 0, capsys.readouterr().out
    strategy = CalculatedSuffix(by, shards=4)
    copied = ShardedTable(resource.Table("Sharded"), strategy)
    found = list(copied.scan_items())
    # What the tour put, it deleted; and it took no item's place.
    assert found == [item] * count
    assert len(resource.Table("Sharded").scan()["Items"]) == count
    assert "'shardkit-example': Decimal('15')" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keys", "by", "item", "says"),
    [
        ([("Number", "N")], "Customer", {"Number": 1, "Customer": "C1"}, "number"),
        ([("Date", "S"), ("OrderId", "S")], "OrderID", {"Date": DAY, "OrderId": "A1"}, "OrderID"),
        (
            [("Date", "S"), ("OrderId", "S")],
            "Total",
            {"Date": DAY, "OrderId": "A1", "Total": True},
            "no shard can be calculated from True",
        ),
    ],
    ids=["a number", "a typo", "no value for a suffix"],
)
def test_wrap_existing_table_is_checked_before_a_table_is_made(
    keys: list[tuple[str, Any]],
    by: str,
    item: dict[str, Any],
    says: str,
    resource: DynamoDBServiceResource,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_table(resource, *keys, name="Orders").put_item(Item=item)
    assert wrap("--by", by) == 1
    assert says in capsys.readouterr().out.removeprefix("not done: ")
    assert [table.name for table in resource.tables.all()] == ["Orders"]


@pytest.mark.usefixtures("table")
def test_wrap_existing_table_refuses_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert wrap("--sharded-table", "") == 1
    assert capsys.readouterr().out.startswith("not done: ")


# -- bulk_loader.py ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


JOB = ("--table", "Orders", "--shards", "5", "--by", "OrderId", "--job", "night")


def letters(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "night-0.dead.jsonl").read_text(encoding="utf-8").splitlines()]


def orders_csv(folder: Path, count: int) -> list[dict[str, Any]]:
    lines = [f"{DAY},A{number:03},{number}.50," for number in range(count)]
    (folder / "orders.csv").write_text("\n".join(["Date,OrderId,Total,Note", *lines]), encoding="utf-8")
    return [{"Date": DAY, "OrderId": f"A{number:03}", "Total": Decimal(f"{number}.5")} for number in range(count)]


def test_bulk_loader(table: Table, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    items = orders_csv(folder, 60)
    (folder / "more").mkdir()
    (folder / "more" / "a.jsonl").write_text(json.dumps({"Date": DAY, "OrderId": "B1"}), encoding="utf-8")
    assert bulk_loader.main(["orders.csv", "more", *JOB, "--write-units", "10000"]) == 0
    items.append({"Date": DAY, "OrderId": "B1"})
    assert stored(table) == expected(items, 5)
    assert "60 items: 60 written, 0 failed" in caplog.text
    assert "'Total': 'N'" in caplog.text
    # A job that came to its end begins anew the next night.
    assert not list(folder.glob("*.journal"))


def test_bulk_loader_keeps_what_failed(table: Table, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "orders.csv").write_text(
        f"Date,OrderId,Total\n{DAY},A1,1\n{DAY},A2,many\n{DAY},A3\n{DAY},,4\n{DAY},A5,NA\n", encoding="utf-8"
    )
    assert bulk_loader.main(["orders.csv", *JOB, "--types", "Total:N"]) == 1
    good: list[dict[str, Any]] = [
        {"Date": DAY, "OrderId": "A1", "Total": Decimal(1)},
        {"Date": DAY, "OrderId": "A5"},
    ]
    assert stored(table) == expected(good, 5)
    assert sorted(letter["place"] for letter in letters(folder)) == [f"orders.csv, line {line}" for line in (3, 4, 5)]
    assert {letter.get("text") for letter in letters(folder)} >= {f"{DAY},A2,many", f"{DAY},A3"}
    assert "orders.csv, line 5: " in caplog.text


def test_bulk_loader_goes_on_where_it_was_ended(
    table: Table, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    items = orders_csv(folder, 100)
    error = {"Code": "AccessDeniedException", "Message": "no"}
    denied: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": HTTPStatus.FORBIDDEN}}
    response: Any = AWSResponse("", HTTPStatus.FORBIDDEN, HTTPHeaders(), None)
    calls = itertools.count()
    # A handler that answers a call in place of the service, as botocore's Stubber does: credentials that expire.
    answer: Any = lambda **_: (response, denied) if next(calls) >= 2 else None  # noqa: E731
    make = boto3.resource

    def expiring(*arguments: Any, **options: Any) -> Any:
        resource: Any = make(*arguments, **options)
        resource.meta.client.meta.events.register("before-call.dynamodb.BatchWriteItem", answer)
        return resource

    with monkeypatch.context() as patched:
        patched.setattr(boto3, "resource", expiring)
        assert bulk_loader.main(["orders.csv", *JOB]) == 2
    assert "start it again" in caplog.text
    begun = stored(table)
    assert 0 < len(begun) < 100
    caplog.clear()
    assert letters(folder) == []  # what was not tried to its end has not failed
    assert bulk_loader.main(["orders.csv", *JOB]) == 0
    assert stored(table) == expected(items, 5)


@pytest.mark.parametrize(
    ("source", "arguments", "says"),
    [
        ("orders.csv", ["--table", "Nowhere"], "ResourceNotFoundException"),
        ("empty.csv", [], "no items to load"),
        ("missing.csv", [], "missing.csv"),
        ("orders.csv", ["--shards", "0"], "shards"),
        ("orders.csv", ["--write-units", "0"], "write_units"),
    ],
)
@pytest.mark.usefixtures("table")
def test_bulk_loader_not_begun(
    source: str, arguments: list[str], says: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders_csv(folder, 1)
    (folder / "empty.csv").write_text("Date,OrderId\n", encoding="utf-8")
    assert bulk_loader.main([source, *JOB, *arguments]) == 2
    assert says in caplog.text


# -- fan_out_read.py ---------------------------------------------------------------------------------------------------


@pytest.fixture
def orders(table: Table) -> ShardedTable:
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=4))
    bulk_load(orders, [{"Date": DAY, "OrderId": f"A{number:02}", "Total": number} for number in range(23)])
    return orders


@pytest.fixture
def address(orders: ShardedTable) -> Iterator[str]:
    with fan_out_read.make_server(fan_out_read.Orders(orders), 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def get(url: str) -> tuple[dict[str, Any], float]:
    with urlopen(url) as response:  # noqa: S310 - the server of this test
        body: dict[str, Any] = json.load(response)
        return body, float(response.headers["X-Read-Units"])


def test_fan_out_read_pages(address: str) -> None:
    ids: list[str] = []
    page, read_units = get(f"{address}/orders/{DAY}?limit=10")
    sizes = [len(page["items"])]
    assert read_units > 0
    ids += [item["OrderId"] for item in page["items"]]
    while page["next"] is not None:
        page, _ = get(f"{address}/orders/{DAY}?limit=10&next={quote(page['next'])}")
        sizes.append(len(page["items"]))
        ids += [item["OrderId"] for item in page["items"]]
    assert ids == [f"A{number:02}" for number in range(23)]
    assert sizes == [10, 10, 3]


def test_fan_out_read_total(address: str) -> None:
    body, read_units = get(f"{address}/orders/{DAY}/total")
    assert body == {"orders": 23, "total": sum(range(23))}
    assert read_units > 0


def test_fan_out_read_refuses(address: str) -> None:
    token = get(f"{address}/orders/{DAY}?limit=10")[0]["next"]
    wrong = {
        f"/orders/{DAY}?limit=0": HTTPStatus.BAD_REQUEST,
        f"/orders/{DAY}?limit=many": HTTPStatus.BAD_REQUEST,
        f"/orders/{DAY}?next=x": HTTPStatus.BAD_REQUEST,
        f"/orders/2014-07-10?next={token}": HTTPStatus.BAD_REQUEST,
        "/customers": HTTPStatus.NOT_FOUND,
    }
    for path, status in wrong.items():
        with pytest.raises(HTTPError) as caught:
            get(address + path)
        assert caught.value.code == status
        assert "error" in json.load(caught.value)
        caught.value.close()


@pytest.mark.usefixtures("orders")
def test_fan_out_read_main(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--table", "Orders", "--shards", "4", "--by", "OrderId"]
    assert fan_out_read.main([*arguments, f"/orders/{DAY}?limit=2"]) == 0
    body, status = capsys.readouterr().out.splitlines()
    assert [item["OrderId"] for item in json.loads(body)["items"]] == ["A00", "A01"]
    assert status.startswith("200 OK, ")
    assert status.endswith(" read units")
    assert fan_out_read.main([*arguments, f"/orders/{DAY}?limit=0"]) == 1


def test_fan_out_read_of_a_table_with_other_keys(resource: DynamoDBServiceResource) -> None:
    events = ShardedTable(make_table(resource, ("Tenant", "S"), ("Id", "S")), CalculatedSuffix("Id", shards=4))
    events.put_item(Item={"Tenant": "t0", "Id": "A", "Total": 3})
    assert fan_out_read.Orders(events).answer("/orders/t0/total")[1] == {"orders": 1, "total": 3}


def test_what_the_service_reads_is_what_a_query_reads(orders: ShardedTable) -> None:
    service = fan_out_read.Orders(orders)
    _, body, _ = service.answer(f"/orders/{DAY}?limit=500")
    assert body == {"items": orders.query(KeyConditionExpression=Key("Date").eq(DAY))["Items"], "next": None}
    assert service.meter.read_units > 0


# -- time_series.py ----------------------------------------------------------------------------------------------------


def test_time_series(resource: DynamoDBServiceResource, capsys: pytest.CaptureFixture[str]) -> None:
    assert time_series.main(["--name", "hits"], lambda: datetime(2014, 8, 10, 12, tzinfo=UTC)) == 0
    said = capsys.readouterr().out
    assert "loaded: 28 items: 28 written, 0 failed" in said
    assert "\ntables: hits-2014-07, hits-2014-08\n" in said
    assert "\nnewest first: /page/0, /page/2, /page/4 … /page/26\n" in said
    assert "\na page of the last week: ['/page/6', '/page/4'], more: True\n" in said
    assert "\ntoo late: Time: the period 2013-03 of 'hits' is older than keep=12" in said
    assert "\nnext: hits at 2014-09-10 12:00 UTC: 1 step\n  create           hits-2014-09\n    for 2014-09-01" in said
    assert len(resource.Table("hits-2014-08").scan()["Items"]) == 10


# -- popular_items.py --------------------------------------------------------------------------------------------------


def test_popular_items(resource: DynamoDBServiceResource, capsys: pytest.CaptureFixture[str]) -> None:
    assert popular_items.main(["--table", "Products", "--products", "50", "--views", "300"]) == 0
    assert list(resource.tables.all()) == []
    output = capsys.readouterr().out
    assert "85% of 300 views from memory, 128.0 read units saved" in output
    assert "most of them of p000000: " in output


def test_popular_items_of_a_table_that_is_there(
    table: Table, resource: DynamoDBServiceResource, capsys: pytest.CaptureFixture[str]
) -> None:
    assert popular_items.main(["--table", "Orders"]) == 1
    assert "ResourceInUseException" in capsys.readouterr().out
    assert [one.name for one in resource.tables.all()] == ["Orders"]


# -- what_if.py --------------------------------------------------------------------------------------------------------


def test_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    """A hot day is throttled; with the shards that its trace asks for it is not, and its trace says they are enough."""
    before, after = what_if.main()
    # Where a second begins is chance: a day that is near what eight shards serve may need 16.
    assert {before.decisions[1], after.decisions[1]} <= {8, 16}
    assert ", 0 throttled attempts" not in before.recorded
    assert ", 0 throttled attempts" in after.recorded
    assert f"shards={before.decisions[1]}: 0 of the writes were refused" in capsys.readouterr().out
