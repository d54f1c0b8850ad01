"""The tables of a scenario, read entry by entry; all problems are noted, to be reported at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from shardkit.core.checks import check_count, check_number, did_you_mean
from shardkit.errors import ConfigurationError, brief

D = TypeVar("D")
T = TypeVar("T")


class Entries:
    """One table of a scenario; ``where`` is its name in messages, such as ``[items]``.

    Each method takes an entry by its name. If the entry is invalid, or missing although ``needed``, it notes that in
    ``problems`` and returns the default, so that the other entries are checked too.
    """

    def __init__(self, given: Any, where: str, problems: list[str]) -> None:
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self._where = where
        self._problems = problems
        self._known: dict[str, None] = {}
        if not isinstance(given, Mapping):
            problems.append(f"{where} = {_shown(given)}: must be a table")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def over(self, base: Entries) -> Entries:
        """Return the entries of both tables; those of this table replace the other's."""
        return Entries({**base._given, **self._given}, self._where, self._problems)

    def note(self, name: str, problem: str) -> None:
        """Note what is wrong with an entry, and what to do."""
        given = f" = {_shown(self._given[name])}" if name in self._given else ""
        self._problems.append(f"{self._where} {name}{given}: {problem}".lstrip())

    def take(self, name: str, what: str, *, needed: bool = False) -> Any:
        self._known[name] = None
        if needed and name not in self._given:
            self.note(name, f"missing; must be {what}")
        return self._given.get(name)

    def text(self, name: str, default: D, what: str = "a text, not empty", *, needed: bool = False) -> str | D:
        return self._taken(name, default, what, _text, needed=needed)

    def flag(self, name: str, *, default: bool) -> bool:
        return self._taken(name, default, "true or false", lambda given: given if isinstance(given, bool) else None)

    def choice(self, name: str, default: D, choices: Sequence[str], *, needed: bool = False) -> str | D:
        what = f"one of {', '.join(choices)}"
        given = self._given.get(name)
        if given is not None and given not in choices:
            what += did_you_mean(str(given), choices)
        return self._taken(name, default, what, lambda given: given if given in choices else None, needed=needed)

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
        """Take a number from ``least`` (``above``: above it) to ``most``."""
        bounds = f"{'>' if above else '>='} {least:,g}" + ("" if most == inf else f" and <= {most:,.10g}")
        what = f"a number {bounds} ({unit})"
        return self._taken(name, default, what, lambda given: _number(given, least, most, above=above), needed=needed)

    def count(self, name: str, default: D, unit: str, *, least: int = 1, most: int, needed: bool = False) -> int | D:
        """Take an integer from ``least`` to ``most``."""
        what = f"an integer from {least:,} to {most:,} ({unit})"
        return self._taken(name, default, what, lambda given: _integer(given, least, most), needed=needed)

    def span(
        self,
        name: str,
        default: tuple[float, float],
        unit: str,
        *,
        whole: bool = True,
        least: int = 1,
        most: int,
        needed: bool = False,
    ) -> tuple[float, float]:
        """Take a number, or the least and the most of a range."""
        kind = "an integer" if whole else "a number"
        what = f"{kind} from {least:,} to {most:,} ({unit}), or a range of two, [least, most]"

        def read(given: Any) -> tuple[float, float] | None:
            ends = given if isinstance(given, list) else [given, given]
            valid = _integer if whole else _number
            if len(ends) != 2 or any(valid(end, least, most) is None for end in ends):  # noqa: PLR2004 - the two ends
                return None
            return (ends[0], ends[1]) if ends[0] <= ends[1] else None

        return self._taken(name, default, what, read, needed=needed)

    def texts(self, name: str, default: D) -> tuple[str, ...] | D:
        def read(given: Any) -> tuple[str, ...] | None:
            return tuple(given) if isinstance(given, list) and given and all(map(_text, given)) else None

        return self._taken(name, default, "a list of one or more texts, none empty", read)

    def weights(self, name: str) -> dict[str, float]:
        """Take a needed table of texts and numbers above 0."""

        def read(given: Any) -> dict[str, float] | None:
            fits = isinstance(given, dict) and all(
                value and _number(given[value], 0, inf, above=True) for value in given
            )
            return given if fits and given else None

        return self._taken(name, {"-": 1.0}, "a table of values and their weights, each > 0", read, needed=True)

    def table(self, name: str, *, needed: bool = False) -> Entries | None:
        given = self.take(name, "a table", needed=needed)
        return None if given is None else Entries(given, self._within(name), self._problems)

    def tables(self, name: str) -> list[Entries]:
        """Take an array of tables within this one."""
        none: list[Any] = []
        given = self._taken(name, none, "an array of tables", lambda given: given if isinstance(given, list) else None)
        where = self._within(name)
        return [Entries(one, f"{where} {number}", self._problems) for number, one in enumerate(given, start=1)]

    def all(self) -> dict[str, Any]:
        return {name: self.take(name, "a value") for name in self._given}

    def end(self) -> None:
        """Note the entries that were not taken."""
        for name in self._given:
            if name not in self._known:
                near = did_you_mean(name, tuple(self._known))
                self.note(name, f"unknown entry{near}; known: {', '.join(self._known)}")

    def _within(self, name: str) -> str:
        if not self._where.endswith("]"):
            return f"{self._where} [{name}]".lstrip()
        before, _, last = self._where.rpartition("[")
        return f"{before}[{last[:-1]}.{name}]"

    def _taken(
        self, name: str, default: D, what: str, read: Callable[[Any], T | None], *, needed: bool = False
    ) -> T | D:
        """Take an entry that must be ``what``; ``read`` returns None for any other."""
        given = self.take(name, what, needed=needed)
        if given is None:
            return default
        found = read(given)
        if found is None:
            self.note(name, f"must be {what}")
            return default
        return found


def _shown(given: Any) -> str:
    return f"{brief(given):.80}"


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and given else None


def _number(given: Any, least: float, most: float, *, above: bool = False) -> float | None:
    try:
        number = check_number("", given, "")
    except ConfigurationError:
        return None
    return number if least <= number <= most and not (above and number == least) else None


def _integer(given: Any, least: int, most: int) -> int | None:
    try:
        return check_count("", given, "", least=least, most=most)
    except ConfigurationError:
        return None
