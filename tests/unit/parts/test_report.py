"""The reports of parts as JSON in a checkpoint: what is damaged is refused, or adds up."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given

from shardkit.bulk.report import BulkReport, BulkResult, ShardTally
from shardkit.bulk.sources.base import BadRecord
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.parts.report import PartReport, merge
from tests.support.damage import damaged

WHY = ShardkitError("why")
REPORT = PartReport(
    load_id="monday",
    part=0,
    parts=2,
    started=1.5,
    ended=2.5,
    host="a",
    limit=100.0,
    error=WHY,
    dead_letters="letters.jsonl",
    report=BulkReport(
        items=3,
        written=1,
        failed=2,
        requests=2,
        throttles_by_reason={"TableWriteProvisionedThroughputExceeded": 1},
        hot_keys={"k.1": 2, Decimal(5): 1, b"\x00": 1},
        write_units=2.0,
        keys_in_flight=1.5,
        per_shard={None: ShardTally(1, 1.0), 2: ShardTally(1, 1.0)},
        failures=(
            BulkResult({"Id": "a", "Lines": [{"Total": 1}]}, "0", 3, ok=False, error=WHY),
            BulkResult(BadRecord("{", WHY), "1", None, ok=False, error=WHY),
        ),
        advice=("raise the units",),
    ),
)


@given(damaged(json.loads(REPORT.to_json())))
def test_a_damaged_report_is_refused_or_adds_up(document: Any) -> None:
    try:
        report = PartReport.from_json(json.dumps(document))
    except ConfigurationError:
        return
    merged = merge([report, PartReport(load_id=report.load_id, part=7)])
    assert isinstance(merged.seconds, int | float)
    assert str(merged)
    assert str([(failure.item, failure.error) for failure in merged.failures])
    assert PartReport.from_json(report.to_json()).to_json() == report.to_json()
