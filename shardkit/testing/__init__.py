"""For tests of one's own: simulated partitions, and pytest fixtures, there as soon as shardkit is installed."""

from __future__ import annotations

try:
    import pytest  # noqa: F401 - only asked for
except ImportError as error:
    raise ImportError(
        "shardkit.testing is for pytest, which is not installed; pip install 'shardkit[testing]'"
    ) from error

from shardkit.testing.budget import CapacityBlock, CapacityBudgetFixture, capacity_budget
from shardkit.testing.clock import RealClock, VirtualClock
from shardkit.testing.fixtures import (
    DynamoDBTableFixture,
    SimulatedPartitionsFixture,
    dynamodb_table,
    pytest_addoption,
    simulated_partitions,
)
from shardkit.testing.report import Hot
from shardkit.testing.simulation import SimulatedPartitions, simulate_partitions

__all__ = [
    "CapacityBlock",
    "CapacityBudgetFixture",
    "DynamoDBTableFixture",
    "Hot",
    "RealClock",
    "SimulatedPartitions",
    "SimulatedPartitionsFixture",
    "VirtualClock",
    "capacity_budget",
    "dynamodb_table",
    "pytest_addoption",
    "simulate_partitions",
    "simulated_partitions",
]
