"""A program with many results, which reads machines in turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from shardkit.core.machine import Answer, Done, Machine, Send, Step, Wait

T = TypeVar("T")
R = TypeVar("R")
ChainProgram = Generator[Machine[Any] | Wait | Done[T], Any, R]
"""It yields a machine (and gets its next result, or the exception that it raises), ``Wait()`` (and gets the time), or a
result of its own, after which it goes on when it is asked for the next one."""


class Chain(Generic[T]):
    """Runs a :data:`ChainProgram` as a machine.

    A machine that is not read may have requests in flight: each answer goes to the machine that sent the request.
    """

    def __init__(self, program: ChainProgram[T, Any]) -> None:
        self._program = program
        self._reads: Machine[Any] | None = None
        self._senders: dict[Send, Machine[Any]] = {}

    def next(self, now: float) -> Step[T]:
        pending: Machine[Any] | Wait | Done[T] = self._reads or self._program.send(None)
        while True:
            if isinstance(pending, Done):
                self._reads = None
                return pending
            if isinstance(pending, Wait):
                pending = self._program.send(now)
                continue
            self._reads = pending
            try:
                step = pending.next(now)
            except Exception as error:  # noqa: BLE001 - the program handles it
                pending = self._program.throw(error)
                continue
            if isinstance(step, Done):
                pending = self._program.send(step.value)
                continue
            if isinstance(step, Send):
                self._senders[step] = pending
            return step

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._senders.pop(send).receive(send, answer, now)
