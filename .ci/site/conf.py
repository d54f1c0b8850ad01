"""Sphinx's configuration; build.py runs it over a copy of the pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

sys.path.insert(0, str(Path(__file__).parent))

import api

project = "shardkit"
author = "shardkit maintainers"
project_copyright = "shardkit maintainers, Apache-2.0"
html_title = "shardkit"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = [
    "index.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "docs/**",
    "api/**",
]
myst_heading_anchors = 6
myst_heading_slug_func = "github"
# What GitHub does not know has no meaning here either.
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target", "myst_role"]
smartquotes_action = "D"  # dashes

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "a11y-dark"  # furo's own underlines modules, as if they were links
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_copy_source = False
html_show_sphinx = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}


def link_front(_app: Any, _docname: str, source: list[str]) -> None:
    """Lead links to the README to the first page, which shows it."""
    source[0] = re.sub(r"(\]\((?:\.\./)*)README\.md\b", r"\1index.md", source[0])


def add_dark_pictures(app: Any, doctree: nodes.document) -> None:
    """Show NAME-dark.svg beside NAME.svg, each in its mode."""
    for image in list(doctree.findall(nodes.image)):
        light = Path(image["uri"])
        dark = light.with_stem(f"{light.stem}-dark")
        if not Path(app.env.relfn2path(str(dark))[1]).is_file():
            continue
        other = image.deepcopy()
        other["uri"] = str(dark)
        image["classes"].append("only-light")
        other["classes"].append("only-dark")
        image.parent.insert(image.parent.index(image) + 1, other)


def link_names(app: Any, doctree: nodes.document) -> None:
    """Link public names in code font to the reference; `write_units` may be an argument, `write_units()` is not."""
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext()
        own = f"{app.env.docname.removeprefix('api/')}.{name.removesuffix('()')}"
        home = HOMES.get(own) or HOMES.get(name)
        if home is None or isinstance(literal.parent, nodes.title | nodes.reference | addnodes.pending_xref):
            continue
        link = addnodes.pending_xref(
            "", literal.deepcopy(), refdomain="py", reftype="obj", reftarget=home, refdoc=app.env.docname, refwarn=True
        )
        literal.parent.replace(literal, link)


def read_docstring(_app: Any, what: str, _name: str, value: Any, _options: Any, lines: list[str]) -> None:
    """Read our dialect of Google's style, which napoleon would misread: examples are code, results are prose."""
    lines[:] = api.as_rst(lines)
    if what == "class":
        # Sphinx would take the type of an attribute for that of an argument of the same name.
        arguments = getattr(value.__init__, "__annotations__", {})
        attributes = vars(value).get("__annotations__", {})
        clashes = [name for name in arguments if attributes.get(name, arguments[name]) != arguments[name]]
        types = [f":type {name}: {arguments[name]}" for name in clashes]
        lines[-1:] = [*types, ""]


def order_fields(_app: Any, _domain: str, _kind: str, content: nodes.Element) -> None:
    """Put the type of a result, which Sphinx adds at the end, where the result is described."""
    order = ["param", "type", "Attributes", "returns", "rtype", "raises"]
    for fields in content.findall(nodes.field_list):
        if fields.parent is content:
            names = [(field, field[0].astext().split()[0]) for field in fields]
            fields[:] = [field for field, name in sorted(names, key=lambda one: (*order, one[1]).index(one[1]))]


def setup(app: Any) -> None:
    """Connect what is above."""
    app.connect("source-read", link_front)
    app.connect("doctree-read", add_dark_pictures, priority=400)  # before Sphinx collects the images
    app.connect("doctree-read", link_names)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("object-description-transform", order_fields, priority=600)  # after Sphinx has added types


HOMES = {module: module for module in api.MODULES if module != "shardkit"}
for place in api.public():
    called = place.rpartition(".")[2]
    HOMES |= {place: place, f"{place}()": place}
    HOMES.setdefault(f"{called}()", place)
    if not called.islower() or place == f"shardkit.{called}":
        HOMES.setdefault(called, place)
