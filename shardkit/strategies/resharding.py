"""``Resharding``: a table on its way from one strategy to another, while services read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from shardkit.core.checks import did_you_mean
from shardkit.errors import ConfigurationError, brief
from shardkit.strategies.suffixes import KeyValue, RandomSuffix, Strategy, in_place_of_strategy, known_type

__all__ = ["Resharding", "Stage"]

Stage = Literal["old", "guard", "switch", "move", "new"]
"""The stages of a move, in their order. Processes of neighbouring stages may run side by side."""

STAGES: tuple[Stage, ...] = get_args(Stage)


@known_type
@dataclass(frozen=True, repr=False)
class Resharding(Strategy):
    """A table whose items move from one strategy to another, while services go on reading and writing.

    Example:
        Resharding(Unsharded(), CalculatedSuffix("OrderId", shards=200), stage="guard")

    Deploy each stage to all processes before the next: ``"old"``, ``"guard"``, ``"switch"``, ``"move"`` (in which the
    mover moves the items), ``"new"``. In ``"old"`` and ``"new"``, the table works as with ``old`` or ``new`` alone.

    From ``RandomSuffix`` to more shards nothing moves: ``"guard"`` reads all of ``new``'s shards and still writes
    ``old``'s; from ``"switch"`` on, ``new`` is used alone.

    Args:
        old: The strategy of the table's items so far; ``Unsharded()`` for a table without suffixes.
        new: The strategy to move to. A shard must be calculated from the primary key alone.
        stage: The stage of this process.

    Raises:
        ConfigurationError: An argument is invalid, or items cannot move between these strategies.

    Cost: none; no request. What operations cost in each stage is in the reference of resharding.
    Source: Google, "Online, Asynchronous Schema Change in F1" (VLDB 2013): only neighbouring stages side by side.
    """

    old: Strategy
    new: Strategy
    stage: Stage = field(kw_only=True)
    settled = False

    def __post_init__(self) -> None:
        given: Any = self.stage
        if given not in STAGES:
            near = did_you_mean(given, STAGES) if isinstance(given, str) else ""
            raise ConfigurationError(f"stage: must be one of {', '.join(STAGES)}, got {brief(given)}{near}")
        for name in ("old", "new"):
            strategy: Any = getattr(self, name)
            if not isinstance(strategy, Strategy) or not strategy.settled:
                raise ConfigurationError(
                    f"{name}: must be RandomSuffix(…), CalculatedSuffix(…), RangeSuffix(…) or Unsharded(), got "
                    f"{in_place_of_strategy(strategy)}"
                )
            if strategy.attribute is not None or strategy.source is not None:
                raise ConfigurationError(
                    f"{name}: must be the strategy of a table, without attribute= and source=, got {brief(strategy)}; "
                    "move an index with backfill_index()"
                )
        if self.old == self.new:
            raise ConfigurationError(f"old, new: are the same, {brief(self.new)}, so no item moves; give another new")
        if isinstance(self.old, RandomSuffix) and isinstance(self.new, RandomSuffix):
            self._check_growth(self.old, self.new)
        elif isinstance(self.old, RandomSuffix) or isinstance(self.new, RandomSuffix):
            raise ConfigurationError(
                f"old, new: items cannot move from {brief(self.old)} to {brief(self.new)}, because with RandomSuffix "
                "several items can have one primary key, and no item has a place of its own; copy the items to another "
                "table"
            )

    def _check_growth(self, old: RandomSuffix, new: RandomSuffix) -> None:
        same = (old.separator, old.first) == (new.separator, new.first)
        counts = [strategy.shards for strategy in (old, new)]
        if not same or any(callable(count) and not isinstance(count, Mapping) for count in counts):
            raise ConfigurationError(
                f"old, new: from RandomSuffix to RandomSuffix, separator and first must not change, and shards must be "
                f"numbers or mappings, got {brief(old)} and {brief(new)}; change the number of shards only"
            )
        keys: list[Any] = [key for count in counts if isinstance(count, Mapping) for key in count if key is not None]
        if any(len(new.shards_for(key)) < len(old.shards_for(key)) for key in ("another key", *keys)):
            raise ConfigurationError(
                f"new: must have at least as many shards as old for every key, got {brief(new)} instead of "
                f"{brief(old)}; items of a RandomSuffix cannot move, so keep the shards, or copy the items to another "
                "table"
            )

    @property
    def moves(self) -> bool:
        """Whether items have to move; with more random shards, they stay where they are."""
        return not isinstance(self.new, RandomSuffix)

    @property
    def _stored_by(self) -> Strategy:
        """The strategy by which items that are new in this stage are stored."""
        return self.old if self.stage in {"old", "guard"} else self.new

    @property
    def by_attributes(self) -> tuple[str, ...] | None:  # noqa: D102
        named = [strategy.by_attributes for strategy in (self.old, self.new)]
        return tuple(dict.fromkeys(name for names in named for name in names or ())) or None

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"type": "Resharding", "old": self.old.to_dict(), "new": self.new.to_dict(), "stage": self.stage}

    def shard_of(self, key: KeyValue, item: Mapping[str, Any]) -> int | None:
        """Return the shard in which this stage stores an item that is new; see ``Strategy.shard_of``.

        Example:
            Resharding(Unsharded(), RangeSuffix("OrderId", ["F"]), stage="switch").shard_of("d", {"OrderId": "A"}) == 1
        """
        return self._stored_by.shard_of(key, item)

    def shards_for(self, key: KeyValue) -> Sequence[int | None]:
        """Return the shards in which this stage stores items that are new; see ``Strategy.shards_for``.

        Example:
            Resharding(Unsharded(), RangeSuffix("OrderId", ["F"]), stage="switch").shards_for("d") == range(1, 3)
        """
        return self._stored_by.shards_for(key)

    def physical_keys(self, key: KeyValue) -> tuple[KeyValue, ...]:
        """Return all keys under which items of a logical key can be: those of ``old``, then the others of ``new``.

        Example:
            Resharding(Unsharded(), RangeSuffix("Id", ["F"]), stage="move").physical_keys("d") == ("d", "d.x", "d.x46")
        """
        used = {"old": (self.old,), "new": (self.new,)}.get(self.stage, (self.old, self.new))
        return tuple(dict.fromkeys(one for strategy in used for one in strategy.physical_keys(key)))

    def split(self, physical: KeyValue) -> tuple[KeyValue, int | None]:
        """Split a stored partition key into logical key and shard, of ``new`` if it has one there, else of ``old``.

        Example:
            Resharding(Unsharded(), RangeSuffix("Id", ["F"]), stage="move").split("d.x46") == ("d", 2)
        """
        logical, shard = (physical, None) if self.stage == "old" else self.new.split(physical)
        return self.old.split(physical) if shard is None and self.stage != "new" else (logical, shard)

    def _join(self, key: KeyValue, shard: int | None) -> KeyValue:
        return self._stored_by._join(key, shard)  # noqa: SLF001
