"""Sharded indexes: a key of several attributes, a backfill, and a throttled index."""

from __future__ import annotations

import threading
from typing import Any

from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ShardedTable, Unsharded, backfill_index, bulk_load
from shardkit.dynamodb.service_errors import throttle_reasons, throttled_indexes
from tests.aws.check import check, holds
from tests.aws.checks.throttles import first_throttle
from tests.aws.orders import numbers, order
from tests.aws.run import Run, index

OPEN = Key("status").eq("open")


@check(
    "An index whose partition key has two attributes (attribute=) is spread, and read as one", "sharded-indexes",
    write_units=120, read_units=60,
)  # fmt: skip
def sharded_index(run: Run) -> str:
    by_status = index("by-status", "status shard", "id")
    table = run.table(types={"status": "S", "shard": "N"}, GlobalSecondaryIndexes=[by_status])
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": CalculatedSuffix("id", 4, attribute="shard")})
    for number in range(40):
        orders.put_item(Item=order(number, status="open"))
    for forward in (True, False):
        expected = sorted(range(40), reverse=not forward)
        found = _all_of_index(run, orders, 40, ScanIndexForward=forward)
        holds(found == expected, found)
    shards = {str(one["shard"]) for one in table.scan(ConsistentRead=True)["Items"]}
    holds(shards == {"1", "2", "3", "4"}, shards)
    return "40 items over 4 shards, both ways"


def _all_of_index(run: Run, orders: ShardedTable, count: int, **query: Any) -> list[int]:
    """What the index has as soon as it has so many; it is eventually consistent."""
    found: list[int] = []

    def full() -> bool:
        found[:] = numbers(orders.query_items(IndexName="by-status", KeyConditionExpression=OPEN, **query))
        return len(found) >= count

    run.until(full, 60)
    return found


@check(
    "backfill_index fills a new index while a writer writes, and undoes none of its writes", "sharded-indexes",
    minutes=8, write_units=4_000, read_units=1_500,
)  # fmt: skip
def backfill(run: Run) -> str:
    count = 600 if run.place.on_aws else 120
    table = run.table()
    bulk_load(table, (order(number, status="open") for number in range(count)))
    table.update(
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("day", "id", "kept")],
        GlobalSecondaryIndexUpdates=[{"Create": index("by-status", "kept", "id")}],
    )
    run.active(table)
    by_status = CalculatedSuffix("id", 4, source="status")
    orders = ShardedTable(table, Unsharded(), indexes={"by-status": by_status})
    closed = set(range(0, count, 5))
    writer = threading.Thread(target=_close, args=(orders, closed))
    writer.start()
    try:
        report = backfill_index(orders, "by-status", write_units=500 if run.place.on_aws else None, read_units=None)
    finally:
        writer.join()
    holds(report.complete, report)
    expected = [number for number in range(count) if number not in closed]
    found = _all_of_index(run, orders, len(expected))
    holds(found == expected, f"{len(found)} of {len(expected)} open items are in the index")
    read = table.scan(ConsistentRead=True, FilterExpression=Key("status").eq("closed"), Select="COUNT")["Count"]
    holds(read == len(closed), f"{read} of {len(closed)} writes of the writer are kept")
    return f"{count} items beside {len(closed)} updates: {report.overtaken} were overtaken by the writer"


def _close(orders: ShardedTable, closed: set[int]) -> None:
    for number in closed:
        orders.update_item(
            Key={name: order(number)[name] for name in ("day", "id")},
            UpdateExpression="SET #s = :s", ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": "closed"},
        )  # fmt: skip


@check(
    "An index with too little throughput throttles writes to its table; the reason names the index", "troubleshooting",
    minutes=2, write_units=3_000, write_hours=201, read_hours=2,
)  # fmt: skip
def index_back_pressure(run: Run) -> str:
    few: Any = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
    table = run.table(
        run.once,
        types={"g": "S"},
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 200},
        GlobalSecondaryIndexes=[index("by-g", "g", ProvisionedThroughput=few)],
    )
    error = first_throttle(
        run, lambda number: table.put_item(Item={"day": str(number), "id": "1", "g": "g", "pad": "x" * 3000})
    )
    reasons, indexes = throttle_reasons(error), throttled_indexes(error)
    holds(reasons and all(one.startswith("IndexWrite") for one in reasons), sorted(reasons))
    holds(indexes == {"by-g"}, sorted(indexes))
    return ", ".join(sorted(reasons))
