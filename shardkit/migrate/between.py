"""What each operation means between the stages of a Resharding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, cast

from shardkit.core.machine import Machine, Program, Response
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import WireValue
from shardkit.errors import ConfigurationError, StageError, brief
from shardkit.migrate import items
from shardkit.migrate.batch_get import get_many
from shardkit.migrate.batch_write import batched
from shardkit.migrate.events import exported_origin, origin_of
from shardkit.migrate.marks import MARK, Moving
from shardkit.migrate.query import MovingPlan, read_of
from shardkit.migrate.scan import StreamOfPlaces
from shardkit.migrate.transactions import Action, Reading
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.leases import Held
from shardkit.sharding.parameters import FanOutOptions, Params
from shardkit.sharding.programs import Programs
from shardkit.sharding.query.page import QueryPage
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import QueryStream
from shardkit.sharding.scan import Row
from shardkit.sharding.seam import Operations
from shardkit.strategies import RandomSuffix, Resharding, Stage, Strategy


class Between(Moving, Operations):
    """A table whose items move."""

    batched = batched
    get_many = get_many
    origin_of = origin_of
    exported_origin = exported_origin

    def item(
        self, operation: str, params: Params, shard: int | None, fan_out: FanOutOptions, *, return_shards: bool
    ) -> Program[Response]:
        if return_shards:
            self.refuse("ReturnShards=", "omit it: an item may be at its old or at its new place")
        return items.OPERATIONS[operation](self, params, shard, fan_out)

    def plan(self, params: Params, shard: int | None, *, return_shards: bool = False) -> QueryPlan:
        plan = MovingPlan.of(self, params, shard=shard)
        if return_shards:
            plan.refuse_shards()
        return plan

    def page(self, plan: QueryPlan, *, sizes: ItemSizes, fan_out: FanOutOptions) -> Machine[QueryPage]:
        return read_of(plan, sizes=sizes, fan_out=fan_out, paged=True)

    def stream(
        self, plan: QueryPlan, *, sizes: ItemSizes, fan_out: FanOutOptions, max_items: int | None
    ) -> QueryStream:
        return read_of(plan, sizes=sizes, fan_out=fan_out, max_items=max_items)

    def scan(self, params: Params) -> NoReturn:
        self.refuse("scan()", "use scan_items() of ShardedTable, which reads the old places first")

    def segments(self, params: Params, segments: int, fan_out: FanOutOptions) -> Machine[list[Row]]:
        return StreamOfPlaces(self, params, segments, fan_out)

    def physical_item(self, item: Mapping[str, Any], source: str, draw: Callable[[], float]) -> NoReturn:
        self.refuse(
            "physical_key(), physical_item()",
            "an item is at its old or its new place; use the operations of the table, or wait for stage 'new'",
        )

    def keys_in_batch(self, keys: Sequence[Mapping[str, Any]]) -> None:
        return None

    def action(self, operation: str, params: Params, shard: Any, fan_out: FanOutOptions) -> Program[Any]:
        yield from ()
        if operation == "GetItem":
            return Reading.of(self, params, shard)
        return Action.of(self, operation, params, shard, fan_out)

    @property
    def load_machine(self) -> Callable[..., Any]:
        from shardkit.migrate.load import MovingLoad  # noqa: PLC0415 - few processes load

        return MovingLoad

    def check_item(self, item: Mapping[str, Any]) -> None:
        items.refuse_mark(item)
        self.homes(to_wire_item({name: item[name] for name in self.key_names}))


@dataclass(frozen=True)
class Growing(Operations):
    """A table with random suffixes that gets more shards: all are read, and ``written`` has those that are drawn."""

    written: Strategy = field(kw_only=True)

    def drawn(self, logical: WireValue, draw: float) -> int | None:
        return self.placed.drawn(logical, draw)

    @cached_property
    def placed(self) -> Sharding:
        return self.by(self.written)


def described(
    table: str,
    strategy: Strategy,
    description: Mapping[str, Any],
    form: Form = PYTHON_VALUES,
    sharded: Mapping[str, Strategy] | None = None,
    *,
    stage: Stage | None = None,
) -> Operations:
    """Return a table's operations in the stage of its strategy, or in ``stage``, if it has stages."""
    if strategy.settled:
        return Operations.described(table, strategy, description, form, sharded)
    move = cast("Resharding", strategy)
    if stage is not None:
        move = replace(move, stage=stage)
    new, old = (Operations.described(table, one, description, form, sharded) for one in (move.new, move.old))
    if move.stage in {"old", "new"}:
        return old if move.stage == "old" else new
    made = {one.name: getattr(new, one.name) for one in fields(new)}
    if isinstance(move.new, RandomSuffix):
        return Growing(**made, written=move.old) if move.stage == "guard" else new
    if outside := {*(move.by_attributes or ())}.difference(new.keys.names):
        raise ConfigurationError(
            f"by: {min(outside)!r} is not in the primary key ({', '.join(new.keys.names)}) of table {new.table!r}, so "
            "an item's places cannot be calculated from its key; use attributes of the key, or a new table"
        )
    if description.get("Replicas"):
        raise ConfigurationError(
            f"strategy: table {new.table!r} is a global table, whose replicas do not keep the order and the conditions "
            "of a move; move its items to a new table, or remove the replicas first"
        )
    local = description.get("LocalSecondaryIndexes") or ()
    hiding = [
        one["IndexName"]
        for one in (*local, *(description.get("GlobalSecondaryIndexes") or ()))
        if {*new.indexes[one["IndexName"]].names} <= {*new.keys.names}
        and (one.get("Projection") or {}).get("ProjectionType") != "ALL"
        and MARK not in ((one.get("Projection") or {}).get("NonKeyAttributes") or ())
    ]
    return Between(
        **{**made, "strategy": move},
        local=frozenset(str(one["IndexName"]) for one in local),
        hiding_marks=frozenset(hiding),
    )


class Movable(NamedTuple):
    """A table whose items move, what DescribeTable says of it, and the leases under which it is moved.

    ``moving`` is in stage ``"move"``; ``stage`` is that of the table's own strategy.
    """

    moving: Moving
    description: Mapping[str, Any]
    stage: Stage
    held: Held | None = None


def movable(programs: Programs, stage: Stage | None = None) -> Program[Movable]:
    """Return a table as one whose items move, after a DescribeTable; ``stage``: in which its strategy must be."""
    found, held = yield from programs.in_stage()
    if found.settled:
        raise ConfigurationError(
            f"table: must have a Resharding as its strategy, or a ShardMap with a move under way, got "
            f'{brief(found, 200)}; give ShardedTable(table, Resharding(old, new, stage="move"))'
        )
    strategy = cast("Resharding", found)
    description = yield from programs.description()
    if not strategy.moves:
        raise ConfigurationError(
            f"table: from {brief(strategy.old, 200)} to {brief(strategy.new, 200)} no items have to move: go through "
            "the stages 'guard' and 'switch' to 'new'; a move and a verification are not necessary"
        )
    given = programs.table, strategy, description, programs.form, programs.indexes
    moving = cast("Moving", described(*given, stage="move"))
    if stage is not None and strategy.stage != stage:
        raise StageError(
            f"stage: must be {stage!r} to move or verify table {programs.table!r}, got {strategy.stage!r}; bring every "
            f"process to stage {stage!r} first, and this one too",
            strategy.stage,
        )
    if stage is not None:
        yield from programs.check_map(moving)
    return Movable(moving, description, strategy.stage, held)
