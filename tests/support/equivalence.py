"""Promise 2, on any engine: a sharded table's merged queries beside a plain table's, contents and queries at random."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from boto3.dynamodb.conditions import ConditionBase, Key
from hypothesis import example, note
from hypothesis import strategies as st

from shardkit import CalculatedSuffix, CursorError, RandomSuffix, RangeSuffix, ShardedTable, stable_hash
from shardkit.dynamodb.values import Binary
from shardkit.strategies import Strategy
from tests.support.queries import STYLES, VALUES, Query, Shape, queries
from tests.support.tables import Attribute, GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

Item = dict[str, Any]
T = TypeVar("T", bound=Callable[..., None])
Limits = Sequence[int | None]
"""The `Limit` of each page in turn, and again from the first."""
ENDINGS = ("", ".1", ".1.10", "#0")
"""Of the logical keys of one case: they look like one another's physical keys."""
MOST_PAGES = 200
RESPONSE = {"Items", "Count", "ScannedCount", "LastEvaluatedKey", "ResponseMetadata"}


@dataclass(frozen=True)
class Pair:
    plain: Table
    physical: Table


def make_pair(resource: DynamoDBServiceResource, shape: Shape) -> Pair:
    tie: Attribute = ("b", shape.tie)

    def make() -> Table:
        return make_table(
            resource,
            sort_key=("sk", shape.sort_key) if shape.sort_key else None,
            local_indexes=[LocalIndex("local", tie)] if shape.sort_key else [],
            global_indexes=[
                GlobalIndex("same", ("pk", "S"), tie),
                GlobalIndex("same-alone", ("pk", "S"), projection=("keep", "n")),
                GlobalIndex("city", ("city", "S"), tie),
                GlobalIndex("city-pk", ("city", "S"), ("pk", "S")),
            ],
        )

    return Pair(make(), make())


@dataclass(frozen=True)
class Reading:
    """How an answer is read: in pages of these sizes, and once more from behind the item with the number `at`.

    From there it goes on with a stream's cursor ("stream") or with the item's own key ("key"); or the shard that holds
    the item is read alone ("shard").
    """

    limits: tuple[int | None, ...] = (None,)
    again: str = "stream"
    at: int = 1


@dataclass(frozen=True)
class Case:
    """Items of a few logical keys that look alike, how they are sharded, and queries on them with how they are read."""

    strategy: Strategy
    items: list[Item]
    queries: list[tuple[Query, str, Reading]]


KEPT: dict[str, list[Case]] = {
    "numbers": [
        # The shards of a key end at the same tie, on a full page, and nothing but dropped items comes behind it.
        Case(
            CalculatedSuffix("sk", 2),
            [{"pk": "", "sk": number, "b": 2, "keep": number % 2 == 0} for number in range(4)],
            [
                (Query("local", "b", descending=descending, filtered=filtered), "", Reading((1, 2), "key", 2))
                for descending in (False, True)
                for filtered in (False, True)
            ],
        ),
        # A stream stopped on the last key that the condition lets in: DynamoDB Local refuses to start there.
        Case(
            CalculatedSuffix("sk", 2),
            [{"pk": "", "sk": number, "b": 0, "keep": True} for number in range(3)],
            [(Query(None, "sk", (op, (1,)), op == "gte"), "", Reading(at=2)) for op in ("gte", "lte")],
        ),
    ],
    # Nothing can come behind the cursor, so nothing is asked: the page is one of boto3's all the same.
    "no sort key": [
        Case(
            CalculatedSuffix("pk", 1),
            [{"pk": "", "b": 0, "keep": True}],
            [(Query(None, None), "", Reading(again="key"))],
        ),
    ],
}
"""Counterexamples by shape, for ever: add what CI prints as the failing case, cut to the query that it says failed."""


def lopsided(value: Any) -> int:
    number = stable_hash(value)
    return number if number % 8 == 0 else 0


