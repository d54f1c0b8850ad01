"""The pages of the API reference: everything in ``__all__`` of the public modules, from the docstrings."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
import textwrap
from importlib import import_module
from types import ModuleType
from typing import Any, is_typeddict

MODULES = (
    "shardkit",
    "shardkit.aio",
    "shardkit.capacity",
    "shardkit.capacity.exporters.emf",
    "shardkit.capacity.exporters.log",
    "shardkit.capacity.exporters.opentelemetry",
    "shardkit.capacity.exporters.prometheus",
    "shardkit.partitions",
    "shardkit.parts",
    "shardkit.read_parts",
    "shardkit.table_types",
    "shardkit.cache",
    "shardkit.migrate",
    "shardkit.aio.migrate",
    "shardkit.passes",
    "shardkit.aio.passes",
    "shardkit.shard_map",
    "shardkit.spark",
    "shardkit.staging",
    "shardkit.streams",
    "shardkit.testing",
    "shardkit.timeseries",
)
"""What docs/policy.md calls public, and the types of docs/reference/typing.md; on the page of the first module."""

_SECTION = re.compile(r"(Example|Args|Attributes|Raises|Returns|Warns|Cost|IAM|Source|Memory):(?: (.+))?$")
_FIELDS = {"Args": "param", "Raises": "raises", "Returns": "returns"}
_ENTRY = re.compile(r"(\*{0,2}\w[\w., ]*): (.*)$")


def public() -> list[str]:
    """Return the place in the reference of each public name: once, also if several modules have it."""
    modules = {module: import_module(module) for module in MODULES}
    found = [(name, getattr(module, name)) for module in modules.values() for name in names(module)]
    return list(dict.fromkeys(f"{_home(name, value)}.{name}" for name, value in found))


def names(module: ModuleType) -> list[str]:
    """Return the public names of a module, in order."""
    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    listed: list[str] = getattr(module, "__all__", None) or [name for name in defined if not name.startswith("_")]
    return sorted(listed, key=str.lower)


def page(module: str) -> str:
    """Return a module's page, in reStructuredText."""
    found = import_module(module)
    groups: dict[str, list[str]] = {"Classes": [], "Functions": [], "Data": [], "Errors": []}
    overview, elsewhere = list[str](), list[str]()
    for name in names(found):
        value = getattr(found, name)
        home = _home(name, value)
        if home != module:
            elsewhere.append(f":py:obj:`{name} <{home}.{name}>`")
            continue
        if isinstance(value, type(tuple[str]) | str | int) or getattr(value, "__name__", name) != name:
            kind = "Data"
            entry = f".. py:data:: {name}\n   :value: {_shown(value)}\n\n   {description(name, value)}"
        elif isinstance(value, type) and issubclass(value, BaseException):
            kind, entry = "Errors", f".. autoexception:: {module}.{name}\n   :show-inheritance:"
        elif isinstance(value, type):
            kind = "Classes"
            entry = (
                f".. autoclass:: {module}.{name}\n   :members:\n   :inherited-members: object, tuple, dict, Protocol"
            )
            if is_typeddict(value):
                entry += "\n   :undoc-members:"
        else:
            kind, entry = "Functions", f".. autofunction:: {module}.{name}"
        groups[kind].append(entry)
        overview.append(f"* :py:obj:`{name} <{home}.{name}>` -- {description(name, value).partition(chr(10))[0]}")
    parts = [f"{module}\n{'=' * len(module)}", f".. automodule:: {module}"]
    if len(overview) > 1:
        parts.append("\n".join(overview))
    if elsewhere:
        parts.append(f"Also here: {', '.join(elsewhere)}.")
    for title, entries in groups.items():
        if entries:
            parts += [f"{title}\n{'-' * len(title)}", *entries]
    return "\n\n".join(parts) + "\n"


def _home(name: str, value: Any) -> str:
    return next(module for module in MODULES if getattr(import_module(module), name, None) is value)


def description(name: str, value: Any) -> str:
    """Return the docstring of a public name; that of data is the string below its assignment."""
    if callable(value) and getattr(value, "__name__", "") == name:
        return inspect.getdoc(value) or ""
    for module in [found for path, found in sorted(sys.modules.items()) if path.split(".")[0] == "shardkit"]:
        if vars(module).get(name) is value:
            body = ast.parse(inspect.getsource(module)).body
            for assigned, below in itertools.pairwise(body):
                named = isinstance(assigned, ast.Assign) and ast.unparse(assigned.targets[0]) == name
                if named and isinstance(below, ast.Expr):
                    return str(ast.literal_eval(below.value))
    return ""


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def as_rst(docstring: list[str]) -> list[str]:
    """Turn a docstring of ours into reStructuredText: the text, then the sections as one list of fields."""
    lines, text, fields = list(docstring), list[str](), list[str]()
    while lines:
        line = lines.pop(0)
        if not (found := _SECTION.match(line)):
            text.append(_linked(line))
            continue
        name, first = found.groups()
        body = [first] if first else []
        while lines and (_goes_on(lines[0]) if first else not lines[0] or lines[0].startswith(" ")):
            body.append(lines.pop(0).strip() if first else lines.pop(0))
        body = [_linked(line) for line in textwrap.dedent("\n".join(body)).strip().split("\n")]
        if name == "Example":
            language = "pycon" if body[0].startswith(">>>") else "python"
            text += ["", f".. code-block:: {language}", "", *_indented(body), ""]
        elif name in {"Args", "Raises"}:
            for entry, *described in _entries(body):
                fields += _field(f"{_FIELDS[name]} {entry}".strip(), described)
        elif name == "Attributes":
            fields.append(f":{name}:")
            for entry, first, *rest in _entries(body):
                fields += _indented([f"* **{entry}** -- {first}", *(f"  {line}" for line in rest)])
        else:
            fields += _field(_FIELDS.get(name, name), body)
    return [*text, "", *fields, ""]


def _goes_on(line: str) -> bool:
    return bool(line.strip()) and not _SECTION.match(line)


def _entries(body: list[str]) -> list[list[str]]:
    """Return the name, the first line and the other lines of each entry (``name: text``); other text has no name."""
    made: list[list[str]] = []
    while body:
        first, rest = body[0], list[str]()
        body = body[1:]
        while body and (not body[0] or body[0].startswith(" ")):
            rest.append(body.pop(0))
        rest = textwrap.dedent("\n".join(rest)).rstrip().split("\n") if rest else []
        if not (found := _ENTRY.match(first)):
            return [*made, ["", first, *rest, *body]]
        made.append([found[1].replace("*", r"\*"), found[2], *rest])
    return made


def _field(name: str, body: list[str]) -> list[str]:
    return [f":{name}: {body[0]}", *_indented(body[1:])]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def _linked(line: str) -> str:
    """Link the pages that a docstring names."""
    return re.sub(r"(?:``)?\b(docs/[\w/-]+)\.md\b(?:``)?", r":doc:`\1.md </\1>`", line)


def undescribed() -> list[str]:
    """Return the public names without a docstring."""
    found = [(home, *home.rpartition(".")[::2]) for home in public()]
    return [home for home, module, name in found if not description(name, getattr(import_module(module), name))]
