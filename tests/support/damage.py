"""Documents in JSON of which one node is damaged: replaced by another value, or taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_LETTERS = ("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS", "Q")
SCALARS: list[Any] = [None, True, False, 0, -1, 1.5, 10**400, "", "x", "NaN", "1e999", "1" * 39, [], {}]
VALUES = st.sampled_from(
    [
        *SCALARS,
        *([one] for one in SCALARS),
        *(
            {letter: one}
            for letter in ("S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS", "Q")
            for one in SCALARS
        ),
        *({letter: [5]} for letter in ("L", "SS", "NS", "BS")),
        {"S": "x", "N": "1"},
        {"M": {"a": 5}},
        {"L": [{"N": "x"}]},
    ]
)


def damaged(document: Any) -> st.SearchStrategy[Any]:
    """Draw copies of a document in which any node is replaced by another JSON value, or a member is missing."""
    return st.tuples(st.sampled_from([*_paths(document)]), VALUES, st.booleans()).map(
        lambda drawn: _replaced(document, *drawn)
    )


def _paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for name, member in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from _paths(member, (*path, name))


def _replaced(node: Any, path: tuple[Any, ...], value: Any, missing: bool) -> Any:
    if not path:
        return value
    name, *rest = path
    copied = dict(node) if isinstance(node, dict) else list(node)
    if missing and not rest:
        del copied[name]
    else:
        copied[name] = _replaced(node[name], tuple(rest), value, missing)
    return copied
