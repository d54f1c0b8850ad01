"""Numbers that a service prints with more digits than boto3 takes: queries that do not show them work all the same."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import boto3
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ShardedTable
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource

__all__ = ["READS", "check_long_numbers"]

NUMBERS = ("-9.99E125", "-1E100", "-1E-130", "0", "1E-130", "7", "1E100", "1.23E101", "9.99E125")
"""In their order."""
_DAY = Key("pk").eq("k")
READS: dict[str, dict[str, Any]] = {
    "table": {"KeyConditionExpression": _DAY},
    "range": {"KeyConditionExpression": _DAY & Key("sk").between(Decimal("-9.99E125"), Decimal("9.99E125"))},
    "local index": {"IndexName": "by-a", "KeyConditionExpression": _DAY},
    "another partition key": {"IndexName": "city", "KeyConditionExpression": Key("city").eq("Bern")},
}


def check_long_numbers(resource: DynamoDBServiceResource) -> None:
    """Count and project items whose sort keys are such numbers, on the table and its indexes, in pages and whole."""
    orders = _filled(resource)
    for query in READS.values():
        for forward in (True, False):
            asked = {**query, "ScanIndexForward": forward}
            places = list(range(len(NUMBERS)))[:: 1 if forward else -1]
            projected = {**asked, "ProjectionExpression": "#p", "ExpressionAttributeNames": {"#p": "place"}}
            with orders.query_items(**projected) as stream:
                assert [item["place"] for item in stream] == places
            for limit in (1, 4, None):
                shown = [item for page in _pages(orders, projected, limit) for item in page["Items"]]
                assert shown == [{"place": place} for place in places]
                counts = [page["Count"] for page in _pages(orders, {**asked, "Select": "COUNT"}, limit)]
                assert sum(counts) == len(NUMBERS)
                assert max(counts) <= (limit or len(NUMBERS))


def _filled(resource: DynamoDBServiceResource) -> ShardedTable:
    table = make_table(
        resource,
        sort_key=("sk", "N"),
        local_indexes=[LocalIndex("by-a", ("a", "N"))],
        global_indexes=[GlobalIndex("city", ("city", "S"), ("a", "N"))],
    )
    orders = ShardedTable(table, CalculatedSuffix("sk", shards=3))
    with closing(boto3.client("dynamodb", endpoint_url=table.meta.client.meta.endpoint_url)) as client:
        for place, text in enumerate(NUMBERS):
            number = Decimal(text)
            key: Any = orders.physical_key({"pk": "k", "sk": number})["pk"]
            digits = {"N": f"{number:f}"}  # as services print it: moto gives back what it is given
            client.put_item(
                TableName=table.name,
                Item={"pk": {"S": key}, "sk": digits, "a": digits, "city": {"S": "Bern"}, "place": {"N": str(place)}},
            )
    return orders


def _pages(orders: ShardedTable, query: dict[str, Any], limit: int | None) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = []
    more: dict[str, Any] = {} if limit is None else {"Limit": limit}
    while not pages or "LastEvaluatedKey" in pages[-1]:
        start = {"ExclusiveStartKey": pages[-1]["LastEvaluatedKey"]} if pages else {}
        pages.append(orders.query(**query, **more, **start))
    return pages
