"""A member of a shared budget: what it publishes, what it learns of the others, and which share it acts on.

The members share one item. Every ``BEAT_SECONDS``, each of them writes its own attribute there: a counter, what it
wants, and what it claims. The answer (ALL_NEW) shows the attributes of all, as of that moment.

Why the shares that are acted on never add up to more than the rate:

1. A member acts on at most what it claims, and lowers its share before it publishes a lower claim.
2. It raises its share only up to what the answer to its own update leaves: the rate minus the claims of all others. Let
   m be the last member that did so. Everybody else had claimed, in m's answer, at least the share that they still act
   on; and m acts on at most the rest.
3. A claim is removed only if its member acts on nothing. A share ends ``MEMBER_LEASE_SECONDS`` after the last update
   that was answered in time was *sent*. Others remove a member whose counter did not change for ``SILENT_SECONDS``. Its
   later updates are answered too late, so it begins again under another name. The difference between the two is for
   clocks that run at different rates.
4. An update that arrives late changes nothing: the counter in the item must not go back.
5. If the item was deleted, the members' claims are not in it. Each member learns of that from its own next update,
   which requires that its last answered one is still there; it then acts on nothing and begins again. Nobody raises a
   share until a new item has been there for ``SILENT_SECONDS``: by then, whoever acts on a share has a claim in it. The
   item's name (``BORN``) alone does not show that it is new: a late repetition of the update that made it makes it
   again.

No clock is compared with another one's. A member's own share ends by the clock that ran faster of those it is given;
others' silence is measured by the first of them, which must never be set back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import floor, inf, log10
from typing import Any

from shardkit.core.shares import max_min
from shardkit.core.token_bucket import TokenBucket
from shardkit.dynamodb.service_errors import Kind
from shardkit.dynamodb.values import WireItem
from shardkit.errors import ConfigurationError

BEAT_SECONDS = 3.0
MEMBER_LEASE_SECONDS = 2 * BEAT_SECONDS
SILENT_SECONDS = 1.25 * MEMBER_LEASE_SECONDS
BORN = "shardkit:budget"
"""The attribute that marks an item as a budget's; it has another value each time the item is made."""
SETTLED = "shardkit:settled"
"""Equal to BORN once everyone who acts on a share has a claim in the item."""
OURS = "(attribute_not_exists(#key) OR attribute_exists(#born))"
"""The condition that an item is a budget's, if there is one; ``#key`` is its partition key."""
_MEMBER = "m:"
_SIDES: tuple[Kind, Kind] = ("write", "read")
_PART = 3  # numbers of a side: rate, want, claim
_MORE = 1.25  # what a member wants of what it used, if it never had to wait
_WORTH_AN_UPDATE = 0.02

Now = tuple[float, ...]


@dataclass(slots=True)
class _Part:
    """What a member has published about one side; a rate of 0: it does not limit this side."""

    rate: float = 0.0
    want: float = 0.0
    claim: float = 0.0


@dataclass(eq=False, slots=True)
class _Side:
    """A member's own read or write units. ``share`` is acted on; the bucket has it as its rate."""

    rate: float
    bucket: TokenBucket
    want: float = 0.0
    claim: float = 0.0
    share: float = 0.0
    target: float = 0.0  # what to claim next
    used: float = 0.0  # since the last regular update
    waited: bool = False

    def debt(self, now: float) -> float:
        """Return the units that are owed."""
        return max(0.0, -self.bucket.spare(now))


