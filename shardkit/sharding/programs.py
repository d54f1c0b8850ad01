"""The operations of one sharded table as programs, which the sync and the async table run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from shardkit.core.checks import check_count
from shardkit.core.machine import Machine, Program, Response, Send
from shardkit.dynamodb.service_errors import code_of, is_transient
from shardkit.dynamodb.units import table_name
from shardkit.errors import ConfigurationError, MissingCredentialsError, StageError, TableNotDescribedError
from shardkit.sharding import items
from shardkit.sharding.batches import get_many, lookups
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Moving, Sharding
from shardkit.sharding.leases import Held
from shardkit.sharding.parameters import FanOut, Params, check_keywords
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import QueryStream, StreamOfShards
from shardkit.sharding.resharding import batch_get as moved_batch_get
from shardkit.sharding.resharding import items as moved_items
from shardkit.sharding.resharding.query import FilteredRead, MovingPlan, read_of
from shardkit.sharding.resharding.scan import StreamOfPlaces
from shardkit.sharding.scan import Row, StreamOfSegments, scan
from shardkit.sharding.transactions import TRANSACTIONS, of_table
from shardkit.strategies import Resharding, Stage, Strategy


def no_request() -> dict[str, Any]:
    """Return the metadata of a response for which no request was necessary; libraries read its id."""
    return {"RequestId": "", "HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}


class Movable(NamedTuple):
    """A table whose items move, what DescribeTable says of it, and the leases under which it is moved.

    ``moving`` is in stage ``"move"``; ``stage`` is that of the table's own strategy.
    """

    moving: Moving
    description: Mapping[str, Any]
    stage: Stage
    held: Held | None = None


class Programs:
    """The operations of one table. Its key schema is given, or read by one DescribeTable when first needed."""

    def __init__(
        self,
        table: str,
        strategy: Strategy,
        key_schema: Mapping[str, Any] | None,
        draw: Callable[[], float],
        form: Form = PYTHON_VALUES,
        shardings: dict[str, Sharding] | None = None,
        indexes: Mapping[str, Strategy] | None = None,
        cursor_period: str = "",
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ConfigurationError(
                f"strategy: must be RandomSuffix(…), CalculatedSuffix(…), RangeSuffix(…), Unsharded(), "
                f"Resharding(…) or ShardMap(), got {strategy!r:.100}"
            )
        if indexes is not None and not isinstance(indexes, Mapping):
            raise ConfigurationError(
                f"indexes: must map names of global secondary indexes to strategies, got {indexes!r:.200}; for example "
                '{"by-status": CalculatedSuffix("OrderId", shards=10, source="status")}'
            )
        self.table = table
        self.strategy = strategy
        self.indexes = indexes
        self.draw = draw
        self.form = form
        self._cursor_period = cursor_period
        self._sizes: dict[str | None, ItemSizes] = {}
        # By name or ARN as requests have it, for those who observe calls; tables of one client share it.
        self.shardings: dict[str, Sharding] = {} if shardings is None else shardings
        # Whether a table of some name is one of those that a time series is made of; None: it is one table.
        self.is_part: Callable[[str], bool] | None = None
        self.given = key_schema
        self._sharding: Sharding | None = None
        if key_schema is not None:
            self.describe(key_schema)

    def describe(self, description: Mapping[str, Any]) -> Sharding:
        """Set the key schema, from DescribeTable's ``Table`` or the arguments of CreateTable."""
        sharding = replace(
            Sharding.described(self.table, self.strategy, description, self.form, self.indexes),
            cursor_period=self._cursor_period,
        )
        self._sharding = self.shardings[self.table] = sharding
        return sharding

    def known(self, index: object = None) -> Program[Sharding]:
        """Return the table's sharding, after at most one DescribeTable; read it again for an unknown index."""
        sharding = self._sharding
        if sharding is None or (isinstance(index, str) and index not in sharding.indexes and self.given is None):
            return self.describe((yield from self.description(joins=True)))
        return sharding

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

    def movable(self, stage: Stage | None = None) -> Program[Movable]:
        """Return the table as one whose items move, after a DescribeTable.

        Raises:
            ConfigurationError: No items have to move.
            StageError: ``stage`` is given, and the table's strategy is in another one.
        """
        strategy, held = yield from self._strategy_now()
        if not isinstance(strategy, Resharding):
            raise ConfigurationError(
                f"table: must have a Resharding as its strategy, or a ShardMap with a move under way, got "
                f'{strategy!r:.200}; give ShardedTable(table, Resharding(old, new, stage="move"))'
            )
        description = yield from self.description()
        if not strategy.moves:
            raise ConfigurationError(
                f"table: from {strategy.old!r:.200} to {strategy.new!r:.200} no items have to move: go through the "
                "stages 'guard' and 'switch' to 'new'; a move and a verification are not necessary"
            )
        shape = replace(strategy, stage="move")
        moving = Sharding.described(self.table, shape, description, self.form, self.indexes)
        assert isinstance(moving, Moving)
        if stage is not None and strategy.stage != stage:
            raise StageError(
                f"stage: must be {stage!r} to move or verify table {self.table!r}, got {strategy.stage!r}; bring every "
                f"process to stage {stage!r} first, and this one too",
                strategy.stage,
            )
        return Movable(moving, description, strategy.stage, held)

    def _strategy_now(self) -> Program[tuple[Strategy, Held | None]]:
        yield from ()
        return self.strategy, None

    def key_names(self) -> Program[tuple[str, ...]]:
        """Return the attributes of the primary key."""
        return (yield from self.known()).key_names

    def loading(self) -> Program[Sharding]:
        """Return the table's sharding, before a load."""
        return (yield from self.known())

    def item(
        self, operation: str, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOut
    ) -> Program[Response]:
        """Read or write one item; ``operation`` is ``GetItem``, ``PutItem``, ``UpdateItem`` or ``DeleteItem``."""
        sharding = yield from self.known()
        if isinstance(sharding, Moving):
            if return_shards:
                sharding.refuse("ReturnShards=", "omit it: an item may be at its old or at its new place")
            return (yield from moved_items.OPERATIONS[operation](sharding, params, shard, fan_out))
        response = yield from items.OPERATIONS[operation](sharding, params, shard, fan_out)
        if not return_shards:
            del response["Shard"]
        return response

    def query(self, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOut) -> Program[Response]:
        plan = yield from self.plan(params, shard)
        page: PageOfShards | FilteredRead
        if isinstance(plan, MovingPlan):
            if return_shards:
                plan.refuse_shards()
            page = yield read_of(plan, sizes=self._sizes_of(plan), fan_out=fan_out, paged=True)
        else:
            page = yield PageOfShards(plan, sizes=self._sizes_of(plan), fan_out=fan_out).hedged()
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
        self, params: Params, shard: int | None, *, max_items: int | None, fan_out: FanOut
    ) -> Program[QueryStream]:
        plan = yield from self.plan(params, shard)
        if isinstance(plan, MovingPlan):
            return read_of(plan, sizes=self._sizes_of(plan), fan_out=fan_out, max_items=max_items)
        return StreamOfShards(plan, sizes=self._sizes_of(plan), fan_out=fan_out, max_items=max_items)

    def _sizes_of(self, plan: Plan) -> ItemSizes:
        return self._sizes.setdefault(plan.index, ItemSizes())

    def plan(self, params: Params, shard: int | None) -> Program[Plan]:
        sharding = yield from self.known(params.get("IndexName"))
        made = MovingPlan if isinstance(sharding, Moving) else Plan
        return made.of(sharding, params, shard=shard)

    def scan(self, params: Params, *, return_shards: bool) -> Program[Response]:
        sharding = yield from self.known(params.get("IndexName"))
        if isinstance(sharding, Moving):
            sharding.refuse("scan()", "use scan_items() of ShardedTable, which reads the old places first")
        response: Response = yield from scan(sharding, params)
        if not return_shards:
            del response["Shards"]
        return response

    def segments(self, params: Params, segments: int, *, fan_out: FanOut) -> Program[Machine[list[Row]]]:
        check_count("segments", segments, "segments", most=1_000_000, why="the limit of Scan")
        sharding = yield from self.known()
        if isinstance(sharding, Moving):
            return StreamOfPlaces(sharding, params, segments, fan_out)
        return StreamOfSegments(sharding, params, segments, fan_out)

    def batch_get_items(
        self, keys: Iterable[Mapping[str, Any]], params: Params, *, fan_out: FanOut
    ) -> Program[Response]:
        """Read any number of items by key, each from every shard where it can be."""
        given = listed_keys(keys)
        check_keywords("BatchGetItem", params)
        sharding = yield from self.known()
        if isinstance(sharding, Moving):
            return (yield from moved_batch_get.get_many(sharding, given, params, fan_out))
        looked = [lookups(sharding, key) for key in given]
        return (yield from get_many(sharding, given, looked, params, fan_out))

    def transact(self, operation: str, params: Params, *, fan_out: FanOut) -> Program[Response]:
        """Read or write items of this table, and of unsharded ones, in one transaction; ``operation`` is its name."""

        def known(table: str) -> Program[Sharding | None]:
            if table == self.table:
                return (yield from self.known())
            if table_name(table) == table_name(self.table):
                raise ConfigurationError(
                    f"TableName: {table!r:.200} may be this sharded table, {self.table!r}; omit it for this table"
                )
            return None

        return (yield from TRANSACTIONS[operation](of_table(params, self.table), known, self.form, fan_out))

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        """Return an item (``source="Item"``) or a key (``"Key"``) as it is stored."""
        sharding = yield from self.known()
        if isinstance(sharding, Moving):
            sharding.refuse(
                "physical_key(), physical_item()",
                "an item is at its old or its new place; use the operations of the table, or wait for stage 'new'",
            )
        return items.physical_item(sharding, item, source, self.draw)

    def logical(self, item: Mapping[str, Any]) -> Program[dict[str, Any]]:
        sharding = yield from self.known()
        return items.logical_item(sharding, item)


def listed_keys(keys: Any) -> list[Mapping[str, Any]]:
    if isinstance(keys, Mapping | str | bytes) or not isinstance(keys, Iterable):
        raise ConfigurationError(f"keys: must be a list ([{{'Date': …, 'OrderId': …}}, …]), got {keys!r:.100}")
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
