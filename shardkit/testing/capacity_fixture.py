"""The value of the pytest fixture ``capacity_budget``: limits on what a block of a test consumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakSet

import boto3
import botocore
import pytest

from shardkit.capacity import CapacityMeter, Usage
from shardkit.capacity.usage import figure
from shardkit.core.checks import check_number
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError, brief
from shardkit.runtime.targets import Attachment, SessionAttachment, events_of_session


class CapacityBlock:
    """A block of a test with a limit on its units: the context manager of ``with capacity_budget(…)``."""

    def __init__(
        self,
        clients: _Clients,
        targets: tuple[Any, ...],
        units: Mapping[str, float],
        table: str | None,
        key_schema: Mapping[str, str] | None,
    ) -> None:
        self._clients = clients
        self._targets = targets
        self._units = units
        self._table = table
        self._key_schema = key_schema
        self._meter = CapacityMeter()
        self._attached = ExitStack()

    def attach(self, target: Any) -> None:
        """Count what a client consumes until the block ends."""
        self._attached.enter_context(self._meter.attach(target, key_schema=self._key_schema))

    def __enter__(self) -> CapacityMeter:
        """Start counting, and return the block's meter."""
        for target in self._targets:
            self.attach(target)
        if not self._targets:
            self._clients.enter(self)
        return self._meter

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop counting, and fail the test if it consumed too much; an exception from the block takes precedence."""
        __tracebackhide__ = True
        self._clients.leave(self)
        self._attached.close()
        if error is None and (complaint := self._complaint()):
            pytest.fail(complaint)

    def _complaint(self) -> str:
        if not self._targets and not self._clients.made:
            return (
                "capacity_budget() saw no DynamoDB client: it sees only clients created after its setup. Request it "
                "before the fixtures that create clients, or pass the client or the table: "
                "capacity_budget(table, read_units=3)"
            )
        by_table = self._meter.by_table
        if self._table is not None and by_table and self._table not in by_table:
            return (
                f"table: no call was on {self._table!r}, only on {', '.join(map(repr, sorted(by_table)))}; give one of "
                "those, or leave table= out"
            )
        used = self._meter.total if self._table is None else by_table.get(self._table, Usage())
        where = "" if self._table is None else f" of table {self._table}"
        complaints = []
        for name, most in self._units.items():
            reported, estimated = getattr(used, name), getattr(used, f"estimated_{name}")
            if reported + estimated > most:
                apart = f" ({figure(reported)} reported, {figure(estimated)} estimated)" if estimated else ""
                complaints.append(
                    f"{figure(reported + estimated)} {name.replace('_', ' ')}{where} were consumed{apart}, where "
                    f"capacity_budget({name}={most:g}) allows {figure(most)}"
                )
        return "\n".join([*complaints, "", str(self._meter)]) if complaints else ""


class CapacityBudgetFixture:
    """The fixture ``capacity_budget``: call it to limit the units of a ``with`` block."""

    def __init__(self, clients: _Clients) -> None:
        self._clients = clients

    def __call__(
        self,
        *targets: Any,
        read_units: float | None = None,
        write_units: float | None = None,
        table: str | None = None,
        key_schema: Mapping[str, str] | None = None,
    ) -> CapacityBlock:
        """Fail the test if the calls inside the ``with`` block consume more units than allowed.

        Example:
            def test_an_order_is_found_with_one_read(capacity_budget, orders):
                with capacity_budget(orders, read_units=0.5):
                    orders.get_item(Key={"Date": "2014-07-09", "OrderId": "A17"})

        Args:
            targets: what to count: clients, resources, tables or sessions, as in :meth:`CapacityMeter.attach`. Without
                any: all DynamoDB clients created since the fixture was set up, in the block too.
            read_units: the most read units, 0 or more; None: no limit.
            write_units: the most write units, 0 or more; None: no limit.
            table: a table's name, to compare only what the table and its indexes consume.
            key_schema: partition key names by table name, for the hottest keys in the failure message.

        Returns:
            A context manager; its value is the block's :class:`CapacityMeter`. Estimated units (of failed conditions,
            and where the service reports no units) count too, and are shown separately.

        Raises:
            ConfigurationError: neither ``read_units`` nor ``write_units`` is given, or an argument is invalid.

        Cost:
            That of a meter.
        """
        given = {"read_units": read_units, "write_units": write_units}
        units = {name: check_number(name, most, "units") for name, most in given.items() if most is not None}
        if not units:
            raise ConfigurationError("capacity_budget() has no limit; give read_units= or write_units=, or both")
        if table is not None and not isinstance(table, str):
            raise ConfigurationError(f"table: must be a table's name, got {brief(table)}; pass a Table as a target")
        return CapacityBlock(self._clients, targets, units, None if table is None else table_name(table), key_schema)


class _Known(Attachment):
    def detach(self) -> None:
        """Do nothing: the attachments to a client are those of the blocks."""


class _Clients:
    """Tracks the DynamoDB clients created while a test runs, for the blocks that count what they consume.

    Source: botocore's ``register_initializer``, whose callback gets each new session.
    """

    def __init__(self) -> None:
        self.made = 0
        self._known: WeakSet[Any] = WeakSet()
        self._blocks: list[CapacityBlock] = []
        self.sessions = ExitStack()

    def enter(self, block: CapacityBlock) -> None:
        """Attach a block to all clients, including those created later."""
        self._blocks.append(block)
        for client in list(self._known):
            block.attach(client)

    def leave(self, block: CapacityBlock) -> None:
        if block in self._blocks:
            self._blocks.remove(block)

    def watch(self, session: Any) -> None:
        self.sessions.enter_context(SessionAttachment(events_of_session(session), self._client))

    def _client(self, client: Any) -> Attachment:
        self.made += 1
        self._known.add(client)
        for block in self._blocks:
            block.attach(client)
        return _Known()


@contextmanager
def watching_clients() -> Iterator[CapacityBudgetFixture]:
    """Yield the fixture, which sees the clients created until the end of the ``with``."""
    clients = _Clients()
    with clients.sessions:
        botocore.register_initializer(clients.watch)
        try:
            if boto3.DEFAULT_SESSION is not None:
                clients.watch(boto3.DEFAULT_SESSION)
            yield CapacityBudgetFixture(clients)
        finally:
            botocore.unregister_initializer(clients.watch)
