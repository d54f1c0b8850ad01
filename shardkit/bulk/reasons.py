"""Why the service throttles a load: what it says of single writes and whole batches, and what that says of others.

Items that come back unprocessed carry no reason. One of them is written alone now and then, to hear it. Most of those
get through, so what was heard stands for all that come back in the next seconds, until another reason is heard.
"""

from __future__ import annotations

from math import inf

from shardkit.dynamodb.service_errors import Scope, throttle_reasons, throttled_scope

__all__ = ["Reasons"]

_HOLDS_SECONDS = 10.0
_ASKS_SECONDS = 0.1  # each is a request for one item
_HEARD_SECONDS = 1.0


class Reasons:
    """The reason that was heard last."""

    def __init__(self) -> None:
        self._scope: Scope = "key"
        self._names: frozenset[str] = frozenset()
        self._until = self._silent_until = -inf
        self._asks = True

    def asks(self, now: float) -> bool:
        """Say whether one of the items that came back now is to be written alone; if so, it is noted that one is."""
        if not self._asks or now < self._silent_until:
            return False
        self._silent_until = now + _ASKS_SECONDS
        return True

    def heard(self, error: Exception, now: float) -> tuple[Scope, frozenset[str]]:
        """Note a throttle that says its reason; say what it is about, and the reasons as the service names them."""
        self._scope, self._names = throttled_scope(error), throttle_reasons(error)
        self._until, self._silent_until = now + _HOLDS_SECONDS, now + _HEARD_SECONDS
        return self._scope, self._names

    def lately(self, now: float) -> tuple[Scope, frozenset[str]]:
        """Say the same of items that come back now; their keys, and no reason, if none was heard lately."""
        return (self._scope, self._names) if now < self._until else ("key", frozenset())

    def not_allowed(self) -> None:
        """Note that single writes are refused: none is asked for again."""
        self._asks = False
