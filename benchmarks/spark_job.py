"""The CPU of ``shardkit.spark.write`` on ``local[2]`` beside that of ``bulk_load``, from one Parquet file.

``python -m benchmarks.spark_job 1_000_000``; it needs pyspark and Java. The CPU of the driver and of Spark's Python
workers is Python's; that of the JVM, which reads the file and shuffles its rows, is told apart. That of the stub, which
is below this process as well, is left out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchmarks import ways
from benchmarks.measure import ROOT
from benchmarks.orders import order_id, strategy_of, wire_order
from benchmarks.stub import stub
from shardkit import bulk_load, open_source

__all__ = ["Job", "Process", "cpu_of_processes", "measured", "parquet", "processes"]

CORES = 2
SHARDS = 200
_TICK = os.sysconf("SC_CLK_TCK")
_CHUNK = 50_000


@dataclass(frozen=True)
class Job:
    """CPU of a write in µs an item: of ``bulk_load``, of Spark's Python processes, and of the JVM."""

    spark: str
    transport: str
    items: int
    requests: int
    load: float
    python: float
    jvm: float


@dataclass(frozen=True)
class Process:
    """A program that runs, the process above it, and the CPU seconds of it and of those it has waited for."""

    name: str
    parent: int
    used: float
    waited: float


def cpu_of_processes(root: int, *, without: Collection[int] = ()) -> dict[str, float]:
    """Return the CPU seconds so far of a process and of all below it, by the name of the program.

    A process that has ended counts with the one that waited for it. ``without`` are processes that do not count, nor
    what is below them.
    """
    known = processes()
    found: dict[str, float] = {}
    for number, one in known.items():
        ancestor = number
        while ancestor not in {root, 0, *without}:
            ancestor = known[ancestor].parent if ancestor in known else 0
        if ancestor == root:
            # What the root has waited for is no part of the write.
            found[one.name] = found.get(one.name, 0.0) + one.used + (0.0 if number == root else one.waited)
    return found


def processes() -> dict[int, Process]:
    """Return all processes of this machine, by their ids."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = entry.read_text(encoding="utf-8").rpartition(")")
        except OSError:  # it has ended since
            continue
        number, _, name = head.partition(" (")
        fields = tail.split()
        used, waited = (sum(map(int, fields[at : at + 2])) / _TICK for at in (11, 13))
        found[int(number)] = Process(name, int(fields[1]), used, waited)
    return found


def parquet(file: Path, items: int) -> None:
    """Write so many orders of a day to a Parquet file, sorted by their ids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = {name: next(iter(value.values())) for name, value in wire_order("2014-07-09", order_id(0)).items()}
    columns: dict[str, Any] = {name: value for name, value in first.items() if name != "OrderId"}
    with ExitStack() as stack:
        writer = None
        for start in range(0, items, _CHUNK):
            count = min(_CHUNK, items - start)
            made = {name: [value] * count for name, value in columns.items()}
            made["Total"] = [float(number % 1000) + 0.5 for number in range(start, start + count)]
            made["Quantity"] = [number % 9 + 1 for number in range(start, start + count)]
            made["Weight"] = [number % 5000 + 10_000 for number in range(start, start + count)]
            made["OrderId"] = [order_id(number) for number in range(start, start + count)]
            table = pa.table(made)
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(file, table.schema))
            writer.write_table(table)


def measured(items: int, transports: Sequence[Literal["client", "direct"]]) -> Iterator[Job]:
    """Write a Parquet file of orders by ``bulk_load`` and by Spark, one after the other."""
    from pyspark.sql import SparkSession

    import shardkit.spark

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    settings = {"spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    with ExitStack() as stack:
        endpoint = stack.enter_context(stub(forgets=True))
        # The stub, which runs below this process too, is no part of a write.
        others = [number for number, one in processes().items() if one.parent == os.getpid()]
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "orders.parquet"
        parquet(file, items)
        builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.driver.host", "127.0.0.1")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        session.sparkContext.setLogLevel("ERROR")
        for transport in transports:
            with ways.sharded(endpoint, SHARDS, transport=transport) as table:
                began = time.process_time()
                loaded = bulk_load(table, open_source(file))
                load = time.process_time() - began
            before = cpu_of_processes(os.getpid(), without=others)
            report = shardkit.spark.write(
                session.read.parquet(str(file)),
                table="Orders",
                strategy=strategy_of(SHARDS),
                connect=partial(ways.connected, endpoint, 10),
                transport=transport,
            )
            after = cpu_of_processes(os.getpid(), without=others)
            if not loaded.written == report.written == items:
                raise RuntimeError(f"{loaded.written:,} and {report.written:,} orders were written of {items:,}")
            spent = {name: seconds - before.get(name, 0) for name, seconds in after.items()}
            jvm = spent.pop("java", 0)
            yield Job(
                spark=version("pyspark"),
                transport=transport,
                items=items,
                requests=report.requests,
                load=load / items * 1e6,
                python=sum(spent.values()) / items * 1e6,
                jvm=jvm / items * 1e6,
            )


if __name__ == "__main__":
    for job in measured(int(sys.argv[1]), ("client", "direct")):
        print(json.dumps(asdict(job)), flush=True)
