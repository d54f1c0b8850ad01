"""Random operations on a table with seven indexes, each compared with what the estimator says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from shardkit.capacity import ItemChange, TableUnits, item_size
from shardkit.dynamodb.values import WireItem
from tests.support.charged import (
    EMPTY_QUERY,
    GLOBAL_INDEXES,
    HALVES,
    INDEX_SCAN,
    LOCAL_INDEXES,
    LOCAL_PROJECTION,
    LOCAL_SCAN,
    LOCAL_SIZE,
    MISSING_DELETE,
    MISSING_GET,
    TRANSACTION,
    Charged,
    Key,
    units,
)  # fmt: skip
from tests.support.sized_items import KB, NAMES, value
from tests.support.tables import GlobalIndex, LocalIndex

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

PARTITIONS, SORT_KEYS = ("p", "é", "q" * 100), range(8)


class Compared(Charged):
    """Compares each answer's ``ConsumedCapacity`` with an estimate."""

    def __init__(self, resource: DynamoDBServiceResource, skipped: frozenset[str], **where: Any) -> None:
        super().__init__(resource, skipped, **where)
        self.items: dict[Key, WireItem] = {}
        self.compared: Counter[str] = Counter()
        self.operations: dict[str, Callable[[random.Random], None]] = {
            name: operation
            for name, operation in {
                "PutItem": self.put,
                "UpdateItem": self.update,
                "DeleteItem": self.delete,
                "GetItem": self.get,
                "BatchGetItem": self.batch_get,
                "BatchWriteItem": self.batch_write,
                "TransactGetItems": self.transact_get,
                "TransactWriteItems": self.transact_write,
                "Query": self.query,
                "Query of an index": self.query_index,
                "Scan": self.scan,
                "Scan of an index": self.scan_index,
            }.items()
            if not (TRANSACTION in self.skipped and name == "TransactWriteItems")
            and not (INDEX_SCAN in self.skipped and name == "Scan of an index")
        }

    def run(self, seed: int, count: int) -> None:
        """Compare at least so many operations, on an empty table at first; the seed repeats them."""
        rng = random.Random(seed)
        self.clear()
        names = list(self.operations)
        weights = [{"PutItem": 5, "UpdateItem": 4, "BatchWriteItem": 2}.get(name, 1) for name in names]
        for name in rng.choices(names, weights, k=count):
            self.operations[name](rng)

    def compare(self, name: str, answer: Mapping[str, Any], expected: TableUnits) -> None:
        consumed = answer["ConsumedCapacity"]
        said = units(consumed[0] if isinstance(consumed, list) else consumed)
        self.compared[name] += 1
        if LOCAL_SIZE in self.skipped and "Item" in name:
            # Whether a local index is charged, and not how much.
            assert said.local_indexes.keys() == expected.local_indexes.keys()
            said = replace(said, local_indexes=expected.local_indexes)
        assert said == expected, f"{name}: the engine says {said}, the estimate is {expected}"

    def clear(self) -> None:
        while self.items:
            keys = list(self.items)[:25]
            self._write_batch([(key, None) for key in keys])

    # -- items

    def item(self, key: Key, rng: random.Random) -> WireItem:
        """A random item, in each index or not; its size, or that of what some index holds, is at an edge."""
        item: WireItem = self.key(key)
        if rng.random() < 0.7:
            item["owner"] = {"S": rng.choice(("o", "ö", "other"))}
        if rng.random() < 0.7:
            item["when"] = {"N": rng.choice(("1", "2.50", "-3E+2"))}
        if rng.random() < 0.7:
            item["note"] = value(rng, straddling=self.straddling)
        for name in rng.sample(NAMES, rng.randint(0, 3)):
            item[name] = value(rng, straddling=self.straddling)
        keys = ("pk", "sk", "owner")
        if rng.random() < 0.2:
            pad(item, "owner", keys, rng, more=[0])  # of KEYS_ONLY; a sort key has up to 1,024 bytes
        if rng.random() < 0.6:
            pad(item, "pad", (*keys, "when", "note", "pad"), rng)  # of INCLUDE
        if rng.random() < 0.8:
            pad(item, "fill", None, rng)
        return item

    @staticmethod
    def any_key(rng: random.Random) -> Key:
        return rng.choice(PARTITIONS), rng.choice(SORT_KEYS)

    def several(self, rng: random.Random, most: int) -> list[Key]:
        """Some keys, with items and without."""
        every = [(partition, sort_key) for partition in PARTITIONS for sort_key in SORT_KEYS]
        return rng.sample(every, rng.randint(1, most))

    def next_item(self, key: Key, rng: random.Random) -> WireItem:
        """What is put next: another item, the same, the same in other words, or the same with one attribute changed."""
        before, draw = self.items.get(key), rng.random()
        if before is None or draw < 0.5:
            item = self.item(key, rng)
            if HALVES in self.skipped and before is not None:
                halves = [[name for name in ("owner", "when") if name in image] for image in (before, item)]
                if sorted(halves) == [["owner"], ["when"]]:
                    item |= {name: before[name] for name in halves[0]}
            return item
        if draw < 0.7:
            return dict(before) if draw < 0.6 else {name: same(content, rng) for name, content in before.items()}
        changed = self.item(key, rng)
        name = rng.choice(sorted(changed))
        return {**before, name: changed[name]}

    # -- writes

    def put(self, rng: random.Random) -> None:
        key = self.any_key(rng)
        item = self.next_item(key, rng)
        answer = self.client.put_item(TableName=self.name, Item=item, ReturnConsumedCapacity="INDEXES")
        self.compare("PutItem", answer, self.estimator.put_item(item, before=self.items.get(key)))
        self.items[key] = item

    def update(self, rng: random.Random) -> None:
        key = self.any_key(rng)
        before, after = self.items.get(key), self.next_item(key, rng)
        answer = self.client.update_item(
            TableName=self.name, **self._update(key, before, after), ReturnConsumedCapacity="INDEXES"
        )
        self.compare("UpdateItem", answer, self.estimator.update_item(before, after))
        self.items[key] = after

    def _update(self, key: Key, before: WireItem | None, after: WireItem) -> dict[str, Any]:
        """An update that makes the one item of the other."""
        of_key = self.key(key)
        names = sorted({*(before or ()), *after} - of_key.keys())
        sets = [f"#{at} = :{at}" for at, name in enumerate(names) if name in after]
        removes = [f"#{at}" for at, name in enumerate(names) if name not in after]
        request: dict[str, Any] = {"Key": of_key}
        if names:
            clauses = (("SET", sets), ("REMOVE", removes))
            request["UpdateExpression"] = " ".join(f"{verb} {', '.join(what)}" for verb, what in clauses if what)
            request["ExpressionAttributeNames"] = {f"#{at}": name for at, name in enumerate(names)}
        if sets:
            values = {f":{at}": after[name] for at, name in enumerate(names) if name in after}
            request["ExpressionAttributeValues"] = values
        return request

    def delete(self, rng: random.Random) -> None:
        key = self.any_key(rng)
        answer = self.client.delete_item(TableName=self.name, Key=self.key(key), ReturnConsumedCapacity="INDEXES")
        self.compare("DeleteItem", answer, self.estimator.delete_item(self.items.pop(key, None)))

    def batch_write(self, rng: random.Random) -> None:
        present = [key for key in self.several(rng, 20) if key in self.items or rng.random() < 0.9]
        self._write_batch([(key, self.next_item(key, rng) if rng.random() < 0.7 else None) for key in present])

    def _write_batch(self, writes: Iterable[tuple[Key, WireItem | None]]) -> None:
        requests: list[dict[str, Any]] = []
        changes = []
        for key, item in writes:
            if item is None and key not in self.items and MISSING_DELETE in self.skipped:
                continue
            changes.append(ItemChange(self.items.get(key), item))
            requests.append(
                {"DeleteRequest": {"Key": self.key(key)}} if item is None else {"PutRequest": {"Item": item}}
            )
            self.keep(key, item)
        if requests:
            answer = self.client.batch_write_item(RequestItems={self.name: requests}, ReturnConsumedCapacity="INDEXES")
            self.compare("BatchWriteItem", answer, self.estimator.batch_write_item(changes))

    def transact_write(self, rng: random.Random) -> None:
        actions = []
        changes = []
        for key in self.several(rng, 8):
            before, kind = self.items.get(key), rng.choice(("Put", "Update", "Delete", "ConditionCheck"))
            after = self.next_item(key, rng) if kind in {"Put", "Update"} else before
            request: dict[str, Any] = {"Key": self.key(key)}
            if kind == "Update" and after is not None:
                request = self._update(key, before, after)
                # Here an update has to have an expression.
                kind = kind if "UpdateExpression" in request else "Put"
            if kind == "Put":
                request = {"Item": after}
            elif kind == "Delete":
                after = None
            elif kind == "ConditionCheck":
                request["ConditionExpression"] = f"attribute_{'not_' * (before is None)}exists(pk)"
            actions.append({kind: {"TableName": self.name, **request}})
            changes.append(ItemChange(before, after))
            self.keep(key, after)
        answer = self.client.transact_write_items(TransactItems=actions, ReturnConsumedCapacity="INDEXES")
        self.compare("TransactWriteItems", answer, self.estimator.transact_write_items(changes))

    def keep(self, key: Key, item: WireItem | None) -> None:
        """What is stored now."""
        if item is None:
            self.items.pop(key, None)
        else:
            self.items[key] = item

    # -- reads

    def get(self, rng: random.Random) -> None:
        key, consistent = self.any_key(rng), rng.random() < 0.5
        answer = self.client.get_item(
            TableName=self.name, Key=self.key(key), ConsistentRead=consistent, ReturnConsumedCapacity="INDEXES"
        )
        self.compare("GetItem", answer, self.estimator.get_item(self.items.get(key), consistent=consistent))

    def batch_get(self, rng: random.Random) -> None:
        keys, consistent = self.several(rng, 20), rng.random() < 0.5
        if MISSING_GET in self.skipped:
            keys = [key for key in keys if key in self.items]
        if keys:
            request = {"Keys": [self.key(key) for key in keys], "ConsistentRead": consistent}
            answer = self.client.batch_get_item(RequestItems={self.name: request}, ReturnConsumedCapacity="INDEXES")
            found = [self.items.get(key) for key in keys]
            self.compare("BatchGetItem", answer, self.estimator.batch_get_item(found, consistent=consistent))

    def transact_get(self, rng: random.Random) -> None:
        keys = self.several(rng, 10)
        gets = [{"Get": {"TableName": self.name, "Key": self.key(key)}} for key in keys]
        answer = self.client.transact_get_items(TransactItems=gets, ReturnConsumedCapacity="INDEXES")
        self.compare("TransactGetItems", answer, self.estimator.transact_get_items(map(self.items.get, keys)))

    def read(self, rng: random.Random, *, filtered: str = "fill") -> dict[str, Any]:
        """Filters, projections and counts, which save nothing."""
        names = {"#f": filtered}
        some: list[dict[str, Any]] = [
            {},
            {"Select": "COUNT"},
            {"FilterExpression": "attribute_not_exists(#f)", "ExpressionAttributeNames": names},
            {"FilterExpression": "attribute_exists(#f)", "ExpressionAttributeNames": names, "Select": "COUNT"},
            {"ProjectionExpression": "pk"},
        ]
        return {"TableName": self.name, "ReturnConsumedCapacity": "INDEXES", **rng.choice(some)}

    def query(self, rng: random.Random) -> None:
        partition, consistent, limit = rng.choice((*PARTITIONS, "nothing")), rng.random() < 0.5, rng.randint(1, 10)
        keys = sorted(key for key in self.items if key[0] == partition)[:limit]
        if not keys and EMPTY_QUERY in self.skipped:
            return
        answer = self.client.query(
            **self.read(rng), KeyConditionExpression="pk = :p", ExpressionAttributeValues={":p": {"S": partition}},
            ConsistentRead=consistent, Limit=limit,
        )  # fmt: skip
        self.compare("Query", answer, self.estimator.query([self.items[key] for key in keys], consistent=consistent))

    def query_index(self, rng: random.Random) -> None:
        index = rng.choice((*LOCAL_INDEXES, *GLOBAL_INDEXES))
        name, kind = ("pk", "S") if isinstance(index, LocalIndex) else _single(index)
        consistent = isinstance(index, LocalIndex) and rng.random() < 0.5
        present = [item[name] for item in self.items.values() if name in item]
        asked = rng.choice(present) if present else {kind: "7"}
        found = [item for item in self.items.values() if name in item and _equal(item[name], asked)]
        if EMPTY_QUERY in self.skipped and not self.estimator_holds(index.name, found):
            return
        # A filter on an attribute that each index holds, and has not in its key.
        request = self.read(rng, filtered="pad" if index.name == "turned" else "sk")
        if LOCAL_PROJECTION in self.skipped and isinstance(index, LocalIndex):
            request.pop("ProjectionExpression", None)
        names = {**request.pop("ExpressionAttributeNames", {}), "#k": name}
        answer = self.client.query(
            **request, IndexName=index.name, KeyConditionExpression="#k = :k", ExpressionAttributeNames=names,
            ExpressionAttributeValues={":k": asked}, ConsistentRead=consistent,
        )  # fmt: skip
        expected = self.estimator.query(found, index=index.name, consistent=consistent)
        self.compare("Query of an index", answer, expected)

    def estimator_holds(self, index: str, found: list[WireItem]) -> bool:
        """Whether any item is in an index: a put of it costs there."""
        puts = [self.estimator.put_item(item) for item in found]
        return any(index in {**put.local_indexes, **put.global_indexes} for put in puts)

    def scan(self, rng: random.Random) -> None:
        consistent = rng.random() < 0.5
        if not self.items and EMPTY_QUERY in self.skipped:
            return
        answer = self.client.scan(**self.read(rng), ConsistentRead=consistent)
        self.compare("Scan", answer, self.estimator.scan(self.items.values(), consistent=consistent))

    def scan_index(self, rng: random.Random) -> None:
        local = () if LOCAL_SCAN in self.skipped else LOCAL_INDEXES
        index = rng.choice((*local, *GLOBAL_INDEXES)).name
        answer = self.client.scan(**self.read(rng, filtered="pk"), IndexName=index)
        self.compare("Scan of an index", answer, self.estimator.scan(self.items.values(), index=index))


