"""How long what was read in a shard map may be acted on, and what happens to an operation after that.

1. A *lease* is of one generation of a table's map. It runs for ``MAP_LEASE_SECONDS`` from before the request that read
   it, and longer if a later read shows the same generation.
2. Each request of an operation has a ``check``. Just before the request goes, after it was signed, it raises
   :class:`LeaseEndedError` if a lease of the operation has ended. Such a request was never sent.
3. :class:`Leased`, around the operation's machine, then reads the map, and sends the request again if the generation
   is still the same. Otherwise it raises :class:`MapChangedError`, and :func:`leased` begins the operation anew.
4. After ``RENEW_SECONDS``, one request of all that go is kept back in the same way, so that the others need not wait.

A lease that has ended is not extended by a read that shows another generation: requests that were planned for one
generation are never sent under a lease of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from shardkit.core.machine import Answer, Done, Machine, Program, ProgramMachine, Send, Step, Wait
from shardkit.dynamodb.values import WireItem
from shardkit.errors import StageError
from shardkit.sharding.seam import Operations
from shardkit.sharding.shard_map import MAP_LEASE_SECONDS, Clocks, ShardMapState

T = TypeVar("T")

RENEW_SECONDS = 20.0
_RENEWING_SECONDS = 3.0  # after which another request renews the lease, if the one that was to do it did not
_MOST_READS = 5  # of the map in a row without a valid lease: more than 30 seconds pass in each


class LeaseEndedError(StageError):
    """A request was not sent, because its lease has ended (or should be renewed)."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(
            f"table {lease.known.table!r}: the shard map was read more than {MAP_LEASE_SECONDS:.0f} seconds before a "
            "request could go, several times in a row; look at what slows down this process, or its connection"
        )
        self.lease = lease

    def __reduce__(self) -> tuple[Any, ...]:
        return StageError, (str(self),)


class MapChangedError(StageError):
    """The map has changed, so the rest of the operation must be planned again."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"table {table!r}: the shard map was changed during this call, which cannot go on in the new stage; call "
            "it again (query_items: with ExclusiveStartKey=items.last_evaluated_key; a load: with the same journal; a "
            "pass: when no items move)"
        )
        self.table = table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table,)


@dataclass(eq=False)
class Lease:
    """The right to act on one generation of a map; ``sharding`` is the table's in it."""

    known: KnownMap
    state: ShardMapState
    sharding: Operations
    began: tuple[float, ...]

    @property
    def valid(self) -> bool:
        return self.known.seconds_since(self.began) < MAP_LEASE_SECONDS

    @property
    def superseded(self) -> bool:
        """Whether a newer generation of the map is known."""
        return self.known.lease is not self

    def check(self, *, renewed: bool) -> None:
        """Raise if a request may not go now, or (not ``renewed``) should wait until the lease is renewed."""
        age = self.known.seconds_since(self.began)
        if age >= MAP_LEASE_SECONDS or (age >= RENEW_SECONDS and not renewed and self.known.to_renew(self)):
            raise LeaseEndedError(self)


class KnownMap:
    """What a process knows of a table's map."""

    def __init__(self, table: str, clock: Clocks, sharding_of: Callable[[ShardMapState], Operations]) -> None:
        self.table = table
        self.lease: Lease | None = None
        self._clock = clock
        self._sharding_of = sharding_of
        self._renewing: tuple[float, ...] | None = None

    def seconds_since(self, began: tuple[float, ...]) -> float:
        return max(now - then for now, then in zip(self._clock(), began, strict=True))

    def to_renew(self, lease: Lease) -> bool:
        """Return whether the caller is to renew a lease, which then no other caller does for a while."""
        if lease.superseded:
            return False
        if self._renewing is not None and self.seconds_since(self._renewing) < _RENEWING_SECONDS:
            return False
        self._renewing = self._clock()
        return True

    def read(self, key: WireItem) -> Program[None]:
        """Read the map."""
        began = self._clock()
        answer = yield Send("GetItem", {"TableName": self.table, "Key": key, "ConsistentRead": True})
        state = ShardMapState.of(answer.get("Item"), self.table)
        lease = self.lease
        if lease is not None and state == replace(lease.state, since=state.since):
            # Reads of several threads may be answered in another order than they were sent.
            if self.seconds_since(began) < self.seconds_since(lease.began):
                lease.began, self._renewing = began, None
        elif lease is None or state.generation > lease.state.generation or not lease.valid:
            # A map that was deleted and made again begins with the first generation.
            self.lease = Lease(self, state, self._sharding_of(state), began)
            self._renewing = None


