"""The policies of docs/reference/iam.md, what they allow, and the calls that each is for.

The evaluator knows what these policies use: actions, resources, and `ForAllValues` over `dynamodb:LeadingKeys`.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
from boto3.dynamodb.conditions import Attr, Key

from shardkit import (
    CalculatedSuffix,
    CapacityMeter,
    RandomSuffix,
    RangeSuffix,
    ShardedCounter,
    ShardedTable,
    Strategy,
    bulk_load,
)
from shardkit.parts import PartConfig, write_part
from tests.support.recorder import answering
from tests.support.wire import Body

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "iam.md").read_text(encoding="utf-8")
POLICIES = {
    policy["Statement"][0]["Sid"]: policy
    for policy in (
        json.loads(block["text"])
        for block in re.finditer(r"^```json\n(?P<text>.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    )
}
TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders"

USER = "user-1"
ORDER = {"User": USER, "OrderId": "A1"}
STRATEGIES: list[Strategy] = [
    CalculatedSuffix("OrderId", shards=3, separator="#"),
    RandomSuffix(3, separator="#"),
    RandomSuffix(3, separator="#", locate=True),
    CalculatedSuffix("OrderId", shards={"another": 5}, separator="#"),
    RangeSuffix("OrderId", ["A1", "B"], separator="#"),
]


@dataclass(frozen=True)
class Access:
    """What IAM is asked for a request: an action on a resource, with the partition keys that the request names."""

    action: str
    resource: str = TABLE
    keys: frozenset[str] = frozenset()
    service: str = "dynamodb"


def allows(policy: Mapping[str, Any], access: Access, *, tenant: str = USER) -> bool:
    return any(_grants(statement, access, tenant) for statement in policy["Statement"])


def _grants(statement: Mapping[str, Any], access: Access, tenant: str) -> bool:
    assert statement["Effect"] == "Allow"
    conditions = statement.get("Condition", {"ForAllValues:StringLike": {}})
    [(operator, wanted)] = conditions.items()
    assert operator == "ForAllValues:StringLike"
    patterns = [
        pattern.replace("${aws:PrincipalTag/tenant}", tenant) for pattern in wanted.get("dynamodb:LeadingKeys", ["*"])
    ]
    return (
        f"{access.service}:{access.action}" in listed(statement["Action"])
        and any(like(access.resource, pattern) for pattern in listed(statement["Resource"]))
        # True also if a request names no key.
        and all(any(like(key, pattern) for pattern in patterns) for key in access.keys)
    )


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def like(value: str, pattern: str) -> bool:
    """Match as IAM's StringLike, which knows `*` and `?`, but no brackets."""
    return fnmatchcase(value, pattern.replace("[", "[[]"))


def shard_of(orders: ShardedTable) -> dict[str, Any]:
    """The keyword that a call on one item needs, where its shard is not known from its key."""
    unknown = isinstance(orders.strategy, RandomSuffix) and not orders.strategy.locate
    return {"Shard": 1} if unknown else {}


def read(orders: ShardedTable) -> None:
    condition = Key("User").eq(USER)
    orders.get_item(Key=ORDER, **shard_of(orders))
    orders.query(KeyConditionExpression=condition)
    orders.query(KeyConditionExpression=condition, IndexName="ByTotal")
    list(orders.query_items(KeyConditionExpression=condition))
    list(orders.scan_items())
    if not shard_of(orders):
        list(orders.batch_get_items([ORDER]))
    get: Any = {"Key": ORDER, **shard_of(orders)}
    orders.transact_get_items(TransactItems=[{"Get": get}])


def write(orders: ShardedTable) -> None:
    known = shard_of(orders)
    change: dict[str, Any] = {"UpdateExpression": "SET Paid = :yes", "ExpressionAttributeValues": {":yes": True}}
    check: Any = {"Key": ORDER, "ConditionExpression": Attr("Nothing").not_exists(), **known}
    orders.put_item(Item=ORDER, **known)
    orders.update_item(Key=ORDER, **change, **known)
    orders.transact_write_items(TransactItems=[{"ConditionCheck": check}])
    orders.delete_item(Key=ORDER, **known)
    with orders.batch_writer() as batch:
        batch.put_item(Item=ORDER)


def load(orders: ShardedTable) -> None:
    """One item comes back unprocessed, without a reason."""
    left = [True]

    def unprocessed(body: Body) -> dict[str, Any] | None:
        return {"UnprocessedItems": body["RequestItems"]} if left and left.pop() else None

    with answering(orders.meta.client, "BatchWriteItem", unprocessed):
        bulk_load(orders, [ORDER, {**ORDER, "OrderId": "A2"}])
    config = PartConfig(table=orders.name, strategy=orders.strategy, connect=lambda: orders.meta.client).prepared()
    assert write_part([pa.RecordBatch.from_pylist([ORDER])], config, part=0).report.written == 1


def count(orders: ShardedTable) -> None:
    clicks = ShardedCounter(orders.table, ORDER, "Clicks", shards=3)
    clicks.add()
    clicks.add(token=uuid.uuid4().hex)  # of another call with other parameters, the service refuses a token
    clicks.reset()
    clicks.value()


def meter(orders: ShardedTable) -> None:
    with CapacityMeter().attach(orders.table):
        pass


CALLS = {"Reader": read, "Writer": write, "Loader": load, "Counter": count, "Meter": meter}
