"""Nothing that comes from outside becomes code: SECURITY.md says so, and this looks through the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "shardkit"
MODULES = {"_pickle", "cloudpickle", "code", "codeop", "copyreg", "dill", "joblib", "jsonpickle", "marshal", "pickle",
           "runpy", "ruamel", "shelve", "subprocess", "yaml"}  # fmt: skip
CALLS = {"__import__", "compile", "eval", "exec", "exec_module", "import_module", "load_module", "popen", "read_pickle",
         "run_path", "safe_load", "system", "unsafe_load"}  # fmt: skip
LISTENERS = {"BaseManager", "Listener", "Manager", "SyncManager"}
"""Of multiprocessing: they unpickle what comes over a socket. Pipes between a process and its children are not here."""

ALLOWED = {
    "bulk/sources/files.py: import_module",  # zstd, under the name that this Python has for it
    "cli/__init__.py: import_module",  # a command's own file
    "core/lazy.py: import_module",  # the package's own modules
    "runtime/processes.py: pickle",  # between a load's own processes, over the pipes that it made
    "runtime/tasks.py: pickle",  # the same, of a stage
    "spark.py: cloudpickle",  # is only asked whether it can write what Spark will send to its tasks
}


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from MODULES & {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
            yield from (MODULES | LISTENERS) & names
        elif isinstance(node, ast.Attribute):
            yield from LISTENERS & {node.attr}
        elif isinstance(node, ast.Call):
            # re.compile and the like are attributes; the builtin is a name.
            yield from CALLS & {getattr(node.func, "id", "")} | (CALLS - {"compile"}) & {getattr(node.func, "attr", "")}
            yield from {"allow_pickle"} & {keyword.arg for keyword in node.keywords}


def test_nothing_from_outside_is_unpickled_or_run() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    found = {
        f"{file.relative_to(PACKAGE).as_posix()}: {danger}"
        for file in files
        for danger in dangers(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert len(files) > 100
    assert found == ALLOWED


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import dill as d",
        "from pickle import loads",
        "from pyspark import cloudpickle",
        "import ruamel.yaml",
        "import yaml; yaml.load(x)",
        "eval(x)",
        "exec(x)",
        "importlib.import_module(x)",
        "spec.loader.exec_module(m)",
        "os.system(x)",
        "import subprocess",
        "compile(x, '', 'exec')",
        "builtins.eval(x)",
        "pandas.read_pickle(x)",
        "numpy.load(x, allow_pickle=True)",
        "from multiprocessing.connection import Listener",
        "multiprocessing.Manager()",
    ],
)
def test_it_would_be_found(code: str) -> None:
    assert [*dangers(ast.parse(code))]


def test_it_finds_no_more() -> None:
    assert [*dangers(ast.parse("import re, orjson\nre.compile(x)\nmultiprocessing.Pipe()\norjson.loads(x)"))] == []
