"""examples/: each is run by its main(), over moto, and its effects are looked at."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from boto3.dynamodb.conditions import Key
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from examples import bulk_loader, fan_out_read, wrap_existing_table
from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from tests.tables import make_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource
    from mypy_boto3_dynamodb.service_resource import Table

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
    assert "'Total': Decimal('15')" in output
    assert "in order: ['A00', 'A01', 'A02', 'A03', 'A04']" in output


def test_wrap_existing_table_that_is_not_there(
    resource: DynamoDBServiceResource, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrap() == 1
    assert "ResourceNotFoundException" in capsys.readouterr().out
    assert list(resource.tables.all()) == []


# -- bulk_loader.py ----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failures(folder: Path, name: str = "failures.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_bulk_loader_csv(table: Table, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{DAY},A{number:02},{number}.50," for number in range(60)]
    (folder / "orders.csv").write_text("\n".join(["Date,OrderId,Total,Note", *lines]), encoding="utf-8")
    arguments = ["--table", "Orders", "--shards", "5", "--by", "OrderId", "--number", "Total"]
    assert bulk_loader.main(["orders.csv", *arguments]) == 0
    items = [{"Date": DAY, "OrderId": f"A{number:02}", "Total": Decimal(f"{number}.5")} for number in range(60)]
    assert stored(table) == expected(items, 5)
    output = capsys.readouterr().out
    assert "60 items: 60 written, 0 failed" in output
    assert len([line for line in output.splitlines() if line.startswith("  shard ")]) == 5
    assert not (folder / "failures.jsonl").exists()


def test_bulk_loader_json_lines_with_failures(table: Table, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [{"Date": DAY, "OrderId": f"A{number}", "Total": number} for number in range(3)]
    lines = [json.dumps(item) for item in good]
    no_key = '{"Date": "2014-07-09", "Total": 1.10}'
    lines[1:1] = [no_key, "not JSON", "", "[1, 2]"]
    (folder / "orders.jsonl").write_text("\n".join(lines), encoding="utf-8")
    arguments = ["--table", "Orders", "--shards", "5", "--by", "OrderId", "--failures", "failed.jsonl"]
    assert bulk_loader.main(["orders.jsonl", *arguments]) == 1
    assert stored(table) == expected(good, 5)
    failed = {failure["line"]: failure for failure in failures(folder, "failed.jsonl")}
    assert failed.keys() == {2, 3, 5}
    # The source's own text: nothing of it is lost.
    assert failed[2]["source"] == no_key
    assert "OrderId" in failed[2]["error"]
    assert failed[3]["error"].startswith("JSONDecodeError")
    assert failed[5]["error"] == "TypeError: the line is a JSON list, not an object"
    assert "3 not written, see failed.jsonl" in capsys.readouterr().err


def test_bulk_loader_by_several_attributes(table: Table, folder: Path) -> None:
    (folder / "orders.csv").write_text(f"Date,OrderId\n{DAY},A1\n", encoding="utf-8")
    assert bulk_loader.main(["orders.csv", "--table", "Orders", "--shards", "5", "--by", "Date", "OrderId"]) == 0
    orders = ShardedTable(table, CalculatedSuffix(("Date", "OrderId"), shards=5))
    assert orders.get_item(Key={"Date": DAY, "OrderId": "A1"})["Item"] == {"Date": DAY, "OrderId": "A1"}


def test_bulk_loader_into_a_plain_table_and_bad_cells(table: Table, folder: Path) -> None:
    (folder / "orders.csv").write_text(
        f"Date,OrderId,Total\n{DAY},A1,1\n{DAY},A2,many\n{DAY},A3\n{DAY},A4,4,5\n", encoding="utf-8"
    )
    assert bulk_loader.main(["orders.csv", "--table", "Orders", "--number", "Total"]) == 1
    assert stored(table) == {(DAY, "A1"): {"Date": DAY, "OrderId": "A1", "Total": Decimal(1)}}
    assert [failure["line"] for failure in failures(folder)] == [3, 4, 5]
    assert failures(folder)[2]["source"] == [DAY, "A4", "4", ["5"]]


def test_bulk_loader_that_cannot_go_on(table: Table, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "orders.csv").write_text(f"Date,OrderId\n{DAY},A1\n{DAY},A2\n", encoding="utf-8")
    error = {"Code": "AccessDeniedException", "Message": "no"}
    denied: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": HTTPStatus.FORBIDDEN}}
    response: Any = AWSResponse("", HTTPStatus.FORBIDDEN, HTTPHeaders(), None)
    answer: Any = lambda **_: (response, denied)  # noqa: E731 - botocore's types know no handler that answers
    # A handler that answers a call in place of the service, as botocore's Stubber does.
    table.meta.client.meta.events.register("before-call.dynamodb.BatchWriteItem", answer)
    with (folder / "failed.jsonl").open("w", encoding="utf-8") as file:
        assert bulk_loader.load(table, folder / "orders.csv", (), None, file) == 2
    assert [failure["line"] for failure in failures(folder, "failed.jsonl")] == [2, 3]
    assert "the load stopped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "arguments", "says"),
    [
        ("orders.csv", ["--table", "Nowhere"], "ResourceNotFoundException"),
        ("empty.csv", ["--table", "Orders"], "no items to load"),
        ("missing.csv", ["--table", "Orders"], "missing.csv"),
        ("orders.csv", ["--table", "Orders", "--shards", "0", "--by", "OrderId"], "shards"),
        ("orders.csv", ["--table", "Orders", "--workers", "0"], "workers"),
    ],
)
@pytest.mark.usefixtures("table")
def test_bulk_loader_not_begun(
    source: str, arguments: list[str], says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "orders.csv").write_text(f"Date,OrderId\n{DAY},A1\n", encoding="utf-8")
    (folder / "empty.csv").write_text("Date,OrderId\n", encoding="utf-8")
    assert bulk_loader.main([source, *arguments]) == 2
    assert says in capsys.readouterr().err


def test_bulk_loader_wants_both_or_neither(folder: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        bulk_loader.main(["orders.csv", "--table", "Orders", "--shards", "5"])
    assert ended.value.code == 2


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


def test_what_the_service_reads_is_what_a_query_reads(orders: ShardedTable) -> None:
    service = fan_out_read.Orders(orders)
    _, body, _ = service.answer(f"/orders/{DAY}?limit=500")
    assert body == {"items": orders.query(KeyConditionExpression=Key("Date").eq(DAY))["Items"], "next": None}
    assert service.meter.read_units > 0
