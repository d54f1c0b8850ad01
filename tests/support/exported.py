"""A meter that has seen some of everything: what the tests of the exporters export."""

from __future__ import annotations

from typing import Any

from shardkit.capacity import CapacityMeter, Scope
from shardkit.capacity.exporters.measurements import HOT_KEYS, Measured, Measurements, measure
from shardkit.runtime.hooks import show_lookups
from tests.support.metered import ARN, FakeClient, consumed, item, key, put

HOT_PARTITION = {
    "Error": {"Code": "ProvisionedThroughputExceededException"},
    "ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": ARN}],
}

# Of Busy.calls: metric, labels, number; of those that are not 0.
ROWS = {
    ("consumed_read_capacity_units", ("T", "", "GetItem"), 0.5),
    ("consumed_read_capacity_units", ("T", "by-day", "Query"), 2.5),
    ("consumed_write_capacity_units", ("T", "", "PutItem"), 3.0),
    ("consumed_write_capacity_units", ("T", "by-day", "PutItem"), 2.0),
    ("consumed_write_capacity_units", ("T", "", "BatchWriteItem"), 2.0),
    ("consumed_write_capacity_units", ("U", "", "BatchWriteItem"), 1.0),
    ("estimated_read_capacity_units", ("U", "", "GetItem"), 0.5),
    ("vector_search_request_bytes", ("T", "near", "SearchVectors"), 4096.0),
    ("vector_write_request_bytes", ("T", "near", "PutItem"), 1536.0),
    ("requests", ("T", "SearchVectors"), 1),
    ("requests", ("T", "PutItem"), 1),
    ("requests", ("T", "GetItem"), 1),
    ("requests", ("T", "Query"), 1),
    ("requests", ("U", "GetItem"), 1),
    ("requests", ("T", "BatchWriteItem"), 1),
    ("requests", ("U", "BatchWriteItem"), 1),
    ("throttled_attempts", ("T", "PutItem"), 1),
    ("throttles", ("TableWriteKeyRangeThroughputExceeded",), 1),
    ("retries", ("TableWriteKeyRangeThroughputExceeded",), 1),
    ("retries", ("InternalServerError",), 1),
    ("cache_fresh_hits", ("T",), 2),
    ("cache_stale_hits", ("T",), 1),
    ("cache_misses", ("T",), 1),
    ("saved_read_capacity_units", ("T",), 3.5),
}


LOOKUPS = [({"S": "a"}, "miss", 1.0), ({"S": "a"}, "fresh", 1.0), ({"N": "1.0"}, "stale", 0.5), (None, "fresh", 2.0)]


class Busy:
    def __init__(self) -> None:
        self.client = FakeClient()
        self.meter = CapacityMeter()
        self.meter.attach(self.client, key_schema={"T": "pk", "U": "pk"})
        self.scope: Scope = self.meter.scope("busy")

    def calls(self) -> None:
        with self.scope:
            self.client.call(
                "PutItem",
                _answer(5.0, Table=3.0, GlobalSecondaryIndexes={"by-day": 2.0}, vectors={"near": 1536.0}),
                attempts=[HOT_PARTITION, {"Error": {"Code": "InternalServerError"}}],
                TableName="T",
                Item=item("a"),
            )
            self.client.call("GetItem", _answer(0.5), TableName="T", Key=key("a"))
            self.client.call(
                "Query",
                _answer(2.5, Table=0.0, GlobalSecondaryIndexes={"by-day": 2.5}),
                TableName="T",
                IndexName="by-day",
                KeyConditionExpression="pk = :k",
                ExpressionAttributeValues={":k": {"S": "b"}},
            )
            self.client.call(
                "SearchVectors",
                {"ConsumedCapacity": {"VectorSearchRequestBytes": 4096.0}},
                TableName=ARN,
                IndexName="near",
                SearchVector=[{"N": "1"}],
                TopK=3,
            )
            self.client.call("GetItem", {}, TableName="U", Key={"pk": {"B": b"\x00\xff"}})
            self.client.call(
                "BatchWriteItem",
                {"ConsumedCapacity": [consumed(2.0), consumed(1.0, "U")]},
                RequestItems={"T": [put("a"), put("c")], "U": [put("d")]},
            )
            show_lookups(self.client, "T", LOOKUPS)


def _answer(units: float, vectors: dict[str, float] | None = None, **parts: Any) -> dict[str, Any]:
    shape: dict[str, Any] = {
        name: {"CapacityUnits": part}
        if isinstance(part, float)
        else {index: {"CapacityUnits": number} for index, number in part.items()}
        for name, part in parts.items()
    }
    if vectors:
        shape["VectorIndexes"] = {index: {"VectorWriteRequestBytes": number} for index, number in vectors.items()}
    return {"ConsumedCapacity": consumed(units, **shape)}


def rows(measurements: Measurements) -> set[tuple[str, tuple[str, ...], float]]:
    return {
        (metric.name, place, number)
        for metric, numbers in measurements.items()
        for place, number in numbers.items()
        if number
    }


def hot_rows(totals: Measured, top: int) -> set[tuple[str, tuple[str, ...], float]]:
    names = {metric.name for metric in HOT_KEYS}
    return {row for row in rows(measure(totals, top=top)) if row[0] in names}
