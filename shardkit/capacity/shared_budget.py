"""SharedBudget: one rate for many processes, which share it by an item in a DynamoDB table."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from shardkit.capacity.membership import BEAT_SECONDS, BORN, MEMBER_LEASE_SECONDS, Membership, Now
from shardkit.core.checks import check_number
from shardkit.core.machine import Answer, Send
from shardkit.core.shares import SharedRate
from shardkit.dynamodb.body import binary_text
from shardkit.dynamodb.service_errors import Kind, code_of, is_transient
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ConfigurationError, ShareEndedError, brief
from shardkit.runtime.drivers import through_client
from shardkit.runtime.leases import clocks
from shardkit.runtime.targets import client_of, is_async

_ROUNDS = 4  # updates at once
_APART_SECONDS = 0.25  # between updates of which the first did not know that a call waits
_NOT_THERE = "ConditionalCheckFailedException"
_AGAIN_SECONDS = 1.0  # after an error
_POLL_SECONDS = 0.1  # how soon a waiting call sees a larger share
_MOST_NAME_BYTES = 1000
_SORT_KEYS: Mapping[str, WireValue] = {
    "S": {"S": BORN},
    "B": {"B": binary_text(BORN.encode())},
    "N": {"N": "0"},
}

_log = logging.getLogger("shardkit")


@dataclass(frozen=True, kw_only=True, repr=False)
class Terms:
    """What all members of a budget have in common; ``key`` is that of the item, None: not looked up yet."""

    table: str
    name: str
    rates: Mapping[Kind, float]
    burst: float
    key: WireItem | None = None

    def __repr__(self) -> str:
        rates = ", ".join(f"{kind}_units={rate:g}" for kind, rate in self.rates.items())
        return f"SharedBudget({self.table!r}, {self.name!r}, {rates})"


class SharedBudget:
    """Share one rate of capacity units among loads and services in many processes, on many machines.

    Example:
        budgets = boto3.resource("dynamodb").Table("Budgets")
        with SharedBudget(budgets, "Orders", write_units=2000) as budget:
            bulk_load(orders, items, write_units=budget)

    Every process makes the same budget, and gives it to :func:`shardkit.bulk_load` (also the async one), to
    ``shardkit load --shared-budget``, or to a :class:`shardkit.CapacityBudget`. Together they take at most
    ``rate × (t + burst)`` units in any ``t`` seconds, plus one request of each process. A process gets as much as it
    uses; those that want more share the rest equally. A process that ends, dies or is cut off frees its share.

    The processes meet in one item of a table, each with an UpdateItem every 3 seconds while the budget is used. Whoever
    was not answered for 6 seconds sends nothing, and goes on when it is. Others take over the share of a process that
    was not heard of for 7.5 seconds. The first use of a new name begins with a wait of 7.5 seconds.

    Args:
        table: A boto3 ``Table`` for the item: any table whose partition key is a string. Not a ``ShardedTable``: its
            scans would return the item.
        name: The budget's name: the partition key of its item. A sort key, if there is one, is ``shardkit:budget``
            (0 if it is a number).
        write_units: Write units a second of all processes together; None: no limit on writes.
        read_units: Read units a second; None: no limit on reads. If processes give different rates, the smallest holds.
        burst: Seconds whose unused units a process keeps, 0 or more.
        clock: For tests: returns the seconds that clocks show. By default the monotonic clock and the system's time. A
            share ends by the one that ran faster.
        start: For tests: calls a function as often as it says, in seconds, until it returns None. By default, in a
            thread.

    Raises:
        ConfigurationError: An argument is invalid. When the budget is used: its item is something else's.
        botocore.exceptions.ClientError: When the budget is used: the table does not exist, or access is denied.

    Cost: while it is used, one UpdateItem per process every 3 seconds, and up to three more when a process joins or
        leaves. Each costs 1 write unit per KB of the item, to which a process adds 25 to 40 bytes: 1 unit for 25
        processes, 5 for 200 (with one rate). One DescribeTable per process. One thread.
    IAM: ``dynamodb:UpdateItem`` and ``dynamodb:DescribeTable`` on ``table``.
    Source: "Max-min fair" shares, Bertsekas and Gallager, "Data Networks", 6.5.2; leases, Gray and Cheriton (1989).
    """

    def __init__(
        self,
        table: Any,
        name: str,
        write_units: float | None = None,
        *,
        read_units: float | None = None,
        burst: float = 1.0,
        clock: Callable[[], Now] = clocks,
        start: Callable[[Member], object] | None = None,
    ) -> None:
        table_name = getattr(table, "name", None)
        if not isinstance(table_name, str) or hasattr(table, "runner") or not hasattr(table, "meta"):
            raise ConfigurationError(
                f"table: must be a boto3 Table, got {brief(table)}; give boto3.resource('dynamodb').Table('Budgets')"
            )
        if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= _MOST_NAME_BYTES:
            raise ConfigurationError(f"name: must be a str of 1 to {_MOST_NAME_BYTES:,} bytes, got {brief(name)}")
        given: dict[Kind, float | None] = {"write": write_units, "read": read_units}
        rates = {
            kind: float(check_number(f"{kind}_units", units, "units a second", above=True))
            for kind, units in given.items()
            if units is not None
        }
        if not rates:
            raise ConfigurationError("read_units, write_units: both are missing; give one of them, or both")
        burst = check_number("burst", burst, "seconds")
        terms = Terms(table=table_name, name=name, rates=rates, burst=burst)
        self._member = Member(terms, through_client(_client_of(table, "table"), {}), clock, start or _in_thread)

    def __repr__(self) -> str:
        return repr(self._member.terms)

    def over(self, client: Any) -> SharedBudget:
        """Return the same budget through another client, as another member.

        Example:
            budget.over(boto3.client("dynamodb"))  # in a process that got the budget by pickle

        A budget can be pickled; its client, clock and share stay behind. So it travels to other processes, which give
        it a client of their own.

        Args:
            client: A boto3 client, resource or ``Table`` for the budget's table.

        Returns:
            A budget with the same table, name and rates.

        Raises:
            ConfigurationError: ``client`` is not a boto3 client of DynamoDB.
        """
        return _made(self._member.over(_client_of(client, "client")))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._member.terms,)

    def shared_rate(self, side: Kind, option: str) -> SharedRate:
        """Return this process's share of the read or the write units; loads and budgets call it."""
        if side not in self._member.terms.rates:
            raise ConfigurationError(f"{option}: {self!r} has no {side}_units; make the budget with {side}_units=")
        return _Rate(self._member, side)

    def close(self) -> None:
        """Give the share back now, not only when the budget was not used for 3 seconds. A later use joins again.

        Example:
            budget.close()

        What was taken beyond the share is paid first: that takes up to 3 seconds.

        Cost: one UpdateItem.
        """
        self._member.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Member:
    """A process as a member of a budget: its thread, its requests, and its shares for all threads."""

    def __init__(
        self,
        terms: Terms,
        send: Callable[[Send], Answer] | None,
        clock: Callable[[], Now],
        start: Callable[[Member], object],
    ) -> None:
        self.terms = terms
        self._send = send
        self._clock = clock
        self._start = start
        self.begin()
        _members.add(self)

    def begin(self) -> None:
        """Be a new member; also after a fork, which leaves locks held and copies no thread."""
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._running = self._failing = False
        self.woken = threading.Event()
        self.error: Exception | None = None
        self._shares = Membership(self.terms.rates, self.terms.burst, partial(secrets.token_urlsafe, 6), self._clock())

    def over(self, client: Any) -> Member:
        """Return another member of the same budget."""
        return Member(self.terms, through_client(client, {}), self._clock, self._start)

    def close(self) -> None:
        """Give the share back, after up to one beat in which debts are paid."""
        with self._lock:
            debt = self._shares.debt(self._clock()) if self._running else 0.0
        if 0 < debt <= BEAT_SECONDS:
            time.sleep(debt)
        with self._sending:
            left = None
            with self._lock:
                # With a larger debt, the share is left to end: the others keep it free for 7.5 seconds. Without a key,
                # the table was never reached, so there is no share.
                if self._running and self.terms.key is not None and debt <= BEAT_SECONDS:
                    left = self._request(self._shares.leave(self._clock()))
                self._running = False
            self.woken.set()
            if left is not None and self._send is not None:
                self._send(left)

    def run(self, woken: threading.Event) -> None:
        """Renew the shares until the budget is not used any more."""
        while woken is self.woken:
            with self._sending:
                seconds = self.renew()
            if seconds is None:
                return
            time.sleep(min(seconds, _APART_SECONDS))
            woken.wait(max(0.0, seconds - _APART_SECONDS))
            woken.clear()

    def renew(self) -> float | None:
        """Send what is due; return the seconds until the next time, or None if the share was given back."""
        program = self.beat()
        try:
            send = next(program)
            while True:
                send = program.send(self._answer(send))
        except StopIteration as stop:
            seconds: float | None = stop.value
            return seconds

    def _answer(self, send: Send) -> Answer:
        if self._send is None:
            return ConfigurationError(
                f"{self.terms!r} was unpickled, and has no client; use budget.over(boto3.client('dynamodb'))"
            )
        return self._send(send)

    def beat(self) -> Generator[Send, Answer, float | None]:
        """Renew the shares; return the seconds until the next time, or None if they were given back."""
        for place in range(_ROUNDS):
            with self._lock:
                if not self._running:
                    return None
                sent = self._clock()
                regular = not place and not self._shares.next(sent)
                if regular and self._shares.idle(sent):
                    self._running = False
                    params = self._shares.leave(sent)
                else:
                    params = self._shares.update(sent, regular=regular)
            if self.terms.key is None:
                answer = yield Send("DescribeTable", {"TableName": self.terms.table})
                try:
                    self.terms = replace(self.terms, key=_key(self.terms, answer))
                except Exception as error:  # noqa: BLE001 - whatever the client raises
                    self._failed(error)
                    break
            answer = yield self._request(params)
            with self._lock:
                if not self._running:
                    return None
                if not self._learn(answer, sent):
                    break
        with self._lock:
            if not self._running:
                return None
            return _AGAIN_SECONDS if self._failing else self._shares.next(self._clock())

    def _request(self, params: Mapping[str, Any]) -> Send:
        key = self.terms.key or {}
        names = {**params["ExpressionAttributeNames"], "#key": next(iter(key))}
        to = {"TableName": self.terms.table, "Key": key, "ReturnValues": "ALL_NEW"}
        return Send("UpdateItem", {**params, **to, "ExpressionAttributeNames": names})

    def _learn(self, answer: Answer, sent: Now) -> bool:
        """Learn from an answer; return whether to send another update at once."""
        if isinstance(answer, Exception):
            if code_of(answer) == _NOT_THERE and self._shares.refused(self._clock()):
                return True
            self._failed(answer)
            return False
        try:
            again = self._shares.answered(answer["Attributes"], sent, self._clock())
        except ConfigurationError as error:
            self._failed(error)
            return False
        if self._failing:
            _log.warning("%r: the share is renewed again", self.terms)
        self._failing, self.error = False, None
        return again

    def _failed(self, error: Exception) -> None:
        if code_of(error) == _NOT_THERE:
            error = ConfigurationError(
                f"name: table {self.terms.table!r} has an item {self.terms.name!r} that is not a shared budget; give "
                "the budget another name, or delete the item"
            )
        if not self._failing:
            _log.warning(
                "%r: the share cannot be renewed (%s); from %g seconds after the last renewal on, nothing is sent "
                "until it can",
                self.terms,
                error if isinstance(error, ConfigurationError) else code_of(error),
                MEMBER_LEASE_SECONDS,
            )
        self._failing, self.error = True, None if is_transient(error) else error

    def ready(self, side: Kind, now: float) -> float:
        """Return when the next request may go, on the caller's clock; infinity: not with this share."""
        with self._lock:
            at = self._clock()
            ready = self._shares.ready(side, at)
            self._use()
        return now + (ready - at[0])

    def take(self, side: Kind, units: float) -> None:
        """Take units; a negative number gives units back."""
        with self._lock:
            self._shares.take(side, units, self._clock())
            self._use()

    def share(self, side: Kind) -> float:
        """Return the share of a side, in units a second."""
        with self._lock:
            return self._shares.share(side, self._clock())

    def check(self) -> None:
        """Raise if no request may go."""
        with self._lock:
            if not self._shares.valid(self._clock()):
                raise ShareEndedError(
                    f"{self.terms!r}: the request was not sent, because this process stood still after its turn "
                    "had come, or could not renew its share in time; retry"
                )

    def _use(self) -> None:
        if not self._running:
            self._running, self.woken = True, threading.Event()
            try:
                self._start(self)
            except BaseException:  # no thread could be started: the next use tries again
                self._running = False
                raise
        elif self._shares.hungry:
            self.woken.set()


