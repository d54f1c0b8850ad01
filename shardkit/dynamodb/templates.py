"""Puts as JSON without wire values: the texts of an item's values, between pieces that its names and types decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from shardkit.dynamodb.values import NUMBER_DIGITS, to_number

_SHAPES = 1000  # templates that are kept; an item of still other names and types is converted
_CUT = "\x7f"  # needs no escape in JSON
_AROUND: Mapping[type, tuple[str, str]] = {
    str: ('{"S":"', '"}'),
    int: ('{"N":"', '"}'),
    Decimal: ('{"N":"', '"}'),
    bool: ('{"BOOL":', "}"),
    type(None): ('{"NULL":', "}"),
}


@dataclass(frozen=True, slots=True)
class Template:
    """The JSON of a put of any item with the same names, in the same order, and values of the same types.

    ``pieces`` has room for the text of each value between two constant pieces. ``key``, ``numbers`` and ``words``
    (true, false) are positions in the item's values.
    """

    pieces: list[str]
    key: int
    numbers: tuple[int, ...]
    words: tuple[int, ...]

    def put(self, item: dict[str, Any], stored: str) -> bytes | None:
        """Return the put of an item under a stored partition key; None: it must be converted."""
        texts = [*item.values()]
        texts[self.key] = stored
        for at in self.words:
            texts[at] = "false" if texts[at] is False else "true"
        try:
            for at in self.numbers:
                text = str(texts[at])
                if len(text) > NUMBER_DIGITS or not (text.isdecimal() or text.lstrip("-").replace(".", "").isdecimal()):
                    number = to_number(texts[at])  # it has an exponent, or DynamoDB may not hold it
                    if not number.is_finite():
                        return None
                    text = str(number)
                texts[at] = text
            joined = _CUT.join(texts)
            written = orjson.dumps(joined)
        except (ArithmeticError, TypeError, ValueError):  # such a number; an unpaired surrogate
            return None
        if len(written) != len(joined) + 2:  # a character is escaped, or not ASCII
            texts = written[1:-1].decode().split(_CUT)
            if len(texts) != len(item):
                return None
        pieces = self.pieces.copy()
        pieces[1::2] = texts
        return "".join(pieces).encode()


class Templates:
    """The templates of the puts to a table; ``keys`` are the types that each of its key attributes may have."""

    def __init__(self, keys: Mapping[str, tuple[type, ...]]) -> None:
        self._keys = keys
        self._made: dict[tuple[Any, ...], Template | None] = {}

    def of(self, item: dict[str, Any]) -> Template | None:
        """Return the template of an item; None: it must be converted."""
        shape = (*item, *map(type, item.values()))
        try:
            return self._made[shape]
        except KeyError:
            made = None
            if len(self._made) < _SHAPES:
                made = self._made[shape] = self._template(item)
            return made

    def _template(self, item: dict[str, Any]) -> Template | None:
        types = [*map(type, item.values())]
        if any(type(item.get(name)) not in allowed for name, allowed in self._keys.items()):
            return None
        if {*map(type, item)} != {str} or not _AROUND.keys() >= {*types}:
            return None
        pieces = ['{"PutRequest":{"Item":{']
        for name, kind in zip(item, types, strict=True):
            before, after = _AROUND[kind]
            try:
                pieces[-1] += f"{orjson.dumps(name).decode()}:{before}"
            except TypeError:  # an unpaired surrogate
                return None
            pieces += ["", f"{after},"]
        pieces[-1] = pieces[-1].removesuffix(",") + "}}}"
        return Template(
            pieces,
            key=[*item].index(next(iter(self._keys))),
            numbers=tuple(at for at, kind in enumerate(types) if kind in {int, Decimal}),
            words=tuple(at for at, kind in enumerate(types) if kind in {bool, type(None)}),
        )
