"""The operations of one sharded table as programs, which the sync and the async table run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardkit.core.checks import check_count
from shardkit.core.machine import Program, Response, Send
from shardkit.dynamodb.service_errors import code_of, is_transient
from shardkit.errors import (
    AmbiguousItemError,
    ConfigurationError,
    MissingCredentialsError,
    ShardUnknownError,
    TableNotDescribedError,
)
from shardkit.sharding import items
from shardkit.sharding.batch_get import BatchGet, Lookup
from shardkit.sharding.form import PYTHON_VALUES, Form
from shardkit.sharding.layout import Sharding
from shardkit.sharding.parameters import FanOut, Params, check_keywords, checked_types
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import StreamOfShards
from shardkit.sharding.scan import StreamOfSegments, scan
from shardkit.strategies import Strategy

_NOTHING_ASKED = {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}
"""The metadata of a page for which no request was necessary: no shard can have more items."""


class Programs:
    """The operations of one table. Its key schema is given, or read by one DescribeTable when first needed."""

    def __init__(
        self,
        table: str,
        strategy: Strategy,
        key_schema: Mapping[str, Any] | None,
        draw: Callable[[], float],
        form: Form = PYTHON_VALUES,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ConfigurationError(
                f"strategy: must be RandomSuffix(…), CalculatedSuffix(…) or Unsharded(), got {strategy!r:.100}"
            )
        self.table = table
        self.strategy = strategy
        self.draw = draw
        self.form = form
        self._sizes: dict[str | None, ItemSizes] = {}
        self.sharding = None if key_schema is None else Sharding.described(table, strategy, key_schema, form)

    def known(self) -> Program[Sharding]:
        """Return the table's sharding, after at most one DescribeTable."""
        if self.sharding is None:
            try:
                answer = yield Send("DescribeTable", {"TableName": self.table})
            except Exception as error:
                described = _not_described(self.table, error)
                if described is error:
                    raise
                raise described from error
            self.sharding = Sharding.described(self.table, self.strategy, answer["Table"], self.form)
        return self.sharding

    def item(
        self, operation: str, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOut
    ) -> Program[Response]:
        """Read or write one item; ``operation`` is ``GetItem``, ``PutItem``, ``UpdateItem`` or ``DeleteItem``."""
        sharding = yield from self.known()
        response = yield from items.OPERATIONS[operation](sharding, params, shard, fan_out)
        if not return_shards:
            del response["Shard"]
        return response

    def query(self, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOut) -> Program[Response]:
        plan = yield from self.plan(params, shard)
        page: PageOfShards = yield fan_out.hedged(PageOfShards(plan, sizes=self._sizes_of(plan), fan_out=fan_out))
        response: Response = {}
        if not plan.counting:
            response["Items"] = [plan.shown(entry) for entry in page.items]
            if return_shards:
                response["Shards"] = [plan.shard_shown(entry) for entry in page.items]
        response["Count"] = len(page.items)
        # Without a filter, every evaluated item is returned; items read beyond the page are read again with the next.
        response["ScannedCount"] = page.scanned if plan.filtered else len(page.items)
        if cursor := page.last_evaluated_key:
            response["LastEvaluatedKey"] = cursor
        if page.consumed is not None:
            response["ConsumedCapacity"] = page.consumed
        if page.errors:
            response["ShardErrors"] = page.errors
        response["ResponseMetadata"] = page.metadata or dict(_NOTHING_ASKED)
        return response

    def stream(self, plan: Plan, *, max_items: int | None, fan_out: FanOut) -> StreamOfShards:
        return StreamOfShards(plan, sizes=self._sizes_of(plan), fan_out=fan_out, max_items=max_items)

    def _sizes_of(self, plan: Plan) -> ItemSizes:
        return self._sizes.setdefault(plan.index, ItemSizes())

    def plan(self, params: Params, shard: int | None) -> Program[Plan]:
        sharding = yield from self.known()
        return Plan.of(sharding, params, shard=shard)

    def scan(self, params: Params, *, return_shards: bool) -> Program[Response]:
        sharding = yield from self.known()
        response: Response = yield from scan(sharding, params)
        if not return_shards:
            del response["Shards"]
        return response

    def segments(self, params: Params, segments: int, *, fan_out: FanOut) -> Program[StreamOfSegments]:
        check_count("segments", segments, "segments", most=1_000_000, why="the limit of Scan")
        sharding = yield from self.known()
        return StreamOfSegments(sharding, params, segments, fan_out)

    def batch_get_items(
        self, keys: Iterable[Mapping[str, Any]], params: Params, *, fan_out: FanOut
    ) -> Program[Response]:
        """Read any number of items by key, each from every shard where it can be."""
        given = _listed(keys)
        check_keywords("BatchGetItem", params)
        sharding = yield from self.known()
        looked: list[list[Lookup]] = [self._places(sharding, key) for key in given]
        places = [place for one in looked for place in one]
        batch = BatchGet(sharding, places, self.form.params(checked_types(params)), fan_out)
        yield fan_out.hedged(batch)
        # All places of one given key share one wire key object, so its id() identifies the given key.
        asked = {id(one[0][0]): (key, len(one) > 1) for key, one in zip(given, looked, strict=True)}
        seen: dict[int, list[int | None]] = {}
        for (primary, shard), _ in batch.found:
            key, located = asked[id(primary)]
            shards = seen.setdefault(id(primary), [])
            shards.append(shard)
            if located and len(shards) > 1:
                raise AmbiguousItemError(
                    f"keys: shards {shards} of table {sharding.table!r} each hold an item {dict(key)!r:.200}; delete "
                    "all but one, or read one with get_item(Shard=)",
                    shards,
                )
        response: Response = {
            "Items": [sharding.to_caller(item) for _, item in batch.found],
            "ResponseMetadata": batch.metadata,
        }
        if batch.consumed is not None:
            response["ConsumedCapacity"] = batch.consumed
        # As given, with the attributes that only ``by`` reads, so that the caller can request them again.
        left = dict.fromkeys(id(primary) for (primary, _) in batch.unprocessed)
        response["UnprocessedKeys"] = [dict(asked[one][0]) for one in left]
        return response

    def _places(self, sharding: Sharding, key: Mapping[str, Any]) -> list[Lookup]:
        wire = self.form.item(key)
        primary = items.primary_key(sharding, wire)
        shard, known = sharding.known_shard(primary, self.form.python(key))
        if known:
            return [(primary, shard)]
        if not sharding.strategy.locate:
            raise ShardUnknownError(
                f"keys: the shard of {dict(key)!r:.200} cannot be calculated with {sharding.strategy!r}; set "
                "locate=True in the strategy, or use CalculatedSuffix"
            )
        return [(primary, one) for one in sharding.shards(primary[sharding.partition_key])]

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        """Return an item (``source="Item"``) or a key (``"Key"``) as it is stored."""
        sharding = yield from self.known()
        return items.physical_item(sharding, item, source, self.draw)

    def logical(self, item: Mapping[str, Any]) -> Program[dict[str, Any]]:
        sharding = yield from self.known()
        return items.logical_item(sharding, item)


def _listed(keys: Any) -> list[Mapping[str, Any]]:
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
            f"key_schema: not given, and DescribeTable of table {table!r} failed: {error}; check the table's name, the "
            "client's region and the permission dynamodb:DescribeTable, or give key_schema= (no DescribeTable then)",
            response,
        )
    if code_of(error) == "NoCredentialsError":
        return MissingCredentialsError(
            f"key_schema: not given, and DescribeTable of table {table!r} found no credentials ({error}); give the "
            "session or the client credentials (a profile, a role, AWS_ACCESS_KEY_ID)"
        )
    return error
