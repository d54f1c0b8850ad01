"""What the check of a history finds wrong in what processes wrote down; and what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.histories.faults import FAULTS, mutant
from tests.histories.judge import History, Judged
from tests.histories.records import Recorder
from tests.support.mutated import mutated

SECOND = 1_000_000_000
A, B = ["k0", "p1"], ["k0", "p2"]


class Story:
    """Writes a history: each operation a second after the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, SECOND
        (folder / "proxy.log").touch()
        self.did("seed", "puts", [A, B], "0")

    def did(self, by: str, kind: str, *given: Any, answer: Any = "any", error: str | None = None) -> None:
        recorder, number = Recorder(self.folder / f"{by}.jsonl", by), self.now
        recorder.write({"p": by, "i": number, "t": self.now, "f": kind, "a": given})
        ended = {"r": answer} if error is None else {"e": error}
        recorder.write({"p": by, "i": number, "t": self.now + SECOND // 2, **ended})
        self.now += SECOND

    def stage(self, stage: str) -> None:
        Recorder(self.folder / "admin.jsonl", "admin").write({"stage": stage, "t": self.now})

    def request(self, by: str, *, stage: str | None = None, generation: int = 1, signed: float | None = None) -> None:
        """Write that a request went, or a read of the map; ``signed``: so many seconds before the next operation."""
        note = {"p": by, "op": "GetItem", "fault": "none", "came": self.now, "sent": self.now}
        note |= {"signed": self.now - int((signed or 0) * SECOND), "answered": self.now + 1000}
        if stage is not None:
            note["map"] = [generation, stage]
        Recorder(self.folder / "proxy.log", "proxy").write(note)
        self.now += 2000

    def judged(self) -> Judged:
        return History(self.folder, lease_seconds=0.6, ttl_seconds=2.2).judge()


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


BOTH = [[A, ["0", None]], [B, ["0", None]]]


def test_right(story: Story) -> None:
    story.did("w", "put", A, "1")
    story.did("w", "cached", A, answer=["1", None])
    story.did("x", "cached", A, answer=["0", None])  # as old as it may be
    story.did("w", "query", "k0", "sk", False, answer=[[B, ["0", None]], [A, ["1", None]]])
    story.did("w", "index", answer=[[[A, ["0", None]]], [[B, ["0", None]], [A, ["1", None]]]])
    story.did("w", "put", A, "2", error="ConnectionClosedError: lost")
    story.did("w", "scan", answer=[[A, ["2", None]], [B, ["0", None]]])
    judged = story.judged()
    assert judged.problems == []
    assert (judged.operations["put"], judged.unknown, judged.errors) == (2, 1, {"ConnectionClosedError": 1})


WRONG: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "an item is missing": (("scan",), BOTH[:1], "k0/p2: no order explains its 2 operations"),
    "an item is there twice": (("query", "k0", "sk", True), [BOTH[0], *BOTH], "twice"),
    "an item of nobody": (("scan",), [*BOTH, [["k0", "q"], ["0", None]]], "which nobody wrote"),
    "a value of nobody": (("batch get", [A]), [[A, ["9", None]]], "k0/p1: no order"),
    "another order": (("query", "k0", "sk", True), BOTH[::-1], "in another order"),
    "an index misses an item": (("index",), [BOTH[:1]], "misses [('k0', 'p2')]"),
    "an index has a value of nobody": (("index",), [[*BOTH, [A, ["9", None]]]], "which nobody wrote"),
    "a mark is shown": (("get", A), ["an item with {'shardkit:move'}", None], "k0/p1: no order"),
    "two items of one key": (("move",), [2, 0, 1], "1 items at two places"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str, story: Story) -> None:
    given, answer, said = WRONG[name]
    story.did("w", *given, answer=answer)
    problems = story.judged().problems
    assert any(said in one for one in problems), problems


def test_an_index_may_miss_items_while_they_move(story: Story) -> None:
    story.stage("move")
    story.did("w", "index", answer=[BOTH[:1]])
    assert story.judged().problems == []


def test_a_copy_is_too_old(story: Story) -> None:
    story.did("w", "put", A, "1")
    story.now += 3 * SECOND
    story.did("x", "cached", A, answer=["0", None])
    judged = story.judged()
    assert judged.problems == ["k0/p1: no order explains its 3 operations"]
    assert [one.call for one in judged.witness] == [("put", "1"), ("get",)]


def test_a_copy_is_older_than_an_own_write(story: Story) -> None:
    story.did("x", "put", A, "1")
    story.did("x", "cached", A, answer=["0", None])
    assert story.judged().problems == ["k0/p1: no order explains its 3 operations"]


def test_errors_that_no_lost_request_explains(story: Story) -> None:
    story.did("w", "get", A, error="AmbiguousItemError: Key: …")
    assert story.judged().problems == ["w: get raised AmbiguousItemError: Key: …"]


def test_a_request_without_a_lease(story: Story) -> None:
    story.request("w", stage="old")
    story.request("w")
    story.now += SECOND
    story.request("w", signed=0.9)  # on its way for long
    assert story.judged().problems == []
    story.request("w")
    assert story.judged().problems == ["w: a request went without a lease"]


def test_a_stage_after_the_next_but_one(story: Story) -> None:
    story.request("w", stage="guard", generation=2)
    story.request("x", stage="move", generation=4)
    story.request("x")
    assert story.judged().problems == []
    story.request("w")
    assert story.judged().problems == ["w: acted in 'guard' after others in the next stage but one"]


def test_a_map_that_goes_back(story: Story) -> None:
    story.request("w", stage="guard", generation=2)
    story.request("x", stage="old", generation=1)
    assert story.judged().problems == ["the map was of generation 1 after 2"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str) -> None:
    """The code still has its text. Otherwise every process of a history would end at once, which is wrong too."""
    with mutated(mutant(name)):
        pass
