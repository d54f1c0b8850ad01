"""The options that a load's machine takes, checked: for a load over a client, and for one in virtual time."""

from __future__ import annotations

from typing import Any, get_args

from shardkit.bulk.batch import Duplicates
from shardkit.bulk.pacing import write_rate
from shardkit.core.checks import check_count
from shardkit.errors import ConfigurationError

__all__ = ["MOST_WINDOW", "check_choice", "check_load"]

MOST_WINDOW = 10_000_000
"""Items that a load can hold back."""


def check_load(*, window: Any, write_units: Any, duplicates: Any, max_failures: Any) -> None:
    """Check them as they were given.

    Raises:
        ConfigurationError: one cannot work.
    """
    check_count("window", window, "items", most=MOST_WINDOW, why="they are held in memory")
    if max_failures is not None:
        check_count("max_failures", max_failures, "items", least=0)
    check_choice("duplicates", duplicates, get_args(Duplicates))
    write_rate(write_units)


def check_choice(name: str, given: Any, kinds: tuple[str, ...]) -> None:
    """Check an option that is one of some texts.

    Raises:
        ConfigurationError: it is none of them.
    """
    if given not in kinds:
        raise ConfigurationError(f"{name}={given!r:.200} is none of {', '.join(map(repr, kinds))}")
