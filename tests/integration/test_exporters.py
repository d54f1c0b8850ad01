"""What is exported of calls to real engines, which say what each index consumed."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from shardkit import CalculatedSuffix, CapacityMeter, ShardedTable, bulk_load
from shardkit.capacity.exporters.emf import EmbeddedMetrics
from shardkit.capacity.exporters.prometheus import CapacityCollector
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

UNITS = {
    "consumed_read": "read_units",
    "consumed_write": "write_units",
    "estimated_read": "estimated_read_units",
    "estimated_write": "estimated_write_units",
}


def work(orders: ShardedTable) -> None:
    items = [{"Date": f"2014-07-{n % 5:02}", "OrderId": f"A{n}", "Status": "new" * (n % 2 + 1)} for n in range(60)]
    bulk_load(orders, items)
    for date in ("2014-07-01", "2014-07-02"):
        orders.query(KeyConditionExpression=Key("Date").eq(date))
        orders.query(IndexName="by-status", KeyConditionExpression=Key("Date").eq(date) & Key("Status").eq("new"))
    orders.scan(IndexName="by-status")
    orders.update_item(
        Key={"Date": "2014-07-00", "OrderId": "A0"},
        UpdateExpression="SET #s = :s",
        ExpressionAttributeNames={"#s": "Status"},
        ExpressionAttributeValues={":s": "sent"},
    )
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        orders.put_item(Item=items[1], ConditionExpression=Attr("Date").not_exists())


def scraped(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    """Units by metric, table and index: over HTTP, as Prometheus gets them."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as response:
            text = response.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    sums: dict[tuple[str, str, str], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("shardkit_dynamodb_").removesuffix("_capacity_units_total")
            if name in UNITS:
                assert sample.value >= 0
                sums[name, sample.labels["table"], sample.labels["index"]] += sample.value
    return sums


def test_what_engines_report_sums_up(engine_resource: DynamoDBServiceResource) -> None:
    index = GlobalIndex("by-status", ("Date", "S"), ("Status", "S"))
    table = make_table(engine_resource, ("Date", "S"), ("OrderId", "S"), global_indexes=[index])
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=3))
    meter, registry, stream = CapacityMeter(), CollectorRegistry(), io.StringIO()
    registry.register(CapacityCollector(meter, top=2))
    metrics = EmbeddedMetrics(meter, stream=stream)
    with meter.attach(orders):
        for _ in range(2):
            with metrics:
                work(orders)
    found = scraped(registry)
    for name, figure in UNITS.items():
        total = getattr(meter, figure)
        assert sum(units for (its, *_), units in found.items() if its == name) == total
        of_index = getattr(meter.by_index[table.name, "by-status"], figure)
        assert found[name, table.name, "by-status"] == of_index
        assert found[name, table.name, ""] == total - of_index
    assert all(getattr(meter, figure) for figure in UNITS.values() if figure != "estimated_read_units")
    assert meter.by_index[table.name, "by-status"].write_units
    written: dict[str, float] = defaultdict(float)
    for line in stream.getvalue().splitlines():
        document = json.loads(line)
        (directive,) = document["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]:
            written[metric["Name"]] += document[metric["Name"]]
    for name, figure in UNITS.items():
        assert written["".join(map(str.capitalize, name.split("_"))) + "CapacityUnits"] == getattr(meter, figure)
    assert written["Requests"] == meter.requests
