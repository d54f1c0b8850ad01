"""The budget: keeps the calls of a client below a rate of capacity units."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from shardkit.capacity.attach import (
    Attached,
    ClientObserver,
    IsPart,
    Observers,
    ask_for_units,
    described_by,
    partition_keys_of,
    parts_of,
    take_units,
    target_of,
)
from shardkit.capacity.charge import KeyValue, charge_of
from shardkit.capacity.membership import BORN
from shardkit.capacity.rate_queue import Pace, Turn
from shardkit.core.calls import explains_calls
from shardkit.core.checks import check_key, check_number
from shardkit.core.shares import SharedRates
from shardkit.dynamodb.requests import OPERATIONS, writes
from shardkit.dynamodb.service_errors import Kind
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.observers import Call, Holder
from shardkit.runtime.targets import Attachment, SessionAttachment, events_of_session
from shardkit.sharding.layout import Sharding

_Mode = Literal["wait", "raise"]


@explains_calls
class CapacityBudget:
    """Keep calls below a rate of capacity units a second: calls that come too early wait, or are refused.

    Example:
        >>> budget = CapacityBudget(write_units=100)
        >>> with budget.attach(orders):  # doctest: +SKIP
        ...     orders.put_item(Item={"Date": "2014-07-09", "OrderId": "A17"})

    A call is sent while no units are owed. It is charged at once what it is expected to take: what its request shows
    (the sizes of the items that it writes; for reads, the least that they cost), times the ratio by which recent calls
    of its operation differed from that. After the response, the difference to what the service reports is charged or
    given back; a call that failed gets its units back. Later calls wait for the units that are owed. So no call is too
    large, and in any ``t`` seconds at most ``rate × (t + burst)`` units are charged, plus one call's.

    Args:
        write_units: write units a second, of tables and their indexes together; None: no limit on writes. Or a
            :class:`SharedBudget`, whose rate several processes share.
        read_units: read units a second, or a SharedBudget; None: no limit on reads.
        burst: seconds whose unused units are kept, 0 or more (DynamoDB itself keeps 300). A SharedBudget has its own.
        mode: ``"wait"`` makes a call wait for its turn; ``"raise"`` refuses it, and starts with the units of ``burst``
            saved.
        timeout: the most seconds that a call waits; if its turn is later, it is refused as soon as that is known.
        clock: returns the time in seconds; for tests.
        sleep: waits for so many seconds; for tests.
        async_sleep: the same in a task, for async clients; for tests.

    Raises:
        ConfigurationError: an argument is invalid, or neither ``write_units`` nor ``read_units`` is given.

    A call that is refused raises :class:`shardkit.CapacityBudgetError`, and is not sent.

    Cost:
        No request. A call that is held asks for ``ReturnConsumedCapacity`` unless its caller did; a caller who did not
        ask does not see the answer. About 60 µs of CPU per single-item call, and one more pass over the items of
        batches. A call that waits keeps its thread, or its task.

    Source:
        DynamoDB API reference, ``ReturnConsumedCapacity``.
    """

    def __init__(
        self,
        *,
        write_units: float | SharedRates | None = None,
        read_units: float | SharedRates | None = None,
        burst: float = 1.0,
        mode: _Mode = "wait",
        timeout: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        async_sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if mode not in get_args(_Mode):
            raise ConfigurationError(f'mode: must be "wait" or "raise", got {brief(mode)}')
        given: dict[Kind, Any] = {"read": read_units, "write": write_units}
        burst = check_number("burst", burst, "seconds")
        timeout = check_number("timeout", timeout, "seconds")
        # So that what does not wait finds the burst saved, as after a pause: a first fan-out would be refused.
        began = clock() - (burst if mode == "raise" else 0.0)
        found = {side: _pace(side, units, burst, began) for side, units in given.items() if units is not None}
        if not found:
            raise ConfigurationError("read_units, write_units: both are missing; give one of them, or both")
        paces = Paces(
            paces=found,
            timeout=timeout if mode == "wait" else 0.0,
            clock=clock,
            sleep=sleep,
            async_sleep=async_sleep,
        )
        self._observers = Observers(partial(_BudgetObserver, paces))
        self._said = ", ".join(f"{side}_units={units!r}" for side, units in given.items() if units is not None)
        self._said += f", burst={burst:g}, mode={mode!r}, timeout={timeout:g}"

    def __repr__(self) -> str:
        return f"CapacityBudget({self._said})"

    def attach(self, target: Any, *, key: KeyValue = None, key_schema: Mapping[str, str] | None = None) -> Attachment:
        """Hold the calls of a client, those to one table, or those to one logical key, from now on.

        Example:
            >>> with budget.attach(orders, key="2014-07-09"):  # doctest: +SKIP
            ...     ...

        Args:
            target: what a meter can be attached to (:meth:`CapacityMeter.attach`): a client or a resource (all tables),
                a ``Table`` or a :class:`shardkit.ShardedTable` (that table, all calls on the client that it holds), a
                :class:`shardkit.TimeSeries` (all its tables, likewise), or a session (all DynamoDB clients that it
                makes from now on).
            key: a logical key, as a resource shows it: only calls that read or write it are held, and of a batch only
                the units of this key count. Scans and statements carry no key, and are not held.
            key_schema: table names to the names of their partition keys; for ``key`` on a client or a session.

        Returns:
            An :class:`Attachment`: a context manager that also has ``detach()``. A call is charged once, however many
            attachments see it. A call that waits when its attachment is detached is sent in its turn.

        Raises:
            ConfigurationError: ``target`` or ``key`` is invalid, or with ``key``, the partition key's name is unknown.
                Of a sharded table, its first call raises it if ``key`` has another type than the partition key.

        Cost:
            With ``key``, one DescribeTable for a boto3 ``Table`` that is not loaded and not in ``key_schema``.
        """
        key = None if key is None else check_key(key)
        keys: Mapping[str, str] = partition_keys_of(key_schema)
        events = events_of_session(target)
        if events is not None:
            _check_known(key, None, keys)
            return SessionAttachment(events, lambda client: self._observers.attach(client, None, keys, key=key))
        given = keys
        client, table, keys = target_of(target, given, describe=key is not None)
        if keys is not given:  # the table was described
            described = described_by(target)
            if described is not None:
                _check_type(key, described)
        # The calls of a ShardedTable bring the name of its partition key.
        if not hasattr(target, "runner"):
            _check_known(key, table, keys)
        return self._observers.attach(client, table, keys, key=key, is_part=parts_of(target))


def _pace(side: Kind, units: Any, burst: float, now: float) -> Pace:
    option = f"{side}_units"
    if isinstance(units, SharedRates):
        return Pace(side, units.shared_rate(side, option), burst=0.0, now=now)
    rate = check_number(option, units, f"{side} units a second", above=True)
    return Pace(side, rate, burst=rate * burst, now=now)


def _check_known(key: KeyValue, table: str | None, keys: Mapping[str, str]) -> None:
    if key is not None and (table not in keys if table is not None else not keys):
        raise ConfigurationError(
            f"key: got {brief(key)}, but the name of the partition key of {table or 'the tables'} is unknown; "
            f'give key_schema={{"{table or "Orders"}": "Date"}}'
        )


_TYPES: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "B": ("binary", bytes),
    "N": ("a number", (int, Decimal)),
    "S": ("text", str),
}


def _check_type(key: KeyValue, sharding: Sharding) -> None:
    """Refuse a key of another type than the table's: it would hold no call."""
    kind, types = _TYPES.get(sharding.types.get(sharding.partition_key, ""), ("", object))
    if key is not None and not isinstance(key, types):
        raise ConfigurationError(
            f"key: must be {kind}, as {sharding.partition_key!r} of table {sharding.table!r} is, got "
            f"{brief(key)}; the budget would hold no call"
        )


