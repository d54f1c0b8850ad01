"""What to write for a global secondary index whose partition key is hot."""

from __future__ import annotations

import json
from collections.abc import Sequence

_MOST_ATTRIBUTES = 4
"""Of an index's partition key (Developer Guide, "Global secondary indexes: multi-attribute keys")."""


def index_line(index: str | None, partition: Sequence[str], by: Sequence[str], shards: int) -> str | None:
    """Return the argument that shards an index; see :func:`index_advice`. None: its key has no room for a shard.

    Example:
        >>> print(index_line("by-status", ["status"], ["OrderId"], 65))
        indexes={"by-status": CalculatedSuffix("OrderId", shards=65, attribute="shard")}
    """
    if len(partition) >= _MOST_ATTRIBUTES:
        return None
    named = by_argument(by) if by else "by"
    return index_argument(index or "…", f'CalculatedSuffix({named}, shards={shards}, attribute="shard")')


def index_argument(index: str, strategy: str) -> str:
    return f"indexes={{{quoted(index)}: {strategy}}}"


def index_advice(index: str | None, partition: Sequence[str], by: Sequence[str], shards: int) -> str:
    """Return what to do about a hot index.

    Args:
        index: its name; None: it has none yet.
        partition: the attributes of its partition key; none if they are unknown.
        by: the attributes of the table's primary key, which tell items apart; none if they are unknown.
        shards: how many shards its hottest key needs.
    """
    unknown = "" if by else ", with by the attributes of the table's primary key"
    line = index_line(index, partition, by, shards)
    if line is None:
        return (
            f"create an index whose partition key has at most three of {', '.join(partition)}, and a number for the "
            "shard: see docs/sharded-indexes.md"
        )
    if not partition:
        return f"write {line}{unknown}: see docs/sharded-indexes.md"
    # An index's key cannot be changed.
    return (
        f"create an index with the partition key {', '.join(partition)}, shard (a number), and write {line} with its "
        f"name{unknown}: see docs/sharded-indexes.md"
    )


def by_argument(names: Sequence[str]) -> str:
    """Return the argument ``by`` of a CalculatedSuffix: a name, or a tuple of names."""
    return quoted(names[0]) if len(names) == 1 else f"({', '.join(map(quoted, names))})"


def quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
