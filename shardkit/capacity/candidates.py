"""Candidates for a partition key: their values in items, and the items that have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from shardkit.capacity.uniformity import MAX_KEYS, Key, KeyUniformity
from shardkit.core.hashing import binary
from shardkit.dynamodb.encode import to_wire_item
from shardkit.errors import ConfigurationError

__all__ = ["KEY_BYTES", "Candidate"]

KEY_BYTES = 2048
"""A partition key's value at the most (API reference)."""


class Candidate:
    """One or several attributes, and what items hold under their values.

    Example:
        >>> candidate = Candidate(["Date"])
        >>> candidate.add({"Date": "2014-07-09", "OrderId": "A17"}, 26, 1.0, 0.5)
        >>> candidate.add({"OrderId": "A18"}, 10, 1.0, 0.5)
        >>> candidate.uniformity.result().items, dict(candidate.without)
        (1, {('Date', 'missing'): 1})

    Args:
        attributes: names of attributes, at least one, each once.
        times: those that say when an item is written; None: found by their values (see ``KeyUniformity``).
        max_keys: distinct keys that are counted one by one.

    Attributes:
        attributes: as given.
        uniformity: the counts of the items that have the key.
        without: how many items have none, by the attribute and what is the matter with it: ``missing``, ``empty``,
            ``too long``, ``no UTF-8``, or the type of a value that can be no key (``BOOL``, ``NULL``, ``M``, ``L``, …).

    Raises:
        ConfigurationError: no attribute, an empty name, or one that is given twice.

    Cost:
        As ``KeyUniformity``.
    """

    def __init__(
        self, attributes: Sequence[str], *, times: Iterable[str] | None = None, max_keys: int = MAX_KEYS
    ) -> None:
        self.attributes = tuple(attributes)
        if not all(self.attributes) or len({*self.attributes}) < max(1, len(self.attributes)):
            raise ConfigurationError(
                f"{','.join(self.attributes)!r} is no key; give an attribute, or several with commas, each once"
            )
        self.uniformity = KeyUniformity(self.attributes, times=times, max_keys=max_keys)
        self.without: Counter[tuple[str, str]] = Counter()

    def add(self, item: Mapping[str, Any], size: int, write_units: float, read_units: float) -> Key | None:
        """Count an item.

        Args:
            item: attribute names to Python values.
            size: its bytes.
            write_units: what writing it takes.
            read_units: what reading it takes.

        Returns:
            Its key; None if it has none.
        """
        key = self.key(item)
        if key is None:
            self.without.update([self._problem(item)])
        else:
            self.uniformity.add(key, size, write_units, read_units)
        return key

    def key(self, item: Mapping[str, Any]) -> Key | None:
        """Give an item's key; None if it has none. Nothing is counted."""
        key = tuple([binary(item.get(name)) for name in self.attributes])
        return None if any(map(_wrong, key)) else key

    def _problem(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """Give the first attribute that can be no part of a key, and what is the matter with it."""
        name, problem = next((name, wrong) for name in self.attributes if (wrong := _wrong(binary(item.get(name)))))
        return name, problem if name in item else "missing"


def _wrong(value: Any) -> str | None:
    """Say why a value can be no key, or a part of one."""
    if isinstance(value, str):
        try:
            value = value if value.isascii() else value.encode()
        except UnicodeEncodeError:
            return "no UTF-8"  # JSON can hold half of a surrogate pair
    if isinstance(value, str | bytes):
        return None if 0 < len(value) <= KEY_BYTES else "too long" if value else "empty"
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return None
    return next(iter(to_wire_item({"": value})[""]))
