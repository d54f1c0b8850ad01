"""The site: its table of contents, and docstrings as reStructuredText."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
API = runpy.run_path(str(ROOT / ".ci" / "site" / "api.py"))
CONTENTS = re.findall(r"^[\w./-]+$", (ROOT / ".ci" / "site" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_table_of_contents_has_every_page_once() -> None:
    """If not, add the page to .ci/site/index.md."""
    pages = [page.relative_to(ROOT).with_suffix("").as_posix() for page in ROOT.glob("docs/**/*.md")]
    pages += [page.stem for page in ROOT.glob("*.md") if page.stem != "README"]
    assert sorted(CONTENTS) == sorted([*pages, *(f"api/{module}" for module in API["MODULES"])])


def test_the_reference_has_what_the_policy_calls_public() -> None:
    policy = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    exporters = (ROOT / "shardkit" / "capacity" / "exporters").glob("*.py")
    public = {f"shardkit.capacity.exporters.{path.stem}" for path in exporters if "__all__" in path.read_text("utf-8")}
    assert public | {*re.findall(r"`(shardkit(?:\.\w+)*)`", policy)} <= {*API["MODULES"]}


def test_a_docstring_becomes_text_and_fields() -> None:
    docstring = """\
        Write one item.

        Example:
            table.put_item(Item={})

        As in docs/direct.md.

        Args:
            Item: The item, with
                its key.
            **options: As for boto3:

                * ``Limit``: a number

        Returns:
            ``Items``: the items.

        Raises:
            InvalidKeyError: A key is missing.

        Cost: one PutItem;
        no more.
        IAM: none."""
    lines = [line.removeprefix("        ") for line in docstring.split("\n")]
    assert [line for line in API["as_rst"](lines) if line] == [
        "Write one item.",
        ".. code-block:: python",
        "    table.put_item(Item={})",
        "As in :doc:`docs/direct.md </docs/direct>`.",
        ":param Item: The item, with",
        "    its key.",
        r":param \*\*options: As for boto3:",
        "    * ``Limit``: a number",
        ":returns: ``Items``: the items.",
        ":raises InvalidKeyError: A key is missing.",
        ":Cost: one PutItem;",
        "    no more.",
        ":IAM: none.",
    ]