def _single(index: GlobalIndex) -> tuple[str, str]:
    assert isinstance(index.partition_key, tuple)
    return index.partition_key


def _equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one == other or ("N" in one and "N" in other and Decimal(one["N"]) == Decimal(other["N"]))


def rewritten(text: str, rng: random.Random) -> str:
    """The same number in another notation."""
    value = Decimal(text)
    if abs(value.adjusted()) > 36:
        return str(value)
    return rng.choice((format(value, "f"), format(value, "e")))


def same(content: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same value as it may also be written: numbers in another notation, sets in another order."""
    ((kind, inner),) = content.items()
    if kind == "N":
        return {kind: rewritten(inner, rng)}
    if kind == "NS":
        return {kind: [rewritten(text, rng) for text in rng.sample(inner, len(inner))]}
    if kind in {"SS", "BS"}:
        return {kind: rng.sample(inner, len(inner))}
    if kind == "L":
        return {kind: [same(member, rng) for member in inner]}
    if kind == "M":
        return {kind: {name: same(member, rng) for name, member in reversed(inner.items())}}
    return dict(content)


def pad(
    item: WireItem, name: str, counted: Iterable[str] | None, rng: random.Random, more: Sequence[int] = (0, 0, 0, 1, 3)
) -> None:
    """Lengthen a string of an item so that it, or what is counted of it, ends at a write unit's edge.

    Args:
        item: what is changed.
        name: the attribute, a string or missing.
        counted: the names of the attributes that are counted, this one among them; None for all.
        rng: it draws whether the last byte is the edge's or one beyond, and
        more: how many units more it becomes than it has to.
    """
    item.setdefault(name, {"S": ""})
    size = item_size({known: item[known] for known in (item if counted is None else counted) if known in item})
    units = -(-size // KB) + rng.choice(more)
    missing = units * KB + rng.choice((0, 1)) - size
    item[name] = {"S": item[name]["S"] + "x" * max(missing, 0)}
