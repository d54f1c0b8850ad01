"""Is what real processes see of a sharded table right, whatever is killed, stopped or lost? See docs/correctness.md.

Runs histories, one after the other, until the time is over, and judges each. Prints counts; exit status 1 and the files
of the history if something is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.histories.faults import FAULTS
from tests.histories.judge import STAGES, Judged, described
from tests.histories.processes import WORKERS
from tests.histories.run import Run
from tests.support.engines import ENGINES, engine_endpoint, stop_engines

_SHOWN = 30  # lines
_ATTACKED = ("lose", "lose answer", "late", "repeated", "too old")
"""The faults that are counted; of a request that is repeated, only the second one."""

Say = Callable[[str], object]


def main(arguments: Sequence[str] | None = None, say: Say = print) -> int:
    parser = argparse.ArgumentParser("python -m tests.histories", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no history after so many (default 60)")
    parser.add_argument("--engine", choices=ENGINES, default="dynoxide")
    parser.add_argument("--fault", choices=FAULTS, default="", metavar="NAME", help="plant this one in shardkit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where the files of a history that is wrong are kept")
    args = parser.parse_args(arguments)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="histories-"))
    totals: Counter[str] = Counter()
    try:
        endpoint = engine_endpoint(args.engine)
        wrong = _histories(args, endpoint, folder, totals, say)
    finally:
        stop_engines()
    say(f"{args.engine}, seed {args.seed}, faces: {', '.join(WORKERS)}")
    say(", ".join(f"{count:,} {name}" for name, count in totals.items()))
    say(f"verdict: {'WRONG' if wrong else 'right'}")
    if wrong:
        say(f"the history is kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def _histories(args: argparse.Namespace, endpoint: str, folder: Path, totals: Counter[str], say: Say) -> bool:
    stages = FAULTS[args.fault].stages if args.fault else STAGES
    began = time.monotonic()
    number = 0
    while not number or time.monotonic() - began < args.seconds:
        kept = folder / f"history-{number}"
        run = Run(endpoint, kept, args.seed + number, args.engine == "dynoxide", stages, args.fault)
        judged = run.run()
        _count(totals, run, judged)
        if judged.problems:
            _show(judged, say)
            return True
        shutil.rmtree(kept)
        number += 1
    return False


def _count(totals: Counter[str], run: Run, judged: Judged) -> None:
    totals["histories"] += 1
    totals["operations"] += judged.operations.total()
    totals["without a known outcome"] += judged.unknown
    totals["requests"] += judged.requests.total()
    totals["lost, late, repeated or refused requests"] += sum(judged.requests[fault] for fault in _ATTACKED)
    for name, told in {"stages": "changes of the map", "kill": "kills", "stop": "stops", "clock": "clocks set"}.items():
        totals[told] += run.did[name]
    totals["states of the check"] += judged.states


def _show(judged: Judged, say: Say) -> None:
    for problem in judged.problems[:_SHOWN]:
        say(problem)
    if judged.witness:
        say("the part of the first that is enough; milliseconds:")
        start = min(one.began for one in judged.witness)
        for one in sorted(judged.witness, key=lambda one: one.began):
            say(described(one, start))


if __name__ == "__main__":
    sys.exit(main())
