"""Bring the items of a live table to another strategy: ``plan``, ``move`` and ``verify``."""

from typing import TYPE_CHECKING

from shardkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from shardkit.migrate.migrating import MoveOptions, PlanOptions, VerifyOptions, move, plan, verify
    from shardkit.migrate.move_plan import MovePlan
    from shardkit.migrate.mover import MoveReport

__all__ = ["MoveOptions", "MovePlan", "MoveReport", "PlanOptions", "VerifyOptions", "move", "plan", "verify"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "shardkit.migrate.migrating": (
                "MoveOptions",
                "PlanOptions",
                "VerifyOptions",
                "move",
                "plan",
                "verify",
            ),
            "shardkit.migrate.move_plan": ("MovePlan",),
            "shardkit.migrate.mover": ("MoveReport",),
        },
    )
