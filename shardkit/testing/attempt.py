"""Answer one attempt of a call as the service would: throttle it, or send it on to the engine and take its cost.

The program (:data:`shardkit.core.machine.Program`) yields requests to the engine and gets their answers. The cost of a
write depends on the item before it, which is read first. The cost of a read or an update is known only afterwards, and
may become a debt. An invalid request is sent on unchanged, so that the engine reports what is wrong. An error takes
nothing, except that a failed condition takes its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from shardkit.dynamodb.estimator import TableUnits
from shardkit.dynamodb.expressions.tokens import name_of, parts, rebuilt, taken_placeholders
from shardkit.dynamodb.requests import OPERATIONS, equals_of, found_items
from shardkit.dynamodb.schema import Index
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import apportion, read_units, table_name
from shardkit.dynamodb.values import comparable_item
from shardkit.errors import ShardkitError, UnsupportedOperationError
from shardkit.partitions.admission import Demand
from shardkit.partitions.model import HASHES
from shardkit.testing.actions import Action, EngineRequest, Identity, Tables, actions_of
from shardkit.testing.answers import EngineAnswer, cancelled, cut, throttled, with_consumed, with_unprocessed
from shardkit.testing.partitioned import Cost, Item, Key, PartitionedTable

T = TypeVar("T")

EngineProgram = Generator[EngineRequest, EngineAnswer, T]
Attempt = EngineProgram[EngineAnswer]

_MALFORMED = (ArithmeticError, AttributeError, LookupError, ShardkitError, TypeError, ValueError)
_KEYS = 100  # the most of a BatchGetItem (API reference)
_NOTHING = Cost(TableUnits(), (), ())


def attempt(request: EngineRequest, tables: Tables, clock: Callable[[], float]) -> Attempt:
    """Answer one attempt of a call on simulated tables.

    Raises:
        UnsupportedOperationError: the request is PartiQL; raised when the program runs.
    """
    if OPERATIONS[request.operation] is None:
        raise UnsupportedOperationError(
            f"{request.operation}: is not supported on a table with simulated partitions, because the cost of PartiQL "
            "is unknown; use other operations, such as GetItem"
        )
    try:
        if request.operation in {"Query", "Scan"}:
            return (yield from _page(request, tables, clock))
        return (yield from _items(request, tables, clock))
    except _Malformed:
        return (yield request)


class _Malformed(Exception):  # noqa: N818 - not an error: the engine reports what is wrong
    """The request does not have the API's shape; nothing was taken."""


# -- reads and writes of items


def _items(request: EngineRequest, tables: Tables, clock: Callable[[], float]) -> Attempt:
    try:
        actions = actions_of(request, tables)
        before = (yield from _images(actions)) if OPERATIONS[request.operation] else {}
        if before is None:
            raise _Malformed
        expected = [action.expected(before.get(action.identity)) for action in actions]
    except _MALFORMED as error:
        raise _Malformed from error
    now = clock()
    throttles = [action.table.take(cost, now) for action, cost in zip(actions, expected, strict=True)]
    results = list(zip(actions, expected, throttles, strict=True))
    taken = [(action, cost) for action, cost, throttle in results if throttle is None]
    refused = [(action, throttle) for action, _, throttle in results if throttle is not None]
    sent = request
    stays: dict[str, Any] = {}
    if refused:
        if "RequestItems" in request.params:
            sent, stays = cut(request, [action for action, _ in refused])
        if not sent.params.get("RequestItems"):
            for action, cost in taken:
                action.table.settle(cost, _NOTHING, clock())
            if "TransactItems" in request.params:
                return cancelled(request, {action.access.place: throttle for action, throttle in refused})
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


def _took(
    request: EngineRequest, answer: EngineAnswer, taken: list[Action], before: dict[Identity, Item]
) -> EngineProgram[list[Cost]]:
    if not answer.ok:
        failed = answer.code == "ConditionalCheckFailedException"
        return [action.failed(before.get(action.identity)) if failed else _NOTHING for action in taken]
    unknown = [action for action in taken if action.access.projected or action.kind == "update"]
    images = yield from _images(unknown)
    after = _found(request, answer, taken) | (images or {})
    left = _left(request, answer, {action.table.name: action.table for action in taken})
    costs = []
    for action in taken:
        item = before.get(action.identity)
        if action.identity in left:
            costs.append(_NOTHING)
        elif action.kind in {"get", "update"} and (images is not None or action not in unknown):
            costs.append(action.took(item, after.get(action.identity)))
        else:
            costs.append(action.expected(item))
    return costs


def _found(request: EngineRequest, answer: EngineAnswer, taken: list[Action]) -> dict[Identity, Item]:
    """Return the complete items in an answer."""
    whole = [action for action in taken if action.kind == "get" and not action.access.projected]
    found = found_items(request.operation, request.params, answer.body) if whole else {}
    items = ((action.identity, found.get((action.access.table, action.access.place))) for action in whole)
    return {identity: item for identity, item in items if item is not None}


def _left(request: EngineRequest, answer: EngineAnswer, tables: Tables) -> set[Identity]:
    """Return the items of a batch that the engine itself left unprocessed."""
    left = answer.body.get("UnprocessedKeys") or answer.body.get("UnprocessedItems")
    if not left:
        return set()
    return {action.identity for action in actions_of(EngineRequest(request.operation, {"RequestItems": left}), tables)}


