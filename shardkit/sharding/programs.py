"""The operations of one sharded table as programs; every face (sync, async) runs these and adds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardkit.core.checks import check_count
from shardkit.core.machine import Program, Send
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
from shardkit.sharding.parameters import FanOut, check_keywords, checked_types
from shardkit.sharding.query.page import PageOfShards
from shardkit.sharding.query.page_size import ItemSizes
from shardkit.sharding.query.plan import Plan
from shardkit.sharding.query.stream import StreamOfShards
from shardkit.sharding.scan import StreamOfSegments, scan
from shardkit.strategies import Strategy, Unsharded

__all__ = ["Programs"]

Params = Mapping[str, Any]
Response = dict[str, Any]


_NOTHING_ASKED = {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}
"""The metadata of a page behind which no shard can hold anything, so that none was asked."""


class Programs:
    """Decides every operation on one table. Its key schema is given, or asked for once, when first needed."""

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
                f"strategy is {strategy!r:.100}, not a strategy of shardkit; give RandomSuffix(…), CalculatedSuffix(…) "
                "or Unsharded()"
            )
        self.table = table
        self.strategy = strategy
        self.draw = draw
        self.form = form
        self._sizes: dict[str | None, ItemSizes] = {}
        self.sharding = None if key_schema is None else Sharding.described(table, strategy, key_schema, form)

    def known(self) -> Program[Sharding]:
        """Give the table's sharding, after one DescribeTable at the most."""
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
        """Run an operation on one item, given by its API name (``"GetItem"``)."""
        sharding = yield from self.known()
        response = yield from items.OPERATIONS[operation](sharding, params, shard, self.draw, fan_out)
        return response if return_shards else _without("Shard", response)

    def query(self, params: Params, *, shard: int | None, return_shards: bool, fan_out: FanOut) -> Program[Response]:
        """Query: one page."""
        plan = yield from self.plan(params, shard)
        page: PageOfShards = yield PageOfShards(plan, sizes=self._sizes_of(plan), draw=self.draw, fan_out=fan_out)
        response: Response = {}
        if not plan.counting:
            response["Items"] = [plan.shown(entry) for entry in page.items]
            if return_shards:
                response["Shards"] = [plan.shard_shown(entry) for entry in page.items]
        response["Count"] = len(page.items)
        # Without a filter all that is evaluated is returned; what was read beyond the page is read again with the next.
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
        """Read a whole Query as a stream."""
        return StreamOfShards(
            plan,
            sizes=self._sizes_of(plan),
            draw=self.draw,
            fan_out=fan_out,
            max_items=max_items,
        )

    def _sizes_of(self, plan: Plan) -> ItemSizes:
        return self._sizes.setdefault(plan.index, ItemSizes())

    def plan(self, params: Params, shard: int | None) -> Program[Plan]:
        """Decide a Query."""
        sharding = yield from self.known()
        return Plan.of(sharding, params, shard=shard)

    def scan(self, params: Params, *, return_shards: bool) -> Program[Response]:
        """Scan: one page."""
        sharding = yield from self.known()
        response: Response = yield from scan(sharding, params)
        return response if return_shards else _without("Shards", response)

    def segments(self, params: Params, segments: int, *, fan_out: FanOut) -> Program[StreamOfSegments]:
        """Decide a Scan of all segments."""
        check_count("segments", segments, "segments", most=1_000_000, why="Scan takes no more")
        sharding = yield from self.known()
        return StreamOfSegments(sharding, params, segments, fan_out)

    def batch_get_items(
        self, keys: Iterable[Mapping[str, Any]], params: Params, *, fan_out: FanOut
    ) -> Program[Response]:
        """BatchGetItem over any number of keys, each looked for where it can be."""
        given = _listed(keys)
        check_keywords("BatchGetItem", params)
        sharding = yield from self.known()
        looked: list[list[Lookup]] = [self._places(sharding, key) for key in given]
        places = [place for one in looked for place in one]
        batch = BatchGet(sharding, places, self.form.params(checked_types(params)), self.draw, fan_out)
        yield batch
        # All places of one given key share its wire form, the very object.
        asked = {id(one[0][0]): (key, len(one) > 1) for key, one in zip(given, looked, strict=True)}
        seen: dict[int, list[int | None]] = {}
        for (primary, shard), _ in batch.found:
            key, located = asked[id(primary)]
            shards = seen.setdefault(id(primary), [])
            shards.append(shard)
            if located and len(shards) > 1:
                raise AmbiguousItemError(
                    f"shards {shards} of table {sharding.table!r} each hold an item of {dict(key)!r:.200}; delete all "
                    "but one, or read one with get_item(Shard=)",
                    shards,
                )
        response: Response = {
            "Items": [sharding.shown(item) for _, item in batch.found],
            "ResponseMetadata": batch.metadata,
        }
        if batch.consumed is not None:
            response["ConsumedCapacity"] = batch.consumed
        response = self.form.response(response)
        # As they were given, so that they can be asked for again: also with what ``by`` reads beside the key.
        left = dict.fromkeys(id(primary) for (primary, _) in batch.unprocessed)
        response["UnprocessedKeys"] = [dict(asked[one][0]) for one in left]
        return response

    def _places(self, sharding: Sharding, key: Mapping[str, Any]) -> list[Lookup]:
        wire = self.form.item(key)
        primary = items.primary_key(sharding, wire)
        shard = sharding.shard_of(primary[sharding.partition_key], self.form.python(key))
        if shard is not None or isinstance(sharding.strategy, Unsharded):
            return [(primary, shard)]
        if not sharding.strategy.locate:
            raise ShardUnknownError(
                f"the shard of {dict(key)!r:.200} cannot be known from its key with {sharding.strategy!r}; make the "
                "strategy with locate=True, or use CalculatedSuffix"
            )
        return [(primary, one) for one in sharding.shards(primary[sharding.partition_key])]

    def physical(self, item: Mapping[str, Any], source: str) -> Program[dict[str, Any]]:
        """Give an item (``source="Item"``) or a key (``"Key"``) as it is stored."""
        sharding = yield from self.known()
        return items.physical_item(sharding, item, source, self.draw)

    def logical(self, item: Mapping[str, Any]) -> Program[dict[str, Any]]:
        """Give a stored item as the application sees it."""
        sharding = yield from self.known()
        return items.logical_item(sharding, item)


def _listed(keys: Any) -> list[Mapping[str, Any]]:
    if isinstance(keys, Mapping | str | bytes) or not isinstance(keys, Iterable):
        raise ConfigurationError(f"keys is {keys!r:.100}, not a list of keys; give [{{'Date': …, 'OrderId': …}}, …]")
    listed = list(keys)
    if not listed:
        raise ConfigurationError("keys is empty: there is nothing to read; give at least one key, or make no call")
    return listed


def _not_described(table: str, error: Exception) -> Exception:
    """Say what an unanswered DescribeTable means; what may pass by itself stays what it is."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and not is_transient(error):
        return TableNotDescribedError(
            f"the key schema of table {table!r} is not known: DescribeTable answered {error}; check the table's name, "
            "the client's region and the permission dynamodb:DescribeTable, or give key_schema= (then none is made)",
            response,
        )
    if code_of(error) == "NoCredentialsError":
        return MissingCredentialsError(
            f"the key schema of table {table!r} is not known, because DescribeTable found no credentials ({error}); "
            "give the session or the client credentials (a profile, a role, AWS_ACCESS_KEY_ID)"
        )
    return error


def _without(name: str, response: Response) -> Response:
    return {key: value for key, value in response.items() if key != name}
