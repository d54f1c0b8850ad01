"""TransactWriteItems and TransactGetItems over several tables, some of them sharded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardkit.core.hashing import stable_hash
from shardkit.core.machine import Program, Response, Send
from shardkit.dynamodb.expressions.rewrite import build_conditions
from shardkit.errors import ShardkitError, UnsupportedParameterError, brief
from shardkit.sharding.batches import Known, named, shown_metrics, shows
from shardkit.sharding.form import Form
from shardkit.sharding.items import with_logical_item
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params, check_keywords

_WRITES = {
    "ConditionCheck": "DeleteItem",
    "Delete": "DeleteItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}
"""The actions of TransactWriteItems, and the operation on one item whose rewriting applies to each."""
_READS = {"Get": "GetItem"}


@dataclass(frozen=True)
class _Part:
    """A part of a transaction: its action, its table, the table's sharding, and its request on a stored key."""

    action: str
    table: str
    sharding: Sharding | None
    request: Any


def transact_write(params: Params, known: Known, form: Form, fan_out: FanOutOptions) -> Program[Response]:
    """Write several items in one transaction."""
    # The service executes a transaction once per token, and refuses another transaction with the same token. So random
    # shards are drawn from the token. They are drawn from the key too, so that the service refuses two puts of one key
    # in a transaction, as on an unsharded table.
    seed = params.get("ClientRequestToken") or str(fan_out.draw())

    def drawing(body: Params, sharding: Sharding) -> FanOutOptions:
        def draw() -> float:
            key = sharding.form.python(body.get("Item") or body["Key"])
            return (stable_hash((seed, *(key[name] for name in sharding.key_names))) >> 11) / 2**53

        return replace(fan_out, draw=draw)

    parts = yield from _parts("TransactWriteItems", params, known, form, _WRITES, drawing)
    try:
        response = yield from _sent("TransactWriteItems", params, parts, fan_out)
    except Exception as error:
        _show_logical(error, [part.sharding for part in parts])
        raise
    return shown_metrics(response, {part.table: part.sharding for part in parts}, form)


def transact_get(params: Params, known: Known, form: Form, fan_out: FanOutOptions) -> Program[Response]:
    """Read several items in one transaction."""
    parts = yield from _parts("TransactGetItems", params, known, form, _READS, lambda *_: fan_out)
    response = yield from _sent("TransactGetItems", params, parts, fan_out)
    responses = [
        {**one, "Item": shows(part.sharding, form)(one["Item"])} if "Item" in one else one
        for one, part in zip(response.get("Responses", ()), parts, strict=False)
    ]
    return {**response, "Responses": responses}


def _sent(operation: str, params: Params, parts: Sequence[_Part], fan_out: FanOutOptions) -> Program[Response]:
    whole = next((part.request for part in parts if hasattr(part.request, "transact")), None)
    if whole is not None:
        response: Response = yield from whole.transact(params, [(part.action, part.request) for part in parts], fan_out)
    else:
        response = yield Send(operation, {**params, "TransactItems": [{one.action: one.request} for one in parts]})
    return response


TRANSACTIONS: Mapping[str, Callable[[Params, Known, Form, FanOutOptions], Program[Response]]] = {
    "TransactGetItems": transact_get,
    "TransactWriteItems": transact_write,
}


def of_table(params: Params, table: str) -> dict[str, Any]:
    """Return a transaction in which every part names its table: this one, if the caller omits it."""
    return {**params, "TransactItems": [{action: {"TableName": table, **body}} for action, body in parts_of(params)]}


def _parts(
    operation: str,
    params: Params,
    known: Known,
    form: Form,
    actions: Mapping[str, str],
    fan_out: Callable[[Params, Sharding], FanOutOptions],
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
        try:
            if action not in actions:
                raise UnsupportedParameterError(
                    f"{action}: not an action of {operation}; give one of {', '.join(sorted(actions))}"
                )
            check_keywords(action, body)
            rest = {name: value for name, value in body.items() if name != "Shard"}
            request = yield from sharding.action(actions[action], rest, body.get("Shard"), fan_out(body, sharding))
        except ShardkitError as error:
            error.add_note(f"in TransactItems[{place}]")
            raise
        parts.append(_Part(action, table, sharding, request))
    return parts


def parts_of(params: Params) -> Iterator[tuple[str, Params]]:
    """Yield each part's action and parameters."""
    given = params.get("TransactItems")
    if not isinstance(given, list | tuple):
        raise UnsupportedParameterError(
            f"TransactItems: must be a list, got {type(given).__name__}: {brief(given)}; give, for "
            "example, [{'Put': {…}}]"
        )
    for place, entry in enumerate(given):
        bodies = entry.values() if isinstance(entry, Mapping) else ()
        if len(bodies) != 1 or not all(isinstance(body, Mapping) for body in bodies):
            raise UnsupportedParameterError(
                f"TransactItems[{place}]: must be a dict with one action, got {brief(entry)}; give, for example, "
                "{'Put': {…}}"
            )
        yield from entry.items()


def _show_logical(error: Any, shardings: Sequence[Sharding | None]) -> None:
    """Show logical keys in the reasons of a cancelled transaction."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and "CancellationReasons" in response:
        reasons = [
            reason if sharding is None or "Item" not in reason else with_logical_item(sharding, reason)
            for reason, sharding in zip(response["CancellationReasons"], shardings, strict=False)
        ]
        error.response = {**response, "CancellationReasons": reasons}
