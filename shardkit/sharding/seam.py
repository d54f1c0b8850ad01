"""The seam between kinds of tables: what each operation means on one, and what several tables in one request need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from shardkit.core.machine import Machine, Program, Response, Send
from shardkit.dynamodb.values import WireItem
from shardkit.sharding import items
from shardkit.sharding.batch_get import BatchGet
from shardkit.sharding.get_many import get_many, lookups
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params
from shardkit.sharding.query.page import PageOfShards, QueryPage
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import QueryStream, StreamOfShards
from shardkit.sharding.scan import Row, StreamOfSegments, scan

Origin = Literal["application", "move", "unknown"]
Batched = tuple[Sequence[tuple[Program[Response], bool]], BatchGet | None]


class Operations(Sharding):
    """A sharded table, and what each operation means on it: here, on one whose items stay where they are."""

    get_many = get_many
    physical_item = items.physical_item
    scan = scan

    def item(
        self, operation: str, params: Params, shard: int | None, fan_out: FanOutOptions, *, return_shards: bool
    ) -> Program[Response]:
        """Read or write one item; ``operation`` is ``GetItem``, ``PutItem``, ``UpdateItem`` or ``DeleteItem``."""
        response = yield from items.OPERATIONS[operation](self, params, shard, fan_out)
        if not return_shards:
            del response["Shard"]
        return response

    def plan(self, params: Params, shard: int | None, *, return_shards: bool = False) -> QueryPlan:
        return QueryPlan.of(self, params, shard=shard)

    def page(self, plan: QueryPlan, *, sizes: ItemSizes, fan_out: FanOutOptions) -> Machine[QueryPage]:
        return PageOfShards(plan, sizes=sizes, fan_out=fan_out).hedged()

    def stream(
        self, plan: QueryPlan, *, sizes: ItemSizes, fan_out: FanOutOptions, max_items: int | None
    ) -> QueryStream:
        return StreamOfShards(plan, sizes=sizes, fan_out=fan_out, max_items=max_items)

    def segments(self, params: Params, segments: int, fan_out: FanOutOptions) -> Machine[list[Row]]:
        return StreamOfSegments(self, params, segments, fan_out)

    # A change in a stream or an export, and an item of a full export.

    def origin_of(
        self, stored: WireItem, event: str | None, old: WireItem | None, new: WireItem | None, *, net: bool
    ) -> Origin:
        return "application"

    def exported_origin(self, item: WireItem) -> Origin:
        return "application"

    # A batch or a transaction over several tables asks each of them for its part.

    def batched(self, writes: Sequence[tuple[str, Params]], fan_out: FanOutOptions) -> Program[Batched]:
        """Return the program of each write, and whether a batch may do its request; and the read that was necessary.

        ``writes`` are the operations on one item that have the parameters of the batch's writes, with these parameters.
        """
        yield from ()
        return [(items.OPERATIONS[name](self, params, None, fan_out), True) for name, params in writes], None

    def keys_in_batch(self, keys: Sequence[Mapping[str, Any]]) -> list[WireItem] | None:
        """Return the keys that a BatchGetItem over several tables has; None: this table is asked by itself."""
        looked = [lookups(self, key) for key in keys]
        return None if any(len(places) > 1 for places in looked) else [self.stored(*place) for (place,) in looked]

    def action(self, operation: str, params: Params, shard: Any, fan_out: FanOutOptions) -> Program[Any]:
        """Return the request that a transaction has in the place of an operation on one item.

        Or an object whose ``transact`` sends all of the transaction, from its parameters and parts.
        """
        if operation == "GetItem":
            send = yield from items.get_request(self, params, shard, fan_out)
        else:
            send = yield from _first_request(items.OPERATIONS[operation](self, params, shard, fan_out))
        return dict(send.params)

    # A load.

    @property
    def load_machine(self) -> Callable[..., Any] | None:
        """What makes the machine of a load, where it is not the ordinary one."""
        return None

    @property
    def placed(self) -> Sharding:
        """Where items that are new are stored now."""
        return self

    def check_item(self, item: Mapping[str, Any]) -> None:
        """Raise if an item cannot be written, beyond what ``placed`` checks."""


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
