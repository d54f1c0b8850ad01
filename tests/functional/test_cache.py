"""CachedTable over moto: which requests are made, and what every kind of write makes of the copies."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError, ParamValidationError
from botocore.hooks import HierarchicalEmitter
from botocore.stub import Stubber

from shardkit import (
    CalculatedSuffix,
    CapacityBudget,
    CapacityBudgetError,
    CapacityMeter,
    ConfigurationError,
    CursorError,
    InvalidKeyError,
    RandomSuffix,
    ShardedTable,
    TableLike,
    Unsharded,
    bulk_load,
    install,
)
from shardkit.cache import CachedTable, CacheOptions, MemoryStore, RedisStore
from shardkit.cache.table_cache import WriteLog
from shardkit.capacity import CacheUsage
from shardkit.runtime.hooks import _handlers
from shardkit.timeseries import TimeSeries
from tests.support.fakes import Clock
from tests.support.recorder import answering, recording
from tests.support.tables import make_table
from tests.support.wire import THROTTLE

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

    from tests.support.wire import Recorder

BOOK: Any = {"Shop": "s1", "Id": Decimal(1)}
PEN: Any = {"Shop": "s1", "Id": Decimal(2)}
THREADS = 200
MORE: Any = {"Name": "book", "Cover": b"\x00\xff", "Tags": {"a", "b"}, "Sizes": [Decimal(1), None], "New": True}
STRATEGIES = {"plain": None, "sharded": CalculatedSuffix("Id", shards=3)}


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Shop", "S"), ("Id", "N"), name="Products")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STRATEGIES)
def products(request: pytest.FixtureRequest, table: Table, clock: Clock) -> CachedTable:
    strategy = STRATEGIES[request.param]
    return cached(table if strategy is None else ShardedTable(table, strategy), clock, query_ttl=60.0)


def cached(table: Any, clock: Clock, **options: Any) -> CachedTable:
    return CachedTable(table, store=MemoryStore(1_000_000, clock=clock), **options)


@contextmanager
def seen(table: Any) -> Iterator[Recorder]:
    with recording(table.meta.client) as recorder:
        yield recorder


def shown(item: Any) -> Any:
    return {name: getattr(value, "value", value) for name, value in item.items()}


def test_the_second_read_is_no_request(products: CachedTable) -> None:
    products.table.put_item(Item=BOOK | MORE)
    first = products.get_item(Key=BOOK)
    with seen(products) as sent:
        second = products.get_item(Key={"Shop": "s1", "Id": 1}, ReturnConsumedCapacity="TOTAL")
    assert sent.operations == []
    assert shown(first["Item"]) == shown(second["Item"]) == BOOK | MORE
    assert "Cached" not in first
    assert second["Cached"] == "fresh"
    assert second["ConsumedCapacity"] == {"TableName": "Products", "CapacityUnits": 0.0}
    assert second["ResponseMetadata"]["HTTPStatusCode"] == 200
    second["Item"]["Sizes"].append("changed by its reader")
    assert shown(products.get_item(Key=BOOK)["Item"]) == BOOK | MORE


def test_absence_is_served_for_its_own_time(products: CachedTable, clock: Clock) -> None:
    with seen(products) as sent:
        assert products.get_item(Key=BOOK).get("Cached") is None
        answer = products.get_item(Key=BOOK)
        assert ("Item" in answer, answer["Cached"]) == (False, "fresh")
        clock.now = 5.1
        products.get_item(Key=BOOK)
    assert sent.operations.count("GetItem") == 2


@pytest.mark.parametrize(
    "options",
    [
        {"ConsistentRead": True},
        {"ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "Name"}},
        {"AttributesToGet": ["Name"]},
    ],
)
def test_reads_that_pass_by(products: CachedTable, options: Any) -> None:
    products.put_item(Item=BOOK | MORE)
    products.get_item(Key=BOOK)
    with seen(products) as sent:
        assert "Cached" not in products.get_item(Key=BOOK, **options)
        assert "Cached" not in products.batch_get_items([BOOK], **options)
    assert sent.operations == ["GetItem", "BatchGetItem"]


def test_of_a_batch_only_the_misses_are_asked_for(products: CachedTable) -> None:
    products.table.put_item(Item=BOOK | MORE)
    products.table.put_item(Item=PEN)
    products.get_item(Key=PEN)
    absent = {"Shop": "s1", "Id": Decimal(3)}
    with seen(products) as sent:
        answer = products.batch_get_items([BOOK, PEN, absent, PEN], ReturnConsumedCapacity="TOTAL")
        again = products.batch_get_items([absent, BOOK], ReturnConsumedCapacity="TOTAL")
    (body,) = sent.bodies("BatchGetItem")
    assert [key["Id"] for key in body["RequestItems"]["Products"]["Keys"]] == [{"N": "1"}, {"N": "3"}]
    assert [shown(item) for item in answer["Items"]] == [BOOK | MORE, PEN]
    assert (answer["Cached"], answer["UnprocessedKeys"]) == (["miss", "fresh"], [])
    assert answer["ConsumedCapacity"]["CapacityUnits"] > 0
    assert ([shown(item) for item in again["Items"]], again["Cached"]) == ([BOOK | MORE], ["fresh"])
    assert again["ConsumedCapacity"]["CapacityUnits"] == 0


def test_what_the_table_refuses_is_its_own_refusal(products: CachedTable) -> None:
    with pytest.raises(ConfigurationError, match="keys: empty"):
        products.batch_get_items([])
    with pytest.raises((ClientError, InvalidKeyError), match=r"Id|Validation"):
        products.get_item(Key={"Shop": "s1"})


def _batch(products: CachedTable) -> None:
    with products.batch_writer() as batch:
        batch.put_item(Item=BOOK | {"Name": "new"})


WRITES: dict[str, Callable[[CachedTable], Any]] = {
    "put_item": lambda products: products.put_item(Item=BOOK | {"Name": "new"}),
    "update_item": lambda products: products.update_item(
        Key=BOOK, UpdateExpression="SET #n = :n", ExpressionAttributeNames={"#n": "Name"},
        ExpressionAttributeValues={":n": "new"},
    ),
    "update_item ALL_NEW": lambda products: products.update_item(
        Key=BOOK, UpdateExpression="SET #n = :n", ExpressionAttributeNames={"#n": "Name"},
        ExpressionAttributeValues={":n": "new"}, ReturnValues="ALL_NEW",
    ),
    "batch_writer": _batch,
    "bulk_load": lambda products: bulk_load(products, [BOOK | {"Name": "new"}]),
    "transaction": lambda products: ShardedTable(
        getattr(products.table, "table", products.table), getattr(products.table, "strategy", Unsharded())
    ).transact_write_items(TransactItems=[{"Put": {"Item": BOOK | {"Name": "new"}}}]),
    "client": lambda products: products.meta.client.put_item(
        TableName="Products", Item={**_stored(products), "Name": "new"}
    ),
}  # fmt: skip


def _stored(products: CachedTable) -> Any:
    table = products.table
    return table.physical_key(BOOK) if isinstance(table, ShardedTable) else BOOK


def test_a_write_through_the_client_is_seen_at_once(products: CachedTable, clock: Clock) -> None:
    page: Any = {"KeyConditionExpression": Key("Shop").eq("s1")}
    for name, write in WRITES.items():
        clock.now += 10.0  # the writes have settled
        products.table.put_item(Item=BOOK | {"Name": "old"})
        products.get_item(Key=BOOK)
        products.query(**page)
        write(products)
        assert products.get_item(Key=BOOK)["Item"]["Name"] == "new", name
        assert products.query(**page)["Items"][0]["Name"] == "new", name
        # What it wrote is known, or read strongly consistent the first time.
        known = name not in {"update_item", "transaction"}
        with seen(products) as sent:
            products.delete_item(Key=BOOK)
            assert "Item" not in products.get_item(Key=BOOK), name
            write(products)
            answer = products.get_item(Key=BOOK)
        assert answer["Item"]["Name"] == "new", name
        assert (answer.get("Cached") == "fresh") == known, name
        assert [body.get("ConsistentRead") for body in sent.bodies("GetItem")] == ([] if known else [True]), name


def test_a_failed_condition_drops_the_copy(products: CachedTable) -> None:
    """Somebody else has written the item: a copy would fail the next try too."""
    products.put_item(Item=BOOK | {"Version": 2})
    assert products.get_item(Key=BOOK)["Item"]["Version"] == 2
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        products.put_item(Item=BOOK, ConditionExpression=Attr("Version").eq(1))
    with seen(products) as sent:
        products.get_item(Key=BOOK)
    assert sent.bodies("GetItem")[0]["ConsistentRead"] is True


def test_a_write_that_was_refused_changes_no_copy(products: CachedTable) -> None:
    """By botocore, by a budget, or by the service because of its key: nothing was written, whatever is read next."""
    refused: Any
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    budget = CapacityBudget(write_units=1, burst=0, mode="raise", clock=lambda: 0.0)
    with pytest.raises(ParamValidationError):
        products.table.put_item(Item=BOOK, ReturnConsumedCapacity=5)
    for key in ({"Shop": "s1"}, {"Shop": 1, "Id": 1}):
        refused = key
        with pytest.raises((ClientError, InvalidKeyError)):
            products.put_item(Item=refused)
    with budget.attach(products), suppress(CapacityBudgetError):
        products.put_item(Item=PEN)
        with pytest.raises(CapacityBudgetError):
            products.put_item(Item=BOOK | {"Name": "new"})
    assert products.get_item(Key=BOOK)["Cached"] == "fresh"


def test_while_a_budget_holds_a_write_its_item_is_read_from_memory(products: CachedTable) -> None:
    now, found = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds
        found.append(products.get_item(Key=BOOK).get("Cached"))

    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    with CapacityBudget(write_units=1, burst=0, clock=lambda: now[0], sleep=sleep).attach(products):
        for _ in range(3):
            products.put_item(Item=BOOK)
    assert found
    assert set(found) == {"fresh"}


def test_a_write_that_another_handler_answers_leaves_no_copy(products: CachedTable) -> None:
    """Nobody can say what it did."""
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    with Stubber(products.meta.client) as stubber:
        stubber.add_response("put_item", {})
        products.put_item(Item=BOOK | {"Name": "new"})
    assert "Cached" not in products.get_item(Key=BOOK)


def test_another_accounts_table_of_the_same_name(table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    client = table.meta.client
    elsewhere: Any = {"TableName": "arn:aws:dynamodb:us-east-1:999999999999:table/Products"}
    with answering(client, "PutItem", lambda _: {}):
        client.put_item(Item=BOOK | {"Name": "another"}, **elsewhere)
    assert products.get_item(Key=BOOK)["Item"] == BOOK


def test_partiql_and_the_end_of_the_table_drop_all_copies(table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    products.put_item(Item=BOOK)
    client = table.meta.client
    for change in (
        lambda: client.execute_statement(Statement="INSERT INTO \"Products\" VALUE {'Shop': 's2', 'Id': 1}"),
        lambda: client.delete_table(TableName="Products"),
    ):
        products.get_item(Key=BOOK)
        assert len(products.store) == 1
        change()
        assert len(products.store) == 0
        with seen(products) as sent, suppress(ClientError):
            products.get_item(Key=BOOK)
        assert sent.bodies("GetItem")[0]["ConsistentRead"] is True


def test_another_clients_write_is_seen_after_the_ttl(table: Table, clock: Clock, boto3_session: boto3.Session) -> None:
    products = cached(table, clock, ttl=30.0)
    products.put_item(Item=BOOK | {"Name": "old"})
    products.get_item(Key=BOOK)
    boto3_session.resource("dynamodb").Table("Products").put_item(Item=BOOK | {"Name": "new"})
    assert products.get_item(Key=BOOK)["Item"]["Name"] == "old"
    clock.now = 30.0
    assert products.get_item(Key=BOOK)["Item"]["Name"] == "new"
    products.clear()
    assert len(products.store) == 0


def test_pages_of_queries(products: CachedTable, clock: Clock) -> None:
    for number in range(4):
        products.table.put_item(Item={"Shop": "s1", "Id": number})
    clock.now = 3.0  # the writes have settled
    page: Any = {"KeyConditionExpression": Key("Shop").eq("s1"), "Limit": 2}
    first = products.query(**page)
    with seen(products) as sent:
        again = products.query(**page, ReturnConsumedCapacity="TOTAL")
        assert sent.operations == []
        assert (again["Items"], again["Count"], again["Cached"]) == (first["Items"], 2, "fresh")
        assert again["LastEvaluatedKey"] == first["LastEvaluatedKey"]
        rest = products.query(**page, ExclusiveStartKey=again["LastEvaluatedKey"])
        assert [item["Id"] for item in rest["Items"]] == [2, 3]
        assert "Cached" not in products.query(**page, ConsistentRead=True)
        assert "Cached" not in products.query(**page, ScanIndexForward=False)
        assert "Items" not in products.query(KeyConditionExpression=Key("Shop").eq("s1"), Select="COUNT")
        assert products.query(KeyConditionExpression="Shop = :s", ExpressionAttributeValues={":s": "s1"})["Count"] == 4
    products.put_item(Item={"Shop": "s2", "Id": 1})
    assert products.query(**page)["Cached"] == "fresh"
    products.put_item(Item={"Shop": "s1", "Id": 9})
    assert "Cached" not in products.query(**page)
    clock.now += 3.0
    assert ["Cached" in products.query(**page) for _ in range(2)] == [False, True]


def test_pages_with_signed_cursors(table: Table, clock: Clock) -> None:
    sharded = ShardedTable(table, CalculatedSuffix("Id", 3), cursor_secret=b"0123456789abcdef")
    for number in range(4):
        sharded.put_item(Item={"Shop": "s1", "Id": number})
    products = cached(sharded, clock, query_ttl=60.0)
    page: Any = {"KeyConditionExpression": Key("Shop").eq("s1"), "Limit": 2}
    first, again = products.query(**page), products.query(**page)
    assert again["Cached"] == "fresh"
    assert again["LastEvaluatedKey"] == first["LastEvaluatedKey"]
    rest = products.query(**page, ExclusiveStartKey=again["LastEvaluatedKey"])
    assert [item["Id"] for item in rest["Items"]] == [2, 3]
    with pytest.raises(CursorError, match="signed"):
        products.query(**page, ExclusiveStartKey={"Shop": "s1", "Id": 1})


# What another process that has the same store is given; this one has [SECRET, OTHER].
SECRET, OTHER = b"0123456789abcdef", b"fedcba9876543210"
OTHERS = {"none": None, "the former one": OTHER, "they change": [OTHER, SECRET], "only the first": SECRET}


@pytest.mark.parametrize("secret", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("installed", [False, True], ids=["table", "client"])
@pytest.mark.parametrize("strategy", [Unsharded(), CalculatedSuffix("Id", 3)], ids=["Unsharded", "CalculatedSuffix"])
def test_a_store_of_processes_with_other_cursor_secrets(
    table: Table, clock: Clock, boto3_session: boto3.Session, secret: Any, installed: bool, strategy: Any
) -> None:
    store = MemoryStore(1_000_000, clock=clock)
    for number in range(6):
        ShardedTable(table, strategy).put_item(Item={"Shop": "s1", "Id": number})
    page: Any = {"KeyConditionExpression": Key("Shop").eq("s1"), "Limit": 2}
    options = CacheOptions(store=store, query_ttl=60.0)

    def process(secret: Any) -> Any:
        if not installed:
            return CachedTable(ShardedTable(table, strategy, cursor_secret=secret), store=store, query_ttl=60.0)
        resource = boto3_session.resource("dynamodb")
        install(resource, {"Products": strategy}, cache={"Products": options}, cursor_secret=secret)
        return resource.Table("Products")

    def pages(reader: Any, start: Any = None) -> tuple[Any, Any]:
        first = reader.query(**page) if start is None else {"LastEvaluatedKey": start}
        return first, reader.query(**page, ExclusiveStartKey=first["LastEvaluatedKey"])

    other, signing = process(secret), process([SECRET, OTHER])
    theirs = [pages(other), pages(other)]
    assert [answer["Cached"] for answer in theirs[1]] == ["fresh"] * 2
    ours = pages(signing)
    assert not any("Cached" in answer for answer in ours)
    assert [[item["Id"] for item in answer["Items"]] for answer in ours] == [[0, 1], [2, 3]]
    only_first = ShardedTable(table, strategy, cursor_secret=SECRET)
    for answer in (*ours, *pages(signing)):
        assert answer["LastEvaluatedKey"].keys() == {"shardkit"}
        only_first.query(**page, ExclusiveStartKey=answer["LastEvaluatedKey"])
    start = theirs[0][0]["LastEvaluatedKey"]
    if secret is None:
        with pytest.raises((CursorError, ClientError), match="signed"):
            pages(signing, start)
    else:
        assert [item["Id"] for item in pages(signing, start)[1]["Items"]] == [2, 3]
    if secret == OTHER:
        with pytest.raises((CursorError, ClientError), match="not signed with a secret"):
            pages(other, ours[0]["LastEvaluatedKey"])
    assert pages(process([SECRET, OTHER]))[1]["Cached"] == "fresh"


def test_a_page_without_some_of_its_items_is_not_kept(table: Table, clock: Clock) -> None:
    orders = ShardedTable(table, CalculatedSuffix("Id", shards=2))
    for number in range(4):
        orders.put_item(Item={"Shop": "s1", "Id": number})
    products = cached(orders.with_options(on_shard_error="partial"), clock, query_ttl=60.0)
    denied = {"__type": "AccessDeniedException", "message": "one shard"}
    with answering(table.meta.client, "Query", lambda body: denied if "s1.1" in json.dumps(body) else None):
        page: Any = products.query(KeyConditionExpression=Key("Shop").eq("s1"))
    assert set(page["ShardErrors"]) == {1}
    assert products.query(KeyConditionExpression=Key("Shop").eq("s1"))["Count"] == 4


def test_pages_are_not_cached_unless_asked_for(table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    assert ["Cached" in products.query(KeyConditionExpression=Key("Shop").eq("s1")) for _ in range(2)] == [False] * 2


def test_random_suffixes_are_located_once(table: Table, clock: Clock) -> None:
    products = cached(ShardedTable(table, RandomSuffix(3, locate=True)), clock)
    products.put_item(Item=BOOK | {"Name": "book"})
    products.get_item(Key=BOOK)
    with seen(products) as sent:
        assert products.get_item(Key=BOOK)["Item"]["Name"] == "book"
        assert "Cached" not in products.get_item(Key=BOOK, Shard=1)
    assert len(sent.operations) == 1


def test_many_threads_that_miss_are_one_request(table: Table, clock: Clock) -> None:
    products = cached(ShardedTable(table, Unsharded()), clock)
    products.table.put_item(Item=BOOK)
    products.get_item(Key=PEN)  # the key schema is known
    all_there = threading.Barrier(THREADS)

    def read(_: int) -> Any:
        all_there.wait()
        return products.get_item(Key=BOOK)["Item"]

    with seen(products) as sent, ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(read, range(THREADS))) == [BOOK] * THREADS
    assert sent.operations == ["GetItem"]


def test_clients_that_share_memory_see_their_own_writes(table: Table, clock: Clock, boto3_session: Any) -> None:
    """Also while another client reads the item: what it read before the write is not kept."""
    store = MemoryStore(1_000_000, clock=clock)
    writer = CachedTable(table, store=store)
    reader = CachedTable(boto3_session.resource("dynamodb").Table("Products"), store=store)
    table.put_item(Item=BOOK | {"Name": "old"})
    clock.now = 3.0
    read, written = threading.Event(), threading.Event()

    def hold(**_: Any) -> None:
        read.set()
        written.wait(10)

    reader.meta.client.meta.events.register("after-call.dynamodb.GetItem", hold)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(reader.get_item, Key=BOOK)
        read.wait(10)
        writer.put_item(Item=BOOK | {"Name": "new"})
        written.set()
        reading.result()
    assert [cache.get_item(Key=BOOK)["Item"]["Name"] for cache in (writer, reader)] == ["new", "new"]


def test_an_old_copy_for_a_throttled_read(table: Table, clock: Clock) -> None:
    products = cached(table, clock, ttl=10.0, stale_if_throttled=600.0)
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    clock.now = 20.0
    throttle = {"__type": f"com.amazonaws.dynamodb.v20120810#{THROTTLE}", "message": "hot"}
    table.meta.client.meta.events.register_first("needs-retry.dynamodb.*", lambda **_: None)
    with answering(table.meta.client, "GetItem", lambda _: throttle), pytest.MonkeyPatch.context() as patched:
        patched.setattr("time.sleep", lambda _: None)
        answer = products.get_item(Key=BOOK)
        with pytest.raises(ClientError, match="hot"):
            products.get_item(Key=PEN)
    assert (answer["Item"], answer["Cached"]) == (BOOK, "stale")


def test_an_old_copy_while_it_is_read_again(table: Table, clock: Clock) -> None:
    products = cached(table, clock, ttl=10.0, stale_while_revalidate=60.0)
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    later: list[Callable[[], None]] = []
    products._runner.later = later.append  # type: ignore[assignment,method-assign]  # noqa: SLF001 - the executor
    clock.now = 20.0
    with seen(products) as sent:
        assert products.get_item(Key=BOOK)["Cached"] == "stale"
        assert sent.operations == []
        later.pop()()
        assert products.get_item(Key=BOOK)["Cached"] == "fresh"
    assert sent.operations == ["GetItem"]


def test_an_old_copy_when_the_interpreter_ends(table: Table, clock: Clock) -> None:
    products = cached(table, clock, ttl=10.0, stale_while_revalidate=60.0)
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    products._runner.later(lambda: None)  # noqa: SLF001 - its threads have begun
    pool = products._runner._pool  # noqa: SLF001 - and end
    assert pool is not None
    pool[1].shutdown()
    clock.now = 20.0
    assert products.get_item(Key=BOOK)["Cached"] == "stale"


def test_in_the_background_is_in_a_thread(table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    done = threading.Event()
    products._runner.later(done.set)  # noqa: SLF001
    assert done.wait(10)


def test_a_cache_that_is_closed_by_another_thread(table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just as a copy is to be read again: that is done nevertheless."""
    products, done = cached(table, clock), threading.Event()

    def closing(*errors: type[Exception]) -> suppress:
        products.close()
        return suppress(*errors)

    monkeypatch.setattr("shardkit.cache.runner.suppress", closing)
    products._runner.later(done.set)  # noqa: SLF001
    assert done.wait(10)


