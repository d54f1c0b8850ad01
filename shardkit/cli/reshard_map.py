"""``shardkit reshard`` with a shard map: the verbs change the map, and all processes follow it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from shardkit.cli.command import FAILED, STOPPED
from shardkit.cli.reshard_steps import Done, ReshardSteps
from shardkit.cli.screen import CommandProgress, Line, duration
from shardkit.errors import ConfigurationError, StageError
from shardkit.migrate.admin import TooEarlyError
from shardkit.shard_map import ShardMap, ShardMapAdmin, ShardMapState
from shardkit.sharding.shard_map import can_grow, grown, is_growth
from shardkit.strategies import Resharding, Strategy

_EVERY = "every process that uses the table must have ShardMap() as its strategy"


class Mapped(ReshardSteps):
    """The verbs, and the growth of one key; ``sleep`` and ``clock`` are for tests."""

    def __init__(
        self,
        admin: ShardMapAdmin,
        *given: Any,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(*given)
        self._admin = admin
        self._sleep = sleep
        self._clock = clock

    def verbs(self) -> Mapping[str, Callable[[], Done]]:
        finish = self.again("finish --wait")
        return {
            "plan": lambda: self.plan(self._move(), *self._told(self._admin.read()).then),
            "start": self._start,
            "status": lambda: self._told(self._admin.read()),
            "advance": self._advance,
            "move": lambda: self.move(self._mapped(), finish, left=self._left()),
            "verify": lambda: self.verify(self._mapped(), finish, left=self._left()),
            "finish": self._finish,
            "abort": self._abort,
        }

    def create(self) -> Done:
        move = self.strategies()
        self.check_old(move)
        old = move.old
        self._admin.create(old)
        return Done(
            told={"stage": "old"},
            lines=(f"the shard map was created: {old!r}",),
            then=(
                f"first, if not done: {self.again('plan')}",
                f"deploy to every process: ShardMap(), in place of {old!r}",
                f"then: {self.again('start --deployed')}",
            ),
        )

    def grow(self, key: str, shards: int | None) -> Done:
        """Give one key more shards: the step that is due, or all."""
        if shards is None:
            raise ConfigurationError("--shards: missing; give how many shards the key gets, for example --shards 80")
        verb, step = f"--key {shlex.quote(key)} --shards {shards}", partial(self._admin.grow, key, shards=shards)
        state = self._admin.read()
        under_way = _under_way(state)
        if under_way is None:
            self.confirm("deployed", _EVERY)
        elif not can_grow(under_way.old) or under_way.new != grown(under_way.old, {key: shards}):
            finish = f", then {self.again('finish --wait')}" if state.stage == "move" and under_way.moves else ""
            raise StageError(
                f"--key: another move is under way, in stage {state.stage!r}, to {under_way.new!r}; end it first: "
                f"{self.due(state)}{finish}",
                state.stage,
            )
        state = self._step(verb if under_way else f"{verb} --deployed", step)
        while state.stage != "move" and self.given["wait"]:
            state = self._step(verb, step)
        told = {"stage": state.stage, "key": key, "shards": shards}
        if state.stage == "move":
            lines = (f"key {key!r} has {shards:,} shards: new items use all of them, and reads find all items",)
            return Done(0, told, lines, self._told(state).then)
        again = self.again(f"{verb} --wait"), f"it waits {duration(self._admin.wait())} or more"
        line = f"key {key!r} does not have its new shards yet: the map is at {state.stage!r}, and gets them at 'move'"
        return Done(STOPPED, told, (line,), again)

    def _mapped(self) -> ShardMap:
        self._check_stage()
        _ = self._move()  # what was given must agree with the map
        return ShardMap()

    def _check_stage(self) -> None:
        state = self._admin.read()
        if state.stage != "move":
            idle = "" if _under_way(state) else "no move is under way: "
            raise StageError(
                f"stage: must be 'move', but {idle}the shard map of table {self.table.name!r} is at {state.stage!r}; "
                f"go on with: {self.due(state)}",
                state.stage,
            )

    def due(self, state: ShardMapState) -> str:
        """Return the command that is due: it goes on with the move that is under way, or begins one."""
        if under_way := _under_way(state):
            last = "move" if under_way.moves else "finish --wait"
            return self.again(last if state.stage == "move" else "advance --wait")
        # Only after abort does the map know where to move. Without that, status says what is to be deployed and given.
        return self.again("status" if self.new is None and _aborted(state) is None else "start --deployed")

    def _left(self) -> tuple[str, ...]:
        return (self.again("move"),)

    def _move(self) -> Resharding:
        """Return the move that the map has under way, the one that was given, or the one that was aborted."""
        state = self._admin.read()
        under_way = _under_way(state)
        old = under_way.old if under_way else _strategy(state)
        new = self.new or (None if state.stage == "new" else state.new)
        if (self.old or old) != old or (under_way and new != under_way.new):
            moving = f", and moves to {under_way.new!r}" if under_way else ""
            away = "" if state.new else f"; if the items are not stored so, take the map away: {self.again('abort')}"
            raise ConfigurationError(
                f"--from, --to: the shard map has {old!r}{moving}; omit them, or give the same{away}"
            )
        if not isinstance(new, Strategy):
            raise ConfigurationError("--to: missing; give it as JSON, or --by and --shards: the map has no move")
        return under_way or Resharding(old, new, stage="old")

    def _start(self) -> Done:
        move = self._move()
        if _under_way(state := self._admin.read()):
            raise ConfigurationError(
                f"start: a move is under way, in stage {state.stage!r}; go on with: {self.due(state)}"
            )
        self.confirm("deployed", _EVERY)
        self.check(move)
        return self._told(self._step("start --deployed", lambda: self._admin.start(move.new)))

    def _advance(self) -> Done:
        state = self._admin.read()
        if state.stage not in {"guard", "switch"}:
            why = "no stage is left" if _under_way(state) else "no move is under way"
            raise ConfigurationError(f"advance: {why}, the map is at {state.stage!r}; go on with: {self.due(state)}")
        return self._told(self._step("advance", self._admin.advance))

    def _wait(self) -> None:
        console = self.given["shown"]
        seconds = self._admin.wait() if self.given["wait"] else 0.0
        if not seconds:
            return
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
        what = f"waiting until {until}: processes leave {self._admin.read().before!r}"
        each = 1.0 if console is not None and console.is_terminal else 60.0

        def line(_: None, passed: float) -> Line:
            return Line(passed, what, f", {duration(seconds - passed)} left")

        with CommandProgress(console, line, seconds, self._clock) as shown:
            shown.restart(seconds)
            while (left := seconds - shown.seconds) > 0:
                shown.update(None)
                self._sleep(min(left, each))
        self._progress.restart(None)  # its time is not that of the wait

    def _step(self, verb: str, step: Callable[[], ShardMapState]) -> ShardMapState:
        self._wait()
        try:
            return step()
        except TooEarlyError as error:
            raise StageError(f"{error}, or let it wait: {self.again(f'{verb} --wait')}", error.stage) from error

    def _finish(self) -> Done:
        self._check_stage()
        moves = self._move().moves
        if moves and self.given["wait"] and self._admin.wait():
            # What is left now is left after the wait, too. A verification after it is needed all the same.
            before = self.verify(self._mapped(), left=self._left())
            if before.code:
                return before
            self._progress.restart(None)  # rich 13 shows one bar at a time
        self._wait()
        if seconds := self._admin.wait():
            # A process that is still in "switch" could leave a stub behind the verification.
            raise StageError(
                f"stage: not every process has followed to the last stage yet; try again in {duration(seconds)}, or "
                f"let it wait: {self.again('finish --wait')}"
            )
        verified = self.verify(self._mapped(), left=self._left()) if moves else Done()
        if verified.code:
            return verified
        told = self._told(self._admin.finish())
        return replace(told, told={**verified.told, **told.told}, lines=(*verified.lines, *told.lines))

    def _abort(self) -> Done:
        """Go back as far as the map allows now; the reason why it goes no further is no failure."""
        state, lines, further = self._admin.read(), [], ""
        if state.new is None and self.given["deployed"]:
            self._admin.delete()
            line = "the shard map was deleted: calls with ShardMap() fail, all others go on"
            return Done(told={"stage": None}, lines=(line,))
        if idle := not _under_way(state):
            lines.append("nothing to abort: no move is under way")
        while _under_way(state) and not further:
            before = state.stage
            try:
                state = self._step("abort", self._admin.back)
            except StageError as error:
                further = str(error).removeprefix("stage: ")
            else:
                lines.append(f"from {before!r} back to {state.stage!r}")
        told = self._told(state)
        if idle:
            told = replace(told, lines=told.lines[:1])  # an earlier abort has said the rest
        if state.new is None:
            away = (
                "to take the map away: no process may have ShardMap(); deploy in its place the strategy by which the "
                "items are stored, which a map of another strategy refuses until it is deleted"
            )
            told = replace(told, then=(away, f"then: {self.again('abort --deployed')}"))
        if not further:
            return Done(0, told.told, (*lines, *told.lines), told.then)
        return Done(0 if lines else FAILED, told.told, (*lines, *told.lines, f"no further: {further}"), told.then)

    def _told(self, state: ShardMapState) -> Done:
        """Say where the map is, and what comes next."""
        under_way, seconds = _under_way(state), self._admin.wait()
        then: tuple[str, ...]
        wait = f"wait {duration(seconds)}, until every process has followed, or let --wait do so" if seconds else ""
        waits = " --wait" if seconds else ""
        begin = self.again("start --deployed")
        if aborted := _aborted(state):
            then = (f"to begin it anew: {begin}",)
        elif state.new is None:
            then = ("deploy to every process, if not done: ShardMap()", f"to move: {begin}")
            if self.new is None:
                then = (*then, "with --to, or --by and --shards: the strategy to move to")
        elif under_way is None:
            then = ("nothing: no move is under way",)
        elif state.stage == "move":
            finish = self.again(f"finish{waits}")
            then = (self.again("move"), f"at its end: {finish}") if under_way.moves else (finish,)
            if is_growth(under_way):
                then = (
                    "nothing: no item has to move, and the table may stay so",
                    f"before another key can grow: {then[0]}",
                    *then[1:],
                )
        else:
            then = (*filter(None, [wait]), self.again(f"advance{waits}"))
        told = {
            "stage": state.stage,
            "generation": state.generation,
            "old": state.old.to_dict(),
            "new": None if state.new is None else state.new.to_dict(),
            "wait": seconds,
        }
        moving = f"{under_way.old!r} to {under_way.new!r}" if under_way else repr(_strategy(state))
        lines = [f"stage {state.stage!r} by the shard map: {moving}"]
        if under_way and under_way.moves and state.stage == "move":
            lines.append(f"to count the items that are left: {self.again('verify')}")
        if aborted:
            lines.append(
                f"the move to {aborted!r} was aborted: no item is at a new place; the map stays, and can no longer be "
                "deleted"
            )
        return Done(0, told, tuple(lines), then)


def _under_way(state: ShardMapState) -> Resharding | None:
    if state.new is None or state.stage in {"old", "new"}:
        return None
    return Resharding(state.old, state.new, stage=state.stage)


def _aborted(state: ShardMapState) -> Strategy | None:
    """Return where the move went that went back to the first stage."""
    return state.new if state.stage == "old" else None


def _strategy(state: ShardMapState) -> Strategy:
    """Return the strategy of a table without a move under way."""
    return state.new if state.stage == "new" and state.new is not None else state.old
