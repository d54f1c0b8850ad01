"""A stub of DynamoDB: its JSON protocol over HTTP, answered from memory, after a latency that costs no CPU.

It runs in a process of its own (:func:`stub`), so that ``time.process_time`` of a bench is the client's alone, and it
is far cheaper than any client: items are kept as JSON text and pages, once built, as whole responses. It knows one
table (partition key ``Date``, sort key ``OrderId``, both strings) under whatever name it is asked for, and as much of
the service as the benches use; what it does not know it refuses with a ValidationException, rather than answer wrongly.

A page ends at 1 MB, counted as so many orders of the benches' own size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import ssl
import subprocess
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from math import exp
from pathlib import Path
from statistics import NormalDist
from typing import Any

import orjson

from benchmarks.measure import ROOT
from benchmarks.orders import ORDER_BYTES, orders, wire_order

__all__ = ["Store", "drawn_latency", "stub"]

PAGE_ITEMS = 1024 * 1024 // ORDER_BYTES
PAGES_KEPT = 64 * 1024 * 1024
PARTITION, SORT = "Date", "OrderId"

_DESCRIPTION = orjson.dumps(
    {
        "Table": {
            "TableName": "Orders",
            "TableStatus": "ACTIVE",
            "KeySchema": [
                {"AttributeName": PARTITION, "KeyType": "HASH"},
                {"AttributeName": SORT, "KeyType": "RANGE"},
            ],
            "AttributeDefinitions": [
                {"AttributeName": PARTITION, "AttributeType": "S"},
                {"AttributeName": SORT, "AttributeType": "S"},
            ],
        }
    }
)
_TERM = re.compile(
    r"begins_with\s*\(\s*(?P<prefixed>#?\w+)\s*,\s*(?P<prefix>:\w+)\s*\)"
    r"|(?P<name>#?\w+)\s*(?:BETWEEN\s+(?P<low>:\w+)\s+AND\s+(?P<high>:\w+)|(?P<op><=|>=|=|<|>)\s*(?P<value>:\w+))"
)
_KNOWN = {
    "TableName",
    "KeyConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "Limit",
    "ScanIndexForward",
    "ExclusiveStartKey",
    "ReturnConsumedCapacity",
    "ConsistentRead",
    "Select",
}
_LAST = "\U0010ffff"
_LATE = 0.01
_SIGMA = 0.5
_NORMAL = NormalDist()


class InvalidRequestError(Exception):
    """The request asks for what the stub does not do; answered as a ValidationException."""


class Partition:
    """The items of a physical key: their sort keys in order, and their JSON."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.items: dict[str, bytes] = {}

    def put(self, key: str, item: bytes) -> None:
        """Put an item in its place."""
        if key not in self.items:
            if self.keys and key < self.keys[-1]:
                self.keys.insert(bisect_left(self.keys, key), key)
            else:
                self.keys.append(key)
        self.items[key] = item


