"""``import shardkit`` and ``shardkit --help``, beside ``import boto3``; pytest with the plugin, beside pytest."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

from benchmarks.measure import Figure

__all__ = ["imports"]

_CHILD = """
    import json, sys, time
    began = time.process_time()
    import boto3
    after_boto3 = time.process_time()
    {code}
    ended = time.process_time()
    modules = sum(name.partition(".")[0] == "shardkit" for name in sys.modules)
    print(json.dumps([after_boto3 - began, ended - after_boto3, modules]))
"""


_HELP = "from shardkit.cli import main; main(['--help'])"
# Of the plugins, only ours is loaded, or none.
_PYTEST = ("-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider")


def imports(*, short: bool) -> Iterator[Figure]:
    """CPU of importing shardkit after boto3, at most a quarter of boto3's own; of --help; of pytest with the plugin."""
    runs = 4 if short else 16
    for code, target, most in (
        ("import shardkit", 0.25, 25),
        ("from shardkit import CalculatedSuffix, ShardedTable, bulk_load", None, None),
    ):
        # A fresh interpreter each; the first one writes the bytecode.
        timings = [_timings(code) for _ in range(runs)][1:]
        ratios = [own / boto3 for boto3, own, _ in timings]
        boto3, own, modules = (statistics.median(column) for column in zip(*timings, strict=True))
        yield Figure(
            bench="imports",
            name=f"{code}: CPU, of import boto3",
            value=statistics.median(ratios),
            target=target,
            spread=(min(ratios), max(ratios)),
            note=f"{own * 1000:,.0f} ms, boto3's {boto3 * 1000:,.0f} ms",
        )
        yield Figure(bench="imports", name=f"{code}: modules of shardkit", value=modules, unit="", target=most)
    yield _compared(
        "shardkit --help: CPU, of a process that imports boto3", ("-c", _HELP), ("-c", "import boto3"), 0.5, runs
    )
    with TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing() -> None: ...\n", encoding="utf-8")
        plain = (*_PYTEST, "--rootdir", folder, folder)
        name = "pytest with the plugin: CPU, of pytest without it"
        yield _compared(name, (*plain, "-p", "shardkit.testing"), plain, 1.2, runs)


def _timings(code: str) -> tuple[float, float, int]:
    child = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", dedent(_CHILD).format(code=code)], check=True, capture_output=True, text=True
    )
    boto3, own, modules = json.loads(child.stdout)
    return boto3, own, modules


def _compared(name: str, own: tuple[str, ...], other: tuple[str, ...], target: float, runs: int) -> Figure:
    """Compare two commands of Python, run in turn."""
    timings = [(_cpu(own), _cpu(other)) for _ in range(runs)][1:]
    ratios = [mine / theirs for mine, theirs in timings]
    mine, theirs = (statistics.median(column) * 1000 for column in zip(*timings, strict=True))
    return Figure(
        bench="imports",
        name=name,
        value=statistics.median(ratios),
        target=target,
        spread=(min(ratios), max(ratios)),
        note=f"{mine:,.0f} ms, {theirs:,.0f} ms",
    )


def _cpu(command: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([sys.executable, *command], check=True, capture_output=True, env=environment)  # noqa: S603 - our own
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
