"""Faults of the network under the direct transport: nothing is lost, and nothing is carried out twice."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count, product, repeat
from typing import Any, Literal, get_args

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit import BulkReport, CalculatedSuffix, DirectTransport, ShardedTable, bulk_load
from tests.support.fakes import Clock
from tests.support.raw_server import Part, RawServer, http

Fault = Literal[
    "none", "bytes", "chunked", "close behind", "more behind",
    "drop", "reset", "500", "throttle",
    "drop after", "reset after", "cut after", "long after", "short after", "garbage after", "page after", "500 after",
    "504 after", "checksum after", "no number after", "silent after",
]  # fmt: skip
"""What the server does with a request; ``after``: it carries it out, and the answer does not arrive."""
FAULTS = get_args(Fault)
SCHEMA: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Date", "KeyType": "HASH"}, {"AttributeName": "Id", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "Date", "AttributeType": "S"},
        {"AttributeName": "Id", "AttributeType": "S"},
    ],
}
STRATEGY = CalculatedSuffix("Id", shards=4)
KEY = {"Date": "2014-07-09", "Id": "a"}
ITEMS = [{"Date": "2014-07-09", "Id": f"{number:03}"} for number in range(120)]
_THROTTLED = b'{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"slow down"}'
_FAILED = b'{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"failed"}'


class Service:
    """A table behind a faulty network.

    Attributes:
        faults: One for each of the next requests, in order; later requests have none.
        carried_out: The writes of each Id, but for batches; those with one token count once.
        stored: The items of batches, by stored key.
        heads: The head of each request.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.carried_out: defaultdict[str, set[Any]] = defaultdict(set)
        self.stored: dict[tuple[str, str], Any] = {}
        self.heads: list[bytes] = []

    def respond(self, head: bytes, content: bytes) -> list[Part]:
        self.heads.append(head)
        fault: Fault = self.faults.pop(0) if self.faults else "none"
        if fault in {"drop", "reset"}:
            return ["close" if fault == "drop" else "reset"]
        if fault == "500":
            return [http(_FAILED, status=b"500 Internal Server Error")]
        if fault == "throttle":
            return [http(_THROTTLED, status=b"400 Bad Request")]
        found = head.split(b"DynamoDB_20120810.")[1].split(b"\r\n")[0].decode()
        body = json.dumps(self._done(found, json.loads(content))).encode()
        return _answers(body)[fault]

    def _done(self, operation: str, body: Any) -> Any:
        if operation == "BatchWriteItem":
            for request in body["RequestItems"]["T"]:
                item = request["PutRequest"]["Item"]
                self.stored[item["Date"]["S"], item["Id"]["S"]] = item
            return {"UnprocessedItems": {}}
        if operation == "Query":
            (key,) = [v["S"] for v in body["ExpressionAttributeValues"].values() if v["S"].startswith("2014-07-09")]
            items = [self.stored[stored] for stored in sorted(self.stored) if stored[0] == key]
            return {"Items": items, "Count": len(items), "ScannedCount": len(items)}
        written = body if "TransactItems" not in body else body["TransactItems"][0]["Put"]
        identity = (written.get("Key") or written["Item"])["Id"]["S"]
        self.carried_out[identity].add(body.get("ClientRequestToken") or object())
        return {}


def _answers(body: bytes) -> dict[Fault, list[Part]]:
    whole = http(body)
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1], body[1:]) if part]
    return {
        "none": [whole],
        "bytes": [bytes([byte]) for byte in whole],
        "chunked": [http(body, b"Transfer-Encoding: chunked"), *chunks, b"0\r\n\r\n"],
        "close behind": [whole, "close"],
        "more behind": [whole + whole],
        "drop after": ["close"],
        "reset after": ["reset"],
        "cut after": [whole[:-1], "close"],
        "long after": [http(body, length=len(body) + 1), "close"],
        "short after": [http(body, length=len(body) - 1)],
        "garbage after": [b"garbage\r\n\r\n", "close"],
        "page after": [http(b"<html>")],
        "500 after": [http(_FAILED, status=b"500 Internal Server Error")],
        "504 after": [http(b"<html>", status=b"504 Gateway Timeout")],
        "checksum after": [whole.replace(b"crc32: ", b"crc32: 1")],
        "no number after": [whole.replace(b"crc32: ", b"crc32: x")],
        "silent after": ["nothing"],
    }


def at_once(attempts: int, response: Any, caught_exception: Any, **_: Any) -> float | None:
    """Try everything again: no policy of retries is less careful."""
    failed = response is None or response[0].status_code >= 300
    return 0.0 if failed and attempts < 20 else None


