"""Count, update and delete the items of async tables, copy and compare them; ``max_concurrency`` limits requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import wraps
from inspect import Parameter, getdoc, signature
from typing import Any, ParamSpec, TypeVar, cast

from shardkit.aio.migrate import runner_of
from shardkit.core.calls import explained
from shardkit.passes import changes
from shardkit.passes.passes import run_async

__all__ = ["compare", "copy", "count", "delete", "update"]

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a function of ``shardkit.passes`` for async tables: the same, but without the options of threads."""
    shown = signature(function)
    named = [one for one in shown.parameters.values() if one.kind is Parameter.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    async def run(*given: P.args, **options: P.kwargs) -> R:
        of_names = {one.name: options.pop(one.name) for one in named if one.name in options}
        try:
            tables = shown.replace(parameters=named).bind(*given, **of_names).arguments
        except TypeError as error:
            raise explained(run, given, of_names, error) from None
        what, change, how = function.__name__, tables.pop("change", None), cast("Any", options)
        runners = [runner_of(one, "Unsharded()").over(how.get("transport")) for one in tables.values()]
        sides = [await one.run(changes.side_of(one.programs, what, how, place)) for place, one in enumerate(runners)]
        with ExitStack() as files:
            passes = changes.passes_of(what, runners, sides, change, how, files)
            return cast("R", await run_async(runners[0], passes, *runners[1:]))

    kept = [one for name, one in shown.parameters.items() if name not in changes.OF_THREADS]
    run.__module__, run.__signature__ = __name__, shown.replace(parameters=kept)  # type: ignore[attr-defined]
    run.__doc__ = f"Await :func:`shardkit.passes.{function.__name__}` of async tables.\n\n{getdoc(function)}"
    return run


count = _awaited(changes.count)
update = _awaited(changes.update)
delete = _awaited(changes.delete)
copy = _awaited(changes.copy)
compare = _awaited(changes.compare)