def readings(most: int = 9) -> st.SearchStrategy[Reading]:
    """Any way to read an answer, behind one of its first `most` items."""
    limits = st.lists(st.sampled_from([None, 1, 2, 3, 5, 9]), min_size=1, max_size=3).map(tuple)
    return st.builds(Reading, limits=limits, again=st.sampled_from(["stream", "key", "shard"]), at=st.integers(1, most))


def cases(shape: Shape, *, asked: int, styles: Sequence[str] = STYLES) -> st.SearchStrategy[Case]:
    """Contents for a shape's tables, and as many queries on them as are asked for."""

    def dealt(seed: int, size: int) -> list[Item]:
        """Items full of ties; hypothesis's own lists of them are nearly all too small for page edges."""
        rng = random.Random(seed)
        items: dict[tuple[str, Any], Item] = {}
        for _ in range(size):
            item: Item = {
                "pk": rng.choice(["", "", "", *ENDINGS]),
                "b": rng.choice(VALUES[shape.tie][: rng.choice([2, 8])]),
                "keep": rng.random() < 0.5,
            }
            if shape.sort_key:
                item["sk"] = rng.choice(VALUES[shape.sort_key])
            if rng.random() < 0.5:
                item["city"] = "r"
            if rng.random() < 0.5:
                item["n"] = {"x.y": 1, "many": [1, "two"]}
            items[item["pk"], item.get("sk")] = item
        return list(items.values())

    def contents(least: int, most: int) -> st.SearchStrategy[list[Item]]:
        return st.builds(dealt, st.integers(0, 2**32), st.integers(least, most))

    def case(strategy: st.SearchStrategy[Strategy], items: st.SearchStrategy[list[Item]]) -> st.SearchStrategy[Case]:
        asks = st.tuples(queries(shape, styles=styles), st.sampled_from(["", "", *ENDINGS]), readings())
        return st.builds(Case, strategy=strategy, items=items, queries=st.lists(asks, min_size=asked, max_size=asked))

    if not shape.sort_key:
        return case(_strategies("pk", [1, 2, 3, 4]), contents(0, 4))
    boundaries = st.sets(st.sampled_from(VALUES[shape.sort_key]), max_size=4).map(sorted)
    ranges = st.builds(RangeSuffix, st.just("sk"), boundaries, separator=st.sampled_from([".", "#", "::"]))
    many = case(_strategies("sk", [2, 3, 4]) | ranges, contents(8, 20))
    few = case(_strategies("sk", [1, 2, 3, 4]) | ranges, contents(0, 4))
    return st.one_of(few, many, many, many, case(_strategies("sk", [20]), contents(2, 5)))


def partition_key(item: Mapping[str, Any]) -> Any:
    """A function of the partition key: its name alone is refused, because it spreads nothing."""
    return item["pk"]


def _strategies(by: str, shards: Sequence[int]) -> st.SearchStrategy[Strategy]:
    more: dict[str, st.SearchStrategy[Any]] = {
        "shards": st.sampled_from(shards),
        "separator": st.sampled_from([".", "#", "::"]),
        "first": st.sampled_from([0, 1, 9]),
    }
    calculated = st.builds(
        CalculatedSuffix,
        by=st.just(partition_key) if by == "pk" else st.sampled_from([by, ("pk", by)]),
        hash=st.sampled_from([stable_hash, stable_hash, lopsided]),
        **more,
    )
    # Each item is written once here, so a random shard is as good as a function of the primary key.
    return calculated | st.builds(RandomSuffix, **more)


def kept(shape: str) -> Callable[[T], T]:
    def with_examples(test: T) -> T:
        for case in KEPT.get(shape, []):
            test = example(case=case)(test)
        return test

    return with_examples


def check(pair: Pair, case: Case) -> int:
    """Write a case's items to both tables, under keys that no other case has, and compare every query."""
    mark = uuid.uuid4().hex[:8]
    items = [{**item, "pk": mark + item["pk"], **({"city": mark} if "city" in item else {})} for item in case.items]
    sharded = write(pair, case.strategy, items)
    for query, ending, reading in case.queries:
        try:
            compare(pair.plain, sharded, query.params(mark + ending, mark), sort=query.sort, reading=reading)
        except BaseException:
            note(f"The query that failed: {(query, ending, reading)}")
            raise
    return len(case.queries)


