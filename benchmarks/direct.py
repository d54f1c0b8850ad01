"""One request past the client, beside the same request through it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from benchmarks import ways
from benchmarks.measure import Figure, alternate, over
from benchmarks.orders import DAY, TABLE
from benchmarks.stub import stub
from benchmarks.writes import BATCH_ITEMS, SHARDS, Orders, written
from shardkit.bulk.writes import EncodedRequests
from shardkit.core.machine import Send
from shardkit.dynamodb.body import encode
from shardkit.dynamodb.encode import to_wire_item

__all__ = ["certified", "direct"]

CALLS = 200
"""Calls of one run."""
DIRECT, CLIENT, BOTO3 = "direct", "client", "boto3"
CLIENT_AGENT, BOTO3_AGENT = (f"{way} with user_agent=" for way in (CLIENT, BOTO3))
WAYS: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    (DIRECT, None, {"transport": "direct"}),
    (CLIENT, BOTO3, {}),
    (CLIENT_AGENT, BOTO3_AGENT, {"user_agent": "orders/1.0"}),
)
"""shardkit's ways, beside them boto3's own, and how their clients are made."""
TARGET = 1 / 7
"""Of a direct request's CPU to the client's."""
MICROSECONDS = {"plain HTTP": 110, "TLS": 140}
"""What a direct BatchWriteItem is to take on a quiet machine: told, not judged."""

Call = Callable[[], Any]


def direct(*, short: bool) -> Iterator[Figure]:
    """CPU of a direct request at most a seventh of one through the client, over plain HTTP and over TLS."""
    runs = 3 if short else 15
    with certified() as certificate:
        for wire, given in (("plain HTTP", None), ("TLS", certificate)):
            with _calls(given) as (batches, gets):
                name = f"BatchWriteItem, {wire}"
                yield from _figures(name, batches, runs, note=f"asked: {MICROSECONDS[wire]} µs")
                yield from _figures(f"get_item, {wire}", gets, runs)


@contextmanager
def certified() -> Iterator[Path]:
    """Make a certificate for 127.0.0.1, which clients made inside the ``with`` trust, and give its file."""
    import trustme

    authority = trustme.CA()
    with TemporaryDirectory() as folder:
        certificate, bundle = Path(folder, "server.pem"), Path(folder, "authority.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        authority.cert_pem.write_to_path(bundle)
        with mock.patch.dict(os.environ, AWS_CA_BUNDLE=str(bundle)):
            yield certificate


@contextmanager
def _calls(certificate: Path | None) -> Iterator[tuple[Mapping[str, Call], Mapping[str, Call]]]:
    """Give the ways to write a batch, whose items are JSON already as in a bulk load, and those to get an order."""
    orders = Orders(BATCH_ITEMS * len(WAYS))
    batches: dict[str, Call] = {}
    gets: dict[str, Call] = {}
    with stub(certificate=certificate) as endpoint, ExitStack() as stack:
        for number, (way, plain, options) in enumerate(WAYS):
            own = slice(number * BATCH_ITEMS, (number + 1) * BATCH_ITEMS)
            table = stack.enter_context(ways.sharded(endpoint, SHARDS, **options))
            batches[way] = partial(table.runner.send, _batch(orders.stored[own]))
            batches[way]()
            gets[way] = partial(table.get_item, Key=_key(orders.logical[0]))
            if plain is not None:
                resource = stack.enter_context(ways.resource(endpoint, **options))
                gets[plain] = partial(resource.Table(TABLE).get_item, Key=_key(orders.stored[0]))
        if not written(endpoint, orders):
            raise RuntimeError("the ways wrote other orders than they were given")
        for way, get in gets.items():
            if {**get()["Item"], "Date": DAY} != orders.logical[0]:
                raise RuntimeError(f"{way}, get_item gave another order than the table's")
        yield batches, gets


def _batch(items: list[dict[str, Any]]) -> Send:
    bodies = [encode({"PutRequest": {"Item": to_wire_item(item)}}) for item in items]
    return Send("BatchWriteItem", {"RequestItems": {TABLE: EncodedRequests(bodies)}}, paced=True)


def _key(item: dict[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("Date", "OrderId")}


def _figures(name: str, calls: Mapping[str, Call], runs: int, note: str = "") -> Iterator[Figure]:
    timings = alternate({way: partial(_repeat, call) for way, call in calls.items()}, runs=runs)
    for way, timing in timings.items():
        low, high = (end(timing.seconds) / CALLS * 1e6 for end in (min, max))
        yield Figure(
            bench="direct",
            name=f"{name}, {way}",
            value=timing.median / CALLS * 1e6,
            unit="µs",
            spread=(low, high),
            note=note if way == DIRECT else "",
        )
    for mine, other in ((DIRECT, CLIENT), (CLIENT_AGENT, CLIENT), (BOTO3_AGENT, BOTO3)):
        if mine in timings:
            value, spread = over(timings[mine], timings[other])
            target = TARGET if mine == DIRECT else None
            yield Figure(bench="direct", name=f"{name}: {mine}, of {other}", value=value, target=target, spread=spread)


def _repeat(call: Call) -> None:
    for _ in range(CALLS):
        call()
