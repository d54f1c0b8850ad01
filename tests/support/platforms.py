"""Tests where a platform lacks what they need: on Windows, fork and file locks."""

from __future__ import annotations

import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

LOCKS = find_spec("fcntl") is not None


def require_fork() -> None:
    """Skip the module, or the test, where a process cannot be forked."""
    if not hasattr(os, "fork"):
        pytest.skip("the platform has no fork", allow_module_level=True)


class WithoutLocks:
    """A plugin for platforms without file locks: a test that fails after one was refused is skipped."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        from shardkit.bulk import locked_file
        from shardkit.staging import work

        check, refused = locked_file.check_locks, []

        def check_locks(option: str, path: Path) -> None:
            refused.append(option)
            check(option, path)

        with patch.object(locked_file, "check_locks", check_locks), patch.object(work, "check_locks", check_locks):
            try:
                return (yield)
            except Exception:
                if not refused:
                    raise
                pytest.skip(f"{refused[0]}: the platform has no file locks")
