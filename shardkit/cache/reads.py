"""The reads of one table through its cache: which of them it answers, and in which form.

As everywhere, keys and items are wire values in here; the form of the caller is that of ``CachedTable`` (Python values)
or of an installed client (wire values).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from shardkit.cache.entries import Entry, item_key, page_key, pages_key
from shardkit.cache.steps import AskTable, CacheProgram
from shardkit.cache.table_cache import Read, TableCache
from shardkit.core.machine import Response
from shardkit.dynamodb.expressions.rewrite import build_conditions
from shardkit.dynamodb.requests import equals_of
from shardkit.dynamodb.sizes import item_size
from shardkit.dynamodb.units import add_consumed, read_units
from shardkit.dynamodb.values import WireItem, WireValue
from shardkit.errors import ShardkitError
from shardkit.sharding.batches import first_twice, repeated
from shardkit.sharding.form import Form
from shardkit.sharding.programs import no_request

_ASKS = "ReturnConsumedCapacity"
# With any other option the answer is not the item, or not one that the cache may give.
_ITEM_OPTIONS = frozenset({"Key", "TableName", "ConsistentRead", _ASKS})
_PAST_PAGES = frozenset({"ConsistentRead", "ReturnShards", "Shard"})
_PAGE = ("Items", "Count", "ScannedCount", "LastEvaluatedKey")
_UNREADABLE = (AttributeError, LookupError, ShardkitError, TypeError, ValueError)


@dataclass(frozen=True)
class CachedReads:
    """The reads of a table.

    Args:
        cache: The state of its cache.
        table: Its name in answers.
        names: The attributes of its primary key.
        prefix: What its keys in the store begin with.
        form: The caller's form, with the secrets of the table's cursors.
    """

    cache: TableCache
    table: str
    names: tuple[str, ...]
    prefix: bytes
    form: Form

    def key(self, item: Mapping[str, WireValue]) -> bytes:
        return item_key(self.prefix, self.names, item)

    def get(self, operation: str, params: Mapping[str, Any]) -> CacheProgram[Response]:
        """Read one item; ``operation`` is what an ``AskTable`` of it says."""
        response: Response
        asked = self._asked(params, [params.get("Key")])
        if asked is None:
            response = yield AskTable(operation, params)
            return response
        ((wire, key),) = asked
        responses: list[Response] = []

        def load(_: Sequence[int], options: Mapping[str, Any]) -> CacheProgram[list[Entry | None]]:
            response = yield AskTable(operation, {**params, **options})
            responses.append(response)
            item = response.get("Item")
            return [entry_of(None if item is None else self.form.item(item))]

        (read,) = yield from self.cache.read([key], load, [wire[self.names[0]]])
        if responses:
            return responses[-1]
        assert read is not None
        response = {} if read.entry.item is None else {"Item": self.form.shown(read.entry.item)}
        return self._answered(response, params, read)

    def get_many(
        self, operation: str, keys: Sequence[Mapping[str, Any]], options: Mapping[str, Any], *, once: bool = False
    ) -> CacheProgram[Response]:
        """Read many items, as ``ShardedTable.batch_get_items`` does; only those that are missed are asked for.

        ``once``: refuse a repeated key, as the service does.
        """
        response: Response
        asked = self._asked(options, keys)
        if not asked:
            response = yield AskTable(operation, {"keys": keys, **options})
            return response
        twice = first_twice(key for _, key in asked) if once else None
        if twice is not None:
            raise repeated(operation, keys[twice])
        places = {key: place for place, (_, key) in reversed([*enumerate(asked)])}  # of each key, the first
        given = sorted(places.values())
        responses: list[Response] = []

        def load(missed: Sequence[int], more: Mapping[str, Any]) -> CacheProgram[list[Entry | None]]:
            wanted = [keys[given[place]] for place in missed]
            response = yield AskTable(operation, {"keys": wanted, **options, **more})
            responses.append(response)
            items = [self.form.item(item) for item in response["Items"]]
            found = {self.key(item): item for item in items}
            left = {self.key(self.form.item(key)) for key in response["UnprocessedKeys"]}
            wanted_keys = [asked[given[place]][1] for place in missed]
            return [None if key in left else entry_of(found.get(key)) for key in wanted_keys]

        looked = [asked[place] for place in given]
        reads = yield from self.cache.read(
            [key for _, key in looked], load, [wire[self.names[0]] for wire, _ in looked]
        )
        shown = [read for read in reads if read is not None and read.entry.item is not None]
        response = {
            "Items": [self.form.shown(read.entry.item) for read in shown if read.entry.item is not None],
            "UnprocessedKeys": [dict(keys[place]) for place, read in zip(given, reads, strict=True) if read is None],
            "Cached": [read.status for read in shown],
            "ResponseMetadata": responses[-1]["ResponseMetadata"] if responses else no_request(),
        }
        if options.get(_ASKS, "NONE") != "NONE":
            consumed = None
            for one in responses:
                consumed = add_consumed(consumed, one["ConsumedCapacity"])
            response["ConsumedCapacity"] = consumed or self._nothing()
        return response

    def query(self, operation: str, params: Mapping[str, Any]) -> CacheProgram[Response]:
        """Read one page of a Query."""
        asked = None if self.cache.options.query_ttl is None else self._page(params)
        responses: list[Response] = []

        def load(_: Sequence[int], options: Mapping[str, Any]) -> CacheProgram[list[Entry | None]]:
            response = yield AskTable(operation, {**params, **options})
            responses.append(response)
            # With ShardErrors, some of its items are missing.
            return [None if "ShardErrors" in response else self._page_entry(response)]

        if asked is None:
            yield from load([0], {})
            return responses[-1]
        wire, value = asked
        key = page_key(self.prefix, wire, self._secret)
        read = yield from self.cache.read_page(key, pages_key(self.prefix, value), load, value)
        if responses:
            return responses[-1]
        assert read is not None and read.entry.page is not None
        page = dict(read.entry.page)
        if "Items" in page:
            page["Items"] = [self.form.shown(item) for item in page["Items"]]
        if "LastEvaluatedKey" in page:
            page["LastEvaluatedKey"] = self.form.shown(page["LastEvaluatedKey"])
        return self._answered(page, params, read)

    @cached_property
    def _secret(self) -> bytes:
        """What keeps pages apart by ``cursor_secret=``; empty: cursors are not signed.

        So a page from the store has a cursor that this table would make, and begins at one that it would accept.
        """
        digests = [sha256(secret).digest() for secret in self.form.cursor_secrets]
        return sha256(b"".join(digests)).digest() if digests else b""

    def _asked(
        self, options: Mapping[str, Any], keys: Iterable[Mapping[str, Any] | None]
    ) -> list[tuple[WireItem, bytes]] | None:
        """Return the keys of a read that the cache may answer; None: the table answers it, or refuses it."""
        if not options.keys() <= _ITEM_OPTIONS or options.get("ConsistentRead"):
            return None
        try:
            wires = [self.form.item(key or {}) for key in keys]
            found = [(wire, self.key(wire)) for wire in wires]
        except _UNREADABLE:
            return None
        # More attributes than the primary key say in which of several shards or tables the item is.
        return None if any(len(wire) > len(self.names) for wire in wires) else found

    def _page(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], WireValue | None] | None:
        """Return a Query in wire form, and its partition key's value (None: of an index); None: as ``_asked``."""
        if any(params.get(name) for name in _PAST_PAGES):
            return None
        try:
            wire = self.form.params(build_conditions(params))
            value = None if "IndexName" in params else equals_of(wire)[self.names[0]]
        except _UNREADABLE:
            return None
        return {name: value for name, value in wire.items() if name not in {_ASKS, *_PAST_PAGES}}, value

    def _page_entry(self, response: Response) -> Entry:
        page = {name: response[name] for name in _PAGE if name in response}
        if "Items" in page:
            page["Items"] = [self.form.item(item) for item in page["Items"]]
        if "LastEvaluatedKey" in page:
            page["LastEvaluatedKey"] = self.form.item(page["LastEvaluatedKey"])
        return Entry(read_units(sum(map(item_size, page.get("Items", ())))), page=page)

    def _answered(self, response: Response, params: Mapping[str, Any], read: Read) -> Response:
        response["Cached"] = read.status
        if params.get(_ASKS, "NONE") != "NONE":
            response["ConsumedCapacity"] = self._nothing()
        response["ResponseMetadata"] = no_request()
        return response

    def _nothing(self) -> dict[str, Any]:
        return {"TableName": self.table, "CapacityUnits": 0.0}


def entry_of(item: WireItem | None) -> Entry:
    """Return the entry of an item as it was read or written."""
    return Entry(read_units(0 if item is None else item_size(item)), item)
