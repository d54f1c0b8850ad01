"""The operations of one sharded table as programs, which the sync and the async table run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from shardkit.core.checks import check_count
from shardkit.core.machine import Machine, Program, Response, Send
from shardkit.dynamodb.service_errors import code_of, is_transient
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError, MissingCredentialsError, TableNotDescribedError, brief
from shardkit.sharding import items
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOutOptions, Params, check_keywords
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import QueryPlan
from shardkit.sharding.query.stream import QueryStream
from shardkit.sharding.scan import Row
from shardkit.sharding.seam import Operations
from shardkit.sharding.shard_map import ShardMapState, map_key
from shardkit.sharding.transactions import TRANSACTIONS, of_table
from shardkit.strategies import Strategy, Unsharded
from shardkit.strategies.suffixes import in_place_of_strategy

if TYPE_CHECKING:
    from shardkit.sharding.leases import Held

_log = logging.getLogger("shardkit")


def no_request() -> dict[str, Any]:
    """Return the metadata of a response for which no request was necessary; libraries read its id."""
    return {"RequestId": "", "HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}


class Programs:
    """The operations of one table. Its key schema is given, or read by one DescribeTable when first needed."""

    leased = False
    """Whether its requests must be checked before they go."""

    def __init__(
        self,
        table: str,
        strategy: Strategy,
        key_schema: Mapping[str, Any] | None,
        draw: Callable[[], float],
        form: Form = PYTHON_VALUES,
        shardings: dict[str, Sharding] | None = None,
        indexes: Mapping[str, Strategy] | None = None,
        described: Callable[..., Operations] = Operations.described,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ConfigurationError(
                f"strategy: must be RandomSuffix(…), CalculatedSuffix(…), RangeSuffix(…), Unsharded(), "
                f"Resharding(…) or ShardMap(), got {in_place_of_strategy(strategy)}"
            )
        if indexes is not None and not isinstance(indexes, Mapping):
            raise ConfigurationError(
                f"indexes: must map names of global secondary indexes to strategies, got {brief(indexes, 200)}; for "
                'example {"by-status": CalculatedSuffix("OrderId", shards=10, source="status")}'
            )
        self.table = table
        self.strategy = strategy
        self.indexes = indexes
        self.draw = draw
        self.form = form
        self._described = described
        self._sizes: dict[str | None, ItemSizes] = {}
        # By name or ARN as requests have it, for those who observe calls; tables of one client share it.
        self.shardings: dict[str, Sharding] = {} if shardings is None else shardings
        # Whether a table of some name is one of those that a time series is made of; None: it is one table.
        self.is_part: Callable[[str], bool] | None = None
        self.given = key_schema
        self._known: Operations | None = None
        if key_schema is not None:
            self.describe(key_schema)

    def describe(self, description: Mapping[str, Any]) -> Operations:
        """Set the key schema, from DescribeTable's ``Table`` or the arguments of CreateTable."""
        known = self._described(self.table, self.strategy, description, self.form, self.indexes)
        self._known = self.shardings[self.table] = known
        return known

    def has_map(self) -> Program[bool]:
        """Return whether the table has a shard map; if not, what DescribeTable told is known from now on."""
        description = yield from self.description(joins=True)
        found = yield from self.found_map(Sharding.described(self.table, Unsharded(), description))
        if found is None:
            self.describe(description)
        return found is not None

    def known(self, index: object = None) -> Program[Operations]:
        """Return the table's operations, after at most one DescribeTable; read it again for an unknown index.

        With the DescribeTable, it looks whether a shard map says otherwise than the strategy.
        """
        known = self._known
        if known is None or (isinstance(index, str) and index not in known.indexes and self.given is None):
            return (yield from self.checked((yield from self.description(joins=True)), waits=False))
        return known

    def checked(self, description: Mapping[str, Any], *, waits: bool) -> Program[Operations]:
        """Set the key schema from DescribeTable's ``Table``, unless a shard map says otherwise than the strategy."""
        has_map = yield from self.check_map(Sharding.described(self.table, Unsharded(), description), waits=waits)
        known = self.describe(description)
        if has_map:  # scans leave its item out
            self._known = self.shardings[self.table] = known = replace(known, has_map=True)
        return known

    def check_map(self, known: Sharding, *, waits: bool = True) -> Program[bool]:
        """Refuse the strategy if the table has a shard map that says otherwise; return whether it has one.

        ``waits``: as for ``found_map``.
        """
        state = None if self.leased else (yield from self.found_map(known, waits=waits))
        if state is not None:
            state.check(self.strategy, self.table)
        return state is not None

    def found_map(self, known: Sharding, *, waits: bool = True) -> Program[ShardMapState | None]:
        """Read the table's shard map; return None if there is none, or if the service refuses the read.

        ``waits``: let the client repeat the read if it is throttled.
        """
        if known.types.get(known.partition_key) == "N":
            return None
        # Eventually consistent: a caller that began a second sooner would not have seen more.
        params = {"TableName": self.table, "Key": map_key(known.keys, known.types)}
        try:
            answer = yield Send("GetItem", params, paced=not waits, joins=True)
        except Exception as error:
            # Those who have no map must not need the permission, or the throughput, to look for one.
            if not isinstance(getattr(error, "response", None), dict):
                raise
            _log.info("table %s: could not look for a shard map (%s), goes on without", self.table, code_of(error))
            return None
        return ShardMapState.of(answer["Item"], self.table) if "Item" in answer else None

    def under(self, held: Held) -> Self:
        """Return the same operations for one call, whose leases ``held`` collects."""
        return self

    def description(self, *, joins: bool = False) -> Program[Mapping[str, Any]]:
        try:
            answer = yield Send("DescribeTable", {"TableName": self.table}, joins=joins)
        except Exception as error:
            described = _not_described(self.table, error)
            if described is error:
                raise
            raise described from error
        table: Mapping[str, Any] = answer["Table"]
        return table

    def in_stage(self) -> Program[tuple[Strategy, Held | None]]:
        """Return the strategy in its present stage, and the leases under which it may be acted on."""
        yield from ()
        return self.strategy, None

    def key_names(self) -> Program[tuple[str, ...]]:
        """Return the attributes of the primary key."""
        return (yield from self.known()).key_names

    def to_load(self, *, look: bool = False) -> Program[Operations]:
        """Return the table's operations, before a load; ``look``: for a shard map, also if the table is known."""
        known = self._known
        if look and known is not None:
            yield from self.check_map(known)
        elif look:
            yield from self.checked((yield from self.description(joins=True)), waits=True)
        return (yield from self.known())

    def machine(self, sharding: Operations) -> Callable[..., Any] | None:
        """Return what makes the machine of a load, where it is not the ordinary one."""
        return sharding.load_machine

    def item(
        self, operation: str, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOutOptions
    ) -> Program[Response]:
        """Read or write one item; ``operation`` is ``GetItem``, ``PutItem``, ``UpdateItem`` or ``DeleteItem``."""
        known = yield from self.known()
        return (yield from known.item(operation, params, shard, fan_out, return_shards=return_shards))

    def query(
        self, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOutOptions
    ) -> Program[Response]:
        known = yield from self.known(params.get("IndexName"))
        plan = known.plan(params, shard, return_shards=return_shards)
        page = yield known.page(plan, sizes=self._sizes_of(plan), fan_out=fan_out)
        rows = page.rows
        response: Response = {}
        if not plan.counting:
            response["Items"] = rows.items if plan.as_shown else [plan.shown(item) for item in rows.items]
            if return_shards:
                response["Shards"] = [plan.shard_shown(number, item) for number, item in rows]
        response["Count"] = len(rows)
        # Without a filter, every evaluated item is returned; items read beyond the page are read again with the next.
        response["ScannedCount"] = page.scanned if plan.filtered else len(rows)
        if cursor := page.last_evaluated_key:
            response["LastEvaluatedKey"] = cursor
        if page.consumed is not None:
            response["ConsumedCapacity"] = page.consumed
        if page.errors:
            response["ShardErrors"] = page.errors
        response["ResponseMetadata"] = page.metadata or no_request()
        return response

    def stream(
        self, params: Params, shard: int | None, *, max_items: int | None, fan_out: FanOutOptions
    ) -> Program[QueryStream]:
        known = yield from self.known(params.get("IndexName"))
        plan = known.plan(params, shard)
        return known.stream(plan, sizes=self._sizes_of(plan), fan_out=fan_out, max_items=max_items)

    def _sizes_of(self, plan: QueryPlan) -> ItemSizes:
        return self._sizes.setdefault(plan.index, ItemSizes())

    def scan(self, params: Params, *, return_shards: bool) -> Program[Response]:
        known = yield from self.known(params.get("IndexName"))
        response: Response = yield from known.scan(params)
        if not return_shards:
            del response["Shards"]
        return response

    def segments(self, params: Params, segments: int, *, fan_out: FanOutOptions) -> Program[Machine[list[Row]]]:
        check_count("segments", segments, "segments", most=1_000_000, why="the limit of Scan")
        return (yield from self.known()).segments(params, segments, fan_out)

    def batch_get_items(
        self, keys: Iterable[Mapping[str, Any]], params: Params, *, fan_out: FanOutOptions
    ) -> Program[Response]:
        """Read any number of items by key, each from every shard where it can be."""
        given = listed_keys(keys)
        check_keywords("BatchGetItem", params)
        known = yield from self.known()
        return (yield from known.get_many(given, params, fan_out))

    def transact(self, operation: str, params: Params, *, fan_out: FanOutOptions) -> Program[Response]:
        """Read or write items of this table, and of unsharded ones, in one transaction; ``operation`` is its name."""

        def known(table: str) -> Program[Operations | None]:
            if table == self.table:
                return (yield from self.known())
            if table_name(table) == table_name(self.table):
                raise ConfigurationError(
                    f"TableName: {brief(table, 200)} may be this sharded table, {self.table!r}; omit it for this table"
                )
            return None

        return (yield from TRANSACTIONS[operation](of_table(params, self.table), known, self.form, fan_out))

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        """Return an item (``source="Item"``) or a key (``"Key"``) as it is stored."""
        return (yield from self.known()).physical_item(item, source, self.draw)

    def logical(self, item: Mapping[str, Any]) -> Program[dict[str, Any]]:
        sharding = yield from self.known()
        return items.logical_item(sharding, item)


def listed_keys(keys: Any) -> list[Mapping[str, Any]]:
    if isinstance(keys, Mapping | str | bytes) or not isinstance(keys, Iterable):
        raise ConfigurationError(f"keys: must be a list ([{{'Date': …, 'OrderId': …}}, …]), got {brief(keys)}")
    listed = list(keys)
    if not listed:
        raise ConfigurationError("keys: empty; give at least one key")
    return listed


def _not_described(table: str, error: Exception) -> Exception:
    """Return the error for a failed DescribeTable: a transient error unchanged, others with what to do."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and not is_transient(error):
        return TableNotDescribedError(
            f"table {table!r}: DescribeTable failed: {error}; check the table's name, the client's region and the "
            "permission dynamodb:DescribeTable, or give key_schema= (no DescribeTable then)",
            response,
        )
    if code_of(error) == "NoCredentialsError":
        return MissingCredentialsError(
            f"table {table!r}: DescribeTable found no credentials ({error}); give the "
            "session or the client credentials (a profile, a role, AWS_ACCESS_KEY_ID)"
        )
    return error
