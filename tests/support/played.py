"""Plays a program on a plain table and on a sharded one whose service throttles; every outcome must be the same."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.transform import ParameterTransformer
from boto3.dynamodb.types import DYNAMODB_CONTEXT, TypeSerializer
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from shardkit import CalculatedSuffix, Resharding, ShardedTable, install, migrate
from shardkit.cache import CacheOptions
from shardkit.errors import ShardkitError
from shardkit.runtime.runner import on_clock
from shardkit.strategies.resharding import STAGES
from shardkit.testing import VirtualClock
from tests.support.equivalence import plainly
from tests.support.programs import MOVES, POSITIONS, TABLE, Op, Program
from tests.support.recorder import answered
from tests.support.tables import GlobalIndex, LocalIndex, make_table
from tests.support.wire import THROTTLE, error

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

_UNPROCESSED = {"BatchGetItem": "UnprocessedKeys", "BatchWriteItem": "UnprocessedItems"}
_CONFLICT = "TransactionConflictException"
_AGAIN = {THROTTLE, "InternalServerError", _CONFLICT, "TransactionConflict", "ThrottlingError"}
_UNLIKE = {"Cached", "ConsumedCapacity", "ResponseMetadata", "SizeEstimateRangeGB", *_UNPROCESSED.values()}
"""What a sharded table may answer otherwise; the rest of a response must be equal."""


class Faults:
    """Lets a share of a client's requests fail: throttles, conflicts, short pages, and batches that are done in part.

    Which ones depends on ``at`` and the request, not on the order of threads. A request fails three times at most. Some
    operations have hot keys, which are throttled 12 times: longer than shardkit tries. After ``most`` requests, all are
    denied.
    """

    def __init__(self, client: Any) -> None:
        self._call = threading.local()
        self.begin(0)
        client.meta.events.register_first("before-send.dynamodb", self._before_send)
        client.meta.events.register("before-parse.dynamodb", self._before_parse)

    def begin(self, share: float, at: str = "", most: int | None = None) -> None:
        self._share, self._at, self._most = share, at, most
        self._sent: Counter[str] = Counter()

    def _before_send(self, request: Any, **_: Any) -> Any:
        self._call.left = {}
        body, target = json.loads(request.body), request.headers["X-Amz-Target"]
        operation = (target.decode() if isinstance(target, bytes) else target).rpartition(".")[2]
        text = operation + re.sub("[0-9a-f]{32}", "", json.dumps({**body, "ClientRequestToken": ""}))
        self._sent[text] += 1
        rng = Random(f"{self._at} {text} {self._sent[text]}")
        fails = self._sent[text] <= 3 and rng.random() < self._share
        if self._most is not None and self._sent.total() > self._most:
            return answered(request.url, *error("AccessDeniedException"))
        if operation in _UNPROCESSED:
            return self._batch(request, body, rng if fails and rng.random() < 0.8 else None)
        if operation in {"Query", "Scan"} and fails and rng.random() < 0.6:
            return _send(request, {**body, "Limit": min(body.get("Limit", 9), rng.randint(1, 3))})
        if operation.startswith("Transact") and fails:
            reasons = [{"Code": rng.choice(("TransactionConflict", "ThrottlingError"))}]
            reasons += [{"Code": "None"}] * (len(body["TransactItems"]) - 1)
            return answered(request.url, *error("TransactionCanceledException", CancellationReasons=reasons))
        if operation.endswith("Item") and self._is_hot(body):
            return answered(request.url, *error(THROTTLE))
        other = _CONFLICT if operation in {"PutItem", "UpdateItem", "DeleteItem"} else "InternalServerError"
        return answered(request.url, *error(rng.choice((THROTTLE, other)))) if fails else None

    def _batch(self, request: Any, body: Any, rng: Random | None) -> Any:
        """Let some requests of a batch, which is of one table, be unprocessed: at random, and those of hot keys."""
        ((table, part),) = body["RequestItems"].items()
        entries = part["Keys"] if isinstance(part, Mapping) else part
        some = entries if rng is None else rng.sample(entries, rng.randint(0, len(entries)))
        some = [entry for entry in some if not self._is_hot(entry)]
        left = [entry for entry in entries if entry not in some]
        if not some:
            return answered(request.url, *error(THROTTLE))
        if left:
            as_given = (lambda keys: {**part, "Keys": keys}) if isinstance(part, Mapping) else (lambda keys: keys)
            self._call.left = {table: as_given(left)}
            _send(request, {**body, "RequestItems": {table: as_given(some)}})
        return None

    def _is_hot(self, entry: Any) -> bool:
        item = entry.get("PutRequest") or entry.get("DeleteRequest") or entry
        item = item.get("Item") or item.get("Key") or item
        key = f"{self._at} {item['pk']} {item['sk']}"
        self._sent[key] += 1
        hot = self._share > 0 and Random(self._at).random() < 0.4 and Random(key).random() < 0.4
        return hot and self._sent[key] <= 12

    def _before_parse(self, response_dict: dict[str, Any], **_: Any) -> None:
        if self._call.left and response_dict["status_code"] == 200:
            body = json.loads(response_dict["body"])
            (name,) = body.keys() & set(_UNPROCESSED.values())
            response_dict["body"] = json.dumps({**body, name: self._call.left}).encode()


def _send(request: Any, body: Any) -> None:
    request.body = json.dumps(body).encode()
    request.headers["Content-Length"] = str(len(request.body))


class Player:
    """The clients of one engine that programs are played with."""

    def __init__(self, session: boto3.Session, resource: DynamoDBServiceResource) -> None:
        self.resource = resource
        options: Any = {
            "endpoint_url": resource.meta.client.meta.endpoint_url,
            "config": Config(retries={"total_max_attempts": 1}),
        }
        self.clients: Mapping[str, list[Any]] = {
            "client": [session.client("dynamodb", **options) for _ in range(3)],
            "resource": [session.resource("dynamodb", **options).meta.client for _ in range(3)],
        }
        """By what a caller has: one for the plain table, and those of two processes for the sharded one."""
        self.mover = session.resource("dynamodb", **options)
        self.faults = {one: Faults(one) for one in [*chain(*self.clients.values()), self.mover.meta.client]}

    def close(self) -> None:
        for client in self.faults:
            client.close()

    def check(self, program: Program) -> None:
        """Play a program; raise for the first difference, with the operations that are needed to see it again."""
        try:
            self.play(program)
        except Exception as first:  # noqa: BLE001 - an unexpected error is a difference too
            error = first
            for op in reversed(program.ops):
                shorter = replace(program, ops=[one for one in program.ops if one is not op])
                try:
                    self.play(shorter)
                except Exception as again:  # noqa: BLE001
                    program, error = shorter, again
            ops = "\n".join(map(repr, program.ops))
            raise AssertionError(f"SHARDKIT_SEED={program.seed}\n{replace(program, ops=())}\n{ops}\n{error}") from error

    def play(self, program: Program) -> None:
        pk, sk, tie = (("pk", program.types[0]), ("sk", program.types[1]), ("b", program.types[1]))
        indexes = [GlobalIndex("same", pk, tie), GlobalIndex("city", ("city", "S"), tie)]
        local = [LocalIndex("local", tie)]
        # Names that are the same in every run: faults depend on the whole request.
        names = ("plain", "sharded")
        tables = [make_table(self.resource, pk, sk, local_indexes=local, global_indexes=indexes, name=n) for n in names]
        try:
            _Play(self, program, *tables).run()
        finally:
            for table in tables:
                table.delete()


class _Play:
    def __init__(self, player: Player, program: Program, plain: Any, sharded: Any) -> None:
        self.program, self.faults, self.mover = program, player.faults, player.mover
        self.plain, self.sharded = plain, sharded
        self.clients = player.clients[program.face]
        self.position = 0
        self.halfway = False
        """Whether the mover was stopped: an item may have two entries in a global index, in two pages (documented)."""
        self.indexes = {"city": CalculatedSuffix("sk", 2)} if program.index else {}

    def strategy(self, process: int) -> Any:
        old, new = MOVES.get(self.program.kind), self.program.strategy
        stage = STAGES[(self.position + process) // 2]
        return new if old is None else Resharding(old, new, stage=stage)

    def run(self) -> None:
        with ExitStack() as stack:
            self.installed = stack.enter_context(ExitStack())
            for client in [*self.clients[1:], self.mover.meta.client]:
                stack.callback(self.faults[client].begin, 0)
                stack.enter_context(on_clock(client, VirtualClock()))
            self.install()
            for op in self.program.ops:
                getattr(self, op.name.lower(), self.one)(op)
            self.end()

    def install(self) -> None:
        self.installed.close()
        name = self.sharded.name
        cache = {name: CacheOptions(max_bytes=10**7, query_ttl=60)} if self.program.cached else None
        for process, client in enumerate(self.clients[1:]):
            rng, indexes = Random(self.program.seed), {name: self.indexes}
            tables = {name: self.strategy(process)}
            self.installed.enter_context(install(client, tables, indexes=indexes, rng=rng, cache=cache))

    # Operations.
    def one(self, op: Op) -> None:
        if self.program.kind == "located":
            parts = op.params.get("TransactItems", [{"Update": op.params}] if op.name == "UpdateItem" else [])
            keys = [part["Update"]["Key"] for part in parts if "Update" in part]
            if any("Item" not in self.plain.get_item(Key=key) for key in keys):
                return  # it is refused: a new item has no shard
        _same(op, *(self.called(op, table) for table in (self.plain, self.sharded)))

    def query(self, op: Op) -> None:
        wanted, found = (self._pages(op, table) for table in (self.plain, self.sharded))
        twice = self.halfway and op.params.get("IndexName") in {"city", "same"}
        if twice and isinstance(wanted, int) and isinstance(found, int) and found > wanted:
            return
        if isinstance(wanted, list) and isinstance(found, list):
            if twice:
                wanted, found = (
                    [item for place, item in enumerate(items) if item not in items[:place]] for items in (wanted, found)
                )
            if op.sort is not None:
                _same(op, *([item.get(op.sort) for item in items] for items in (wanted, found)))
            if op.sort is None or "IndexName" in op.params:  # equal sort keys have another order
                wanted, found = (sorted(items, key=repr) for items in (wanted, found))
        _same(op, wanted, found)

    scan = query

    def advance(self, op: Op) -> None:
        """Deploy the next stages; all items must have moved before the last one."""
        for position in range(self.position + 1, (op.limit or 0) + 1):
            if position == POSITIONS - 2:
                assert self._moved().complete
                self.halfway = False
            self.position = position
        self.install()

    def move(self, op: Op) -> None:
        faults = self.faults[self.mover.meta.client]
        if 5 <= self.position < POSITIONS - 2:
            faults.begin(0, "", op.limit)
            self.halfway = True
            with suppress(*(() if op.limit is None else (ClientError, ShardkitError))):
                self.halfway = not self._moved().complete
                assert not self.halfway or op.limit is not None
            faults.begin(0)

    def _moved(self) -> Any:
        stage = Resharding(MOVES[self.program.kind], self.program.strategy, stage="move")
        moving = ShardedTable(self.mover.Table(self.sharded.name), stage, max_concurrency=1)
        return migrate.move(moving, write_units=None, read_units=None)

    def end(self) -> None:
        """Compare all items as a stream shows them, and some one by one."""
        table = ShardedTable(self.sharded, self.strategy(1), indexes=self.indexes)
        items = self.plain.scan(ConsistentRead=True)["Items"], table.scan_items(ConsistentRead=True)
        _same("the items in the end", *(sorted(map(_plainly, some), key=repr) for some in items))
        keys = [{"pk": pk, "sk": sk} for pk in self.program.pks for sk in self.program.sks]
        for number, key in enumerate(keys[::2]):
            self.one(Op(1000 + number, "GetItem", {"TableName": TABLE, "Key": key}, number % 2))

    # Calls.
    def called(self, op: Op, table: Any) -> Any:
        """Make a call until it is done; return what must be the same on both tables."""
        params, items = self._given(op, table), list[Any]()
        while True:
            answer = self._sent(op, params, table)
            if "Error" in answer:
                return _plainly(answer)
            items += answer.get("Responses", {}).get(table.name, []) if op.name == "BatchGetItem" else []
            left = answer.get(_UNPROCESSED.get(op.name, ""))
            if not left:
                break
            other = _entries(left) - _entries(params["RequestItems"])
            assert not other, f"{op}: unprocessed, but not given so: {other}"
            params = {**params, "RequestItems": left}
        found = sorted(map(_plainly, items), key=repr)
        return _plainly({**answer, "Responses": found} if op.name == "BatchGetItem" else answer)

    def _given(self, op: Op, table: Any) -> Any:
        """Return the parameters in the caller's form; from here on, the faults are those of this operation."""
        for client in self.clients[1:]:
            self.faults[client].begin(self.program.faults, f"{self.program.seed} {op.number}")
        given = _named(deepcopy(op.params), table.name)
        if self.program.face == "client":
            shape = self.clients[0].meta.service_model.operation_model(op.name).input_shape
            ParameterTransformer().transform(given, shape, TypeSerializer().serialize, "AttributeValue")
        return given

    def _sent(self, op: Op, params: Any, table: Any) -> Any:
        """Send a call, again while it is throttled; return the response, or the error."""
        client, before = self.clients[0], deepcopy(params)
        if table is self.sharded:
            # A cache shows the writes through its own client only.
            client = self.clients[1 if self.program.cached else 1 + op.process]
        for _ in range(100):
            try:
                response = getattr(client, xform_name(op.name))(**params)
            except ClientError as error:
                code, said = error.response["Error"]["Code"], error.response["Error"]["Message"]
                reasons = [(one["Code"], one.get("Item")) for one in error.response.get("CancellationReasons", ())]
                if not {code, *(reason for reason, _ in reasons)} & _AGAIN:
                    return {"Error": code, "Item": error.response.get("Item"), "Reasons": reasons, "Said": said}
            else:
                assert params == before, f"{op} changed its parameters"
                return response
        raise AssertionError(f"{op.name} was throttled 100 times")

    def _pages(self, op: Op, table: Any) -> Any:
        """Return the items of all pages; their number if they are counted; or the error."""
        params, items, count = self._given(op, table), list[Any](), 0
        params |= {} if op.limit is None else {"Limit": op.limit}
        for _ in range(300):
            page = self._sent(op, params, table)
            if "Error" in page:
                return _plainly(page)
            assert op.limit is None or page["Count"] <= op.limit
            count += page["Count"]
            items += map(_plainly, page.get("Items", ()))
            if "LastEvaluatedKey" not in page:
                return count if params.get("Select") == "COUNT" else items
            params["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        raise AssertionError(f"{op.name} had 300 pages")


def _same(op: Op | str, wanted: Any, found: Any) -> None:
    texts = isinstance(wanted, dict) and isinstance(found, dict)
    if {**found, "Said": ""} != {**wanted, "Said": ""} if texts else found != wanted:
        raise AssertionError(f"{op}\non the plain table:   {wanted}\non the sharded table: {found}")


def _named(params: Any, table: str) -> Any:
    if isinstance(params, Mapping):
        return {table if name == TABLE else name: _named(member, table) for name, member in params.items()}
    if isinstance(params, list):
        return [_named(member, table) for member in params]
    return table if isinstance(params, str) and params == TABLE else params


def _entries(requests: Mapping[str, Any]) -> set[str]:
    (given,) = requests.values()
    return {repr(_plainly(entry)) for entry in (given["Keys"] if isinstance(given, Mapping) else given)}


def _plainly(value: Any) -> Any:
    """Return a value that is equal, and has an equal repr, where DynamoDB's value is the same: sets have no order."""
    if isinstance(value, Mapping):
        number = value.get("N") if len(value) == 1 else None
        if isinstance(number, str) and re.fullmatch(r"-?[\d.]+(E[+-]\d+)?", number):
            return {"N": _plainly(Decimal(number))}  # a cache shows a number as it was written
        found = {name: _plainly(value[name]) for name in sorted(value) if name not in _UNLIKE}
        return {name: sorted(one, key=repr) if name in {"SS", "NS", "BS"} and isinstance(one, list) else one
                for name, one in found.items()}  # fmt: skip
    if isinstance(value, Decimal):
        return value.normalize(DYNAMODB_CONTEXT)
    if isinstance(value, list | tuple):
        return [_plainly(member) for member in value]
    if isinstance(value, set | frozenset):
        return {"a set of": sorted(map(repr, map(_plainly, value)))}
    return plainly(value)
