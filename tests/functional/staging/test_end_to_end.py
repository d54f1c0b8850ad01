"""stage_items, then import_items into moto: each item comes back through ShardedTable as it was, whatever it holds."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import (
    CalculatedSuffix,
    RandomSuffix,
    RangeSuffix,
    ShardedTable,
    StageReport,
    StagingError,
    Strategy,
    Unsharded,
    import_items,
    open_source,
    stage_items,
)
from shardkit.core.hashing import unwrapped
from shardkit.staging.stage import StagePlan
from tests.support.stage_objects import DEFINITION, TO, orders_table
from tests.support.staged import moto_imports_end

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

Items = list[dict[str, Any]]

TEXTS = [
    *("a\nb", 'q"uote', "back\\slash", "end\\", "\\n", "\u2028x", "\x00nul", "\t", "\x7f", "\ufeff", "'"),
    *("😀", "é", "e\u0301", "{brace}", "}{", "[x]", ",", "a.1"),
]
NUMBERS = [
    Decimal(text)
    for text in ("1", "1.0", "1.00", "1E2", "100", "-0", "0", "0.1", "-5", "1E-130", "9.99E125", "1234567890" * 3)
]


@pytest.fixture(autouse=True)
def json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let moto read JSON with its escapes, which its own parser does not know."""
    lines = staticmethod(lambda original: map(json.loads, original.split("\n")[:-1]))
    monkeypatch.setattr("py_partiql_parser.JsonParser.parse", lines)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and objects of a few dozen items."""
    monkeypatch.setattr("shardkit.staging.staging.StagePlan", partial(StagePlan, run_bytes=3000, object_bytes=4000))


def through(
    items: Items,
    resource: DynamoDBServiceResource,
    s3: Any,
    strategy: Strategy,
    definition: Any = DEFINITION,
    *,
    compression: Literal["gzip", "none"] = "gzip",
    **options: Any,
) -> tuple[StageReport, ShardedTable]:
    """Stage items for a new table, and import them; return the table."""
    staged = stage_items(
        items, TO, table=orders_table(resource, strategy, definition, **options), s3=s3, compression=compression
    )
    report = import_items(TO, table="Orders", client=resource.meta.client, s3=s3, sleep=moto_imports_end)
    assert (report.complete, report.imported) == (True, staged.items)
    return staged, ShardedTable(resource.Table("Orders"), strategy, **options)


def typed(partition: str, sort: str) -> dict[str, Any]:
    letters = zip(DEFINITION["AttributeDefinitions"], (partition, sort), strict=True)
    return {**DEFINITION, "AttributeDefinitions": [{**one, "AttributeType": letter} for one, letter in letters]}


def plain(item: dict[str, Any]) -> dict[str, Any]:
    return {name: unwrapped(value) for name, value in item.items()}


def by_key(items: Items) -> dict[tuple[Any, Any], dict[str, Any]]:
    """The last item of each primary key."""
    return {(item["Date"], item["OrderId"]): item for item in map(plain, items)}


def assert_stored(orders: ShardedTable, items: Items) -> None:
    found = list(orders.scan_items())
    assert by_key(found) == by_key(items)
    assert len(found) == len(by_key(items))


@pytest.mark.parametrize(
    ("strategy", "compression"),
    [
        (CalculatedSuffix("OrderId", shards=3), "gzip"),
        (RandomSuffix(5), "none"),
        (RangeSuffix("OrderId", ["a", "é"]), "gzip"),
        (Unsharded(), "none"),
    ],
    ids=repr,
)
def test_text(strategy: Strategy, compression: Any, resource: DynamoDBServiceResource, s3: Any) -> None:
    """With what JSON escapes, in keys and values, among many objects."""
    items = [
        {
            "Date": TEXTS[n // len(TEXTS)],
            "OrderId": text,
            text: [{"S": text}, {text: {"N": None}}, Decimal("1.50"), True, ""],
            "set": {text, f"{text}!"},
            "raw": f"{n}{text}".encode(),
        }
        for n, text in enumerate(TEXTS * 5)
    ]
    staged, orders = through(items, resource, s3, strategy, compression=compression)
    assert staged.objects > 3
    assert_stored(orders, items)


@pytest.mark.parametrize("strategy", [CalculatedSuffix("OrderId", shards=3), RandomSuffix(5)], ids=repr)
def test_binary_keys(strategy: Strategy, resource: DynamoDBServiceResource, s3: Any) -> None:
    keys = [bytes([0, n, 255 - n]) for n in range(10)]
    items = [{"Date": one, "OrderId": other, "n": n} for n, one in enumerate(keys) for other in (b"\x00", one)]
    _, orders = through(items, resource, s3, strategy, typed("B", "B"))
    assert_stored(orders, items)


@pytest.mark.parametrize("strategy", [CalculatedSuffix("OrderId", shards=3), RandomSuffix(5)], ids=repr)
def test_the_last_of_equal_numbers_wins(strategy: Strategy, resource: DynamoDBServiceResource, s3: Any) -> None:
    """1, 1.0 and 1.00 are one sort key, in whatever run they are."""
    rng = Random(7)
    items: Items = [{"Date": rng.choice("ab"), "OrderId": rng.choice(NUMBERS), "n": n} for n in range(300)]
    staged, orders = through(items, resource, s3, strategy, typed("S", "N"))
    assert staged.superseded == 300 - len(by_key(items))
    assert_stored(orders, items)


def test_a_sharded_index(resource: DynamoDBServiceResource, s3: Any) -> None:
    """It is made with the table, and answers queries; items without its attribute are not in it."""
    index = {
        "IndexName": "by-status",
        "KeySchema": [{"AttributeName": "sharded", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    definition = {
        **DEFINITION,
        "AttributeDefinitions": [
            *DEFINITION["AttributeDefinitions"],
            {"AttributeName": "sharded", "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexes": [index],
    }
    statuses = [{"Status": "open"}, {"Status": "shut"}, {}]
    items = [{"Date": f"d{n % 7}", "OrderId": f"{n:03}", **statuses[n % 3]} for n in range(99)]
    by_status = CalculatedSuffix("OrderId", shards=4, source="Status")
    _, orders = through(
        items, resource, s3, CalculatedSuffix("OrderId", shards=3), definition, indexes={"by-status": by_status}
    )
    assert_stored(orders, items)
    found = orders.query_items(IndexName="by-status", KeyConditionExpression=Key("Status").eq("open"))
    assert by_key(list(found)) == by_key([item for item in items if item.get("Status") == "open"])


def test_a_stage_for_another_prefix_makes_no_copies(resource: DynamoDBServiceResource, s3: Any, tmp_path: Any) -> None:
    """The draws of random suffixes depend on the source and the table alone: both stages have the same objects."""
    path = tmp_path / "orders.jsonl"
    path.write_text("".join(f'{{"Date": "d{n % 7}", "OrderId": "{n:03}"}}\n' for n in range(200)), encoding="utf-8")
    orders = orders_table(resource, RandomSuffix(10))
    bodies = []
    for to in (TO, f"{TO}-again"):
        source = open_source(str(path), table=orders)
        stage_items(source, to, table=orders, s3=s3, compression="none")
        prefix = f"{to.removeprefix('s3://bucket/')}/data/"
        keys = [one["Key"] for one in s3.list_objects_v2(Bucket="bucket", Prefix=prefix)["Contents"]]
        bodies.append([s3.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys])
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) > 1


def test_what_was_changed_in_between_is_not_imported(resource: DynamoDBServiceResource, s3: Any) -> None:
    items = [{"Date": f"d{n % 7}", "OrderId": f"{n:03}"} for n in range(200)]
    stage_items(items, TO, table=orders_table(resource, RandomSuffix(10)), s3=s3)
    key = s3.list_objects_v2(Bucket="bucket", Prefix="orders/data/")["Contents"][0]["Key"]
    s3.put_object(Bucket="bucket", Key=key, Body=b"{}")
    with pytest.raises(StagingError, match=f"{key} has 2 bytes"):
        import_items(TO, table="Orders", client=resource.meta.client, s3=s3)
    with pytest.raises(resource.meta.client.exceptions.ResourceNotFoundException):
        resource.meta.client.describe_table(TableName="Orders")
