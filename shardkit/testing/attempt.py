"""One attempt of a call, answered as the service would: what is let in, what goes on to the engine, what it cost.

A program in the order in which it happens (compare :data:`shardkit.core.machine.Program`): each ``yield`` sends a request to
the engine, and gets its answer. What a write costs is said by the item before it, which is read first; what a read or
an update costs is known after it, and may be a debt. A request that cannot be understood goes on as it is, so that the
engine says what is wrong. An error takes nothing, but a failed condition what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from shardkit.dynamodb.estimator import TableUnits
from shardkit.dynamodb.requests import OPERATIONS
from shardkit.dynamodb.service_errors import Throttle
from shardkit.dynamodb.units import table_name
from shardkit.dynamodb.values import comparable_item
from shardkit.errors import ShardkitError, UnsupportedOperationError
from shardkit.testing.actions import Action, Identity, Request, Tables, actions_of
from shardkit.testing.answers import Answer, cancelled, cut, throttled, with_consumed, with_unprocessed
from shardkit.testing.pages import Page, page_of
from shardkit.testing.partitioned import Cost, Item

__all__ = ["Attempt", "attempt"]

T = TypeVar("T")

Steps = Generator[Request, Answer, T]
Attempt = Steps[Answer]

_MALFORMED = (ArithmeticError, AttributeError, LookupError, ShardkitError, TypeError, ValueError)
_KEYS = 100  # of a BatchGetItem at the most (API reference)
_NOTHING = Cost(TableUnits(), (), ())


def attempt(request: Request, tables: Tables, clock: Callable[[], float]) -> Attempt:
    """Answer one attempt of a call on tables that are simulated.

    Args:
        request: what it asks for.
        tables: what is simulated, by name.
        clock: gives the time.

    Raises:
        UnsupportedOperationError: by the program: it is PartiQL.
    """
    if OPERATIONS[request.operation] is None:
        raise UnsupportedOperationError(
            f"{request.operation} on a table with simulated partitions: what a PartiQL statement costs cannot be seen; "
            "use the operations of items instead"
        )
    try:
        if request.operation in {"Query", "Scan"}:
            return (yield from _page(request, tables, clock))
        return (yield from _items(request, tables, clock))
    except _Malformed:
        return (yield request)


class _Malformed(Exception):  # noqa: N818 - no error: the engine knows better what is wrong
    """The request is not as the API's are; nothing was taken."""


# -- reads and writes of items


def _items(request: Request, tables: Tables, clock: Callable[[], float]) -> Attempt:
    try:
        actions = actions_of(request, tables)
        before = (yield from _images(actions)) if OPERATIONS[request.operation] else {}
        if before is None:
            raise _Malformed
        expected = [action.expected(before.get(action.identity)) for action in actions]
    except _MALFORMED as error:
        raise _Malformed from error
    refused, taken = _let_in(actions, expected, clock())
    sent = request
    stays: dict[str, Any] = {}
    if refused:
        if "RequestItems" in request.params:
            sent, stays = cut(request, [action for action, _ in refused])
        if not sent.params.get("RequestItems"):
            for action, cost in taken:
                action.table.settle(cost, _NOTHING, clock())
            if request.transactional:
                return cancelled(request, {action.place: throttle for action, throttle in refused})
            return throttled([throttle for _, throttle in refused])
    answer = yield sent
    took = yield from _took(request, answer, [action for action, _ in taken], before)
    now = clock()
    for (action, cost), real in zip(taken, took, strict=True):
        action.table.settle(cost, real, now)
    if not answer.ok:
        return answer
    units = [(action.table.name, real.units) for (action, _), real in zip(taken, took, strict=True)]
    body = with_consumed(request, answer.body, tables, units)
    return replace(answer, body=with_unprocessed(request, body, stays) if "RequestItems" in request.params else body)


