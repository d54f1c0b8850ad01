"""A shared budget on real engines: the updates that it sends, and four processes of which one is killed."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardkit import SharedBudget, bulk_load
from shardkit.core.shares import SharedRate
from tests.support.beats import Beats
from tests.support.engines import EngineName
from tests.support.fakes import connected
from tests.support.platforms import require_fork
from tests.support.profiles import LONG
from tests.support.sharing import consumed, share
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

RATE = 200.0

require_fork()
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.support.sharing"])


def test_members_join_leave_and_remove_each_other(engine_resource: DynamoDBServiceResource) -> None:
    table = make_table(engine_resource, sort_key=("sk", "S"))
    beats = Beats()
    first, second = (
        SharedBudget(table, "b", 100.0, read_units=10.0, clock=beats.read, start=beats.start).shared_rate("read", "")
        for _ in range(2)
    )

    def use(*rates: SharedRate) -> None:
        for _ in range(15):
            for rate in rates:
                if rate.ready(beats.now) <= beats.now:
                    rate.take(20.0, beats.now)
            beats.sleep(1.0)

    use(first, second)
    assert (first.rate, second.rate) == (5.0, 5.0)
    beats.due.clear()  # both die
    third = SharedBudget(table, "b", read_units=10.0, clock=beats.read, start=beats.start)
    rate = third.shared_rate("read", "")
    use(rate)
    assert rate.rate == 10.0
    item = table.get_item(Key={"pk": "b", "sk": "shardkit:budget"})["Item"]
    assert len([name for name in item if name.startswith("m:")]) == 1
    third.close()
    table.put_item(Item={"pk": "c", "sk": "shardkit:budget"})
    with pytest.raises(Exception, match="not a shared budget"):
        bulk_load(table, [{"pk": "x", "sk": "y"}], write_units=SharedBudget(table, "c", 100.0))


@pytest.mark.long_search
@pytest.mark.integration
@pytest.mark.skipif(not LONG, reason="takes 40 seconds: set HYPOTHESIS_PROFILE=search")
def test_the_share_of_a_process_that_is_killed_is_used_again(
    engine_endpoint: Callable[[EngineName], str], tmp_path: Path
) -> None:
    endpoint = engine_endpoint("dynoxide")
    resource = connected(endpoint)
    orders, budgets = make_table(resource).name, make_table(resource).name
    loads = [
        processes.Process(
            target=share, args=(endpoint, orders, budgets, RATE, tmp_path / f"{number}.units"), daemon=True
        )
        for number in range(4)
    ]

    def used(since: float, until: float) -> float:
        return sum(taken for at, taken in consumed(tmp_path) if since <= at < until) / (until - since) / RATE

    try:
        for load in loads:
            load.start()
        late = time.monotonic() + 60.0  # on a busy machine, processes start late
        while used(time.monotonic() - 4, time.monotonic()) < 0.9 and time.monotonic() < late:
            time.sleep(0.5)
        loads[0].kill()
        killed = time.monotonic()
        time.sleep(18.0)
    finally:
        ended = time.monotonic()
        for load in loads:
            load.kill()
            load.join()
        resource.meta.client.close()
    seconds = next(second for second in range(1, 17) if used(killed + second, killed + second + 2) >= 0.9)
    sys.stdout.write(
        f"used before {used(killed - 4, killed):.2f}, just after {used(killed + 1, killed + 5):.2f}, at least 0.9 from "
        f"{seconds} s on, {used(ended - 4, ended):.2f} at the end\n"
    )
    assert used(killed - 4, killed) >= 0.9
    assert used(killed + 1, killed + 5) <= 0.85
    assert seconds <= 15
    # No window has more than its units, a burst of a second, and a batch of each worker.
    total, least = 0.0, 0.0
    for at, taken in consumed(tmp_path):
        least = min(least, total - RATE * at)
        total += taken
        assert total - RATE * at - least <= RATE + 4 * 2 * 25
