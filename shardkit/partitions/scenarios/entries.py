"""A scenario's tables as they were read, taken entry by entry: all that is wrong is noted, to be told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any, TypeVar

from shardkit.core.checks import did_you_mean
from shardkit.errors import brief

D = TypeVar("D")


class Entries:
    """One table of a scenario.

    Each method takes an entry by its name. What is wrong with it is noted in ``problems``, and the default given, so
    that the next entry can be looked at; an entry that is ``needed`` must be there.

    Args:
        given: the table, as a reader of TOML or JSON gives it.
        where: what it is called in a message: ``[items]``.
        problems: where all tables of the scenario note what is wrong.
    """

    def __init__(self, given: Any, where: str, problems: list[str]) -> None:
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self._where = where
        self._problems = problems
        self._known: dict[str, None] = {}
        if not isinstance(given, Mapping):
            problems.append(f"{where} is {_shown(given)}; give a table of entries")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def over(self, base: Entries) -> Entries:
        """Give this table laid over another one: the entries of both, its own before the other's."""
        return Entries({**base._given, **self._given}, self._where, self._problems)

    def note(self, name: str, problem: str) -> None:
        """Note what is wrong with an entry, and what to do."""
        given = f" = {_shown(self._given[name])}" if name in self._given else ""
        self._problems.append(f"{self._where} {name}{given}: {problem}".lstrip())

    def take(self, name: str, what: str, *, needed: bool = False) -> Any:
        """Take an entry of any form; None: it is not there."""
        self._known[name] = None
        if needed and name not in self._given:
            self.note(name, f"it is missing; give {what}")
        return self._given.get(name)

    def text(self, name: str, default: D, what: str = "a text", *, needed: bool = False) -> str | D:
        """Take a text that is not empty."""
        given = self.take(name, what, needed=needed)
        found: str | D = self._checked(name, given, default, isinstance(given, str) and bool(given), what)
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Take true or false."""
        given = self.take(name, "true or false")
        found: bool = self._checked(name, given, default, isinstance(given, bool), "true or false")
        return found

    def choice(self, name: str, default: D, choices: Sequence[str], *, needed: bool = False) -> str | D:
        """Take one of some texts."""
        what = f"one of {', '.join(choices)}"
        given = self.take(name, what, needed=needed)
        fits = isinstance(given, str) and given in choices
        near = "" if fits or given is None else did_you_mean(str(given), choices)
        found: str | D = self._checked(name, given, default, fits, what + near)
        return found

    def number(
        self,
        name: str,
        default: D,
        unit: str,
        *,
        least: float = 0.0,
        above: bool = False,
        most: float = inf,
        needed: bool = False,
    ) -> float | D:
        """Take a number of ``unit`` from ``least`` (``above``: above it) to ``most``."""
        what = f"a number of {unit}, {_limits(least, most, above=above)}"
        given = self.take(name, what, needed=needed)
        fits = _is_number(given) and least <= given <= most and not (above and given == least)
        found: float | D = self._checked(name, given, default, fits, what)
        return found

    def count(
        self, name: str, default: D, unit: str, *, least: int = 1, most: float = inf, needed: bool = False
    ) -> int | D:
        """Take a whole number of ``unit``."""
        what = f"a whole number of {unit}, {_limits(least, most)}"
        given = self.take(name, what, needed=needed)
        found: int | D = self._checked(name, given, default, _is_count(given, least, most), what)
        return found

    def span(
        self,
        name: str,
        default: tuple[float, float],
        unit: str,
        *,
        whole: bool = True,
        least: float = 1,
        most: float = inf,
        needed: bool = False,
    ) -> tuple[float, float]:
        """Take a number, or the least and the most of a range of them."""
        kind = "whole number" if whole else "number"
        what = f"a {kind} of {unit}, {_limits(least, most)}, or a range of them, [least, most]"
        given = self.take(name, what, needed=needed)
        ends = given if isinstance(given, list) else [given, given]
        fits = len(ends) == 2 and all(  # noqa: PLR2004 - the two ends
            _is_count(end, least, most) if whole else _is_number(end) and least <= end <= most for end in ends
        )
        if self._checked(name, given, None, fits and ends[0] <= ends[1], what) is None:
            return default
        return ends[0], ends[1]

    def texts(self, name: str, default: D) -> tuple[str, ...] | D:
        """Take a list of texts."""
        what = "a list of texts, at least one"
        given = self.take(name, what)
        fits = isinstance(given, list) and bool(given) and all(isinstance(one, str) and one for one in given)
        return default if self._checked(name, given, None, fits, what) is None else tuple(given)

    def weights(self, name: str, *, needed: bool = False) -> dict[str, float]:
        """Take a table of texts and numbers above 0."""
        what = "a table of values and their weights, each above 0"
        given = self.take(name, what, needed=needed)
        fits = isinstance(given, dict) and bool(given) and all(map(_is_number, given.values()))
        fits = fits and all(value and weight > 0 for value, weight in given.items())
        found: dict[str, float] = self._checked(name, given, {}, fits, what)
        return found

    def table(self, name: str, *, needed: bool = False) -> Entries | None:
        """Take a table within this one; None: it is not there."""
        given = self.take(name, "a table of entries", needed=needed)
        return None if given is None else Entries(given, self._within(name), self._problems)

    def tables(self, name: str) -> list[Entries]:
        """Take an array of tables within this one."""
        what = "an array of tables"
        given = self.take(name, what)
        if self._checked(name, given, None, isinstance(given, list), what) is None:
            return []
        return [
            Entries(one, f"{self._within(name)} {number}", self._problems) for number, one in enumerate(given, start=1)
        ]

    def all(self) -> dict[str, Any]:
        """Take every entry, of any form."""
        return {name: self.take(name, "a value") for name in self._given}

    def end(self) -> None:
        """Note the entries that nobody asked for."""
        for name in self._given:
            if name not in self._known:
                self.note(
                    name,
                    f"there is no such entry{did_you_mean(name, tuple(self._known))}; known: {', '.join(self._known)}",
                )

    def _within(self, name: str) -> str:
        if not self._where.endswith("]"):
            return f"{self._where} [{name}]".lstrip()
        before, _, last = self._where.rpartition("[")
        return f"{before}[{last[:-1]}.{name}]"

    def _checked(self, name: str, given: Any, default: Any, fits: bool, what: str) -> Any:  # noqa: FBT001 - of this class
        if given is None:
            return default
        if not fits:
            self.note(name, f"give {what}")
            return default
        return given


def _shown(given: Any) -> str:
    return f"{brief(given):.80}"


def _limits(least: float, most: float, *, above: bool = False) -> str:
    if most == inf:
        return f"above {least:,.10g}" if above else f"{least:,.10g} or more"
    return f"above {least:,.10g} and at most {most:,.10g}" if above else f"{least:,.10g} to {most:,.10g}"


def _is_number(given: Any) -> bool:
    try:
        return isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given)
    except OverflowError:  # an int that no float holds
        return False


def _is_count(given: Any, least: float, most: float) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and least <= given <= most
