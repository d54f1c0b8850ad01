"""The examples in the docstrings of ``shardkit.partitions`` give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from shardkit import partitions

WITH_EXAMPLES = {"describe", "estimate", "hottest", "index_writes", "plan_load", "plan_shards"}


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(partitions.__path__)])
def test_examples(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(f"{partitions.__name__}.{name}"))
    assert failed == 0
    if name in WITH_EXAMPLES:
        assert attempted
