"""CPU and memory of ``stage_items``, and the order of what it staged: ``python -m benchmarks.stage_job`` is its child.

The source is a file of JSON lines, sorted by key; S3 is moto's server, in a process of its own.
"""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import boto3
import orjson

from benchmarks.measure import ROOT, peak
from benchmarks.sorted_orders import SortedOrders, key, order_id, partition_of, strategy
from benchmarks.ways import FAKE
from shardkit import ShardedTable, open_source, stage_items

__all__ = ["Staged", "lines", "objects_in", "server", "staged"]

PROCESSES = 2
TO = "s3://benchmark/staged"
DEFINITION: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "Key", "KeyType": "HASH"}, {"AttributeName": "OrderId", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("Key", "OrderId")],
}
_MANIFEST = "staged/manifest.json"
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Staged:
    """What a stage took: µs of CPU an item of all its processes, MB of the largest of them, wall seconds."""

    items: int
    cpu: float
    megabytes: float
    seconds: float
    objects: int
    raw_megabytes: float
    stored_megabytes: float


def lines(orders: SortedOrders) -> Iterator[bytes]:
    """Give the orders as JSON, in the order of their keys: about 270 bytes each as DynamoDB JSON."""
    for number in range(orders.keys):
        made = b'{"Key":"%b","OrderId":"%%b","Customer":"customer-%05d@example.com","Status":"%%b","Total":%%d.5,' % (
            key(number).encode(),
            number * 7919 % 99_991,
        )
        made += b'"Quantity":%d,"Address":"%d Rue de la Fontaine au Roi","Trace":"%016x%016x"}\n'
        for order in range(orders.orders):
            state = (b"open", b"paid", b"sent", b"back")[order % 4]
            yield made % (
                order_id(order).encode(),
                state,
                order * 613 % 1000,
                order % 9 + 1,
                order * 31 % 97,
                *_trace(number, order),
            )


def _trace(number: int, order: int) -> tuple[int, int]:
    """Return two numbers that no compression foresees."""
    mixed = (number * 2_000 + order + 1) * 0x9E3779B97F4A7C15
    return mixed & 0xFFFFFFFFFFFFFFFF, (mixed * 0xC2B2AE3D27D4EB4F >> 32) & 0xFFFFFFFFFFFFFFFF


@contextmanager
def server() -> Iterator[str]:
    """Run a moto server in a process of its own, with an empty bucket, and give its URL."""
    command = [sys.executable, "-m", "benchmarks.stage_job", "serve"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ourselves
    with process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        if not endpoint:
            raise RuntimeError("moto's server did not start: see what it printed above")
        with closing(_s3(endpoint)) as s3:
            s3.create_bucket(Bucket="benchmark")
        yield endpoint


def _s3(endpoint: str) -> Any:
    return boto3.Session(**FAKE, region_name="us-east-1").client("s3", endpoint_url=endpoint)


def staged(orders: SortedOrders) -> tuple[Staged, list[bytes]]:
    """Stage orders in a process that has done nothing before; return what it took, and the partitions of the items."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        endpoint = stack.enter_context(server())
        source = folder / "orders.jsonl"
        with source.open("wb") as file:
            file.writelines(lines(orders))
        command = [sys.executable, "-m", "benchmarks.stage_job", str(source), endpoint, str(orders.shards)]
        ended = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
        return Staged(**json.loads(ended.stdout)), objects_in(endpoint)


def objects_in(endpoint: str) -> list[bytes]:
    """Read what is staged: the partition of each item, object after object."""
    place = cache(partition_of)
    found = []
    with closing(_s3(endpoint)) as s3:
        manifest = orjson.loads(s3.get_object(Bucket="benchmark", Key=_MANIFEST)["Body"].read())
        for one in manifest["objects"]:
            raw = gzip.decompress(s3.get_object(Bucket="benchmark", Key=one["key"])["Body"].read())
            found.append(bytes(place(orjson.loads(line)["Item"]["Key"]["S"]) for line in raw.splitlines()))
    return found


def _measured(source: str, endpoint: str, shards: int) -> Staged:
    session = boto3.Session(**FAKE, region_name="us-east-1")
    connect = partial(_s3, endpoint)
    with closing(connect()) as s3, tempfile.TemporaryDirectory(dir=Path(source).parent) as work:
        table = ShardedTable(session.resource("dynamodb").Table("Orders"), strategy(shards), key_schema=DEFINITION)
        opened = open_source(source, table=table)
        began, before = time.perf_counter(), time.process_time()
        report = stage_items(opened, TO, table=table, processes=PROCESSES, s3=s3, connect=connect, work_dir=work)
        seconds = time.perf_counter() - began
    children = getrusage(RUSAGE_CHILDREN)  # they have ended, and begin with this process's memory at the most
    cpu = time.process_time() - before + children.ru_utime + children.ru_stime
    return Staged(
        items=report.items,
        cpu=cpu / report.items * 1e6,
        megabytes=max(peak() / _MEGABYTE, children.ru_maxrss * 1024 / _MEGABYTE),
        seconds=seconds,
        objects=report.objects,
        raw_megabytes=report.raw_bytes / _MEGABYTE,
        stored_megabytes=(report.bytes or 0) / _MEGABYTE,
    )


def _serve() -> None:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()  # the bench's process may end in any way: its end of the pipe is closed then
    made.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        _serve()
    else:
        print(json.dumps(asdict(_measured(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
