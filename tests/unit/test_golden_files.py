"""Journals and dead letters outlive a release: today's code reads and writes those that are kept, byte for byte."""

from __future__ import annotations

import shutil
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from shardkit import BulkResult, RandomSuffix
from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.journal import Journal
from shardkit.bulk.load import Loading, LoadOptions
from shardkit.bulk.sources.base import BadRecord, Place
from shardkit.bulk.sources.opening import open_source
from shardkit.bulk.writes import DeadLetter
from shardkit.core.machine import Done, Send, Wait
from tests.support.disks import places_in
from tests.support.fakes import Clock, Service, client_error, sharding, some
from tests.support.strategies import VECTORS

HEADER = {
    "table": "Orders",
    "keys": {"Date": "S", "OrderId": "N"},
    "strategy": RandomSuffix(200).to_dict(),
    "source": {"source": "iterable", "total": 1_000_000},
}
LOAD = uuid.UUID(int=0x4F0C)
RECORDS: list[tuple[list[Place], bool]] = [
    ([Place(0, number) for number in (0, 1, 2, 4)], False),
    ([Place(3, 7)], False),
    ([Place(0, 3), Place(0, 9)], True),
    ([Place(0, 5), Place(0, 6)], False),
]
DONE = {place for places, _ in RECORDS for place in places}


def begun(path: Path) -> Journal:
    with patch("uuid.uuid4", return_value=LOAD):
        journal = Journal(path, HEADER, clock=Clock())
    for places, failed in RECORDS:
        journal.record(places, failed=failed)
    return journal


def test_a_journal_is_written_as_ever(tmp_path: Path) -> None:
    """As a kill leaves it, as it is rewritten when it is opened again, and when its load has ended."""
    path = tmp_path / "orders.journal"
    journal = begun(path)
    assert path.read_bytes() == (VECTORS / "killed.journal").read_bytes()
    journal.close()
    assert path.read_bytes() == (VECTORS / "resumed.journal").read_bytes()
    journal = Journal(path, HEADER)
    journal.close(ended=True)
    assert path.read_bytes() == (VECTORS / "ended.journal").read_bytes()


@pytest.mark.parametrize("name", ["killed", "resumed", "ended"])
def test_a_journal_is_read_as_ever(name: str, tmp_path: Path) -> None:
    """Its load goes on under the same id (random suffixes hang on it), with the same places done."""
    path = tmp_path / "orders.journal"
    shutil.copyfile(VECTORS / f"{name}.journal", path)
    journal = Journal(path, HEADER)
    assert {Place(cursor, number) for cursor in range(5) for number in range(12)} & DONE == {
        Place(cursor, number) for cursor in range(5) for number in range(12) if journal.done(Place(cursor, number))
    }
    assert (journal.load, places_in(path), journal.failed, journal.ended) == (LOAD.hex, 9, 2, name == "ended")
    journal.close()
    assert path.read_bytes() == (VECTORS / f"{'ended' if name == 'ended' else 'resumed'}.journal").read_bytes()


def test_a_load_goes_on_as_ever(tmp_path: Path) -> None:
    """One of an iterable: its journal's header, and the shards that are drawn for its items, are what they were."""
    path = tmp_path / "load.journal"
    shutil.copyfile(VECTORS / "load_killed.journal", path)
    table, service = sharding(RandomSuffix(10)), Service()
    options = LoadOptions(journal=path)
    with Loading(table, some(30), options, workers=1, draw=lambda: 0.5) as loading:
        load = loading.load
        records, now = loading.records(), 0.0
        while not load.ended:
            if load.wants:
                loading.fill(records)
            step = load.next(now)
            if isinstance(step, Send):
                load.receive(step, service.answer(step, now), now)
            elif isinstance(step, Done):
                loading.keep()
            else:
                assert isinstance(step, Wait)
                assert step.until is not None
                now = step.until
    assert load.report.resumed == 20
    header, *lines = path.read_bytes().splitlines()
    assert header == (VECTORS / "load_killed.journal").read_bytes().splitlines()[0]
    assert [line[9:] for line in lines] == [b'{"cursor":0,"ranges":[[0,30]]}', b'{"ended":true}']
    # By the first six bytes of SHA-256 of load:cursor:number.
    shards = [table.logical({"S": pk})[1] for pk, _ in sorted(service.items, key=lambda key: str(key[1]))]
    assert shards == [7, 9, 4, 10, 7, 9, 4, 7, 3, 2]


ITEM: dict[str, Any] = {
    "Date": "2014-07-09",
    "OrderId": Decimal("-1.50"),
    "photo": b"\x00\xff",
    "note": 'é"\\\n\x01',
    "gift": True,
    "none": None,
    "list": [1, "x", {"a": b""}],
    "map": {"b": Decimal("1E+100")},
    "tags": {"a"},
    "numbers": {7},
    "photos": {b"\x01"},
}


def letters_of(path: Path) -> None:
    letters = DeadLetters(path, load=LOAD.hex, where=lambda place: f"orders.csv, line {place.number + 1}")
    refused = client_error("ValidationException", "too bad")
    for number, (item, shard, error) in enumerate(
        [
            (ITEM, 57, refused),
            ({"Date": "2014-07-09", "OrderId": 2}, None, refused),
            (BadRecord("2014-07-09;A17\udcff", ValueError("two columns")), None, ValueError("two columns")),
            ({"Date": 1.5}, None, TypeError("a float")),
        ]
    ):
        letters.add([(Place(1, number), BulkResult(item, number, shard, ok=False, error=error))])
    letters.close()


def test_dead_letters_are_written_as_ever(tmp_path: Path) -> None:
    """Items as DynamoDB JSON, with and without a shard, and what only stands there as text."""
    letters_of(tmp_path / "dead.jsonl")
    assert (tmp_path / "dead.jsonl").read_bytes() == (VECTORS / "dead_letters.jsonl").read_bytes()


def test_dead_letters_are_read_as_ever(tmp_path: Path) -> None:
    """They are loaded again as they are, and stay when the load goes on that left them."""
    path = tmp_path / "dead.jsonl"
    shutil.copyfile(VECTORS / "dead_letters.jsonl", path)
    first, second, *bad = [record for _, record in open_source(str(path), format="dynamodb").read()]
    assert isinstance(first, DeadLetter)
    assert (dict(first), first.shard) == (ITEM, 57)
    assert second == {"Date": "2014-07-09", "OrderId": 2}
    assert not isinstance(second, DeadLetter)
    assert [type(record) for record in bad] == [BadRecord, BadRecord]
    letters = DeadLetters(path, load=LOAD.hex, where=str, done=lambda place: place.number != 1)
    letters.close()
    lines = (VECTORS / "dead_letters.jsonl").read_bytes().splitlines(keepends=True)
    assert path.read_bytes().splitlines(keepends=True) == [lines[0], *lines[2:]]