_log = logging.getLogger("shardkit")
_ALL = (None, None)
_NOTHING: Mapping[Kind, float] = {"read": 0.0, "write": 0.0}
_LONGEST_WAIT = 86_400.0  # seconds; Python's waits have an upper bound; after it, the turn is asked again


@dataclass(eq=False, kw_only=True)
class Paces:
    """The rates of a budget, for many threads and tasks; ``timeout`` is the most seconds that a call waits."""

    paces: Mapping[Kind, Pace]
    timeout: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    async_sleep: Callable[[float], Awaitable[None]]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def turn(self, operation: str, side: Kind, units: float) -> Turn | None:
        """Return a call's turn; None: its side has no rate."""
        pace = self.paces.get(side)
        if pace is None:
            return None
        with self.lock:
            return Turn(pace, operation, units, self.clock(), self.timeout)

    def wait(self, turn: Turn) -> None:
        """Wait until the call may be sent."""
        while seconds := self._seconds(turn):
            self.sleep(seconds)

    async def wait_async(self, turn: Turn) -> None:
        """Wait in a task until the call may be sent."""
        while seconds := self._seconds(turn):
            await self.async_sleep(seconds)

    def _seconds(self, turn: Turn) -> float:
        with self.lock:
            now = self.clock()
            until = turn.next(now)
        return 0.0 if until is None else min(until - now, _LONGEST_WAIT)

    def settle(self, turn: Turn | None, took: Mapping[Kind, float]) -> None:
        """Charge the rest of what a call took."""
        with self.lock:
            now = self.clock()
            for side, pace in self.paces.items():
                # A write may be reported as a read: a transaction that is repeated.
                if turn is not None and turn.side == side:
                    turn.settle(took[side], now)
                else:
                    pace.take(took[side], now)


