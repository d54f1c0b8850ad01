"""Runs the package with one line changed, to show that a test notices."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any


@contextmanager
def mutated(module: ModuleType, was: str, now: str) -> Iterator[None]:
    """Replace a text that a module's source has once; its functions, methods and texts become those of the change."""
    source = inspect.getsource(module)
    assert source.count(was) == 1, f"{module.__name__} has {was!r} {source.count(was)} times; adapt the mutant"
    compiled = compile(source.replace(was, now), str(module.__file__), "exec", dont_inherit=True)
    changed = dict(_functions(compiled))
    names = {**vars(module)}
    exec(compiled, names)  # noqa: S102
    texts = {name: value for name, value in vars(module).items() if isinstance(value, str) and names[name] != value}
    originals: list[tuple[FunctionType, CodeType]] = []
    try:
        vars(module).update({name: names[name] for name in texts})
        for function in _of(vars(module), module.__name__):
            code = function.__code__
            if (
                changed[code.co_qualname].co_code != code.co_code
                or changed[code.co_qualname].co_consts != code.co_consts
            ):
                originals.append((function, code))
                function.__code__ = changed[code.co_qualname]
        assert originals or texts, f"nothing in {module.__name__} has {was!r}"
        yield
    finally:
        for function, code in originals:
            function.__code__ = code
        vars(module).update(texts)


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _functions(constant)


def _of(names: Any, module: str) -> Iterator[FunctionType]:
    for named in [*names.values()]:
        value = getattr(named, "func", getattr(named, "__func__", getattr(named, "fget", named)))
        if isinstance(value, FunctionType) and value.__module__ == module and value.__code__.co_name != "<lambda>":
            yield value
        elif isinstance(value, type) and value.__module__ == module:
            yield from _of(vars(value), module)
