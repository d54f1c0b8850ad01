"""Hedged reads: a request that is not answered in time is sent again, and the first answer is used.

1. A request is sent again when it has waited for ``after`` seconds, and once more when the copy has waited as long.
2. The requests of a table and its views earn hedges together: one per 20 requests. At most 20 are kept for later. So
   hedges are at most 5% of the requests, plus one.
3. Hedges have their own connections (:attr:`FanOutOptions.concurrency`). A copy whose answer is no longer needed keeps
   its connection until it ends, because it consumes units, which must be counted.
4. The machine decides which requests may be sent again (``may_hedge``). Those of a throttled shard may not. If a copy
   is throttled while another is in flight, the fan-out sends no more hedges.
5. An error is ignored while another copy is in flight.
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
_LEAST_BEYOND = 5  # answers slower than a quantile, before it is known


class Latencies:
    """A histogram of an operation's response times. Each bound is 19% above the one before; old times fade."""

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
    """The hedges that the fan-outs of a table and its views have earned, and their response times.

    Threads share it without a lock. A count that is lost in a race only moves a hedge a little.
    """

    def __init__(self) -> None:
        self._earned = REQUESTS_A_HEDGE  # one hedge, so that the first small fan-out can be hedged
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
class _Hedged:
    """A request of the machine, and its copies in flight."""

    send: Send
    copies: dict[_Copy, float]
    """The copies in flight, and when each was sent."""
    times_sent: int = 0
    answered: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Copy(Send):
    request: _Hedged

    def answer(self, response: Response) -> Any:
        # Another copy was faster: do not convert this response.
        return Send.answer(self, response) if self.needed else response

    @property
    def needed(self) -> bool:
        return not self.request.answered


class Hedging(Generic[T]):
    """Runs a machine of reads, and sends slow requests again.

    ``connections``: how many copies may be in flight in addition to the machine's own requests.
    """

    def __init__(self, machine: Hedgeable[T], hedges: Hedges, *, after: HedgeAfter, connections: int) -> None:
        self._machine = machine
        self._hedges = hedges
        self._hedge_after = after
        self._after: float | None = None  # seconds; None: a quantile that is not known yet
        self._connections = connections
        self._waiting: deque[tuple[float, _Hedged]] = deque()
        """The requests in flight, and when each was sent last, in that order."""
        self._extra = 0
        self._stopped = False
        self._with_caller = True
        self._resumed = 0.0

    def next(self, now: float) -> Step[T]:
        if self._with_caller:
            # Answers that arrived while the caller worked are received only now, so that time is no response time.
            self._with_caller = False
            self._resumed = now
            self._after = None if isinstance(self._hedge_after, str) else self._hedge_after
        step = self._machine.next(now)
        if isinstance(step, Send):
            self._hedges.earn()
            return self._copy(_Hedged(step, {}), now)
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
        sent_at, request = waiting[0]
        if self._after is None:
            self._after = self._hedges.latencies[request.send.operation].quantile(QUANTILES[str(self._hedge_after)])
        if self._after is None:
            return step
        due = max(sent_at, self._resumed) + self._after
        if now < due:
            return Wait(due if step.until is None else min(due, step.until))
        if not self._hedges.spend():
            return step
        waiting.popleft()
        self._extra += 1
        return self._copy(request, now)

    def _may_hedge(self, request: _Hedged, now: float) -> bool:
        return request.times_sent < _MOST_COPIES and not request.answered and self._machine.may_hedge(request.send, now)

    def _copy(self, request: _Hedged, now: float) -> Send:
        send = request.send
        copy = _Copy(send.operation, send.params, send.paced, send.read, request=request)
        request.copies[copy] = now
        request.times_sent += 1
        self._waiting.append((now, request))
        return copy

    def receive(self, send: Send, answer: Any, now: float) -> None:
        if not isinstance(send, _Copy):
            self._machine.receive(send, answer, now)
            return
        request = send.request
        sent_at = request.copies.pop(send)
        failed = isinstance(answer, Exception)
        if request.answered or (failed and request.copies):
            self._extra -= 1
            self._stopped = self._stopped or (failed and is_throttle(answer))
            return
        if not failed and sent_at >= self._resumed:
            latencies = self._hedges.latencies[send.operation]
            # Copies in flight count with their time so far, because they may never be answered.
            for copy_sent_at in (sent_at, *request.copies.values()):
                latencies.learn(now - copy_sent_at)
        request.answered = True
        self._machine.receive(request.send, answer, now)
