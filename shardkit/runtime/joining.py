"""Let callers that need the same answer at the same time send one request: those with ``Send.joins``.

The first caller sends it, and the others wait for its answer. If that is an error, or does not come in time, each sends
its own request: the error may be the first caller's own (interrupted, cancelled, refused by its budget).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

from shardkit.core.machine import Answer, Send

# An event handler of the first caller's request may make calls on other threads, which wait for it, and wait for them.
_MOST_SECONDS = 5.0
# The same on the first caller's thread, or in its task: it must not wait for itself.
_sending: ContextVar[bool] = ContextVar("shardkit_sending", default=False)


def joining(send: Callable[[Send], Answer]) -> Callable[[Send], Answer]:
    """Return a function that sends requests from many threads, and joins those that may be joined."""
    in_flight: dict[Hashable, Future[Answer | None]] = {}

    def joined(request: Send) -> Answer:
        if not request.joins or _sending.get():
            return send(request)
        key = os.getpid(), request.operation, request.params["TableName"]  # the thread that sends is not forked
        mine: Future[Answer | None] = Future()
        first = in_flight.setdefault(key, mine)
        if first is not mine:
            try:
                answer = first.result(_MOST_SECONDS)
            except TimeoutError:
                _forget(in_flight, key, first)
                answer = None
            return send(request) if answer is None else answer
        answer, outer = None, _sending.set(True)
        try:
            answer = send(request)
        finally:
            _forget(in_flight, key, mine)
            mine.set_result(None if isinstance(answer, Exception) else answer)
            _sending.reset(outer)
        return answer

    return joined


def joining_async(send: Callable[[Send], Awaitable[Answer]]) -> Callable[[Send], Awaitable[Answer]]:
    """Return a function that sends requests from many tasks, and joins those that may be joined."""
    in_flight: dict[Hashable, asyncio.Future[Answer | None]] = {}

    async def joined(request: Send) -> Answer:
        if not request.joins or _sending.get():
            return await send(request)
        loop = asyncio.get_running_loop()
        key = loop, request.operation, request.params["TableName"]
        mine: asyncio.Future[Answer | None] = loop.create_future()
        first = in_flight.setdefault(key, mine)
        if first is not mine:
            await asyncio.wait((first,), timeout=_MOST_SECONDS)
            _forget(in_flight, key, first)  # it may not have come in time
            answer = first.result() if first.done() else None
            return await send(request) if answer is None else answer
        answer, outer = None, _sending.set(True)
        try:
            answer = await send(request)
        finally:
            _forget(in_flight, key, mine)
            mine.set_result(None if isinstance(answer, Exception) else answer)
            _sending.reset(outer)  # last: it fails if the coroutine is closed in another context
        return answer

    return joined


def _forget(in_flight: dict[Hashable, Any], key: Hashable, first: object) -> None:
    """Forget a first caller's request, and not that of the next first caller after one that did not come in time."""
    if in_flight.get(key) is first:
        del in_flight[key]
