"""Change the pure modules one place at a time, and print the changes that no test notices.

    .venv/bin/python .ci/mutants.py --sample 300 --seed 1

A mutant is one change: a comparison, an operator, a number, a removed statement and so on. For each, the tests that
execute the changed line run in a copy of the tree, fast ones first, until one fails. Which test executes which line is
measured first, whenever a file has changed: it takes as long as all unit and functional tests. Code that runs when its
module is imported is tried on all tests. Survivors that no test can notice stand in mutants.toml, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import moto  # noqa: F401 - with what it imports, so that no run of tests has to
import pytest
from coverage import CoverageData
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mutants"
LEVELS = ("tests/unit", "tests/functional")
# fmt: off
SWAPS: dict[Any, tuple[type[Any], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.Pow: (ast.Mult,),
}
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "bisect_left": "bisect_right", "bisect_right": "bisect_left"
}
# fmt: on


class Mutant(NamedTuple):
    """One change: ``was`` and ``now`` are the line before and after it, ``lines`` those that execute it."""

    path: str
    scope: str
    line: int
    was: str
    now: str
    source: str
    lines: range | None  # None: it is executed when the module is imported

    @property
    def name(self) -> list[str]:
        """What stays the same when other lines, or the file, move."""
        return [self.scope, self.was, self.now]


def changed(node: ast.AST, **fields: Any) -> Any:
    """Copy a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def changes(node: Any) -> Iterator[ast.AST]:
    """Give what a node (not its children) can be replaced by."""
    others = SWAPS.get(type(getattr(node, "op", None)), ())
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in SWAPS[type(operator)]:
                yield changed(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        yield from (changed(node, op=other()) for other in others)
        for place in range(len(node.values) if isinstance(node, ast.BoolOp) else 0):
            yield changed(node, values=[*node.values[:place], *node.values[place + 1 :]])  # type: ignore[union-attr]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        values = [not node.value] if isinstance(node.value, bool) else [node.value + 1, node.value - 1]
        yield from map(ast.Constant, values)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield changed(node, func=ast.Name(NAMES[node.func.id]))
    yield from changes_of_statement(node)


def changes_of_statement(node: Any) -> Iterator[ast.AST]:
    """Give other statements for one: a negated condition, no value, no effect."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        if isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            yield changed(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield ast.Return()
    elif isinstance(node, ast.Break | ast.Continue):
        yield ast.Continue() if isinstance(node, ast.Break) else ast.Break()
    elif (
        isinstance(node, ast.AugAssign | ast.Delete | ast.Raise)
        or (isinstance(node, ast.Assign) and not any(isinstance(target, ast.Name) for target in node.targets))
        or (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant))
    ):
        yield ast.Pass()


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Give the parts that are executed and decide: no annotations, decorators, asserts, messages or ``__all__``."""
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list", "type_params"}:
            for child in value if isinstance(value, list) else [value]:
                text = ast.unparse(child) if isinstance(child, ast.If | ast.Assign | ast.Raise) else ""
                if isinstance(child, ast.AST) and not (
                    isinstance(child, ast.Assert | ast.JoinedStr)
                    or getattr(child, "arg", None) == "strict"  # of zip: an assert, too
                    or text.startswith(("if TYPE_CHECKING", "__all__", "__slots__", "raise NotImplementedError"))
                ):
                    yield child


def mutants(path: str) -> Iterator[Mutant]:
    """Give all mutants of a file."""
    source = (ROOT / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def walk(node: Any, scope: str, statement: Any, *, called: bool) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt):
            statement = node
        for new in changes(node):
            # Of a condition that is negated only the condition is written anew.
            old: Any = node
            fresh: Any = new
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                old, fresh = node.test, fresh.test
            text = ast.unparse(ast.fix_missing_locations(fresh))
            if not isinstance(fresh, ast.stmt | ast.Constant):
                text = f"({text})"
            begin, end = at(old.lineno, old.col_offset), at(old.end_lineno, old.end_col_offset)
            mutated = (source[:begin] + text.encode() + source[end:]).decode()
            was, now = (code.splitlines()[old.lineno - 1].strip() for code in (source.decode(), mutated))
            lines = range(statement.lineno, old.end_lineno + 1) if called else None
            yield Mutant(path, scope, old.lineno, was, now, mutated, lines)
        for child in children(node):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inside = isinstance(child, ast.stmt) and isinstance(node, ast.FunctionDef)
                yield from walk(child, f"{scope}.{node.name}".lstrip("."), statement, called=called or inside)
            else:
                yield from walk(child, scope, statement, called=called or isinstance(node, ast.Lambda))

    yield from walk(ast.parse(source), "", None, called=False)


def pure_files() -> list[str]:
    """Name the files of the lint contract of pure rooms, those of its folders included."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    places = [name.replace(".", "/") for contract in contracts for name in contract.get("source_modules", ())]
    found = [one for place in places for one in (ROOT / f"{place}.py", *(ROOT / place).rglob("*.py")) if one.exists()]
    return sorted({str(path.relative_to(ROOT)) for path in found})


class Tests:
    """Runs tests in a copy of the tree; knows which of them execute a line."""

    def __init__(self, tree: Path, levels: tuple[str, ...]) -> None:
        self.tree = tree
        self.levels = levels
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, stdout=-1
        ).stdout.decode()
        self.files = [name for name in names.split("\0") if name and (ROOT / name).is_file()]
        for name in self.files:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)

    def run(self, *arguments: str, variables: dict[str, str] | None = None) -> bool:
        """Run tests; False if one failed, or took too long."""
        process = multiprocessing.get_context("fork").Process(target=self._child, args=(arguments, variables or {}))
        process.start()
        process.join()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # what its tests have started and left
        return process.exitcode == 0

    def _child(self, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
        os.setsid()
        os.chdir(self.tree)
        os.environ.update(variables, PYTHONPATH=str(self.tree))
        sys.path.insert(0, str(self.tree))
        output = os.open(CACHE / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # hypothesis, which is a plugin too, is imported already.
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments]
        os._exit(pytest.main(options, plugins=[sys.modules[__name__]]))

    def measure(self) -> None:
        """Find out which tests execute which lines, and how long each takes; unless nothing has changed since."""
        # Each choice of levels has its own: the unit tests alone take a third of the time.
        kept, seconds = (CACHE / f"{name}-{len(self.levels)}.json" for name in ("tests", "seconds"))
        code = [ROOT / name for name in self.files if name.endswith(".py") and name.startswith(("shardkit/", "tests/"))]
        if not kept.exists() or kept.stat().st_mtime < max(path.stat().st_mtime for path in code):
            print("measuring which tests execute which lines", flush=True)
            coverage = ["--cov=shardkit", "--cov-context=test", "--cov-report="]
            variables = {"COVERAGE_FILE": str(CACHE / "coverage"), "MUTANTS_SECONDS": str(seconds)}
            if not self.run(*self.levels, *coverage, variables=variables):
                raise SystemExit(f"the tests fail without any change: {CACHE / 'output.txt'}")
            kept.write_text(json.dumps(self._contexts()), "utf-8")
        self.seconds: dict[str, float] = json.loads(seconds.read_text("utf-8"))
        _usual.update(self.seconds)
        self.by_line: dict[str, dict[str, list[str]]] = json.loads(kept.read_text("utf-8"))

    def _contexts(self) -> dict[str, dict[int, list[str]]]:
        data = CoverageData(str(CACHE / "coverage"))
        data.read()
        found = {}
        for name in data.measured_files():
            contexts = data.contexts_by_lineno(name)
            tests = {line: sorted({one.rpartition("|")[0] for one in some} - {""}) for line, some in contexts.items()}
            found[str(Path(name).relative_to(self.tree))] = tests
        return found

    def survives(self, mutant: Mutant) -> bool:
        """Say whether all tests that could notice a mutant pass with it."""
        by_line, every = self.by_line.get(mutant.path, {}), set(self.seconds)
        here = {test for line in mutant.lines or by_line for test in by_line.get(str(line), ())}
        path = self.tree / mutant.path
        before = path.read_bytes()
        try:
            path.write_text(mutant.source, "utf-8")
            # Bytecode is told from its source by size and whole second: no two mutants may have the same.
            stamp = random.SystemRandom().randrange(10**9)
            os.utime(path, (stamp, stamp))
            return all(self._pass(some) for some in ([here] if mutant.lines is not None else [here, every - here]))
        finally:
            path.write_bytes(before)

    def _pass(self, tests: set[str]) -> bool:
        tests = {test for test in tests if test.startswith(self.levels)}
        slow = sorted(tests, key=lambda test: (not test.startswith(LEVELS[0]), self.seconds.get(test, 1.0)))
        arguments = CACHE / "arguments.txt"
        arguments.write_text("\n".join(slow), "utf-8")
        return not slow or self.run("-x", f"@{arguments}")


# As a plugin of the tests that it runs: it measures their time, ends those that hang, and keeps hypothesis from looking
# for small examples.

_usual: dict[str, float] = {}
_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_configure() -> None:
    """Let hypothesis draw the same in each run, and stop at the first failure."""
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
    settings.load_profile("mutants")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Let a test that hangs end the process, by the signal."""
    signal.alarm(30 + int(10 * _usual.get(nodeid, 60.0)))


def pytest_runtest_logreport(report: Any) -> None:
    """Note what a test took."""
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish() -> None:
    """Write it down, where it is asked for."""
    if place := os.environ.get("MUTANTS_SECONDS"):
        Path(place).write_text(json.dumps(_seconds), "utf-8")


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="only these files of the pure modules")
    parser.add_argument("--sample", type=int, help="so many mutants, drawn; all if not given")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn with (1)")
    parser.add_argument("--again", action="store_true", help="only those that survived the last time")
    parser.add_argument("--unit", action="store_true", help="only with the unit tests: several times as fast")
    asked = parser.parse_args()

    CACHE.mkdir(parents=True, exist_ok=True)
    kept = CACHE / "survivors.json"
    equivalent = tomllib.loads((ROOT / ".ci" / "mutants.toml").read_text("utf-8"))["equivalent"]
    known = [[one["in"], one["was"], one["now"]] for one in equivalent]
    everything = [mutant for path in asked.files or pure_files() for mutant in mutants(path)]
    chosen = everything
    if asked.again:
        before = json.loads(kept.read_text("utf-8"))
        chosen = [mutant for mutant in everything if mutant.name in before]
    elif asked.sample is not None:
        chosen = random.Random(asked.seed).sample(everything, min(asked.sample, len(everything)))
    survivors: list[Mutant] = []
    skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(Path(folder), LEVELS[:1] if asked.unit else LEVELS)
        tests.measure()
        for number, mutant in enumerate(chosen, 1):
            if mutant.name in known:
                skipped += 1
            elif tests.survives(mutant):
                survivors.append(mutant)
                kept.write_text(json.dumps([one.name for one in survivors]), "utf-8")
                print(f"{number}/{len(chosen)} survived: {mutant.path}:{mutant.line} in {mutant.scope}")
                print(f"  - {mutant.was}\n  + {mutant.now}", flush=True)
            elif number % 10 == 0:
                print(f"{number}/{len(chosen)}", flush=True)
    killed = len(chosen) - skipped - len(survivors)
    print(f"{len(chosen)} of {len(everything)} mutants: {killed} killed, {skipped} equivalent, {len(survivors)} left")
    raise SystemExit(bool(survivors))


if __name__ == "__main__":
    main()
