"""The budget: calls of a client below a rate of capacity units; those that are too early wait, or are refused."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args
from weakref import WeakKeyDictionary

from shardkit.capacity.attach import (
    Attachment,
    ClientObserver,
    SessionAttachment,
    ask_for_units,
    events_of_session,
    partition_keys_of,
    take_units,
    target_of,
)
from shardkit.capacity.charge import KeyValue, charge_of
from shardkit.capacity.rate_queue import Pace, Side, Turn
from shardkit.core.checks import check_key, check_number
from shardkit.core.machine import Answer, Done, Send, Wait
from shardkit.dynamodb.requests import OPERATIONS, writes
from shardkit.errors import ConfigurationError
from shardkit.runtime.drivers import AsyncDriver, Driver
from shardkit.runtime.observers import Call, Holder

if TYPE_CHECKING:
    from shardkit.capacity.attach import Attached

_Mode = Literal["wait", "raise"]


class CapacityBudget:
    """Holds calls below a rate of capacity units a second: those that are too early wait, or are refused.

    Example:
        >>> budget = CapacityBudget(write_units=100)
        >>> with budget.attach(orders):  # doctest: +SKIP
        ...     orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})

    A call goes while nothing is owed. It is charged what it is expected to take: what its request shows (the sizes of
    the items that it writes; of reads, the least that they cost), times what calls of its operation took of late
    compared with that. After its response it is charged the rest of what the service reports, or given it back; so is a
    call that failed. What is owed, those that come later wait for. So no call is too large, and no more than
    ``rate × (t + burst)`` units, and one call's beyond, are charged in any ``t`` seconds.

    Args:
        write_units: write units a second, of tables and their indexes together; None: writes are not held.
        read_units: read units a second; None: reads are not held.
        burst: seconds whose units are kept where they were not used, 0 or more (DynamoDB itself keeps 300).
        mode: ``"wait"`` lets a call wait for its turn; ``"raise"`` refuses it.
        timeout: seconds that a call waits at the most; one whose turn is later is refused as soon as that is known.
        clock: gives the time in seconds; for tests.
        sleep: waits so many seconds; for tests.
        async_sleep: the same in a task, for async clients; for tests.

    Raises:
        ConfigurationError: an argument cannot work, or neither ``write_units`` nor ``read_units`` is given.

    A call that is refused raises :class:`shardkit.CapacityBudgetError`; nothing of it was sent.

    Cost:
        No request. A call that is held asks for ``ReturnConsumedCapacity`` unless its caller asked; a caller who did
        not does not see the answer. About 60 µs of CPU a single-item call, and one more pass over the items of larger
        ones. A call that waits keeps its thread, or its task.

    Source:
        DynamoDB API reference, ``ReturnConsumedCapacity``.
    """

    def __init__(
        self,
        *,
        write_units: float | None = None,
        read_units: float | None = None,
        burst: float = 1.0,
        mode: _Mode = "wait",
        timeout: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        async_sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if mode not in get_args(_Mode):
            raise ConfigurationError(f'mode is "wait" or "raise", got {mode!r:.100}')
        rates: dict[Side, float] = {}
        if read_units is not None:
            rates["read"] = check_number("read_units", read_units, "read units a second", above=True)
        if write_units is not None:
            rates["write"] = check_number("write_units", write_units, "write units a second", above=True)
        if not rates:
            raise ConfigurationError("a budget has no rate; give read_units= or write_units=, or both (units a second)")
        burst = check_number("burst", burst, "seconds")
        timeout = check_number("timeout", timeout, "seconds")
        now = clock()
        self._paces = Paces(
            {side: Pace(side, rate, burst=rate * burst, now=now) for side, rate in rates.items()},
            timeout=timeout if mode == "wait" else 0.0,
            clock=clock,
            sleep=sleep,
            async_sleep=async_sleep,
        )
        self._lock = threading.Lock()
        self._observers: WeakKeyDictionary[Any, BudgetObserver] = WeakKeyDictionary()

    def attach(self, target: Any, *, key: KeyValue = None, key_schema: Mapping[str, str] | None = None) -> Attachment:
        """Hold the calls of a client, those to one table, or those to one logical key, from now on.

        Example:
            >>> with budget.attach(orders, key="2014-07-09"):  # doctest: +SKIP
            ...     ...

        Args:
            target: what a meter can be attached to (:meth:`CapacityMeter.attach`): a client or a resource (all tables),
                a ``Table`` or a :class:`shardkit.ShardedTable` (that table, all calls on the client that it holds), or
                a session (all DynamoDB clients that it makes from now on).
            key: a logical key, as a resource shows it: only calls that read or write it, and of a batch only what it
                takes there. Scans and statements do not say a key, and are not held.
            key_schema: a table's name to the name of its partition key; with ``key``, on a client or a session.

        Returns:
            An :class:`Attachment`: a context manager that has ``detach()`` too. A call is charged once, however many
            attachments see it. A call that waits when it is detached goes in its turn.

        Raises:
            ConfigurationError: ``target`` is none of these, ``key`` is no key, or nobody says where it is in a call.

        Cost:
            With ``key``, one DescribeTable for a boto3 ``Table`` that is not loaded and not in ``key_schema``.
        """
        key = None if key is None else check_key(key)
        keys: Mapping[str, str] = partition_keys_of(key_schema)
        events = events_of_session(target)
        if events is not None:
            _check_known(key, None, keys)
            return SessionAttachment(events, lambda client: self._attach(client, None, keys, key))
        client, table, keys = target_of(target, keys, describe=key is not None)
        # The calls of a ShardedTable bring what is known of its keys.
        if not hasattr(target, "runner"):
            _check_known(key, table, keys)
        return self._attach(client, table, keys, key)

    def _attach(self, client: Any, table: str | None, keys: Mapping[str, str], key: KeyValue) -> Attached:
        with self._lock:
            observer = self._observers.get(client)
            if observer is None:
                observer = self._observers[client] = BudgetObserver(self._paces, client)
        return observer.attach(table, keys, key)


def _check_known(key: KeyValue, table: str | None, keys: Mapping[str, str]) -> None:
    if key is not None and (table not in keys if table is not None else not keys):
        raise ConfigurationError(
            f"key={key!r:.100} needs the name of the partition key, which is not known of "
            f'{table or "a client or a session"}; give key_schema={{"{table or "Orders"}": "Date"}}'
        )


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
