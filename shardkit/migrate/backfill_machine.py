"""The machine of a backfill: gives the items that lack it the attribute of an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Program, Response
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError
from shardkit.migrate.repair import Repair, attributes_read, repair
from shardkit.passes.table_pass import PassOptions, PassReport, TablePass, Tasks, reading
from shardkit.sharding.indexes import ShardedIndex
from shardkit.sharding.layout import Sharding

_MOST_REMOVALS = 10_000


@dataclass(frozen=True)
class BackfillReport(PassReport):
    """What a backfill did and found.

    Attributes:
        index: The name of the index.
        read: The items that it read to fill.
        written: The updates that gave an item the index's attribute (or removed it, where the value is gone).
        overtaken: The updates that were not made, because a writer changed the item after it was read. Such an item is
            looked at again.
        failed: The items that cannot be given the attribute.
        failures: The stored primary keys of the first ten items that cannot be given it, each with the reason; also of
            those that only the verification has seen.
        verified: The items that the verification read.
        in_index: How many of those belong in the index, because they have its logical key.
        left: The items that it found without the attribute, or with a wrong one.
        complete: Whether the verification read the whole table, and found none left.
        read_units: Read units that were consumed.
        write_units: Write units that were consumed, of the table and its indexes, as far as the service reports them.
        requests: The requests that were sent.
        throttles: The requests that were throttled.
        seconds: How long it took.
    """

    index: str
    written: int = 0
    overtaken: int = 0
    in_index: int = 0


class Backfill(TablePass[BackfillReport]):
    """One pass of a backfill. ``verify``: count what is missing."""

    def __init__(self, sharding: Sharding, index: ShardedIndex, **options: Unpack[PassOptions]) -> None:
        scan = reading(attributes_read(sharding, index))
        super().__init__(sharding.table, BackfillReport(index.name), scan, **options)
        self._sharding = sharding
        self._index = index
        # Removals wait until an item with the logical key was read: if none has it, its name is probably wrong.
        self._removals: list[Repair] = []
        self._keyed = False
        self._resumed = bool(self.positions)

    def take(self, segment: int, answer: Response) -> Tasks:
        items = answer["Items"]
        keyed = sum(all(name in item for name in self._index.logical_keys.partition) for item in items)
        self._keyed = self._keyed or keyed > 0
        self.count(**({"verified": len(items), "in_index": keyed} if self.verify else {"read": len(items)}))
        updates: list[Repair] = []
        for stored in items:
            found = self._repair(stored)
            if found is not None:
                (self._removals if found.value is None else updates).append(found)
        if self._keyed:
            updates += self._removals
            self._removals.clear()
        return [(found.key, self._update(found)) for found in updates]

    def problem(self) -> Exception | None:
        # A resumed pass may see the rest of the table only: what it holds back is left to the verification.
        if not self._removals or self._resumed or not (self.ended or len(self._removals) >= _MOST_REMOVALS):
            return None
        return ConfigurationError(
            f"source: must be an attribute of items in index {self._index.name!r} of table "
            f"{self._sharding.table!r}, got {self._index.logical_name!r}, which none of the items that were read "
            f"has; {len(self._removals):,} of them have {self._index.stored_name!r}, and it was not removed; check "
            "source="
        )

    def _repair(self, stored: WireItem) -> Repair | None:
        """Return the update that an item needs now; in a verification, count it only."""
        try:
            found = repair(self._sharding, self._index, stored, self.draw)
        except Exception as error:  # noqa: BLE001 - one bad item must not stop the backfill
            self.fail({name: stored[name] for name in self._sharding.key_names}, error)
            self.count(left=self.verify)
            return None
        if self.verify and found is not None:
            self.count(left=1)
            return None
        return found

    def _update(self, found: Repair | None) -> Program[None]:
        tries = 0
        while found is not None:
            try:
                yield found.send(self._sharding.table)
            except Exception as error:
                if code_of(error) != "ConditionalCheckFailedException":
                    raise
                response: Any = getattr(error, "response", {})
            else:
                self.count(written=1)
                return
            self.count(overtaken=1)
            stored = response.get("Item")
            tries += 1
            # Without an item, it was deleted. What is changed again and again is left to the verification.
            found = self._repair(stored) if stored and tries < ATTEMPTS else None
