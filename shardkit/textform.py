"""The text form of a strategy, as plain values that JSON can carry, and the names of functions in it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from shardkit.core.hashing import code_point_product, shown, stable_hash
from shardkit.errors import ConfigurationError

if TYPE_CHECKING:
    from shardkit.suffix import Strategy

__all__ = ["TYPES", "TextForm", "register_function"]

F = TypeVar("F", bound=Callable[..., Any])

TYPES: dict[str, type[Strategy]] = {}  # by the class's name; the room of the strategies fills it
_FUNCTIONS: dict[str, Callable[..., Any]] = {"stable_hash": stable_hash, "code_point_product": code_point_product}
_KEY_FORMS: dict[str, Callable[[Any], Any]] = {"S": str, "B": lambda text: base64.b64decode(text, validate=True)}


def register_function(function: F, *, name: str) -> F:
    """Give a function a name, so that a strategy that uses it can be written down and read again.

    Example::

        register_function(shards_of_day, name="shards-of-day")

    Do so at import, in each process that reads the strategy.

    Args:
        function: What a strategy takes as ``shards``, ``by`` or ``hash``.
        name: A non-empty text, that of one function for ever.

    Returns:
        ``function``, as it was given.

    Raises:
        ConfigurationError: No callable, no name, or a name that another function has.

    Cost: O(1); no request.
    """
    given: Any = function, name
    if not (callable(given[0]) and isinstance(given[1], str) and name):
        raise ConfigurationError(f"{shown(function)} under name={shown(name)}: give a callable and a non-empty str.")
    if _FUNCTIONS.setdefault(name, function) != function:
        raise ConfigurationError(f"The name {name!r} is taken by {shown(_FUNCTIONS[name])}. Choose another name.")
    return function


class TextForm:
    """What every strategy has: it can be written down, and read again."""

    def to_dict(self) -> dict[str, Any]:
        """Write the strategy down as plain values that JSON can carry, for ``from_dict``.

        Example::

            Unsharded().to_dict() == {"type": "Unsharded"}

        Returns:
            ``type``, the class's name, and its arguments.

        Raises:
            ConfigurationError: A function without a name (see ``register_function``).

        Cost: O(keys in ``shards``); no request.
        """
        return {"type": type(self).__name__, **{name: _plain(value) for name, value in vars(self).items()}}

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Strategy:
        """Build the strategy that ``to_dict`` wrote down.

        Example::

            Strategy.from_dict({"type": "RandomSuffix", "shards": 200}) == RandomSuffix(200)

        Args:
            form: What ``to_dict`` gave; fields with a default may be left out.

        Returns:
            A strategy that is equal to the one written down.

        Raises:
            ConfigurationError: A wrong type, field or value, or a function that is not registered.

        Cost: O(keys in ``shards``); no request.
        """
        given: Any = form
        made = TYPES.get(str(given.get("type"))) if isinstance(given, Mapping) else None
        if made is None:
            raise ConfigurationError(f"{shown(form)} has no known type. Give a mapping with type: {[*TYPES]}.")
        try:
            return made(**{name: _value(name, value) for name, value in form.items() if name != "type"})
        except TypeError as error:  # a field too many or too few
            raise ConfigurationError(f"{shown(form)}: {error}. Give the fields of {made.__name__}.") from error


def _plain(value: Any) -> Any:
    """Give the plain form of a field's value; ``_value`` is its reverse."""
    if isinstance(value, Mapping) and not callable(value):
        forms = [{"S": key} if isinstance(key, str) else {"B": base64.b64encode(key).decode()} for key in value]
        return sorted(map(list, zip(forms, value.values(), strict=True)), key=repr)
    if not callable(value):
        return list(value) if isinstance(value, tuple) else value
    for name, function in list(_FUNCTIONS.items()):
        if function == value:
            return {"function": name}
    raise ConfigurationError(f"{shown(value)} has no name. Give it one: register_function(function, name=...).")


def _value(name: str, form: Any) -> Any:
    if isinstance(form, Mapping):
        if len(form) != 1 or form.get("function") not in list(_FUNCTIONS):
            raise ConfigurationError(f"{name}={shown(form)} is no known function. Call register_function first.")
        return _FUNCTIONS[form["function"]]
    if name != "shards" or not isinstance(form, list):
        return tuple(form) if isinstance(form, list) else form
    try:
        return {_KEY_FORMS[letter](text): count for key, count in form for letter, text in [*key.items()]}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"shards={shown(form)} is wrong. Give [[{{'S': key}}, count], ...].") from error