class Way:
    """A sharded table over the direct transport, all of whose operations are known to it if it is ``warm``."""

    def __init__(self, service: Service, table: Any, run: Callable[[Any], Any], *, warm: bool) -> None:
        self.service, self.table, self.run = service, table, run
        table.meta.client.meta.events.register_first("needs-retry.dynamodb", at_once)
        for write in WRITES if warm else ():
            run(write(table, KEY))
        self.load(ITEMS[:1])
        self.run(table.query(KeyConditionExpression=Key("Date").eq("2014-07-09")))
        service.stored.clear()
        service.heads.clear()

    def load(self, items: Any) -> BulkReport:
        if isinstance(self.table, ShardedTable):
            return bulk_load(self.table, items, workers=4)
        from shardkit import aio

        report: BulkReport = self.run(aio.bulk_load(self.table, items, workers=4))
        return report

    @property
    def direct(self) -> bool:
        return not any(b"amz-sdk-request" in head for head in self.service.heads)


WRITES: list[Callable[[Any, Any], Any]] = [
    lambda table, key: table.update_item(
        Key=key, UpdateExpression="ADD Total :one", ExpressionAttributeValues={":one": 1}
    ),
    lambda table, key: table.put_item(Item=key, ConditionExpression=Attr("Id").not_exists()),
    lambda table, key: table.put_item(Item=key, ReturnValues="ALL_OLD"),
    lambda table, key: table.delete_item(Key=key, ConditionExpression=Attr("Id").exists()),
    lambda table, key: table.transact_write_items(TransactItems=[{"Put": {"Item": key}}]),
]


class _AsyncClock(Clock):
    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


@contextmanager
def sync_way(read_timeout: float = 60, *, warm: bool = True) -> Iterator[Way]:
    service = Service()
    with RawServer(repeat(service.respond)) as server:
        resource = _session.resource(
            "dynamodb", endpoint_url=server.url, config=Config(retries=ONCE, read_timeout=read_timeout)
        )
        table = ShardedTable(resource.Table("T"), STRATEGY, key_schema=SCHEMA, transport="direct")
        clock = Clock()
        table.runner.clock, table.runner.sleep = clock, clock.sleep
        try:
            yield Way(service, table, lambda answer: answer, warm=warm)
        finally:
            resource.meta.client.close()


@cache
def _aio_session() -> Any:
    """Return one session for all: it reads botocore's data files once."""
    from aiobotocore.session import get_session

    return get_session()


@contextmanager
def async_way(read_timeout: float = 60, *, warm: bool = True) -> Iterator[Way]:
    from aiobotocore.config import AioConfig

    from shardkit import aio

    service = Service()
    with RawServer(repeat(service.respond)) as server, asyncio.Runner() as loop:
        config = AioConfig(retries=ONCE, read_timeout=read_timeout)
        opening = _aio_session().create_client(
            "dynamodb", endpoint_url=server.url, region_name="eu-west-1", config=config
        )

        async def entered() -> Any:
            return await opening.__aenter__()

        client = loop.run(entered())
        table: Any = aio.ShardedTable(client, STRATEGY, table_name="T", key_schema=SCHEMA, transport="direct")
        clock = _AsyncClock()
        table.runner.clock, table.runner.sleep = clock, clock.sleep_async
        try:
            yield Way(service, table, loop.run, warm=warm)
        finally:
            loop.run(client.close())


ONCE: Any = {"total_max_attempts": 1, "mode": "standard"}
_session = boto3.session.Session("AKID", "secret", region_name="eu-west-1")
WAYS: list[Any] = [sync_way]
if find_spec("aiobotocore") is not None:
    WAYS = [pytest.param(async_way, marks=pytest.mark.aio)]


@pytest.mark.long_search
@pytest.mark.parametrize("make", WAYS)
def test_no_write_is_carried_out_twice(make: Any) -> None:
    """Whatever the network does, and however often botocore would try."""
    with make(read_timeout=0.05) as way:
        # A request that timed out may be carried out during the next example: each example has its own key.
        numbers = count()

        @given(st.lists(st.sampled_from(FAULTS), max_size=6), st.sampled_from(WRITES))
        def once(faults: list[Fault], write: Any) -> None:
            key = {**KEY, "Id": f"{next(numbers)}"}
            carried_out = way.service.carried_out[key["Id"]]
            way.service.faults = faults
            try:
                way.run(write(way.table, key))
            except (BotoCoreError, ClientError):
                assert len(carried_out) <= 1
            else:
                assert len(carried_out) == 1
            assert way.direct

        once()


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize("sent", ["first", "past the client", "after the fallback"])
def test_a_write_whose_answer_is_lost_is_not_repeated(make: Any, sent: str) -> None:
    """Nor by botocore, through which the first request of each operation goes, and all after the fallback."""
    with make(warm=sent != "first") as way:
        if sent == "after the fallback":
            way.service.faults = ["garbage after"] * 80  # for all attempts on all shards
            with suppress(BotoCoreError, ClientError):
                way.run(way.table.query(KeyConditionExpression=Key("Date").eq("2014-07-09")))
        lost: list[Fault] = ["drop after", "page after", "504 after", "checksum after", "no number after"]
        for number, (fault, write) in enumerate(product(lost, WRITES)):
            key = {**KEY, "Id": f"{number}"}
            way.service.faults = [fault]
            if write is WRITES[-1]:  # it has a token
                way.run(write(way.table, key))
            else:
                with pytest.raises((BotoCoreError, ClientError)):
                    way.run(write(way.table, key))
            assert len(way.service.carried_out[key["Id"]]) == 1
        assert way.direct == (sent == "past the client")


