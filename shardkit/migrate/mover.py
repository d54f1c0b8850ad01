"""The machine of a move: it brings each item from its old home to its new one, and verifies that all are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Unpack

from shardkit.core.machine import Program, Response
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import AmbiguousItemError, InvalidKeyError, ShardkitError
from shardkit.migrate.freeze import drop_stub, finish, freeze, unmark
from shardkit.migrate.marks import MARK, Homes, Moving, is_stub
from shardkit.migrate.sending import Sending
from shardkit.passes.table_pass import PassOptions, PassReport, TablePass, Tasks, reading
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.shard_map import is_map_key


class Location(Enum):
    """Where a stored item is in a move."""

    HOME = auto()
    COPY = auto()
    """At its new home, still with the mark of its copy (on a table with a stream)."""
    OLD = auto()
    STUB = auto()


def location_of(moving: Moving, stored: WireItem) -> tuple[Location, Homes]:
    """Return where a stored item is in a move, and its homes.

    Raises:
        InvalidKeyError: It is at none of its homes, or its key cannot be told from a shard of another key.
    """
    key = key_in(moving, stored)
    name = moving.partition_key
    homes = moving.homes({**key, name: moving.logical(key[name])[0]})
    place = comparable_item(key)
    if place == comparable_item(homes.new):
        return Location.COPY if MARK in stored else Location.HOME, homes
    if place == comparable_item(homes.old):
        return Location.STUB if is_stub(stored) else Location.OLD, homes
    raise InvalidKeyError(
        f"{name}: neither where the old strategy stores the item nor where the new one does; if it is a key of its own "
        "that looks like a shard of another, give new another separator=; otherwise, check that old is the strategy by "
        "which it was written"
    )


def key_in(moving: Moving, stored: WireItem) -> WireItem:
    return {name: stored[name] for name in moving.key_names}


def grouped(what: str, failures: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Say each reason once, with the keys of its items."""
    keys: dict[str, list[str]] = {}
    for key, reason in failures:
        keys.setdefault(reason, []).append(key)
    for reason, having in keys.items():
        if len(having) == 1:
            yield f"{what}: {having[0]}: {reason}"
            continue
        yield f"{what}: {reason}"
        yield from (f"  {key}" for key in having)


@dataclass(frozen=True, kw_only=True)
class MoveReport(PassReport):
    """What a move did and found.

    Attributes:
        table: The table's name.
        read: The items that the move read, with those that need not move.
        moved: The items that it moved, or whose move it finished.
        stubs: The stubs that it deleted.
        conflicts: The items that were not moved, because another item is at their new place. Both are still there.
        failed: The items that cannot be moved, with those in conflict.
        failures: The stored primary keys of the first ten of them, each with the reason; also of those that only the
            verification has seen.
        verified: The items that the verification read.
        left: The items that it found outside their new place or with a mark, and stubs.
        stubs_left: Those of them that are stubs.
        complete: Whether the verification read the whole table, and found none left.
        read_units: Read units that were consumed.
        write_units: Write units that were consumed, of the table and its indexes, as far as the service reports them.
        requests: The requests that were sent.
        throttles: The requests that were throttled.
        seconds: How long it took.
    """

    table: str
    moved: int = 0
    stubs: int = 0
    conflicts: int = 0
    stubs_left: int = 0

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.read:
            more = {"stubs deleted": self.stubs, "in conflict": self.conflicts, "failed": self.failed}
            told = "".join(f", {number:,} {what}" for what, number in more.items() if number)
            yield f"{self.read:,} items read: {self.moved:,} moved{told}"
        yield from grouped("failed", self.failures)
        found = f"{self.left:,} are not at their new places" if self.left else "all are at their new places"
        if self.left and self.left == self.stubs_left:
            found += ", all of them stubs, as processes still leave in 'switch': it is normal to run the move again"
        yield f"{self.verified:,} items verified: {found}"


class Mover(TablePass[MoveReport]):
    """One pass of a move. ``verify``: count what is left.

    ``token`` returns a new UUID in hex; ``streamed``: the table has a stream, for whose readers copies are marked.
    """

    def __init__(
        self,
        moving: Moving,
        *,
        token: Callable[[], str],
        streamed: bool = False,
        **options: Unpack[PassOptions],
    ) -> None:
        super().__init__(moving.table, MoveReport(table=moving.table), reading((*moving.key_names, MARK)), **options)
        self._moving = moving
        self._token = token
        self._streamed = streamed
        self._fan_out = FanOutOptions(1, self.draw)

    def take(self, segment: int, answer: Response) -> Tasks:
        own = [stored for stored in answer["Items"] if not is_map_key(stored, self._moving.keys)]
        self.count(**{"verified" if self.verify else "read": len(own)})
        for stored in own:
            try:
                location, homes = location_of(self._moving, stored)
            except ShardkitError as error:
                self.fail(key_in(self._moving, stored), error)
                self.count(left=self.verify)
                continue
            if location is Location.HOME:
                continue
            if self.verify:
                self.count(left=1, stubs_left=location is Location.STUB)
            else:
                yield (homes.new if location is Location.COPY else homes.old), self._program(location, homes, stored)

    def _program(self, location: Location, homes: Homes, stored: WireItem) -> Program[None]:
        send = Sending(self._moving.table, self._fan_out)
        if location is Location.COPY:
            yield from unmark(send, homes, stored[MARK])
            return
        if location is Location.STUB:
            yield from drop_stub(send, homes)
            self.count(stubs=1)
            return
        # Also of an item that was frozen when it was read: the answer has all of it, to be copied.
        there = yield from freeze(send, homes, self._token(), streamed=self._streamed)
        if there is None or is_stub(there):
            return  # deleted, or moved, since it was read
        try:
            yield from finish(self._moving, send, homes, there)
        except AmbiguousItemError:
            self.count(conflicts=1)
            raise
        self.count(moved=1)
