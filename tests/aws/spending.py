"""What a run may spend: shardkit's own meter and budget on every client, and a bound that each call is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardkit import CapacityBudget, CapacityMeter
from shardkit.dynamodb.requests import METERED
from tests.aws.check import DEAR, PRICES, Check

if TYPE_CHECKING:
    import boto3

UNITS_PER_SECOND = 4000.0
"""The budget's rate, and the on-demand maximum of each table: at most 0.30 USD a minute, in the dearest region."""

SLACK = 0.01
"""USD that every check may use beyond twice its plan: the smallest ones are planned at millionths."""


class OverspentError(Exception):
    """A call was not sent, because the run or its check would exceed its bound."""


class Spending:
    """Counts the units of all clients of a session, and refuses calls beyond the bound.

    The meter says what was spent; the budget holds back whoever spends too fast for the meter to be read in time. A
    call is refused if the run has spent its bound, or its check twice its plan. Calls in flight are still answered.
    """

    def __init__(self, bound: float, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.bound = bound
        self.meter = CapacityMeter(max_keys=1)
        self.budget = CapacityBudget(
            write_units=UNITS_PER_SECOND, read_units=UNITS_PER_SECOND, timeout=600, clock=clock, sleep=sleep
        )
        self._elsewhere = self._fixed = self._before = 0.0
        self._allowed = SLACK

    def attach(self, session: boto3.Session) -> None:
        """Watch all DynamoDB clients that the session makes from now on."""
        self.meter.attach(session)
        self.budget.attach(session)
        session.events.register("before-call.dynamodb", self._hold)

    def begin(self, check: Check) -> None:
        """Charge at once what no meter sees of a check."""
        self._fixed += check.fixed
        self._before = self.dollars - check.fixed
        self._allowed = 2 * check.dollars + SLACK

    def add_elsewhere(self, write_units: float) -> None:
        """Add what another process has written."""
        self._elsewhere += write_units

    @property
    def units(self) -> dict[str, float]:
        total = self.meter.total
        return {
            "write_units": total.write_units + total.estimated_write_units + self._elsewhere,
            "read_units": total.read_units + total.estimated_read_units,
        }

    @property
    def dollars(self) -> float:
        """At us-east-1's prices."""
        return self._fixed + sum(PRICES[unit] * count for unit, count in self.units.items())

    def _hold(self, model: Any, **_: Any) -> None:
        if model.name not in METERED:
            return
        spent = self.dollars
        if spent * DEAR >= self.bound:
            raise OverspentError(f"the bound of {self.bound:.2f} USD is reached")
        if spent - self._before >= self._allowed:
            raise OverspentError(f"the check has used more than twice its plan ({self._allowed:.4f} USD)")