class Periods:
    """One table made of several, one for each year."""

    def __init__(self, resource: Any) -> None:
        self.name = "Products"
        self.meta = SimpleNamespace(client=resource.meta.client)
        self._years = {
            year: make_table(resource, ("Shop", "S"), ("Id", "N"), name=f"Products-{year}") for year in (2025, 2026)
        }
        self.key_schema = self._years[2025].key_schema

    def get_item(self, *, Key: Any, **options: Any) -> Any:
        return self._years[Key["Id"]].get_item(Key={name: Key[name] for name in ("Shop", "Id")}, **options)

    def put_item(self, *, Item: Any) -> Any:
        return self._years[Item["Id"]].put_item(Item=Item)


def test_an_object_with_the_methods_of_a_table(resource: DynamoDBServiceResource, clock: Clock) -> None:
    periods = Periods(resource)
    products = cached(periods, clock)
    key = {"Shop": "s1", "Id": 2026}
    products.put_item(Item=key | {"Name": "old"})
    with seen(products) as sent:
        assert ["Cached" in products.get_item(Key=key) for _ in range(2)] == [False, True]
        periods.put_item(Item=key | {"Name": "new"})
        assert products.get_item(Key=key)["Item"]["Name"] == "new"
        assert "Cached" not in products.get_item(Key=key | {"Day": 1})
    # Which of several tables has the newest is not known, so a write drops the copy.
    assert sent.operations == ["GetItem", "PutItem", "GetItem", "GetItem"]
    assert [body.get("ConsistentRead") for body in sent.bodies("GetItem")] == [True, True, None]


