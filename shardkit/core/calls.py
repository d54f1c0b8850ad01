"""Calls with arguments that a method does not take: errors that name the argument, and suggest the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, iscoroutinefunction, signature
from types import FunctionType
from typing import Any, TypeVar, cast

from shardkit.core.checks import did_you_mean, most_similar
from shardkit.errors import ConfigurationError, UnsupportedParameterError, brief

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_CONFIGURE = ("__init__", "with_options")
"""Methods whose invalid arguments are a ConfigurationError; in all others, they are an UnsupportedParameterError."""

_USUAL = {"query": "KeyConditionExpression=…", "scan": "FilterExpression=…"}
"""The keyword that is meant where none is required, also of ``query_items`` and ``scan_items``."""


def explains_calls(made: C) -> C:
    """Make the constructor and the public methods of a class explain arguments that they do not take.

    Without it, Python raises a TypeError, which names an internal class, and which boto3's users do not catch.
    """
    for name, method in [*vars(made).items()]:
        if isinstance(method, FunctionType) and not name.startswith("_") and not method.__code__.co_posonlyargcount:
            setattr(made, name, _explaining(method))
    return explains_construction(made)


def explains_construction(made: C) -> C:
    """Make only the constructor of a class do so."""
    if "__init__" in vars(made):  # an inherited one is its own class's, and may be another's in a subclass
        made.__init__ = _explaining(made.__init__)  # type: ignore[misc]
    return made


def explains_call(function: F) -> F:
    """Make a function do so."""
    return cast("F", _explaining(function))


class _Omitted:
    def __repr__(self) -> str:
        return "…"


_OMITTED = _Omitted()


def shows_options(options: type, *, without: Sequence[str] = ()) -> Callable[[F], F]:
    """Let ``help``, ``inspect.signature`` and errors show the options of a TypedDict in place of ``**options``."""

    def show(function: F) -> F:
        given = signature(function)
        kept = [one for one in given.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        # The annotations are text, as those of all functions of shardkit; the docstring has the defaults.
        shown = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=_OMITTED, annotation=getattr(kind, "__forward_arg__", kind))
            for name, kind in options.__annotations__.items()
            if name not in without
        ]
        function.__signature__ = given.replace(parameters=[*kept, *shown])  # type: ignore[attr-defined]
        return explains_call(function)

    return show


def _explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(method):  # and so is what replaces it: mocks look

        @wraps(method)
        async def call_async(*args: Any, **given: Any) -> Any:
            try:
                running = method(*args, **given)
            except TypeError as error:
                raise explained(method, args, given, error) from None
            return await running

        return call_async

    @wraps(method)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return method(*args, **given)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # the method had begun
            raise explained(method, args, given, error) from None

    return call


def explained(
    method: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], error: TypeError
) -> ConfigurationError | UnsupportedParameterError:
    called = type(args[0]).__name__ if method.__name__ == "__init__" else method.__name__
    made = ConfigurationError if method.__name__ in _CONFIGURE else UnsupportedParameterError
    parameters = [*signature(method).parameters.values()]
    own = parameters[0].name == "self"
    return made(_problem(called, parameters[own:], args[own:], given) or str(error))


def _problem(called: str, parameters: Sequence[Parameter], args: Sequence[Any], given: Mapping[str, Any]) -> str:
    by_place = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    names = [*by_place, *(one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY)]
    filled = {*by_place[: len(args)], *given}
    needed = (one.name for one in parameters if one.name in names and one.default is Parameter.empty)
    missing = [name for name in needed if name not in filled]
    unknown = [name for name in given if name not in names]
    others = len(names) < len(parameters)  # they are checked where their operation is known
    if others:
        names = missing
        unknown = [name for name in unknown if name == "self" or most_similar(name, missing)]
    if unknown:
        listed = ", ".join(name + did_you_mean(name, [one for one in names if one not in given]) for name in unknown)
        give = "" if others else f"; give one of {_listed(names)}" if names else "; give none"
        return f"{listed}: not a parameter of {called}{give}"
    if len(args) > len(by_place):
        usual = _USUAL.get(called.partition("_")[0], "…") if others else ""
        example = _listed(f"{name}=…" for name in missing or names if name not in by_place) or usual
        return f"{called}: got {brief(args[len(by_place)])} without a keyword; give keywords only: {called}({example})"
    if missing:
        return f"{_listed(missing)}: missing in {called}; give {_listed(f'{one}=…' for one in missing)}"
    twice = [name for name in by_place[: len(args)] if name in given]
    return f"{_listed(twice)}: given twice to {called}, with its keyword and without; omit one" if twice else ""


_listed = ", ".join
