"""Single items, Queries and transactions of a sharded table."""

from __future__ import annotations

import logging
import uuid
from itertools import chain
from typing import Any

from boto3.dynamodb.conditions import Attr, Key

import shardkit
from shardkit import ShardedCounter, ShardedTable, bulk_load
from tests.aws.check import NotVerified, Refuted, check, holds
from tests.aws.orders import BY_ID, DAY, numbers, order, pages
from tests.aws.run import Run, index

KEY = {"day": "2014-07-09", "id": "o0000007"}


@check(
    "A suffix is added to the key, and the table's calls do not show it", "how-it-works", write_units=40, read_units=80
)
def suffixes(run: Run) -> str:
    table = run.table()
    orders = ShardedTable(table, BY_ID)
    for number in range(30):
        orders.put_item(Item=order(number))
    stored = {str(one["day"]) for one in table.scan(ConsistentRead=True)["Items"]}
    holds(stored <= set(BY_ID.physical_keys("2014-07-09")) and len(stored) > 3, sorted(stored))
    found = orders.get_item(Key=KEY, ConsistentRead=True).get("Item")
    holds(found == order(7), found)
    orders.update_item(Key=KEY, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": 1})
    old = orders.delete_item(Key=KEY, ReturnValues="ALL_OLD").get("Attributes")
    holds(old == order(7) | {"n": 8}, old)
    left = numbers(orders.query(KeyConditionExpression=DAY, ConsistentRead=True)["Items"])
    holds(left == [number for number in range(30) if number != 7], left)
    return f"30 items under {len(stored)} stored keys"


@check(
    "A merged Query returns a plain table's items in order, in pages, forwards and backwards", "reference/reads",
    write_units=320, read_units=500,
)  # fmt: skip
def merged_query(run: Run) -> str:
    plain, table = run.table(), run.table()
    orders = ShardedTable(table, BY_ID)
    bulk_load(plain, map(order, range(150)))
    bulk_load(orders, map(order, range(150)))
    condition = DAY & Key("id").gte("o0000010")
    for forward in (True, False):
        query = {"KeyConditionExpression": condition, "ScanIndexForward": forward, "ConsistentRead": True}
        of_plain, of_orders = pages(plain, **query, Limit=40), pages(orders, **query, Limit=40)
        holds(max(map(len, of_orders)) <= 40, [len(page) for page in of_orders])
        holds([*chain(*of_plain)] == [*chain(*of_orders)], of_orders)
    return "140 items in pages of 40, both ways"


@check(
    "transport='direct' speaks to the service: TLS, signatures, checksums, errors", "direct",
    write_units=80, read_units=80,
)  # fmt: skip
def direct_transport(run: Run) -> str:
    try:
        orders = ShardedTable(run.table(), BY_ID, transport="direct")
    except shardkit.ConfigurationError as error:
        raise NotVerified(str(error)) from None
    heard = _Heard()
    logger = logging.getLogger("shardkit")
    logger.addHandler(heard)
    try:
        report = bulk_load(orders, map(order, range(60)))
        holds(report.written == 60, report)
        for _ in range(2):  # the first one goes through the client
            found = numbers(orders.query(KeyConditionExpression=DAY, ConsistentRead=True)["Items"])
            holds(found == list(range(60)), found)
            try:
                orders.put_item(Item=order(1), ConditionExpression=Attr("day").not_exists())
            except orders.meta.client.exceptions.ConditionalCheckFailedException:
                continue
            raise Refuted("a condition that does not hold let a put through")
    finally:
        logger.removeHandler(heard)
    holds(not heard.lines, heard.lines)
    return "60 items loaded and read past the client"


class _Heard(logging.Handler):
    """What shardkit warns of: that requests go through the client after all."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@check(
    "A transaction is atomic over shards, is done once for one token, and says why it was cancelled", "operations",
    write_units=80, read_units=20,
)  # fmt: skip
def transactions(run: Run) -> str:
    orders = ShardedTable(run.table(), BY_ID)
    keys = [{name: order(number)[name] for name in ("day", "id")} for number in range(5)]
    change = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
    add: list[Any] = [{"Update": {"Key": key, **change}} for key in keys]
    token = str(uuid.uuid4())
    for _ in range(2):
        orders.transact_write_items(TransactItems=add, ClientRequestToken=token)
    put: Any = {"Item": order(9), "ConditionExpression": Attr("id").exists()}
    try:
        orders.transact_write_items(TransactItems=[*add, {"Put": put}])
    except orders.meta.client.exceptions.TransactionCanceledException as error:
        codes = [one.get("Code", "None") for one in error.response["CancellationReasons"]]
    else:
        raise Refuted("a condition that does not hold did not cancel the transaction")
    holds(codes == ["None"] * 5 + ["ConditionalCheckFailed"], codes)
    found = numbers(orders.query(KeyConditionExpression=DAY, ConsistentRead=True)["Items"])
    holds(found == [1] * 5, f"each was to be added once: {found}")
    return f"added once; cancelled with {codes[-1]}"


@check(
    "A transaction doubles the units of the table, and not those of indexes", "reference/sizes-and-units", write_units=8
)
def transaction_units(run: Run) -> str:
    names = ("a", "b", "c")
    table = run.table(types=dict.fromkeys(names, "S"), GlobalSecondaryIndexes=[index(f"by-{n}", n) for n in names])
    put: Any = {"TableName": table.name, "Item": {"day": "d", "id": "1", **dict.fromkeys(names, "x")}}
    answer: Any = run.resource.meta.client.transact_write_items(
        TransactItems=[{"Put": put}], ReturnConsumedCapacity="INDEXES"
    )
    if not answer.get("ConsumedCapacity"):
        raise run.lacks("it does not say what a transaction consumes")
    [used] = answer["ConsumedCapacity"]
    indexes = sum(one["CapacityUnits"] for one in used["GlobalSecondaryIndexes"].values())
    seen = f"{used['Table']['CapacityUnits']:g} + {indexes:g} for three entries"
    holds(seen.startswith("2 + 3 "), seen)
    return seen


@check(
    "A counter's value is the sum of its shards; add(token=) counts once", "counters", write_units=120, read_units=30
)
def counter(run: Run) -> str:
    views = ShardedCounter(run.table(), {"day": "home", "id": "views"}, "views", shards=5)
    for _ in range(20):
        views.add()
    for _ in range(3):
        views.add(token="once")
    total = views.value(ConsistentRead=True).total
    holds(total == 21, total)
    return "20 adds, and one of three with one token"
