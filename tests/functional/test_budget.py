"""Budgets on real clients, over HTTP: time passes when somebody sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError

from shardkit import (
    BulkLoadError,
    CalculatedSuffix,
    CapacityBudget,
    CapacityBudgetError,
    CapacityMeter,
    ConfigurationError,
    ShardedTable,
    bulk_load,
)
from tests.fakes import Clock
from tests.tables import make_table
from tests.wire import Service, a_client, error, serving

ITEM: dict[str, Any] = {"pk": {"S": "a"}, "sk": {"S": "1"}}
KEY_SCHEMA = {"T": "pk", "U": "pk"}


def reported(units: float, table: str = "T", **more: Any) -> tuple[int, Any]:
    return 200, {"ConsumedCapacity": {"TableName": table, "CapacityUnits": units}, **more}


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(lambda operation, body: reported(1.0, body.get("TableName", "T"))) as made:
        yield made


@pytest.fixture
def client(service: Service) -> Iterator[Any]:
    client = a_client(service)
    yield client
    client.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(clock: Clock) -> Callable[..., CapacityBudget]:
    def make(**options: Any) -> CapacityBudget:
        return CapacityBudget(**{"burst": 0, "clock": clock, "sleep": clock.sleep, **options})

    return make


def put(client: Any, key: str = "a", size: int = 0, table: str = "T", **more: Any) -> Any:
    item = {"pk": {"S": key}, "sk": {"S": "1"}, "body": {"S": "x" * size}}
    return client.put_item(TableName=table, Item=item, **more)


def test_calls_wait_for_their_turn(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    with budget(write_units=2).attach(client):
        seen = [put(client) for _ in range(5)]
    assert clock.sleeps == [0.5] * 4
    assert all("ConsumedCapacity" not in response for response in seen)
    assert all(body["ReturnConsumedCapacity"] == "INDEXES" for _, body in service.requests)
    put(client)
    assert len(clock.sleeps) == 4


def test_who_asks_sees_what_was_consumed(client: Any, budget: Any) -> None:
    with budget(write_units=2).attach(client):
        assert put(client, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]["CapacityUnits"] == 1.0


def test_what_the_service_reports_is_charged(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: reported(8.0, Items=[], Count=0)
    with budget(read_units=2).attach(client):
        for _ in range(2):
            client.scan(TableName="T")
    assert clock.sleeps == [4.0]


def test_reads_and_writes_are_apart(client: Any, budget: Any, clock: Clock) -> None:
    with budget(write_units=1, read_units=1).attach(client):
        put(client)
        client.get_item(TableName="T", Key=ITEM)
        assert clock.sleeps == []
        put(client)
        client.get_item(TableName="T", Key=ITEM)
    assert clock.sleeps == [1.0]
    with budget(write_units=1).attach(client):
        for _ in range(5):
            client.get_item(TableName="T", Key=ITEM)
        client.list_tables()
    assert clock.sleeps == [1.0]


def test_a_write_that_is_reported_as_a_read(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    """DynamoDB does so for a transaction that is repeated with its token."""
    part = {"TableName": "T", "CapacityUnits": 6.0, "ReadCapacityUnits": 6.0, "WriteCapacityUnits": 0.0}
    service.answer = lambda operation, body: (
        (200, {"ConsumedCapacity": [part]}) if "TransactItems" in body else reported(1.0)
    )
    with budget(write_units=4, read_units=2).attach(client):
        client.transact_write_items(TransactItems=[{"Put": {"TableName": "T", "Item": ITEM}}])
        put(client)
        assert clock.sleeps == []
        client.get_item(TableName="T", Key=ITEM)
    assert clock.sleeps == [3.0]


def test_unused_units_are_kept_for_the_burst(client: Any, budget: Any, clock: Clock) -> None:
    with budget(write_units=2, burst=2).attach(client):
        clock.now += 100
        for _ in range(6):
            put(client)
    assert clock.sleeps == [0.5]


def test_a_budget_that_raises_sends_nothing(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    with budget(write_units=2, mode="raise").attach(client):
        put(client, size=4000)
        with pytest.raises(CapacityBudgetError, match="PutItem was not sent") as raised:
            put(client)
        assert raised.value.seconds == 0.5
        clock.now += raised.value.seconds
        put(client)
    assert clock.sleeps == []
    assert len(service.requests) == 2


def test_the_size_of_what_is_written_is_charged_before(client: Any, budget: Any, clock: Clock) -> None:
    """While a large write is under way, the next one waits for what it will take."""

    def in_the_middle(**_: Any) -> None:
        client.meta.events.unregister("before-send.dynamodb", in_the_middle)
        put(client)

    with budget(write_units=2).attach(client):
        client.meta.events.register("before-send.dynamodb", in_the_middle)
        put(client, size=4000)
    assert clock.sleeps == [2.0]


def test_no_call_waits_longer_than_timeout(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: reported(100.0)
    with budget(write_units=1, timeout=5).attach(client):
        put(client)
        with pytest.raises(CapacityBudgetError, match=r"100\.0 units") as raised:
            put(client)
    assert (raised.value.rate, raised.value.debt, raised.value.seconds) == (1.0, 100.0, 100.0)
    assert clock.sleeps == []


@pytest.mark.parametrize("answer", [error("ValidationException"), error("InternalServerError"), None])
def test_a_call_that_fails_is_given_back_its_units(
    client: Any, budget: Any, clock: Clock, service: Service, answer: Any
) -> None:
    service.answer = lambda operation, body: answer
    with budget(write_units=1).attach(client):
        for _ in range(3):
            with pytest.raises(Exception, match=r"as scheduled|Connection was closed"):
                put(client, size=5000)
    assert clock.sleeps == []


def test_a_failed_condition_costs(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: error("ConditionalCheckFailedException")
    with budget(write_units=1).attach(client):
        for _ in range(2):
            with pytest.raises(ClientError):
                put(client, ConditionExpression="attribute_not_exists(pk)")
    assert clock.sleeps == [1.0]


def test_retries_inside_a_call_are_not_held(budget: Any, clock: Clock, service: Service) -> None:
    client = a_client(service, attempts=3)
    answers = iter([error("InternalServerError"), error("InternalServerError"), reported(1.0)])
    service.answer = lambda operation, body: next(answers)
    with budget(write_units=1).attach(client), pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        put(client)
    assert clock.sleeps == []
    assert len(service.requests) == 3
    client.close()


def test_one_table(client: Any, service: Service, budget: Any, clock: Clock) -> None:
    table = boto3.resource("dynamodb", endpoint_url=service.url).Table("T")
    with budget(write_units=1).attach(table):
        put(table.meta.client, table="U")
        put(table.meta.client, table="U")
        assert clock.sleeps == []
        table.put_item(Item={"pk": "a"})
        put(table.meta.client)
    assert clock.sleeps == [1.0]
    table.meta.client.close()


@pytest.mark.parametrize(
    ("key", "wire", "other"),
    [
        ("a", {"S": "a"}, {"S": "b"}),
        (7, {"N": "7.0"}, {"N": "8"}),
        (Decimal(7), {"N": "7"}, {"S": "7"}),
        (Binary(b"a"), {"B": b"a"}, {"S": "a"}),
        (bytearray(b"a"), {"B": b"a"}, {"B": b"b"}),
    ],
)
def test_one_key(client: Any, budget: Any, clock: Clock, key: Any, wire: Any, other: Any) -> None:
    with budget(write_units=1).attach(client, key=key, key_schema=KEY_SCHEMA):
        for _ in range(3):
            client.put_item(TableName="T", Item={"pk": other})
        assert clock.sleeps == []
        client.put_item(TableName="T", Item={"pk": wire})
        client.delete_item(TableName="T", Key={"pk": wire})
    assert clock.sleeps == [1.0]


def test_of_a_batch_a_key_is_charged_its_part(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    service.answer = lambda operation, body: (
        200, {"ConsumedCapacity": [{"TableName": "T", "CapacityUnits": 8.0}], "UnprocessedItems": {}}
    )  # fmt: skip
    requests = [{"PutRequest": {"Item": {"pk": {"S": key}, "n": {"N": "1"}}}} for key in ("a", "b", "c", "c")]
    with budget(write_units=1).attach(client, key="a", key_schema=KEY_SCHEMA) as one:
        client.batch_write_item(RequestItems={"T": requests})
        client.batch_write_item(RequestItems={"T": requests[1:]})
        client.batch_write_item(RequestItems={"T": requests})
        one.detach()
    assert clock.sleeps == [2.0]


def test_a_batch_on_several_tables(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    """A budget of the client takes all of it, one of a table only what the table took; no key is known."""
    parts = [{"TableName": "T", "CapacityUnits": 8.0}, {"TableName": "U", "CapacityUnits": 3.0}]
    service.answer = lambda operation, body: (200, {"ConsumedCapacity": parts, "UnprocessedItems": {}})
    requests = {table: [{"PutRequest": {"Item": {"pk": {"S": key}}}} for key in ("a", "b")] for table in ("T", "U")}
    table = SimpleNamespace(meta=SimpleNamespace(client=client), name="U")
    for target, seconds in ((client, 11.0), (table, 3.0)):
        clock.sleeps.clear()
        with budget(write_units=1).attach(target):
            for _ in range(2):
                client.batch_write_item(RequestItems=requests)
        assert clock.sleeps == [seconds]


def test_several_attachments_charge_a_call_once(client: Any, budget: Any, clock: Clock) -> None:
    shared = budget(write_units=1)
    with (
        shared.attach(client),
        shared.attach(client),
        shared.attach(client, key="a", key_schema=KEY_SCHEMA) as last,
    ):
        put(client)
        put(client)
        assert clock.sleeps == [1.0]
        last.detach()
    with shared.attach(client, key="a", key_schema=KEY_SCHEMA), shared.attach(client, key="b", key_schema=KEY_SCHEMA):
        put(client, "a")
        put(client, "b")
        put(client, "c")
    assert clock.sleeps == [1.0] * 3


def test_budgets_on_one_client_all_hold(client: Any, budget: Any, clock: Clock, service: Service) -> None:
    with budget(write_units=2).attach(client), budget(write_units=1, timeout=1).attach(client):
        for _ in range(3):
            put(client)
    assert sum(clock.sleeps) == 2.0
    wide = budget(write_units=1)
    with wide.attach(client):
        with budget(write_units=0.001, mode="raise").attach(client):
            put(client)
            clock.now += 1.0
            with pytest.raises(CapacityBudgetError, match=r"of 0\.001 write"):
                put(client, size=5000)
        # What the inner one refused, the outer one is given back.
        clock.sleeps.clear()
        put(client)
    assert clock.sleeps == []


def test_beside_a_meter(client: Any, budget: Any, clock: Clock) -> None:
    for first in (CapacityMeter(), budget(write_units=1)):
        meter = CapacityMeter()
        with first.attach(client), meter.attach(client), budget(write_units=1).attach(client):
            assert "ConsumedCapacity" not in put(client)
        assert meter.write_units == 1.0


def test_what_is_refused_is_no_request_of_the_meter(client: Any, budget: Any) -> None:
    meter = CapacityMeter()
    with meter.attach(client), budget(write_units=1, mode="raise").attach(client):
        put(client)
        with pytest.raises(CapacityBudgetError):
            put(client)
    assert meter.requests == 1


def test_a_call_that_waits_when_the_budget_is_detached_goes_in_its_turn(
    client: Any, clock: Clock, service: Service
) -> None:
    def sleep(seconds: float) -> None:
        attached.detach()
        clock.sleep(seconds)

    budget = CapacityBudget(write_units=1, burst=0, clock=clock, sleep=sleep)
    attached = budget.attach(client)
    put(client)
    assert "ConsumedCapacity" not in put(client)
    assert clock.sleeps == [1.0]
    with budget.attach(client):
        # It was charged, too.
        clock.now += 0.5
        put(client)
    assert clock.sleeps == [1.0, 0.5]


def test_an_interrupted_wait_makes_room(client: Any, clock: Clock, service: Service) -> None:
    interruptions: list[BaseException] = [KeyboardInterrupt()]

    def sleep(seconds: float) -> None:
        if interruptions:
            raise interruptions.pop()
        clock.sleep(seconds)

    budget = CapacityBudget(write_units=1, burst=0, clock=clock, sleep=sleep)
    with budget.attach(client):
        put(client)
        with pytest.raises(KeyboardInterrupt):
            put(client, size=5000)
        put(client)
    assert clock.sleeps == [1.0]
    assert len(service.requests) == 2


def test_a_call_that_another_handler_answers_is_not_held(client: Any, budget: Any, clock: Clock) -> None:
    from botocore.stub import Stubber

    with budget(write_units=1).attach(client), Stubber(client) as stub:
        for _ in range(3):
            stub.add_response("put_item", {"ConsumedCapacity": {"TableName": "T", "CapacityUnits": 50.0}})
            put(client)
        stub.deactivate()
        put(client)
    assert clock.sleeps == []


def test_a_call_that_botocore_refuses_is_not_charged(client: Any, budget: Any, clock: Clock) -> None:
    with budget(write_units=1).attach(client):
        with pytest.raises(Exception, match="Parameter validation"):
            client.put_item(TableName="T", Item={"pk": {"S": 5}})
        put(client)
    assert clock.sleeps == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_the_budget_does_not_reach_the_call(
    client: Any, budget: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    from shardkit.capacity.charge import charge_of

    def fault(call: Any, consumed: Any, parsed: Any, **options: Any) -> Any:
        if bool(parsed) == (when == "after"):
            raise RuntimeError("a fault of ours")
        return charge_of(call, consumed, parsed, **options)

    monkeypatch.setattr("shardkit.capacity.holding.charge_of", fault)
    with budget(write_units=1).attach(client):
        assert "ResponseMetadata" in put(client)
    assert "a fault of ours" in caplog.text
    assert "PutItem" in caplog.text


def test_many_threads_hold_the_rate(client: Any, service: Service) -> None:
    """Real threads, and a clock that a sleeper moves: none goes before its time, and all go."""
    lock, now, went = threading.Lock(), [0.0], []

    def sleep(seconds: float) -> None:
        until = now[0] + seconds
        with lock:
            now[0] = max(now[0], until)

    def sent(**_: Any) -> None:
        went.append(now[0])

    client.meta.events.register("before-send.dynamodb", sent)
    budget = CapacityBudget(write_units=10, burst=0, timeout=1e6, clock=lambda: now[0], sleep=sleep)
    with budget.attach(client), ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: put(client, str(number)), range(60)))
    assert len(service.requests) == 60
    # Each was charged one unit before it went: at no time had more gone than the rate allows, and those in flight.
    assert max(went) >= 59 / 10 - 1e-6
    for number, when in enumerate(sorted(went)):
        assert number - 8 <= 10 * when + 1e-6


@pytest.fixture
def orders(resource: Any) -> ShardedTable:
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    return ShardedTable(table, CalculatedSuffix("OrderId", shards=5))


def days(count: int) -> list[dict[str, Any]]:
    return [{"Date": f"2014-07-{number % 2:02}", "OrderId": f"A{number}"} for number in range(count)]


class Ticking(Clock):
    """For many threads: who sleeps moves it no further than to the end of the sleep."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        with self._lock:
            self.sleeps.append(seconds)
            self.now = max(self.now, until)


