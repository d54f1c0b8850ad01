"""A program that reads machines in turn."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from shardkit.core.chain import Chain, ChainProgram
from shardkit.core.machine import Answer, Done, Send, Step, Wait


class Reader:
    """Sends requests ahead; each result is the next answer."""

    def __init__(self, *sends: Send) -> None:
        self.to_send = deque(sends)
        self.answers: deque[Answer] = deque()

    def next(self, now: float) -> Step[Answer]:
        if self.to_send:
            return self.to_send.popleft()
        if not self.answers:
            return Wait()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return Done(answer)

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self.answers.append(answer)


def test_an_answer_goes_to_the_machine_that_asked() -> None:
    """Also while another machine is read."""
    ahead, other = Send("Query", {"n": 1}), Send("Query", {"n": 2})
    later, now = Send("Query", {"n": 3}), 5.0
    first, second = Reader(ahead, later), Reader(other)

    def reading() -> ChainProgram[Any, Any]:
        found = [(yield first), (yield second)]
        found.append((yield Wait()))
        yield Done(found)
        yield Done((yield first))

    chain = Chain[Any](reading())
    assert (chain.next(0.0), chain.next(0.0), chain.next(0.0)) == (ahead, later, Wait())
    chain.receive(ahead, {"n": 1}, 0.0)
    assert chain.next(0.0) is other
    chain.receive(later, {"n": 3}, 0.0)
    assert chain.next(0.0) == Wait()
    chain.receive(other, {"n": 2}, 0.0)
    assert chain.next(now) == Done([{"n": 1}, {"n": 2}, now])
    assert chain.next(now) == Done({"n": 3})


def test_an_error_is_raised_in_the_program() -> None:
    sends = [Send("Query", {}), Send("Query", {})]

    def reading() -> ChainProgram[Any, Any]:
        reader = Reader(*sends)
        try:
            yield reader
        except ValueError as error:
            yield Done(str(error))
        yield reader

    chain = Chain[Any](reading())
    for _ in sends:
        chain.next(0.0)
    chain.receive(sends[1], ValueError("first"), 0.0)
    assert chain.next(0.0) == Done("first")
    chain.receive(sends[0], ValueError("second"), 0.0)
    with pytest.raises(ValueError, match="second"):
        chain.next(0.0)