SERIES: Any = {
    "KeySchema": [{"AttributeName": "Shop", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "Shop", "AttributeType": "S"}],
}
IN_MAY: Any = {"Shop": "s1", "Time": "2026-05-01T00:00:00Z"}
IN_JUNE: Any = {"Shop": "s1", "Time": "2026-06-01T00:00:00Z"}


def series(resource: Any, name: str, schema: Any) -> TimeSeries:
    june = datetime(2026, 6, 1, tzinfo=UTC)
    return TimeSeries(
        resource, name, at="Time", period="month", missing="create", schema=schema, clock=lambda: june
    )  # fmt: skip


def test_a_time_series_whose_keys_have_the_time(resource: DynamoDBServiceResource, clock: Clock) -> None:
    times = [{"AttributeName": "Time", "KeyType": "RANGE"}], [{"AttributeName": "Time", "AttributeType": "S"}]
    schema = {name: SERIES[name] + more for name, more in zip(SERIES, times, strict=True)}
    products = cached(series(resource, "Products", schema), clock, query_ttl=60.0)
    for key in (IN_MAY, IN_JUNE):
        products.put_item(Item=key | {"Name": "old"})
    with seen(products) as sent:
        assert products.batch_get_items([IN_MAY, IN_JUNE])["Cached"] == ["miss", "miss"]
        assert products.get_item(Key=IN_MAY)["Item"] == IN_MAY | {"Name": "old"}
        products.put_item(Item=IN_MAY | {"Name": "new"})
        assert products.get_item(Key=IN_MAY)["Item"]["Name"] == "new"
        assert products.get_item(Key=IN_JUNE)["Cached"] == "fresh"
    assert sent.operations == ["BatchGetItem", "BatchGetItem", "PutItem", "GetItem"]
    clock.now = 3.0
    page: Any = {"KeyConditionExpression": Key("Shop").eq("s1")}
    assert ["Cached" in products.query(**page) for _ in range(2)] == [False, True]
    products.delete_item(Key=IN_JUNE)
    assert [item["Time"] for item in products.query(**page)["Items"]] == [IN_MAY["Time"]]


