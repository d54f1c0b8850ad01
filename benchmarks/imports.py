"""``import shardkit``, beside ``import boto3``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
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


def imports(*, short: bool) -> Iterator[Figure]:
    """CPU of importing shardkit after boto3: at most a quarter of boto3's own, and at most 25 modules."""
    for code, target, most in (
        ("import shardkit", 0.25, 25),
        ("from shardkit import CalculatedSuffix, ShardedTable, bulk_load", None, None),
    ):
        # A fresh interpreter each; the first one writes the bytecode.
        timings = [_timings(code) for _ in range(4 if short else 16)][1:]
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


def _timings(code: str) -> tuple[float, float, int]:
    child = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", dedent(_CHILD).format(code=code)], check=True, capture_output=True, text=True
    )
    boto3, own, modules = json.loads(child.stdout)
    return boto3, own, modules
