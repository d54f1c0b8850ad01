"""What a plan says: figures with their units, each marked as a rule of the Developer Guide or as a model of ours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a plan's reasoning, and where it comes from.

    Args:
        kind: ``"rule"``, which the Developer Guide states, or ``"model"``, which is an assumption of shardkit.
        text: the sentence, with units on every figure.
        page: a rule's page and section of the Developer Guide; None for a model.
    """

    kind: Literal["rule", "model"]
    text: str
    page: str | None = None

    def __str__(self) -> str:
        return f"{self.kind:<5}  {self.text}" + (f" ({self.page})" if self.page else "")

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values."""
        return asdict(self)


def rule(text: str, section: str, page: str = "Best Practices for Tables") -> Statement:
    """Make a statement that the Developer Guide makes on a page, in a section."""
    return Statement("rule", text, f"{page}, {section}")


def model(text: str) -> Statement:
    """Make a statement that no page of the guide makes."""
    return Statement("model", text)


def number(value: float) -> str:
    """Write a figure: thousands apart, two decimals at the most."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def counted(value: float, unit: str) -> str:
    """Write a figure with its unit, in the plural where it is not one."""
    return f"{number(value)} {unit}{'' if value == 1 else 's'}"


def percent(probability: float) -> str:
    """Write a probability, rounded down: what is not certain is not 100%."""
    return f"{math.floor(round(probability * 10_000, 6)) / 10_000:.2%}"


def show(title: str, figures: Iterable[str], reasoning: Iterable[Statement], warnings: Iterable[Statement]) -> str:
    """Write a plan: its title, its figures, its warnings, and why."""
    lines = [title, *(f"  {figure}" for figure in figures)]
    for heading, statements in (("Warnings", tuple(warnings)), ("Why", tuple(reasoning))):
        if statements:
            lines += ["", heading, *(f"  {statement}" for statement in statements)]
    return "\n".join(lines)
