"""The cache of a fleet, in a real Valkey or Redis server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from boto3.dynamodb.conditions import Key

from shardkit import CalculatedSuffix, ConfigurationError, ShardedTable
from shardkit.cache import CachedTable, RedisStore
from tests.support.engines import ServerName
from tests.support.fakes import Clock
from tests.support.recorder import answering, recording
from tests.support.tables import make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource

pytestmark = pytest.mark.integration
redis = pytest.importorskip("redis")
valkey = pytest.importorskip("valkey")

QUICK: Any = {"socket_timeout": 0.3, "socket_connect_timeout": 0.3, "retry": None}
BOOK: Any = {"Shop": "s1", "Id": 1}
STRATEGY = CalculatedSuffix("Id", shards=3)


@pytest.fixture
def client(request: pytest.FixtureRequest, engine_endpoint: Callable[[ServerName], str]) -> Iterator[Any]:
    url = engine_endpoint("redis")
    if getattr(request, "param", "redis") == "redis":
        made = redis.Redis.from_url(url, **QUICK)
    else:
        made = valkey.Valkey.from_url(url.replace("redis:", "valkey:"), **QUICK)
    made.flushdb()
    yield made
    made.close()


class Fleet:
    """Two processes, as far as the cache can tell: each has its own client of the table."""

    def __init__(self, resource: Any, session: Any, client: Any, **options: Any) -> None:
        make_table(resource, ("Shop", "S"), ("Id", "N"), name="Products")
        self.resources = [resource, session.resource("dynamodb")]
        self.clock = Clock()
        self.one, self.other = (
            CachedTable(
                ShardedTable(one.Table("Products"), STRATEGY),
                store=RedisStore(client, admit_after=1, clock=self.clock),
                **options,
            )
            for one in self.resources
        )


@pytest.fixture
def fleet(resource: DynamoDBServiceResource, boto3_session: boto3.Session, client: Any) -> Fleet:
    return Fleet(resource, boto3_session, client, query_ttl=60.0)


def test_what_one_process_read_the_other_does_not(fleet: Fleet, client: Any) -> None:
    fleet.resources[0].Table("Products")  # not through a cached client
    ShardedTable(fleet.resources[0].Table("Products"), STRATEGY).put_item(Item=BOOK | {"Cover": b"\xff"})
    client.flushdb()
    fleet.one.get_item(Key=BOOK)
    with recording(fleet.other.meta.client) as sent:
        fleet.other.get_item(Key={"Shop": "s1", "Id": 2})
        sent.clear()
        assert fleet.other.get_item(Key=BOOK)["Cached"] == "fresh"
        assert fleet.other.batch_get_items([BOOK, {"Shop": "s1", "Id": 2}])["Cached"] == ["fresh"]
    assert sent.operations == []
    (key, *_) = sorted(client.keys("*"))
    assert key == b"shardkit:us-east-1:Products:S2:s1N1:1"
    content = json.loads(client.get(key))
    item = {"Shop": {"S": "s1"}, "Id": {"N": "1"}, "Cover": {"B": "/w=="}}
    assert content == {"v": 2, "t": content["t"], "u": 0.5, "i": item, "c": content["c"]}
    assert 50_000 < client.pttl(key) <= 60_000


@pytest.mark.parametrize("client", ["redis", "valkey"], indirect=True)
def test_a_write_of_one_process_is_seen_by_both(fleet: Fleet, client: Any) -> None:
    page: Any = {"KeyConditionExpression": Key("Shop").eq("s1")}
    fleet.one.put_item(Item=BOOK | {"Name": "old"})
    fleet.clock.now = 3.0
    for process in (fleet.one, fleet.other, fleet.one):
        process.get_item(Key=BOOK)
        process.query(**page)
    fleet.one.put_item(Item=BOOK | {"Name": "new"})
    marks = [key for key in client.keys("*") if (client.get(key) or b"").startswith(b"!")]
    assert len(marks) == 3  # of the item, of its key's pages, and of those of indexes
    assert all(0 < client.pttl(key) <= 2000 for key in marks)
    with recording(fleet.other.meta.client) as sent:
        for process in (fleet.other, fleet.one, fleet.other):
            assert process.get_item(Key=BOOK)["Item"]["Name"] == "new"
            assert process.query(**page)["Items"][0]["Name"] == "new"
    # The first read after the write is strongly consistent, and takes the place of its mark.
    assert [body["ConsistentRead"] for body in sent.bodies("GetItem")] == [True]
    assert fleet.one.get_item(Key=BOOK)["Cached"] == "fresh"


def test_a_mark_that_did_not_reach_the_server_is_left_later(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        fleet.other.get_item(Key=BOOK)
    store = fleet.one.store
    assert isinstance(store, RedisStore)
    with monkeypatch.context() as broken:
        broken.setattr(store, "change", lambda _: 1 / 0)
        fleet.one.put_item(Item=BOOK)
    assert store.unmarked == 1
    assert "Item" not in fleet.other.get_item(Key=BOOK)
    fleet.clock.now = 1.1
    fleet.one.put_item(Item=BOOK | {"Id": 2})
    pool = fleet.one._runner._pool  # noqa: SLF001 - it is left in the background
    assert pool is not None
    pool[1].shutdown()
    assert fleet.other.get_item(Key=BOOK)["Item"] == BOOK
    assert store.unmarked == 1


@pytest.mark.parametrize("mark", ["there", "replaced"])
def test_a_read_that_began_before_a_write_leaves_no_copy(fleet: Fleet, client: Any, mark: str) -> None:
    fleet.one.put_item(Item=BOOK | {"Name": "old"})
    client.flushdb()
    fleet.other.get_item(Key=BOOK | {"Id": 2})  # with its first call, a table looks for a shard map
    fleet.clock.now = 10.0
    began, go_on = threading.Event(), threading.Event()
    old = {"Item": {"Shop": {"S": "s1"}, "Id": {"N": "1"}, "Name": {"S": "old"}}}

    def slow(_: Any) -> Any:
        began.set()
        go_on.wait(10)
        return old

    with answering(fleet.other.meta.client, "GetItem", slow):
        reader = threading.Thread(target=fleet.other.get_item, kwargs={"Key": BOOK})
        reader.start()
        began.wait(10)
        fleet.one.put_item(Item=BOOK | {"Name": "new"})
        if mark == "replaced":
            fleet.one.get_item(Key=BOOK)
        go_on.set()
        reader.join()
    assert fleet.one.get_item(Key=BOOK)["Item"]["Name"] == "new"
    assert fleet.other.get_item(Key=BOOK)["Item"]["Name"] == "new"


def test_only_what_was_asked_for_often_is_stored(
    resource: DynamoDBServiceResource, boto3_session: boto3.Session, client: Any
) -> None:
    fleet = Fleet(resource, boto3_session, client)
    products = CachedTable(fleet.one.table, store=RedisStore(client, prefix="blue:", admit_after=3))
    counts = []
    for _ in range(3):
        products.get_item(Key=BOOK)
        counts.append(len(client.keys("blue:shardkit:*")))
    assert counts == [0, 0, 1]


def test_each_command_has_one_key(fleet: Fleet, client: Any) -> None:
    """As a cluster needs it."""
    with client.monitor() as monitor:
        fleet.one.batch_get_items([{"Shop": "s1", "Id": number} for number in range(5)])
        fleet.one.delete_item(Key=BOOK)
        fleet.other.get_item(Key=BOOK)
        client.ping()
        commands = []
        while (command := monitor.next_command()["command"]) != "PING":
            commands.append(command)
    keys = [command.count("shardkit:us-east-1:Products:") for command in commands]
    assert sum(keys) > 12
    assert max(keys) == 1


def test_clear_leaves_other_keys(fleet: Fleet, client: Any) -> None:
    client.set("shardkit:us-east-1:Products2:S1:a", "1")
    client.set("other", "1")
    fleet.one.get_item(Key=BOOK)
    assert len(client.keys("*")) == 3
    fleet.other.clear()
    assert sorted(client.keys("*")) == [b"other", b"shardkit:us-east-1:Products2:S1:a"]


def test_a_server_that_is_slow_or_gone_fails_no_read(fleet: Fleet) -> None:
    fleet.one.put_item(Item=BOOK)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        port = silent.getsockname()[1]
        slow = redis.Redis(port=port, **{**QUICK, "socket_timeout": 0.05})
        products = CachedTable(fleet.one.table, store=RedisStore(slow))
        assert [products.get_item(Key=BOOK)["Item"] for _ in range(20)] == [BOOK] * 20
        slow.close()
    gone = redis.Redis(port=port, **QUICK)
    products = CachedTable(fleet.one.table, store=RedisStore(gone))
    products.put_item(Item=BOOK | {"Name": "new"})
    assert products.get_item(Key=BOOK)["Item"]["Name"] == "new"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"client: must give up a command within 1 s, got socket_timeout=5, socket_connect_timeout=5 and \d+ ret"),
        ({"socket_timeout": None, "retry": None}, "got socket_timeout=None, "),
        ({"socket_timeout": 0.05, "socket_connect_timeout": 0.05}, r"[1-9]\d* retries"),
        ({"socket_timeout": 0.05, "retry": None}, "socket_connect_timeout=5 and 0 retries"),
        ({**QUICK, "decode_responses": True}, "client: must return bytes"),
    ],
)
def test_clients_that_would_hold_reads_up(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RedisStore(redis.Redis(**options))


def test_an_asyncio_client_is_for_async_tables(resource: DynamoDBServiceResource) -> None:
    table = make_table(resource)
    with pytest.raises(ConfigurationError, match="store: must have a sync client for this table"):
        CachedTable(table, store=RedisStore(redis.asyncio.Redis()))
