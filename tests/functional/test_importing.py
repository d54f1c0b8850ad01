"""What importing shardkit brings: the names that are asked for; in the pytest plugin and in --help next to nothing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import shardkit
import shardkit.testing

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"boto3", "botocore", "moto", "orjson", "urllib3", "asyncio", "concurrent", "multiprocessing"}


def plugin() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    return str(module)


def brought_by(*code: str) -> set[str]:
    """The modules that a fresh interpreter with pytest has more after some lines."""
    before, after = ("import sys, pytest", "before = {*sys.modules}"), ("import json", "print(json.dumps(brought))")
    lines = "\n".join([*before, *code, "brought = [*{*sys.modules} - before]", *after])
    ran = subprocess.run([sys.executable, "-c", lines], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(json.loads(ran.stdout))


def test_the_pytest_plugin_brings_nothing_heavy() -> None:
    # As pytest takes a plugin: it gets every name that the module lists.
    brought = brought_by(f"import {plugin()} as plugin", "for name in dir(plugin): getattr(plugin, name)")
    assert {name.partition(".")[0] for name in brought} & HEAVY == set()
    assert {name for name in brought if name.startswith("shardkit")} == {
        "shardkit", "shardkit.core", "shardkit.core.lazy", "shardkit.testing", plugin(),
    }  # fmt: skip


def test_importing_shardkit_brings_no_client() -> None:
    brought = brought_by("import shardkit")
    assert {name.partition(".")[0] for name in brought} & HEAVY == set()


def test_the_help_of_the_command_line_brings_no_command() -> None:
    pytest.importorskip("click")
    brought = brought_by(
        "import click", "from shardkit.cli import build_app", "app = build_app()", "app.get_help(click.Context(app))"
    )
    assert {name.partition(".")[0] for name in brought} & (HEAVY | {"rich"}) == set()
    assert {name for name in brought if name.startswith("shardkit")} == {
        "shardkit", "shardkit.cli", "shardkit.core", "shardkit.core.lazy",
    }  # fmt: skip


def test_commands_bring_what_sends_requests_when_they_send_some() -> None:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    commands = ("heat", "import_table", "plan", "simulate", "size", "stage", "timeseries")
    brought = brought_by(*(f"import shardkit.cli.{command}" for command in commands))
    assert "shardkit.cli.timeseries" in brought
    assert brought & {"asyncio", "shardkit.bulk.load", "shardkit.runtime.runner", "shardkit.table"} == set()


def test_a_plain_table_brings_nothing_of_moves_series_or_caches() -> None:
    used = [
        "import boto3, moto, os",
        "os.environ.update(AWS_ACCESS_KEY_ID='x', AWS_SECRET_ACCESS_KEY='x', AWS_DEFAULT_REGION='eu-west-1')",
        "moto.mock_aws().start()",
        "made = boto3.resource('dynamodb').create_table(",
        "    TableName='Orders', KeySchema=[{'AttributeName': 'Date', 'KeyType': 'HASH'}],",
        "    AttributeDefinitions=[{'AttributeName': 'Date', 'AttributeType': 'S'}], BillingMode='PAY_PER_REQUEST')",
        "from shardkit import RandomSuffix, ShardedTable",
        "orders = ShardedTable(made, RandomSuffix(3))",
        "orders.put_item(Item={'Date': 'd'})",
        "from boto3.dynamodb.conditions import Key",
        "assert orders.query(KeyConditionExpression=Key('Date').eq('d'))['Count'] == 1",
    ]
    plain = {name for name in brought_by(*used) if name.startswith("shardkit")}
    assert len(plain) <= 72
    loads = "from shardkit import bulk_load; bulk_load(orders, [{'Date': 'd'}])"
    both = {name for name in brought_by(*used, loads) if name.startswith("shardkit")}
    assert {
        name for name in both if name.startswith(("shardkit.cache", "shardkit.migrate", "shardkit.timeseries"))
    } == set()
    assert "shardkit.bulk.load_machine" in both - plain


@pytest.mark.parametrize("face", [shardkit, shardkit.testing])
def test_a_face_has_what_it_names(face: ModuleType) -> None:
    given: dict[str, Any] = {}
    exec(f"from {face.__name__} import *", given)  # noqa: S102 - what a user may write
    assert given.keys() - {"__builtins__"} == set(face.__all__)
    assert set(face.__all__) <= set(dir(face))
    for name, value in given.items():
        if name != "__builtins__":
            assert getattr(face, name) is value


@pytest.mark.parametrize("name", ["bulk", "capacity", "core", "errors", "strategies", "table"])
def test_modules_are_reached_from_the_top(name: str) -> None:
    code = f"import shardkit; assert shardkit.{name}.__name__ == 'shardkit.{name}'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_strategy_is_read_from_its_text_where_only_the_base_was_imported() -> None:
    kept = shardkit.Resharding(shardkit.Unsharded(), shardkit.CalculatedSuffix("Id", 2), stage="old")
    code = f"from shardkit import Strategy; Strategy.from_dict({kept.to_dict()!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert shardkit.__version__ == project["version"]


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'shardkit' has no attribute 'ShardedTabel'"):
        _ = shardkit.ShardedTabel  # type: ignore[attr-defined] # the type checker sees it too
    with pytest.raises(ImportError):
        importlib.import_module("shardkit.no_such_module")
