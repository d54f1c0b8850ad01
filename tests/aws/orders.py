"""The items of most checks: orders of a day."""

from __future__ import annotations

from typing import Any

from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix

BY_ID = CalculatedSuffix("id", shards=10)
DAY = Key("day").eq("2014-07-09")


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"day": "2014-07-09", "id": f"o{number:07}", "n": number, **more}


def numbers(found: Any) -> list[int]:
    """Which orders were found, in the order in which they were."""
    return [int(one["n"]) for one in found]


def pages(source: Any, **query: Any) -> list[list[int]]:
    """The orders of each page of a Query, to its end."""
    found: list[list[int]] = []
    start: dict[str, Any] = {}
    while True:
        page = source.query(**query, **start)
        found.append(numbers(page["Items"]))
        if "LastEvaluatedKey" not in page:
            return found
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
