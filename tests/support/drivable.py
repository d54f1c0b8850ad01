"""Machines for the drivers: so many requests side by side, one after another, a wait beside one."""

from __future__ import annotations

from typing import Any

from shardkit.core.machine import Answer, Done, Program, Send, Step, Wait


class Many:
    """So many requests side by side; its result is the operations answered since the last time."""

    def __init__(self, count: int, *, each: bool = False) -> None:
        self.left = [Send(str(number), {}) for number in range(count)]
        self.answered: list[str] = []
        self.under_way = self.most = 0
        self.each = each

    def next(self, now: float) -> Step[list[str]]:
        if self.each and self.answered:
            answered, self.answered = self.answered, []
            return Done(answered)
        if self.left:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            return self.left.pop(0)
        return Wait() if self.under_way else Done(self.answered)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.under_way -= 1
        assert answer == {"is": send.operation}
        self.answered.append(send.operation)


class Streaming(Many):
    """Hands out what it has and is done for now; ``patient``: waits for all answers; ``raising``: fails instead."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.patient = False
        self.raising: type[BaseException] | None = None

    def next(self, now: float) -> Step[list[str]]:
        if self.raising is not None:
            raise self.raising
        step = super().next(now)
        return Done([]) if isinstance(step, Wait) and not self.patient else step


class WaitsBeside:
    def __init__(self) -> None:
        self.sent = False
        self.done: list[str] = []
        self.turns = 0

    def next(self, now: float) -> Step[list[str]]:
        if not self.sent:
            self.sent = True
            return Send("0", {})
        self.turns += 1
        return Done(self.done) if self.done else Wait(now)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.done.append(send.operation)


class Racer(Send):
    """A request whose answer is needed until its race is over."""

    @property
    def needed(self) -> bool:
        return not self.params["race"].won


class Race:
    """Two requests; its result is the one that is answered first."""

    def __init__(self) -> None:
        self.left = [Racer(name, {"race": self}) for name in "01"]
        self.won: list[str] = []

    def next(self, now: float) -> Step[list[str]]:
        if self.left:
            return self.left.pop(0)
        return Done(self.won) if self.won else Wait()

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.won.append(send.operation)


class WaitsForNothing:
    def next(self, now: float) -> Step[None]:
        return Wait()

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        raise AssertionError


def answer(send: Send) -> Answer:
    return {"is": send.operation}


def two_in_a_row() -> Program[list[Any]]:
    return [(yield Send("0", {})), (yield Send("1", {}))]