def write(pair: Pair, strategy: Strategy, items: Sequence[Item]) -> ShardedTable:
    sharded = ShardedTable(pair.physical, strategy, rng=random.Random(0))
    with pair.plain.batch_writer() as plain, sharded.batch_writer() as spread:
        for item in items:
            plain.put_item(Item=item)
            spread.put_item(Item=item)
    return sharded


def compare(
    plain: Table, sharded: ShardedTable, params: Mapping[str, Any], *, sort: str | None, reading: Reading
) -> None:
    """Compare one Query on both tables, read in every way: it must be one answer, in one fixed order."""
    wanted = read(plain, params)
    found = read(sharded, params, reading.limits)
    assert found.count == wanted.count
    # In all pages nothing is left out, and within a page nothing is evaluated twice. dynoxide counts the item too that
    # did not fit into a page's megabyte.
    assert found.scanned >= wanted.scanned - (wanted.pages - 1)
    assert found.pages > 1 or wanted.pages > 1 or found.scanned == wanted.scanned
    assert Counter(found.texts) == Counter(wanted.texts)
    if sort is not None:
        assert [plainly(item.get(sort)) for item in found.items] == [plainly(item.get(sort)) for item in wanted.items]
    if params.get("Select") == "COUNT":
        return
    if found.pages > 1:
        assert read(sharded, params).texts == found.texts
    streamed = list(sharded.query_items(**_sized(params, reading.limits[0])))
    assert list(map(canonical, streamed)) == found.texts
    if found.items:
        at = min(reading.at, len(found.items))
        {"stream": _stop_and_go_on, "key": _go_on_from_a_key, "shard": _one_shard}[reading.again](
            sharded, params, found, reading.limits, at
        )


def _stop_and_go_on(table: ShardedTable, params: Mapping[str, Any], whole: Read, limits: Limits, at: int) -> None:
    stream = table.query_items(**_sized(params, limits[-1]))
    assert [canonical(next(stream)) for _ in range(at)] == whole.texts[:at]
    stream.close()
    start = json.loads(json.dumps(stream.last_evaluated_key))
    if start is None:
        assert at == len(whole.texts)
        return
    params = {**params, "ExclusiveStartKey": start}
    if at % 2:
        assert read(table, params, limits).texts == whole.texts[at:]
    else:
        assert [canonical(item) for item in table.query_items(**_sized(params, limits[0]))] == whole.texts[at:]


def _go_on_from_a_key(table: ShardedTable, params: Mapping[str, Any], whole: Read, limits: Limits, at: int) -> None:
    if {"ProjectionExpression", "AttributesToGet"} & params.keys():
        return  # the keys are not all there
    item = whole.items[at - 1]
    schemas = [table.key_schema]
    for index in [*(table.local_secondary_indexes or []), *(table.global_secondary_indexes or [])]:
        if index["IndexName"] == params.get("IndexName"):
            schemas.append(index["KeySchema"])
    start = {element["AttributeName"]: item[element["AttributeName"]] for schema in schemas for element in schema}
    params = {**params, "ExclusiveStartKey": start}
    if isinstance(table.strategy, RandomSuffix) and table.strategy.shards != 1:
        with pytest.raises(CursorError, match="cannot be calculated"):
            table.query(**params)
    else:
        assert read(table, params, limits).texts == whole.texts[at:]


def _one_shard(table: ShardedTable, params: Mapping[str, Any], whole: Read, limits: Limits, at: int) -> None:
    if params.get("IndexName") == "city":
        return  # it is not fanned out
    rows = list(table.query_items(**params, ReturnShards=True))
    assert [canonical(item) for item, _ in rows] == whole.texts
    _, shard = rows[at - 1]
    alone = [canonical(item) for item, other in rows if other == shard]
    assert read(table, {**params, "Shard": shard}, limits).texts == alone


