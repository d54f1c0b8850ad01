"""The rules of sizes and units beside what engines count."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from shardkit.capacity import ItemChange, TableUnits, item_size
from shardkit.dynamodb.values import WireItem, number_size
from tests.support import charged, engines
from tests.support.charged import PARTINGS, Charged, skipped, units
from tests.support.sized_items import KB, NAMES, aligned_size, number, value

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

NUMBERS = 1000

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sizes-and-units.md"


@pytest.fixture
def table(engine_resource: DynamoDBServiceResource, engine_name: engines.EngineName) -> Iterator[Charged]:
    table = Charged(engine_resource, skipped(engine_name))
    yield table
    table.client.close()


def filled(item: WireItem, size: int) -> WireItem:
    """An item of so many bytes."""
    whole = {**item, "fill": {"S": ""}}
    return {**whole, "fill": {"S": "x" * (size - item_size(whole))}}


def test_numbers(table: Charged, engine_name: engines.EngineName) -> None:
    """Each number, in whatever notation, by itself in an item: exact to the byte."""
    rng = random.Random(38)
    for first in range(0, NUMBERS, 25):
        texts = [number(rng) for _ in range(25)]
        for beyond in (0, 1):
            requests, expected = [], TableUnits()
            for place, text in enumerate(texts, start=first):
                size = number_size(text) if engine_name == "dynoxide" else aligned_size(text)
                # One byte more is counted for the number than the engine's rule says: it is in the fill instead.
                item = filled({**table.key((f"n{place}", 0)), "n": {"N": text}}, KB + beyond + number_size(text) - size)
                requests.append({"PutRequest": {"Item": item}})
                expected += TableUnits(1.0 + beyond, global_indexes={"turned": 1.0} if not beyond else {})
            answer = table.client.batch_write_item(
                RequestItems={table.name: requests}, ReturnConsumedCapacity="INDEXES"
            )
            assert units(answer["ConsumedCapacity"][0]) == expected, texts


def test_the_largest_item(table: Charged) -> None:
    """400 KB are stored, and not a byte more: the limit too is counted by the rules."""
    rng = random.Random(400)
    for place in range(10):
        item = table.key((f"l{place}", 0)) | {name: value(rng, straddling=table.straddling) for name in NAMES}
        largest = filled(item, 400 * KB)
        answer = table.client.put_item(TableName=table.name, Item=largest, **CAPACITY)
        assert units(answer["ConsumedCapacity"]) == table.estimator.put_item(largest)
        assert table.estimator.put_item(largest).table == 400
        with pytest.raises(ClientError, match="size"):
            table.client.put_item(TableName=table.name, Item=filled(item, 400 * KB + 1))


# -- where engines part from the rules

Asked = tuple[dict[str, Any], TableUnits]
CAPACITY = {"ReturnConsumedCapacity": "INDEXES"}


def put(table: Charged, item: WireItem, before: WireItem | None = None) -> Asked:
    if before is not None:
        table.client.put_item(TableName=table.name, Item=before)
    answer = table.client.put_item(TableName=table.name, Item=item, **CAPACITY)
    return answer, table.estimator.put_item(item, before=before)


def put_number(table: Charged, text: str, size: int) -> Asked:
    return put(table, filled({**table.key(("p", 0)), "n": {"N": text}}, size))


def transaction(table: Charged) -> Asked:
    item = {**table.key(("p", 0)), "owner": {"S": "o"}}
    action = {"Put": {"TableName": table.name, "Item": item}}
    answer = table.client.transact_write_items(TransactItems=[action], **CAPACITY)
    return answer, table.estimator.transact_write_items([ItemChange(None, item)])


def found(table: Charged, count: int, size: int) -> list[WireItem]:
    """So many items of a partition, in the local indexes and the global one of the same key."""
    items = [
        filled({**table.key(("p", place)), "when": {"N": "1"}, "note": {"S": "n"}}, size) for place in range(count)
    ]
    for item in items:
        table.client.put_item(TableName=table.name, Item=item)
    return items


def query(table: Charged, index: str, count: int, *, fetch: bool, **request: Any) -> Asked:
    items = found(table, count, 5 * KB)
    answer = table.client.query(
        TableName=table.name, IndexName=index, KeyConditionExpression="pk = :p",
        ExpressionAttributeValues={":p": {"S": "p"}}, **request, **CAPACITY,
    )  # fmt: skip
    return answer, table.estimator.query(items, index=index, fetch=fetch)


def scan(table: Charged, index: str, size: int) -> Asked:
    items = [filled({**table.key(("p", 0)), "owner": {"S": "o"}, "when": {"N": "1"}}, size)]
    table.client.put_item(TableName=table.name, Item=items[0])
    answer = table.client.scan(TableName=table.name, IndexName=index, **CAPACITY)
    return answer, table.estimator.scan(items, index=index)


def empty_query(table: Charged) -> Asked:
    answer = table.client.query(
        TableName=table.name, KeyConditionExpression="pk = :p",
        ExpressionAttributeValues={":p": {"S": "nothing"}}, **CAPACITY,
    )  # fmt: skip
    return answer, table.estimator.query([])


def missing_get(table: Charged) -> Asked:
    request = {table.name: {"Keys": [table.key(("nothing", 0))]}}
    answer = table.client.batch_get_item(RequestItems=request, **CAPACITY)
    return answer, table.estimator.batch_get_item([None])


def missing_delete(table: Charged) -> Asked:
    request = {table.name: [{"DeleteRequest": {"Key": table.key(("nothing", 0))}}]}
    answer = table.client.batch_write_item(RequestItems=request, **CAPACITY)
    return answer, table.estimator.batch_write_item([ItemChange(None, None)])


def halves(table: Charged) -> Asked:
    key = table.key(("p", 0))
    return put(table, {**key, "when": {"N": "1"}}, {**key, "owner": {"S": "o"}})


ASKED: dict[str, Callable[[Charged], Asked]] = {
    charged.EMPTY_QUERY: empty_query,
    charged.MISSING_GET: missing_get,
    charged.MISSING_DELETE: missing_delete,
    charged.TRANSACTION: transaction,
    charged.INDEX_SCAN: lambda table: scan(table, "keys", 5 * KB),
    charged.LOCAL_SCAN: lambda table: scan(table, "local.keys", KB),
    charged.LOCAL_PROJECTION: lambda table: query(table, "local.include", 1, fetch=False, ProjectionExpression="note"),
    charged.LOCAL_FETCH: lambda table: query(table, "local.include", 1, fetch=True, ProjectionExpression="fill"),
    charged.LOCAL_FETCH_ALL: lambda table: query(table, "local.include", 3, fetch=True, Select="ALL_ATTRIBUTES"),
    charged.LOCAL_SIZE: lambda table: put(table, filled({**table.key(("p", 0)), "owner": {"S": "o"}}, KB)),
    charged.STRADDLING: lambda table: put_number(table, "0.015", KB),
    charged.LONGEST: lambda table: put_number(table, "-1.2345678901234567890123456789012345678", KB + 1),
    charged.HALVES: halves,
}


def shown(said: TableUnits) -> str:
    return f"{said.table:g} + {said.total - said.table:g}"


@pytest.mark.parametrize("what", PARTINGS)
def test_partings(table: Charged, engine_name: engines.EngineName, what: str) -> None:
    answer, estimate = ASKED[what](table)
    consumed = answer["ConsumedCapacity"]
    said = units(consumed[0] if isinstance(consumed, list) else consumed)
    assert (shown(estimate), shown(said)) == (PARTINGS[what].rules, getattr(PARTINGS[what], engine_name))


def test_the_page_has_the_partings() -> None:
    lines = [line.strip("|").split("|") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = {cells[0].strip(): tuple(cell.strip() for cell in cells[1:]) for cells in lines}
    assert {what: rows.get(what) for what in PARTINGS} == PARTINGS
