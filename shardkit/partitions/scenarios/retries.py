"""How boto3 retries throttled requests: in botocore's default mode, ``standard``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from shardkit.core.machine import Program, Response, Send, Wait
from shardkit.dynamodb.service_errors import is_throttle

ATTEMPTS = 4
"""Tries of a request to DynamoDB, the first one included."""
_FIRST_SECONDS = 1.0
_MOST_SECONDS = 20.0
_QUOTA = 500
_QUOTA_OF_A_RETRY = 5
_QUOTA_OF_A_SUCCESS = 1


class Retries:
    """The retries of one client.

    Args:
        attempts: tries of a request, the first one included.
        draw: draws from [0, 1).

    Source: AWS SDKs and Tools Reference Guide, "Retry behavior"; botocore 1.44. A throttled request is retried after
    a random time of at most 1, 2, 4 … seconds, unless the retries have used up a quota of the client, which successes
    refill.
    """

    def __init__(self, attempts: int, draw: Callable[[], float]) -> None:
        self._attempts = attempts
        self._draw = draw
        self._quota = _QUOTA

    def call(self, send: Send) -> Program[Response]:
        """Make a call: a request, and its retries while it is throttled."""
        for attempt in count(1):
            try:
                response: Response = yield send
            except Exception as error:
                if not is_throttle(error) or attempt >= self._attempts or self._quota < _QUOTA_OF_A_RETRY:
                    raise
                self._quota -= _QUOTA_OF_A_RETRY
            else:
                back = _QUOTA_OF_A_SUCCESS if attempt == 1 else _QUOTA_OF_A_RETRY
                self._quota = min(_QUOTA, self._quota + back)
                return response
            now: float = yield Wait(0.0)
            yield Wait(now + self._draw() * min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** (attempt - 1)))
        raise AssertionError("count() does not end")
