"""The calls that shardkit makes: how handlers recognize them, and what botocore sees of them.

A call is announced in a ContextVar, in which the handlers of :mod:`shardkit.runtime.hooks` find it. botocore builds and
validates the request without attribute values: :func:`visible` returns what the client method is called with, and
:func:`without_values` what botocore validates.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self

import orjson
from botocore.exceptions import ChecksumError, ClientError

from shardkit.errors import ConfigurationError
from shardkit.runtime.observers import Call

ITEM_OPERATIONS = frozenset({"BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan",
                              "TransactGetItems", "TransactWriteItems", "UpdateItem"})  # fmt: skip
_REPEATABLE = frozenset({"BatchGetItem", "BatchWriteItem", "GetItem", "Query", "Scan", "TransactGetItems"})
_WHOLE = frozenset({"Item", "Key", "KeyConditionExpression", "KeyConditions"})
_REQUIRED: dict[str, dict[str, type]] = {
    "BatchGetItem": {"Responses": dict, "UnprocessedKeys": dict},
    "BatchWriteItem": {"UnprocessedItems": dict},
    "DescribeTable": {"Table": dict},
    "Query": {"Items": list, "Count": int},
    "Scan": {"Items": list, "Count": int},
    "TransactGetItems": {"Responses": list},
}
"""The members of every answer (API reference; sent by all engines). botocore shows answers without them as empty."""
NO_SUCCESS = 300
BAD_GATEWAY = 502
_SHOWN_BYTES = 100


@dataclass(eq=False)
class OwnCall(Call):
    """A call that shardkit makes; in its ``with``, the next call of this operation in this context is this one.

    ``paced``: shardkit handles throttles, from the first on. ``once``: it must not be repeated if the service may have
    carried it out. ``careful``: nor must it if a repetition may do harm. ``check``: raises just before a request of the
    call goes, if it may not. ``shown``: botocore's parameters, without values; None until the call begins. ``written``:
    shardkit wrote the body. ``taken``: the parts taken out of the response, as wire values.
    """

    paced: bool = False
    once: bool = False
    careful: bool = False
    check: Callable[[], None] | None = None
    shown: dict[str, Any] | None = None
    written: bool = False
    taken: dict[str, Any] = field(default_factory=dict)
    _before: tuple[Any, ...] = field(default=(), init=False)

    def __enter__(self) -> Self:
        self._before = announced.set(self), under_way.set(None)
        if checks.get() is not self.check:
            self._before = *self._before, checks.set(self.check)
        return self

    def __exit__(self, *_: object) -> None:
        announced_before, under_way_before, *checks_before = self._before
        announced.reset(announced_before)
        under_way.reset(under_way_before)
        for before in checks_before:
            checks.reset(before)

    def response(self, returned: Mapping[str, Any]) -> dict[str, Any]:
        """Return the response with the parts taken out of it."""
        if self.shown is None:
            raise ConfigurationError(
                f"TableName: {self.operation} on {sorted(tables_in(self.params))} was sent without its parameters: an "
                "event handler of the client changed the table name; wrap the table under its real name"
            )
        answer, self.taken = {**returned, **self.taken}, {}
        if "Items" in answer:
            answer["Items"] = [*answer["Items"]]  # the reader may empty the list, which may be a stub's
        if "Error" in answer or not self.answered_by(answer):
            # botocore's parser read the body, or ignored the status 502: too late for botocore's retries.
            metadata = {**returned.get("ResponseMetadata", {}), "HTTPStatusCode": BAD_GATEWAY}
            error = returned.get("Error") or _no_answer(self.operation, returned)
            refusal: Any = {"Error": error, "ResponseMetadata": metadata}
            raise ClientError(refusal, self.operation)
        return answer

    def answered_by(self, body: Any) -> bool:
        """Return whether a JSON body is an answer to this call."""
        required = _REQUIRED.get(self.operation, {})
        return isinstance(body, dict) and all(
            isinstance(body.get(name), kind)
            for name, kind in required.items()
            if name != "Items" or self.params.get("Select") != "COUNT"
        )


def may_repeat(operation: str, params: Mapping[str, Any]) -> bool:
    """Return whether a request does the same if it is sent twice."""
    if operation in {"DeleteItem", "PutItem"}:
        return not {"ConditionExpression", "Expected"} & params.keys() and params.get("ReturnValues", "NONE") == "NONE"
    return operation in _REPEATABLE or (operation == "TransactWriteItems" and "ClientRequestToken" in params)


def visible(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that tracing tools read before handler 1 runs, without attribute values."""
    shown = {name: params[name] for name in ("TableName", "IndexName") if name in params}
    if "RequestItems" in params:
        shown["RequestItems"] = {
            table: [] if isinstance(requests, list) else {"Keys": []}
            for table, requests in params["RequestItems"].items()
        }
    if "TransactItems" in params:
        shown["TransactItems"] = [
            {kind: visible(part) for kind, part in entry.items()} for entry in params["TransactItems"]
        ]
    return shown