def test_a_time_series_whose_keys_do_not_have_the_time(resource: DynamoDBServiceResource, clock: Clock) -> None:
    products = cached(series(resource, "Products", SERIES), clock)
    products.put_item(Item=IN_MAY)
    assert [products.get_item(Key={"Shop": "s1"}).get("Cached") for _ in range(2)] == [None, "fresh"]
    products.put_item(Item=IN_JUNE)
    assert products.get_item(Key={"Shop": "s1"})["Item"] == IN_JUNE
    # The time says in which table the item is.
    assert products.get_item(Key=IN_MAY) | {"ResponseMetadata": None} == {"Item": IN_MAY, "ResponseMetadata": None}
    series(resource, "Products-eu", SERIES).put_item(Item=IN_JUNE)
    assert products.get_item(Key={"Shop": "s1"})["Cached"] == "fresh"


def test_items_that_only_another_attribute_tells_apart(resource: DynamoDBServiceResource, clock: Clock) -> None:
    """The strategy calculates each item's shard from an attribute that the primary key does not have."""
    strategy = CalculatedSuffix("Customer", shards=50)
    orders = ShardedTable(make_table(resource, ("Date", "S")), strategy)
    products = cached(orders, clock)
    keys: Any = [{"Date": "2014-07-09", "Customer": name} for name in ("A", "B")]
    for key in keys:
        products.put_item(Item=key)
    for _ in range(2):
        assert [products.get_item(Key=key)["Item"] for key in keys] == keys
        assert products.batch_get_items(keys)["Items"] == keys


