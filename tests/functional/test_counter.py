"""ShardedCounter over moto, and over a network that loses answers: no add is made twice, whoever retries."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, SSLError

from shardkit import (
    CalculatedSuffix,
    CapacityMeter,
    ConfigurationError,
    CounterValue,
    RandomSuffix,
    ShardedCounter,
    ShardedTable,
    ShardUnknownError,
    UnknownOutcomeError,
    UnsupportedExpressionError,
    install,
)
from shardkit.sharding.counter import RESET
from tests.functional.test_direct_faults import FAULTS, Service, at_once
from tests.support.certificates import certified
from tests.support.fakes import Clock
from tests.support.raw_server import RawServer
from tests.support.tables import GlobalIndex, make_table

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource
    from types_boto3_dynamodb.service_resource import Table

HOME = {"Page": "home"}


@pytest.fixture
def pages(resource: DynamoDBServiceResource) -> Table:
    return make_table(resource, ("Page", "S"), name="Pages")


def test_adds_are_spread_and_added_up(pages: Table) -> None:
    views = ShardedCounter(pages, HOME, "Hits", shards=4, rng=random.Random(1))
    assert views.value() == CounterValue(Decimal(0), views.value().read_units, {})
    for _ in range(10):
        views.add()
    views.add(5)
    views.add(-2)
    views.add(Decimal("0.5"), token="t-1")
    views.add(Decimal("0.5"), token="t-1")
    seen = views.value(ConsistentRead=True)
    # moto knows no tokens, so it made the second add; the service makes one (tests/integration).
    assert seen.total in {Decimal("13.5"), Decimal(14)}
    assert seen.shards == {int(str(item["Page"]).removeprefix("home.")): item["Hits"] for item in pages.scan()["Items"]}
    assert set(seen.shards) == {1, 2, 3, 4}
    assert views.reset() == seen.total
    assert views.value().total == 0
    views.add(3)
    assert views.reset() == 3
    assert repr(views) == "ShardedCounter('Pages', {'Page': 'home'}, 'Hits', RandomSuffix(shards=4))"


def test_a_counter_of_a_sharded_table_has_its_shards(resource: DynamoDBServiceResource) -> None:
    """With a sort key, beside other items of the key; other items keep their place."""
    table = ShardedTable(
        make_table(resource, ("Day", "S"), ("Kind", "S")), RandomSuffix({"2014-07-09": 3}), rng=random.Random(1)
    )
    table.put_item(Item={"Day": "2014-07-09", "Kind": "note", "Text": "x"})
    hot = ShardedCounter(table, {"Day": "2014-07-09", "Kind": "views"}, "Count")
    cold = ShardedCounter(table, {"Day": "2014-07-10", "Kind": "views"}, "Count")
    for _ in range(8):
        hot.add()
        cold.add()
    assert hot.value().total == 8
    assert set(hot.value().shards) == {1, 2, 3}
    assert cold.value().shards == {1: 8}
    parts: list[Any] = table.query(KeyConditionExpression=Key("Day").eq("2014-07-09") & Key("Kind").eq("views"))[
        "Items"
    ]
    assert sum(part["Count"] for part in parts) == 8
    assert hot.reset() == 8
    assert cold.value().total == 8


def test_an_installed_client_adds_no_second_suffix(pages: Table, resource: DynamoDBServiceResource) -> None:
    """Nor does it refuse an add because a random shard is unknown."""
    with install(resource, {"Pages": RandomSuffix(4)}):
        views = ShardedCounter(pages, HOME, "Hits", shards=4)
        for number in range(4):
            views.add(token=f"{number}") if number % 2 else views.add()
        assert views.value().total == 4
        assert [item["Page"] for item in pages.scan()["Items"]] == ["home"] * len(views.value().shards)
        assert views.reset() == 4
    assert {str(item["Page"]) for item in pages.scan()["Items"]} <= {f"home.{shard}" for shard in (1, 2, 3, 4)}


def test_each_reset_has_a_name_of_its_own(pages: Table) -> None:
    """Also with one seed: a reset takes a lost answer for its own if it finds its name."""
    names = set()
    for page in ("home", "about"):
        views = ShardedCounter(pages, {"Page": page}, "Hits", shards=1, rng=random.Random(1))
        views.add()
        assert views.reset() == 1
        names.add(pages.get_item(Key={"Page": f"{page}.1"})["Item"][RESET])
    assert len(names) == 2


def test_a_counter_is_in_the_sharded_indexes_of_its_table(resource: DynamoDBServiceResource) -> None:
    index = GlobalIndex("by-kind", [("Kind", "S"), ("shard", "N")], projection="ALL")
    table = ShardedTable(
        make_table(resource, ("Day", "S"), ("Kind", "S"), global_indexes=[index]),
        RandomSuffix(3),
        indexes={"by-kind": RandomSuffix(5, attribute="shard")},
    )
    views = ShardedCounter(table, {"Day": "2014-07-09", "Kind": "views"}, "Count")
    for token in ("a", "b", None, None, None):
        views.add(token=token)
    found: list[Any] = table.query(IndexName="by-kind", KeyConditionExpression=Key("Kind").eq("views"))["Items"]
    assert sum(item["Count"] for item in found) == 5
    assert all(set(item) == {"Day", "Kind", "Count"} for item in found)
    assert views.reset() == 5


def test_more_shards_keep_the_count(pages: Table) -> None:
    few, many = (ShardedCounter(pages, HOME, "Hits", shards=shards) for shards in (2, 5))
    for _ in range(4):
        few.add()
        many.add()
    assert many.value().total == 8


def test_a_meter_counts_its_calls(pages: Table) -> None:
    views = ShardedCounter(pages, HOME, "Hits", shards=4)
    views.value()  # describes the table
    meter = CapacityMeter()
    with meter.attach(pages), meter.scope("views") as used:
        views.add()
        seen = views.value()
    assert set(used.by_operation) == {"UpdateItem", "BatchGetItem"}
    assert seen.read_units == used.read_units


def test_what_is_refused(pages: Table) -> None:
    views: Any = ShardedCounter(pages, HOME, "Hits", shards=4)
    with pytest.raises(
        UnsupportedExpressionError, match="ConditionExpression: not supported by a counter: it would see"
    ):
        views.add(-1, ConditionExpression="Hits >= :one")
    with pytest.raises(ConfigurationError, match="shards: missing; it is needed with a boto3 Table"):
        ShardedCounter(pages, HOME, "Hits")
    with pytest.raises(ConfigurationError, match="table: must be sharded by RandomSuffix, got CalculatedSuffix"):
        ShardedCounter(ShardedTable(pages, CalculatedSuffix("User", shards=4)), HOME, "Hits")
    with pytest.raises(ConfigurationError, match=r"^shards: must not be given with a ShardedTable"):
        ShardedCounter(ShardedTable(pages, RandomSuffix(4)), HOME, "Hits", shards=4)
    with pytest.raises(ConfigurationError, match=r"^key_schema, rng: must not be given with a ShardedTable"):
        ShardedCounter(ShardedTable(pages, RandomSuffix(4)), HOME, "Hits", key_schema={}, rng=random.Random(1))
    assert pages.scan()["Count"] == 0


# -- update_item(ADD) without a counter: what docs/reference/counters.md says ------------------------------------------

ADD: dict[str, Any] = {"UpdateExpression": "ADD Hits :n", "ExpressionAttributeValues": {":n": 1}}


def test_add_under_random_suffix(pages: Table) -> None:
    """It needs a shard; with one it adds to that part; with locate it finds the one item, and creates none."""
    table = ShardedTable(pages, RandomSuffix(4))
    with pytest.raises(ShardUnknownError, match="Shard: missing; UpdateItem requires it"):
        table.update_item(Key=HOME, **ADD)
    for shard in (2, 2, 3):
        table.update_item(Key=HOME, Shard=shard, **ADD)
    assert ShardedCounter(table, HOME, "Hits").value().shards == {2: 2, 3: 1}

    located = ShardedTable(pages, RandomSuffix(4, locate=True))
    with pytest.raises(ShardUnknownError, match="no shard holds"):
        located.update_item(Key={"Page": "about"}, **ADD)
    located.put_item(Item={"Page": "about", "Hits": 0})
    for _ in range(3):
        located.update_item(Key={"Page": "about"}, **ADD)
    assert list(ShardedCounter(located, {"Page": "about"}, "Hits").value().shards.values()) == [3]


# -- lost answers ------------------------------------------------------------------------------------------------------

SCHEMA = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Date", "Id")],
}
KEY = {"Date": "2014-07-09", "Id": "views"}
Way = Literal["standard", "legacy", "careless", "direct"]
# Without those that damage the connection for the next request: whether that one is lost is a race.
HAPPEN = [fault for fault in FAULTS if fault not in {"close behind", "more behind"}]
LOST = [fault for fault in FAULTS if fault.endswith(" after") or fault in {"drop", "reset", "500"}]


class Adds(Service):
    """Counts the adds of each Id, but for transactions: those with one token count once."""

    def _done(self, operation: str, body: Any) -> Any:
        written = body["TransactItems"][0]["Update"] if "TransactItems" in body else body
        assert written["UpdateExpression"] == "ADD #a :n"
        self.carried_out[written["Key"]["Id"]["S"]].add(body.get("ClientRequestToken") or object())
        return {}


@contextmanager
def counting(session: boto3.Session, way: Way) -> Iterator[tuple[Adds, ShardedCounter]]:
    service = Adds()
    mode: Any = "legacy" if way == "legacy" else "standard"
    config = Config(retries={"total_max_attempts": 4, "mode": mode}, read_timeout=0.2)
    with RawServer(repeat(service.respond)) as server:
        resource = session.resource("dynamodb", endpoint_url=server.url, config=config)
        table = ShardedTable(
            resource.Table("T"), RandomSuffix(3), key_schema=SCHEMA, transport="direct" if way == "direct" else "client"
        )
        if way == "careless":  # no policy of retries is less careful
            events: Any = resource.meta.client.meta.events
            events.register_last("needs-retry.dynamodb", at_once)
        clock = Clock()
        table.runner.clock, table.runner.sleep = clock, clock.sleep
        try:
            yield service, ShardedCounter(table, KEY, "Hits")
        finally:
            resource.meta.client.close()


@pytest.mark.parametrize("way", ["legacy", "careless", "direct"])
def test_an_add_is_made_at_most_once(way: Way, boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the network does, and whatever the client's retries would do."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with counting(boto3_session, way) as (service, views):
        made = service.carried_out["views"]
        for fault in HAPPEN:
            made.clear()
            service.faults = [fault]
            service.heads.clear()
            if fault == "long after" and way != "direct":
                # An answer that is whole, though it was announced to be longer, is enough for newer urllib3.
                with suppress(UnknownOutcomeError):
                    views.add()
                assert (len(made), len(service.heads)) == (1, 1)
            elif fault in LOST:
                with pytest.raises(UnknownOutcomeError, match="adding 1 was lost") as raised:
                    views.add()
                assert raised.value.shard in {1, 2, 3}
                assert (len(made), len(service.heads)) == (int(fault.endswith(" after")), 1), fault
            else:
                views.add()
                assert (len(made), len(service.heads)) == (1, 1 + (fault == "throttle")), fault


def test_an_answer_that_breaks_the_encryption_is_lost(boto3_session: boto3.Session, tmp_path: Path) -> None:
    """Its error has the class of a certificate that is not trusted, after which nothing was sent."""
    settings = certified(tmp_path, "localhost")
    with RawServer(repeat(["plain", "nothing"]), settings) as server:

        def views(authority: str, attempts: int) -> ShardedCounter:
            config = Config(retries={"total_max_attempts": attempts})
            resource = boto3_session.resource("dynamodb", endpoint_url=server.url, verify=authority, config=config)
            return ShardedCounter(resource.Table("T"), KEY, "Hits", shards=3, key_schema=SCHEMA)

        with pytest.raises(UnknownOutcomeError, match="SSLError"):
            views(str(tmp_path / "ca.pem"), 4).add()
        assert len(server.requests) == 1
        (tmp_path / "other").mkdir()
        certified(tmp_path / "other", "localhost")
        with pytest.raises(SSLError, match="certificate verify failed"):
            views(str(tmp_path / "other" / "ca.pem"), 1).add()
        assert len(server.requests) == 1


def test_an_add_that_was_not_sent_has_a_known_outcome(boto3_session: boto3.Session) -> None:
    config = Config(retries={"total_max_attempts": 1})
    table = boto3_session.resource("dynamodb", endpoint_url="http://127.0.0.1:1", config=config).Table("T")
    with pytest.raises(EndpointConnectionError):
        ShardedCounter(table, KEY, "Hits", shards=3, key_schema=SCHEMA).add()
    table.meta.client.close()


def test_without_a_counter_botocore_makes_it_twice(
    boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/counters.md warns of."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with counting(boto3_session, "standard") as (service, views):
        service.faults = ["reset after"]
        client: Any = views._runner.client  # noqa: SLF001 - boto3's own
        client.update_item(
            TableName="T",
            Key=KEY,
            UpdateExpression="ADD #a :n",
            ExpressionAttributeNames={"#a": "Hits"},
            ExpressionAttributeValues={":n": 1},
        )
        assert len(service.carried_out["views"]) == 2


@pytest.mark.parametrize("way", ["standard", "direct"])
def test_an_add_with_a_token_survives_lost_answers(
    way: Way, boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    with counting(boto3_session, way) as (service, views):
        made = service.carried_out["views"]
        for fault in HAPPEN:
            if (way, fault) == ("standard", "no number after"):
                continue  # botocore raises ValueError for it, and repeats nothing
            made.clear()
            service.faults = [fault] * 2
            views.add(token=fault)
            assert made == {fault}


def test_what_is_sent(boto3_session: boto3.Session) -> None:
    bodies: list[tuple[str, Any]] = []

    class Kept(Adds):
        def _done(self, operation: str, body: Any) -> Any:
            bodies.append((operation, body))
            return {}

    service = Kept()
    with RawServer(repeat(service.respond)) as server:
        table = boto3_session.resource("dynamodb", endpoint_url=server.url).Table("T")
        views = ShardedCounter(table, KEY, "Hits", shards=3, key_schema=SCHEMA, rng=random.Random(1))
        views.add(2)
        views.add(2, token="t")
        views.add(2, token="t")
        table.meta.client.close()
    update = {
        "TableName": "T",
        "Key": {"Date": {"S": "2014-07-09.1"}, "Id": {"S": "views"}},
        "UpdateExpression": "ADD #a :n",
        "ExpressionAttributeNames": {"#a": "Hits"},
        "ExpressionAttributeValues": {":n": {"N": "2"}},
    }
    assert bodies[0] == ("UpdateItem", update)
    assert bodies[1] == bodies[2]
    assert bodies[1][1]["ClientRequestToken"] == "t"
    (part,) = bodies[1][1]["TransactItems"]
    assert json.dumps({**part["Update"], "Key": 0}) == json.dumps({**update, "Key": 0})