class _Rate:
    """One side of a budget, as :class:`SharedRate`."""

    may_change_in = _POLL_SECONDS

    def __init__(self, member: Member, side: Kind) -> None:
        self._member = member
        self._side = side
        self.check = member.check

    @property
    def whole(self) -> float:
        return self._member.terms.rates[self._side]

    @property
    def rate(self) -> float:
        return self._member.share(self._side)

    @property
    def error(self) -> Exception | None:
        return self._member.error

    def ready(self, now: float) -> float:
        return self._member.ready(self._side, now)

    def take(self, units: float, now: float) -> None:
        self._member.take(self._side, units)


def _client_of(target: Any, name: str) -> Any:
    client = client_of(target)
    if is_async(client):
        raise ConfigurationError(
            f"{name}: must be of boto3, got {brief(target)} of an async client; a budget renews its share in a thread, "
            "also for async loads: give boto3.resource('dynamodb').Table('Budgets')"
        )
    return client


def _key(terms: Terms, described: Answer) -> WireItem:
    if isinstance(described, Exception):
        raise described
    table = described["Table"]
    types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    partition, *sort = sorted(table["KeySchema"], key=lambda one: one["KeyType"] != "HASH")
    name = partition["AttributeName"]
    if types[name] != "S":
        raise ConfigurationError(
            f"table: the partition key {name!r} of table {terms.table!r} is of type {types[name]}; a shared budget "
            "needs a table whose partition key is a string (S)"
        )
    return {
        name: {"S": terms.name},
        **{one["AttributeName"]: _SORT_KEYS[types[one["AttributeName"]]] for one in sort},
    }


def _made(member: Member) -> SharedBudget:
    budget = object.__new__(SharedBudget)
    budget.__dict__["_member"] = member
    return budget


def _unpickled(terms: Terms) -> SharedBudget:
    return _made(Member(terms, None, clocks, _in_thread))


def _in_thread(member: Member) -> None:
    threading.Thread(target=member.run, args=(member.woken,), name="shardkit-budget", daemon=True).start()


_members: weakref.WeakSet[Member] = weakref.WeakSet()


def _forked() -> None:
    for member in [*_members]:
        member.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
