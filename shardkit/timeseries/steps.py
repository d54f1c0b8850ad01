"""The steps of a time series' maintenance, its plan and its report, and what they save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from textwrap import indent
from typing import Any, Literal

from shardkit.timeseries.periods import Period
from shardkit.timeseries.plans import PeriodPlan

Action = Literal["create", "set throughput", "set table class", "turn on backups", "export", "delete", "describe"]

GB = 2**30


@dataclass(frozen=True, slots=True)
class Saving:
    """What a step saves; negative figures are what it costs.

    Args:
        read_units: Provisioned read units per second.
        write_units: Provisioned write units per second.
        size: Bytes of storage.
        money: US dollars per month, at the given prices; None: no prices were given.
        once: US dollars that the step costs once (an export), likewise.
        deletes: Write units that deleting the items one by one would take (an estimate by their number and mean size).
    """

    read_units: float = 0.0
    write_units: float = 0.0
    size: float = 0.0
    money: float | None = None
    once: float | None = None
    deletes: float = 0.0

    def __add__(self, other: Saving) -> Saving:
        def total(*given: float | None) -> float | None:
            known = [one for one in given if one is not None]
            return sum(known) if known else None

        return Saving(
            self.read_units + other.read_units,
            self.write_units + other.write_units,
            self.size + other.size,
            total(self.money, other.money),
            total(self.once, other.once),
            self.deletes + other.deletes,
        )

    def figures(self) -> Iterator[str]:
        """Yield what is saved, and what it costs."""
        for sign, verb in ((1, "saves"), (-1, "costs")):
            parts = []
            if sign * self.read_units > 0 or sign * self.write_units > 0:
                parts.append(
                    f"{max(0.0, sign * self.read_units):,.0f} read and {max(0.0, sign * self.write_units):,.0f} write "
                    "units a second"
                )
            if sign * self.size > 0:
                parts.append(shown_size(sign * self.size))
            if self.money is not None and round(sign * self.money, 2) > 0:
                parts.append(f"${sign * self.money:,.2f} a month")
            if parts:
                yield f"{verb} {', '.join(parts)}"
        if self.once:
            yield f"costs ${self.once:,.2f} once"
        if self.deletes:
            yield f"deleting the items one by one would take {self.deletes:,.0f} write units"

    def __str__(self) -> str:
        return "; ".join(self.figures())


def shown_size(size: float) -> str:
    return f"{size / GB:,.1f} GB" if size >= GB / 10 else f"{size:,.0f} bytes"


@dataclass(frozen=True, kw_only=True)
class MaintenanceStep:
    """One request that maintains a table.

    Args:
        table: The table's name.
        action: What is done.
        what: The details.
        operation: The API operation, and ``params`` its parameters.
        saves: What it saves.
        waits: Why it is left to a later run; empty: it can be done.
    """

    table: str
    action: Action
    what: str
    operation: str
    params: Mapping[str, Any] = field(repr=False)
    saves: Saving = Saving()
    waits: str = ""

    @property
    def title(self) -> str:
        """The action and the table."""
        return f"{self.action:<15}  {self.table}"

    def __str__(self) -> str:
        waits = [f"waits: {self.waits}"] if self.waits else []
        return _indented(self.title, [self.what, *self.saves.figures(), *waits])

    def to_dict(self) -> dict[str, Any]:
        """Return the step as plain values."""
        saves = {name: getattr(self.saves, name) for name in Saving.__dataclass_fields__}
        return {"table": self.table, "action": self.action, "what": self.what, "saves": saves, "waits": self.waits}


@dataclass(frozen=True)
class Maintenance:
    """The plan of a maintenance: the steps, and the tables at which something is refused, with the reasons.

    Args:
        series: The name of the time series.
        now: The time of the plan.
        steps: The steps, table by table, in order.
        refused: What is not done though it seems due, by table.
        kept: The tables that are older than ``keep``, and stay because ``delete=True`` is not set, the oldest first.
        plans: With ``plans=``: the plans of the new tables, by period.
        advice: With ``tuning=`` that is not ``deployed``: the plan that the next new table should have.
    """

    series: str
    now: datetime
    steps: tuple[MaintenanceStep, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    plans: Mapping[Period, PeriodPlan] = field(default_factory=dict)
    advice: str = ""

    @property
    def saves(self) -> Saving:
        """What all steps save together."""
        return sum((step.saves for step in self.steps), Saving())

    def __str__(self) -> str:
        parts = [*map(str, self.steps)]
        parts += [_indented(f"{'refused':<15}  {table}", [reason]) for table, reason in self.refused.items()]
        if self.kept:
            which = " to ".join(dict.fromkeys((self.kept[0], self.kept[-1])))
            count = f"{len(self.kept):,} table{'' if len(self.kept) == 1 else 's'}"
            parts.append(f"{'kept':<15}  {which}: {count} older than keep, because delete is not set")
        parts += [_indented(f"{'plan':<15}  {self.series}-{each}", [str(plan)]) for each, plan in self.plans.items()]
        if self.advice:
            parts.append(f"{'advice':<15}  {self.advice}; to plan it so: --tune --deployed")
        if len(self.steps) > 1 and (total := [*self.saves.figures()]):
            parts.append(_indented("in all", total))
        return _indented(f"{self.series} at {self.now:%Y-%m-%d %H:%M %Z}: {steps_text(len(self.steps))}", parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "series": self.series,
            "now": self.now.isoformat(),
            "steps": [step.to_dict() for step in self.steps],
            "refused": dict(self.refused),
            "kept": [*self.kept],
            "plans": {str(period): str(plan) for period, plan in self.plans.items()},
            "advice": self.advice,
            "saves": {name: getattr(self.saves, name) for name in Saving.__dataclass_fields__},
        }


@dataclass(frozen=True)
class MaintenanceReport:
    """What a maintenance did.

    Args:
        plan: The plan that it began with.
        done: The steps that were done.
        waiting: The steps that a later run does.
        failed: The steps that failed, each with its error.
    """

    plan: Maintenance
    done: tuple[MaintenanceStep, ...] = ()
    waiting: tuple[MaintenanceStep, ...] = ()
    failed: tuple[tuple[MaintenanceStep, Exception], ...] = ()

    def __str__(self) -> str:
        after = "the step before it is not done"
        parts = [
            *(f"done     {step.title}" for step in self.done),
            *(_indented(f"waiting  {step.title}", [step.waits or after]) for step in self.waiting),
            *(_indented(f"failed   {step.title}", [str(error)]) for step, error in self.failed),
        ]
        counts = f"{steps_text(len(self.done))} done, {len(self.waiting)} waiting, {len(self.failed)} failed"
        return _indented(f"{self.plan.series}: {counts}", parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "plan": self.plan.to_dict(),
            "done": [step.to_dict() for step in self.done],
            "waiting": [step.to_dict() for step in self.waiting],
            "failed": [{**step.to_dict(), "error": str(error)} for step, error in self.failed],
        }


def steps_text(count: int) -> str:
    return f"{count or 'no'} step{'' if count == 1 else 's'}"


def _indented(heading: str, parts: Iterable[str]) -> str:
    """Return a heading, and parts of one or more lines below it."""
    return "\n".join([heading, *(indent(part, "  ") for part in parts)])
