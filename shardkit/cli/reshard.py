"""``shardkit reshard``: move a table's items to another strategy, while services go on or while they are stopped."""

from __future__ import annotations

from typing import Any

import click

from shardkit.cli import options
from shardkit.cli.command import ERRORS, STOPPED, WRONG_USE, Call, Command, Outcome, explained
from shardkit.cli.options import COUNT, option
from shardkit.cli.passes import CONNECTIONS, PACE, PassProgress, pace
from shardkit.cli.reshard_map import Mapped
from shardkit.cli.reshard_static import Static
from shardkit.cli.reshard_steps import Done, Given, done_so_far, progress_line
from shardkit.errors import ConfigurationError, StageError
from shardkit.shard_map import ShardMapAdmin
from shardkit.strategies.resharding import STAGES

VERBS = ("plan", "start", "status", "advance", "move", "verify", "finish", "abort")
STRATEGIES, HOW = "Strategies", "How"  # how --help groups the options


@click.command("reshard", cls=Command)
@click.argument("table")
@click.argument("verb", required=False, type=click.Choice(VERBS))
@option("--from", "old", group=STRATEGIES, help="The strategy of the items so far: unsharded, or JSON.")
@option("--to", "new", group=STRATEGIES, help="The strategy to move to: unsharded, or JSON.")
@option("--by", group=STRATEGIES, help="Instead of --to: attributes (A or A,B) to calculate the shard from.")
@option("--shards", type=COUNT, group=STRATEGIES, help="With --by: the shards of each key; with --key: of this key.")
@option("--key", group=STRATEGIES, help="Only give this logical key more shards, through the shard map.")
@option("--static", is_flag=True, group=HOW, help="With plan, start: no shard map; each stage is deployed in the code.")
@option("--stage", type=click.Choice(STAGES), group=HOW, help="Without a map: the stage of all processes now.")
@option("--deployed", is_flag=True, group=HOW, help="Confirm that all processes run what was to be deployed.")
@option("--offline", is_flag=True, group=HOW, help="Move and verify at once, while all services are stopped.")
@option("--stopped", is_flag=True, group=HOW, help="With --offline: confirm that all services are stopped.")
@option("--wait", is_flag=True, group=HOW, help="If it is too early for a step of the map, wait until it is time.")
@pace
@option("--workers", type=COUNT, group=PACE, default=CONNECTIONS, help="Requests in flight, and parallel segments.")
@option("--journal", group=PACE, help="A file that saves reading again what has moved; deleted at the end.")
@options.connection
@options.as_json
@options.progress
def reshard(call: Call, table: str, verb: str | None, key: str | None, **given: Any) -> Outcome:
    """Move a table's items to another strategy: adopt a table, change its shards, or give one hot key more.

    VERB: plan, start, status, advance, move, verify, finish, abort; none with --offline or --key. Each prints what to
    do next.

    Exit codes: 0 done, 1 items are left or cannot be moved, 2 wrong use, 3 stopped or too early (run it again).
    """
    shown = call.enter(PassProgress(call.shown, progress_line))
    try:
        if (verb is not None) + given["offline"] + (key is not None) != 1:
            verbs = ", ".join(VERBS)
            raise ConfigurationError(f"VERB, --offline, --key: give one of them; VERB is one of {verbs}")
        resource = call.dynamodb(max(CONNECTIONS, given["workers"]))
        given |= {"profile": call.aws.profile, "shown": call.shown}
        done = _run(verb, key, (resource.Table(table), shown, given))
    except ERRORS as error:
        begun = "" if shown.begun else "not begun: "
        again = shown.begun and not isinstance(error, ConfigurationError)
        code = STOPPED if again or isinstance(error, StageError) else WRONG_USE
        raise call.ended(f"{begun}{explained(error, table)}", code) from None
    except (KeyboardInterrupt, click.Abort):  # the second one while it asks
        told = done_so_far(shown.report)
        raise call.ended(
            f"stopped before its end: interrupted{told and ' after '}{told}; the same command goes on"
        ) from None
    return Outcome(lambda: {"exit_code": done.code, **done.told, "next": done.then}, done.show, done.code)


def _run(verb: str | None, key: str | None, given: Given) -> Done:
    table, _, options = given
    admin = ShardMapAdmin(table)
    static, mapped, has_map = Static(*given), Mapped(admin, *given), admin.exists()
    for flag in ("stage", "static"):
        if has_map and options[flag]:
            raise ConfigurationError(f"--{flag}: the table has a shard map, and the stage is in it; omit --{flag}")
    if key is not None:
        if not has_map:
            raise ConfigurationError(
                "--key: the table has no shard map, by which one key can grow; create it: "
                "ShardMapAdmin(table).create(strategy), deploy ShardMap() to every process, and add --deployed"
            )
        return mapped.grow(key, options["shards"])
    if verb is None:
        if has_map:
            raise ConfigurationError(
                f"--offline: the table has a shard map, which processes follow; go on with: {mapped.due(admin.read())}"
            )
        return static.offline()
    if not has_map and verb == "start" and not options["static"]:
        return mapped.create()
    return (mapped if has_map else static).verbs()[verb]()
