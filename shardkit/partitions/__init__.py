"""Estimate and simulate a table's partitions, plan throughput, bulk loads and shards: pure, no request is made.

Every figure comes with its reasoning: a *rule* is a sentence of the Developer Guide, a *model* is an assumption.
"""

from shardkit.analysis.shards import Fit, probability_within
from shardkit.dynamodb.service_errors import Throttle
from shardkit.partitions.describe import TableEstimate, ThroughputEstimate, estimate_table
from shardkit.partitions.model import Partitions, hash_of
from shardkit.partitions.plan_load import BulkLoadPlan, IndexLoad, IndexWrites, plan_bulk_load
from shardkit.partitions.plan_series import PeriodPartitions, SeriesPlan, plan_series
from shardkit.partitions.plan_shards import Alternative, FanOut, ShardPlan, plan_shards
from shardkit.partitions.plan_trace import TracePlan, TraceWay, plan_trace
from shardkit.partitions.rules import (
    BURST_SECONDS,
    PARTITION_BYTES,
    PartitionThroughput,
    TablePartitions,
    initial_partitions,
    partitions_by_older_rule,
    partitions_for_size,
)
from shardkit.partitions.simulated_table import SimulatedTable
from shardkit.partitions.simulator import Simulator
from shardkit.partitions.statements import Statement

__all__ = [
    "BURST_SECONDS",
    "PARTITION_BYTES",
    "Alternative",
    "BulkLoadPlan",
    "FanOut",
    "Fit",
    "IndexLoad",
    "IndexWrites",
    "PartitionThroughput",
    "Partitions",
    "PeriodPartitions",
    "SeriesPlan",
    "ShardPlan",
    "SimulatedTable",
    "Simulator",
    "Statement",
    "TableEstimate",
    "TablePartitions",
    "Throttle",
    "ThroughputEstimate",
    "TracePlan",
    "TraceWay",
    "estimate_table",
    "hash_of",
    "initial_partitions",
    "partitions_by_older_rule",
    "partitions_for_size",
    "plan_bulk_load",
    "plan_series",
    "plan_shards",
    "plan_trace",
    "probability_within",
]
