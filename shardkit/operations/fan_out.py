"""How a fan-out is carried out: how many requests side by side, for how long, and what becomes of a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardkit.core.checks import check_count
from shardkit.errors import ConfigurationError

__all__ = ["MAX_BUFFER_BYTES", "FanOut"]

MAX_BUFFER_BYTES = 64 * 2**20


def _nobody(operation: str, table: str, what: str, code: str, wait: float | None) -> None:
    """Hear of a retry, and do nothing."""


@dataclass(frozen=True)
class FanOut:
    """How the fan-outs of a table are carried out: ``ShardedTable.with_options`` documents each option.

    ``on_retry`` hears what is asked again: operation, table, which shard or keys, why, and after how many seconds
    (None: a throttle that is not waited for any more).
    """

    concurrency: int
    timeout: float | None = None
    on_shard_error: str = "raise"
    max_buffer_bytes: int = MAX_BUFFER_BYTES
    on_retry: Callable[[str, str, str, str, float | None], object] = _nobody

    def __post_init__(self) -> None:
        timeout = self.timeout
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
        ):
            raise ConfigurationError(f"timeout={timeout!r} is not a number of seconds above 0; give one, or None")
        if self.on_shard_error not in ("raise", "partial"):
            raise ConfigurationError(f"on_shard_error={self.on_shard_error!r} is neither 'raise' nor 'partial'")
        check_count("max_buffer_bytes", self.max_buffer_bytes, "bytes")
