"""Runs of the command line, each in a process of its own; Python is started once for all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.platforms import require_fork

__all__ = ["Run", "run_each"]

# Each process writes what its streams hold, and ends at once: to clean up takes longer than most commands.
_SCRIPT = """
import json, os, sys
shared, runs = json.loads(sys.argv[1])
exec(shared)
for place, (code, arguments, out) in enumerate(runs):
    child = os.fork()
    if not child:
        for stream, path in (1, out or f"{place}.out"), (2, f"{place}.err"):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        exec(code)
        from shardkit.cli import main
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code
        except BaseException:
            sys.excepthook(*sys.exc_info())
            status = 1
        else:
            status = 0
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            status = 120
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    open(f"{place}.code", "w").write(str(status))
"""


@dataclass(frozen=True)
class Run:
    """A command line; before it, Python code is run. ``out`` is a file that its output goes to."""

    arguments: Sequence[str]
    code: str = ""
    out: str = ""


def run_each(folder: Path, shared: str, runs: Iterable[Run]) -> list[subprocess.CompletedProcess[str]]:
    """Run command lines one after the other in a folder, each as a copy of a process that has run ``shared``."""
    require_fork()
    given = [(run.code, run.arguments, run.out) for run in runs]
    subprocess.run([sys.executable, "-c", _SCRIPT, json.dumps([shared, given])], check=True, cwd=folder)

    def text(place: int, name: str) -> str:
        path = folder / f"{place}.{name}"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    return [
        subprocess.CompletedProcess(run[1], int(text(place, "code")), text(place, "out"), text(place, "err"))
        for place, run in enumerate(given)
    ]
