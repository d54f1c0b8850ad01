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
                in_flight.pop(key, None)
                answer = None
            return send(request) if answer is None else answer
        answer, outer = None, _sending.set(True)
        try:
            answer = send(request)
        finally:
            _sending.reset(outer)
            in_flight.pop(key, None)
            first.set_result(None if isinstance(answer, Exception) else answer)
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
        first = in_flight.get(key)
        if first is not None:
            await asyncio.wait((first,), timeout=_MOST_SECONDS)
            answer = first.result() if first.done() else None
            return await send(request) if answer is None else answer
        first = in_flight[key] = loop.create_future()
        answer, outer = None, _sending.set(True)
        try:
            answer = await send(request)
        finally:
            _sending.reset(outer)
            in_flight.pop(key, None)
            first.set_result(None if isinstance(answer, Exception) else answer)
        return answer

    return joined
