"""Throttles, their reasons, and what a key and a table take in a second.

On AWS, the loads send items of less than a hundred bytes, each a write unit, so that the volunteer's network is no
limit. On an engine, they send few large ones, in little time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from shardkit import BulkReport, CalculatedSuffix, ShardedTable, Strategy, Unsharded, bulk_load
from shardkit.dynamodb.service_errors import is_throttle, scope_of_reasons, throttle_reasons
from tests.aws.check import NotVerified, Refuted, check, holds
from tests.aws.orders import BY_ID, order
from tests.aws.run import Run

MOST_WRITES = 500
"""Of 3 write units: more than a table of 1 unit a second may have kept for a burst (300 seconds)."""

KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
PARTITION = 1000.0
"""Write units a second of a partition."""


def first_throttle(run: Run, write: Callable[[int], object]) -> ClientError:
    """Write until it is throttled, through a client that does not retry."""
    _throttled_here(run)
    for number in range(MOST_WRITES):
        try:
            write(number)
        except ClientError as error:
            if is_throttle(error):
                return error
            raise
    raise Refuted(f"{MOST_WRITES} writes were not throttled")


def _throttled_here(run: Run) -> None:
    if not run.throttles:
        raise NotVerified("this engine does not throttle")


@check("A throttle says its reason: the table's provisioned throughput", "troubleshooting",
       minutes=1, write_units=1_500, write_hours=1, read_hours=1)  # fmt: skip
def table_throttle(run: Run) -> str:
    few: Any = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
    table = run.table(run.once, BillingMode="PROVISIONED", ProvisionedThroughput=few)
    return _reason_of_table(run, table, "TableWriteProvisionedThroughputExceeded")


@check("A throttle says its reason: the table's maximum on demand", "troubleshooting", minutes=1, write_units=1_500)
def on_demand_maximum(run: Run) -> str:
    few: Any = {"MaxReadRequestUnits": 1, "MaxWriteRequestUnits": 1}
    table = run.table(run.once, OnDemandThroughput=few)
    return _reason_of_table(run, table, "TableWriteMaxOnDemandThroughputExceeded")


def _reason_of_table(run: Run, table: Any, reason: str) -> str:
    error = first_throttle(run, lambda number: table.put_item(Item={"day": str(number), "id": "1", "pad": "x" * 3000}))
    reasons = throttle_reasons(error)
    holds(reason in reasons, [error.response["Error"]["Code"], *sorted(reasons)])
    holds(scope_of_reasons(reasons) == "table", scope_of_reasons(reasons))
    return ", ".join(sorted(reasons))


class Load(NamedTuple):
    """The report of a load, and the write units a second of its second half."""

    report: BulkReport
    rate: float


def load(run: Run, table: Any, strategy: Strategy, seconds: float, *, ids: Iterator[int], **options: Any) -> Load:
    """Load one day's orders for some seconds."""
    _throttled_here(run)
    seconds = seconds if run.place.on_aws else 20.0
    pad = {} if run.place.on_aws else {"pad": "x" * 40_000}
    begun = run.clock()
    samples: list[tuple[float, float]] = []

    def items() -> Iterator[dict[str, Any]]:
        while run.clock() < begun + seconds:
            yield order(next(ids), **pad)

    def progress(report: BulkReport) -> None:
        if run.clock() >= begun + seconds / 2:
            samples.append((run.clock(), report.write_units))

    report = bulk_load(ShardedTable(table, strategy), items(), window=500, progress=progress, **options)
    (first, before), (last, after) = samples[0], samples[-1]
    return Load(report, (after - before) / (last - first))


@check("A hot key is throttled at 1,000 write units per second; the reason is its key range", "do-i-need-this",
       minutes=2.5, write_units=150_000)  # fmt: skip
def key_throttle(run: Run) -> str:
    # Sort keys that only grow: the service does not split them for heat.
    report, rate = load(run, run.table(run.once), Unsharded(), 120, ids=count())
    holds(KEY_RANGE in report.throttles_by_reason, report.throttles_by_reason)
    holds(report.hot_keys, "the report names no hot key")
    holds(rate <= 1.1 * PARTITION, f"{rate:,.0f} units a second")
    return f"{rate:,.0f} units a second; {report.throttles_by_reason[KEY_RANGE]} throttles for {KEY_RANGE}"


@check("The same load over 10 suffixes passes what one partition serves", "number-of-shards",
       minutes=2.5, write_units=400_000)  # fmt: skip
def spread_key(run: Run) -> str:
    report, rate = load(run, run.table(run.once), BY_ID, 120, ids=count(), write_units=3000)
    holds(rate >= 1.5 * PARTITION, f"{rate:,.0f} units a second, {report.throttles_by_reason}")
    return f"{rate:,.0f} units a second"


@check("A load keeps to its write_units, and uses 95% of them", "bulk", minutes=4, write_units=40_000, write_hours=200,
       read_hours=1)  # fmt: skip
def bulk_pace(run: Run) -> str:
    table = run.table(
        run.once,
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 200},
    )
    report, rate = load(run, table, BY_ID, 180, ids=count(), write_units=200)
    holds(190 <= rate <= 210, f"{rate:,.1f} units a second of 200")
    return f"{rate:,.1f} units a second of 200; {report.throttles} throttles"


@check("A hot key whose sort keys do not only grow gets more partitions within half an hour", "number-of-shards",
       minutes=32, also="splits", write_units=2_700_000)  # fmt: skip
def splits(run: Run) -> str:
    run.on_aws_only("no engine splits partitions")
    drawn = random.Random(1)  # so that the load is the same in each run
    ids = iter(lambda: drawn.randrange(10**7), None)
    _, rate = load(run, run.table(run.once), CalculatedSuffix("id", shards=1), 1800, ids=ids, write_units=1500)
    holds(rate > 1.1 * PARTITION, f"{rate:,.0f} units a second after half an hour")
    return f"{rate:,.0f} units a second in the second quarter of an hour"
