"""Transactions on items that move: each action goes where a write or a read of its own would go.

A write at an old home has the stage's condition. If that failed, the item has changed its place: the transaction is
planned again. A read has both homes in one transaction, which is one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shardkit.core.backoff import ATTEMPTS
from shardkit.core.machine import Program, Response
from shardkit.dynamodb.expressions.rewrite import project, refuse_attributes
from shardkit.dynamodb.service_errors import cancellation_reasons
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.errors import UnsupportedParameterError
from shardkit.migrate.batch_write import old_states
from shardkit.migrate.items import (
    OWN,
    SHOW,
    finish_frozen,
    homes_of,
    met_frozen,
    put_stub,
    refuse_shard,
    requests_on,
    unsettled,
    written,
)
from shardkit.migrate.marks import MARK, Homes, Moving, state_at_old_home
from shardkit.migrate.sending import Sending
from shardkit.sharding import items
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.parameters import AddedToken, FanOutOptions, Params

_MOST_ACTIONS = 100  # of one transaction (API reference)
_Identity = tuple[str, Any]
_WRITE = "TransactWriteItems"


@dataclass(frozen=True, eq=False)
class Action:
    """An action of a write transaction on an item that moves, with its requests at both homes."""

    moving: Moving
    homes: Homes
    key: WireItem
    on_old: Mapping[str, Any]
    on_new: Mapping[str, Any]

    @classmethod
    def of(cls, moving: Moving, operation: str, params: Params, shard: object, fan_out: FanOutOptions) -> Action:
        """Make it from the operation on one item that corresponds to the action, and its parameters."""
        refuse_shard(moving, shard)
        wire = written(moving, operation, params, fan_out)
        homes = homes_of(moving, wire[items.source_of(operation)])
        on_old, on_new = requests_on(moving, operation, wire, homes)
        key = {name: wire[items.source_of(operation)][name] for name in moving.key_names}
        return cls(moving, homes, key, on_old, on_new)

    @property
    def identity(self) -> _Identity:
        return self.moving.table, comparable_item(self.key)

    def transact(self, *given: Any) -> Program[Response]:
        return write_moved(*given)


class _Plan:
    """Where the actions of one write transaction go, and what planning consumed."""

    def __init__(self, actions: Sequence[Action], asked: str | None, fan_out: FanOutOptions) -> None:
        self._fan_out = fan_out
        self._asked = asked
        self._moved = [action for action in actions if not action.homes.same]
        self._of = {action.moving.table: action.moving for action in self._moved}
        self._sends = {table: Sending(table, fan_out, asked) for table in self._of}
        self._reads: list[BatchGet] = []
        # In guard, an item is taken to be at its old home until the transaction shows a stub there.
        self._at_new: set[_Identity] = set()

    @property
    def consumed(self) -> list[dict[str, Any]]:
        of_sends = (send.consumed for send in self._sends.values())
        return [one for one in (*of_sends, *(read.consumed for read in self._reads)) if one is not None]

    def made(self) -> Program[bool]:
        """Find out where the items are, and prepare their places; return whether all is as found."""
        settled = True
        for table, moving in self._of.items():
            if moving.stage == "guard":
                continue
            homes = {action.identity: action for action in self._moved if action.moving.table == table}
            keys = [action.key for action in homes.values()]
            states, read = yield from old_states(moving, keys, self._asked, self._fan_out)
            self._reads.append(read)
            for identity, action in homes.items():
                state, send = states[identity[1]], self._sends[table]
                if state == "frozen":
                    yield from finish_frozen(moving, send, action.homes)
                    settled = False
                elif state == "absent" and moving.stage == "switch":
                    settled = (yield from put_stub(send, action.homes)) and settled
                self._at_new.discard(identity)
                if state != "live":
                    self._at_new.add(identity)
        return settled

    def request(self, given: Action | Params) -> Params:
        if not isinstance(given, Action):
            return given
        return given.on_old if self._guarded(given) else given.on_new

    def moved(self, given: Sequence[Action | Params], reasons: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether a cancelled transaction found an item in another place than planned."""
        elsewhere = False
        for action, reason in zip(given, reasons, strict=False):
            failed = reason.get("Code") == "ConditionalCheckFailed"
            if not isinstance(action, Action) or not self._guarded(action) or not failed:
                continue
            state = state_at_old_home(reason.get("Item"))
            if action.moving.stage == "guard":
                if state == "frozen":
                    raise met_frozen(action.moving, _WRITE)
                if state == "stub":
                    self._at_new.add(action.identity)
                    elsewhere = True
            else:
                # The service checks the whole condition. On an item without a mark, the caller's part failed.
                elsewhere = elsewhere or state != "live"
        return elsewhere

    def _guarded(self, action: Action) -> bool:
        return not action.homes.same and action.identity not in self._at_new


