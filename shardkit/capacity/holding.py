"""A budget's hands on the calls of its clients: what is asked of them, and the waiting, which a driver does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple

from shardkit.capacity.attachments import ClientObserver, ask_for_units, take_units
from shardkit.capacity.charge import KeyValue, charge_of
from shardkit.capacity.turns import Pace, Side, Turn
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.dynamodb.requests import OPERATIONS, writes
from shardkit.runtime.drivers import AsyncDriver, Driver
from shardkit.runtime.observers import Call, Holder

if TYPE_CHECKING:
    from shardkit.capacity.attachments import Attached

__all__ = ["BudgetObserver", "Paces"]

_log = logging.getLogger("shardkit")
_ALL = (None, None)
_NOTHING: Mapping[Side, float] = {"read": 0.0, "write": 0.0}


class Paces:
    """The paces of a budget, for many threads and tasks, with their time.

    Args:
        paces: by what their units are.
        timeout: seconds that a call waits at the most.
        clock: gives the time in seconds.
        sleep: waits so many seconds.
        async_sleep: the same in a task.
    """

    def __init__(
        self,
        paces: Mapping[Side, Pace],
        *,
        timeout: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        async_sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._paces = paces
        self._timeout = timeout
        self._clock = clock
        self._sleep = sleep
        self._async_sleep = async_sleep
        self._lock = threading.Lock()

    def turn(self, operation: str, side: Side, units: float) -> Turn | None:
        """Give a call its turn; None: its side has no rate."""
        pace = self._paces.get(side)
        if pace is None:
            return None
        with self._lock:
            return Turn(pace, operation, units, self._clock(), self._timeout)

    def wait(self, turn: Turn) -> None:
        """Wait until a call may go."""
        shared = _Shared(turn, self._lock)
        Driver(shared, shared.send, executor=shared.executor, clock=self._clock, sleep=self._sleep).run()

    async def wait_async(self, turn: Turn) -> None:
        """Wait in a task until a call may go."""
        shared = _Shared(turn, self._lock)
        await AsyncDriver(shared, shared.send, clock=self._clock, sleep=self._async_sleep).run()

    def settle(self, turn: Turn | None, took: Mapping[Side, float]) -> None:
        """Charge the rest of what a call took."""
        with self._lock:
            now = self._clock()
            for side, pace in self._paces.items():
                # A write may be reported as a read: a transaction that is repeated.
                if turn is not None and turn.side == side:
                    turn.settle(took[side], now)
                else:
                    pace.take(took[side], now)


class _Shared:
    """A turn among others of other threads, as a machine that a driver can run."""

    def __init__(self, turn: Turn, lock: threading.Lock) -> None:
        self._turn = turn
        self._lock = lock

    def next(self, now: float) -> Wait | Done[None]:
        """Go, or wait for a while."""
        with self._lock:
            return self._turn.next(now)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take an answer; there is none."""
        self._turn.receive(send, answer, now)

    def send(self, request: Send) -> Any:
        """Send what a turn asks for; it asks for nothing."""
        raise AssertionError(f"a turn sends nothing, and gave {request}")

    def executor(self) -> Executor:
        """Give threads to send with; none are needed."""
        raise AssertionError("a turn sends nothing, and needs no threads")


class _Held(NamedTuple):
    """What a budget holds on a client: (table, logical key) of each attachment, None for all."""

    pairs: frozenset[tuple[str | None, KeyValue]]
    only: frozenset[str] | None
    partition_keys: Mapping[str, str]

    def units(self, call: Call, consumed: Any, parsed: Mapping[str, Any]) -> Mapping[Side, float] | None:
        """Say what a call takes of what is held: as reported, else estimated; None: it has nothing to do with that."""
        charge = charge_of(call, consumed, parsed, only=self.only, partition_keys=self.partition_keys)
        parts = [part.units for part in charge.keys if self._has(part.table, part.logical)]
        if not parts and _ALL not in self.pairs:
            return None
        return {
            "read": sum(units.read + units.estimated_read for units in parts),
            "write": sum(units.write + units.estimated_write for units in parts),
        }

    def _has(self, table: str, logical: KeyValue) -> bool:
        # Of a key that is not known the third and fourth are the first two.
        return not self.pairs.isdisjoint((_ALL, (table, None), (table, logical), (None, logical)))


class _Note:
    """What is known of a call that is under way: what it should take of what, and its turn, once it had one."""

    __slots__ = ("asked", "entered", "held", "turn", "units")

    def __init__(self, held: _Held, units: Mapping[Side, float], *, asked: bool) -> None:
        self.held = held
        self.units = units
        self.asked = asked
        self.entered = False
        self.turn: Turn | None = None


class BudgetObserver(ClientObserver, Holder):
    """One budget's hands on one client.

    What goes wrong in reading a call does not reach it; it is logged, and the call is not held.
    """

    def __init__(self, paces: Paces, client: Any) -> None:
        super().__init__(client)
        self._paces = paces
        self._held = _Held(frozenset(), frozenset(), {})

    def before(self, call: Call) -> None:
        """Ask for what the call consumes, and note what it should."""
        if call.operation not in OPERATIONS:
            return
        try:
            held = self._held
            units = held.units(call, None, {})
            if units is not None:
                call.notes[self] = _Note(held, units, asked=ask_for_units(call))
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the budget could not read the request; it is not held", call.operation)

    def hold(self, call: Call) -> None:
        """Let the call wait for its turn, or refuse it."""
        turn = self._turn(call)
        if turn is not None:
            self._paces.wait(turn)

    async def hold_async(self, call: Call) -> None:
        """Let the call of an async client wait for its turn, or refuse it."""
        turn = self._turn(call)
        if turn is not None:
            await self._paces.wait_async(turn)

    def _turn(self, call: Call) -> Turn | None:
        note = call.notes.get(self)
        if note is None:
            return None
        side: Side = "write" if writes(call) else "read"
        turn = self._paces.turn(call.operation, side, note.units[side])
        note.entered, note.turn = True, turn
        return turn

    def release(self, call: Call) -> None:
        """Give back what a call was charged that does not go."""
        note = call.notes.pop(self, None)
        if note is not None and note.turn is not None:
            self._paces.settle(note.turn, _NOTHING)

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """Do nothing: the call as a whole is charged."""

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """Charge what the call took."""
        note = call.notes.pop(self, None)
        if note is None:
            return
        try:
            consumed = take_units(parsed, asked=note.asked)
            # One that another handler answered was not held, and took nothing.
            if note.entered:
                self._paces.settle(note.turn, note.held.units(call, consumed, parsed) or _NOTHING)
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the budget could not read the response; it stays as expected", call.operation)

    def _set(self, attached: tuple[Attached, ...]) -> None:
        super()._set(attached)
        pairs = frozenset((known.table, known.key) for known in attached)
        self._held = _Held(pairs, self._only, self._keys)
