"""Every botocore handler that shardkit registers, in one place and one order.

Six handlers per client, each registered once. A call meets them in this order; 2 and 3 are registered only on clients
that shardkit makes calls on itself (:func:`prepare`):

1. ``before-parameter-build`` (last): puts the parameters of shardkit's own call in, as wire values, and shows them to
   observers. botocore validates everything except attribute values. It sees empty values instead of those, because it
   would take twice the time of all the rest to validate and serialize them. And with wire values, a resource's client,
   which would serialize values again, behaves like a plain client.
2. ``before-call.*.*`` (first): writes the request's body, so that the user's handlers see the real body.
3. ``before-parse`` (last; once per attempt): reads the body of a successful answer; botocore's parser reads only the
   headers. A body that is not an answer of DynamoDB (a proxy's page, ``{}`` for a Query) becomes an error with status
   502.
4. ``needs-retry.dynamodb`` (first; once per attempt): shows failed attempts to observers. If shardkit decides the pace
   of the call, a throttle is raised at once, as the client would after its last retry; and so is, of a call that must
   not be made twice, an error after which the service may have carried it out. Other errors keep botocore's retries;
   shardkit's own 502 becomes the response's status, so that botocore retries it.
5. ``after-call.*.*`` (first): shows the response to observers. For shardkit's own call, it takes the attribute values
   out of the response before a resource's handler deserializes them.
6. ``after-call-error.*.*`` (first): shows calls that ended without an answer to observers.

A budget or a cache adds ``before-call`` (last). A call then waits when all but its signature is ready, and a call that
another handler answers does not wait. And it adds ``request-created`` (last; once per attempt): a budget that is shared
with other processes refuses a request whose turn was too long ago, because the process stood still in between.

``install()`` adds ``before-call`` (last), ``after-call`` of three operations, and ``provide-client-params`` of write
transactions: it is the last event before botocore adds a ``ClientRequestToken`` of its own. On its clients, a call of
the caller's that names a sharded table is noted by 1. Its program begins in 2, where the body is what botocore
validated and wrote, so parameters need no second check. If the program's first request is the same operation and not
marked as a part, it is the only one: the call *rides*, with another body, and is observed and held like any other; 5
passes its response to the program, and returns what the program makes of it. Otherwise ``before-call`` (last) runs the
program, whose requests are calls of shardkit's own, and answers the call, as botocore's own Stubber does. So it does
with a read that a cache may answer. It is last, so that another handler's answer (a Stubber's) stands for the logical
call, whether it rides or not: a call that does not get there was not sent.

Calls that are neither shardkit's own nor observed nor on sharded tables pass all handlers unchanged.

The order matters. botocore calls handlers from the most specific event name to the least, wildcards first, so a handler
for ``*.*`` runs before all of the user's handlers, and one for the bare event name after all. Neither this order nor
``before-parse`` and ``needs-retry`` are documented: tests/functional/test_events.py fails if they change. If
``before-parse`` is not emitted, or an answer is not as expected, botocore's parser reads it: slower, with the same
result (except that binary values are bytes, not base64 text).

The arguments of ``before-parse`` do not identify the call. So ``before-parameter-build``, with which every call begins,
records in a ContextVar whether the call is shardkit's own, and an own call restores the previous value when it ends. A
call that a user's handler makes inside another call is therefore never mistaken for it; at worst, botocore's parser
reads the answer of the outer call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError

from shardkit.core.machine import Machine, Program, Send, Wait
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.service_errors import is_throttle_code, may_be_done
from shardkit.errors import ConfigurationError, ShardkitError
from shardkit.runtime.observers import (
    CacheLookup,
    CacheObserver,
    Call,
    Holder,
    Observer,
    check,
    hold,
    holders_of,
    lost,
    show,
    show_failed,
    watch,
)
from shardkit.runtime.own_call import (
    BAD_GATEWAY,
    ITEM_OPERATIONS,
    NO_SUCCESS,
    OwnCall,
    announced,
    check_sum,
    is_ours,
    known_members,
    may_repeat,
    read_json,
    refusal,
    tables_in,
    under_way,
    without_values,
)
from shardkit.runtime.targets import is_async
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import AddedToken
from shardkit.strategies import Strategy

_ITEMS = ("Item", "Items", "Attributes", "Responses", "LastEvaluatedKey", "UnprocessedItems", "UnprocessedKeys",
          "ItemCollectionMetrics")  # fmt: skip
_CONTEXT = "shardkit"
_BODY = "shardkit"
_TOKEN = "shardkit-token"  # noqa: S105 - the name of an entry in a call's context


Answered = tuple[AWSResponse, dict[str, Any]]
"""What a ``before-call`` handler returns instead of the service: the HTTP response, and the parsed one."""


def answered(response: dict[str, Any]) -> Answered:
    return AWSResponse("", 200, HTTPHeaders(), None), response


class Rewriter(Protocol):
    """Decides what a client's calls on sharded tables become."""

    @property
    def shardings(self) -> Mapping[str, Sharding]:
        """Those of the tables that are known so far, by plain name."""

    @property
    def strategies(self) -> Mapping[str, Strategy]:
        """Those of all its tables, by the names or ARNs that ``install()`` was given."""

    def concerns(self, operation: str, params: Mapping[str, Any]) -> bool:
        """Return whether a call names a sharded table; raise if the operation is refused there."""

    def program(self, operation: str, params: dict[str, Any]) -> Program[dict[str, Any]]:
        """Return the program of a call; it returns the response in botocore's form."""

    def answer(self, call: LogicalCall) -> Any:
        """Run a call's program from its first step; return :data:`Answered`, or a coroutine that does."""

    def error(self, error: ShardkitError, operation: str) -> Exception:
        """Return an error as the callers of a client expect it."""

    def redefined(self, table: str) -> None:
        """Take note that a table was created, updated or deleted."""


