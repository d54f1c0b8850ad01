"""The protocol between machines, which decide what to do, and drivers, which do it.

Machines do no I/O; drivers (:mod:`shardkit.runtime.drivers`) make no decisions. The rules:

1. The driver asks ``next(now)``; the machine answers with one step and never blocks.
2. ``Send``: start this request. The driver asks again at once, so requests run concurrently, as many as the machine
   starts.
3. ``Wait``: nothing to start now. Ask again when a response has come, or at ``until`` (seconds on the driver's
   clock), whichever is first.
4. ``Done``: the result. Requests may still be in flight: a machine that streams is asked again later.
5. The driver answers every ``Send`` once, in any order, by ``receive(send, answer, now)``. The answer is the wire
   response, or the exception that the call raised. The machine decides what to do about an exception. After ``Done``,
   the driver may leave out answers that are no longer ``needed``; their requests still run to their end.
6. A machine that raises from ``next`` has failed and is not asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Response = dict[str, Any]
Answer = Response | Exception


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Start a request: the operation's API name (``"Query"``) and its parameters in wire form.

    ``paced``: the machine handles throttles itself, from the first on; botocore does not retry them. ``once``: nobody
    repeats the request if the service may have carried it out: the machine gets the error. ``part``: other requests may
    follow, so it never takes the place of the call that a caller makes on an installed client. ``read``: a function
    that converts the response where it arrives, so that its wire form, which takes the most memory, is not kept until
    the machine receives it. It may empty the response's list ``Items``, and has no other effect.
    ``joins``: the answer to the same request of another caller will do, if that is in flight.
    ``check``: raises just before the request goes, after it was signed, if it may not go; the machine gets the error.
    ``second``: of a machine over two clients, it goes through the second one.
    """

    operation: str
    params: Mapping[str, Any]
    paced: bool = False
    read: Callable[[Response], Any] | None = None
    once: bool = False
    part: bool = False
    check: Callable[[], None] | None = None
    joins: bool = False
    second: bool = False

    def answer(self, response: Response) -> Any:
        """Convert a response to the answer for the machine."""
        return response if self.read is None else self.read(response)

    @property
    def needed(self) -> bool:
        """Whether the machine still wants the answer."""
        return True


@dataclass(frozen=True, slots=True)
class Wait:
    """Start nothing until a response comes, or until the driver's clock shows ``until`` if that is given."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    value: T_co


Step = Send | Wait | Done[T_co]


class Machine(Protocol[T_co]):
    def next(self, now: float) -> Step[T_co]:
        """Return the next step at the time ``now``."""

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        """Take the answer to an earlier ``Send``."""


Program = Generator["Send | Wait | Machine[Any]", Any, T]
"""A machine written as a generator. It yields a request (and gets the response, or its exception raised), a wait, or
another machine (and gets its result)."""


class ProgramMachine(Generic[T]):
    """Runs a :data:`Program` as a machine.

    ``begun``: what the program has already yielded, if the caller has started it.
    """

    def __init__(self, program: Program[T], begun: Send | Wait | Machine[Any] | None = None) -> None:
        self._program = program
        self._pending = begun
        self._sent = False
        self._result: Done[T] | None = None
        self._error: Exception | None = None
        if begun is None:
            self._resume(self._program.send, None)

    def next(self, now: float) -> Step[T]:
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
                self._resume(self._program.send, now)
                continue
            assert pending is not None
            try:
                step = pending.next(now)
            except Exception as error:  # noqa: BLE001 - the program handles it, as with its own calls
                self._resume(self._program.throw, error)
                continue
            if not isinstance(step, Done):
                return step
            self._resume(self._program.send, step.value)
        return self._result

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        if send is not self._pending:
            if self._pending is None or isinstance(self._pending, Send | Wait):
                assert not send.needed  # of a machine that is done
                return
            try:
                self._pending.receive(send, answer, now)
            except Exception as error:  # noqa: BLE001 - as with ``next``
                self._resume(self._program.throw, error)
        elif isinstance(answer, Exception):
            self._resume(self._program.throw, answer)
        else:
            self._resume(self._program.send, answer)

    def _resume(self, how: Callable[[Any], Send | Wait | Machine[Any]], value: Any) -> None:
        self._sent = False
        try:
            self._pending = how(value)
        except StopIteration as stop:
            self._result = Done(stop.value)
        except Exception as error:  # noqa: BLE001 - ``next`` raises it
            self._error = error


class SideBySide(Generic[T]):
    """Runs machines side by side, at most ``most`` at once; the result has that of each, or the exception it raised."""

    def __init__(self, machines: Sequence[Machine[T]], most: int) -> None:
        self._waiting = deque(enumerate(machines))
        self._most = most
        self._running: dict[int, Machine[T]] = {}
        self._asked: dict[Send, Machine[T]] = {}
        self._results: dict[int, T | Exception] = {}

    def next(self, now: float) -> Step[list[T | Exception]]:
        while True:
            alarms = []
            for place, machine in [*self._running.items()]:
                step: Step[T | Exception]
                try:
                    step = machine.next(now)
                except Exception as error:  # noqa: BLE001 - the result has it
                    step = Done(error)
                if isinstance(step, Send):
                    self._asked[step] = machine
                    return step
                if isinstance(step, Done):
                    self._results[place] = step.value
                    del self._running[place]
                elif step.until is not None:
                    alarms.append(step.until)
            if not self._waiting or len(self._running) >= self._most:
                break
            place, machine = self._waiting.popleft()
            self._running[place] = machine
        if self._running:
            return Wait(min(alarms, default=None))
        return Done([self._results[place] for place in sorted(self._results)])

    def receive(self, send: Send, answer: Answer, now: float) -> None:
        self._asked.pop(send).receive(send, answer, now)