class Store:
    """Answers requests; ``answer`` takes an operation and a body and gives a whole HTTP response."""

    def __init__(self, *, forgets: bool = False) -> None:
        self._forgets = forgets
        self.partitions: dict[str, Partition] = {}
        self._pages: dict[tuple[Any, ...], bytes] = {}
        self._kept = 0
        self._operations: dict[str, Callable[[dict[str, Any]], bytes]] = {
            "Query": self._query,
            "GetItem": self._get_item,
            "PutItem": self._put_item,
            "BatchWriteItem": self._batch_write_item,
            "DescribeTable": lambda _: response(_DESCRIPTION),
        }
        self._empty = response(b"{}")
        self._all_written = response(b'{"UnprocessedItems":{}}')

    def fill(self, shards: int, items: int) -> None:
        """Hold the orders of a day."""
        for key, order_id in orders(shards, items):
            self._partition(key).put(order_id, orjson.dumps(wire_order(key, order_id)))

    def answer(self, operation: str, body: bytes) -> bytes:
        """Answer a request."""
        try:
            return self._operations.get(operation, _unknown)(orjson.loads(body))
        except InvalidRequestError as error:
            fault = {"__type": "com.amazon.coral.validate#ValidationException", "message": str(error)}
            return response(orjson.dumps(fault), status=b"400 Bad Request")

    def _partition(self, key: str) -> Partition:
        return self.partitions.setdefault(key, Partition())

    def _get_item(self, request: dict[str, Any]) -> bytes:
        key = request["Key"]
        partition = self.partitions.get(key[PARTITION]["S"])
        item = None if partition is None else partition.items.get(key[SORT]["S"])
        parts = [] if item is None else [b'"Item":%b' % item]
        return response(b"{%b}" % b",".join([*parts, *_told(request, 0.5)]))

    def _put_item(self, request: dict[str, Any]) -> bytes:
        self._put(request["Item"])
        return response(b"{%b}" % b"".join(_told(request, 1.0)))

    def _batch_write_item(self, request: dict[str, Any]) -> bytes:
        ((table, writes),) = request["RequestItems"].items()
        for write in writes:
            if "PutRequest" not in write:
                raise InvalidRequestError("the stub's BatchWriteItem only puts")
            self._put(write["PutRequest"]["Item"])
        if request.get("ReturnConsumedCapacity", "NONE") == "NONE":
            return self._all_written
        units = float(len(writes))  # of orders that take 1 each
        told = {"TableName": table, "CapacityUnits": units, "Table": {"CapacityUnits": units}}
        return response(orjson.dumps({"UnprocessedItems": {}, "ConsumedCapacity": [told]}))

    def _put(self, item: dict[str, Any]) -> None:
        if self._forgets:
            return
        self._partition(item[PARTITION]["S"]).put(item[SORT]["S"], orjson.dumps(item))
        if self._pages:
            self._pages.clear()
            self._kept = 0

    def _query(self, request: dict[str, Any]) -> bytes:
        if unknown := request.keys() - _KNOWN:
            raise InvalidRequestError(f"the stub's Query does not know {sorted(unknown)}")
        if request.get("Select", "ALL_ATTRIBUTES") != "ALL_ATTRIBUTES":
            raise InvalidRequestError("the stub's Query gives whole items")
        key, low, high = _range(request)
        partition = self.partitions.get(key) or Partition()
        first, last = low(partition.keys), high(partition.keys)
        forward = request.get("ScanIndexForward", True)
        if start := request.get("ExclusiveStartKey"):
            after = start[SORT]["S"]
            if forward:
                first = max(first, bisect_right(partition.keys, after))
            else:
                last = min(last, bisect_left(partition.keys, after))
        limit = min(request.get("Limit", PAGE_ITEMS), PAGE_ITEMS)
        # As in the service: a page that ends with its limit has a LastEvaluatedKey, also where nothing comes after it.
        more = last - first >= limit
        if forward:
            last = min(last, first + limit)
        else:
            first = max(first, last - limit)
        told = request.get("ReturnConsumedCapacity", "NONE") != "NONE"
        asked = (key, first, last, forward, more, told)
        page = self._pages.get(asked)
        if page is None:
            page = self._page(key, partition, first, last, forward=forward, more=more, told=told)
            if self._kept > PAGES_KEPT:
                self._pages.clear()
                self._kept = 0
            self._kept += len(page)
            self._pages[asked] = page
        return page

    def _page(
        self, key: str, partition: Partition, first: int, last: int, *, forward: bool, more: bool, told: bool
    ) -> bytes:
        names = partition.keys[first : max(first, last)]
        if not forward:
            names.reverse()
        parts = [b'"Count":%d,"Items":[' % len(names), b",".join(map(partition.items.__getitem__, names))]
        parts.append(b'],"ScannedCount":%d' % len(names))
        if more and names:
            parts.append(b',"LastEvaluatedKey":' + orjson.dumps({PARTITION: {"S": key}, SORT: {"S": names[-1]}}))
        if told:
            units = max(1, -(-len(names) * ORDER_BYTES // 4096)) / 2
            parts.append(b',"ConsumedCapacity":{"CapacityUnits":%.1f,"TableName":"Orders"}' % units)
        return response(b"{%b}" % b"".join(parts))


def _told(request: dict[str, Any], units: float) -> list[bytes]:
    """Say what was consumed, in the words of the service, if the request asks for it."""
    asked = request.get("ReturnConsumedCapacity", "NONE")
    if asked == "NONE":
        return []
    table = b',"Table":{"CapacityUnits":%.1f}' % units if asked == "INDEXES" else b""
    return [b'"ConsumedCapacity":{"CapacityUnits":%.1f,"TableName":"Orders"%b}' % (units, table)]


def _unknown(_: dict[str, Any]) -> bytes:
    raise InvalidRequestError("the stub has no such operation")


_Edge = Callable[[list[str]], int]


def _range(request: dict[str, Any]) -> tuple[str, _Edge, _Edge]:
    """Read a key condition: the partition key, and where the range of sort keys begins and ends."""
    names = request.get("ExpressionAttributeNames", {})
    values = {name: value["S"] for name, value in request.get("ExpressionAttributeValues", {}).items()}
    key = None
    low: _Edge = partial(bisect_left, x="")
    high: _Edge = len
    for name, op, given in _terms(request.get("KeyConditionExpression", "")):
        attribute = names.get(name, name)
        operands = [values[value] for value in given]
        if attribute == PARTITION and op == "=":
            key = operands[0]
        elif attribute == SORT:
            low, high = _edges(op, operands)
        else:
            raise InvalidRequestError(f"the stub cannot read a key condition {op} on {attribute!r}")
    if key is None:
        raise InvalidRequestError("a Query needs '=' on the partition key")
    return key, low, high


def _edges(op: str, operands: list[str]) -> tuple[_Edge, _Edge]:
    first = operands[0]
    below, through = partial(bisect_left, x=first), partial(bisect_right, x=first)
    edges: dict[str, tuple[_Edge, _Edge]] = {
        "=": (below, through),
        "<": (partial(bisect_left, x=""), below),
        "<=": (partial(bisect_left, x=""), through),
        ">": (through, len),
        ">=": (below, len),
        "BETWEEN": (below, partial(bisect_right, x=operands[-1])),
        "begins_with": (below, partial(bisect_left, x=first + _LAST)),
    }
    return edges[op]


@lru_cache(256)
def _terms(expression: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    terms: list[tuple[str, str, tuple[str, ...]]] = []
    for term in _TERM.finditer(expression):
        if term["prefix"]:
            terms.append((term["prefixed"], "begins_with", (term["prefix"],)))
        elif term["low"]:
            terms.append((term["name"], "BETWEEN", (term["low"], term["high"])))
        else:
            terms.append((term["name"], term["op"], (term["value"],)))
    rest = re.sub(r"\bAND\b|[()\s]", "", _TERM.sub("", expression))
    if rest or not terms:
        raise InvalidRequestError(f"the stub cannot read the key condition {expression!r}")
    return tuple(terms)


def response(body: bytes, *, status: bytes = b"200 OK") -> bytes:
    """Give a whole HTTP response with the headers that the service sends."""
    return (
        b"HTTP/1.1 %b\r\nServer: Server\r\nDate: Wed, 09 Jul 2014 12:00:00 GMT\r\n"
        b"Content-Type: application/x-amz-json-1.0\r\nContent-Length: %d\r\nConnection: keep-alive\r\n"
        b"x-amzn-RequestId: 0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABCDEF\r\nx-amz-crc32: %d\r\n\r\n%b"
    ) % (status, len(body), zlib.crc32(body), body)


_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target:\s*\w+\.(\w+)", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    def __init__(self, store: Store, latency: Callable[[], float]) -> None:
        self._store = store
        self._latency = latency
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[: end + 2])
            length = _LENGTH.search(head)
            until = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < until:
                return
            body = bytes(self._received[end + 4 : until])
            del self._received[:until]
            target = _TARGET.search(head)
            self._send(self._store.answer(target[1].decode() if target else "no operation", body))

    def _send(self, answer: bytes) -> None:
        assert self._transport is not None
        if latency := self._latency():
            asyncio.get_running_loop().call_later(latency, self._transport.write, answer)
        else:
            self._transport.write(answer)


def drawn_latency(median: float, draw: float) -> float:
    """Return the latency of an answer, in the unit of its median, for a number drawn from [0, 1).

    It has a log-normal distribution, and 1% of all answers take 20 medians more.
    """
    late, rest = (20.0, draw / _LATE) if draw < _LATE else (0.0, (draw - _LATE) / (1 - _LATE))
    return median * (late + exp(_SIGMA * _NORMAL.inv_cdf(min(max(rest, 1e-9), 1 - 1e-9))))


async def serve(
    shards: int, items: int, latency: Callable[[], float], *, forgets: bool, certificate: str | None
) -> None:
    """Serve until the standard input ends; the first line printed is the port."""
    store = Store(forgets=forgets)
    store.fill(shards, items)
    loop = asyncio.get_running_loop()
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    server = await loop.create_server(lambda: _Connection(store, latency), "127.0.0.1", 0, backlog=1024, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The bench's process may end in any way: its end of the pipe is closed then.
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def stub(
    *,
    shards: int = 1,
    items: int = 0,
    latency_ms: float = 0,
    tail: bool = False,
    forgets: bool = False,
    certificate: Path | None = None,
) -> Iterator[str]:
    """Run a stub server in a process of its own, and give its URL.

    Example::

        with stub(shards=200, items=20_000, latency_ms=5) as endpoint: ...

    Args:
        shards: Over how many the orders are spread.
        items: How many orders the table holds, in all shards together.
        latency_ms: Milliseconds from a request's arrival to its answer, for each request alone.
        tail: Whether that is the median of a latency with a tail (:func:`drawn_latency`).
        forgets: Whether what is put is not kept: for loads that are larger than the memory.
        certificate: A PEM file with the key and the certificate of 127.0.0.1: the stub then speaks TLS.
    """
    given = ["--shards", str(shards), "--items", str(items), "--latency-ms", str(latency_ms)]
    given += ["--forgets"] * forgets + ["--tail"] * tail
    given += [] if certificate is None else ["--certificate", str(certificate)]
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "benchmarks.stub", *given],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError("the stub server did not start: see what it printed above")
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{port}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A stub of DynamoDB, answering from memory.")
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--tail", action="store_true")
    parser.add_argument("--forgets", action="store_true")
    parser.add_argument("--certificate")
    arguments = parser.parse_args()
    seconds = arguments.latency_ms / 1000
    draw = random.Random(0).random
    asyncio.run(
        serve(
            arguments.shards,
            arguments.items,
            (lambda: drawn_latency(seconds, draw())) if arguments.tail else (lambda: seconds),
            forgets=arguments.forgets,
            certificate=arguments.certificate,
        )
    )
