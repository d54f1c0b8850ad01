"""The budget: calls of a client below a rate of capacity units; those that are too early wait, or are refused."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakKeyDictionary

from shardkit.capacity.attachments import Attachment
from shardkit.capacity.charge import KeyValue
from shardkit.capacity.holding import BudgetObserver, Paces
from shardkit.capacity.targets import SessionAttachment, events_of_session, partition_keys_of, target_of
from shardkit.capacity.turns import Pace, Side
from shardkit.core.checks import check_key, check_number
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from shardkit.capacity.attachments import Attached

__all__ = ["CapacityBudget"]

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
        if not hasattr(target, "carrier"):
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
