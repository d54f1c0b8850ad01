"""The async table, counter, time series and cache are what .ci/generate_aio.py makes of the sync ones."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import shardkit.aio.cache
import shardkit.aio.counter
import shardkit.aio.table
import shardkit.aio.timeseries
import shardkit.cache
import shardkit.counter
import shardkit.table
import shardkit.timeseries

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / ".ci" / "generate_aio.py"))
CLASSES: list[tuple[Any, Any]] = [
    (shardkit.table.ShardedTable, shardkit.aio.table.ShardedTable),
    (shardkit.table.ItemOperations, shardkit.aio.table.ItemOperations),
    (shardkit.counter.ShardedCounter, shardkit.aio.counter.ShardedCounter),
    (shardkit.timeseries.TimeSeries, shardkit.aio.timeseries.TimeSeries),
    (shardkit.cache.CachedTable, shardkit.aio.cache.CachedTable),
]
NO_REQUEST = {"with_options", "get_available_subresources", "query_items", "scan_items", "batch_writer", "table_name"}
METHODS = [
    (asynchronous, name)
    for sync, asynchronous in CLASSES
    for name, value in vars(sync).items()
    if inspect.isfunction(value) and not name.startswith("_")
]
NAMES = {name for _, name in METHODS}


@pytest.mark.parametrize("file", SCRIPT["FILES"])
def test_the_file_is_what_the_script_makes(file: str) -> None:
    """If not: python .ci/generate_aio.py."""
    made = SCRIPT["generated"](file, SCRIPT["SOURCES"][file].read_text("utf-8"))
    assert made == (SCRIPT["TARGETS"] / file).read_text("utf-8")


def test_a_text_that_is_not_there_is_an_error() -> None:
    source = SCRIPT["SOURCES"]["table.py"].read_text("utf-8")
    with pytest.raises(SystemExit, match="table: A boto3"):
        SCRIPT["generated"]("table.py", source.replace("table: A boto3 ``Table``;", "table: The ``Table``;"))


def test_methods_that_send_are_awaitable() -> None:
    for asynchronous, name in METHODS:
        assert inspect.iscoroutinefunction(getattr(asynchronous, name)) == (name not in NO_REQUEST), name


@pytest.mark.parametrize(
    ("asynchronous", "method"),
    [pair for pair in METHODS if "Example:" in (getattr(*pair).__doc__ or "")],
)
def test_examples_await_what_is_awaitable(asynchronous: Any, method: str) -> None:
    """Each is code, and each call of a coroutine in it is awaited."""
    doc = inspect.getdoc(getattr(asynchronous, method)) or ""
    (example,) = re.findall(r"^Example:\n((?:    .*\n)+)", doc, re.MULTILINE)
    code: Any = compile(dedent(example), method, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaited = {id(node.value) for node in ast.walk(code) if isinstance(node, ast.Await)}
    called = [node for node in ast.walk(code) if isinstance(node, ast.Call) and _method(node) in NAMES]
    assert called
    assert all((id(call) in awaited) == (_method(call) not in NO_REQUEST) for call in called)
    assert not [node for node in ast.walk(code) if isinstance(node, ast.With | ast.For)]


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


@pytest.mark.parametrize("file", SCRIPT["FILES"])
def test_no_docstring_speaks_of_threads(file: str) -> None:
    assert "thread" not in (SCRIPT["TARGETS"] / file).read_text("utf-8")
