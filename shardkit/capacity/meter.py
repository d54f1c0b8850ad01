"""The meter: what the calls of a client consumed, from their responses where they say, estimated where they don't."""

from __future__ import annotations

import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from boto3.resources.base import ServiceResource
from botocore.exceptions import BotoCoreError, ClientError

from shardkit.capacity.charges import OPERATIONS, tables_of
from shardkit.capacity.tally import Charge, KeyOfTable, Tally, Usage, charge_of
from shardkit.capacity.units import table_name
from shardkit.errors import ConfigurationError
from shardkit.events import Call, observe, unobserve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Attachment", "CapacityMeter", "Scope"]

# The scopes, of all meters, whose ``with`` this context is inside of.
_scopes: ContextVar[tuple[Scope, ...]] = ContextVar("shardkit_capacity_scopes", default=())
# What several meters on one client share about a call: the first asks, the first to see the response takes it out.
_SHARED = "shardkit.capacity"
_ASK = "ReturnConsumedCapacity"


class _Totals:
    """The figures that a scope and a meter both have; each is a snapshot."""

    def __init__(self, *, max_keys: int) -> None:
        self._lock = threading.Lock()
        self._tally = Tally(max_keys=max_keys)

    @property
    def total(self) -> Usage:
        """Everything, as one :class:`Usage`."""
        with self._lock:
            return self._tally.total

    @property
    def read_units(self) -> float:
        """Read units that the service reported."""
        return self.total.read_units

    @property
    def write_units(self) -> float:
        """Write units that the service reported."""
        return self.total.write_units

    @property
    def estimated_read_units(self) -> float:
        """Read units that no response said; never a part of ``read_units``."""
        return self.total.estimated_read_units

    @property
    def estimated_write_units(self) -> float:
        """Write units that no response said (of failed conditions, say); never a part of ``write_units``."""
        return self.total.estimated_write_units

    @property
    def requests(self) -> int:
        """API calls that read or write items, failed ones too; botocore's retries are not counted."""
        return self.total.requests

    @property
    def by_table(self) -> dict[str, Usage]:
        """Per table name, its indexes included."""
        with self._lock:
            return dict(self._tally.by_table)

    @property
    def by_index(self) -> dict[tuple[str, str], Usage]:
        """Per (table, index), as far as the service said it (it does not if the caller asked for ``TOTAL``)."""
        with self._lock:
            return dict(self._tally.by_index)

    @property
    def by_operation(self) -> dict[str, Usage]:
        """Per API operation (``"PutItem"``)."""
        with self._lock:
            return dict(self._tally.by_operation)

    @property
    def by_key(self) -> dict[KeyOfTable, Usage]:
        """Per (table, logical key); units of batches are apportioned and stand under the estimates."""
        with self._lock:
            return dict(self._tally.by_key)

    @property
    def other_keys(self) -> Usage:
        """What was consumed by keys that ``max_keys`` pushed out of ``by_key``."""
        with self._lock:
            return self._tally.other_keys

    def hottest(self, n: int = 10) -> list[tuple[KeyOfTable, Usage]]:
        """Give the ``n`` keys that consumed the most units, estimates counted in the ranking, the most first.

        Example:
            >>> meter.hottest(5)  # doctest: +SKIP
            [(('Orders', '2014-07-09'), Usage(read_units=0.0, write_units=812.0, ...)), ...]

        Args:
            n: how many at most.

        Returns:
            Pairs of (table, logical key) and its :class:`Usage`.

        Cost:
            No request; sorts the keys.
        """
        with self._lock:
            return self._tally.hottest(n)

    def add(self, charge: Charge) -> None:
        """Add what one call consumed."""
        with self._lock:
            self._tally.add(charge)

    def _table(self, title: str) -> str:
        with self._lock:
            tally = self._tally
            rows = [(f"{title}: {tally.total.requests} requests", tally.total)]
            rows += [(f"  table {name}", usage) for name, usage in sorted(tally.by_table.items())]
            rows += [(f"  index {table} {index}", usage) for (table, index), usage in sorted(tally.by_index.items())]
            rows += [(f"  {name}", usage) for name, usage in sorted(tally.by_operation.items())]
            rows += [(f"  key {table} {key!r:.60}", usage) for (table, key), usage in tally.hottest(5)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {usage}" for name, usage in rows)


class Scope(_Totals):
    """What the calls made inside its ``with`` consumed, in this context and those copied from it; see ``scope``."""

    def __init__(self, meter: CapacityMeter, name: str, *, max_keys: int) -> None:
        super().__init__(max_keys=max_keys)
        self.meter = meter
        self.name = name

    def __enter__(self) -> Self:
        """Count from now on."""
        _scopes.set((*_scopes.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count no more calls that start now; the figures stay."""
        # Without a token: a generator or a task may leave the scope in another context than it was entered in.
        stack = _scopes.get()
        for place in range(len(stack) - 1, -1, -1):
            if stack[place] is self:
                _scopes.set(stack[:place] + stack[place + 1 :])
                return

    def __str__(self) -> str:
        """Give the figures with their units, as plain text."""
        return self._table(self.name)


class Attachment:
    """A meter on a client or a table, until ``detach`` or the end of its ``with``."""

    def __init__(self, observer: _Observer, table: str | None, keys: Mapping[str, str]) -> None:
        self._observer = observer
        self.table = table
        self.keys = keys

    def detach(self) -> None:
        """Count no more calls through this attachment; doing it twice does nothing."""
        self._observer.remove(self)

    def __enter__(self) -> Self:
        """Give the attachment; it counts already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach."""
        self.detach()


class _Ask:
    """What happened to ``ConsumedCapacity`` in one call."""

    def __init__(self, *, asked: bool) -> None:
        self.asked = asked
        self.taken = False
        self.consumed: Any = None


class _Observer:
    """One meter's eyes on one client, however many attachments it has there: a call is counted once."""

    def __init__(self, meter: CapacityMeter, client: Any) -> None:
        self._meter = meter
        # Weak: a client that is dropped while it is measured must not live on through its own handlers.
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._attachments: tuple[Attachment, ...] = ()

    def add(self, attachment: Attachment) -> None:
        with self._lock:
            self._attachments = (*self._attachments, attachment)
            client = self._client()
            if client is not None:
                observe(client, self)

    def remove(self, attachment: Attachment) -> None:
        with self._lock:
            self._attachments = tuple(known for known in self._attachments if known is not attachment)
            client = self._client()
            if not self._attachments and client is not None:
                unobserve(client, self)

    def before(self, call: Call) -> None:
        if call.operation not in OPERATIONS:
            return
        attachments = self._attachments
        only: frozenset[str] | None = None
        if attachments and all(known.table is not None for known in attachments):
            only = frozenset(known.table for known in attachments if known.table is not None)
            if not only & tables_of(call):
                return
        if _SHARED not in call.notes:
            asked = call.params.get(_ASK, "NONE") != "NONE"
            call.notes[_SHARED] = _Ask(asked=asked)
            if not asked:
                call.params[_ASK] = "INDEXES"
        keys = {table: name for known in attachments for table, name in known.keys.items()}
        call.notes[self] = (
            only,
            keys,
            tuple(dict.fromkeys(scope for scope in _scopes.get() if scope.meter is self._meter)),
        )

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        if self not in call.notes:
            return
        only, keys, scopes = call.notes.pop(self)
        ask: _Ask = call.notes[_SHARED]
        if not ask.taken:
            ask.taken = True
            ask.consumed = parsed.get("ConsumedCapacity")
            if not ask.asked:
                parsed.pop("ConsumedCapacity", None)
        charge = charge_of(call, ask.consumed, parsed, only=only, partition_key=keys.get)
        for totals in (self._meter, *scopes):
            totals.add(charge)


class CapacityMeter(_Totals):
    """Counts what calls consume, on the client: from their responses where they say, estimated where they don't.

    Example:
        >>> meter = CapacityMeter()
        >>> with meter.attach(table), meter.scope("import") as used:  # doctest: +SKIP
        ...     table.put_item(Item={"Date": "2014-07-09", "Total": 12})
        >>> used.write_units, meter.hottest(5)  # doctest: +SKIP
        (1.0, [(('Orders', '2014-07-09'), Usage(read_units=0.0, write_units=1.0, ...))])

    The meter has the figures of all scopes together, and of calls outside any: ``read_units``, ``write_units``,
    ``estimated_read_units``, ``estimated_write_units``, ``requests``, ``by_table``, ``by_index``, ``by_operation``,
    ``by_key``, ``hottest(n)``. ``print(meter)`` shows them.

    Estimated are: a write whose condition failed (the size of the item where the error carries it, else one unit, which
    is the least it cost), and successful responses without ``ConsumedCapacity``. Calls that failed otherwise count as
    requests without units.

    Args:
        max_keys: how many keys ``by_key`` holds apart, at least; beyond twice as many those with the fewest units are
            added to ``other_keys``.

    Raises:
        ConfigurationError: ``max_keys`` is less than 1.

    Cost:
        No request. Every call asks for ``ReturnConsumedCapacity="INDEXES"`` unless its caller asked; a caller who did
        not does not see the answer. One more pass over the items of batches.

    Source:
        DynamoDB API reference, ``ReturnConsumedCapacity``.
    """

    def __init__(self, *, max_keys: int = 100_000) -> None:
        super().__init__(max_keys=max_keys)
        self._max_keys = max_keys
        self._observers: WeakKeyDictionary[Any, _Observer] = WeakKeyDictionary()

    def attach(self, target: Any, *, key_schema: Mapping[str, str] | None = None) -> Attachment:
        """Count the calls of a client, or those of one table on its client.

        Example:
            >>> with meter.attach(boto3.client("dynamodb"), key_schema={"Orders": "Date"}):  # doctest: +SKIP
            ...     ...

        Args:
            target: a boto3 client (all its tables), or a boto3 ``Table`` or :class:`shardkit.ShardedTable` (only that
                table, all calls on the client that it holds).
            key_schema: table name to the name of its partition key, for ``by_key``. Calls on a ``ShardedTable`` bring
                theirs, and a boto3 ``Table`` is asked for it here. For a plain client ``by_key`` has only the tables
                that are named here.

        Returns:
            An :class:`Attachment`: a context manager that has ``detach()`` too. Attaching the same twice counts once.

        Raises:
            ConfigurationError: ``target`` is none of these, or ``key_schema`` no mapping of names to names.

        Cost:
            One DescribeTable for a boto3 ``Table`` that is not loaded and not in ``key_schema``; where it is refused,
            ``by_key`` stays empty for it.
        """
        given = dict(key_schema or {})
        if not all(isinstance(name, str) for pair in given.items() for name in pair):
            raise ConfigurationError(
                f'key_schema maps table names to names of partition keys, got {key_schema!r:.200}; give {{"T": "pk"}}'
            )
        meta = getattr(target, "meta", None)
        client = getattr(meta, "client", None)
        name = None if client is None else getattr(target, "name", None)
        if client is None:
            client = target
        if getattr(getattr(client, "meta", None), "events", None) is None:
            raise ConfigurationError(
                f"a meter is attached to a boto3 DynamoDB client, a Table or a ShardedTable, got "
                f"{type(target).__name__}; give one of them"
            )
        keys = {table_name(table): partition_key for table, partition_key in given.items()}
        table = None if name is None else table_name(name)
        if table is not None and table not in keys and isinstance(target, ServiceResource):
            partition_key = _partition_key(target)
            if partition_key is not None:
                keys[table] = partition_key
        with self._lock:
            observer = self._observers.get(client)
            if observer is None:
                observer = self._observers[client] = _Observer(self, client)
        attachment = Attachment(observer, table, keys)
        observer.add(attachment)
        return attachment

    def scope(self, name: str) -> Scope:
        """Make a scope: it counts the calls that are made inside its ``with``, and keeps the figures afterwards.

        Example:
            >>> with meter.scope("import") as used:  # doctest: +SKIP
            ...     ...
            >>> used.write_units  # doctest: +SKIP
            20.0

        Args:
            name: what ``print(scope)`` calls it.

        Returns:
            A :class:`Scope`, with the same figures as the meter. Scopes nest: a call counts in all it is inside of.
            Threads count where they run in a copy of the context (shardkit's do; ``contextvars.copy_context``).

        Cost:
            No request.
        """
        return Scope(self, name, max_keys=self._max_keys)

    def __str__(self) -> str:
        """Give the figures with their units, as plain text."""
        return self._table("total")


def _partition_key(table: Any) -> str | None:
    try:
        schema = table.key_schema
    except (BotoCoreError, ClientError):
        return None
    if not isinstance(schema, list):
        # aioboto3 gives a coroutine here, which nothing can wait for.
        getattr(schema, "close", lambda: None)()
        return None
    return cast("str | None", next((key["AttributeName"] for key in schema if key["KeyType"] == "HASH"), None))
