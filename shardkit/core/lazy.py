"""Faces of packages that load what is asked for, when it is asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__``.

    A type checker does not see names that come this way: the package imports them for it, under ``TYPE_CHECKING``.

    Args:
        package: the package's ``__name__``.
        names: the names that each module gives; the modules can be reached from the package too.
    """
    homes = {name: module for module, given in names.items() for name in given}
    modules = {module.removeprefix(f"{package}.").partition(".")[0] for module in names}

    def getattr_(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
            setattr(sys.modules[package], name, value)  # not asked for a second time
            return value
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattr_, lambda: sorted({*vars(sys.modules[package]), *homes})
