"""Every botocore handler that shardkit registers, in one place and one order.

Six handlers a client, each registered once, in the order in which a call meets them (2 and 3 only where shardkit makes
calls of its own, :func:`prepare`):

1. ``before-parameter-build`` (last of all): a call of shardkit's own gets its parameters, in wire form; observers see
   them. botocore validates all that carries no attribute values, and for those that do is shown empty ones: it would
   validate and write each value in twice the time of all the rest. Wire form, so a resource's client, which would
   serialize values again, and a plain client behave alike.
2. ``before-call.*.*`` (first of all): shardkit writes the body itself; the user's handlers see what goes out.
3. ``before-parse`` (last of all, once an attempt): shardkit reads the body of a successful answer itself, botocore's
   parser only its headers. A body that is no answer of DynamoDB (a proxy's page, ``{}`` for a Query) becomes an error
   of status 502.
4. ``needs-retry.dynamodb`` (first, once an attempt): observers see what failed. A throttle of a call whose pace
   shardkit decides is raised at once, as the client would have raised it after its last retry. Other errors keep
   botocore's retries; a 502 of shardkit's own becomes the response's status, so that it is retried as one.
5. ``after-call.*.*`` (first of all): observers see the response; a call of shardkit's own takes its attribute values
   out, before a resource's handler would deserialize them.
6. ``after-call-error.*.*`` (first): observers see a call that ends without an answer.

Where a budget is attached there is one more: ``before-call`` (last of all), so that a call waits when all is ready but
for its signature, and one that another handler answers does not wait.

All are inert for calls that are neither shardkit's own nor observed. botocore emits from the most specific event name
to the least, wildcards first, so ``*.*`` comes before every handler of the user's, and a bare name after all.
``before-parse`` and ``needs-retry`` are in no documentation, nor is that order: tests/functional/test_events.py notices
a change. Where ``before-parse`` is not emitted, or an answer is not as expected, botocore's parser reads it: the same,
only slower (and binary as bytes, not as base64 text).

``before-parse`` does not say which call it is about. What is under way in this context does: every call on the client
begins with ``before-parameter-build``, which notes it, or notes that it is not shardkit's; and an own call that ends,
however it ends, puts back what was noted before it. So a call that a handler makes in the middle of another one is
never taken for it; at worst the outer one is read by botocore.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson
from botocore.exceptions import ClientError

from shardkit.dynamodb.body import encode
from shardkit.dynamodb.service_errors import is_throttle_code
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.observers import Call, Holder, Observer, hold, holders_of, show

if TYPE_CHECKING:
    from shardkit.sharding.layout import Sharding

__all__ = ["Call", "Observer", "carried", "observe", "own_call", "prepare", "unobserve", "visible"]

_ITEM_OPERATIONS = frozenset({"BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan",
                              "UpdateItem"})  # fmt: skip
_ITEMS = ("Item", "Items", "Attributes", "Responses", "LastEvaluatedKey", "UnprocessedItems", "UnprocessedKeys",
          "ItemCollectionMetrics")  # fmt: skip
_WHOLE = frozenset({"Item", "Key", "KeyConditionExpression", "KeyConditions"})
_CONTEXT = "shardkit"
_BODY = "shardkit"
_REQUIRED: dict[str, dict[str, type]] = {
    "BatchGetItem": {"Responses": dict, "UnprocessedKeys": dict},
    "BatchWriteItem": {"UnprocessedItems": dict},
    "DescribeTable": {"Table": dict},
    "Query": {"Items": list, "Count": int},
    "Scan": {"Items": list, "Count": int},
}
"""What every answer has (API reference, and on the wire of all engines); without it, botocore shows an empty answer."""
_NO_SUCCESS = 300
_BAD_GATEWAY = 502
_SHOWN_BYTES = 100


@dataclass
class OwnCall(Call):
    """A call that shardkit makes.

    ``paced``: shardkit decides what a throttle means, from the first on. ``shown``: the parameters that botocore has
    once the call began, without values. ``written``: shardkit wrote its body. ``taken``: what was taken out of its
    response, in wire form.
    """

    paced: bool = False
    shown: dict[str, Any] | None = None
    written: bool = False
    taken: dict[str, Any] = field(default_factory=dict)

    def response(self, returned: Mapping[str, Any]) -> dict[str, Any]:
        """Put the response together again."""
        if self.shown is None:
            raise ConfigurationError(
                f"{self.operation} on {sorted(_tables(self.params))} went out without its parameters, because an event "
                "handler of the client changed the table that it names; wrap the table under its real name"
            )
        answer = {**returned, **self.taken}
        if "Error" in answer or not self.answered_by(answer):
            # botocore has read it, or did not take shardkit's word for its status: too late to be retried there.
            metadata = {**returned.get("ResponseMetadata", {}), "HTTPStatusCode": _BAD_GATEWAY}
            error = returned.get("Error") or _no_answer(self.operation, returned)
            refusal: Any = {"Error": error, "ResponseMetadata": metadata}
            raise ClientError(refusal, self.operation)
        return answer

    def answered_by(self, body: Any) -> bool:
        """Say whether a body, as JSON has it, is an answer to this call."""
        required = _REQUIRED.get(self.operation, {})
        return isinstance(body, dict) and all(
            isinstance(body.get(name), kind)
            for name, kind in required.items()
            if name != "Items" or self.params.get("Select") != "COUNT"
        )


def visible(params: Mapping[str, Any]) -> dict[str, Any]:
    """Give the part of wire parameters that is no attribute value: what tracing tools read before ours are put in."""
    shown = {name: params[name] for name in ("TableName", "IndexName") if name in params}
    if "RequestItems" in params:
        shown["RequestItems"] = {
            table: [] if isinstance(requests, list) else {"Keys": []}
            for table, requests in params["RequestItems"].items()
        }
    return shown


def _tables(params: Mapping[str, Any]) -> set[str]:
    return {params["TableName"]} if "TableName" in params else set(params.get("RequestItems", ()))


def _is_ours(params: Mapping[str, Any], call: Call) -> bool:
    # A whole request is that of a user's handler which runs before this one, and makes a call of its own.
    requests = params.get("RequestItems", {}).values()
    whole = not _WHOLE.isdisjoint(params) or any(part["Keys"] if isinstance(part, dict) else part for part in requests)
    return not whole and _tables(call.params) == _tables(params)


def _no_values(_: Any) -> dict[str, Any]:
    return {}


def _no_requests(tables: Mapping[str, Any]) -> dict[str, Any]:
    # The model asks for at least one of each.
    return {table: [{}] if isinstance(part, list) else {**part, "Keys": [{}]} for table, part in tables.items()}


def _no_operands(conditions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        attribute: {name: part for name, part in condition.items() if name not in {"AttributeValueList", "Value"}}
        if isinstance(condition, Mapping)
        else condition
        for attribute, condition in conditions.items()
    }


# Every parameter that carries attribute values, and what botocore validates in its place.
_STAND_INS: dict[str, Callable[[Any], dict[str, Any]]] = {
    **dict.fromkeys(("ExclusiveStartKey", "ExpressionAttributeValues", "Item", "Key"), _no_values),
    **dict.fromkeys(("AttributeUpdates", "Expected", "KeyConditions", "QueryFilter", "ScanFilter"), _no_operands),
    "RequestItems": _no_requests,
}


def _without_values(params: Mapping[str, Any]) -> dict[str, Any]:
    # What is no mapping where one belongs is shown as it is: botocore refuses it.
    return {
        name: _STAND_INS[name](value) if name in _STAND_INS and isinstance(value, Mapping) else value
        for name, value in params.items()
    }


_announced: ContextVar[OwnCall | None] = ContextVar("shardkit_announced", default=None)
_under_way: ContextVar[OwnCall | None] = ContextVar("shardkit_under_way", default=None)


@contextmanager
def own_call(
    operation: str, params: Mapping[str, Any], sharding: Sharding | None, *, paced: bool = False
) -> Iterator[OwnCall]:
    """Mark the next call of this operation in this context as shardkit's own."""
    call = OwnCall(operation, dict(params), sharding, paced=paced)
    announced, under_way = _announced.set(call), _under_way.set(None)
    try:
        yield call
    finally:
        _announced.reset(announced)
        _under_way.reset(under_way)


