"""``shardkit reshard`` without a shard map: the stages are in the code, and the verbs say what to deploy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shardkit.cli.command import FAILED
from shardkit.cli.reshard_steps import Done, ReshardSteps
from shardkit.errors import ConfigurationError
from shardkit.strategies.resharding import STAGES, Resharding, Stage

_BACK: Mapping[Stage, Stage] = {"guard": "old", "switch": "guard", "move": "switch", "new": "move"}
"""The stage before, where every item is still found."""


class Static(ReshardSteps):
    """The verbs, and a move without services."""

    def verbs(self) -> Mapping[str, Callable[[], Done]]:
        finish = self.again("finish --deployed")
        left = ("bring every process to stage 'move', if not done", f"then: {self.again('move --deployed')}")
        return {
            "plan": self._plan,
            "start": self._start,
            "status": lambda: self._at(self._stage()),
            "advance": self._advance,
            "move": lambda: self.move(self._moving(), finish, left=left),
            "verify": lambda: self.verify(self._moving(), finish, left=left),
            "finish": lambda: self.verify(
                self._moving(), *self._deploy("new"), "then nothing: the move is done", left=left
            ),
            "abort": self._abort,
        }

    def offline(self) -> Done:
        """Move and verify at once."""
        strategies = self.strategies()
        self.confirm("stopped", "all services that use the table must be stopped")
        left = (
            "check that --from is the strategy by which the items are stored, and that no writer is left running",
            "then run the same command again",
        )
        return self.move(strategies, *self._deploy("new"), "then start the services", left=left)

    def _plan(self) -> Done:
        static = self.again("start --static")
        then = (self.again("start"), f"or, with the stages in the code instead of a shard map: {static}")
        strategies = replace(self.strategies(), stage=self.given["stage"] or "old")
        return self.plan(strategies, *([static] if self.given["static"] else then))

    def _start(self) -> Done:
        self.check(self.strategies())
        then = (f"first, if not done: {self.again('plan --static')}", *self._deploy("guard"))
        return Done(0, {"stage": "old"}, ("nothing was written",), then)

    def _stage(self) -> Stage:
        stage: Stage | None = self.given["stage"]
        if stage is None:
            stages = f"--stage {', '.join(STAGES[:-1])} or {STAGES[-1]}"
            raise self._no_map(f"give the one that all processes have now, {stages}")
        return stage

    def _no_map(self, needed: str) -> ConfigurationError:
        return ConfigurationError(
            f"table {self.table.name!r} has no shard map (start makes one); if the stages are in the code, {needed}"
        )

    def _moving(self) -> Resharding:
        """Return the move, whose items may move only if all processes are in its stage."""
        stage = self.given["stage"]
        if stage not in {None, "move"}:
            raise ConfigurationError(
                f"--stage: must be 'move' to move, verify or finish, got {stage!r}; bring every process there first: "
                f"{self.again(f'status --stage {stage}')}"
            )
        if not (stage or self.given["static"] or self.given["deployed"]):
            raise self._no_map("bring every process to stage 'move', and add --deployed")
        return self._deployed("move")

    def _deployed(self, stage: Stage) -> Resharding:
        strategies = self.strategies()
        self.confirm("deployed", f"every process that uses the table must be in stage {stage!r}")
        return Resharding(strategies.old, strategies.new, stage=stage)

    def _deploy(self, stage: Stage) -> tuple[str, ...]:
        """Return what to deploy for a stage, and the command after it."""
        move = self.strategies()
        plain = {"old": move.old, "new": move.new}
        if stage in plain:
            return (f"deploy to every process: {plain[stage]!r}",)
        verb = "move" if stage == "move" and move.moves else f"advance --stage {stage}"
        return (
            f"deploy to every process: Resharding({move.old!r}, {move.new!r}, stage={stage!r})",
            f"then: {self.again(f'{verb} --deployed')}",
        )

    def _at(self, stage: Stage) -> Done:
        then: tuple[str, ...] = ("nothing: the move is done",)
        if stage == "move" and self.strategies().moves:
            then = (self.again("move --deployed"), f"then: {self.again('finish --deployed')}")
        elif stage != "new":
            then = self._deploy(STAGES[STAGES.index(stage) + 1])
        return Done(0, {"stage": stage}, (f"stage {stage!r}",), then)

    def _advance(self) -> Done:
        stage = self._stage()
        self._deployed(stage)
        return self._at(stage)

    def _abort(self) -> Done:
        stage = self._stage()
        if stage == "old":
            return Done(0, {"stage": stage}, ("stage 'old': nothing has begun",))
        back, moves = _BACK[stage], self.strategies().moves
        forward = (
            f"to undo all of it, go on to 'new': {self.again(f'status --stage {stage}')}",
            f"then move back: {self.again('plan --static', back=True)}",
        )
        stubs, others = self.at_new_places() if stage in {"guard", "switch"} and moves else (0, 0)
        found = ""
        if others:
            found = (
                f"{others:,} items are at new places, or have keys that look so, without a stub, or are half moved: "
                f"{back!r} misses them, or cannot write them"
            )
        elif stubs and stage == "guard":
            found = "new items are at new places, because processes have been in stage 'switch': 'old' misses them"
        if found:
            return Done(FAILED, {"stage": stage}, (found,), forward)
        then: tuple[str, ...] = (self._deploy(back)[0],)
        if stage == "switch":
            then = (*then, f"then: {self.again('abort --stage guard')}")
        if stage in {"move", "new"}:
            return Done(0, {"stage": stage}, (f"it goes back to {back!r}, and no further",), (*then, *forward))
        return Done(0, {"stage": stage}, (f"it goes back to {back!r}",), then)
