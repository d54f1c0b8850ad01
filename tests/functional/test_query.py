"""Merged queries through boto3, on moto: beside a plain table, and what goes over the wire."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from hypothesis import given, settings

from shardkit import CalculatedSuffix, RandomSuffix, RangeSuffix, ShardedTable
from shardkit.errors import ConfigurationError, CursorError, ShardQueryError, UnsupportedExpressionError
from tests.support.equivalence import Case, cases, check, check_an_index_of_two_and_two, kept, make_pair, read
from tests.support.queries import SHAPES
from tests.support.recorder import answering, recording
from tests.support.tables import GlobalIndex, LocalIndex, make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

DAY = Key("pk").eq("2014-07-09")
MOTO = ("objects", "strings", "legacy, conditions only")


@pytest.mark.long_search
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_as_a_plain_table(resource: DynamoDBServiceResource, shape: str) -> None:
    """Promise 2: same items, sort-key order, no page over Limit, one fixed order, whatever is asked of whatever."""

    # A third of the others' examples, since each makes two tables; all but as many where there is time.
    @settings(max_examples=settings().max_examples - 20, print_blob=True)
    @given(case=cases(SHAPES[shape], asked=2, styles=MOTO))
    @kept(shape)
    def same(case: Case) -> None:
        pair = make_pair(resource, SHAPES[shape])
        try:
            check(pair, case)
        finally:
            # moto's time grows with what it holds.
            pair.plain.delete()
            pair.physical.delete()

    same()


@pytest.mark.parametrize("descending", [False, True])
def test_an_index_key_of_several_attributes(resource: DynamoDBServiceResource, descending: bool) -> None:
    """Moto and DynamoDB Local know such keys; dynoxide refuses their queries."""
    check_an_index_of_two_and_two(resource, descending=descending)


@pytest.fixture
def stored(resource: DynamoDBServiceResource) -> Table:
    return make_table(
        resource,
        sort_key=("sk", "N"),
        local_indexes=[LocalIndex("by-a", ("a", "N"))],
        global_indexes=[
            GlobalIndex("city", ("city", "S"), ("a", "N")),
            GlobalIndex("pk-of-city", ("city", "S"), ("pk", "S")),
        ],
    )


@pytest.fixture
def orders(stored: Table) -> ShardedTable:
    """Thirty orders of a day on four shards, every three of them with the same `a`."""
    table = ShardedTable(stored, CalculatedSuffix("sk", shards=4))
    with table.batch_writer() as batch:
        for number in range(30):
            batch.put_item(Item={"pk": "2014-07-09", "sk": number, "a": number // 3, "city": "Bern"})
    return table


def sort_keys(items: list[dict[str, Any]]) -> list[int]:
    return [int(item["sk"]) for item in items]


class TestOnTheWire:
    def test_every_shard_is_asked_for_its_share(self, orders: ShardedTable) -> None:
        """Each shard gets one Query for its own key; together they are asked for far less than shards × Limit."""
        with recording(orders.meta.client) as wire:
            assert sort_keys(orders.query(KeyConditionExpression=DAY, Limit=20)["Items"]) == list(range(20))
        bodies = wire.bodies("Query")
        keys = {value["S"] for body in bodies for value in body["ExpressionAttributeValues"].values()}
        assert keys == {f"2014-07-09.{shard}" for shard in (1, 2, 3, 4)}
        assert set(wire.operations) == {"Query"}
        assert sum(body["Limit"] for body in bodies[:4]) < 4 * 20
        assert len(bodies) <= 6

    @pytest.mark.parametrize(("by", "asked"), [("sk", 1), (("pk", "sk"), 1), ("a", 4), (lambda item: item["sk"], 4)])
    def test_one_item_is_asked_of_its_shard(self, stored: Table, by: Any, asked: int) -> None:
        """If the key condition tells the shard: a function may read what it does not."""
        table = ShardedTable(stored, CalculatedSuffix(by, shards=4))
        table.put_item(Item={"pk": "2014-07-09", "sk": 7, "a": 1})
        with recording(table.meta.client) as wire:
            found = table.query(KeyConditionExpression=DAY & Key("sk").eq(Decimal("7.0")))
        assert (len(wire.requests), sort_keys(found["Items"])) == (asked, [7])

    def test_one_shard(self, orders: ShardedTable) -> None:
        """Shard= asks that one only; a shard that the key has not is refused."""
        with recording(orders.meta.client) as wire:
            page = orders.query(KeyConditionExpression=DAY, Shard=2, ReturnShards=True)
        assert len(wire.requests) == 1
        assert page["Shards"] == [2] * page["Count"]
        everything = orders.query(KeyConditionExpression=DAY, ReturnShards=True)
        pairs = zip(everything["Items"], everything["Shards"], strict=True)
        assert [item for item, shard in pairs if shard == 2] == page["Items"]
        with pytest.raises(ConfigurationError, match=r"^Shard: must be an integer from"):
            orders.query(KeyConditionExpression=DAY, Shard=5)
        with pytest.raises(ConfigurationError, match="not fanned out"):
            orders.query(IndexName="city", KeyConditionExpression=Key("city").eq("Bern"), Shard=1)

    def test_an_index_of_another_partition_key_is_asked_once(self, orders: ShardedTable) -> None:
        """It is whole already: one request a page, logical keys, shards on request."""
        with recording(orders.meta.client) as wire:
            page = orders.query(
                IndexName="city", KeyConditionExpression=Key("city").eq("Bern"), Limit=7, ReturnShards=True
            )
        assert len(wire.requests) == 1
        assert {item["pk"] for item in page["Items"]} == {"2014-07-09"}
        assert set(page["Shards"]) <= {1, 2, 3, 4}

    def test_a_sharded_sort_key(self, orders: ShardedTable) -> None:
        """Where the partition key is an index's sort key, '=' is fanned out, ranges and ordered reads are refused."""
        city = Key("city").eq("Bern")
        with recording(orders.meta.client) as wire:
            page = orders.query(IndexName="pk-of-city", KeyConditionExpression=city & DAY)
        assert (page["Count"], len(wire.requests)) == (30, 4)
        for condition in (city, city & Key("pk").begins_with("2014"), city & Key("pk").between("2014", "2015")):
            with pytest.raises(UnsupportedExpressionError, match="has the suffixes of"):
                orders.query(IndexName="pk-of-city", KeyConditionExpression=condition)

    def test_options_are_passed_on(self, orders: ShardedTable) -> None:
        """ConsistentRead goes to every shard, and capacity is summed over them."""
        with recording(orders.meta.client) as wire:
            page = orders.query(KeyConditionExpression=DAY, ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
        assert [body["ConsistentRead"] for body in wire.bodies("Query")] == [True] * 4
        assert page["ConsumedCapacity"]["TableName"] == orders.name
        single = orders.query(KeyConditionExpression=DAY, Shard=1, ReturnConsumedCapacity="TOTAL", ConsistentRead=True)
        assert page["ConsumedCapacity"]["CapacityUnits"] > single["ConsumedCapacity"]["CapacityUnits"]

    def test_the_callers_objects_are_not_changed(self, orders: ShardedTable) -> None:
        """Promise 4: what was given is as it was, and can be given again."""
        names, values = {"#p": "pk", "#k": "a"}, {":p": "2014-07-09", ":k": 3}
        query: dict[str, Any] = {
            "KeyConditionExpression": "#p = :p", "FilterExpression": "#k > :k", "ProjectionExpression": "#k",
            "ExpressionAttributeNames": names, "ExpressionAttributeValues": values, "Limit": 9,
        }  # fmt: skip
        before = repr(query)
        items = read(orders, query, (9,)).items
        assert repr(query) == before
        assert items == [{"a": number // 3} for number in range(12, 30)]


class TestResponses:
    def test_counts(self, orders: ShardedTable) -> None:
        """Count is what the page holds, ScannedCount what was evaluated for it, and both sum up over pages."""
        page = orders.query(KeyConditionExpression=DAY, Limit=4)
        assert (page["Count"], page["ScannedCount"], page["ResponseMetadata"]["HTTPStatusCode"]) == (4, 4, 200)
        assert page["ResponseMetadata"]["RequestId"]
        filtered = orders.query(KeyConditionExpression=DAY, FilterExpression=Attr("a").lt(2))
        assert (filtered["Count"], filtered["ScannedCount"]) == (6, 30)
        counted = orders.query(KeyConditionExpression=DAY, Select="COUNT")
        assert (counted["Count"], "Items" in counted) == (30, False)

    def test_count_without_a_sort_key(self, resource: DynamoDBServiceResource) -> None:
        """A count needs no attribute but the partition key."""
        table = ShardedTable(make_table(resource), RandomSuffix(3))
        table.put_item(Item={"pk": "k"})
        assert table.query(KeyConditionExpression=Key("pk").eq("k"), Select="COUNT")["Count"] == 1

    def test_projections(self, orders: ShardedTable) -> None:
        """Only what was asked for is shown, in order all the same."""
        whole = read(orders, {"KeyConditionExpression": DAY, "ProjectionExpression": "a"}, (7,))
        assert [item["a"] for item in whole.items] == [one // 3 for one in range(30)]
        assert {*map(frozenset, whole.items)} == {frozenset({"a"})}
        assert (whole.count, whole.pages) == (30, 5)

    def test_an_error_that_all_shards_have(self, orders: ShardedTable) -> None:
        """It is the service's own, as from a plain table."""
        with pytest.raises(ClientError) as caught:
            orders.query(KeyConditionExpression=DAY & Key("nothing").eq(1))
        assert caught.value.response["Error"]["Code"] == "ValidationException"

    def test_an_error_that_one_shard_has(self, orders: ShardedTable) -> None:
        """The others' items are not lost."""

        def denied(body: dict[str, Any]) -> dict[str, Any] | None:
            values = body["ExpressionAttributeValues"].values()
            return {"__type": "AccessDeniedException"} if {"S": "2014-07-09.3"} in values else None

        with answering(orders.meta.client, "Query", denied), pytest.raises(ShardQueryError) as caught:
            orders.query(KeyConditionExpression=DAY)
        assert caught.value.errors.keys() == {3}
        others = [orders.query(KeyConditionExpression=DAY, Shard=shard)["Items"] for shard in (1, 2, 4)]
        assert [item["sk"] for item in caught.value.partial_items] == sorted(
            item["sk"] for page in others for item in page
        )


class TestPages:
    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("limit", [8, 11])
    def test_where_a_filtered_page_ends(self, orders: ShardedTable, limit: int, descending: bool) -> None:
        """At the lowest position evaluated of any shard that goes on: nothing in front of it is left for later."""
        query: dict[str, Any] = {
            "KeyConditionExpression": DAY, "FilterExpression": Attr("a").eq(4),
            "ScanIndexForward": not descending, "Limit": limit,
        }  # fmt: skip
        with recording(orders.meta.client) as wire:
            page = orders.query(**query)
        last: dict[str, Any] = {}
        for body in wire.bodies("Query"):
            last[str(body["ExpressionAttributeValues"])] = boto3.client("dynamodb").query(**body)
        read_to = [int(one["LastEvaluatedKey"]["sk"]["N"]) for one in last.values() if "LastEvaluatedKey" in one]
        del query["FilterExpression"]
        behind = next(orders.query_items(**query, ExclusiveStartKey=page["LastEvaluatedKey"]))
        assert behind["sk"] == (max(read_to) - 1 if descending else min(read_to) + 1)

    def test_what_is_evaluated_of_all_pages(self, orders: ShardedTable) -> None:
        """A filter that drops everything leaves empty pages with cursors, and every item is evaluated."""
        nothing = {"KeyConditionExpression": DAY, "FilterExpression": Attr("a").eq(99)}
        paged = read(orders, nothing, (4,))
        assert (paged.items, paged.pages > 1) == ([], True)
        assert paged.scanned >= 30
        assert read(orders, nothing).scanned == 30

    @pytest.mark.parametrize("filtered", [False, True])
    def test_no_page_exceeds_limit(self, orders: ShardedTable, filtered: bool) -> None:
        """Without a filter every page but the last is full; one that drops nothing fills none beyond Limit."""
        query: dict[str, Any] = {"KeyConditionExpression": DAY, "Limit": 7}
        if filtered:
            query["FilterExpression"] = Attr("a").gte(0)
        sizes: list[int] = []
        page: Any = {}
        while not sizes or "LastEvaluatedKey" in page:
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]} if page else {}
            page = orders.query(**query, **start)
            sizes.append(page["Count"])
        assert sum(sizes) == 30
        assert max(sizes) <= 7
        assert filtered or sizes == [7, 7, 7, 7, 2]


class TestCursors:
    def test_their_length(self, resource: DynamoDBServiceResource) -> None:
        """It is bounded by the keys' own, not by the number of shards."""
        stored = make_table(resource, sort_key=("sk", "S"))
        lengths = []
        for shards in (1, 200):
            table = ShardedTable(stored, CalculatedSuffix("sk", shards))
            key = "k" * (2048 - 4 - shards // 100)
            for letter in "abc":
                table.put_item(Item={"pk": key, "sk": letter * 1024})
            page = table.query(KeyConditionExpression=Key("pk").eq(key), Limit=2)
            lengths.append(len(page["LastEvaluatedKey"]["shardkit"]))
        assert lengths[1] <= lengths[0] + 4 < 1600

    @pytest.mark.parametrize("descending", [False, True])
    def test_a_key_made_by_hand(self, orders: ShardedTable, descending: bool) -> None:
        """A primary key stands where its item stands, whether or not there is such an item."""
        query: dict[str, Any] = {"KeyConditionExpression": DAY, "ScanIndexForward": not descending}
        page = orders.query(**query, ExclusiveStartKey={"pk": "2014-07-09", "sk": 17})
        assert sort_keys(page["Items"]) == (list(range(16, -1, -1)) if descending else list(range(18, 30)))
        between = orders.query(**query, ExclusiveStartKey={"pk": "2014-07-09", "sk": Decimal("16.5")})
        assert sort_keys(between["Items"])[0] == (16 if descending else 17)

    @pytest.mark.parametrize("index", ["by-a", "city"])
    def test_a_key_made_by_hand_on_an_index(self, orders: ShardedTable, index: str) -> None:
        """On an index it is the index's key and the table's, of an item that exists."""
        city = Key("city").eq("Bern")
        query: dict[str, Any] = {"IndexName": index, "KeyConditionExpression": DAY if index == "by-a" else city}
        whole = orders.query(**query)["Items"]
        assert len(whole) > 10
        for place, item in enumerate(whole):
            start = {name: item[name] for name in ("pk", "sk", "a", *(["city"] if index == "city" else []))}
            assert orders.query(**query, ExclusiveStartKey=start)["Items"] == whole[place + 1 :]

    def test_where_the_shard_is_not_known(self, stored: Table) -> None:
        """A random shard cannot be calculated: only the cursor will do."""
        table = ShardedTable(stored, RandomSuffix(4))
        with pytest.raises(CursorError, match="cannot be calculated"):
            table.query(KeyConditionExpression=DAY, ExclusiveStartKey={"pk": "2014-07-09", "sk": 1})

    def test_a_cursor_of_another_query(self, orders: ShardedTable) -> None:
        """It is refused before anything is sent."""
        cursor = orders.query(KeyConditionExpression=DAY, Limit=1)["LastEvaluatedKey"]
        with recording(orders.meta.client) as wire, pytest.raises(CursorError, match="another key, Shard="):
            orders.query(KeyConditionExpression=Key("pk").eq("2014-07-10"), ExclusiveStartKey=cursor)
        assert wire.requests == []

    def test_the_other_direction(self, orders: ShardedTable) -> None:
        """As in DynamoDB, a cursor can be read back from where it stands."""
        cursor = orders.query(KeyConditionExpression=DAY, Limit=10)["LastEvaluatedKey"]
        page = orders.query(KeyConditionExpression=DAY, ScanIndexForward=False, ExclusiveStartKey=cursor)
        assert sort_keys(page["Items"]) == list(range(8, -1, -1))


class TestQueryItems:
    def test_all_items_in_order(self, orders: ShardedTable) -> None:
        """A stream reads nothing before it is asked, and then everything once."""
        with recording(orders.meta.client) as wire:
            stream = orders.query_items(KeyConditionExpression=DAY)
            assert wire.requests == []
            assert stream.last_evaluated_key is None
            assert sort_keys(list(stream)) == list(range(30))
        assert len(wire.requests) == 4
        assert stream.last_evaluated_key is None
        assert list(stream) == []

    @pytest.mark.parametrize("index", [None, "by-a"])
    def test_resuming_after_any_item(self, orders: ShardedTable, index: str | None) -> None:
        """The cursor behind the last item handed out goes on with the next one, in a stream and in a page."""
        query: dict[str, Any] = {"KeyConditionExpression": DAY, "Limit": 8, **({"IndexName": index} if index else {})}
        whole = list(orders.query_items(**query))
        for size in range(1, 31, 4):
            stream = orders.query_items(**query, max_items=size)
            assert list(stream) == whole[:size]
            start = json.loads(json.dumps(stream.last_evaluated_key))
            assert list(orders.query_items(**query, ExclusiveStartKey=start)) == whole[size:]
            assert orders.query(**query, ExclusiveStartKey=start)["Items"] == whole[size : size + 8]

    def test_nothing_is_asked_for_no_items(self, orders: ShardedTable) -> None:
        """max_items=0 is none, without a request."""
        with recording(orders.meta.client) as wire:
            assert list(orders.query_items(KeyConditionExpression=DAY, max_items=0)) == []
        assert wire.requests == []

    def test_shards(self, orders: ShardedTable) -> None:
        """ReturnShards yields (item, shard); Shard= streams one."""
        rows = list(orders.query_items(KeyConditionExpression=DAY, ReturnShards=True))
        assert [orders.strategy.shard_of("2014-07-09", item) for item, _ in rows] == [shard for _, shard in rows]
        one = list(orders.query_items(KeyConditionExpression=DAY, Shard=1))
        assert one == [item for item, shard in rows if shard == 1]

    def test_close(self, orders: ShardedTable) -> None:
        """Nothing comes after close(), and the cursor still stands behind the last item."""
        stream = orders.query_items(KeyConditionExpression=DAY)
        next(stream)
        stream.close()
        assert list(stream) == []
        assert stream.last_evaluated_key
        rest = orders.query_items(KeyConditionExpression=DAY, ExclusiveStartKey=stream.last_evaluated_key)
        assert sort_keys(list(rest)) == list(range(1, 30))

    def test_a_count_is_refused(self, orders: ShardedTable) -> None:
        """There are no items to yield."""
        with pytest.raises(UnsupportedExpressionError, match="COUNT"):
            next(orders.query_items(KeyConditionExpression=DAY, Select="COUNT"))


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({"KeyConditionExpression": DAY & Key("sk").between("b", "c1")}, ["x62", "x63"]),
        ({"KeyConditionExpression": DAY & Key("sk").begins_with("c")}, ["x63"]),
        ({"KeyConditionExpression": DAY, "Limit": 3}, ["x", "x62"]),
        ({"KeyConditionExpression": DAY, "Limit": 3, "ScanIndexForward": False}, ["x64", "x63"]),
        ({"KeyConditionExpression": DAY & Key("by").eq("y"), "IndexName": "local"}, ["x", "x62", "x63", "x64"]),
        (
            {
                "KeyConditions": {
                    "pk": {"AttributeValueList": ["2014-07-09"], "ComparisonOperator": "EQ"},
                    "sk": {"AttributeValueList": ["c"], "ComparisonOperator": "LT"},
                }
            },
            ["x", "x62"],
        ),
    ],
)
def test_ranges_that_a_query_asks(resource: DynamoDBServiceResource, query: dict[str, Any], asked: list[str]) -> None:
    """On the wire, one after another; an index has another order, so all are asked."""
    table = make_table(resource, sort_key=("sk", "S"), local_indexes=[LocalIndex("local", ("by", "S"))])
    orders = ShardedTable(table, RangeSuffix("sk", ["b", "c", "d"]))
    with orders.batch_writer() as batch:
        for order in ("a1", "a2", "b1", "c1", "c2", "d1"):
            batch.put_item(Item={"pk": "2014-07-09", "sk": order, "by": "y"})
    with recording(table.meta.client) as wire:
        orders.query(**query)
    values = [json.dumps(body) for body in wire.bodies("Query")]
    found = [text.partition("2014-07-09.")[2].partition('"')[0] for text in values]
    assert (sorted(found) if "IndexName" in query else found) == asked
