"""The async table is what .ci/generate_aio.py makes of the sync one."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import shardkit.aio.table
import shardkit.table

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "generate_aio.py"))
SYNC, ASYNC = shardkit.table.ShardedTable, shardkit.aio.table.ShardedTable
NO_REQUEST = {"with_options", "get_available_subresources", "query_items", "scan_items", "batch_writer"}
METHODS = [name for name, value in vars(SYNC).items() if inspect.isfunction(value) and not name.startswith("_")]


def test_the_file_is_what_the_script_makes() -> None:
    """If not: python .ci/generate_aio.py."""
    made = SCRIPT["generated"](SCRIPT["SOURCE"].read_text("utf-8"))
    assert made == SCRIPT["TARGET"].read_text("utf-8")


def test_a_text_that_is_not_there_is_an_error() -> None:
    source = SCRIPT["SOURCE"].read_text("utf-8")
    with pytest.raises(SystemExit, match="table: A boto3"):
        SCRIPT["generated"](source.replace("table: A boto3 ``Table``;", "table: The ``Table``;"))


def test_methods_that_send_are_awaitable() -> None:
    for name in METHODS:
        assert inspect.iscoroutinefunction(getattr(ASYNC, name)) == (name not in NO_REQUEST), name


@pytest.mark.parametrize(
    "method", [method for method in METHODS if "Example:" in (getattr(SYNC, method).__doc__ or "")]
)
def test_examples_await_what_is_awaitable(method: str) -> None:
    """Each is code, and each call of a coroutine in it is awaited."""
    doc = inspect.getdoc(getattr(ASYNC, method)) or ""
    (example,) = re.findall(r"^Example:\n((?:    .*\n)+)", doc, re.MULTILINE)
    code: Any = compile(dedent(example), method, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaited = {id(node.value) for node in ast.walk(code) if isinstance(node, ast.Await)}
    called = [node for node in ast.walk(code) if isinstance(node, ast.Call) and _method(node) in METHODS]
    assert called
    assert all((id(call) in awaited) == (_method(call) not in NO_REQUEST) for call in called)
    assert not [node for node in ast.walk(code) if isinstance(node, ast.With | ast.For)]


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def test_no_docstring_speaks_of_threads() -> None:
    assert "thread" not in SCRIPT["TARGET"].read_text("utf-8")