@pytest.mark.parametrize("make", WAYS)
@settings(max_examples=10)
@given(data=st.data())
def test_a_load_loses_nothing_and_a_fan_out_finds_it(make: Any, data: st.DataObject) -> None:
    faults = st.lists(st.sampled_from([fault for fault in FAULTS if fault != "silent after"]), max_size=12)
    with make() as way:
        way.service.faults = data.draw(faults)
        report = way.load(ITEMS)
        assert report.written == len(ITEMS)
        assert sorted(key for _, key in way.service.stored) == [item["Id"] for item in ITEMS]
        way.service.faults = data.draw(faults)
        found = way.run(way.table.query(KeyConditionExpression=Key("Date").eq("2014-07-09")))
        assert found["Items"] == ITEMS


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_storm_of_one_fault_over_a_fan_out(make: Any, fault: Fault) -> None:
    with make(0.2 if fault == "silent after" else 60) as way:
        way.load(ITEMS)
        way.service.heads.clear()
        way.service.faults = [fault] * 8
        found = way.run(way.table.query(KeyConditionExpression=Key("Date").eq("2014-07-09")))
        assert found["Items"] == ITEMS
        assert way.direct


async def running_loop() -> Any:
    return asyncio.get_running_loop()


@pytest.mark.aio
@pytest.mark.skipif(find_spec("aiobotocore") is None, reason="needs aiobotocore")
@pytest.mark.parametrize("reachable", [True, False])
def test_asyncio_tries_all_addresses_of_a_name(reachable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardkit import aio

    monkeypatch.setattr("shardkit.runtime.direct_async._NEXT_ADDRESS_SECONDS", 0.01)
    tried: list[str] = []
    with async_way() as way:
        client, loop = way.table.meta.client, way.run(running_loop())
        client.meta.config.connect_timeout = 2 if reachable else 0.001
        # With other options, which have no open connection.
        options = DirectTransport(verify=False)
        table = aio.ShardedTable(client, STRATEGY, table_name="T", key_schema=SCHEMA, transport=options)
        look_up, connect = loop.getaddrinfo, loop.sock_connect

        async def found(*place: Any, **kind: Any) -> list[Any]:
            known = await look_up(*place, **kind) if reachable else []
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 443)) for host in ("silent", "refuses", "silent too")
            ] + known

        async def connected(sock: Any, place: Any) -> None:
            tried.append(place[0])
            if place[0] == "refuses":
                raise ConnectionRefusedError
            await (loop.create_future() if place[1] == 443 else connect(sock, place))

        loop.getaddrinfo, loop.sock_connect = found, connected
        if reachable:
            way.run(WRITES[0](table, KEY))
        else:
            with pytest.raises(ConnectTimeoutError):
                way.run(WRITES[0](table, KEY))
        assert tried[:3] == ["silent", "refuses", "silent too"]
        assert way.direct


def test_of_many_threads_one_tells_why_the_client_sends(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    started = threading.Barrier(8)
    with RawServer(repeat(service.respond)) as server, ThreadPoolExecutor(8) as threads:
        resource = _session.resource("dynamodb", endpoint_url=f"{server.url}/prefix", config=Config(retries=ONCE))
        table = ShardedTable(resource.Table("T"), STRATEGY, key_schema=SCHEMA, transport="direct")

        def call(_: int) -> None:
            started.wait()
            for _ in range(3):
                table.update_item(Key=KEY)

        list(threads.map(call, range(8)))
        resource.meta.client.close()
    assert len(service.heads) == 24
    assert all(b"amz-sdk-request" in head for head in service.heads)
    (logged,) = [record.getMessage() for record in caplog.records if record.name == "shardkit"]
    assert "its endpoint is more than a host and a port" in logged