@dataclass(frozen=True)
class Read:
    items: list[Item]
    count: int
    scanned: int
    pages: int

    @property
    def texts(self) -> list[str]:
        return list(map(canonical, self.items))


def read(table: Any, params: Mapping[str, Any], limits: Limits = (None,)) -> Read:
    """Read all pages, the cursor through JSON on a sharded table, and hold each to what every page promises."""
    items: list[Item] = []
    count = scanned = 0
    given = deepcopy(dict(params))
    cursor = params.get("ExclusiveStartKey")
    for number, limit in enumerate(itertools.islice(itertools.cycle(limits), MOST_PAGES), 1):
        request = _sized(params, limit)
        if cursor is not None:
            request["ExclusiveStartKey"] = cursor
        page = table.query(**request)
        assert params == given
        assert page.keys() <= RESPONSE
        assert limit is None or page["Count"] <= limit
        assert ("Items" in page) == (params.get("Select") != "COUNT")
        assert page["Count"] == len(page.get("Items", range(page["Count"])))
        assert page["ScannedCount"] >= page["Count"]
        assert page["ResponseMetadata"]["HTTPStatusCode"] == 200
        items += page.get("Items", [])
        count += page["Count"]
        scanned += page["ScannedCount"]
        cursor = page.get("LastEvaluatedKey")
        if cursor is None:
            return Read(items, count, scanned, number)
        if isinstance(table, ShardedTable):
            assert cursor.keys() == {"shardkit"}
            cursor = json.loads(json.dumps(cursor))
    raise AssertionError(f"more than {MOST_PAGES} pages")


def _sized(params: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    return dict(params) if limit is None else {**params, "Limit": limit}


def plainly(value: Any) -> Any:
    """A value that has an order: a Binary's bytes."""
    return value.value if isinstance(value, Binary) else value  # type: ignore[attr-defined]


def canonical(item: Mapping[str, Any]) -> str:
    return json.dumps(item, sort_keys=True, default=lambda value: repr(plainly(value)))


OF_TWO_AND_TWO: list[ConditionBase] = [
    Key("pk").eq("k") & Key("city").eq("Bern"),
    Key("pk").eq("k") & Key("city").eq("Bern") & Key("a").gte(1),
    Key("pk").eq("k") & Key("city").eq("Bern") & Key("a").between(0, 1),
    Key("pk").eq("k") & Key("city").eq("Bern") & Key("a").eq(1),
    Key("pk").eq("k") & Key("city").eq("Bern") & Key("a").eq(1) & Key("b").begins_with("b"),
    Key("pk").eq("k") & Key("city").eq("Bern") & Key("a").eq(1) & Key("b").lt("c"),
]


def check_an_index_of_two_and_two(resource: DynamoDBServiceResource, *, descending: bool) -> None:
    """Query an index whose key has two and two attributes, full of ties, beside a plain table's."""
    index = GlobalIndex("two-and-two", [("pk", "S"), ("city", "S")], [("a", "N"), ("b", "S")])
    plain, physical = (make_table(resource, sort_key=("sk", "N"), global_indexes=[index]) for _ in range(2))
    table = ShardedTable(physical, CalculatedSuffix("sk", 3))
    with plain.batch_writer() as one, table.batch_writer() as other:
        for number in range(24):
            item = {"pk": "k", "sk": number, "city": "Bern", "a": number % 3, "b": "aabbc"[number % 5]}
            item |= {"city": "Basel"} if number % 7 == 0 else {}
            one.put_item(Item=item)
            other.put_item(Item=item)
    for place, condition in enumerate(OF_TWO_AND_TWO):
        query = {
            "IndexName": "two-and-two", "KeyConditionExpression": condition, "ScanIndexForward": not descending
        }  # fmt: skip
        reading = Reading((5, 2), ("stream", "key", "shard")[place % 3], place + 1)
        compare(plain, table, query, sort="a", reading=reading)
        orders = [[(item["a"], item["b"]) for item in read(one, query).items] for one in (plain, table)]
        assert orders[0] == orders[1] == sorted(orders[0], reverse=descending)
        assert orders[0]