class _Handlers:
    def __init__(self, client: Any) -> None:
        self.observers: tuple[Observer, ...] = ()
        self.prepared = False
        self.holding = False
        # Weak: the client holds its handlers.
        self._client = weakref.ref(client)

    def begin(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        own = _announced.get()
        call: Call
        if own is not None and self.prepared and own.operation == model.name and _is_ours(params, own):
            # From here on the mark is spent: a call that one of the user's handlers makes is not ours.
            _announced.set(None)
            # What one of the user's handlers added to every request stays, where shardkit does not say it itself.
            own.params, own.shown = {**params, **own.params}, params
            call = own
        else:
            own = None
            call = Call(model.name, params)
        if _under_way.get() is not own:
            _under_way.set(own)
        if own is None and not self.observers:
            return
        context[_CONTEXT] = call
        call.observers = self.observers
        for observer in call.observers:
            observer.before(call)
        if own is not None:
            params.update(_without_values(own.params) if own.operation in _ITEM_OPERATIONS else own.params)

    def go(self, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if call is not None:
            hold(call)

    async def go_async(self, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if call is not None:
            with holders_of(call) as holders:
                for holder in holders:
                    await holder.hold_async(call)

    def write(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if isinstance(call, OwnCall) and call.shown is not None and call.operation in _ITEM_OPERATIONS:
            if not params["body"].startswith(b"{"):
                raise ConfigurationError(
                    f"this botocore does not write {call.operation} as JSON, and shardkit has no other form; take an "
                    "older boto3, or a newer shardkit"
                )
            params["body"] = encode({**call.shown, **call.params})
            call.written = True

    def read(
        self,
        operation_model: Any,
        response_dict: dict[str, Any],
        customized_response_dict: dict[str, Any],
        **_: Any,
    ) -> None:
        call = _under_way.get()
        if call is None or call.operation != operation_model.name:
            return
        of_items = call.operation in _ITEM_OPERATIONS
        if of_items and not call.written:
            raise ConfigurationError(
                f"{call.operation} on {sorted(_tables(call.params))} went out without its values, because the client "
                "did not emit before-call; give shardkit a client whose events are botocore's"
            )
        if response_dict["status_code"] >= _NO_SUCCESS:
            return
        content = response_dict["body"]
        try:
            body = orjson.loads(content)
        except orjson.JSONDecodeError:
            body, of_items = _read_leniently(content), False
        if not call.answered_by(body):
            error = _no_answer(call.operation, content)
            response_dict.update(status_code=_BAD_GATEWAY, body=orjson.dumps({"message": error["Message"]}))
        elif of_items:
            # As botocore's parser, which drops what is null and what the model does not know.
            known = operation_model.output_shape.members
            customized_response_dict[_BODY] = {
                name: value for name, value in body.items() if value is not None and name in known
            }
            response_dict["body"] = b"{}"

    def stop(
        self,
        response: Any,
        operation: Any,
        attempts: int,
        request_dict: dict[str, Any],
        caught_exception: Any = None,
        **_: Any,
    ) -> None:
        call = request_dict["context"].get(_CONTEXT)
        if call is None or (response is not None and "Error" not in response[1]):
            return
        parsed = _lost(caught_exception) if response is None else response[1]
        for observer in call.observers:
            observer.failed(call, parsed)
        if response is None or not isinstance(call, OwnCall):
            return
        response[0].status_code = parsed["ResponseMetadata"]["HTTPStatusCode"]
        if not call.paced:
            return
        code = parsed.get("Error", {}).get("Code")
        client = self._client()
        if client is None or not is_throttle_code(code):
            return
        parsed.setdefault("ResponseMetadata", {})["RetryAttempts"] = attempts - 1
        show(call, parsed)
        # No value that a handler returns says "do not retry"; an exception ends the call.
        raise client.exceptions.from_code(code)(parsed, operation.name)

    def end(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if call is None:
            return
        if _BODY in parsed:
            parsed.update(parsed.pop(_BODY))
        show(call, parsed)
        # An error is raised as it was parsed, with the item that it may carry.
        if isinstance(call, OwnCall) and "Error" not in parsed:
            call.taken = {name: parsed.pop(name) for name in _ITEMS if name in parsed}

    def give_up(self, exception: Exception, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        # An error that the service answered with was observed where it was read.
        if call is not None and not isinstance(exception, ClientError):
            show(call, _lost(exception))


def _lost(exception: BaseException | None) -> dict[str, Any]:
    return {"Error": {"Code": type(exception).__name__, "Message": str(exception)}}


def _read_leniently(content: bytes) -> Any:
    """Read what orjson refuses and botocore's parser does not (unpaired surrogates); None: it is no JSON at all."""
    try:
        return json.loads(content.decode())
    except (RecursionError, ValueError):
        return None


def _no_answer(operation: str, given: object) -> dict[str, str]:
    """Give the error of an attempt that brought something else: botocore's parser would make an empty answer of it."""
    shown = repr(given[:_SHOWN_BYTES] if isinstance(given, bytes) else given)
    return {
        "Code": str(_BAD_GATEWAY),
        "Message": f"HTTP 200, but no answer of DynamoDB to {operation}: {shown:.400}; find out what answers in its "
        "place at this endpoint (a proxy, a login page, a stub)",
    }


_clients: weakref.WeakKeyDictionary[Any, _Handlers] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def prepare(client: Any) -> None:
    """Register the handlers of shardkit's own calls on a client, once."""
    handlers, events = _handlers(client), client.meta.events
    with _lock:
        if not handlers.prepared:
            events.register_first("before-call.*.*", handlers.write, unique_id="shardkit-write")
            events.register_last("before-parse", handlers.read, unique_id="shardkit-read")
            handlers.prepared = True


def observe(client: Any, observer: Observer) -> None:
    """Let an observer see the client's calls from now on."""
    handlers, events = _handlers(client), client.meta.events
    with _lock:
        if not any(known is observer for known in handlers.observers):
            handlers.observers = (*handlers.observers, observer)
        if isinstance(observer, Holder) and not handlers.holding:
            # An async client is an async context manager; its handlers may be coroutines.
            go = handlers.go_async if hasattr(client, "__aenter__") else handlers.go
            events.register_last("before-call", go, unique_id="shardkit-go")
            handlers.holding = True


def carried(
    client: Any, call: Call, carry: Callable[[Call], tuple[dict[str, Any] | Exception, list[dict[str, Any]]]]
) -> dict[str, Any] | Exception:
    """Let the client's observers see a call that another process makes for it.

    ``carry`` makes it, and gives its answer, and what its attempts met that failed, as error responses.
    """
    call.observers = _handlers(client).observers
    for observer in call.observers:
        observer.before(call)
    try:
        hold(call)
    except ShardkitError as refusal:
        return refusal
    answer, failed = carry(call)
    for response in failed:
        for observer in call.observers:
            observer.failed(call, response)
    if isinstance(answer, ClientError):
        show(call, cast("dict[str, Any]", answer.response))
    else:
        show(call, _lost(answer) if isinstance(answer, Exception) else answer)
    return answer


def unobserve(client: Any, observer: Observer) -> None:
    """Let an observer see no more calls."""
    handlers = _handlers(client)
    with _lock:
        handlers.observers = tuple(known for known in handlers.observers if known is not observer)


def _handlers(client: Any) -> _Handlers:
    with _lock:
        handlers = _clients.get(client)
        if handlers is None:
            handlers = _clients[client] = _Handlers(client)
            events = client.meta.events
            events.register_last("before-parameter-build", handlers.begin, unique_id="shardkit-begin")
            events.register_first("needs-retry.dynamodb", handlers.stop, unique_id="shardkit-stop")
            events.register_first("after-call.*.*", handlers.end, unique_id="shardkit-end")
            events.register_first("after-call-error.*.*", handlers.give_up, unique_id="shardkit-give-up")
        return handlers