def tables_in(params: Mapping[str, Any]) -> set[str]:
    if "TableName" in params:
        return {params["TableName"]}
    return {*params.get("RequestItems", ()), *(part["TableName"] for part in _actions(params))}


def _actions(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [part for entry in params.get("TransactItems", ()) for part in entry.values()]


def is_ours(params: Mapping[str, Any], call: Call) -> bool:
    # A request with values comes from a user's handler that runs before handler 1 and makes its own call.
    requests = params.get("RequestItems", {}).values()
    whole = (
        not _WHOLE.isdisjoint(params)
        or any(part["Keys"] if isinstance(part, dict) else part for part in requests)
        or ("TransactItems" in params and not all(map(_WHOLE.isdisjoint, _actions(params))))
    )
    return not whole and tables_in(call.params) == tables_in(params)


def _no_values(_: Any) -> dict[str, Any]:
    return {}


def _no_requests(tables: Mapping[str, Any]) -> dict[str, Any]:
    # The model requires at least one of each.
    return {table: [{}] if isinstance(part, list) else {**part, "Keys": [{}]} for table, part in tables.items()}


def _no_operands(conditions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        attribute: {name: part for name, part in condition.items() if name not in {"AttributeValueList", "Value"}}
        if isinstance(condition, Mapping)
        else condition
        for attribute, condition in conditions.items()
    }


# Every parameter with attribute values, and what botocore validates instead.
_STAND_INS: dict[str, Callable[[Any], dict[str, Any]]] = {
    **dict.fromkeys(("ExclusiveStartKey", "ExpressionAttributeValues", "Item", "Key"), _no_values),
    **dict.fromkeys(("AttributeUpdates", "Expected", "KeyConditions", "QueryFilter", "ScanFilter"), _no_operands),
    "RequestItems": _no_requests,
}


def without_values(params: Mapping[str, Any]) -> dict[str, Any]:
    # A value that should be a mapping and is not stays: botocore refuses it.
    shown: dict[str, Any] = {
        name: _STAND_INS[name](value) if name in _STAND_INS and isinstance(value, Mapping) else value
        for name, value in params.items()
    }
    if "TransactItems" in shown:
        shown["TransactItems"] = [
            {kind: without_values(part) for kind, part in entry.items()} for entry in shown["TransactItems"]
        ]
    return shown


def _no_answer(operation: str, given: object) -> dict[str, str]:
    """Return the error for a body that is not an answer; botocore's parser would return an empty answer."""
    shown = repr(given[:_SHOWN_BYTES] if isinstance(given, bytes) else given)
    return {
        "Code": str(BAD_GATEWAY),
        "Message": f"HTTP 200, but not a DynamoDB answer to {operation}: {shown:.400}; find out what answers at this "
        "endpoint (a proxy, a login page, a stub)",
    }


def refusal(operation: str, content: bytes) -> bytes:
    """Return the body, with status 502, that stands for one that is not an answer."""
    return orjson.dumps({"message": _no_answer(operation, content)["Message"]})


def read_json(content: bytes) -> tuple[Any, bool]:
    """Return a body, and whether it is strict JSON; botocore's parser accepts more (unpaired surrogates).

    The body is None if it is not JSON at all.
    """
    try:
        return orjson.loads(content), True
    except orjson.JSONDecodeError:
        try:
            return json.loads(content.decode()), False
        except (RecursionError, ValueError):
            return None, False


def check_sum(headers: Mapping[str, str], body: bytes) -> None:
    """Raise for a damaged answer; botocore's retries check it only later, and repeat the request."""
    expected, actual = headers.get("x-amz-crc32"), zlib.crc32(body)
    if expected is not None and expected.strip() != str(actual):
        raise ChecksumError(checksum_type="crc32", expected_checksum=expected, actual_checksum=str(actual))


def known_members(body: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Drop members that are null or not in the model, like botocore's parser."""
    known = model.output_shape.members
    return {name: value for name, value in body.items() if value is not None and name in known}


announced: ContextVar[OwnCall | None] = ContextVar("shardkit_announced", default=None)
"""The call that begins next in this context."""
under_way: ContextVar[OwnCall | None] = ContextVar("shardkit_under_way", default=None)
"""The call whose answer botocore reads next in this context; None: it is not shardkit's."""
checks: ContextVar[Callable[[], None] | None] = ContextVar("shardkit_checks", default=None)
"""Raises if no request of this context may go; None: it may."""
