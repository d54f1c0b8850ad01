"""A small service that reads a sharded table: pages with a cursor, and a stream.

    python examples/fan_out_read.py --table Orders --shards 10 --by OrderId --port 8080
    curl 'http://127.0.0.1:8080/orders/2014-07-09?limit=50'

    GET /orders/<day>?limit=50&next=<token>    one page; "next" in the answer is the next page's token, or null
    GET /orders/<day>/total                    the whole day, streamed and added up

The token is text, so the service keeps no state between two pages. Each page asks every shard, for at least 0.5 read
units each. The response header X-Read-Units has the read units consumed. With a path instead of --port, the script
prints one response and ends.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from decimal import Decimal
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config

from shardkit import CalculatedSuffix, CapacityMeter, CursorError, ShardedTable

MOST_A_PAGE = 500


class Orders:
    """Answers requests: a response is a status, a body for JSON, and the read units consumed."""

    def __init__(self, table: ShardedTable) -> None:
        self.table = table
        self.meter = CapacityMeter()
        [self.day] = [Key(part["AttributeName"]) for part in table.key_schema if part["KeyType"] == "HASH"]

    def answer(self, url: str) -> tuple[HTTPStatus, dict[str, Any], float]:
        """Answer a GET."""
        split = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(split.query).items()}
        with self.meter.attach(self.table), self.meter.scope(split.path) as used:
            match [unquote(part) for part in split.path.strip("/").split("/")]:
                case ["orders", day]:
                    status, body = self.page(day, options.get("limit", "50"), options.get("next"))
                case ["orders", day, "total"]:
                    status, body = HTTPStatus.OK, self.total(day)
                case _:
                    status, body = HTTPStatus.NOT_FOUND, {"error": "ask for /orders/<day> or /orders/<day>/total"}
        return status, body, used.read_units

    def page(self, day: str, limit: str, token: str | None) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return one page of a day's orders, in the order of their ids."""
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit) <= MOST_A_PAGE:
            return HTTPStatus.BAD_REQUEST, {"error": f"limit is a number from 1 to {MOST_A_PAGE}"}
        query: dict[str, Any] = {"KeyConditionExpression": self.day.eq(day), "Limit": int(limit)}
        if token is not None:
            query["ExclusiveStartKey"] = {"shardkit": token}
        try:
            page = self.table.query(**query)
        except CursorError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        cursor = page.get("LastEvaluatedKey")
        return HTTPStatus.OK, {"items": page["Items"], "next": cursor["shardkit"] if cursor else None}

    def total(self, day: str) -> dict[str, Any]:
        """Add up a day. Only one page per shard is in memory, however long the day."""
        orders, total = 0, Decimal(0)
        for order in self.table.query_items(KeyConditionExpression=self.day.eq(day)):
            orders += 1
            total += order.get("Total", 0)
        return {"orders": orders, "total": total}


def to_json(body: dict[str, Any]) -> str:
    """Convert a body to JSON. A resource's numbers are Decimals, which become JSON numbers."""
    return json.dumps(body, default=lambda value: int(value) if value == value.to_integral_value() else float(value))


def make_server(orders: Orders, port: int) -> ThreadingHTTPServer:
    """Make the server. Port 0 takes a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, read_units = orders.answer(self.path)
            content = to_json(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Read-Units", f"{read_units:g}")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
            """Log nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service, or answer once, and return the exit code."""
    parser = argparse.ArgumentParser(description="Read a sharded table, page by page.")
    parser.add_argument("path", nargs="?", help="print one response and end: /orders/2014-07-09?limit=50")
    parser.add_argument("--table", required=True, help="its partition key is a string, such as a day")
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--by", required=True, help="the attribute that suffixes are calculated from")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args(arguments)

    # As many connections as shards: a fan-out is then one round of requests.
    resource = boto3.resource("dynamodb", config=Config(max_pool_connections=max(10, options.shards)))
    strategy = CalculatedSuffix(options.by, shards=options.shards)
    orders = Orders(ShardedTable(resource.Table(options.table), strategy))
    if options.path is not None:
        status, body, read_units = orders.answer(options.path)
        print(to_json(body))
        print(f"{status.value} {status.phrase}, {read_units:g} read units")
        return 0 if status is HTTPStatus.OK else 1
    with make_server(orders, options.port) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/orders/2014-07-09?limit=50", flush=True)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
