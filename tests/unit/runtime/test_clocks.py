"""The clock that a client is given: as long as somebody holds the client to it."""

from __future__ import annotations

import pytest

from shardkit import ConfigurationError
from shardkit.runtime.runner import clock_of, on_clock
from shardkit.testing import VirtualClock


class Client:
    """What a clock is given to: anything that can be referred to weakly."""


def test_a_client_stays_on_its_clock_until_the_last_one_leaves_in_any_order() -> None:
    client, clock = Client(), VirtualClock()
    first, second = on_clock(client, clock), on_clock(client, clock)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert clock_of(client) is clock
    second.__exit__(None, None, None)
    assert clock_of(client) is None


def test_another_clock_is_refused_while_the_client_is_on_one() -> None:
    client = Client()
    with on_clock(client, VirtualClock()) as _, pytest.raises(ConfigurationError, match="the client is already on"):
        on_clock(client, VirtualClock()).__enter__()
    with on_clock(client, VirtualClock()):
        assert clock_of(client) is not None
    assert clock_of(client) is None
