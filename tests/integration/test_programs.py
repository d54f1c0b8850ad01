"""Random programs of operations, with faults of the service, on a plain table and on an installed sharded one."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.played import Player
from tests.support.programs import program

if TYPE_CHECKING:
    import boto3
    from types_boto3_dynamodb import DynamoDBServiceResource


@pytest.mark.long_search
def test_the_same_as_on_a_plain_table(boto3_session: boto3.Session, engine_resource: DynamoDBServiceResource) -> None:
    """Every answer, what is unprocessed included, and the items in the end.

    A failure shows its seed, and the operations that are needed to see it again. ``SHARDKIT_SEED=7`` begins with the
    program of this seed; ``SHARDKIT_SECONDS=3600`` goes on for an hour.
    """
    seed = int(os.environ.get("SHARDKIT_SEED") or Random().randrange(10**9))
    sys.stderr.write(f"SHARDKIT_SEED={seed}\n")
    seconds, programs = float(os.environ.get("SHARDKIT_SECONDS", "0")), max(2, settings().max_examples // 5 - 10)
    end = time.monotonic() + seconds
    with closing(Player(boto3_session, engine_resource)) as player:
        while time.monotonic() < end if seconds else programs:
            player.check(program(seed))
            seed, programs = seed + 1, programs - 1
