"""The shard map: one item in the table itself, which says by which strategy, and in which stage, the table is used.

Its form never changes: tests/vectors/shard_map.json. It has its own key, which no logical key may have, and which scans
hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from shardkit.dynamodb.body import binary_bytes, binary_text
from shardkit.dynamodb.schema import KeySchema
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, StageError, brief
from shardkit.strategies import CalculatedSuffix, RandomSuffix, Strategy
from shardkit.strategies.resharding import STAGES, Resharding, Stage
from shardkit.strategies.suffixes import in_place_of_strategy, known_type

Clocks = Callable[[], tuple[float, ...]]
"""Returns what one clock or several show, in seconds: time passes as fast as the fastest of them."""

MAP_LEASE_SECONDS = 30.0
"""T: how long a process may act on what it read in the map, from before the request that read it."""
EFFECT_SECONDS = 600.0
"""D: how long a request can still take effect after it was sent: DynamoDB refuses signatures older than 5 minutes, and
the sender's clock may be 5 minutes ahead."""
WAIT_SECONDS = MAP_LEASE_SECONDS + EFFECT_SECONDS
"""T + D: how long after a change every process has left the stage before. One second less is not enough (tested)."""

MAP = "shardkit:map"
"""The attribute that has the map, as JSON, and its item's key."""
GENERATION = "shardkit:generation"
_FORM = 1
_PLAIN = ("generation", "stage", "before", "reached", "since")
_KEY_VALUES: dict[str, WireValue] = {"S": {"S": MAP}, "B": {"B": binary_text(MAP.encode())}, "N": {"N": "0"}}
_LAST = len(STAGES) - 1


