"""Hedged reads: a request that is not answered in time is sent again, and the first answer counts.

1. A request is sent again when it has waited for ``after`` seconds, and once more after as long again.
2. The requests of a table and its views together earn hedges: one for every 20 requests, up to 20 kept for later. So
   hedges are at most 5% of the requests, plus one.
3. Hedges have connections of their own (:attr:`FanOut.concurrency`). A copy whose answer is no longer needed keeps its
   connection until it ends, because its units are consumed and must be counted.
4. The machine decides which requests may be sent again (``may_hedge``): none of a shard that was throttled. If a copy
   is throttled while another one may still answer, the fan-out sends no more hedges.
5. An error counts only if no other copy may still answer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from math import log2
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from shardkit.core.machine import Done, Machine, Response, Send, Step, Wait
from shardkit.dynamodb.service_errors import is_throttle

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

HedgeAfter: TypeAlias = float | Literal["p95", "p99"]
"""Seconds, or the quantile of the response times."""
QUANTILES = {"p95": 0.95, "p99": 0.99}

REQUESTS_A_HEDGE = 20
_MOST_KEPT = 20
_MOST_COPIES = 3
_LEAST_SECONDS = 0.001
_STEPS_AN_OCTAVE = 4
_STEPS = 64  # to 65 seconds
_MEMORY = 2000  # answers; then all counts are halved
_LEAST_BEYOND = 5  # answers above a quantile before it is known


class Latencies:
    """The response times of an operation, as a histogram whose bounds grow by 19% and which forgets slowly."""

    def __init__(self) -> None:
        self._counts = [0.0] * _STEPS
        self._seen = 0.0

    def learn(self, seconds: float) -> None:
        step = int(log2(max(1.0, seconds / _LEAST_SECONDS)) * _STEPS_AN_OCTAVE)
        self._counts[min(step, _STEPS - 1)] += 1
        self._seen += 1
        if self._seen >= _MEMORY:
            self._counts = [count / 2 for count in self._counts]
            self._seen /= 2

    def quantile(self, share: float) -> float | None:
        """Return the seconds in which this share of requests is answered; None: too few answers to know."""
        beyond = self._seen * (1 - share)
        if round(beyond, 6) < _LEAST_BEYOND:
            return None
        step = _STEPS - 1
        while step and (beyond := beyond - self._counts[step]) >= 0:
            step -= 1
        return float(_LEAST_SECONDS * 2 ** ((step + 1) / _STEPS_AN_OCTAVE))


class Hedges:
    """What the fan-outs of a table and its views share: the hedges they have earned, and the response times.

    Threads share it without a lock: a count that is lost in a race makes a hedge a little earlier or later.
    """

    def __init__(self) -> None:
        self._earned = REQUESTS_A_HEDGE  # the first hedge, which small fan-outs need at once
        self.latencies: defaultdict[str, Latencies] = defaultdict(Latencies)

    def earn(self) -> None:
        self._earned = min(self._earned + 1, REQUESTS_A_HEDGE * _MOST_KEPT)

    def spend(self) -> bool:
        if self._earned < REQUESTS_A_HEDGE:
            return False
        self._earned -= REQUESTS_A_HEDGE
        return True


class Hedgeable(Machine[T_co], Protocol[T_co]):
    def may_hedge(self, send: Send, now: float) -> bool:
        """Return whether a request may be sent again: it is still needed, and nothing of it was throttled."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request of the machine, and its copies in flight."""

    send: Send
    copies: dict[_Copy, float]
    """The copies in flight, and when each was sent."""
    sent: int = 0
    answered: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Copy(Send):
    request: _Request

    def answer(self, response: Response) -> Any:
        # Another copy was faster: do not spend CPU on this one.
        return Send.answer(self, response) if self.needed else response

    @property
    def needed(self) -> bool:
        return not self.request.answered


class Hedging(Generic[T]):
    """Runs a machine of reads, and sends requests that wait for too long again.

    ``after``: see :data:`HedgeAfter`. ``connections``: how many copies may be in flight beside the machine's own
    requests.
    """

    def __init__(self, machine: Hedgeable[T], hedges: Hedges, *, after: HedgeAfter, connections: int) -> None:
        self._machine = machine
        self._hedges = hedges
        self._given = after
        self._after: float | None = None
        self._connections = connections
        self._waiting: deque[tuple[float, _Request]] = deque()
        """The requests in flight, and when each was sent last, in that order."""
        self._extra = 0
        self._stopped = False
        self._with_caller = True
        self._resumed = 0.0

    def next(self, now: float) -> Step[T]:
        if self._with_caller:
            # Answers that came while the caller worked are received after this: time before it does not count.
            self._with_caller = False
            self._resumed = now
            self._after = self._given if not isinstance(self._given, str) else None
        step = self._machine.next(now)
        if isinstance(step, Send):
            self._hedges.earn()
            return self._copy(_Request(step, {}), now)
        if isinstance(step, Done):
            self._with_caller = True
            return step
        return self._hedge(step, now)

    def _hedge(self, step: Wait, now: float) -> Step[T]:
        waiting = self._waiting
        while waiting and not self._may_hedge(waiting[0][1], now):
            waiting.popleft()
        if not waiting or self._stopped or self._extra >= self._connections:
            return step
        sent, request = waiting[0]
        if self._after is None:
            self._after = self._hedges.latencies[request.send.operation].quantile(QUANTILES[str(self._given)])
        if self._after is None:
            return step
        due = max(sent, self._resumed) + self._after
        if now < due:
            return Wait(due if step.until is None else min(due, step.until))
        if not self._hedges.spend():
            return step
        waiting.popleft()
        self._extra += 1
        return self._copy(request, now)

    def _may_hedge(self, request: _Request, now: float) -> bool:
        return request.sent < _MOST_COPIES and not request.answered and self._machine.may_hedge(request.send, now)

    def _copy(self, request: _Request, now: float) -> Send:
        send = request.send
        copy = _Copy(send.operation, send.params, send.paced, send.read, request=request)
        request.copies[copy] = now
        request.sent += 1
        self._waiting.append((now, request))
        return copy

    def receive(self, send: Send, answer: Any, now: float) -> None:
        if not isinstance(send, _Copy):
            self._machine.receive(send, answer, now)
            return
        request = send.request
        sent = request.copies.pop(send)
        failed = isinstance(answer, Exception)
        if request.answered or (failed and request.copies):
            self._extra -= 1
            self._stopped = self._stopped or (failed and is_throttle(answer))
            return
        if not failed and sent >= self._resumed:
            latencies = self._hedges.latencies[send.operation]
            for began in (sent, *request.copies.values()):
                latencies.learn(now - began)  # of copies in flight, as much as is known: their answer may never come
        request.answered = True
        self._machine.receive(request.send, answer, now)
