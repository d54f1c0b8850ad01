"""The same writes and reads on a table with plain indexes and on one with sharded ones: the same outcomes and items."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from boto3.dynamodb.conditions import Attr, ConditionBase
from botocore.exceptions import ClientError
from hypothesis import event, note
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, ShardedTable, Unsharded, install
from shardkit.strategies import Strategy
from tests.support.engines import EngineName
from tests.support.equivalence import Item, Pair, Reading, canonical, compare, read, readings
from tests.support.queries import STYLES, Query, queries_of
from tests.support.tables import Attribute, AttributeType, GlobalIndex, make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

Way = Literal["attribute", "source", "place"]
WAYS: tuple[Way, ...] = ("attribute", "source", "place")
Call = tuple[str, dict[str, Any]]
"""A method of a boto3 Table and its arguments; ``transact`` and ``batch`` have a list of parts."""

STATUSES: Mapping[AttributeType, list[Any]] = {
    "S": ["open", "open.1", "done", "é.3.2"],
    "B": [b"open", b"open.1", b"\xff", b"\x00.2"],
}
PKS = ("", ".1")
SKS = ("a", "a.1", "b", "é", "\U0001f600")
VALUES: Mapping[AttributeType, Sequence[Any]] = {"S": SKS, "N": [Decimal(number) for number in range(3)]}
PROJECTIONS: Mapping[str, Sequence[tuple[str, dict[str, str]] | None]] = {
    "all": [None, ("keep, #st", {"#st": "status"}), ("#ki, pk, n", {"#ki": "kind"}), ("sk, #at", {"#at": "at"})],
    "keys": [None, ("#st, pk", {"#st": "status"}), ("pk", {})],
    "some": [None, ("keep, kind", {}), ("n, sk", {})],
    "key": [None, ("sk", {}), ("pk, #at", {"#at": "at"})],
}
UPDATES = (
    "SET #s = :s",
    "set n = :n, #s = :s",
    "SET #s = if_not_exists(#s, :s)",
    "SET #s = if_not_exists(#s, :s), #k = if_not_exists(#k, :k)",
    "SET #s = :s, #k = :s",
    "SET #s = #s, n = :n",
    "REMOVE #s",
    "REMOVE #k, #s SET n = :n",
    "SET n = :n REMOVE #s ADD m :n",
    "ADD m :n SET #k = :k",
    "SET #at = :n",
    "REMOVE #at SET #s = :s",
    "REMOVE keep",
)
CONDITIONS = (
    "attribute_exists(pk)",
    "attribute_not_exists(#s) OR #s = :s",
    "#s = :s",
    "#s <> :s",
    "NOT #s = :s",
    "NOT (:s <> #s)",
    "#s IN (:s, :k) AND attribute_exists(#k)",
    "(n = :n OR #k = :k) AND NOT #s <> :s",
    "attribute_type(#s, :t) OR NOT #k IN (:k)",
)
LEGACY_UPDATES: Sequence[Mapping[str, Any]] = (
    {"status": {"Action": "PUT", "Value": ":s"}},
    {"status": {"Action": "DELETE"}, "n": {"Action": "PUT", "Value": ":n"}},
    {"status": {"Value": ":s"}, "kind": {"Action": "PUT", "Value": ":k"}, "m": {"Action": "ADD", "Value": ":n"}},
    {"at": {"Action": "PUT", "Value": ":n"}},
)
LEGACY_CONDITIONS: Sequence[Mapping[str, Any]] = (
    {},
    {"status": {"Value": ":s"}},
    {"status": {"Exists": False}, "n": {"Value": ":n"}},
    {"status": {"ComparisonOperator": "IN", "AttributeValueList": [":s", ":k"]}},
    {"kind": {"ComparisonOperator": "NOT_NULL"}},
)


@dataclass(frozen=True)
class Case:
    """How a table and its indexes are sharded; writes in turn, and then reads. ``letter``: the type of its statuses."""

    letter: AttributeType
    table: Strategy
    indexes: Mapping[str, Strategy]
    writes: list[Call]
    queries: list[tuple[Query, int, Reading]]
    limit: int | None
    filtered: tuple[str, int] | None


# --- tables


def make_indexed(resource: DynamoDBServiceResource, way: Way, letter: AttributeType) -> Pair:
    """A table with plain indexes, and one with the same indexes as ``way`` shards them."""
    status, kind, sk, at = (("status", letter), ("kind", letter), ("sk", "S"), ("at", "N"))

    def index_key(attribute: Attribute, stored: str) -> Attribute | list[Attribute]:
        of: Mapping[str, Attribute | list[Attribute]] = {
            # That of a key of the table is set by every update: the other indexes must not depend on it.
            "attribute": [attribute, ("shard_of_sk" if attribute == sk else "shard", "N")],
            "source": (stored, attribute[1]),
            "place": attribute,
        }
        return of[way]

    def make(keys: Sequence[Attribute | list[Attribute]]) -> Table:
        indexes = [
            GlobalIndex("all", keys[0], at),  # type: ignore[arg-type]
            GlobalIndex("keys", keys[0], projection="KEYS_ONLY"),
            GlobalIndex("some", keys[1], sk, projection=("n", "keep")),  # type: ignore[arg-type]
            *([] if way == "place" else [GlobalIndex("key", keys[2], at, projection="KEYS_ONLY")]),  # type: ignore[arg-type]
        ]
        return make_table(resource, sort_key=sk, global_indexes=indexes)  # type: ignore[arg-type]

    plain: Sequence[Any] = (status, kind, sk)
    stored: Sequence[Any] = ("of_status", "of_kind", "of_sk")  # dynoxide reads of-status as two names in KeyConditions
    return Pair(make(plain), make([index_key(*one) for one in zip(plain, stored, strict=True)]))


def index_names(way: Way) -> Mapping[str | None, Attribute | None]:
    """The indexes (None: the table), and what each is sorted by."""
    ways: dict[str | None, Attribute | None] = {"all": ("at", "N"), "keys": None, "some": ("sk", "S")}
    ways[None] = ("sk", "S")
    return ways if way == "place" else {**ways, "key": ("at", "N")}


# --- cases


def cases(way: Way, engine: EngineName | None = None) -> st.SearchStrategy[Case]:
    """Any case of what an engine knows (None: moto)."""
    letters: list[AttributeType] = ["S", "B"]
    return st.sampled_from(letters).flatmap(lambda letter: _cases(way, letter, engine))


def _cases(way: Way, letter: AttributeType, engine: EngineName | None) -> st.SearchStrategy[Case]:
    moto = engine is None
    styles = ("objects", "strings", "legacy, conditions only") if moto else STYLES
    tables: list[Strategy] = [Unsharded(), CalculatedSuffix("sk", 3), RandomSuffix(2, locate=True)]
    return st.sampled_from(tables).flatmap(
        lambda table: st.builds(
            Case,
            letter=st.just(letter),
            table=st.just(table),
            indexes=_indexes(way, letter),
            writes=st.lists(_calls(way, letter, located=table.locate, moto=moto), min_size=8, max_size=25),
            queries=st.lists(
                st.tuples(
                    _queries(way, styles).map(_known if engine == "dynamodb_local" else lambda query: query),
                    st.integers(0, 3),
                    readings().map(lambda reading: replace(reading, again="stream")),
                ),
                min_size=4,
                max_size=4,
            ),
            limit=st.sampled_from([None, 1, 2, 5]),
            filtered=st.none() | st.tuples(st.sampled_from(["eq", "ne", "is_in", "exists"]), st.integers(0, 3)),
        )
    )


def _queries(way: Way, styles: Sequence[str]) -> st.SearchStrategy[Query]:
    """Queries that the service accepts: an index must have the attributes that are filtered or selected."""

    def on(names: Sequence[str | None], projections: Sequence[Any], styles: Sequence[str]) -> st.SearchStrategy[Query]:
        ways = {name: sort for name, sort in index_names(way).items() if name in {*names}}
        return queries_of(ways, styles=styles, values=VALUES, projections=projections)

    keys_only = [style for style in styles if style != "legacy"]
    return st.one_of(
        on(["all"], PROJECTIONS["all"], styles),
        on([None], PROJECTIONS["all"], styles),
        on(["some"], PROJECTIONS["some"], styles),
        *[
            on([name], PROJECTIONS[name], keys_only).map(lambda query: replace(query, filtered=False))
            for name in index_names(way)
            if name in {"keys", "key"}
        ],
    )


def _known(query: Query) -> Query:
    """A Query that DynamoDB Local answers in pages as it does at once: without inclusive bounds.

    If an index is sorted by the table's sort key, it ends at the first item of the last sort key that the condition
    lets in, or refuses to go on from there.
    """
    if query.index is None or query.sort != "sk" or query.condition is None:
        return query
    operator, values = query.condition
    exclusive = {"lte": "lt", "gte": "gt", "between": "eq"}.get(operator)
    return query if exclusive is None else replace(query, condition=(exclusive, values[:1]))


def _of_primary_key(item: Mapping[str, Any]) -> Any:
    return item["pk"] + item["sk"]


def _indexes(way: Way, letter: AttributeType) -> st.SearchStrategy[Mapping[str, Strategy]]:
    def spread(by: Any, **more: Any) -> st.SearchStrategy[Strategy]:
        shards = st.sampled_from([1, 2, 3, 7])
        if way != "attribute":
            shards |= st.just({STATUSES[letter][0]: 4, STATUSES[letter][2]: 2})  # type: ignore[arg-type]
            more["separator"] = st.sampled_from([".", "#"])
        more["first"] = st.sampled_from([0, 1, 9])
        bys = st.sampled_from([by, ("pk", "sk"), _of_primary_key])
        return st.builds(CalculatedSuffix, by=bys, shards=shards, **more) | st.builds(
            RandomSuffix, shards=shards, **more
        )

    if way == "attribute":
        # One attribute has the shard of several indexes.
        return spread("sk", attribute=st.just("shard")).map(
            lambda one: {
                **dict.fromkeys(["all", "keys", "some"], one),
                "key": replace(one, attribute="shard_of_sk"),  # type: ignore[type-var]
            }
        )

    def of(source: str) -> dict[str, Any]:
        return {"source": st.just(source)} if way == "source" else {}

    ranges = st.sets(st.sampled_from(SKS), max_size=3).map(sorted)
    found = {
        "status": spread("sk", **of("status")),
        "kind": spread("sk", **of("kind")) | st.builds(RangeSuffix, st.just("sk"), ranges, **of("kind")),
    }
    if way == "source":
        found["key"] = spread("pk", **of("sk"))
    return st.fixed_dictionaries(found).map(_by_index)


def _by_index(found: Mapping[str, Strategy]) -> Mapping[str, Strategy]:
    more = {"key": found["key"]} if "key" in found else {}
    return {"all": found["status"], "keys": found["status"], "some": found["kind"], **more}


def _calls(way: Way, letter: AttributeType, *, located: bool, moto: bool) -> st.SearchStrategy[Call]:
    """A call of any kind; ``located``: what ``locate`` supports."""
    status = st.sampled_from(STATUSES[letter])
    keys = st.fixed_dictionaries({"pk": st.sampled_from(PKS).map("k".__add__), "sk": st.sampled_from(SKS)})
    attributes: dict[str, st.SearchStrategy[Any]] = {"status": status, "kind": status, "at": st.integers(0, 2)}
    rest = {"n": st.integers(0, 2), "keep": st.booleans()}
    items = st.builds(
        lambda key, more: {**key, **more}, keys, st.fixed_dictionaries({}, optional={**attributes, **rest})
    )
    conditions = st.none() | st.sampled_from(CONDITIONS)
    # An update may copy the logical value, but not one with a suffix.
    texts: tuple[str | None, ...] = UPDATES + (() if way == "place" else ("SET copied = #s",))
    texts += () if moto else ("SET #s=(:s),#k = if_not_exists(#k,:k)",)
    values = st.fixed_dictionaries({":s": status, ":k": status, ":n": st.integers(0, 2), ":t": st.just(letter)})

    def write(source: str, where: Mapping[str, Any], condition: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
        return _filled({source: where, "ConditionExpression": condition}, given)

    def update(key: Item, text: str | None, condition: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
        return _filled({"Key": key, "UpdateExpression": text, "ConditionExpression": condition}, given)

    def legacy(key: Item, change: Any, expected: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        made = {"Key": key, "AttributeUpdates": _with_values(change, given)}
        return {**made, "Expected": _with_values(expected, given)} if expected else made

    puts = st.builds(write, st.just("Item"), items, conditions, values)
    deletes = st.builds(write, st.just("Key"), keys, conditions, values)
    changes, any_changes = (
        st.builds(update, keys, st.sampled_from(found), conditions, values)
        for found in (texts, texts if moto else (*texts, None))
    )
    old, all_of_them = (
        st.sampled_from(["NONE", "ALL_OLD", *more])
        # moto's UPDATED_OLD and UPDATED_NEW leave out what is set to the same value: another shard is another value.
        for more in ((), ("ALL_NEW", *(() if moto else ("UPDATED_OLD", "UPDATED_NEW"))))
    )

    def call(name: str, bodies: st.SearchStrategy[Any], returned: st.SearchStrategy[str]) -> st.SearchStrategy[Call]:
        return st.tuples(st.just(name), st.builds(lambda body, of: {**body, "ReturnValues": of}, bodies, returned))

    def action(name: str, bodies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return bodies.map(lambda body: {name: {**body, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}})

    checks = st.builds(write, st.just("Key"), keys, st.sampled_from(CONDITIONS), values)
    parts = [action("Put", puts), action("Delete", deletes), action("ConditionCheck", checks)]
    if not located:
        parts.append(action("Update", changes))
    requests = items.map(lambda item: {"PutRequest": {"Item": item}}) | keys.map(
        lambda key: {"DeleteRequest": {"Key": key}}
    )
    several = st.lists(st.one_of(parts), min_size=1, max_size=3, unique_by=_primary_key)
    batch = st.lists(requests, min_size=1, max_size=4, unique_by=_primary_key)
    kinds = {
        "put": call("put_item", puts | items.map(lambda item: {"Item": item}), old),
        "delete": call("delete_item", deletes, old),
        "update": call("update_item", any_changes, all_of_them),
        "transact": st.tuples(st.just("transact"), several.map(lambda parts: {"parts": parts})),
        "batch": st.tuples(st.just("batch"), batch.map(lambda parts: {"parts": parts})),
    }
    if not located and not (moto and letter == "B"):  # moto writes the text of a Python value, b'open'
        legacies = st.builds(legacy, keys, st.sampled_from(LEGACY_UPDATES), st.sampled_from(LEGACY_CONDITIONS), values)
        kinds["legacy update"] = call("update_item", legacies, all_of_them)
    # As many updates as other calls, on what the puts and batches wrote.
    return st.sampled_from([*kinds, "put", "batch", *["update"] * 5]).flatmap(kinds.__getitem__)


def _primary_key(part: Mapping[str, Any]) -> tuple[Any, Any]:
    ((_, body),) = part.items()
    key = body.get("Item") or body["Key"]
    return key["pk"], key["sk"]


def _filled(params: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that are given, with the names and values that their expressions use."""
    made = {name: value for name, value in params.items() if value is not None}
    used = " ".join(value for value in made.values() if isinstance(value, str))
    names = {"#s": "status", "#k": "kind", "#at": "at"}
    for parameter, known in (("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)):
        if found := {name: value for name, value in known.items() if name in used}:
            made[parameter] = found
    return made


def _with_values(form: Any, values: Mapping[str, Any]) -> Any:
    """A legacy parameter with the values for its placeholders."""
    if isinstance(form, Mapping):
        return {name: _with_values(part, values) for name, part in form.items()}
    if isinstance(form, list):
        return [_with_values(part, values) for part in form]
    return values.get(form, form) if isinstance(form, str) else form


# --- the check


class Indexed:
    """Pairs of tables, and a client on which the second is installed; ``counts`` has what was compared."""

    def __init__(self, session: boto3.Session, resource: DynamoDBServiceResource, way: Way) -> None:
        self.way = way
        self.counts: Counter[str] = Counter()
        self._resource = resource
        self._pairs: dict[AttributeType, Pair] = {}
        self._other = session.resource("dynamodb", endpoint_url=resource.meta.client.meta.endpoint_url)

    @contextmanager
    def closing(self) -> Iterator[Indexed]:
        with closing(self._other.meta.client):
            yield self

    def check(self, case: Case) -> None:
        """Make a case's writes on both tables, compare every outcome, and then all reads; empty both."""
        if case.letter not in self._pairs:
            self._pairs[case.letter] = make_indexed(self._resource, self.way, case.letter)
        pair = self._pairs[case.letter]
        name = pair.physical.name
        table = ShardedTable(pair.physical, case.table, indexes=case.indexes, rng=random.Random(0))
        try:
            with install(self._other, {name: case.table}, indexes={name: case.indexes}, rng=random.Random(1)):
                _Check(case, self.way, pair.plain, table, self._other.Table(name), self.counts).run()
        finally:
            for one in (pair.plain, pair.physical):
                _empty(one)


@dataclass(frozen=True)
class _Check:
    case: Case
    way: Way
    plain: Table
    table: ShardedTable
    installed: Any
    counts: Counter[str]

    def run(self) -> None:
        for number, call in enumerate(self.case.writes):
            self._write(call, [self.table, self.installed][number % 2])
        for query, value, reading in self.case.queries:
            self._query(query, value, reading)
        self._scan()
        self._get()

    def _write(self, call: Call, through: Any) -> None:
        operation, params = call
        if self.case.table.locate:
            if operation == "update_item" and "Item" not in self.plain.get_item(Key=params["Key"]):
                return  # it is refused: the new item has no shard
            if operation == "batch":
                through = self.installed  # a load finds no items
        wanted, found = (_outcome(one, *call) for one in (self.plain, through))
        self.counts["updates" if operation == "update_item" else "writes"] += 1
        if wanted != found:
            note(f"The call that failed: {call}, through {through}: {wanted} on a plain table, {found} on this")
        event(f"{operation}: {wanted[0]}")
        assert found == wanted

    def _query(self, query: Query, value: int, reading: Reading) -> None:
        names = {"all": "status", "keys": "status", "some": "kind", "key": "sk", None: "pk"}
        statuses = STATUSES[self.case.letter]
        values: Mapping[str, Sequence[Any]] = {"sk": SKS, "pk": ["k" + pk for pk in PKS] * 2}
        name = names[query.index]
        params = query.of({name: values.get(name, statuses)[value]})
        self.counts["queries"] += 1
        try:
            compare(self.plain, self.table, params, sort=query.sort, reading=reading)
            found = read(self.installed, params, reading.limits)
            assert found.texts == read(self.table, params).texts
        except BaseException:
            note(f"The query that failed: {query}, {params}, {reading}")
            raise

    def _scan(self) -> None:
        for index in index_names(self.way):
            params: dict[str, Any] = {} if index is None else {"IndexName": index}
            # The index of a source may have no copy of it, and so its filters are refused.
            if self.case.filtered is not None and (index is None or self.way != "source"):
                op, value = self.case.filtered
                params["FilterExpression"] = _filter(op, STATUSES[self.case.letter], value)
            wanted = sorted(map(canonical, _scanned(self.plain, params, None)))
            for through in (self.table, self.installed):
                self.counts["scans"] += 1
                found = sorted(map(canonical, _scanned(through, params, self.case.limit)))
                assert found == wanted, (params, through)

    def _get(self) -> None:
        keys = [{"pk": "k" + pk, "sk": sk} for pk in PKS for sk in SKS]
        found = self.plain.meta.client.batch_get_item(RequestItems={self.plain.name: {"Keys": keys}})
        wanted = {canonical(item) for item in found["Responses"][self.plain.name]}
        assert {canonical(item) for item in self.table.batch_get_items(keys)["Items"]} == wanted
        one_by_one = [self.table.get_item(Key=key).get("Item") for key in keys[::3]]
        assert {canonical(item) for item in one_by_one if item is not None} <= wanted
        self.counts["gets"] += len(keys)


def _outcome(table: Any, operation: str, params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Make a call; return what is the same on both tables."""
    name = table.name
    client: Any = table if isinstance(table, ShardedTable) else table.meta.client
    try:
        if operation == "transact":
            parts = [{kind: {"TableName": name, **body} for kind, body in part.items()} for part in params["parts"]]
            client.transact_write_items(TransactItems=parts)
            return ("ok",)
        if operation == "batch":
            if isinstance(table, ShardedTable):
                with table.batch_writer() as batch:
                    for part in params["parts"]:
                        for kind, body in part.items():
                            (batch.put_item if kind == "PutRequest" else batch.delete_item)(**body)
                return ("ok",)
            answer = client.batch_write_item(RequestItems={name: params["parts"]})
            return ("left", answer["UnprocessedItems"]) if answer["UnprocessedItems"] else ("ok",)
        answer = getattr(table, operation)(**params)
    except ClientError as error:
        response: Any = error.response
        reasons = [(reason["Code"], reason.get("Item")) for reason in response.get("CancellationReasons", ())]
        return response["Error"]["Code"], reasons, response.get("Item")
    return "ok", answer.get("Attributes")


def _filter(op: str, values: Sequence[Any], value: int) -> ConditionBase:
    if op == "exists":
        return Attr("status").exists() | Attr("n").eq(1)
    if op == "is_in":
        return ~Attr("status").is_in([values[value], values[value - 1]])
    return getattr(Attr("status"), op)(values[value]) & Attr("pk").exists()  # type: ignore[no-any-return]


def _scanned(table: Any, params: Mapping[str, Any], limit: int | None) -> Iterable[Item]:
    more: dict[str, Any] = {} if limit is None else {"Limit": limit}
    for _ in range(200):
        page = table.scan(**params, **more)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        more["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    raise AssertionError("more than 200 pages")


def _empty(table: Table) -> None:
    with table.batch_writer() as batch:
        for item in table.scan(ProjectionExpression="pk, sk")["Items"]:
            batch.delete_item(Key=item)