@known_type
@dataclass(frozen=True, repr=False)
class ShardMap(Strategy):
    """Take the strategy, and the stage of a move, from the shard map: an item in the table itself.

    Example:
        orders = ShardedTable(boto3.resource("dynamodb").Table("Orders"), ShardMap())

    Give it in the place of a strategy to ``ShardedTable``, ``aio.ShardedTable`` or ``install``. Every process follows a
    change of the map within 30 seconds, without a deployment. :class:`ShardMapAdmin` makes the item and changes it.

    Before each request goes, after it was signed, shardkit checks that the process has read the map in the last 30
    seconds. If not, it reads the map first. So a process that stood still never acts on an old map.

    Args:
        clock: For tests: returns the seconds that clocks show, as a tuple. By default the monotonic clock and the
            system's time; the one that runs faster counts.

    Raises:
        ConfigurationError: When the table is used: it has no map, or one of a newer shardkit.
        StageError: When the table is used: the map could not be read in time.

    Cost: one strongly consistent GetItem (1 read unit) every 20 seconds for each client and table in use. A call on the
    table takes some 100 microseconds of CPU more.
    IAM: ``dynamodb:GetItem``. Source: Google, "Online, Asynchronous Schema Change in F1" (VLDB 2013), leases.
    """

    clock: Clocks | None = field(default=None, kw_only=True, compare=False)
    settled = False

    def __post_init__(self) -> None:
        if self.clock is not None and not callable(self.clock):
            raise ConfigurationError(f"clock: must be a function, got {brief(self.clock)}; leave it out")

    def to_dict(self) -> dict[str, Any]:
        return {"type": "ShardMap"}

    def __repr__(self) -> str:
        return "ShardMap()"

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Raise, because the shards are not known here."""
        raise ConfigurationError(
            "strategy: ShardMap() is known only to the table that holds the map, so it is not supported here; give the "
            "strategy itself, which ShardMapAdmin(table).read().strategy returns"
        )

    shard_of = shards_for = physical_key = physical_keys = split = refuse
    old = new = property(refuse)


@dataclass(frozen=True, kw_only=True)
class ShardMapState:
    """What a table's shard map says.

    Args:
        generation: How often the map was written: each change adds 1.
        stage: The stage of the move: ``"old"``, ``"guard"``, ``"switch"``, ``"move"`` or ``"new"``.
        old: The strategy to move from; without a move, the table's strategy.
        new: The strategy to move to; None: there was no move yet.
        before: The stage before the last change.
        reached: The furthest stage that this move has been in.
        since: When the last change was known to be in the map, in seconds since 1970; None: it was not recorded,
            because the process that made it ended just then.
    """

    generation: int
    stage: Stage
    old: Strategy
    new: Strategy | None
    before: Stage
    reached: Stage
    since: float | None

    @property
    def strategy(self) -> Strategy:
        """The strategy of every process that has read this map."""
        return self.old if self.new is None else Resharding(self.old, self.new, stage=self.stage)

    def started(self, new: Strategy) -> ShardMapState:
        """Return the map after the start of a move to ``new``."""
        if self.stage not in {"old", "new"}:
            raise StageError(
                f"stage: a move is under way, in stage {self.stage!r}, to {self.new!r}; finish it, or go back",
                self.stage,
            )
        old = self.old if self.stage == "old" or self.new is None else self.new
        Resharding(old, new, stage="guard")
        # The end of the last move is the beginning of this one: the same strategy alone.
        return replace(self._changed("guard"), old=old, new=new, before="old", reached="guard")

    def advanced(self) -> ShardMapState:
        """Return the map one stage further."""
        if self.stage in {"old", "new"}:
            raise StageError(f"stage: no move is under way, the map is at {self.stage!r}; call start(new)", self.stage)
        return self._changed(STAGES[STAGES.index(self.stage) + 1])

    def returned(self) -> ShardMapState:
        """Return the map one stage back, if no item can be lost."""
        if self.new is None or self.stage == "old":
            raise StageError("stage: the map is at 'old', the first stage", self.stage)
        to = STAGES[STAGES.index(self.stage) - 1]
        # In switch, new items get a stub at their old place, and in move not even that: the stages before would not
        # find them.
        passed = {"old": "switch", "guard": "move"}.get(to)
        if passed is not None and STAGES.index(self.reached) >= STAGES.index(passed):
            raise StageError(
                f"stage: cannot go back from {self.stage!r} to {to!r}, because the move has been in {self.reached!r}, "
                f"and items are at places where {to!r} does not look; go on to 'new', then start a move back to "
                f"{self.old!r}",
                self.stage,
            )
        return self._changed(to)

    def wait(self, to: ShardMapState, now: float) -> float:
        """Return the seconds until the map may become ``to``: no process may act two stages apart from another."""
        first = _LAST if self.stage == "new" and to.old != self.old else 0
        if abs(first + STAGES.index(to.stage) - STAGES.index(self.before)) <= 1:
            return 0.0
        return WAIT_SECONDS if self.since is None else max(0.0, self.since + WAIT_SECONDS - now)

    def rest(self, now: float) -> float:
        """Return the seconds until the next step of a move, or after its end the start of another, may be made."""
        if self.new is None or self.stage == "old":
            return 0.0
        return self.wait(replace(self, stage="guard", old=self.new) if self.stage == "new" else self.advanced(), now)

    def _changed(self, stage: Stage) -> ShardMapState:
        reached = max(self.reached, stage, key=STAGES.index)
        return replace(
            self, generation=self.generation + 1, stage=stage, before=self.stage, reached=reached, since=None
        )

    def check(self, strategy: Strategy, table: str) -> None:
        """Refuse a strategy given beside the map, unless the map has the same one and no move under way.

        So ``ShardMap()`` can be deployed to one process after another, before the first move.
        """
        alone = {"old": self.old, "new": self.new}.get(self.stage)
        if alone is not None and places(strategy) in (places(alone), places(self.strategy)):
            return
        remedy = "" if alone is None else f", or, where a ShardMap is not supported, {brief(alone, 300)}"
        problem = (
            f"by which its items are stored as {brief(alone or self.strategy, 300)} says, got {brief(strategy, 300)}; "
            "items would be written and read at other places than those of the map"
        )
        stage = next((one for one in STAGES if strategy == replace(self, stage=one).strategy), None)
        if stage is not None:
            problem = f"got a Resharding of the same move, which stays in stage {stage!r} when the map goes on"
        raise ConfigurationError(
            f"strategy: table {table!r} has a shard map (generation {self.generation}, stage {self.stage!r}), "
            f"{problem}, so give ShardMap(){remedy}"
        )

    def to_attributes(self) -> WireItem:
        """Return the attributes of the map's item, without its key. Conditions name the generation."""
        strategies = {"old": self.old.to_dict(), "new": None if self.new is None else self.new.to_dict()}
        plain = {name: getattr(self, name) for name in _PLAIN}
        text = orjson.dumps({"form": _FORM, **plain, **strategies}, option=orjson.OPT_SORT_KEYS).decode()
        return {MAP: {"S": text}, GENERATION: {"N": str(self.generation)}}

    def checked(self) -> ShardMapState:
        """Return the map if it can be one."""
        stages: set[Any] = {self.stage, self.before, self.reached}
        if not stages <= {*STAGES} or (self.new is None and self.stage != "old"):
            raise ValueError(f"no such stage: {stages}, or no strategy to move to: {self.new!r}")
        if not self.old.settled or not (self.new is None or self.new.settled):
            raise ValueError(f"old and new are strategies of a table, got {self.old!r} and {self.new!r}")
        if type(self.generation) is not int or not isinstance(self.since, int | float | None):
            raise ValueError(f"generation and since are numbers, got {self.generation!r} and {self.since!r}")
        return self

    @classmethod
    def of(cls, item: WireItem | None, table: str) -> ShardMapState:
        """Read the map's item."""
        if item is None:
            raise ConfigurationError(
                f"strategy: table {table!r} has no shard map; create it, ShardMapAdmin(table).create(strategy)"
            )
        try:
            given: Any = orjson.loads(item[MAP]["S"])
            if given["form"] == _FORM:
                state = cls(
                    **{name: given[name] for name in _PLAIN},
                    old=Strategy.from_dict(given["old"]),
                    new=None if given["new"] is None else Strategy.from_dict(given["new"]),
                )
                return state.checked()
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"strategy: the shard map of table {table!r} cannot be read: {brief(error, 300)}; register its "
                "functions (register_function), or restore its item"
            ) from error
        raise ConfigurationError(
            f"strategy: the shard map of table {table!r} has form {brief(given['form'], 20)}, and this shardkit reads "
            f"form {_FORM}; use the version of shardkit that wrote it"
        )


