"""Packages that import their public names on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__`` and ``__dir__``, for the public ``names`` of each of its modules.

    The modules become attributes of the package too. Type checkers do not see these names, so the package also imports
    them under ``TYPE_CHECKING``.
    """
    homes = {name: module for module, given in names.items() for name in given}
    modules = {module.removeprefix(f"{package}.").partition(".")[0] for module in names}

    def getattr_(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
            setattr(sys.modules[package], name, value)  # cached for the next access
            return value
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattr_, lambda: sorted({*vars(sys.modules[package]), *homes})
