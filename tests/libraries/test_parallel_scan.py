"""aws-dynamodb-parallel-scan: segments, read by threads of one client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installed import Setting

if TYPE_CHECKING:
    import boto3

parallel_scan = pytest.importorskip("aws_dynamodb_parallel_scan")

KEYS = [(day, f"A{number:02}") for day in ("2014-07-09", "2014-07-10") for number in range(30)]


def test_every_item_once(setting: Setting, boto3_session: boto3.Session) -> None:
    table = setting.make_table()
    client: Any = boto3_session.client("dynamodb", endpoint_url=setting.url)
    with setting.install(client, table.name):
        for day, number in KEYS:
            client.put_item(TableName=table.name, Item={"pk": {"S": day}, "sk": {"S": number}})
        setting.assert_stored(table, {"2014-07-09": 30, "2014-07-10": 30})
        for options in {}, {"TotalSegments": 4}, {"TotalSegments": 4, "Limit": 3}:
            pages = list(parallel_scan.get_paginator(client).paginate(TableName=table.name, **options))
            found = [(item["pk"]["S"], item["sk"]["S"]) for page in pages for item in page["Items"]]
            assert sorted(found) == KEYS
            assert sum(page["Count"] for page in pages) == 60
    client.close()
