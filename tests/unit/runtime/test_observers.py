"""Who holds a call, in which order, and what becomes of it when one refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shardkit.runtime.observers import Call, Holder, hold, holders_of, show


class Watcher:
    """An observer that holds nothing; ``seen`` is shared, so that it has the order."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    def before(self, call: Call) -> None:
        self.seen.append(f"{self.name} before")

    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        self.seen.append(f"{self.name} failed")

    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        self.seen.append(f"{self.name} after")


class Gate(Watcher, Holder):
    """One that holds, and may refuse."""

    refusal: BaseException | None = None

    def hold(self, call: Call) -> None:
        self.seen.append(f"{self.name} holds")
        if self.refusal is not None:
            raise self.refusal

    async def hold_async(self, call: Call) -> None:
        self.hold(call)

    def release(self, call: Call) -> None:
        self.seen.append(f"{self.name} lets go")


def a_call(seen: list[str]) -> tuple[Call, Gate, Gate]:
    first, second = Gate("first", seen), Gate("second", seen)
    return Call("GetItem", {}, observers=(first, Watcher("watcher", seen), second)), first, second


def test_all_who_hold_are_asked_in_turn() -> None:
    seen: list[str] = []
    hold(a_call(seen)[0])
    assert seen == ["first holds", "second holds"]


@pytest.mark.parametrize("refusal", [ValueError("no"), KeyboardInterrupt()])
def test_when_one_refuses_all_let_go(refusal: BaseException) -> None:
    seen: list[str] = []
    call, first, _ = a_call(seen)
    first.refusal = refusal
    with pytest.raises(type(refusal)):
        hold(call)
    assert seen == ["first holds", "first lets go", "second lets go"]


def test_a_call_without_holders_goes() -> None:
    with holders_of(Call("GetItem", {}, observers=(Watcher("watcher", []),))) as holders:
        assert holders == []


def test_who_saw_the_request_last_sees_the_response_first() -> None:
    seen: list[str] = []
    show(a_call(seen)[0], {})
    assert seen == ["second after", "watcher after", "first after"]
