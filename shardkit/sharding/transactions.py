"""TransactWriteItems and TransactGetItems over several tables, some of them sharded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from shardkit.core.hashing import stable_hash
from shardkit.core.machine import Program, Response, Send
from shardkit.dynamodb.expressions.rewrite import build_conditions
from shardkit.errors import ShardkitError, UnsupportedParameterError
from shardkit.sharding.batches import shown_metrics, shows
from shardkit.sharding.form import Form
from shardkit.sharding.items import OPERATIONS, get_request, with_logical_item
from shardkit.sharding.layout import Known, Moving, Sharding, named
from shardkit.sharding.parameters import FanOut, Params, check_keywords
from shardkit.sharding.resharding.transactions import Action, Reading, read_moved, write_moved

_ACTIONS = {
    "ConditionCheck": "DeleteItem",
    "Delete": "DeleteItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}
"""The actions of TransactWriteItems, and the operation on one item whose rewriting applies to each."""


@dataclass(frozen=True)
class _Part:
    """A part of a transaction: its action, its table, the table's sharding, and its request on a stored key."""

    action: str
    table: str
    sharding: Sharding | None
    request: Any

    @property
    def entry(self) -> dict[str, Any]:
        return {self.action: self.request}


_Rewrite = Callable[[str, Params, Sharding], Program[Any]]
"""Returns the request on one item that corresponds to a part, from its action, its parameters and its sharding.

For an item that moves, it is an Action or a Reading.
"""


def transact_write(params: Params, known: Known, form: Form, fan_out: FanOut) -> Program[Response]:
    """Write several items in one transaction."""
    # The service executes a transaction once per token, and refuses another transaction with the same token. So random
    # shards are drawn from the token. They are drawn from the key too, so that the service refuses two puts of one key
    # in a transaction, as on an unsharded table.
    seed = params.get("ClientRequestToken") or str(fan_out.draw())

    def rewrite(action: str, body: Params, sharding: Sharding) -> Program[Any]:
        def draw() -> float:
            key = sharding.form.python(body["Item" if action == "Put" else "Key"])
            return (stable_hash((seed, *(key[name] for name in sharding.key_names))) >> 11) / 2**53

        shard, rest = _without_shard(body)
        operation, drawing = _ACTIONS[action], replace(fan_out, draw=draw)
        if isinstance(sharding, Moving):
            return Action.of(sharding, operation, rest, shard, drawing)
        return dict((yield from _first_request(OPERATIONS[operation](sharding, rest, shard, drawing))).params)

    parts = yield from _parts("TransactWriteItems", params, known, form, _ACTIONS, rewrite)
    try:
        if any(isinstance(part.request, Action) for part in parts):
            response = yield from write_moved(params, [(part.action, part.request) for part in parts], fan_out)
        else:
            response = yield Send("TransactWriteItems", {**params, "TransactItems": [part.entry for part in parts]})
    except Exception as error:
        _show_logical(error, [part.sharding for part in parts])
        raise
    return shown_metrics(response, {part.table: part.sharding for part in parts}, form)


def transact_get(params: Params, known: Known, form: Form, fan_out: FanOut) -> Program[Response]:
    """Read several items in one transaction."""

    def rewrite(_: str, body: Params, sharding: Sharding) -> Program[Any]:
        shard, rest = _without_shard(body)
        if isinstance(sharding, Moving):
            return Reading.of(sharding, rest, shard)
        return dict((yield from get_request(sharding, rest, shard, fan_out)).params)

    parts = yield from _parts("TransactGetItems", params, known, form, ("Get",), rewrite)
    moving = next((part.sharding for part in parts if isinstance(part.sharding, Moving)), None)
    if moving is not None:
        response = yield from read_moved(params, [(part.action, part.request) for part in parts], moving, fan_out)
    else:
        response = yield Send("TransactGetItems", {**params, "TransactItems": [part.entry for part in parts]})
    responses = [
        {**one, "Item": shows(part.sharding, form)(one["Item"])} if "Item" in one else one
        for one, part in zip(response.get("Responses", ()), parts, strict=False)
    ]
    return {**response, "Responses": responses}


TRANSACTIONS: Mapping[str, Callable[[Params, Known, Form, FanOut], Program[Response]]] = {
    "TransactGetItems": transact_get,
    "TransactWriteItems": transact_write,
}


def of_table(params: Params, table: str) -> dict[str, Any]:
    """Return a transaction in which every part names its table: this one, if the caller omits it."""
    return {**params, "TransactItems": [{action: {"TableName": table, **body}} for action, body in parts_of(params)]}


def _parts(
    operation: str, params: Params, known: Known, form: Form, actions: Collection[str], rewrite: _Rewrite
) -> Program[list[_Part]]:
    """Return the parts of a transaction, each with the request on its stored key."""
    check_keywords(operation, params)
    parts: list[_Part] = []
    for place, (action, body) in enumerate(parts_of(params)):
        table = body["TableName"]
        sharding = yield from named(known, table)
        if sharding is None:
            parts.append(_Part(action, table, None, form.params(build_conditions(body))))
            continue
        with _noting(f"in TransactItems[{place}]"):
            if action not in actions:
                raise UnsupportedParameterError(
                    f"{action}: not an action of {operation}; give one of {', '.join(sorted(actions))}"
                )
            check_keywords(action, body)
            parts.append(_Part(action, table, sharding, (yield from rewrite(action, body, sharding))))
    return parts


def parts_of(params: Params) -> Iterator[tuple[str, Params]]:
    """Yield each part's action and parameters."""
    given = params.get("TransactItems")
    if not isinstance(given, list | tuple):
        raise UnsupportedParameterError(
            f"TransactItems: must be a list, got {type(given).__name__}: {given!r:.100}; give, for "
            "example, [{'Put': {…}}]"
        )
    for place, entry in enumerate(given):
        bodies = entry.values() if isinstance(entry, Mapping) else ()
        if len(bodies) != 1 or not all(isinstance(body, Mapping) for body in bodies):
            raise UnsupportedParameterError(
                f"TransactItems[{place}]: must be a dict with one action, got {entry!r:.100}; give, for example, "
                "{'Put': {…}}"
            )
        yield from entry.items()


def _without_shard(body: Params) -> tuple[Any, Params]:
    return body.get("Shard"), {name: value for name, value in body.items() if name != "Shard"}


def _first_request(program: Program[Any]) -> Program[Send]:
    """Run the program of a write up to its request; with ``locate``, it finds the item first."""
    step = next(program)
    while not isinstance(step, Send):
        try:
            answer = yield step
        except Exception as error:  # noqa: BLE001 - the program decides what it means
            step = program.throw(error)
        else:
            step = program.send(answer)
    program.close()
    return step


def _show_logical(error: Any, shardings: Sequence[Sharding | None]) -> None:
    """Show logical keys in the reasons of a cancelled transaction."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "CancellationReasons" in response:
        reasons = [
            reason if sharding is None or "Item" not in reason else with_logical_item(sharding, reason)
            for reason, sharding in zip(response["CancellationReasons"], shardings, strict=False)
        ]
        error.response = {**response, "CancellationReasons": reasons}


@contextmanager
def _noting(note: str) -> Iterator[None]:
    """Add a note to shardkit's errors."""
    try:
        yield
    except ShardkitError as error:
        error.add_note(note)
        raise
