"""``shardkit load`` on real engines: what it says beforehand is what it takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from shardkit import CalculatedSuffix, ShardedTable, bulk_load
from shardkit.bulk.sources.opening import open_source
from shardkit.cli import build_app
from tests.support.engines import EngineName
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource


def test_a_dry_run_says_the_units_that_are_then_consumed(
    engine_name: EngineName,
    engine_resource: DynamoDBServiceResource,
    engine_endpoint: Callable[[EngineName], str],
    tmp_path: Path,
) -> None:
    """Of the table and of every index: sparse ones, and every projection."""
    table = make_table(
        engine_resource,
        ("Date", "S"),
        ("OrderId", "N"),
        local_indexes=[LocalIndex("by-total", ("Total", "N"))],
        global_indexes=[
            GlobalIndex("by-customer", ("Customer", "S"), projection="KEYS_ONLY"),
            GlobalIndex("by-note", ("Customer", "S"), ("Date", "S"), projection=("Note",)),
            GlobalIndex("all", ("OrderId", "N")),
        ],
    )
    rng = Random(1)
    orders = [
        {
            "Date": f"2014-07-{1 + number % 9}",
            "OrderId": number,
            **({"Customer": f"C{number % 7}"} if number % 3 else {}),
            **({"Total": number} if number % 2 else {}),
            "Note": "x" * rng.randrange(2500),
            "Text": "y" * rng.randrange(1500),
        }
        for number in range(500)
    ]
    path = tmp_path / "orders.jsonl"
    path.write_text("\n".join(map(json.dumps, orders)), "utf-8")
    arguments = ["load", str(path), "--table", table.name, "--shards", "5", "--by", "OrderId", "--dry-run", "--json"]
    result = CliRunner().invoke(build_app(), [*arguments, "--endpoint-url", engine_endpoint(engine_name)])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)

    consumed: Counter[str] = Counter()

    def count(parsed: dict[str, Any], **_: Any) -> None:
        for one in parsed["ConsumedCapacity"]:
            consumed["the table"] += one["Table"]["CapacityUnits"]
            for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes"):
                for name, index in one.get(kind, {}).items():
                    consumed[name] += index["CapacityUnits"]

    table.meta.client.meta.events.register("after-call.dynamodb.BatchWriteItem", count)
    sharded = ShardedTable(table, CalculatedSuffix("OrderId", shards=5))
    report = bulk_load(sharded, open_source(str(path), table=sharded), workers=1)
    if engine_name == "dynamodb_local":
        # It counts some 100 bytes more for an entry of a local index.
        assert consumed.pop("by-total") >= said["local_index_write_units"].pop("by-total")
    else:
        assert said["write_units"] == report.write_units
    assert {
        "the table": said["table_write_units"],
        **said["local_index_write_units"],
        **said["global_index_write_units"],
    } == consumed
    assert [shard["items"] for shard in said["per_shard"]] == [tally.items for tally in report.per_shard.values()]