class Membership:
    """One member; ``rates`` are those of the budget, ``burst`` is in seconds, ``draw_name`` returns a random name."""

    def __init__(self, rates: Mapping[Kind, float], burst: float, draw_name: Callable[[], str], now: Now) -> None:
        self._burst = burst
        self._draw_name = draw_name
        self._sides = {side: _Side(rate, TokenBucket(0.0, now=now[0])) for side, rate in rates.items()}
        self._name = draw_name()
        self._gone: set[str] = set()  # to be removed from the item
        self._beat = self._answered = 0  # counters: of the last update, and of the last that was answered
        self._since: Now | None = None  # when the last update that was answered was sent; None: it has no share
        self._measured = now[0]
        self._born = ""
        self._seen_since = inf  # of this item
        self._settled = self._marked = False
        self._others: dict[str, tuple[dict[Kind, _Part], int, float]] = {}  # with the counter, and since when

    # What the calls of this process need.

    def valid(self, now: Now) -> bool:
        """Return whether the shares may be acted on; if not, end them."""
        if self._since is None:
            return False
        if max(one - then for one, then in zip(now, self._since, strict=True)) < MEMBER_LEASE_SECONDS:
            return True
        # Up to the end of the lease, the buckets filled at the old rate.
        self._drop(min(now[0], self._since[0] + MEMBER_LEASE_SECONDS))
        return False

    def share(self, side: Kind, now: Now) -> float:
        """Return the units a second that may be used now."""
        return self._sides[side].share if self.valid(now) else 0.0

    def ready(self, side: Kind, now: Now) -> float:
        """Return when the next request may go, on the first clock; infinity: not with this share."""
        own = self._sides[side]
        ready = own.bucket.ready(now[0]) if self.share(side, now) else inf
        own.waited = own.waited or ready > now[0]
        return ready

    def take(self, side: Kind, units: float, now: Now) -> None:
        """Take units; a negative number gives units back."""
        self.valid(now)
        own = self._sides[side]
        own.bucket.take(units, now[0])
        own.used += units

    @property
    def hungry(self) -> bool:
        """Whether a call waits, and the others do not know it."""
        return any(own.waited and own.want < own.rate for own in self._sides.values())

    def debt(self, now: Now) -> float:
        """Return the seconds until no units are owed; infinity: they are, and there is no share."""
        self.valid(now)
        return max(own.bucket.ready(now[0]) - now[0] for own in self._sides.values())

    def next(self, now: Now) -> float:
        """Return the seconds until the next regular update."""
        silent = [since for name, (_, _, since) in self._others.items() if name not in self._gone]
        if not self._settled:
            silent.append(self._seen_since)
        return max(0.0, min(self._measured + BEAT_SECONDS, min(silent, default=inf) + SILENT_SECONDS) - now[0])

    def idle(self, now: Now) -> bool:
        """Return whether nothing has used the budget since the last regular update."""
        return not any(own.used or own.waited for own in self._sides.values()) and self.debt(now) in {0.0, inf}

    # The updates.

    def update(self, now: Now, *, regular: bool = True) -> dict[str, Any]:
        """Return the parameters of the next update; a ``regular`` one also publishes what the member wants now."""
        if regular:
            self._want(now)
        for kind, own in self._sides.items():
            own.want = own.rate if own.waited else own.want
            own.target = self._aim(kind, own)
        self._beat += 1
        parts: list[float] = [self._beat]
        for kind in _SIDES:
            if kind in self._sides:
                own = self._sides[kind]
                own.claim = _rounded(own.target)
                self._act(own, min(own.share, own.claim), now)
                parts += own.rate, own.want, own.claim
            else:
                parts += 0, 0, 0
        while not parts[-1]:
            parts.pop()
        names = {"#born": BORN, "#me": _MEMBER + self._name}
        values: WireItem = {
            ":born": {"S": self._draw_name()},
            ":beat": {"N": str(self._beat)},
            ":me": {"L": [{"N": f"{number:.15g}"} for number in parts]},
        }
        expression = "SET #born = if_not_exists(#born, :born), #me = :me"
        if self._settled and not self._marked:
            names["#settled"], values[":settled"] = SETTLED, {"S": self._born}
            expression += ", #settled = :settled"
        there = "(attribute_not_exists(#me) OR #me[0] <= :beat)"
        if self._answered:
            there, values[":answered"] = "#me[0] BETWEEN :answered AND :beat", {"N": str(self._answered)}
        if self._gone:
            gone = {f"#gone{place}": _MEMBER + name for place, name in enumerate(sorted(self._gone))}
            names.update(gone)
            expression += " REMOVE " + ", ".join(gone)
        return {
            "UpdateExpression": expression,
            "ConditionExpression": f"{OURS} AND {there}",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }

    def leave(self, now: Now) -> dict[str, Any]:
        """End the shares, and return the parameters of the update that says so."""
        names = {"#born": BORN, "#me": _MEMBER + self._name}
        self._drop(now[0])
        return {
            "UpdateExpression": "REMOVE #me",
            "ConditionExpression": OURS,
            "ExpressionAttributeNames": names,
        }

    def answered(self, item: WireItem, sent: Now, now: Now) -> bool:
        """Learn from the answer to an update; return whether to send another one at once."""
        members, name, lapsed = _members(item), self._name, self._since is not None and not self.valid(now)
        self._look(item, members, sent[0], now[0])
        if lapsed or name != self._name or name not in members:
            return True
        self._since, self._answered = sent, self._beat
        self._gone &= members.keys()
        again = bool(self._gone)
        shown = members[name][0]
        for kind, own in self._sides.items():
            own.target = self._aim(kind, own)
            self._act(own, min(shown[kind].claim, own.target), now)
            again = again or abs(own.target - own.claim) > _WORTH_AN_UPDATE * max(own.target, own.claim)
        return again

    def refused(self, now: Now) -> bool:
        """Learn that an update's condition failed; return whether to begin again: the claim is not in the item."""
        joined = self._answered > 0
        if joined:
            self._drop(now[0])
        return joined

    def _look(self, item: WireItem, members: dict[str, tuple[dict[Kind, _Part], int]], sent: float, now: float) -> None:
        born = item.get(BORN, {}).get("S", "")
        if born != self._born:
            self._born, self._seen_since = born, now
        self._marked = item.get(SETTLED, {}).get("S") == born
        self._settled = self._marked or sent - self._seen_since >= SILENT_SECONDS
        others = {}
        for name, (parts, beat) in members.items():
            if name != self._name:
                _, before, since = self._others.get(name, (parts, None, 0.0))
                others[name] = parts, beat, since if beat == before else now
                # Not later than this answer: the member may have written since.
                if beat == before and sent - since >= SILENT_SECONDS:
                    self._gone.add(name)
        self._others = others

    def _want(self, now: Now) -> None:
        seconds, self._measured = max(now[0] - self._measured, BEAT_SECONDS / 2), now[0]
        for own in self._sides.values():
            own.want = min(own.rate, _rounded(max(own.used * _MORE, own.debt(now[0])) / seconds))
            if own.waited:
                own.want = own.rate
            own.used, own.waited = 0.0, False

    def _aim(self, kind: Kind, own: _Side) -> float:
        """Return the share that a member may act on, by what is known of the others; it is also what to claim."""
        others = [
            parts[kind] for name, (parts, _, _) in self._others.items() if name not in self._gone and parts[kind].rate
        ]
        # Of different rates, the smallest holds.
        whole = min([own.rate, *(other.rate for other in others)])
        share = max_min(whole, [own.want, *(other.want for other in others)])[0]
        # While claims may be missing in the item, a share can only become smaller.
        room = whole - sum([other.claim for other in others]) if self._settled else 0.0
        return min(share, max(own.share, room))

    def _act(self, own: _Side, share: float, now: Now) -> None:
        if share != own.share:
            own.share = share
            own.bucket.change(share, burst=share * self._burst, now=now[0])

    def _drop(self, now: float) -> None:
        """Act on nothing from ``now`` on, and begin again under another name."""
        for own in self._sides.values():
            self._act(own, 0.0, (now,))
            own.claim = own.target = 0.0
        self._gone.add(self._name)
        self._name, self._beat, self._answered, self._since = self._draw_name(), 0, 0, None


def _members(item: WireItem) -> dict[str, tuple[dict[Kind, _Part], int]]:
    """Return the members in an item: what each published, and its counter."""
    members = {}
    for name, value in item.items():
        if name.startswith(_MEMBER):
            try:
                beat, *numbers = [float(number["N"]) for number in value["L"]]
            except (KeyError, TypeError, ValueError):
                raise ConfigurationError(
                    f"table: attribute {name!r} of the budget's item is not one that this version of shardkit writes; "
                    "use one version in all processes, or another name= for the budget"
                ) from None
            parts = {kind: _Part(*numbers[place * _PART : (place + 1) * _PART]) for place, kind in enumerate(_SIDES)}
            members[name.removeprefix(_MEMBER)] = parts, int(beat)
    return members


def _rounded(units: float) -> float:
    """Round down to four digits, which keeps the item small."""
    if units <= 0:
        return 0.0
    digits = 3 - floor(log10(units))
    down = floor(units * 10.0**digits + 1e-6) / 10.0**digits
    return min(units, float(f"{down:.4g}"))
