"""Time in which shared budgets are renewed: it passes by sleeping, and their updates take none."""

from __future__ import annotations

import threading

from shardkit.capacity.shared_budget import Member
from tests.support.fakes import Clock


class Beats(Clock):
    """A clock for a :class:`SharedBudget` (``clock=beats.read, start=beats.start``) and for whoever waits."""

    def __init__(self) -> None:
        super().__init__()
        self.due: dict[Member, float] = {}
        self._passing = threading.RLock()

    def read(self) -> tuple[float, ...]:
        return (self.now,)

    def start(self, member: Member) -> None:
        self.due[member] = self.now

    def sleep(self, seconds: float) -> None:
        with self._passing:
            self.sleeps.append(seconds)
            until = self.now + seconds
            while self.due and min(self.due.values()) <= until:
                member = min(self.due, key=self.due.__getitem__)
                self.now = max(self.now, self.due.pop(member))
                again = member.renew()
                if again is not None:
                    self.due[member] = self.now + again
            self.now = max(self.now, until)

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)
