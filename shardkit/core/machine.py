"""The one protocol of the pure rooms.

A machine decides, a driver carries (:mod:`shardkit.runtime.drivers`). The rules:

1. The driver asks ``next(now)``; the machine answers with one step and never blocks.
2. ``Send``: start this request. The machine is asked again at once: requests run side by side, as many as it starts.
3. ``Wait``: nothing to start now. Ask again when a response has come, or at ``until`` (seconds on the driver's
   clock), whichever is first.
4. ``Done``: here is the result. Requests may still be under way: a machine that streams is asked again later.
5. Every ``Send`` is answered once, in any order, by ``receive(send, answer, now)``: the response's wire form, or the
   exception that the call ended in. What to do about an exception is the machine's decision.
6. A machine that raises from ``next`` has failed; it is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Answer", "Done", "Machine", "Program", "Response", "Send", "Step", "Steps", "Wait"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Response = dict[str, Any]
Answer = Response | Exception


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Start a request: the operation's API name (``"Query"``) and its parameters in wire form.

    ``paced``: the machine decides what a throttle means, and sees the first; botocore does not retry it. ``read``: a
    pure function that makes of the response what the machine wants of it, called where the response comes in, so that
    its wire form, the largest there is, does not wait for the machine's turn.
    """

    operation: str
    params: Mapping[str, Any]
    paced: bool = False
    read: Callable[[Response], Any] | None = None

    def answer(self, response: Response) -> Any:
        """Give the answer that the machine wants of a response."""
        return response if self.read is None else self.read(response)


@dataclass(frozen=True, slots=True)
class Wait:
    """Start nothing until a response comes or the driver's clock shows ``until`` (None: until a response comes)."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """The result."""

    value: T_co


Step = Send | Wait | Done[T_co]


class Machine(Protocol[T_co]):
    """What a driver can run."""

    def next(self, now: float) -> Step[T_co]:
        """Decide the next step at the time ``now``."""

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take the answer to an earlier ``Send``."""


Program = Generator["Send | Wait | Machine[Any]", Any, T]
"""A machine written in the order in which it happens: each ``yield`` hands over a request (and gets its response, or
its exception raised), a wait, or another machine (and gets its result)."""


class Steps(Generic[T]):
    """Runs a :data:`Program` as a machine: one thing after another.

    ``begun``: what a program that was begun elsewhere has yielded, and waits for.
    """

    def __init__(self, program: Program[T], begun: Send | Wait | Machine[Any] | None = None) -> None:
        self._program = program
        self._pending = begun
        self._sent = False
        self._result: Done[T] | None = None
        self._error: Exception | None = None
        if begun is None:
            self._advance(None)

    def next(self, now: float) -> Step[T]:
        """Decide the next step at the time ``now``."""
        while self._result is None:
            if self._error is not None:
                raise self._error
            pending = self._pending
            if isinstance(pending, Send):
                if self._sent:
                    return Wait()
                self._sent = True
                return pending
            if isinstance(pending, Wait):
                if pending.until is not None and now < pending.until:
                    return pending
                self._advance(now)
                continue
            assert pending is not None
            try:
                step = pending.next(now)
            except Exception as error:  # noqa: BLE001 - the program decides, as with a call of its own
                self._throw(error)
                continue
            if not isinstance(step, Done):
                return step
            self._advance(step.value)
        return self._result

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take the answer to an earlier ``Send``."""
        if send is not self._pending:
            assert self._pending is not None and not isinstance(self._pending, Send | Wait)
            try:
                self._pending.receive(send, answer, now)
            except Exception as error:  # noqa: BLE001 - as with ``next``
                self._throw(error)
        elif isinstance(answer, Exception):
            self._throw(answer)
        else:
            self._advance(answer)

    def _advance(self, value: Any) -> None:
        self._resume(self._program.send, value)

    def _throw(self, error: Exception) -> None:
        self._resume(self._program.throw, error)

    def _resume(self, how: Callable[[Any], Send | Wait | Machine[Any]], value: Any) -> None:
        self._sent = False
        try:
            self._pending = how(value)
        except StopIteration as stop:
            self._result = Done(stop.value)
        except Exception as error:  # noqa: BLE001 - ``next`` raises it
            self._error = error