def _images(actions: Iterable[Action]) -> EngineProgram[dict[Identity, Item] | None]:
    """Read the complete items as they are now; None: the engine answered with an error."""
    wanted = {action.identity: action for action in actions}
    tables = {action.table.name: action.table for action in wanted.values()}
    images: dict[Identity, Item] = {}
    keys = iter(wanted.values())
    while some := list(islice(keys, _KEYS)):
        requests: dict[str, Any] = {}
        for action in some:
            requests.setdefault(action.access.table, {"Keys": [], "ConsistentRead": True})["Keys"].append(action.key)
        while requests:
            answer = yield EngineRequest("BatchGetItem", {"RequestItems": requests})
            if not answer.ok:
                return None
            for given, items in answer.body["Responses"].items():
                table = tables[table_name(given)]
                images |= {(table.name, comparable_item(table.primary_key(item))): item for item in items}
            requests = answer.body.get("UnprocessedKeys") or {}
    return images


# -- Query and Scan


def _page(request: EngineRequest, tables: Tables, clock: Callable[[], float]) -> Attempt:
    try:
        page = _page_of(request, tables)
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
    evaluated = page.evaluated(answer.body)
    whole = answer if evaluated is None else (yield evaluated)
    cost = page.cost(whole.body.get("Items") or ())
    table.settle(page.expected, cost, clock())
    return replace(answer, body=with_consumed(request, answer.body, tables, [(table.name, cost.units)]))


# Parameters that only decide which of the evaluated items are returned, and how.
_SHOWN = frozenset({"AttributesToGet", "ConditionalOperator", "FilterExpression", "ProjectionExpression", "QueryFilter",
                    "ReturnConsumedCapacity", "ScanFilter", "Select"})  # fmt: skip
_WHOLE = frozenset({"ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES"})


@dataclass(frozen=True, kw_only=True)
class _PageRead:
    """A request of a Query or a Scan.

    ``expected`` is its least cost, on the partition of the key, or of the position where the Scan starts. ``fetch``:
    whether it asks a local index for attributes that are not projected.
    """

    request: EngineRequest
    table: PartitionedTable
    index: Index | None
    expected: Cost
    fetch: bool

    def evaluated(self, body: Mapping[str, Any]) -> EngineRequest | None:
        """Return the request for all evaluated items; None: the answer ``body`` has them."""
        params = self.request.params
        shown = _SHOWN.intersection(params) - {"ReturnConsumedCapacity"}
        scanned = body.get("ScannedCount", 0)
        if not scanned or not shown or (shown == {"Select"} and params["Select"] in _WHOLE):
            return None
        kept = {name: value for name, value in params.items() if name not in _SHOWN}
        whole = rebuilt({**kept, "Limit": scanned}, {}, released=taken_placeholders(params))
        return EngineRequest(self.request.operation, {**whole, **({"Select": "ALL_ATTRIBUTES"} if self.fetch else {})})

    def cost(self, items: Sequence[Item]) -> Cost:
        """Return the cost of a page that evaluated these items; each partition takes its share."""
        params = self.request.params
        name = None if self.index is None else self.index.name
        units = self.table.admission.estimator.query(
            items, index=name, consistent=bool(params.get("ConsistentRead")), fetch=self.fetch
        )
        if self.request.operation == "Query" or not items:
            (demand,) = self.expected.demands
            return self.expected._replace(units=units, demands=[demand._replace(units=units.total)])
        sizes: dict[tuple[Demand, Key], float] = {}
        for item in items:
            _, demands, keys, _ = self.table.read(name, item, TableUnits())
            place = demands[0], keys[0]
            sizes[place] = sizes.get(place, 0.0) + item_size(item)
        shares = apportion(units.total, sizes)
        demands = [demand._replace(units=share) for (demand, _), share in shares.items()]
        return Cost(units, demands, [key for _, key in shares])


def _page_of(request: EngineRequest, tables: Tables) -> _PageRead:
    params = request.params
    table = tables[table_name(params["TableName"])]
    name = params.get("IndexName")
    index = None if name is None else table.admission.indexes[name]
    least = TableUnits(read_units(0, consistent=bool(params.get("ConsistentRead"))))
    if request.operation == "Query":
        expected = table.read(name, equals_of(params), least)
    elif params.get("ExclusiveStartKey"):
        expected = table.read(name, params["ExclusiveStartKey"], least)
    else:
        begin = HASHES * params.get("Segment", 0) // params.get("TotalSegments", 1)
        partitions = table.partitions[None if index is None or index.local else name]
        expected = Cost(least, [Demand(partitions, begin, "read", least.total)], ())
    return _PageRead(request=request, table=table, index=index, expected=expected, fetch=_fetches(params, index))


def _fetches(params: Mapping[str, Any], index: Index | None) -> bool:
    if index is None or not index.local or index.projected is None:
        return False
    return params.get("Select") == "ALL_ATTRIBUTES" or not index.projected.issuperset(_asked(params))


def _asked(params: Mapping[str, Any]) -> Iterable[str]:
    text = params.get("ProjectionExpression", "")
    return [
        *(name_of(params, part.text) for part in parts(text) if part.kind == "path"),
        *params.get("AttributesToGet", ()),
    ]
