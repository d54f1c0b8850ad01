"""Help for your own tests: simulated partitions, and pytest fixtures that work as soon as shardkit is installed."""

from typing import TYPE_CHECKING, Any

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.testing.capacity_fixture import CapacityBlock, CapacityBudgetFixture
    from shardkit.testing.clock import RealClock, VirtualClock
    from shardkit.testing.fixtures import DynamoDBTableFixture, SimulatedPartitionsFixture
    from shardkit.testing.plugin import capacity_budget, dynamodb_table, pytest_addoption, simulated_partitions
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

if not TYPE_CHECKING:
    _named, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.testing.capacity_fixture": ("CapacityBlock", "CapacityBudgetFixture"),
            "shardkit.testing.clock": ("RealClock", "VirtualClock"),
            "shardkit.testing.fixtures": ("DynamoDBTableFixture", "SimulatedPartitionsFixture"),
            "shardkit.testing.plugin": (
                "capacity_budget",
                "dynamodb_table",
                "pytest_addoption",
                "simulated_partitions",
            ),
            "shardkit.testing.report": ("Hot",),
            "shardkit.testing.simulation": ("SimulatedPartitions", "simulate_partitions"),
        },
    )

    def __getattr__(name: str) -> Any:
        try:
            return _named(name)
        except ModuleNotFoundError as error:
            if error.name != "pytest":
                raise
            raise ImportError(f"{name}: pytest is not installed; run pip install 'shardkit[testing]'") from error
