"""What a meter looks like: a table for people, plain values and JSON for programs."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import Binary

from shardkit.capacity import CacheUsage, CapacityMeter, HotKey, Scope, Usage
from shardkit.errors import ConfigurationError
from tests.support.metered import FakeClient, consumed, item, key, put

pytest.importorskip("rich.console")

from rich.console import Console


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def used() -> Scope:
    clock = Clock()
    client, meter = FakeClient(), CapacityMeter(clock=clock)
    meter.attach(client, key_schema={"T": "pk"})
    with meter.scope("import", tenant="acme") as scope:
        report = consumed(
            1002.0, Table={"CapacityUnits": 1000.0}, GlobalSecondaryIndexes={"by-day": {"CapacityUnits": 2.0}}
        )
        client.call("PutItem", {"ConsumedCapacity": report}, TableName="T", Item=item("a"))
        for value in ({"N": "1.50"}, {"B": b"\x00\xff"}):
            client.call("GetItem", {}, TableName="T", Key={"pk": value})
        throttle = {"Error": {"Code": "ThrottlingException"}}
        retried = {"ConsumedCapacity": consumed(0.5), "ResponseMetadata": {"RetryAttempts": 1}}
        client.call("GetItem", retried, attempts=[throttle], TableName="T", Key=key("a"))
        clock.now = 4.0
    return scope


PLAIN = """\
import                 requests  read units  write units  estimated read units  estimated write units  throttles
total                         4         0.5      1,002.0                   1.0                    0.0          1
table T                       4         0.5      1,002.0                   1.0                    0.0          1
index T by-day                1         0.0          2.0                   0.0                    0.0          0
GetItem                       3         0.5          0.0                   1.0                    0.0          1
PutItem                       1         0.0      1,002.0                   0.0                    0.0          0
tag tenant=acme               4         0.5      1,002.0                   1.0                    0.0          0
key T 'a'                     2         0.5      1,002.0                   0.0                    0.0          1
key T Decimal('1.50')         1         0.0          0.0                   0.5                    0.0          0
key T b'\\x00\\xff'             1         0.0          0.0                   0.5                    0.0          0"""


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


def test_as_plain_text(used: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rich is not installed."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert str(used) == PLAIN


def test_as_a_table_of_rich(used: Scope) -> None:
    assert words(str(used)) == words(PLAIN)
    assert "─" in str(used)
    wide = Console(width=200)
    with wide.capture() as shown:
        wide.print(used)
    assert words(shown.get()) == words(PLAIN)


def test_a_meter_that_saw_nothing() -> None:
    assert words(str(CapacityMeter())) == [
        ["total", "requests", "read", "units", "write", "units"],
        ["total", "0", "0.0", "0.0"],
    ]


def usage(read: float = 0, write: float = 0, estimated_read: float = 0, requests: int = 1, throttles: int = 0) -> Any:
    return Usage(read, write, estimated_read, 0, requests, throttles).to_dict()


def test_as_plain_values(used: Scope) -> None:
    whole = usage(0.5, 1002, 1, 4, 1)
    doubt = {"uncertain_read_units": 0.0, "uncertain_write_units": 0.0}
    expected = {
        "name": "import",
        "tags": {"tenant": "acme"},
        "total": {**whole, "vector_search_request_bytes": 0, "vector_write_request_bytes": 0},
        "rates": {
            "seconds": 4.0,
            "read_units": 0.125,
            "write_units": 250.5,
            "estimated_read_units": 0.25,
            "estimated_write_units": 0.0,
            "requests": 1.0,
            "throttles": 0.25,
        },
        "tables": {"T": {**whole, "indexes": {"by-day": usage(write=2)}, "vector_indexes": {}}},
        "operations": {"PutItem": usage(write=1002), "GetItem": usage(0.5, 0, 1, 3, 1)},
        "by_tag": [{"tag": "tenant", "value": "acme", **usage(0.5, 1002, 1, 4)}],
        "throttles": {"ThrottlingException": 1},
        "retries": {"ThrottlingException": 1},
        "hottest_keys": [
            {"table": "T", "key": {"S": "a"}, **usage(0.5, 1002, 0, 2, 1), **doubt},
            {"table": "T", "key": {"N": "1.50"}, **usage(estimated_read=0.5), **doubt},
            {"table": "T", "key": {"B": "AP8="}, **usage(estimated_read=0.5), **doubt},
        ],
        "other_keys": usage(requests=0),
        "cache": {**CacheUsage().to_dict(), "tables": {}},
    }
    assert used.to_dict() == expected
    assert json.loads(used.to_json()) == expected
    assert used.to_dict(hottest=1)["hottest_keys"] == expected["hottest_keys"][:1]
    assert json.loads(CapacityMeter().to_json(hottest=0))["total"] == {
        **usage(requests=0),
        "vector_search_request_bytes": 0,
        "vector_write_request_bytes": 0,
    }


def test_names_that_are_no_plain_text() -> None:
    """A line break stays in its row, and what a terminal would obey is shown."""
    client, meter = FakeClient(), CapacityMeter()
    with meter.attach(client), meter.scope("a\nb", tenant="x\x1b[31m") as scope:
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item("a"))
    rows = [line.split("  ")[0] for line in str(scope).splitlines() if "─" not in line]
    assert rows == [r"'a\nb'", "total", "table T", "PutItem", r"tag tenant='x\x1b[31m'"]


def test_the_hottest(used: Scope) -> None:
    assert [hot.key for hot in used.hottest(2)] == ["a", Decimal("1.50")]
    assert used.hottest(1, by="write") == [HotKey("T", "a", Usage(0.5, 1002, requests=2, throttles=1))]
    assert used.hottest(1, by="read")[0].key in {"a", Decimal("1.50"), b"\x00\xff"}
    assert used.hottest(0) == []
    with pytest.raises(ConfigurationError, match="'both'"):
        used.hottest(by="both")


@pytest.mark.parametrize("number", [-1, True, 1.5, "5", None, float("inf")])
def test_how_many_of_the_hottest(used: Scope, number: Any) -> None:
    for read in (used.hottest, lambda n: used.to_dict(hottest=n), lambda n: used.to_json(hottest=n)):
        with pytest.raises(ConfigurationError, match=rf": must be an integer >= 0 \(keys\), got {number!r}"):
            read(number)


def test_the_key_whose_skew_is_asked_for(used: Scope) -> None:
    for binary in (b"\x00\xff", bytearray(b"\x00\xff"), Binary(b"\x00\xff")):
        assert used.skew(binary, table="T").hottest == b"\x00\xff"
    assert used.skew(Decimal("1.5"), table="T").hottest == Decimal("1.5")
    wrong: list[Any] = [None, True, 1.5, {"S": "a"}, ["a"]]
    for given in wrong:
        with pytest.raises(ConfigurationError, match=r"^key: must be a str, bytes or a number"):
            used.skew(given, table="T")


def test_keys_beyond_the_bound_are_added_up() -> None:
    client, meter = FakeClient(), CapacityMeter(max_keys=1)
    meter.attach(client, key_schema={"T": "pk"})
    for name in "aabb":
        client.call("PutItem", {"ConsumedCapacity": consumed(1.0)}, TableName="T", Item=item(name))
    assert meter.hottest() == [HotKey("T", "b", Usage(write_units=2, requests=2), 0.0, 2.0)]
    assert meter.other_keys == Usage(write_units=2, requests=2)
    client.call("BatchWriteItem", {"ConsumedCapacity": [consumed(1.0)]}, RequestItems={"T": [put("b")]})
    assert meter.by_key == {("T", "b"): Usage(write_units=3, requests=3)}
