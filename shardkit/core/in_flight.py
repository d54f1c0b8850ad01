"""The requests of one machine: to send, in flight, or resting before the next try."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

from shardkit.core.backoff import ATTEMPTS, backoff_seconds
from shardkit.core.machine import Send, Wait

K = TypeVar("K", bound=Hashable)


class InFlight(Generic[K]):
    """The requests of a machine, at most one for each key, and at most ``concurrency`` in flight.

    Tries belong to the key: ``tries`` has the failed tries of each key since its last success.
    """

    def __init__(self, keys: Iterable[K], *, concurrency: int, timeout: float | None) -> None:
        self.to_send = deque(keys)
        self.in_flight: dict[Send, K] = {}
        self.resting: dict[K, float] = {}
        """Keys that are tried again, and when."""
        self.busy = set(self.to_send)
        """All keys that are to send, in flight or resting."""
        self.tries: dict[K, int] = {}
        self.paused_until = 0.0
        self._concurrency = concurrency
        self._timeout = timeout
        self._deadline: float | None = None

    def add(self, key: K) -> None:
        """Queue a key's request."""
        self.to_send.append(key)
        self.busy.add(key)

    def next(self, now: float) -> K | None:
        """Return the key of the next request; None: nothing may be sent now."""
        if self.resting:
            for key in [key for key, until in self.resting.items() if until <= now]:
                del self.resting[key]
                self.to_send.append(key)
        if not self.to_send or len(self.in_flight) >= self._concurrency or now < self.paused_until:
            return None
        return self.to_send[0]

    def sent(self, send: Send) -> None:
        """Record the request of the key that ``next`` returned."""
        self.in_flight[send] = self.to_send.popleft()

    def skip(self) -> None:
        """Drop the key that ``next`` returned: it needs no request."""
        self.done(self.to_send.popleft())

    def answered(self, send: Send) -> K | None:
        """Return the key of a request that was answered; None: the key was dropped, so the answer is too late."""
        return self.in_flight.pop(send, None)

    def again(self, key: K, now: float, draw: float, *, asked: float = 0.0, pause: bool = False) -> float | None:
        """Try a key again after a growing wait, and return the wait; None: it has been tried ``ATTEMPTS`` times.

        ``asked``: the wait that the service asked for. ``pause``: all other keys wait, too.
        """
        tries = self.tries[key] = self.tries.get(key, 0) + 1
        if tries >= ATTEMPTS:
            return None
        wait = backoff_seconds(tries, draw, asked=asked)
        self.resting[key] = now + wait
        if pause:
            self.paused_until = max(self.paused_until, now + wait)
        return wait

    def answered_in_part(self, key: K) -> None:
        """Record that a part of a key's request succeeded: the rest of it has not failed yet, and nothing is given up.

        A table that is short of throughput answers a few keys at a time, and some keys are last.
        """
        self.tries.pop(key, None)
        self.tries = {one: min(tries, ATTEMPTS // 2) for one, tries in self.tries.items()}

    def done(self, key: K) -> None:
        """Record that a key's request has ended."""
        self.busy.discard(key)
        self.tries.pop(key, None)

    def clear(self) -> None:
        """Drop all keys whose requests are not in flight."""
        self.drop(self.busy.difference(self.in_flight.values()))

    def drop(self, keys: Collection[K]) -> set[K]:
        """Give up keys, whatever becomes of their requests; return those that were sent at least once."""
        dropped = set(keys)
        sent = dropped & {*self.in_flight.values(), *self.tries}
        self.in_flight = {send: key for send, key in self.in_flight.items() if key not in dropped}
        self.to_send = deque(key for key in self.to_send if key not in dropped)
        for key in dropped:
            self.resting.pop(key, None)
            self.done(key)
        return sent

    def late(self, now: float) -> bool:
        """Return whether the time is over; it begins with the first call, and again after ``restart``."""
        if self._timeout is None:
            return False
        if self._deadline is None:
            self._deadline = now + self._timeout
        return now >= self._deadline

    def restart(self, deadline: float | None = None) -> None:
        """Let the time begin again with the next call of ``late``, or be over at ``deadline``."""
        self._deadline = deadline

    def wait(self, now: float, *, answers_only: bool = False) -> Wait:
        """Return how long to wait: for answers, for keys that rest (unless ``answers_only``), or until it is late."""
        untils = [] if self._deadline is None else [self._deadline]
        if not answers_only:
            untils += self.resting.values()
            if self.to_send and now < self.paused_until:
                untils.append(self.paused_until)
        return Wait(min(untils, default=None))
