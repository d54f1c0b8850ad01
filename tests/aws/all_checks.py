"""All checks, in the order of docs/verified-on-aws.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.aws.check import Check
from tests.aws.checks import account, buckets, indexes, items, moves, reads, streams, throttles

CHECKS: Sequence[Check] = (
    items.suffixes, items.merged_query, items.direct_transport, items.transactions, items.transaction_units,
    indexes.sharded_index, items.counter, streams.stream, throttles.table_throttle, moves.resharding,
    throttles.key_throttle, throttles.spread_key, indexes.index_back_pressure, throttles.on_demand_maximum,
    throttles.bulk_pace, reads.units, reads.scan_segments, indexes.backfill, account.warm_throughput,
    account.clock_skew, account.iam, reads.large_pages, moves.leases,
    # Chosen by --also:
    streams.ttl, account.credentials, throttles.splits, buckets.exports, buckets.import_table, buckets.bulk_put,
    account.insights,
)  # fmt: skip