class Held:
    """The leases of one operation: one for each table with a map that it names."""

    def __init__(self) -> None:
        self.leases: list[tuple[Lease, WireItem]] = []

    def add(self, lease: Lease, key: WireItem) -> None:
        """Add a lease, and the key by which its map is read."""
        if all(lease is not known for known, _ in self.leases):
            self.leases.append((lease, key))

    def check(self, *, renewed: bool = False) -> None:
        for lease, _ in self.leases:
            lease.check(renewed=renewed)

    def read(self, lease: Lease) -> Program[None]:
        return lease.known.read(next(key for known, key in self.leases if known is lease))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Checked(Send):
    request: Send

    @property
    def needed(self) -> bool:
        return self.request.needed


class Leased(Generic[T]):
    """Runs a machine under leases, whose maps it reads when they end.

    If a map has changed, it asks the machine for nothing more, waits for the answers to what is in flight (a write that
    came later could undo a newer one), and raises :class:`MapChangedError`.
    """

    def __init__(self, machine: Machine[T], held: Held) -> None:
        self._machine = machine
        self._held = held
        self._in_flight: set[Send] = set()
        self._kept_back: deque[Send] = deque()
        self._ended: Lease | None = None
        self._changed: MapChangedError | None = None
        self._reading: ProgramMachine[None] | None = None
        self._asked: Send | None = None  # of the map
        self._reads = 0

    def next(self, now: float) -> Step[T]:
        if self._ended is not None and (send := self._renew(self._ended, now)) is not None:
            return send
        if self._changed is not None:
            if self._in_flight:
                return Wait()
            raise self._changed
        if self._kept_back and self._ended is None:
            return self._checked(self._kept_back.popleft(), partial(self._held.check, renewed=True))
        step = self._machine.next(now)
        return self._checked(step, self._held.check) if isinstance(step, Send) else step

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        if not isinstance(send, _Checked):
            # Otherwise another call has read the map in the meantime.
            if self._reading is not None and send is self._asked:
                self._reading.receive(send, answer, now)
            return
        self._in_flight.discard(send)
        if isinstance(answer, LeaseEndedError) and self._reads < _MOST_READS:
            self._kept_back.append(send.request)
            self._ended = answer.lease
        elif self._changed is None:
            self._reads = 0
            self._machine.receive(send.request, answer, now)

    def _checked(self, send: Send, check: Callable[[], None]) -> Send:
        how = send.once, send.part, check, send.joins, send.second
        checked = _Checked(send.operation, send.params, send.paced, send.answer, *how, request=send)
        self._in_flight.add(checked)
        return checked

    def _renew(self, lease: Lease, now: float) -> Send | None:
        """Go on with reading a map; return the request, if one must be sent."""
        error: Exception | None = None
        if lease.valid or not lease.superseded:
            if self._reading is None:
                self._reads += 1
                self._reading = ProgramMachine(self._held.read(lease))
            try:
                step = self._reading.next(now)
            except Exception as failed:  # noqa: BLE001 - the machine decides, as for any request that was not sent
                error = failed
            else:
                if isinstance(step, Send):
                    self._asked = step
                    return step
                if not isinstance(step, Done):
                    return None
        self._reading = self._ended = None
        if lease.valid:
            return None
        if lease.superseded:
            self._changed = MapChangedError(lease.known.table)
        elif error is not None:
            kept_back, self._kept_back = self._kept_back, deque()
            for send in kept_back:
                self._machine.receive(send, error, now)
        return None


def leased(run: Callable[[Held], Program[T]]) -> Program[T]:
    """Run an operation under leases, and again if the map has changed before its last request."""
    while True:
        held = Held()
        try:
            result: T = yield Leased(ProgramMachine(run(held)), held)
        except MapChangedError:
            continue
        return result
