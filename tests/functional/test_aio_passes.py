"""Calls of async passes that name an argument wrongly: the errors are those of the sync ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardkit import ConfigurationError, ShardkitError, UnsupportedParameterError

pytestmark = pytest.mark.aio
pytest.importorskip("aiobotocore")

from shardkit.aio import passes  # noqa: E402 - only where it is installed


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: passes.update(1), UnsupportedParameterError, "change: missing in update; give change=…"),  # type: ignore[call-arg]
        (lambda: passes.count(1, 2), UnsupportedParameterError, r"count: got 2 .* count\(where=…(?!.*workers)"),  # type: ignore[call-arg]
        (lambda: passes.count(table=1), ConfigurationError, r"table: must be a shardkit\.aio\.ShardedTable"),
    ],
)
def test_wrong_calls(call: Any, error: type[ShardkitError], text: str) -> None:
    with pytest.raises(error, match=text):
        asyncio.run(call())
