"""What a check is: a promise of the documentation, the function that tries it, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.aws.run import Run

PRICES: Mapping[str, float] = {
    "write_units": 0.625e-6,
    "read_units": 0.125e-6,
    "write_hours": 0.00065,  # a provisioned write unit for an hour; each begun hour is charged
    "read_hours": 0.00013,
    "stream_reads": 0.02 / 100_000,
    "pitr_gb": 0.20,
    "export_gb": 0.10,
    "import_gb": 0.15,
    "s3_requests": 5e-6,
    "insight_rules": 0.50,  # a rule for a month
}
"""USD in us-east-1, as public pages of 2026-11 said; the free tier is not counted."""

DEAR = 2.0
"""The prices of the dearest region, as a multiple; an assumption, used wherever a bound has to hold."""


class Refuted(Exception):  # noqa: N818 - an outcome, not an error
    """What was seen contradicts the promise. Nothing else refutes one: an error is a check that was not made."""


class NotVerified(Exception):  # noqa: N818 - an outcome, not an error
    """The check cannot be made here."""


def holds(condition: object, seen: object) -> None:
    """Refute the promise unless a condition holds; ``seen`` goes into the report."""
    if not condition:
        raise Refuted(str(seen))


@dataclass(frozen=True)
class Check:
    """One row of docs/verified-on-aws.md; ``also`` is the option that chooses it, if it is not run by default."""

    name: str
    promise: str
    page: str
    run: Callable[[Run], str]
    uses: Mapping[str, float]
    minutes: float
    also: str = ""

    @property
    def dollars(self) -> float:
        return sum(PRICES[unit] * count for unit, count in self.uses.items())

    @property
    def fixed(self) -> float:
        """The part of its price that is no capacity unit, so that no meter sees it."""
        metered = ("write_units", "read_units")
        return sum(PRICES[unit] * count for unit, count in self.uses.items() if unit not in metered)


def check(
    promise: str, page: str, *, minutes: float = 0.2, also: str = "", **uses: float
) -> Callable[[Callable[[Run], str]], Check]:
    """Make a check of a function, which returns what it saw; ``uses`` counts what ``PRICES`` has prices for."""

    def of(function: Callable[[Run], str]) -> Check:
        return Check(function.__name__, promise, page, function, uses, minutes, also)

    return of