class _Held(NamedTuple):
    """The calls that a budget holds on a client: (table, logical key) of each attachment, None for all.

    ``parts`` are those of time series, with the rule for their tables.
    """

    pairs: frozenset[tuple[str | None, KeyValue]]
    parts: Sequence[tuple[IsPart, KeyValue]]
    only: Container[str] | None
    partition_keys: Mapping[str, str]
    checked: set[str]
    """The tables for which the keys that were given are right."""

    def units(self, call: Call, consumed: Any, parsed: Mapping[str, Any]) -> Mapping[Kind, float] | None:
        """Return the units that count against the budget, reported or else estimated; None: the call is not held."""
        charge = charge_of(call, consumed, parsed, only=self.only, partition_keys=self.partition_keys)
        for part in charge.keys:
            if part.table in charge.shardings and part.table not in self.checked:
                self._check(part.table, charge.shardings[part.table])
                self.checked.add(part.table)
        parts = [part.units for part in charge.keys if self._has(part.table, part.logical)]
        if not parts and _ALL not in self.pairs:
            return None
        return {
            "read": sum(units.read + units.estimated_read for units in parts),
            "write": sum(units.write + units.estimated_write for units in parts),
        }

    def _check(self, table: str, sharding: Sharding) -> None:
        """Check the keys that were given for a table; warn of those that look stored, and may be logical."""
        keys = [key for of, key in self.pairs if of == table] + [key for is_part, key in self.parts if is_part(table)]
        for key in keys:
            _check_type(key, sharding)
            if isinstance(key, str | bytes):
                logical, shard = sharding.strategy.split(key)
                if shard is not None:
                    _log.warning(
                        "key: %r looks like a key as table %r stores it; the budget holds a logical key, perhaps %r",
                        key, table, logical,
                    )  # fmt: skip

    def _has(self, table: str, logical: KeyValue) -> bool:
        # For an unknown key, the last two are the first two.
        return not self.pairs.isdisjoint((_ALL, (table, None), (table, logical), (None, logical))) or any(
            key in {None, logical} and is_part(table) for is_part, key in self.parts
        )


@dataclass(eq=False, slots=True)
class _Note:
    """A call under way: what it is expected to take, and its turn, once it has one."""

    held: _Held
    units: Mapping[Kind, float]
    asked: bool
    entered: bool = False
    turn: Turn | None = None


class _BudgetObserver(ClientObserver, Holder):
    """Applies a budget to a client's calls.

    If a call cannot be read, the error is logged, and the call is not held.
    """

    def __init__(self, paces: Paces, client: Any) -> None:
        super().__init__(client)
        self._paces = paces
        self._held = _Held(frozenset(), (), frozenset(), {}, set())

    def before(self, call: Call) -> None:
        # What renews a shared budget must not wait for it.
        if call.operation not in OPERATIONS or BORN in call.params.get("ExpressionAttributeNames", {}).values():
            return
        try:
            held = self._held
            units = held.units(call, None, {})
            if units is not None:
                call.notes[self] = _Note(held, units, asked=ask_for_units(call))
        except ConfigurationError:
            raise
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the budget could not read the request; it is not held", call.operation)

    def hold(self, call: Call) -> None:
        turn = self._turn(call)
        if turn is not None:
            self._paces.wait(turn)

    async def hold_async(self, call: Call) -> None:
        turn = self._turn(call)
        if turn is not None:
            await self._paces.wait_async(turn)

    def _turn(self, call: Call) -> Turn | None:
        note = call.notes.get(self)
        if note is None:
            return None
        side: Kind = "write" if writes(call) else "read"
        turn = self._paces.turn(call.operation, side, note.units[side])
        note.entered, note.turn = True, turn
        return turn

    def check(self, call: Call) -> None:
        note = call.notes.get(self)
        if note is not None and note.turn is not None:
            note.turn.check()

    def release(self, call: Call) -> None:
        note = call.notes.pop(self, None)
        if note is not None and note.turn is not None:
            self._paces.settle(note.turn, _NOTHING)

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """Do nothing: the call is charged as a whole."""
        return

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        note = call.notes.pop(self, None)
        if note is None:
            return
        try:
            consumed = take_units(parsed, asked=note.asked)
            # A call that another handler answered was not held, and took nothing.
            if note.entered:
                self._paces.settle(note.turn, note.held.units(call, consumed, parsed) or _NOTHING)
        except Exception:  # noqa: BLE001 - of whatever kind
            _log.exception("%s: the budget could not read the response; it stays as expected", call.operation)

    def _set(self, attached: tuple[Attached, ...]) -> None:
        super()._set(attached)
        pairs = frozenset((known.table, known.key) for known in attached if known.is_part is None)
        parts = [(known.is_part, known.key) for known in attached if known.is_part is not None]
        self._held = _Held(pairs, parts, self._only, self._keys, set())
