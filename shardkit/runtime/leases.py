"""The check of leases on each physical request of a client, and the clocks that it reads."""

from __future__ import annotations

import time
from typing import Any

from shardkit.runtime.own_call import checks


def clocks() -> tuple[float, float]:
    """Return the seconds of two clocks: one that is never set back, and one that goes on while a machine is suspended.

    Leases count the one that ran faster.
    """
    return time.monotonic(), time.time()


def check_requests(client: Any) -> None:
    """Check each request of shardkit's own calls just before it goes, retries included.

    The event is the one after the signature: the age that the service allows for it bounds when a request that goes
    later, or that is on its way for long, can take effect. And it is the first handler: what others answer in place of
    the service (a Stubber, moto) is checked too. The context tells what must hold, not the call, because the event does
    not name its call: requests that a user's handler makes inside a call are checked as well, which does no harm.
    """
    client.meta.events.register_first("before-send.*.*", _check, unique_id="shardkit-check")


def _check(**_: Any) -> None:
    check = checks.get()
    if check is not None:
        check()