def write_moved(
    params: Params, parts: Sequence[tuple[str, Action | Params]], fan_out: FanOutOptions
) -> Program[Response]:
    """Write a transaction of which some parts are on items that move; each part is an action's name and request."""
    token = params.get("ClientRequestToken")
    actions = [given for _, given in parts if isinstance(given, Action)]
    moving = actions[0].moving
    if token is not None and not isinstance(token, AddedToken):
        moving.refuse(
            "ClientRequestToken",
            "leave it out: while items move, the same transaction may have other keys the next time; make it safe to "
            "repeat by its conditions",
        )
    _check_count(len(parts), len(parts), moving)
    options = {name: value for name, value in params.items() if name != "ClientRequestToken"}
    plan = _Plan(actions, params.get("ReturnConsumedCapacity"), fan_out)
    send = Sending(moving.table, fan_out)
    for _ in range(ATTEMPTS + len(parts)):
        if not (yield from plan.made()):
            continue
        entries = [{name: dict(plan.request(given))} for name, given in parts]
        try:
            response = yield from send(_WRITE, {**options, "TransactItems": entries})
        except Exception as error:
            if plan.moved([given for _, given in parts], cancellation_reasons(error)):
                continue
            _hide_unasked(error, [given for _, given in parts])
            raise
        consumed = [*response.get("ConsumedCapacity", ()), *plan.consumed]
        return {**response, "ConsumedCapacity": consumed} if consumed else response
    raise unsettled(moving, _WRITE)


def _hide_unasked(error: Any, given: Sequence[Action | Params]) -> None:
    """Leave items in the reasons of a cancelled transaction only if the caller asked for them."""
    reasons = [
        {name: value for name, value in reason.items() if name != "Item" or request.get(SHOW) == "ALL_OLD"}
        for reason, one in zip(cancellation_reasons(error), given, strict=False)
        for request in [one.on_new if isinstance(one, Action) else one]
    ]
    if reasons:
        error.response = {**error.response, "CancellationReasons": reasons}


@dataclass(frozen=True, eq=False)
class Reading:
    """A read of an item that moves, at both homes; ``hidden`` are the attributes that the caller did not ask for."""

    moving: Moving
    on_old: Params
    on_new: Params
    hidden: frozenset[str]

    @classmethod
    def of(cls, moving: Moving, params: Params, shard: object) -> Reading | Params:
        """Make it from the parameters of a GetItem; return the plain request on an item that does not move."""
        refuse_shard(moving, shard)
        wire, _ = items.item_request(moving, "GetItem", params)
        refuse_attributes(wire, {MARK}, "ProjectionExpression", why=OWN)
        homes = homes_of(moving, wire["Key"])
        if homes.same:
            return {**wire, "Key": homes.new}
        wire, hidden = project(wire, (*moving.key_names, MARK))
        return cls(moving, {**wire, "Key": homes.old}, {**wire, "Key": homes.new}, hidden)

    def chosen(self, old: Response, new: Response) -> Response:
        """Return the answer for the item: what is at its old home is the truth, unless it is a stub."""
        found = old if state_at_old_home(old.get("Item")) in {"live", "frozen"} else new
        if "Item" not in found:
            return found
        return {**found, "Item": {name: value for name, value in found["Item"].items() if name not in self.hidden}}

    def transact(self, *given: Any) -> Program[Response]:
        return read_moved(self.moving, *given)


def read_moved(
    moving: Moving, params: Params, parts: Sequence[tuple[str, Reading | Params]], fan_out: FanOutOptions
) -> Program[Response]:
    """Read a transaction of which some parts are on items that move, each in one snapshot of both homes."""
    entries: list[dict[str, Params]] = []
    for name, given in parts:
        both = (given.on_old, given.on_new) if isinstance(given, Reading) else (given,)
        entries += [{name: request} for request in both]
    _check_count(len(entries), len(parts), moving)
    try:
        response = yield from Sending(moving.table, fan_out)("TransactGetItems", {**params, "TransactItems": entries})
    except Exception as error:
        _show_parts(error, [given for _, given in parts])
        raise
    found = iter(response.get("Responses", ()))
    responses = [given.chosen(next(found), next(found)) if isinstance(given, Reading) else next(found)
                 for _, given in parts]  # fmt: skip
    return {**response, "Responses": responses}


def _show_parts(error: Any, given: Sequence[Reading | Params]) -> None:
    """Leave one reason for each part in the error of a cancelled read: of an item that moves, the one that has one."""
    reasons = iter(cancellation_reasons(error))
    shown = []
    for one in given:
        both = [*islice(reasons, 2 if isinstance(one, Reading) else 1)]
        shown += sorted(both, key=lambda reason: reason.get("Code") == "None")[:1]
    if shown:
        error.response = {**error.response, "CancellationReasons": shown}


def _check_count(actions: int, parts: int, moving: Moving) -> None:
    if actions > _MOST_ACTIONS:
        both = (
            "" if actions == parts else f" on {parts} items, because those that move are read at both of their places"
        )
        raise UnsupportedParameterError(
            f"TransactItems: needs {actions} actions{both}, in stage {moving.stage!r} of table {moving.table!r}; a "
            f"transaction has at most {_MOST_ACTIONS}, so use several"
        )
