"""A table in memory whose items move from one strategy's places to another's while it is read."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from zlib import crc32

from shardkit import CalculatedSuffix, RangeSuffix, Resharding, Strategy, Unsharded
from shardkit.core.machine import Answer, Send
from shardkit.dynamodb.encode import to_wire_item
from shardkit.dynamodb.values import WireItem
from shardkit.migrate.marks import MARK, STUB, Homes, Moving
from shardkit.sharding.layout import Sharding
from shardkit.strategies.resharding import STAGES, Stage
from tests.support.model import ModelTable
from tests.support.tables import IndexKeys, described

State = Literal["live", "frozen", "copied", "stub", "moved", "deleted"]
"""Of an item: at its old place; frozen there; frozen there and copied; at its new place, with a stub or with nothing at
the old one; deleted at its new place, with a stub at the old one."""
STATES: tuple[State, ...] = ("live", "frozen", "copied", "stub", "moved", "deleted")
_NEXT: Mapping[State, State] = {"live": "frozen", "frozen": "copied", "copied": "moved", "stub": "moved"}
BETWEEN: tuple[Stage, ...] = STAGES[1:4]
MOVES: dict[str, tuple[Strategy, Strategy]] = {
    "adopt": (Unsharded(), CalculatedSuffix("sk", 3)),
    "adopt, ranges": (Unsharded(), RangeSuffix("sk", [3, 6, 20])),
    "double": (CalculatedSuffix("sk", 2), CalculatedSuffix("sk", 4)),
    "overlap": (CalculatedSuffix("sk", 3), CalculatedSuffix("sk", 4)),
    "fewer": (CalculatedSuffix("sk", 4), CalculatedSuffix("sk", 2)),
    "split": (RangeSuffix("sk", [5]), RangeSuffix("sk", [2, 5, 8])),
    "ranges": (RangeSuffix("sk", [4, 7]), RangeSuffix("sk", [2, 9])),
    "ranges to shards": (RangeSuffix("sk", [5]), CalculatedSuffix("sk", 3)),
    "one key": (CalculatedSuffix("sk", 2), CalculatedSuffix("sk", {"k": 6, "other": 2})),
    "leave": (CalculatedSuffix("sk", 2), Unsharded()),
}
TYPES = {"pk": "S", "sk": "N", "b": "S", "city": "S"}
INDEXES: tuple[IndexKeys, IndexKeys] = (
    {"local": (["pk"], ["b"])},
    {
        "same": (["pk"], ["b"]),
        "same-alone": (["pk"], []),
        "city": (["city"], ["b"]),
        "keys": (["sk"], ["pk"]),
        "keys-only": (["sk"], ["pk"]),
    },
)


def in_stage(stage: Stage, old: Strategy, new: Strategy, *, sharded: Mapping[str, Strategy] | None = None) -> Sharding:
    """The sharding of a table with sort key and indexes, in a stage."""
    local, secondary = INDEXES
    strategy = Resharding(old, new, stage=stage)
    return described(
        strategy, TYPES, ["pk", "sk"], local=local, secondary=secondary, sharded=sharded, keys_only=["keys-only"]
    )


@dataclass
class MovedTable(ModelTable):
    """Items in any state of their move. With ``rng``, a mover takes steps after requests; eventual reads are late."""

    rng: random.Random | None = None
    states: dict[tuple[Any, Any], tuple[WireItem, Homes, State]] = field(default_factory=dict)
    past: list[list[WireItem]] = field(default_factory=list)

    def store(self, item: Mapping[str, Any], state: State) -> None:
        """Store a logical item (Python values) in a state; one that does not move is live."""
        assert isinstance(self.sharding, Moving)
        wire = to_wire_item(item)
        homes = self.sharding.homes({name: wire[name] for name in self.sharding.keys.names})
        self.states[item["pk"], item["sk"]] = wire, homes, "live" if homes.same else state
        self._lay_out()

    def _lay_out(self) -> None:
        self.items = []
        for wire, homes, state in self.states.values():
            if state in {"live", "frozen", "copied"}:
                mark: WireItem = {} if state == "live" else {MARK: {"S": "0" * 32}}
                self.items.append({**wire, **homes.old, **mark})
            elif state in {"stub", "deleted"}:
                self.items.append({**homes.old, MARK: STUB})
            if state in {"copied", "stub", "moved"}:
                self.items.append({**wire, **homes.new})

    def move(self, rng: random.Random) -> None:
        """Take one step of the mover, on any item."""
        key = rng.choice(list(self.states))
        wire, homes, state = self.states[key]
        if not homes.same and state in _NEXT:
            self.states[key] = wire, homes, _NEXT[state]
            self.past = [*self.past[-3:], self.items]
            self._lay_out()

    def answer(self, send: Send) -> Answer:
        rng = self.rng
        answered = self._scanned if send.operation == "Scan" else super().answer
        if rng is None or not self.states:
            return answered(send)
        now = self.items
        if not send.params.get("ConsistentRead") and self.past:
            self.items = rng.choice([*self.past, now])
        try:
            return answered(send)
        finally:
            self.items = now
            for _ in range(rng.randrange(4)):
                self.move(rng)

    def _scanned(self, send: Send) -> Answer:
        params = send.params
        after, segment = params.get("ExclusiveStartKey"), params.get("Segment", 0)

        def position(item: WireItem) -> tuple[int, str]:
            text = repr([item[name] for name in self.sharding.keys.names])
            return crc32(text.encode()), text

        found = [
            item
            for item in sorted(self.items, key=position)
            if position(item)[0] % params.get("TotalSegments", 1) == segment
            and (after is None or position(item) > position(after))
        ]
        page = found[: self.page]
        response: dict[str, Any] = {
            "Items": [self._projected(item, params) for item in page if self._kept(item, params)],
            "ScannedCount": len(page),
        }
        if len(found) > len(page):
            response["LastEvaluatedKey"] = {name: page[-1][name] for name in self.sharding.keys.names}
        return response

    def _was_there(self, key: WireItem) -> bool:
        return any({**key, **home} == key for _, homes, _ in self.states.values() for home in (homes.old, homes.new))

    def logical(self) -> list[dict[str, Any]]:
        """The logical items that exist, as wire items."""
        return [wire for wire, _, state in self.states.values() if state != "deleted"]


def neighbours(stage: Stage) -> list[Stage]:
    """The stages between the first and the last that may run beside a stage."""
    at = STAGES.index(stage)
    return [one for one in STAGES[max(1, at - 1) : at + 2] if one != "new"]
