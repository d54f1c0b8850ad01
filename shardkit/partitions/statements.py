"""The text of plans: figures with units, and statements, each a rule of the Developer Guide or a model of shardkit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a plan's reasoning, and where it comes from.

    Args:
        kind: ``"rule"``: stated in the Developer Guide; ``"model"``: an assumption of shardkit.
        text: the sentence, with units on every figure.
        page: a rule's page and section of the Developer Guide; None for a model.
    """

    kind: Literal["rule", "model"]
    text: str
    page: str | None = None

    def __str__(self) -> str:
        return f"{self.kind:<5}  {self.text}" + (f" ({self.page})" if self.page else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain values."""
        return asdict(self)


def rule(text: str, section: str, page: str = "Best Practices for Tables") -> Statement:
    """Return a statement of a section and page of the Developer Guide."""
    return Statement("rule", text, f"{page}, {section}")


def model(text: str) -> Statement:
    """Return a statement of an assumption of shardkit."""
    return Statement("model", text)


def number(value: float) -> str:
    """Return a figure as text, with thousands separators and at most two decimals."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def counted(value: float, unit: str) -> str:
    """Return a figure with its unit, in the singular or plural."""
    return f"{number(value)} {unit}{'' if value == 1 else 's'}"


def percent(probability: float) -> str:
    """Return a probability as text, rounded down: only 1 is 100%."""
    return f"{math.floor(round(probability * 10_000, 6)) / 10_000:.2%}"


def show(title: str, figures: Iterable[str], reasoning: Iterable[Statement], warnings: Iterable[Statement]) -> str:
    """Return a plan as text: title, figures, warnings and reasoning."""
    lines = [title, *(f"  {figure}" for figure in figures)]
    for heading, statements in (("Warnings", tuple(warnings)), ("Why", tuple(reasoning))):
        if statements:
            lines += ["", heading, *(f"  {statement}" for statement in statements)]
    return "\n".join(lines)
