"""Runs the package with one line changed, to show that a test notices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tests.support.checker import Search, search


class Mutant(NamedTuple):
    """A text that a module's source has once, what it becomes, and the searches of which one must find that."""

    module: ModuleType
    was: str
    now: str
    found_by: Sequence[str]


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Make a mutant: the module's functions, methods and texts become those of the changed source."""
    module, was, now, _ = mutant
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
            new = changed.get(code.co_qualname, code)  # a dataclass's own methods are not in the source
            if (new.co_code, new.co_consts, new.co_names) != (code.co_code, code.co_consts, code.co_names):
                originals.append((function, code))
                function.__code__ = new
        assert originals or texts, f"nothing in {module.__name__} has {was!r}"
        yield
    finally:
        for function, code in originals:
            function.__code__ = code
        vars(module).update(texts)


def check_found(mutant: Mutant, searches: Mapping[str, Callable[[], Search]]) -> None:
    """Check that one of the mutant's searches finds it."""
    with mutated(mutant):
        found = [search(searches[one]()) for one in mutant.found_by]
    assert any(one.violation for one in found), found


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
