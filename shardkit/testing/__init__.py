"""For tests of one's own: pytest fixtures, there as soon as shardkit is installed."""

from shardkit.testing.budget import CapacityBlock, CapacityBudgetFixture, capacity_budget

__all__ = ["CapacityBlock", "CapacityBudgetFixture", "capacity_budget"]
