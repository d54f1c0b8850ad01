"""PynamoDB's own integration tests, plain and sharded: the same tests pass, and the same fail for the same reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.support.engines import EngineName
from tests.support.sharded_suite import KEYS, strategies

pytest.importorskip("pynamodb")

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path(__file__).with_name("pynamodb-6.1.0")

REQUEST_ID = re.compile(r"on request \(\w+\)")

PASSED = {"dynoxide": 18, "dynamodb_local": 22}
"""How many of its 22 tests pass plain; `dynoxide` lacks what the others need (a region's own tables, for one)."""


@pytest.fixture
def url(engine_resource: DynamoDBServiceResource) -> Iterator[str]:
    yield engine_resource.meta.client.meta.endpoint_url
    drop_tables(engine_resource)


def drop_tables(resource: DynamoDBServiceResource) -> None:
    """Delete the tables that a run of the suite leaves behind."""
    for name in {table.name for table in resource.tables.all()} & strategies().keys():
        resource.Table(name).delete()


def run(url: str, folder: Path, *options: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Run the suite.

    Returns:
        The outcome of each test, with its message; and the partition keys that were put, by table.
    """
    report, sent = folder / "report.xml", folder / "sent.json"
    command = [sys.executable, "-m", "pytest", "-q", f"--rootdir={SUITE}", f"--confcutdir={SUITE}", "-c", os.devnull]
    command += ["-p", "no:cacheprovider", "-p", "tests.support.sharded_suite", f"--keys-sent={sent}", *options]
    ended = subprocess.run(
        [*command, f"--junit-xml={report}", str(SUITE / "integration")],
        env={**os.environ, "PYNAMODB_INTEGRATION_TEST_DDB_URL": url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - a file that the test made
        result = next((child for child in case if child.tag in {"failure", "error", "skipped"}), None)
        outcome = "passed" if result is None else f"{result.tag}: {REQUEST_ID.sub('', str(result.get('message')))}"
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return outcomes, [(table, key) for table, key in json.loads(sent.read_text(encoding="utf-8"))]


def test_same_outcomes(
    url: str, tmp_path: Path, engine_name: EngineName, engine_resource: DynamoDBServiceResource
) -> None:
    plain, keys = run(url, tmp_path)
    assert len(plain) == 22
    assert [*plain.values()].count("passed") == PASSED[engine_name]
    drop_tables(engine_resource)
    sharded, physical_keys = run(url, tmp_path, "--sharded")
    assert sharded == plain
    split = [(table, *strategies()[table].split(key)) for table, key in physical_keys]
    assert sorted((table, logical) for table, logical, _ in split) == sorted(keys)
    assert all(shard is not None for _, _, shard in split)
    if engine_name == "dynamodb_local":
        assert {table for table, _ in physical_keys} == KEYS.keys()
