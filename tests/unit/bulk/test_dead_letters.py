"""The dead letters of a load: what failed, why, and how it can be loaded again."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit import BulkResult, ConfigurationError, RandomSuffix, ShardkitError
from shardkit.bulk.dead_letters import DeadLetters
from shardkit.bulk.sources.base import BadRecord, Place
from shardkit.bulk.sources.opening import open_source
from shardkit.dynamodb.decode import from_wire_item
from tests.support.disks import full_disk
from tests.support.fakes import Fault, Service, a_load, client_error, drive, sharding, some

LOAD = "4f0c"
ITEM: dict[str, Any] = {
    "Date": "2014-07-09",
    "Total": Decimal("1.50"),
    "photo": b"\x00\xff",
    "tags": {"a"},
    "l": [None],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dead.jsonl"


def where(place: Place) -> str:
    return f"orders.csv, line {place.number + 1}"


def failed(number: int, item: Any = ITEM, error: Exception | None = None) -> tuple[Place, BulkResult]:
    place = Place(0, number)
    return place, BulkResult(
        item, number, None, ok=False, error=error or client_error("ValidationException", "too bad")
    )


def opened(path: Path, **options: Any) -> DeadLetters:
    return DeadLetters(path, **{"load": LOAD, "where": where, **options})


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def places(path: Path) -> list[tuple[str, int]]:
    return [(letter["load"], letter["at"][1]) for letter in written(path)]


def test_an_item_that_failed(path: Path) -> None:
    """It is in the file as DynamoDB JSON, with its place and reason, before the file is closed."""
    letters = opened(path)
    letters.add([failed(17)])
    (letter,) = written(path)
    assert from_wire_item(letter.pop("Item")) == ITEM
    said = letter.pop("reason")
    assert "too bad" in said
    assert letter == {"place": "orders.csv, line 18", "code": "ValidationException", "load": LOAD, "at": [0, 17]}
    letters.close()
    letters.close()


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (BadRecord("2014-07-09;A17", ValueError("two columns, not three")), "2014-07-09;A17"),
        (BadRecord("2014\udcff", ValueError("no UTF-8")), r"2014\udcff"),
        ({"Date": 1.5}, "{'Date': 1.5}"),
        ({"Date": "\ud800"}, r"{'Date': '\ud800'}"),
        ({1: "2014-07-09"}, "{1: '2014-07-09'}"),
        ("no item", "'no item'"),
    ],
)
def test_what_has_no_form_in_dynamodb_json_stands_as_text(path: Path, item: Any, text: str) -> None:
    letters = opened(path, where=lambda _: "orders-\udcff.csv")
    letters.add([failed(0, item, ValueError("bad \ud800")), failed(1)])
    letters.close()
    first, second = written(path)
    assert "Item" not in first
    assert (first["text"], first["code"], first["reason"]) == (text, "ValueError", r"bad \ud800")
    assert first["place"] == r"orders-\udcff.csv"
    assert "Item" in second


def test_nothing_failed(path: Path) -> None:
    letters = opened(path)
    letters.add([])
    letters.close()
    assert path.read_bytes() == b""


def test_a_load_that_is_resumed(path: Path) -> None:
    """A letter that the journal does not hold is taken out, for its item comes again; other loads' letters stay."""
    for load, number in [(LOAD, 1), ("other", 1), (LOAD, 2), ("other", 2)]:
        letters = opened(path, load=load)
        letters.add([failed(number)])
        letters.close()
    letters = opened(path, done=lambda place: place == Place(0, 1))
    letters.add([failed(3)])
    letters.close()
    assert places(path) == [(LOAD, 1), ("other", 1), ("other", 2), (LOAD, 3)]