@dataclass(eq=False, kw_only=True)
class LogicalCall(Call):
    """A call of the caller's on sharded tables.

    ``begun``: its program's first step, unless that is the call itself with another body. ``rides``: this is sent, and
    its response is the program's to finish; a response that another handler gave is the logical one.
    """

    rewriter: Rewriter
    program: Program[dict[str, Any]] | None = None
    begun: Send | Wait | Machine[Any] | None = None
    rides: bool = False


class _Handlers:
    def __init__(self, client: Any) -> None:
        self.observers: tuple[Observer, ...] = ()
        # Weak, because a rewriter references the client, whose events for CreateTable and the like keep it.
        self.rewriter: Callable[[], Rewriter | None] = _nothing
        self.prepared = False
        self.holding = False
        # Weak, because the client references its handlers.
        self._client = weakref.ref(client)

    def begin(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        own = announced.get()
        call: Call
        if own is not None and self.prepared and own.operation == model.name and is_ours(params, own):
            # The mark is used up: a call that a user's handler makes from here on is not shardkit's own.
            announced.set(None)
            # Keep parameters that a user's handler added, unless shardkit sets them itself.
            own.params, own.shown = {**params, **own.params}, params
            if own.careful and own.operation in ITEM_OPERATIONS:
                own.once |= not may_repeat(own.operation, own.params)
            call = own
        else:
            own = None
        if under_way.get() is not own:
            under_way.set(own)
        if own is None:
            rewriter = self.rewriter()
            if rewriter is not None and rewriter.concerns(model.name, params):
                context[_CONTEXT] = LogicalCall(model.name, params, rewriter=rewriter)
                return
            if not self.observers:
                return
            call = Call(model.name, params)
        context[_CONTEXT] = call
        watch(call, self.observers)
        if own is not None:
            params.update(without_values(own.params) if own.operation in ITEM_OPERATIONS else own.params)

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

    def last(self, request: Any, **_: Any) -> None:
        call = request.context.get(_CONTEXT)
        if call is not None:
            check(call)

    def write(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if isinstance(call, LogicalCall):
            _check_json(call, params)
            self._start(call, params, given_token=context.get(_TOKEN, True))
        elif isinstance(call, OwnCall) and call.shown is not None and call.operation in ITEM_OPERATIONS:
            _check_json(call, params)
            params["body"] = encode({**call.shown, **call.params})
            call.written = True

    def _start(self, call: LogicalCall, request: dict[str, Any], *, given_token: bool) -> None:
        body, _ = read_json(request["body"])
        if not given_token:
            body["ClientRequestToken"] = AddedToken(body["ClientRequestToken"])
        call.program = call.rewriter.program(call.operation, body)
        try:
            step = next(call.program)
            if not isinstance(step, Send) or step.operation != call.operation or step.part:
                call.begun = step
                return
            call.params, call.shardings = dict(step.params), call.rewriter.shardings
            watch(call, self.observers)
            request["body"] = encode(call.params)
        except ShardkitError as error:
            raise call.rewriter.error(error, call.operation) from error.__cause__

    def read(
        self,
        operation_model: Any,
        response_dict: dict[str, Any],
        customized_response_dict: dict[str, Any],
        **_: Any,
    ) -> None:
        call = under_way.get()
        if call is None or call.operation != operation_model.name:
            return
        of_items = call.operation in ITEM_OPERATIONS
        if of_items and not call.written:
            raise ConfigurationError(
                f"{call.operation} on {sorted(tables_in(call.params))} was sent without its values, because the client "
                "did not emit before-call; use a client with botocore's events"
            )
        if response_dict["status_code"] >= NO_SUCCESS:
            return
        if call.once:
            check_sum(response_dict["headers"], response_dict["body"])
        content = response_dict["body"]
        body, strict = read_json(content)
        if not call.answered_by(body):
            response_dict.update(status_code=BAD_GATEWAY, body=refusal(call.operation, content))
        elif of_items and strict:
            customized_response_dict[_BODY] = known_members(body, operation_model)
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
        parsed = lost(caught_exception) if response is None else response[1]
        show_failed(call, parsed)
        if not isinstance(call, OwnCall):
            return
        # No return value of a handler means "do not retry"; an exception ends the call.
        if response is None:
            if call.once and may_be_done(caught_exception):
                raise caught_exception
            return
        response[0].status_code = parsed["ResponseMetadata"]["HTTPStatusCode"]
        code = parsed.get("Error", {}).get("Code")
        client = self._client()
        if client is None:
            return
        error = client.exceptions.from_code(code)(parsed, operation.name)
        if (call.paced and is_throttle_code(code)) or (call.once and may_be_done(error)):
            parsed.setdefault("ResponseMetadata", {})["RetryAttempts"] = attempts - 1
            show(call, parsed)
            raise error

    def end(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        if call is None:
            return
        if _BODY in parsed:
            parsed.update(parsed.pop(_BODY))
        show(call, parsed)
        if isinstance(call, LogicalCall) and call.rides:
            self._finish(call, parsed)
        # An error is raised as parsed, with the item that it may contain.
        if isinstance(call, OwnCall) and "Error" not in parsed:
            call.taken = {name: parsed.pop(name) for name in _ITEMS if name in parsed}

    def _finish(self, call: LogicalCall, parsed: dict[str, Any]) -> None:
        """Replace the response to a ride, or the error, by the logical one."""
        client, program = self._client(), call.program
        assert client is not None and program is not None
        try:
            if "Error" in parsed:
                # after-call cannot undo an error: the client raises it, as the program leaves it.
                program.throw(client.exceptions.from_code(parsed["Error"].get("Code"))(parsed, call.operation))
            else:
                program.send(dict(parsed))
        except StopIteration as stop:
            logical = stop.value
        except ShardkitError as error:
            raise call.rewriter.error(error, call.operation) from error.__cause__
        except ClientError as error:
            logical = cast("dict[str, Any]", error.response)
        else:
            raise AssertionError(f"{call.operation} is more than one request")
        if logical is not parsed:
            parsed.clear()
            parsed.update(logical)

    def give_up(self, exception: Exception, context: dict[str, Any], **_: Any) -> None:
        call = context.get(_CONTEXT)
        # Errors that the service returned were observed in ``end`` or ``stop``.
        if call is not None and not isinstance(exception, ClientError):
            show(call, lost(exception))


def _answer(context: dict[str, Any], **_: Any) -> Any:
    call = context.get(_CONTEXT)
    if isinstance(call, LogicalCall):
        # botocore does not come here if another handler has answered.
        if call.begun is not None:
            return call.rewriter.answer(call)
        call.rides = True
    return None


def _note_token(params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[_TOKEN] = "ClientRequestToken" in params


def _redefined(rewriter: Rewriter, parsed: dict[str, Any], **_: Any) -> None:
    table = parsed.get("TableDescription", {}).get("TableName")
    if table is not None:
        rewriter.redefined(table)


def _check_json(call: Call, request: Mapping[str, Any]) -> None:
    if not request["body"].startswith(b"{"):
        raise ConfigurationError(
            f"this botocore does not write {call.operation} as JSON, which shardkit requires; use an older boto3 or a "
            "newer shardkit"
        )


def _nothing() -> None:
    return None


_PROVIDED = "provide-client-params.dynamodb.TransactWriteItems"
_REDEFINED = tuple(f"after-call.dynamodb.{name}" for name in ("CreateTable", "DeleteTable", "UpdateTable"))
_clients: weakref.WeakKeyDictionary[Any, _Handlers] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def prepare(client: Any) -> None:
    """Register the handlers for shardkit's own calls on a client, once."""
    handlers, events = _handlers(client), client.meta.events
    with _lock:
        if not handlers.prepared:
            events.register_first("before-call.*.*", handlers.write, unique_id="shardkit-write")
            events.register_last("before-parse", handlers.read, unique_id="shardkit-read")
            handlers.prepared = True


def observe(client: Any, observer: Observer) -> None:
    """Add an observer of the client's calls."""
    handlers, events = _handlers(client), client.meta.events
    with _lock:
        if not any(known is observer for known in handlers.observers):
            handlers.observers = (*handlers.observers, observer)
        if isinstance(observer, Holder) and not handlers.holding:
            # An async client is an async context manager; its handlers may be coroutines.
            go = handlers.go_async if is_async(client) else handlers.go
            events.register_last("before-call", go, unique_id="shardkit-go")
            events.register_last("request-created", handlers.last, unique_id="shardkit-last")
            handlers.holding = True


def show_lookups(client: Any, table: str, lookups: Sequence[CacheLookup]) -> None:
    """Show what a cache answered, or missed, to the observers of the client that it stands before."""
    for observer in _handlers(client).observers:
        if isinstance(observer, CacheObserver):
            observer.looked_up(table, lookups)


def rewriter_of(client: Any) -> Rewriter | None:
    """Return what ``install()`` has put on a client."""
    handlers = _clients.get(client)
    return None if handlers is None else handlers.rewriter()


def rewrite(client: Any, rewriter: Rewriter) -> None:
    """Pass a client's calls on sharded tables to a rewriter.

    Raises:
        ConfigurationError: The client has a rewriter.
    """
    prepare(client)
    handlers, events = _handlers(client), client.meta.events
    with _lock:
        if handlers.rewriter() is not None:
            raise ConfigurationError(
                "target: this client has sharded tables installed already; give all tables to one install(), or call "
                "uninstall() first"
            )
        handlers.rewriter = weakref.ref(rewriter)
        # It stays after restore(): a call that is under way then must not be sent as the caller gave it.
        events.register_last("before-call", _answer, unique_id="shardkit-answer")
        events.register_last(_PROVIDED, _note_token, unique_id="shardkit-token")
        for event in _REDEFINED:
            events.register_last(event, partial(_redefined, rewriter), unique_id="shardkit-redefined")


def restore(client: Any, rewriter: Rewriter) -> None:
    """Leave a client's calls alone again."""
    handlers = _handlers(client)
    with _lock:
        if handlers.rewriter() is rewriter:
            handlers.rewriter = _nothing
            for event in _REDEFINED:
                client.meta.events.unregister(event, unique_id="shardkit-redefined")


def carried(
    client: Any, call: Call, carry: Callable[[Call], tuple[dict[str, Any] | Exception, list[dict[str, Any]]]]
) -> dict[str, Any] | Exception:
    """Show a call that another process makes to the client's observers.

    ``carry`` makes the call and returns its answer, and the error responses of its failed attempts.
    """
    watch(call, _handlers(client).observers)
    try:
        hold(call)
    except ShardkitError as refusal:
        return refusal
    answer, failed = carry(call)
    for response in failed:
        show_failed(call, response)
    if isinstance(answer, ClientError):
        show(call, cast("dict[str, Any]", answer.response))
    else:
        show(call, lost(answer) if isinstance(answer, Exception) else answer)
    return answer


def begun(client: Any, call: OwnCall) -> dict[str, Any]:
    """Begin a call that does not pass the client, and return the part of its context by which handlers know it."""
    call.shown = {}
    watch(call, _handlers(client).observers)
    return {_CONTEXT: call}


def call_in(context: Mapping[str, Any]) -> Call | None:
    """Return the call that a context of botocore's belongs to."""
    return context.get(_CONTEXT)


def unobserve(client: Any, observer: Observer) -> None:
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
