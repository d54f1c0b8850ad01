"""One member of a shared budget: the rules on which the proof rests, one by one."""

from __future__ import annotations

from itertools import count
from typing import Any

from shardkit.capacity.membership import BEAT_SECONDS, MEMBER_LEASE_SECONDS, SETTLED, SILENT_SECONDS, Membership, Now
from shardkit.core.machine import Send
from tests.support.shared_budgets import Item

_names = count()


def member(rate: float = 100.0, *, burst: float = 1.0, now: Now = (0.0, 0.0)) -> Membership:
    return Membership({"write": rate}, burst, lambda: f"name{next(_names)}", now)


def send(update: dict[str, Any]) -> Send:
    return Send("UpdateItem", update)


def renew(one: Membership, item: Item, at: float, answered: float | None = None) -> bool:
    """Send an update, of a member that has a call waiting, and let it learn from the answer."""
    now, later = (at, at), (at if answered is None else answered,) * 2
    one.take("write", 1000.0, now)
    one.ready("write", now)
    one.take("write", -1000.0, now)
    answer = item.answer(send(one.update(now)))
    assert isinstance(answer, dict)
    return one.answered(answer["Attributes"], now, later)


def settled() -> Item:
    """An item that has been there for long."""
    item = Item()
    first = member()
    for at in (0.0, BEAT_SECONDS, SILENT_SECONDS, SILENT_SECONDS + 1.0):
        renew(first, item, at)
    assert SETTLED in item.attributes
    item.answer(send(first.leave((SILENT_SECONDS + 1.0,) * 2)))
    return item


def joined(item: Item, at: float = 0.0) -> Membership:
    one = member()
    beat(one, item, at)
    return one


def beat(one: Membership, item: Item, at: float) -> None:
    while renew(one, item, at):
        pass


def test_a_share_ends_so_long_after_its_renewal_was_sent() -> None:
    one = member()
    item = settled()
    renew(one, item, 0.0, answered=5.0)
    renew(one, item, 5.0, answered=5.0)
    assert one.share("write", (5.0 + MEMBER_LEASE_SECONDS - 0.1,) * 2) == 100.0
    assert one.share("write", (5.0 + MEMBER_LEASE_SECONDS,) * 2) == 0.0
    slow = member()
    renew(slow, settled(), 0.0, answered=5.0)
    assert slow.valid((MEMBER_LEASE_SECONDS - 0.1,) * 2)
    assert not slow.valid((MEMBER_LEASE_SECONDS,) * 2)


def test_the_clock_that_ran_faster_ends_it() -> None:
    one = joined(settled())
    assert one.share("write", (1.0, 5.0)) == 100.0
    assert one.share("write", (1.0, MEMBER_LEASE_SECONDS)) == 0.0


def test_an_answer_that_came_too_late_begins_a_new_membership() -> None:
    item = settled()
    one = joined(item)
    (before,) = item.attributes.keys() - settled().attributes.keys()
    assert renew(one, item, MEMBER_LEASE_SECONDS - 0.1, answered=MEMBER_LEASE_SECONDS + 0.1)
    assert one.share("write", (MEMBER_LEASE_SECONDS + 0.1,) * 2) == 0.0
    beat(one, item, MEMBER_LEASE_SECONDS + 0.2)
    assert one.share("write", (MEMBER_LEASE_SECONDS + 0.2,) * 2) == 100.0
    assert before not in item.attributes  # others may remove that name at any time
    assert len(item.attributes) == 3


def test_an_update_that_arrives_late_changes_nothing() -> None:
    item = settled()
    one = joined(item)
    late = send(one.update((1.0, 1.0)))
    renew(one, item, 2.0)
    before = dict(item.attributes)
    assert isinstance(item.answer(late), Exception)
    assert item.attributes == before


def test_what_a_share_kept_shrinks_with_it() -> None:
    item = settled()
    one = joined(item)
    another = joined(item, 5.0)
    beat(one, item, 5.0)
    assert one.share("write", (5.0, 5.0)) == 50.0
    one.take("write", 50.0, (5.0, 5.0))
    assert one.ready("write", (5.0, 5.0)) == 5.0  # nothing is owed
    one.take("write", 1.0, (5.0, 5.0))
    assert one.ready("write", (5.0, 5.0)) > 5.0
    assert another.share("write", (5.0, 5.0)) == 0.0
    beat(another, item, 5.1)
    assert another.share("write", (5.1, 5.1)) == 50.0


def test_one_that_wrote_after_the_last_look_is_not_silent() -> None:
    item = settled()
    one, another = joined(item), joined(item)
    beat(one, item, 5.0)
    beat(another, item, 5.5)  # after the answer that `one` saw last
    beat(one, item, SILENT_SECONDS + 0.4)
    beat(another, item, SILENT_SECONDS + 0.5)
    assert another.share("write", (SILENT_SECONDS + 0.5,) * 2) == 50.0
    assert len(item.attributes) == 4


def test_one_that_is_silent_is_removed_and_its_share_taken() -> None:
    item = settled()
    one, _ = joined(item), joined(item)
    for at in (3.0, 6.0, SILENT_SECONDS - 0.1):
        renew(one, item, at)
    assert one.share("write", (7.4, 7.4)) == 50.0
    assert one.next((7.4, 7.4)) <= 3.0
    assert renew(one, item, 3.0 + SILENT_SECONDS)
    renew(one, item, 3.0 + SILENT_SECONDS)
    assert one.share("write", (3.0 + SILENT_SECONDS,) * 2) == 100.0
    assert len(item.attributes) == 3


def test_an_item_that_a_late_repetition_made_again_raises_no_share() -> None:
    item, one, other = Item(), member(), member()
    making = one.update((0.0, 0.0))
    made = item.answer(send(making))
    assert isinstance(made, dict)
    one.answered(made["Attributes"], (0.0, 0.0), (0.0, 0.0))
    for at in (BEAT_SECONDS, 2 * BEAT_SECONDS, SILENT_SECONDS, 3 * BEAT_SECONDS):
        for each in (one, other, one):
            beat(each, item, at)
    now = (3 * BEAT_SECONDS,) * 2
    assert one.share("write", now) == other.share("write", now) == 50.0

    item.attributes = {}  # somebody deletes the item
    item.answer(send(making))
    answer = item.answer(send(other.update(now)))
    assert isinstance(answer, Exception)
    assert other.refused(now)
    assert other.share("write", now) == 0.0
    beat(other, item, now[0])
    assert other.share("write", now) == 0.0
    assert one.share("write", now) == 50.0