@given(kept=st.floats(0, 1), garbage=st.integers(0, 5).map(bytes))
def test_a_letter_that_was_torn(tmp_path_factory: pytest.TempPathFactory, kept: float, garbage: bytes) -> None:
    """Lost power leaves a part of the last letter, or nothing where it should be; the ones before stay."""
    path = tmp_path_factory.mktemp("torn") / "dead.jsonl"
    letters = opened(path)
    letters.add([failed(0)])
    letters.close()
    line = path.read_bytes()
    path.write_bytes(line + line[: int(kept * (len(line) - 1))] + garbage)
    letters = opened(path)
    letters.add([failed(1)])
    letters.close()
    assert places(path) == [(LOAD, 0), (LOAD, 1)]


@pytest.mark.parametrize(
    "content",
    [b"Date,OrderId\n", b"Date", b"{}", b'{"Item":{}}\n', b"[]\n",
        b'{"Item":{},"reason":"","load":"","at":[]}\nx\n', b'{"Jtem":{},"reason":"","load":"","at":[0,1]}\n',
        b'{"Item":{},"reason":"","load":"4f0c","at":[0.1]}\n']
)  # fmt: skip
@pytest.mark.parametrize("done", [None, lambda _: False])
def test_a_file_of_something_else_is_left_as_it_is(path: Path, content: bytes, done: Any) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is not a file of dead letters"):
        opened(path, done=done)
    assert path.read_bytes() == content


def test_one_load_at_a_time(path: Path) -> None:
    letters = opened(path)
    with pytest.raises(ConfigurationError, match=r"dead_letters: .* is in use by another process"):
        opened(path)
    letters.close()
    opened(path).close()


def test_a_full_disk(path: Path) -> None:
    """The error is raised, nothing is added behind half a letter, and the letters before stay."""
    letters = opened(path)
    letters.add([failed(0)])
    with (
        full_disk(path.stat().st_size + 30),
        pytest.raises(ShardkitError, match=rf"^dead_letters: '.*{path.name}' cannot be written \(.*too large"),
    ):
        letters.add([failed(1)])
    with pytest.raises(ValueError, match="closed"):
        letters.add([failed(2)])
    opened(path).close()
    assert places(path) == [(LOAD, 0)]


@pytest.mark.parametrize("shards", [40, 3])
def test_an_item_that_failed_and_was_written_after_all(path: Path, shards: int) -> None:
    """Loaded again, it goes to the shard that was drawn for it; of another number of shards, to one that there is."""
    # The first batch is written ten times without an answer that comes; the second one's says that the network is up.
    lost: Fault = "lost after"
    service = Service([lost, "none", *repeat(lost, 9)])
    first = a_load(sharding(RandomSuffix(40)), workers=2, spread=lambda place, _: place / 50)
    results = [result for result in drive(first, some(50), service) if not result.ok]
    assert len(results) == 25
    assert len(service.items) == 50
    letters = opened(path)
    letters.add((Place(0, result.place), result) for result in results)
    letters.close()
    again = a_load(sharding(RandomSuffix(shards)), spread=lambda *_: 0.999)
    drive(again, [record for _, record in open_source(str(path), format="dynamodb").read()], service)
    assert again.report.written == 25
    kept = sum(result.shard is not None and result.shard <= shards for result in results)
    assert len(service.items) == 50 + 25 - kept
    assert again.report.per_shard.keys() == {
        result.shard if result.shard is not None and result.shard <= shards else shards for result in results
    }


@pytest.mark.parametrize("shard", ["7", True, 0, -1, 7.0, None, [7]])
def test_a_shard_that_is_none(path: Path, shard: Any) -> None:
    """What somebody wrote there by hand is not taken for one."""
    letter = {"Item": {"pk": {"S": "U1"}, "sk": {"S": "1"}}, "shard": shard, "reason": "", "load": LOAD, "at": [0, 0]}
    path.write_text(json.dumps(letter) + "\n", "utf-8")
    load, service = a_load(sharding(RandomSuffix(8)), spread=lambda *_: 0.999), Service()
    drive(load, [record for _, record in open_source(str(path), format="dynamodb").read()], service)
    assert list(load.report.per_shard) == [8]