def places(strategy: Strategy) -> tuple[type, dict[str, Any]]:
    """Return what tells where items are: not ``locate``, by which they are searched for, and not what functions do."""
    known = {name: one for name, one in vars(strategy).items() if name != "locate" and not callable(one)}
    return type(strategy), known


def created(strategy: Strategy) -> ShardMapState:
    """Return the first map of a table."""
    if not isinstance(strategy, Strategy) or not strategy.settled:
        raise ConfigurationError(
            f"strategy: must be the strategy of the table's items now, such as Unsharded(), got "
            f"{in_place_of_strategy(strategy)}"
        )
    return ShardMapState(generation=1, stage="old", old=strategy, new=None, before="old", reached="old", since=None)


def can_grow(strategy: Strategy) -> bool:
    """Return whether one logical key can get more shards than the others."""
    return isinstance(strategy, CalculatedSuffix | RandomSuffix) and isinstance(strategy.shards, int | Mapping)


def grown(strategy: Strategy, more: Mapping[Any, int]) -> Strategy:
    """Return a strategy in which some logical keys have more shards."""
    if not can_grow(strategy):
        raise ConfigurationError(
            f"strategy: must be a CalculatedSuffix or a RandomSuffix whose shards are a number or a mapping, to grow "
            f"one key, got {brief(strategy)}; start a move to a strategy with more shards: start(new)"
        )
    assert isinstance(strategy, CalculatedSuffix | RandomSuffix)
    new = replace(strategy, shards={**_per_key(strategy), **more})
    for key, shards in more.items():
        if len(new.shards_for(key)) <= (now := len(strategy.shards_for(key))):
            raise ConfigurationError(
                f"shards: must be more than the {now:,} that {brief(key)} has, got {brief(shards)}; double them"
            )
    return new


def is_growth(move: Resharding) -> bool:
    """Return whether some logical keys get more shards, and no other changes: then no item has to move."""
    old, new = move.old, move.new
    if not (can_grow(old) and can_grow(new)):
        return False
    more = dict(_per_key(new).items() - _per_key(old).items())
    try:
        return None not in more and new == grown(old, more)
    except ConfigurationError:  # fewer shards
        return False


def _per_key(strategy: Any) -> dict[Any, int]:
    return dict(strategy.shards) if isinstance(strategy.shards, Mapping) else {None: strategy.shards}


def map_key(keys: KeySchema, types: Mapping[str, str]) -> WireItem:
    """Return the primary key of a table's shard map."""
    if types.get(keys.partition_key) == "N":
        raise ConfigurationError(
            f"strategy: the partition key {keys.partition_key!r} is a number, which cannot have a suffix, so a shard "
            "map is of no use; give Unsharded()"
        )
    return {name: _KEY_VALUES[types.get(name, "S")] for name in keys.names}


def is_map_key(key: WireItem, keys: KeySchema) -> bool:
    """Return whether an item, or its key, is the shard map of its table."""
    return is_map_value(key.get(keys.partition_key, {}))


def is_map_value(value: WireValue) -> bool:
    """Return whether the partition key's value is that of the shard map."""
    return value.get("S") == MAP or ("B" in value and binary_bytes(value["B"]) == MAP.encode())