def _let_in(
    actions: Iterable[Action], expected: Iterable[Cost], now: float
) -> tuple[list[tuple[Action, Throttle]], list[tuple[Action, Cost]]]:
    """Take what can be taken, one action after another: those that were refused, and those that were not."""
    refused, taken = [], []
    for action, cost in zip(actions, expected, strict=True):
        throttle = action.table.take(cost, now)
        if throttle is None:
            taken.append((action, cost))
        else:
            refused.append((action, throttle))
    return refused, taken


def _took(request: Request, answer: Answer, taken: list[Action], before: dict[Identity, Item]) -> Steps[list[Cost]]:
    """Say what each action that was let in took in the end."""
    if not answer.ok:
        failed = answer.code == "ConditionalCheckFailedException"
        return [action.failed(before.get(action.identity)) if failed else _NOTHING for action in taken]
    after = _found(request, answer, taken)
    unknown = [action for action in taken if action.projected or action.kind == "update"]
    images = yield from _images(unknown)
    left = _left(request, answer, {action.table.name: action.table for action in taken})
    costs = []
    for action in taken:
        item = before.get(action.identity)
        if action.identity in left:
            costs.append(_NOTHING)
        elif action.kind in {"get", "update"} and (images is not None or action not in unknown):
            costs.append(action.took(item, {**after, **(images or {})}.get(action.identity)))
        else:
            costs.append(action.expected(item))
    return costs


def _found(request: Request, answer: Answer, taken: list[Action]) -> dict[Identity, Item]:
    """Give the items that an answer has whole."""
    whole = [action for action in taken if action.kind == "get" and not action.projected]
    if not whole:
        return {}
    if request.operation == "GetItem":
        return {action.identity: answer.body["Item"] for action in whole if "Item" in answer.body}
    responses = answer.body["Responses"]
    if request.transactional:
        found = ((action.identity, responses[action.place].get("Item")) for action in whole)
        return {identity: item for identity, item in found if item is not None}
    tables = {action.given: action.table for action in whole}
    return {
        (table.name, comparable_item(table.primary_key(item))): item
        for given, table in tables.items()
        for item in responses.get(given, ())
    }


def _left(request: Request, answer: Answer, tables: Tables) -> set[Identity]:
    """Give the items of a batch that the engine itself left unprocessed."""
    left = answer.body.get("UnprocessedKeys") or answer.body.get("UnprocessedItems")
    return {action.identity for action in actions_of(Request(request.operation, {"RequestItems": left or {}}), tables)}


def _images(actions: Iterable[Action]) -> Steps[dict[Identity, Item] | None]:
    """Read items as they are now, whole; None: the engine does not give them."""
    wanted = {action.identity: action for action in actions}
    tables = {action.table.name: action.table for action in wanted.values()}
    images: dict[Identity, Item] = {}
    keys = iter(wanted.values())
    while some := list(islice(keys, _KEYS)):
        requests: dict[str, Any] = {}
        for action in some:
            requests.setdefault(action.given, {"Keys": [], "ConsistentRead": True})["Keys"].append(action.key)
        while requests:
            answer = yield Request("BatchGetItem", {"RequestItems": requests})
            if not answer.ok:
                return None
            for given, items in answer.body["Responses"].items():
                table = tables[table_name(given)]
                images |= {(table.name, comparable_item(table.primary_key(item))): item for item in items}
            requests = answer.body.get("UnprocessedKeys") or {}
    return images


# -- Query and Scan


def _page(request: Request, tables: Tables, clock: Callable[[], float]) -> Attempt:
    try:
        page: Page = page_of(request, tables)
    except _MALFORMED as error:
        raise _Malformed from error
    table, now = page.table, clock()
    throttle = table.take(page.expected, now)
    if throttle is not None:
        return throttled([throttle])
    answer = yield request
    if not answer.ok:
        table.settle(page.expected, _NOTHING, clock())
        return answer
    whole = answer
    evaluated = page.evaluated(answer.body)
    if evaluated is not None:
        whole = yield evaluated
    cost = page.cost(whole.body.get("Items") or ())
    table.settle(page.expected, cost, clock())
    return replace(answer, body=with_consumed(request, answer.body, tables, [(table.name, cost.units)]))
