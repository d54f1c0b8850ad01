"""Passes in a process of their own, which tests kill; and a writer beside them."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

import boto3
from boto3.dynamodb.conditions import Attr
from botocore.config import Config

from shardkit import CalculatedSuffix, ShardedTable
from shardkit.passes import compare, copy, delete, update

TEN = CalculatedSuffix("OrderId", 10)
FAST: dict[str, Any] = {"write_units": None, "read_units": None, "segments": 20, "transport": "direct"}


def table_at(endpoint: str, name: str) -> Any:
    config = Config(max_pool_connections=10, retries={"total_max_attempts": 2})
    return boto3.resource("dynamodb", endpoint_url=endpoint, config=config).Table(name)


@dataclass
class Job:
    """A pass: ``add`` one to each item's ``n``, ``delete`` those with an even ``half``, ``copy``, ``compare``.

    Its files are in ``folder``, named after it.
    """

    kind: str
    endpoint: str
    name: str
    folder: Path
    target: str = ""

    def run(self) -> None:
        """Run it to its end, and leave its report."""
        table = table_at(self.endpoint, self.name)
        files: Any = {"journal": self.folder / f"{self.kind}.journal"}
        if self.kind == "add":
            one: Any = {"ExpressionAttributeValues": {":one": 1}}
            report: Any = update(table, "SET n = n + :one", before=self.before, **one, **files, **FAST)
        elif self.kind == "delete":
            report = delete(table, where=Attr("half").eq(0), before=self.before, **files, **FAST)
        else:
            target = ShardedTable(table_at(self.endpoint, self.target), TEN)
            report = (
                copy(table, target, **files, **FAST)
                if self.kind == "copy"
                else compare(table, target, read_units=None, segments=20, transport="direct", **files)
            )
        (self.folder / f"{self.kind}.report").write_text(repr(report), encoding="utf-8")

    @property
    def before(self) -> Path:
        return self.folder / f"{self.kind}.jsonl"


@dataclass
class Writer:
    """Adds to the ``m`` of items, one after another, until it is left; ``written`` counts it by the order's number."""

    table: Any
    items: int
    written: Counter[int] = field(default_factory=Counter)

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        rng = Random(self.items)
        while not self._ended.is_set():
            number = rng.randrange(self.items)
            values = {":one": 1}
            self.table.update_item(Key=key(number), UpdateExpression="ADD m :one", ExpressionAttributeValues=values)
            self.written[number] += 1


def key(number: int) -> dict[str, Any]:
    return {"Date": f"d{number % 50}", "OrderId": f"A{number:06}"}
