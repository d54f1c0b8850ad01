"""The kinds of tables: what each operation means on one, by its strategy, and what runs it.

Nothing else asks of which kind a table is. Moves and shard maps are loaded when a table has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shardkit.errors import ConfigurationError
from shardkit.runtime.leases import clocks
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.programs import Programs
from shardkit.sharding.seam import Operations
from shardkit.sharding.shard_map import ShardMap
from shardkit.strategies import Strategy


def described(table: str, strategy: Strategy, *given: Any, **options: Any) -> Operations:
    """Return a table's operations; arguments as of ``Sharding.described``."""
    if strategy.settled:
        return Operations.described(table, strategy, *given, **options)
    from shardkit.migrate import between  # noqa: PLC0415 - of tables whose items move

    return between.described(table, strategy, *given, **options)


def programs_of(
    table: str,
    strategy: Strategy,
    key_schema: Mapping[str, Any] | None,
    draw: Callable[[], float],
    form: Form = PYTHON_VALUES,
    shardings: dict[str, Sharding] | None = None,
    indexes: Mapping[str, Strategy] | None = None,
) -> Programs:
    """Return the operations of a table, by its strategy or its shard map."""
    given = (table, strategy, key_schema, draw, form, shardings, indexes, described)
    if isinstance(strategy, ShardMap):
        from shardkit.migrate.mapped import MappedPrograms  # noqa: PLC0415 - of tables with a shard map

        return MappedPrograms(*given, clock=strategy.clock or clocks)
    return Programs(*given)


def refuse_map(strategy: object, instead: str) -> None:
    """Refuse a shard map where nothing follows its changes; ``instead``: what to do."""
    if isinstance(strategy, ShardMap):
        raise ConfigurationError(
            f"strategy: a ShardMap is not supported, because tasks cannot follow a change of it; {instead}"
        )
