"""boto3's own paginators, waiters and batch writer."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import WaiterError

from tests.support.installed import Setting

if TYPE_CHECKING:
    import boto3

DAY = {"KeyConditionExpression": "pk = :day", "ExpressionAttributeValues": {":day": {"S": "2014-07-09"}}}
ITEMS = [{"pk": {"S": "2014-07-09"}, "sk": {"S": f"A{number:03}"}, "n": {"N": str(number)}} for number in range(40)]


@pytest.fixture
def client(setting: Setting, boto3_session: boto3.Session) -> Iterator[Any]:
    client: Any = boto3_session.client("dynamodb", endpoint_url=setting.url)
    yield client
    client.close()


@pytest.fixture
def table(setting: Setting, client: Any) -> Iterator[str]:
    """A table with 40 items of one key, written through the client."""
    table = setting.make_table()
    with setting.install(client, table.name):
        for item in ITEMS:
            client.put_item(TableName=table.name, Item=item)
        setting.assert_stored(table, {"2014-07-09": 40})
        yield table.name


def pages(client: Any, table: str, operation: str = "query", **config: Any) -> Any:
    asked = DAY if operation == "query" else {}
    return client.get_paginator(operation).paginate(TableName=table, **asked, PaginationConfig=config)


@pytest.mark.parametrize("size", [None, 1, 7, 40, 100])
def test_page_sizes(size: int | None, client: Any, table: str) -> None:
    found = list(pages(client, table, PageSize=size))
    assert [item for page in found for item in page["Items"]] == ITEMS
    assert all(page["Count"] == len(page["Items"]) <= (size or 40) for page in found)


def test_build_full_result(client: Any, table: str) -> None:
    found = pages(client, table, PageSize=9).build_full_result()
    assert found["Items"] == ITEMS
    assert (found["Count"], found["ScannedCount"]) == (40, 40)


@pytest.mark.parametrize("operation", ["query", "scan"])
def test_starting_tokens(operation: str, client: Any, table: str) -> None:
    """Each result has at most 11 items, and its token goes to another paginator."""
    items: list[Any] = []
    sizes: list[int] = []
    token: str | None = None
    while token is not None or not sizes:
        found = pages(client, table, operation, PageSize=4, MaxItems=11, StartingToken=token).build_full_result()
        items += found["Items"]
        sizes.append(len(found["Items"]))
        token = found.get("NextToken")
    assert sizes[:3] == [11, 11, 11]
    assert (items if operation == "query" else sorted(items, key=lambda item: item["sk"]["S"])) == ITEMS


def test_page_keys_have_the_names_of_the_key(client: Any, table: str) -> None:
    page = client.query(TableName=table, **DAY, Limit=5)
    assert page["LastEvaluatedKey"] == {"pk": {"S": "2014-07-09"}, "sk": {"S": "A004"}}


def test_search(client: Any, table: str) -> None:
    assert list(pages(client, table, PageSize=6).search("Items[?n.N > '5'].sk.S")) == [
        item["sk"]["S"] for item in ITEMS if item["n"]["N"] > "5"
    ]


def test_waiters(setting: Setting, client: Any, table: str) -> None:
    client.get_waiter("table_exists").wait(TableName=table)
    once = {"MaxAttempts": 1}
    with pytest.raises(WaiterError):
        client.get_waiter("table_not_exists").wait(TableName=table, WaiterConfig=once)
    client.delete_table(TableName=table)
    client.get_waiter("table_not_exists").wait(TableName=table)
    with pytest.raises(WaiterError):
        client.get_waiter("table_exists").wait(TableName=table, WaiterConfig=once)


def test_a_resource(setting: Setting, boto3_session: boto3.Session) -> None:
    """A Table's batch writer and collections, over a resource."""
    table = setting.make_table()
    resource = boto3_session.resource("dynamodb", endpoint_url=setting.url)
    with setting.install(resource, table.name):
        orders = resource.Table(table.name)
        with orders.batch_writer(overwrite_by_pkeys=["pk", "sk"]) as batch:
            for number in [*range(30), *range(30)]:
                batch.put_item(Item={"pk": "2014-07-09", "sk": f"A{number:03}", "n": number})
        setting.assert_stored(table, {"2014-07-09": 30})
        keys = [{"pk": "2014-07-09", "sk": f"A{number:03}"} for number in (3, 29, 99)]
        answer = resource.batch_get_item(RequestItems={table.name: {"Keys": keys}})
        found = sorted(answer["Responses"][table.name], key=lambda item: str(item["sk"]))
        assert found == [{**key, "n": Decimal(n)} for key, n in zip(keys, (3, 29), strict=False)]
        with orders.batch_writer() as batch:
            for number in range(29):
                batch.delete_item(Key={"pk": "2014-07-09", "sk": f"A{number:03}"})
        setting.assert_stored(table, {"2014-07-09": 1})
    resource.meta.client.close()