class BrokenStore:
    shared = True
    is_async = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked = 0

    def get(self, _: Any) -> Any:
        self.asked += 1
        raise OSError("the store is down")

    change = get

    def writes_of(self, _: bytes) -> WriteLog:
        return WriteLog(threading.Lock())

    def holds(self, _: bytes) -> bool:
        return False


def test_a_store_that_fails_fails_no_read_and_no_write(
    table: Table, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = BrokenStore(clock)
    products = CachedTable(table, store=store)
    products.put_item(Item=BOOK)
    for _ in range(5):
        assert products.get_item(Key=BOOK)["Item"] == BOOK
    assert store.asked == 1  # not again for a second
    assert "the store failed (" in caplog.text
    clock.now = 1.1
    assert products.batch_get_items([BOOK])["Items"] == [BOOK]
    assert store.asked == 2


def test_an_unreadable_copy_is_a_miss(table: Table, clock: Clock) -> None:
    """Of another version of shardkit, or of another program; damaged, though it is JSON; or of another key."""
    products = cached(table, clock)
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    copies = products.store._copies  # noqa: SLF001 - what another version would have written
    (key,) = copies._held  # noqa: SLF001
    products.get_item(Key=BOOK | {"Id": 2})
    (another,) = {*copies._held} - {key}  # noqa: SLF001
    other, copy = copies.get(another), copies.get(key)
    assert other is not None
    assert copy is not None
    damaged = copy.replace(b'"S"', b'"N"'), copy.replace(b'{"N":"1"}', b'{"B":7}')
    for content in (b'{"v":2}', b"{", b"\x80pickle", b'{"v":1}', b"[]", other, *damaged):
        copies.put(key, content)
        response = products.get_item(Key=BOOK)
        assert "Cached" not in response
        assert response["Item"] == BOOK


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_waits_for_nobody(table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    products.put_item(Item=BOOK)
    started, go_on = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        started.set()
        go_on.wait(10)

    with answering(table.meta.client, "GetItem", hang), ThreadPoolExecutor(1) as threads:
        reading = threads.submit(products.get_item, Key=BOOK)
        started.wait(10)
        products._runner.cache.writes.lock.acquire()  # type: ignore[attr-defined]  # noqa: SLF001
        child = os.fork()
        if not child:
            go_on.set()
            try:
                os._exit(0 if products.get_item(Key=BOOK)["Item"] == BOOK else 1)
            finally:
                os._exit(2)
        products._runner.cache.writes.lock.release()  # type: ignore[attr-defined]  # noqa: SLF001
        go_on.set()
        assert os.waitpid(child, 0)[1] == 0
        reading.result()


def test_a_meter_shows_what_was_saved(resource: DynamoDBServiceResource, table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    meter = CapacityMeter()
    with meter.attach(products), meter.scope("page") as used:
        products.put_item(Item=BOOK | {"Text": "x" * 5000})
        for _ in range(3):
            products.get_item(Key=BOOK)
        products.get_item(Key={"Shop": "s2", "Id": 1})
    expected = CacheUsage(fresh=2, misses=2, saved_read_units=2.0)
    assert (used.cache, meter.cache_by_table) == (expected, {"Products": expected})
    assert meter.cache_by_key == {
        ("Products", "s1"): CacheUsage(fresh=2, misses=1, saved_read_units=2.0),
        ("Products", "s2"): CacheUsage(misses=1),
    }
    assert meter.requests == 4  # one looks for a shard map
    assert "saved read units" in str(meter)
    assert meter.to_dict()["cache"]["saved_read_units"] == 2.0
    with meter.attach(make_table(resource, name="Other")) as other:
        products.get_item(Key=BOOK)
    assert meter.cache == expected
    other.detach()


def test_it_is_a_table_like(table: Table, clock: Clock) -> None:
    like: TableLike = cached(ShardedTable(table, Unsharded()), clock)
    assert (like.name, like.table_name, like.meta) == ("Products", "Products", table.meta)
    like.load()
    like.reload()
    assert like.scan()["Count"] == 0
    products: Any = like
    assert products.table_arn == table.table_arn
    assert list(products.query_items(KeyConditionExpression=Key("Shop").eq("s1"))) == []
    assert repr(products).startswith("CachedTable(ShardedTable(")
    assert repr(products).endswith("store=<MemoryStore of 1,000,000 bytes: 0 copies, 0 bytes>)")
    with pytest.raises(AttributeError):
        _ = products._nothing  # noqa: SLF001


def test_a_cache_that_is_gone_sees_no_writes(table: Table, clock: Clock) -> None:
    products = cached(table, clock)
    store = products.store
    products.put_item(Item=BOOK)
    products.get_item(Key=BOOK)
    assert len(_handlers(table.meta.client).observers) == 1
    del products
    gc.collect()
    table.put_item(Item=BOOK | {"Name": "new"})
    assert not _handlers(table.meta.client).observers
    assert b"new" not in b"".join(value for value, _ in store._copies._held.values())  # noqa: SLF001


def test_a_cache_that_is_freed_while_handlers_are_registered(
    table: Table, clock: Clock, boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may run at any moment: what it frees must not wait for a lock that its thread holds."""
    circle: list[Any] = [cached(table, clock)]
    circle.append(circle)
    client, register = boto3_session.client("dynamodb"), HierarchicalEmitter.register_last

    def collecting(*args: Any, **kwargs: Any) -> None:
        gc.collect()
        register(*args, **kwargs)

    monkeypatch.setattr(HierarchicalEmitter, "register_last", collecting)
    del circle
    installing = threading.Thread(target=install, args=(client, {"Products": Unsharded()}), daemon=True)
    installing.start()
    installing.join(10)
    assert not installing.is_alive()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": 0}, "ttl: must be a number > 0"),
        ({"jitter": 1}, "jitter: must be < 1"),
        ({"query_ttl": -1}, "query_ttl: must be a number"),
        ({"store": MemoryStore(100_000)}, "store, max_bytes: must have exactly one"),
        ({"max_bytes": 10}, "max_bytes: must be an integer >= 100,000"),
    ],
)
def test_wrong_options(table: Table, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CachedTable(table, **{"max_bytes": 1_000_000} | options)


@pytest.mark.parametrize("store", [SimpleNamespace(get=1, mget=1), {}, "redis://cache", RedisStore, MemoryStore])
def test_what_is_no_store(table: Table, store: Any) -> None:
    for made in (partial(CachedTable, table), CacheOptions):
        with pytest.raises(ConfigurationError, match=r"^store: .* or a RedisStore, got .*; give RedisStore\(client\)$"):
            made(store=store)


def test_what_is_no_table(table: Table) -> None:
    said = r"table: must be a boto3 Table or a ShardedTable, got .*; give boto3\.resource\('dynamodb'\)\.Table"
    with pytest.raises(ConfigurationError, match=said):
        CachedTable(table.meta.client, max_bytes=1_000_000)


class TestInstalled:
    """A client whose reads are answered from memory: all values are on the wire's own terms."""

    @pytest.fixture(params=["Unsharded", "CalculatedSuffix"])
    def strategy(self, request: pytest.FixtureRequest) -> Any:
        return Unsharded() if request.param == "Unsharded" else CalculatedSuffix("Id", shards=3)

    def test_single_reads_batches_and_queries(
        self, resource: DynamoDBServiceResource, table: Table, boto3_session: boto3.Session, strategy: Any
    ) -> None:
        client = boto3_session.client("dynamodb")
        make_table(resource, ("pk", "S"), name="Others")
        options = CacheOptions(max_bytes=1_000_000, query_ttl=60.0)
        book: Any = {"Shop": {"S": "s1"}, "Id": {"N": "1"}, "Cover": {"B": b"\x00\xff"}}
        key: Any = {"Shop": {"S": "s1"}, "Id": {"N": "1"}}
        pen: Any = {"Shop": {"S": "s1"}, "Id": {"N": "2"}}
        other: Any = {"pk": {"S": "o"}}
        meter = CapacityMeter()
        with install(client, {"Products": strategy}, cache={"Products": options}), meter.attach(client):
            client.put_item(TableName="Products", Item=book)
            client.put_item(TableName="Others", Item=other)
            first = client.get_item(TableName="Products", Key=key)
            with recording(client) as sent:
                second: Any = client.get_item(TableName="Products", Key=key)
                assert sent.operations == []
                assert (second["Item"], second["Cached"]) == (first["Item"], "fresh")
                assert second["Item"] == book
                batch: Any = client.batch_get_item(
                    RequestItems={"Products": {"Keys": [key, pen]}, "Others": {"Keys": [other]}},
                    ReturnConsumedCapacity="TOTAL",
                )
            assert batch["Responses"] == {"Products": [book], "Others": [other]}
            assert batch["UnprocessedKeys"] == {}
            assert {part["TableName"] for part in batch["ConsumedCapacity"]} == {"Products", "Others"}
            asked = [body["RequestItems"] for body in sent.bodies("BatchGetItem")]
            ids = [one["Id"] for body in asked for one in body.get("Products", {}).get("Keys", ())]
            assert ids == [{"N": "2"}]
            client.transact_write_items(
                TransactItems=[{"Put": {"TableName": "Products", "Item": {**key, "Name": {"S": "new"}}}}]
            )
            assert client.get_item(TableName="Products", Key=key)["Item"]["Name"] == {"S": "new"}
            page: Any = {"KeyConditionExpression": "Shop = :s", "ExpressionAttributeValues": {":s": {"S": "s1"}}}
            assert client.query(TableName="Products", **page)["Count"] == 1
        assert meter.cache.fresh == 2
        assert "Cached" not in client.get_item(TableName="Products", Key=_unsuffixed(strategy, key))

    def test_another_accounts_table_of_the_same_name(self, table: Table, boto3_session: boto3.Session) -> None:
        client = boto3_session.client("dynamodb")
        key: Any = {"Shop": {"S": "s1"}, "Id": {"N": "1"}}
        elsewhere: Any = {"TableName": "arn:aws:dynamodb:us-east-1:999999999999:table/Products", "Key": key}
        with install(
            client, {"Products": Unsharded()}, cache={"Products": CacheOptions(max_bytes=1_000_000, absent_ttl=0)}
        ):
            client.put_item(TableName="Products", Item=key)
            client.get_item(TableName="Products", Key=key)
            with answering(client, "GetItem", lambda _: {}):
                assert "Item" not in client.get_item(**elsewhere)
            assert client.get_item(TableName="Products", Key=key)["Item"] == key

    def test_errors_are_the_clients_own(self, table: Table, boto3_session: boto3.Session) -> None:
        client = boto3_session.client("dynamodb")
        options = CacheOptions(max_bytes=1_000_000)
        with (
            install(client, {"Products": Unsharded()}, cache={"Products": options}),
            pytest.raises(client.exceptions.ClientError, match=r"(?i)key"),
        ):
            client.get_item(TableName="Products", Key={"Shop": {"S": "s1"}})

    def test_wrong_options(self, table: Table) -> None:
        caches: Any
        for caches in ({"Orders": CacheOptions(max_bytes=1_000_000)}, {"Products": {"ttl": 30}}, "Products"):
            with pytest.raises(ConfigurationError, match="cache: must map names of tables="):
                install(table, {"Products": Unsharded()}, cache=caches)


def _unsuffixed(strategy: Any, key: Any) -> Any:
    return key if isinstance(strategy, Unsharded) else {**key, "Shop": {"S": "s1.1"}}
