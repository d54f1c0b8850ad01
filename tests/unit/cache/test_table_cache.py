"""A table's cache in one process and in several: what readers get while others write, whoever is slow."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shardkit.cache.entries import MARK, Entry
from shardkit.cache.steps import AskTable
from shardkit.cache.table_cache import SETTLES, OpenWrite, TableCache
from shardkit.errors import ShardQueryError
from tests.support.cached import Actor, FakeStore, loader, table_cache
from tests.support.fakes import throttled

KEY = b"k"
SEARCH = [Phase.explicit, Phase.reuse, Phase.generate]
"""Without shrinking: the turns are drawn one by one, so a failure has hundreds of parts."""
LAG = SETTLES * 0.9
"""Seconds for which an eventually consistent read may miss a write."""


class World:
    """A table with one item, a store, and processes that read and write it in turns that a test draws."""

    def __init__(self, draw: Random, *, shared: bool, processes: int = 1) -> None:
        self.random = draw
        self.now = 0.0
        self.store = FakeStore(shared=shared)
        self.caches = [table_cache(shared=shared) for _ in range(processes)]
        self.applied: list[float] = [-100.0]  # when each version was written
        self.floor = [0] * processes
        self.running: list[Callable[[], bool]] = []

    def _load(self, step: AskTable) -> list[int]:
        newest = len(self.applied) - 1
        oldest = newest
        if not step.params.get("ConsistentRead"):
            while oldest and self.applied[oldest] > self.now - LAG:
                oldest -= 1
        return [self.random.randint(oldest, newest)]

    def _actor(self, program: Any) -> Actor:
        return Actor(program, self.store, lambda: self.now, self._load)

    def read(self, process: int) -> None:
        floor = self.floor[process]
        cache = self.caches[process]
        actor = self._actor(cache.read([KEY], loader(lambda version: Entry(0.5, {"v": {"N": str(version)}})), [None]))

        def go() -> bool:
            if actor.done:
                (read,) = actor.result
                assert int(read.entry.item["v"]["N"]) >= floor
                return False
            if not actor.waits:
                actor.go()
            return True

        self.running.append(go)

    def write(self, process: int, *, known: bool) -> None:
        cache = self.caches[process]
        steps = iter(range(3))
        actor: list[Actor] = []
        version: list[int] = []
        begun: list[OpenWrite] = []

        def go() -> bool:
            step = next(steps, None)
            if step == 0:
                begun.append(cache.begin([KEY], self.now))
            elif step == 1:
                self.applied.append(self.now)
                version.append(len(self.applied) - 1)
            elif step == 2:
                entry = Entry(0.5, {"v": {"N": str(version[0])}}) if known else None
                actor.append(self._actor(cache.end({KEY: entry}, begun[0], self.now)))
                # From here on its process must see it, even where the store is told later.
                self.floor[process] = max(self.floor[process], version[0])
            elif not actor[0].done:
                actor[0].go()
            return step is not None or not actor[0].done

        self.running.append(go)

    def turn(self, most_seconds: float) -> None:
        self.now += self.random.choice([0.0, 0.0, 0.0, self.random.uniform(0, most_seconds)])
        go = self.random.choice(self.running)
        if not go():
            self.running.remove(go)


@pytest.mark.long_search
@settings(phases=SEARCH)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_process_sees_its_own_writes(draw: Random, shared: bool) -> None:
    """However its reads and writes overlap, and however late the table shows a write to other readers."""
    world = World(draw, shared=shared)
    for _ in range(60):
        if draw.random() < 0.4 and len(world.running) < 8:
            if draw.random() < 0.6:
                world.read(0)
            else:
                world.write(0, known=draw.random() < 0.6)
        elif world.running:
            # A shared store forgets the mark of a write after SETTLES seconds; here no read takes that long.
            world.turn(0.0 if shared else 3 * SETTLES)
    while world.running:
        world.turn(0.0)


@pytest.mark.long_search
@settings(phases=SEARCH)
@given(st.randoms(use_true_random=False), st.booleans())
def test_of_several_processes_with_one_store_each_sees_its_own_writes(draw: Random, shared: bool) -> None:
    """Or several clients of one process, with one memory."""
    world = World(draw, shared=shared, processes=3)
    for cache in world.caches if not shared else ():
        cache.writes = world.caches[0].writes
    for _ in range(60):
        if draw.random() < 0.4 and len(world.running) < 8:
            process = draw.randrange(3)
            if draw.random() < 0.6:
                world.read(process)
            else:
                world.write(process, known=draw.random() < 0.6)
        elif world.running:
            world.turn(0.0)


class Reads:
    """One reader after the other, of a table that answers as a test says."""

    def __init__(self, cache: TableCache | None = None, **options: Any) -> None:
        self.cache = cache or table_cache(**options)
        self.store = FakeStore(shared=not self.cache.replaces)
        self.now = 0.0
        self.answer: Any = None
        self.takes = 0.0
        self.loads: list[dict[str, Any]] = []

    def load(self, step: AskTable) -> Any:
        self.loads.append(dict(step.params))
        self.now += self.takes
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer for _ in step.params["places"]]

    def actor(self, *keys: bytes) -> Actor:
        load = loader(lambda text: None if text is None else Entry(1.0, {"v": {"S": text}} if text else None))
        program = self.cache.read(list(keys or (KEY,)), load, [{"S": "pk"}] * len(keys or (KEY,)))
        return Actor(program, self.store, lambda: self.now, self.load)

    def read(self, *keys: bytes) -> Any:
        self.last = self.actor(*keys)
        (read, *_) = self.last.run()
        return None if read is None else (read.status, read.entry.item and read.entry.item["v"]["S"])

    def write(self, *, key: bytes = KEY, succeeds: bool = True) -> None:
        write = self.cache.begin([key], self.now)
        Actor(
            self.cache.end({key: Entry(1.0, {"v": {"S": "w"}}) if succeeds else None}, write, self.now),
            self.store,
            lambda: self.now,
            self.load,
        ).run()


def test_a_copy_is_served_for_its_time() -> None:
    reads = Reads(ttl=10.0, jitter=0.2, absent_ttl=4.0)
    reads.answer = "a"
    assert reads.read() == ("miss", "a")
    assert reads.last.counted == [({"S": "pk"}, "miss", 1.0)]
    reads.answer = ""
    reads.now = 8.9  # 10 s less half of 20%
    assert reads.read() == ("fresh", "a")
    assert reads.last.counted == [({"S": "pk"}, "fresh", 1.0)]
    reads.now = 9.1
    assert reads.read() == ("miss", None)
    reads.now += 3.5
    assert reads.read() == ("fresh", None)
    reads.now += 0.2
    assert reads.read() == ("miss", None)


def test_a_copy_is_as_old_as_the_beginning_of_its_read() -> None:
    reads = Reads(ttl=10.0)
    reads.answer, reads.takes = "a", 4.0
    assert reads.read() == ("miss", "a")
    reads.now = 9.9
    assert reads.read() == ("fresh", "a")
    reads.now = 10.1
    assert reads.read() == ("miss", "a")


def test_a_copy_is_not_read_again_in_the_background_while_that_is_throttled() -> None:
    reads = Reads(ttl=10.0, stale_while_revalidate=100.0)
    reads.answer = "a"
    reads.read()
    reads.now, reads.answer = 20.0, throttled("KeyRangeThroughput", kind="Read")
    reads.read()
    (later,) = reads.last.later
    background = Actor(later, reads.store, lambda: reads.now, reads.load)
    with pytest.raises(type(reads.answer)):
        background.run()
    reads.now = 20.9
    assert reads.read() == ("stale", "a")
    assert reads.last.later == []
    reads.now = 21.1
    reads.read()
    assert len(reads.last.later) == 1


def test_absence_may_be_left_out() -> None:
    reads = Reads(absent_ttl=0.0)
    reads.answer = ""
    assert [reads.read(), reads.read()] == [("miss", None)] * 2


def test_an_old_copy_is_served_while_it_is_read_again() -> None:
    reads = Reads(ttl=10.0, stale_while_revalidate=5.0)
    reads.answer = "a"
    reads.read()
    reads.now, reads.answer = 12.0, "b"
    assert reads.read() == ("stale", "a")
    (later,) = reads.last.later
    assert reads.read() == ("stale", "a")
    assert reads.last.later == []  # however many read it before its turn has come
    Actor(later, reads.store, lambda: reads.now, reads.load).run()
    assert reads.read() == ("fresh", "b")
    reads.now += 15.1
    assert reads.read() == ("miss", "b")


@pytest.mark.parametrize(
    "error", [throttled("KeyRangeThroughput", kind="Read"), ShardQueryError("", {1: throttled()}, [])]
)
def test_an_old_copy_is_served_if_the_read_is_throttled(error: Exception) -> None:
    reads = Reads(ttl=10.0, stale_if_throttled=100.0)
    reads.answer = "a"
    reads.read()
    reads.now, reads.answer = 20.0, error
    assert reads.read() == ("stale", "a")
    assert len(reads.loads) == 2
    # For a second, it is not asked for again.
    reads.now = 20.9
    assert reads.read() == ("stale", "a")
    assert len(reads.loads) == 2
    reads.now, reads.answer = 21.1, "b"
    assert reads.read() == ("miss", "b")
    reads.now, reads.answer = 200.0, error
    with pytest.raises(type(error)):
        reads.read()
    reads.now, reads.answer = 32.0, ValueError("another error")
    with pytest.raises(ValueError, match="another error"):
        reads.read()


def test_unprocessed_keys_are_left_or_served_from_old_copies() -> None:
    reads = Reads(ttl=10.0, stale_if_throttled=100.0)
    assert reads.read() is None
    reads.answer = "a"
    assert reads.read() == ("miss", "a")
    reads.now, reads.answer = 11.0, None
    assert reads.read() == ("stale", "a")


def test_many_readers_are_one_read() -> None:
    reads = Reads()
    reads.answer = "a"
    actors = [reads.actor() for _ in range(100)]
    for _ in range(20):
        for actor in actors:
            if not actor.done and not actor.waits:
                actor.go()
    assert len(reads.loads) == 1
    statuses = [actor.result[0].status for actor in actors]
    assert statuses.count("miss") == 1
    entries = [actor.result[0].entry.item for actor in actors]
    assert len({id(item) for item in entries}) == 100


def test_an_error_is_that_of_all_who_wait_and_not_kept() -> None:
    reads = Reads()
    reads.answer = ValueError("lost")
    actors = [reads.actor() for _ in range(3)]
    for _ in range(20):
        for actor in actors:
            if not actor.done and not actor.waits:
                actor.go()
    assert [str(actor.error) for actor in actors] == ["lost"] * 3
    reads.answer = "a"
    assert reads.read() == ("miss", "a")


def test_if_the_reader_is_cancelled_one_who_waits_reads() -> None:
    reads = Reads()
    reads.answer = "a"
    first, second = reads.actor(), reads.actor()
    for _ in range(3):
        first.go()
        second.go()
    while not second.waits:
        second.go()
    first.program.close()
    assert second.run()[0].entry.item == {"v": {"S": "a"}}


def test_two_readers_of_each_others_keys_do_not_wait_for_ever() -> None:
    reads = Reads()
    reads.answer = "a"
    actors = [reads.actor(b"1", b"2"), reads.actor(b"2", b"1")]
    for _ in range(30):
        for actor in actors:
            if not actor.done and not actor.waits:
                actor.go()
    assert all(actor.done for actor in actors)
    assert sorted(place for load in reads.loads for place in load["places"]) == [0, 1]


def test_what_a_write_makes_of_a_copy() -> None:
    reads = Reads()
    reads.write()
    assert reads.store.contents == {}  # only copies of what was asked for are replaced
    reads.answer = "a"
    assert reads.read() == ("miss", "a")
    reads.write()
    assert reads.read() == ("fresh", "w")
    reads.write(succeeds=False)
    assert reads.read() == ("miss", "a")
    assert reads.loads[-1] == {"places": [0], "ConsistentRead": True}
    reads.now = SETTLES + 0.1
    reads.write(succeeds=False)
    reads.now += SETTLES + 0.1
    reads.read()
    assert reads.loads[-1] == {"places": [0]}


def test_two_writes_at_once_leave_no_copy() -> None:
    """Nobody but the service knows which came last."""
    reads = Reads()
    reads.answer = "a"
    reads.read()
    write = reads.cache.begin([KEY], 0.0)
    reads.write()
    assert reads.store.contents == {}
    reads.read()  # under a write: not kept
    assert reads.store.contents == {}
    Actor(reads.cache.end({KEY: Entry(1.0)}, write, 0.0), reads.store, lambda: 0.0, reads.load).run()
    assert reads.store.contents == {}
    reads.read()
    reads.write()
    assert reads.read() == ("fresh", "w")


def test_a_store_that_did_not_hear_of_a_write_is_not_asked_for_the_item() -> None:
    reads = Reads(shared=True, ttl=60.0)
    reads.answer = "old"
    reads.read()
    reads.store.fails = True
    reads.write()
    reads.answer = "new"
    assert reads.read() == ("miss", "new")
    reads.store.fails = False
    assert reads.read() == ("miss", "new")  # and tells it
    assert reads.read() == ("miss", "new")
    assert reads.loads[1:] == [{"places": [0], "ConsistentRead": True}] * 3
    assert reads.read() == ("fresh", "new")


@pytest.mark.parametrize("sees", ["read", "write"])
def test_a_store_that_answers_again_is_told_of_the_writes_that_it_missed(sees: str) -> None:
    """Though nobody reads their items in this process; a write that is missed meanwhile is told of again."""
    one, other = Reads(shared=True), Reads(shared=True)
    other.store = one.store
    other.answer = "old"
    other.read()
    other.read(b"another")
    assert other.read() == ("fresh", "old")

    def missed() -> None:
        one.store.fails = True
        one.write()
        one.store.fails = False

    def telling() -> Actor:
        if sees == "read":
            one.read(b"another")
            saw = one.last
        else:
            saw = Actor(one.cache.end({b"another": None}, None, one.now), one.store, lambda: one.now, one.load)
            saw.run()
        (program,) = saw.later
        return Actor(program, one.store, lambda: one.now, one.load)

    missed()
    tells = telling()
    tells.go()
    other.answer = "new"
    assert other.read() == ("miss", "new")
    missed()
    tells.run()
    assert other.read() == ("fresh", "new")
    other.answer = "newest"
    other.read(b"another")
    telling().run()
    assert other.read() == ("miss", "newest")
    one.read(b"another")
    assert one.last.later == []


def test_a_store_that_answers_again_is_told_of_a_missed_write_that_may_change_any_item() -> None:
    """Before the other writes, whose marks must stay; if it fails again, it is told later."""
    reads = Reads(shared=True)
    reads.answer = "old"
    reads.read(b"another")
    reads.store.fails = True
    reads.write()
    reads.write(key=reads.cache.all_keys, succeeds=False)
    for fails in (True, False):
        reads.store.fails = False
        reads.read(b"another")
        (program,) = reads.last.later
        reads.store.fails = fails
        Actor(program, reads.store, lambda: reads.now, reads.load).run()
    assert [(key, content[:1]) for key, content in reads.store.contents.items()] == [(KEY, MARK)]
    assert reads.read(b"another") == ("miss", "old")
    assert reads.read(b"another") == ("fresh", "old")


def test_a_copy_that_was_looked_up_before_the_store_heard_of_a_write_is_not_served() -> None:
    reads = Reads()
    reads.answer = "old"
    reads.read()
    write = reads.cache.begin([KEY], 0.0)
    writer = Actor(reads.cache.end({KEY: None}, write, 0.0), reads.store, lambda: 0.0, reads.load)
    reader = reads.actor()
    reader.go()
    writer.run()
    reads.answer = "new"
    assert reader.run()[0].entry.item == {"v": {"S": "new"}}


def test_another_process_replaces_the_mark_of_a_write_by_what_it_reads_strongly_consistent() -> None:
    one, other = Reads(shared=True), Reads(shared=True)
    other.store = one.store
    one.write()
    other.answer = "new"
    assert other.read() == ("miss", "new")
    assert other.loads == [{"places": [0], "ConsistentRead": True}]
    assert one.read() == ("fresh", "new")


def test_a_reader_that_sees_the_mark_of_a_write_joins_no_read_that_began_before_it() -> None:
    one, other = Reads(shared=True), Reads(shared=True)
    other.store = one.store
    other.answer = "old"
    slow = other.actor()
    while not other.loads:
        slow.go()  # it has the item, and has not told of it
    one.write()
    other.answer = "new"
    readers = [other.actor() for _ in range(2)]
    for reader in (*readers, *readers):
        reader.go()  # both see the mark
    assert [reader.run()[0].entry.item["v"]["S"] for reader in readers] == ["new", "new"]
    assert slow.run()[0].entry.item == {"v": {"S": "old"}}
    assert len(other.loads) == 2  # the readers share one
    assert other.read() == ("fresh", "new")


def test_keys_that_were_written_are_forgotten() -> None:
    cache = table_cache(ttl=5.0)
    for number in range(5_000):
        write = cache.begin([b"%d" % number], number / 1000)
        Actor(cache.end({b"%d" % number: None}, write, number / 1000), FakeStore(), lambda: 0.0, lambda _: None).run()
    assert len(cache.writes.by_key) < 2_100


def test_of_many_writes_at_once_none_is_missed() -> None:
    """A load, for example."""
    reads = Reads()
    reads.answer = "a"
    for number in range(11_000):
        key = KEY if number == 0 else b"%d" % number
        write = reads.cache.begin([key], 0.0)
        Actor(reads.cache.end({key: None}, write, 0.0), reads.store, lambda: 0.0, reads.load).run()
    assert len(reads.cache.writes.by_key) < 10_100
    reads.read()
    assert reads.loads == [{"places": [0], "ConsistentRead": True}]


def test_a_write_that_never_ends_is_forgotten() -> None:
    """Its task was cancelled, so it may have been made; later writes of the key are not taken for simultaneous."""
    reads = Reads(ttl=10.0, absent_ttl=10.0)
    reads.answer = "a"
    reads.cache.begin([KEY], 0.0)
    assert [reads.read(), reads.read()] == [("miss", "a")] * 2
    reads.now = 9.0
    reads.write()
    assert [reads.read(), reads.read()] == [("miss", "a")] * 2
    reads.now = 10.0
    assert [reads.read(), reads.read()] == [("miss", "a"), ("fresh", "a")]
    reads.write()
    assert reads.read() == ("fresh", "w")


def test_a_write_that_was_not_sent_changes_nothing() -> None:
    reads = Reads()
    reads.answer = "a"
    reads.read()
    write = reads.cache.begin([KEY], 0.0)
    assert reads.read() == ("miss", "a")
    reads.cache.withdraw(write)
    assert reads.read() == ("fresh", "a")


def test_a_write_that_nobody_saw_begin_leaves_no_copy() -> None:
    reads = Reads()
    reads.answer = "a"
    reads.read()
    Actor(reads.cache.end({KEY: Entry(1.0)}, None, 0.0), reads.store, lambda: 0.0, reads.load).run()
    assert reads.store.contents == {}
    assert [reads.read(), reads.read()] == [("miss", "a"), ("fresh", "a")]


@pytest.mark.parametrize("fails", [False, True])
def test_a_write_that_may_change_any_item(fails: bool) -> None:
    reads = Reads(ttl=10.0, absent_ttl=10.0)
    reads.answer = "a"
    reads.read()
    write = reads.cache.begin([reads.cache.all_keys], 0.0)
    assert reads.read() == ("miss", "a")
    reads.store.fails = fails
    program = reads.cache.end({reads.cache.all_keys: None}, write, 0.0)
    Actor(program, reads.store, lambda: 0.0, reads.load).run()
    reads.store.fails = False
    reads.loads.clear()
    assert reads.read() == ("miss", "a")
    assert reads.loads == [{"places": [0], "ConsistentRead": True}]
    # A store that did not hear of it has all its old copies for a while.
    assert reads.read() == (("miss" if fails else "fresh"), "a")
    reads.now = 10.0
    assert [reads.read(), reads.read()][1] == ("fresh", "a")


def test_pages_that_were_read_while_their_first_version_was_made_are_not_kept_after_a_write() -> None:
    reads = Reads(query_ttl=100.0)
    reads.cache.draw = iter((0.1, 0.2, 0.3, 0.4)).__next__
    reads.answer = "old"
    load = loader(lambda text: Entry(1.0, page={"Items": [{"v": {"S": text}}]}))

    def page() -> Actor:
        program = reads.cache.read_page(b"page", b"pages", load, None)
        return Actor(program, reads.store, lambda: reads.now, reads.load)

    slow = page()
    slow.go()
    slow.go()  # it has looked for a version, and there is none
    write = reads.cache.begin([b"pages"], reads.now)
    Actor(reads.cache.end({b"pages": None}, write, reads.now), reads.store, lambda: reads.now, reads.load).run()
    slow.run()
    reads.now, reads.answer = SETTLES, "new"
    assert page().run().entry.page == {"Items": [{"v": {"S": "new"}}]}


def test_those_who_joined_a_batch_that_failed_read_for_themselves() -> None:
    """Another key of the batch may be to blame."""
    reads = Reads()
    first, second = reads.actor(KEY, b"of a wrong type"), reads.actor()
    for actor, turns in ((first, 4), (second, 2)):
        for _ in range(turns):
            actor.go()
    assert second.waits
    reads.answer = ValueError("validation")
    with pytest.raises(ValueError, match="validation"):
        first.run()
    reads.answer = "a"
    (read,) = second.run()
    assert read.status == "miss"


def test_absence_that_is_never_served_is_not_served_after_a_delete_either() -> None:
    reads = Reads(absent_ttl=0.0, stale_while_revalidate=60.0)
    reads.answer = "a"
    reads.read()
    write = reads.cache.begin([KEY], 0.0)
    Actor(reads.cache.end({KEY: Entry(0.5)}, write, 0.0), reads.store, lambda: 0.0, reads.load).run()
    reads.answer = ""
    assert reads.read() == ("miss", None)


def test_a_clock_that_is_set_back_does_not_keep_copies_for_longer() -> None:
    reads = Reads(ttl=10.0, stale_while_revalidate=5.0)
    reads.now, reads.answer = 3600.0, "a"
    reads.read()
    reads.now, reads.answer = 0.0, "b"
    assert [reads.read(), reads.read()] == [("miss", "b"), ("fresh", "b")]


def test_a_write_that_forgets_a_flight_while_it_lands_fails_no_reader() -> None:
    class Flights(dict[bytes, Any]):
        def get(self, key: bytes, default: Any = None) -> Any:
            return self.pop(key, default)  # as another thread may, before its caller goes on

    reads = Reads()
    reads.answer = "a"
    reads.cache._flights = Flights()  # noqa: SLF001 - a race of two threads
    assert reads.read() == ("miss", "a")


def test_a_read_that_began_before_another_processs_write_does_not_replace_what_was_read_after_it() -> None:
    store, now = FakeStore(shared=True), 0.0
    load = loader(lambda version: Entry(0.5, {"v": {"N": str(version)}}))

    def read(cache: TableCache, version: int) -> Actor:
        return Actor(cache.read([KEY], load, [None]), store, lambda: now, lambda _: [version])

    writing, other = table_cache(shared=True), table_cache(shared=True)
    slow = read(other, 1)
    slow.go()
    slow.go()  # it has looked: there is nothing
    write = writing.begin([KEY], now)
    Actor(writing.end({KEY: None}, write, now), store, lambda: now, lambda _: None).run()
    read(writing, 2).run()
    slow.run()
    (found,) = read(writing, 3).run()
    assert found.entry.item == {"v": {"N": "2"}}
