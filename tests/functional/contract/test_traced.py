"""A trace has what its meter has, whatever the face."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix
from shardkit.capacity import CapacityMeter, Trace, read_traces
from tests.functional.contract.faces import Face
from tests.support.tables import make_table


def test_rows_add_up_to_what_the_meter_counted(face: Face, tmp_path: Path) -> None:
    table = make_table(face.resource, ("Date", "S"), ("OrderId", "S"))
    orders = face.sharded(table, CalculatedSuffix("OrderId", shards=3))
    trace = Trace(tmp_path, keys="plain")
    meter = CapacityMeter(trace=trace)
    with meter.attach(orders.client, key_schema={table.name: "Date"}):
        for number in range(20):
            orders.put_item(Item={"Date": f"2014-07-0{number % 2}", "OrderId": f"A{number}"})
        orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01"))
        orders.get_item(Key={"Date": "2014-07-01", "OrderId": "A1"})
    trace.flush()
    units: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    shards: set[int | None] = set()
    for row in read_traces(tmp_path):
        of = totals if row.key is None else units
        of[row.key or row.operation] += row.read_units + row.write_units  # type: ignore[assignment]
        shards.add(row.shard)
        assert row.weight == 1
    assert units == {key: usage.units_with_estimates for (_, key), usage in meter.by_key.items()}
    assert totals == {name: usage.units_with_estimates for name, usage in meter.by_operation.items()}
    assert shards == {None, 1, 2, 3}