def test_a_fan_out_is_held_request_by_request(orders: ShardedTable) -> None:
    bulk_load(orders, days(20))
    clock = Ticking()
    budget = CapacityBudget(read_units=0.5, burst=0, clock=clock, sleep=clock.sleep)
    with budget.attach(orders, key="2014-07-01"):
        assert len(orders.query(KeyConditionExpression=Key("Date").eq("2014-07-00"))["Items"]) == 10
        assert clock.now == 0.0
        assert len(orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01"))["Items"]) == 10
    # Five requests of at least half a unit: four of them are paid when the last one begins.
    assert clock.now >= 4 * 0.5 / 0.5


def test_a_fan_out_that_is_refused_says_so(orders: ShardedTable) -> None:
    clock = Ticking()
    budget = CapacityBudget(read_units=0.001, mode="raise", burst=0, clock=clock, sleep=clock.sleep)
    with budget.attach(orders), pytest.raises(Exception, match="was not sent") as raised:
        orders.query(KeyConditionExpression=Key("Date").eq("2014-07-01"))
    errors = getattr(raised.value, "errors", {None: raised.value})
    assert all(isinstance(one, CapacityBudgetError) for one in errors.values())


def test_a_bulk_load_is_held_and_ends(orders: ShardedTable) -> None:
    clock = Ticking()
    budget = CapacityBudget(write_units=10, burst=0, timeout=1000, clock=clock, sleep=clock.sleep)
    with budget.attach(orders):
        report = bulk_load(orders, days(200), workers=4)
    assert report.written == 200
    assert clock.now >= (report.write_units - 4 * 25 * report.write_units / 200) / 10
    assert len(orders.scan()["Items"]) == 200


def test_a_bulk_load_whose_turn_is_too_late_ends_with_the_reason(orders: ShardedTable) -> None:
    clock = Ticking()
    budget = CapacityBudget(write_units=0.001, mode="raise", burst=0, clock=clock, sleep=clock.sleep)
    with budget.attach(orders), pytest.raises(BulkLoadError, match="was not sent") as raised:
        bulk_load(orders, days(100), workers=1)
    assert raised.value.report is not None
    assert (raised.value.report.written, raised.value.report.failed) == (25, 75)
    assert len(orders.scan()["Items"]) == 25


def test_a_session(service: Service, budget: Any, clock: Clock) -> None:
    session = boto3.Session()
    with budget(write_units=1).attach(session) as attached:
        client = session.client("dynamodb", endpoint_url=service.url)
        put(client)
        put(client)
        attached.detach()
        put(client)
    assert clock.sleeps == [1.0]
    client.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no rate"),
        ({"write_units": 0}, "write_units is a number of units a second above 0; got 0"),
        ({"write_units": -1}, "write_units"),
        ({"read_units": "80%"}, "read_units"),
        ({"read_units": True}, "read_units"),
        ({"read_units": float("nan")}, "read_units"),
        ({"read_units": float("inf")}, "read_units"),
        ({"read_units": 1, "burst": -1}, "burst"),
        ({"read_units": 1, "timeout": float("inf")}, "no call waits for ever"),
        ({"read_units": 1, "timeout": None}, "timeout"),
        ({"read_units": 1, "mode": "drop"}, 'mode is "wait" or "raise"'),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CapacityBudget(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": 1.5}, "key is a partition key"),
        ({"key": True}, "key is a partition key"),
        ({"key": {"S": "a"}}, "key is a partition key"),
        ({"key": "a"}, 'give key_schema={"Orders": "Date"}'),
        ({"key": "a", "key_schema": {"T": 1}}, "key_schema maps"),
    ],
)
def test_keys_that_cannot_work(client: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CapacityBudget(write_units=1).attach(client, **options)


def test_a_key_of_a_table_that_nobody_can_describe(resource: Any) -> None:
    with pytest.raises(ConfigurationError, match=r'give key_schema=\{"Missing": "Date"\}'):
        CapacityBudget(write_units=1).attach(resource.Table("Missing"), key="a")


def test_what_a_budget_cannot_be_attached_to() -> None:
    with pytest.raises(ConfigurationError, match="got dict"):
        CapacityBudget(write_units=1).attach({})


def test_a_bulk_load_by_processes_is_held(moto_endpoint: str) -> None:
    """What other processes send for the client's load goes when the client's budget lets it go."""
    resource: Any = boto3.resource("dynamodb", endpoint_url=moto_endpoint)
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"))
    orders = ShardedTable(table, CalculatedSuffix("OrderId", shards=5))
    clock = Ticking()
    strict = CapacityBudget(write_units=0.001, mode="raise", burst=0, clock=clock, sleep=clock.sleep)
    with strict.attach(orders), pytest.raises(BulkLoadError, match="was not sent"):
        bulk_load(orders, days(100), workers=1, processes=1)
    assert len(orders.scan()["Items"]) == 25
    wide = CapacityBudget(write_units=10, burst=0, timeout=1000, clock=clock, sleep=clock.sleep)
    with wide.attach(orders):
        assert bulk_load(orders, days(100), workers=1, processes=1).written == 100
    assert len(orders.scan()["Items"]) == 100
    assert clock.sleeps
    resource.meta.client.close()
