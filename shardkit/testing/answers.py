"""Answers as the service gives them: throttles, unprocessed parts of batches, and consumed capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from shardkit.dynamodb.estimator import TableUnits
from shardkit.dynamodb.service_errors import Throttle
from shardkit.dynamodb.units import table_name
from shardkit.testing.actions import Action, EngineRequest, Tables

_ERRORS = "com.amazonaws.dynamodb.v20120810#"
_MULTIPLE = ("RequestItems", "TransactItems")


@dataclass(frozen=True)
class EngineAnswer:
    body: Mapping[str, Any]
    status: int = HTTPStatus.OK
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == HTTPStatus.OK

    @property
    def code(self) -> str:
        """The code of an error; empty for a success."""
        return str(self.body.get("__type", "")).rpartition("#")[2]


def throttled(throttles: Sequence[Throttle]) -> EngineAnswer:
    first = throttles[0]
    ((name, _),) = first.reasons.items()
    reasons = {reason["reason"]: reason for throttle in throttles for reason in throttle.reasons[name]}
    body = {"__type": _ERRORS + first.code, "message": first.message, name: list(reasons.values())}
    return EngineAnswer(body, HTTPStatus.BAD_REQUEST)


def cancelled(request: EngineRequest, throttles: Mapping[int, Throttle]) -> EngineAnswer:
    """Return the error of a transaction with throttled actions; ``throttles`` is by the place of the action.

    Source:
        DynamoDB API reference, ``TransactionCanceledException``: ``ProvisionedThroughputExceeded`` on a provisioned
        table, ``ThrottlingError`` on an on-demand one.
    """
    reasons = [{"Code": "None"} for _ in request.params["TransactItems"]]
    for place, met in throttles.items():
        code = "ThrottlingError" if met.on_demand else "ProvisionedThroughputExceeded"
        reasons[place] = {"Code": code, "Message": met.message}
    codes = ", ".join(reason["Code"] for reason in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
    body = {"__type": f"{_ERRORS}TransactionCanceledException", "Message": message, "CancellationReasons": reasons}
    return EngineAnswer(body, HTTPStatus.BAD_REQUEST)


def cut(request: EngineRequest, actions: Iterable[Action]) -> tuple[EngineRequest, dict[str, Any]]:
    """Return a batch without these actions, and the actions as UnprocessedItems or UnprocessedKeys."""
    out = {(action.access.table, action.access.place) for action in actions}
    goes: dict[str, Any] = {}
    stays: dict[str, Any] = {}
    for given, part in request.params["RequestItems"].items():
        keys = part["Keys"] if isinstance(part, Mapping) else part
        for kept, wanted in ((goes, False), (stays, True)):
            some = [entry for place, entry in enumerate(keys) if ((given, place) in out) is wanted]
            if some:
                kept[given] = {**part, "Keys": some} if isinstance(part, Mapping) else some
    return EngineRequest(request.operation, {**request.params, "RequestItems": goes}), stays


def with_unprocessed(request: EngineRequest, body: Mapping[str, Any], stays: Mapping[str, Any]) -> dict[str, Any]:
    """Add to an answer what was left out of its batch."""
    name = "UnprocessedKeys" if request.operation == "BatchGetItem" else "UnprocessedItems"
    left = dict(body.get(name) or {})
    for given, part in stays.items():
        known = left.get(given)
        if isinstance(part, Mapping):
            left[given] = {**part, "Keys": [*(known or {}).get("Keys", ()), *part["Keys"]]}
        else:
            left[given] = [*(known or ()), *part]
    return {**body, name: left}


def with_consumed(
    request: EngineRequest, body: Mapping[str, Any], tables: Tables, costs: Iterable[tuple[str, TableUnits]]
) -> dict[str, Any]:
    """Replace the consumed capacity of simulated tables in an answer, if the request asked for it."""
    answer = {name: value for name, value in body.items() if name != "ConsumedCapacity"}
    level = request.params.get("ReturnConsumedCapacity", "NONE")
    if level == "NONE":
        return answer
    by_table: dict[str, TableUnits] = {}
    for name, units in costs:
        by_table[name] = by_table.get(name, TableUnits()) + units
    ours = [units.consumed(name, indexes=level == "INDEXES") for name, units in by_table.items()]
    if any(name in request.params for name in _MULTIPLE):
        others = [one for one in body.get("ConsumedCapacity") or () if table_name(one["TableName"]) not in tables]
        answer["ConsumedCapacity"] = [*others, *ours]
    else:
        (answer["ConsumedCapacity"],) = ours
    return answer
