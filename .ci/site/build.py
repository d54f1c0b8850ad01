"""Builds the site.

python .ci/site/build.py [FOLDER]

FOLDER (by default .cache/site) gets a folder for this version (its tag; `dev` if it has none), `versions.json`, which
lists the versions that are there, and an index.html that leads to the newest release. Versions built before stay.
Warnings, missing names and links that lead nowhere are errors.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import api  # noqa: E402 - beside this file

ROOT = HERE.parents[1]
COPIED = ("docs", "examples", "shardkit", "tests/vectors")  # the pages, and what they link to


def assemble(source: Path) -> None:
    """Lay out what Sphinx reads, with the paths that it has here, so that relative links hold."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for page in (*ROOT.glob("*.md"), ROOT / "LICENSE", HERE / "index.md"):
        shutil.copy(page, source)
    (source / "api").mkdir()
    for module in api.MODULES:
        (source / "api" / f"{module}.rst").write_text(api.page(module), encoding="utf-8")


def version_here() -> str:
    """Return the tag's version, or `dev`."""
    described = subprocess.run(
        ["git", "describe", "--tags", "--exact-match", "--match", "v[0-9]*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip().removeprefix("v") or "dev"


class Page(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names and what it leads to."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value and tag != "form":
                self.links.append(value)


def dead_links(site: Path) -> list[str]:
    """Return the links within the site that lead nowhere."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            to = urlsplit(link)
            if to.scheme or to.netloc:
                continue
            target = (path.parent / unquote(to.path)).resolve() if to.path else path
            missing = not target.is_file() or (
                target in pages and to.fragment and unquote(to.fragment) not in pages[target].anchors
            )
            if missing:
                dead.append(f"{path.relative_to(site)}: {link}: leads nowhere")
    return dead


def missing_names(site: Path) -> list[str]:
    """Return the public names that the reference does not describe."""
    described: set[str] = set().union(*(Page(path).anchors for path in (site / "api").glob("*.html")))
    return [f"{home}: is not in the reference" for home in api.public() if home not in described] + [
        f"{home}: has no docstring" for home in api.undescribed()
    ]


def list_versions(folder: Path) -> None:
    """Write versions.json, newest first, `dev` last, and the page that leads to the first."""
    built = [path.name for path in folder.iterdir() if (path / "index.html").is_file()]
    released = sorted((name for name in built if name[0].isdigit()), key=_order, reverse=True)
    versions = released + sorted(name for name in built if not name[0].isdigit())
    (folder / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>shardkit</title>'
        f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">'
        f'<a href="{versions[0]}/index.html">shardkit {versions[0]}</a>\n',
        encoding="utf-8",
    )


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def build(folder: Path) -> int:
    """Build this version; return the exit code."""
    version = version_here()
    site = folder / version
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / "source"
        source.mkdir()
        assemble(source)
        options = ["--fail-on-warning", "--quiet", "--conf-dir", str(HERE), "--doctree-dir", f"{made}/doctrees"]
        if code := sphinx([*options, "-D", f"release={version}", str(source), str(site)]):
            return int(code)
    wrong = dead_links(site) + missing_names(site)
    list_versions(folder)
    print("\n".join(wrong) or f"{site}: {sum(1 for _ in site.rglob('*.html'))} pages")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".cache" / "site").resolve()))
