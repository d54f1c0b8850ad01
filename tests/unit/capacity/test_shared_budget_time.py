"""SharedBudget in virtual time: whatever happens, its members never send more than the rate together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkit.capacity.membership import BEAT_SECONDS, SILENT_SECONDS
from tests.support.profiles import LONG
from tests.support.shared_budgets import SETTLED, Process, World, terms

FASTEST = 1.02  # the clock of a process, against the true time
Scenario = tuple[World, list[Process], float, float]


def played(seed: int, seconds: float = 90.0) -> Scenario:
    """Let processes join, leave, die, be cut off and stand still, over a network that is not always good."""
    world = World(seed)
    draw = world.random
    rate, burst = draw.choice([20.0, 40.0]), draw.choice([0.0, 0.5, 1.0])
    common = terms(rate, burst=burst)
    demands = (None, None, rate / 8)
    processes = [Process(world, common, units=0.5, demand=draw.choice(demands)) for _ in range(draw.randint(1, 4))]
    time = 0.0
    while time < seconds:
        time += draw.expovariate(1 / 4.0)
        world.run(time)
        alive = [one for one in processes if one.alive]
        what = draw.choice(["join", "change", "kill", "cut", "stop", "delete", "set the clock", "network"])
        if what == "join" or not alive:
            processes.append(Process(world, common, units=0.5, demand=draw.choice(demands)))
            continue
        one = draw.choice(alive)
        if what == "change":
            one.demand = draw.choice([0.0, *demands])
        elif what == "kill":
            one.kill()
        elif what == "cut":
            one.cut = not one.cut
        elif what == "stop":
            one.suspend(draw.uniform(0.1, 20.0))
        elif what == "delete":
            world.item.attributes = {}
        elif what == "set the clock":
            one.jump += draw.choice([-3600.0, 5.0, 3600.0])
        else:
            world.slow, world.lost = draw.choice([0.0, 0.0, 0.5, 4.0, 8.0]), draw.choice([0.0, 0.0, 0.05, 0.3])
    return world, processes, rate, burst


def never_more(scenario: Scenario) -> None:
    world, processes, rate, burst = scenario
    most = rate * FASTEST * burst + sum(one.units for one in processes)
    assert world.excess(rate * FASTEST) <= most + 1e-6


@pytest.mark.long_search
@given(st.integers(0, 2**32))
def test_all_together_never_exceed_the_rate(seed: int) -> None:
    never_more(played(seed, seconds=90.0 if LONG else 25.0))


def test_one_member_uses_all_of_it_and_several_share_it_equally() -> None:
    world = World(1)
    one = Process(world, terms(100.0))
    world.run(20.0)
    assert world.used(SETTLED, 20.0) == pytest.approx(100.0, rel=0.03)
    others = [Process(world, terms(100.0)) for _ in range(3)]
    world.run(40.0)
    assert [round(each.member.share("write"), 3) for each in (one, *others)] == [25.0] * 4
    assert world.used(26.0, 40.0) == pytest.approx(100.0, rel=0.03)


def test_what_one_does_not_want_goes_to_the_others() -> None:
    world = World(2)
    modest, greedy = Process(world, terms(100.0), demand=10.0), Process(world, terms(100.0))
    world.run(40.0)
    assert modest.member.share("write") == pytest.approx(12.5, rel=0.1)
    assert greedy.member.share("write") == pytest.approx(87.5, rel=0.02)
    assert world.used(20.0, 40.0) == pytest.approx(97.5, rel=0.03)


def test_the_share_of_one_that_died_is_used_again_within_eleven_seconds() -> None:
    world = World(3)
    processes = [Process(world, terms(100.0)) for _ in range(4)]
    world.run(30.0)
    processes[0].kill()
    world.run(60.0)
    assert world.used(30.0, 30.0 + SILENT_SECONDS - BEAT_SECONDS) == pytest.approx(75.0, rel=0.04)
    assert world.used(41.0, 60.0) >= 97.0


def test_one_that_leaves_frees_its_share_at_its_next_update() -> None:
    world = World(4)
    first, second = (Process(world, terms(100.0)) for _ in range(2))
    world.run(20.0)
    first.demand = 0.0
    world.run(40.0)
    assert second.member.share("write") == 100.0
    assert len([name for name in world.item.attributes if name.startswith("m:")]) == 1
    second.demand = 0.0
    world.run(60.0)
    updates = world.item.updates
    world.run(600.0)
    assert world.item.updates == updates  # an unused budget costs nothing
    # The item is known now: a share is there at once.
    second.demand = None
    world.run(610.0)
    assert world.used(601.0, 610.0) == pytest.approx(100.0, rel=0.03)


def test_one_that_is_cut_off_stops_and_goes_on_by_itself() -> None:
    world = World(5)
    processes = [Process(world, terms(100.0)) for _ in range(2)]
    world.run(20.0)
    for one in processes:
        one.cut = True
    world.run(60.0)
    assert not [time for time, _ in world.sent if 26.5 < time < 60.0]
    for one in processes:
        one.cut = False
    world.run(100.0)
    assert world.used(80.0, 100.0) == pytest.approx(100.0, rel=0.03)


def test_one_that_stood_still_sends_nothing_that_it_had_decided_before() -> None:
    world = World(6)
    stopped, other = Process(world, terms(100.0)), Process(world, terms(100.0))
    world.run(20.0)
    stopped.suspend(30.0)
    world.run(49.9)
    assert other.member.share("write") == 100.0
    before = stopped.requests
    world.run(50.001)
    assert stopped.requests == before
    world.run(60.0)
    assert stopped.requests > before


def test_of_different_rates_the_smallest_holds() -> None:
    world = World(7)
    first, second = Process(world, terms(100.0)), Process(world, terms(60.0))
    world.run(30.0)
    assert [first.member.share("write"), second.member.share("write")] == [30.0, 30.0]
    second.demand = 0.0
    world.run(60.0)
    assert first.member.share("write") == 100.0


def test_a_deleted_item_makes_nobody_send_more() -> None:
    world = World(8)
    processes = [Process(world, terms(40.0), units=0.25) for _ in range(3)]
    world.run(20.0)
    world.item.attributes = {}
    processes.append(Process(world, terms(40.0), units=0.25))
    world.run(60.0)
    assert world.excess(40.0 * FASTEST, since=19.0) <= 40.8 + 1.0
    assert world.used(40.0, 60.0) == pytest.approx(40.0, rel=0.03)
