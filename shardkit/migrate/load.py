"""A load into a table whose items move: each request of the load becomes the writes that the stage allows.

The load's own rules (order, duplicates, pace, retries) do not change: its window holds the items under the keys where
this stage stores new ones, and what a request became answers as the request would. So a load that is killed loses
nothing: an item is done when its own write was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardkit.bulk.load_machine import Load
from shardkit.bulk.report import BulkResult
from shardkit.bulk.writes import Write
from shardkit.core.machine import Answer, Program, ProgramMachine, Response, Send, Step, Wait
from shardkit.dynamodb.service_errors import code_of
from shardkit.dynamodb.units import add_consumed
from shardkit.dynamodb.values import WireItem, comparable_item
from shardkit.sharding.batches import batch_write
from shardkit.sharding.form import WIRE_VALUES
from shardkit.sharding.indexes import NO_INDEXES
from shardkit.sharding.leases import Held, leased
from shardkit.sharding.parameters import FanOutOptions
from shardkit.sharding.programs import Programs
from shardkit.sharding.seam import Operations

_AT_ONCE = 10  # requests in flight, if there are fewer workers: a batch of 25 single writes should not take 25 times
_WRITES = frozenset({"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"})


@dataclass(eq=False)
class _Request:
    """A request of the load, and the program in its place."""

    send: Send
    steps: ProgramMachine[Response]
    requests: int = 0
    consumed: dict[str, Any] | None = None
    stored: dict[Any, Any] = field(default_factory=dict)  # its parts, by the logical primary key


class MovingLoad(Load):
    """The machine; arguments as of :class:`Load`.

    ``mapped``: of a table with a shard map, whose ``sharding`` is only that at the load's beginning. Each request is
    planned in the stage of its time, and anew if the map changes before all of it was sent.
    """

    def __init__(
        self,
        sharding: Operations,
        *,
        workers: int,
        draw: Callable[[], float],
        mapped: Programs | None = None,
        **options: Any,
    ) -> None:
        placed = sharding.placed
        # Each write's program writes the attributes of sharded indexes.
        super().__init__(replace(placed, sharded=NO_INDEXES), workers=workers, draw=draw, **options)
        self._placed = placed
        self._moving = replace(sharding, form=WIRE_VALUES)
        self._now = sharding
        self._mapped = mapped
        self._fan_out = FanOutOptions(max(1, _AT_ONCE // workers), draw)
        self._running: dict[Send, _Request] = {}
        self._asked: dict[Send, tuple[_Request, Send]] = {}

    def _take(self, make: Callable[[Mapping[str, Any], Any], Write], source: Mapping[str, Any], place: Any) -> None:
        def checked(given: Mapping[str, Any], at: Any) -> Write:
            write = make(given, at)
            self._moving.check_item(given)
            return write

        super()._take(checked, source, place)

    def next(self, now: float) -> Step[Sequence[BulkResult]]:
        while True:
            alarms = []
            for request in [*self._running.values()]:
                answer: Answer
                try:
                    step = request.steps.next(now)
                except Exception as error:  # noqa: BLE001 - the load decides what it means
                    answer = error
                else:
                    if isinstance(step, Send):
                        return self._sent(request, step)
                    if isinstance(step, Wait):
                        alarms += [] if step.until is None else [step.until]
                        continue
                    answer = self._answer(request, step.value)
                del self._running[request.send]
                super().receive(request.send, answer, now)
            of_load = super().next(now)
            if not isinstance(of_load, Send) or of_load.operation == "DescribeTable":
                break
            self._running[of_load] = self._begun(of_load)
        if isinstance(of_load, Wait):
            alarms += [] if of_load.until is None else [of_load.until]
            return Wait(min(alarms, default=None))
        return of_load

    def _begun(self, send: Send) -> _Request:
        """Return a request of the load as a batch of logical items, with the program that writes it."""
        if send.operation == "BatchWriteItem":
            parts = [*send.params["RequestItems"][self._moving.table]]
        else:
            kind, source = {"PutItem": ("PutRequest", "Item")}.get(send.operation, ("DeleteRequest", "Key"))
            parts = [{kind: {source: send.params[source]}}]
        logical, stored = [], {}
        for part in parts:
            ((kind, body),) = part.items()
            ((source, item),) = body.items()
            shown = self._placed.logical_item(item)
            stored[self._identity(shown)] = part
            logical.append({kind: {source: shown}})
        params = {"RequestItems": {self._moving.table: logical}, "ReturnConsumedCapacity": "INDEXES"}
        return _Request(send, ProgramMachine(self._written(params)), stored=stored)

    def _written(self, params: Mapping[str, Any]) -> Program[Response]:
        return leased(lambda held: batch_write(params, lambda _: self._known(held), WIRE_VALUES, self._fan_out))

    def _known(self, held: Held) -> Program[Operations | None]:
        if self._mapped is not None:
            sharding = yield from self._mapped.under(held).known()
            if sharding is not self._now:
                self._now, self._moving = sharding, replace(sharding, form=WIRE_VALUES)
        return self._moving

    def _sent(self, request: _Request, step: Send) -> Send:
        request.requests += 1
        if request.requests > 1:
            self._tally.requests += 1
        sent = replace(step, paced=True, check=self._check(step))
        self._asked[sent] = request, step
        return sent

    def _check(self, step: Send) -> Callable[[], None] | None:
        """Return what checks a request just before it goes: the table's leases, and the share of a budget."""
        leased, shared = step.check, self._pace.shared
        if shared is None or leased is None:
            return leased if shared is None else shared.check

        def check() -> None:
            leased()
            shared.check()

        return check

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        asked = self._asked.pop(send, None)
        if asked is None:
            super().receive(send, answer, now)
            return
        request, step = asked
        if step.operation in _WRITES:
            self._consumed(request, answer)
        request.steps.receive(step, answer, now)

    def _consumed(self, request: _Request, answer: Answer) -> None:
        if not isinstance(answer, Exception):
            found = answer.get("ConsumedCapacity") or ()
        elif code_of(answer) == "ConditionalCheckFailedException":
            found = {"TableName": self._moving.table, "CapacityUnits": 1.0}  # of a stub; an error does not report it
        else:
            found = ()
        for one in [found] if isinstance(found, Mapping) else found:
            request.consumed = add_consumed(request.consumed, one)

    def _answer(self, request: _Request, response: Response) -> Response:
        left = [
            request.stored[self._identity(item)]
            for parts in response["UnprocessedItems"].values()
            for part in parts
            for body in part.values()
            for item in body.values()
        ]
        unprocessed = {self._moving.table: left} if left else {}
        consumed = [] if request.consumed is None else [request.consumed]
        return {**response, "UnprocessedItems": unprocessed, "ConsumedCapacity": consumed}

    def _identity(self, item: WireItem) -> Any:
        return comparable_item({name: item[name] for name in self._moving.keys.names})
