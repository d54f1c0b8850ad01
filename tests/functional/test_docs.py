"""README.md and docs/: the snippets run, the links lead somewhere, and the pictures show what the code does.

The prelude of every page: moto, fake credentials, region us-east-1, an empty folder to work in, and an empty table
`Orders` (partition key `Date`, sort key `OrderId`, both strings). Its ```python blocks then run in order in one
namespace; those of the page on asyncio where aiobotocore is installed, over a moto server. A ```text block below a
```python block is what the snippet printed. A ```toml block is a file, whose name its first line says
(`# hot_day.toml`). A picture that a snippet of `page.md` writes as `hot_day.svg` is on the page as `page-hot-day.svg`.
Where a snippet needs a library that is missing, the rest of the page is skipped. README's snippet runs as it is pasted:
in a process of its own, without AWS settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import boto3
import pytest

import shardkit
from shardkit import BulkReport, BulkResult, ShardTally, import_items
from tests.support.staged import moto_imports_end
from tests.support.tables import make_table

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
GUIDE, REFERENCE = sorted(DOCS.glob("*.md")), sorted((DOCS / "reference").glob("*.md"))
PAGES = [README, *GUIDE, *REFERENCE]
ASYNC = DOCS / "async.md"
ALL_PAGES = [*PAGES, ROOT / "CHANGELOG.md"]
INSTALL_LINE = 'pip install "shardkit[demo]"'
DEMO_LINE = "python3 -m venv .venv && .venv/bin/pip install -q '.[demo]' && .venv/bin/shardkit demo"
TEST_LINE = (
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
    ".venv/bin/python -m pytest -n auto --dist worksteal"
)

OTHER_LIBRARIES = ["aws_lambda_powertools", "awswrangler", "pynamodb"]
"""Those that snippets import; in CI, the step `libraries` has them."""

MOST_LINES, MOST_WORDS, MOST_WORDS_OF_GUIDE = 120, 1500, 30_000

STATUS = {"stable": "Stable.", "new in 0.1": "New in 0.1: may change."}
"""Of a feature: in the table of docs/policy.md, and below the title of its page."""

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def has_snippets(page: Path) -> bool:
    return "```python\n" in page.read_text(encoding="utf-8")


# -- snippets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def prelude(
    resource: DynamoDBServiceResource, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> DynamoDBServiceResource:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.chdir(tmp_path)
    assert import_items.__kwdefaults__ is not None
    monkeypatch.setitem(import_items.__kwdefaults__, "sleep", moto_imports_end)
    make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")
    return resource


@pytest.mark.usefixtures("prelude")
@pytest.mark.parametrize(
    "page", [page for page in (*GUIDE, *REFERENCE) if page != ASYNC and has_snippets(page)], ids=name_of
)
def test_snippets(page: Path) -> None:
    run_snippets(page)


def test_the_readme_runs_as_pasted(tmp_path: Path) -> None:
    blocks = FENCE.finditer(README.read_text(encoding="utf-8"))
    snippet, shown = (block for block in blocks if block["language"] in {"python", "text"})
    assert snippet["language"] == "python"
    clean = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", snippet["text"]]
    ran = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (shown["text"], "")


@pytest.mark.aio
def test_async_snippets(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiobotocore")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", moto_endpoint)
    resource = boto3.resource("dynamodb")
    table = make_table(resource, ("Date", "S"), ("OrderId", "S"), name="Orders")
    try:
        run_snippets(ASYNC)
    finally:
        table.delete()
        resource.meta.client.close()


def run_snippets(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(FENCE.finditer(text))
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        if block["language"] == "toml":
            name, _, _ = block["text"].removeprefix("# ").partition("\n")
            Path(name).write_text(block["text"], encoding="utf-8")
        if block["language"] != "python":
            continue
        for library in OTHER_LIBRARIES:
            if re.search(rf"^(from|import) {library}\b", block["text"], re.MULTILINE):
                pytest.importorskip(library)
        before = text.count("\n", 0, block.start("text"))
        # The lines of an error are then those of the page.
        code = compile("\n" * before + block["text"], name_of(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)  # noqa: S102 - what the page tells its readers to run
        if following is not None and following["language"] == "text" and below(text, block, following):
            assert printed.getvalue() == following["text"], f"{name_of(page)}, line {before + 1}"
        else:
            assert not printed.getvalue(), f"{name_of(page)}, line {before + 1}: prints, and the page does not show it"
    for drawn in Path().glob("*.svg"):
        shown = f"{page.stem}-{drawn.stem.replace('_', '-')}.svg"
        assert f"]({shown})" in text
        assert texts_of(drawn) == texts_of(page.parent / shown)


def below(text: str, block: re.Match[str], following: re.Match[str]) -> bool:
    return not text[block.end() : following.start()].strip()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_a_language_and_texts_a_snippet(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(FENCE.finditer(text))
    assert text.count("```") == 2 * len(blocks)
    assert {block["language"] for block in blocks} <= {"python", "text", "sh", "toml", "json"}
    for previous, block in zip([None, *blocks], blocks, strict=False):
        if block["language"] == "text":
            assert previous is not None
            assert previous["language"] == "python"
            assert below(text, previous, block)


def test_shell_lines() -> None:
    blocks = FENCE.finditer(README.read_text(encoding="utf-8"))
    shells = [block["text"] for block in blocks if block["language"] == "sh"]
    assert shells == [f"{INSTALL_LINE}\n", f"{DEMO_LINE}\n", f"{TEST_LINE}\n"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in (r"demo = \[", r"test = \[", r'shardkit = "shardkit\.cli:main"'):
        assert re.search(f"^{line}", project, re.MULTILINE), line


@pytest.mark.parametrize("page", GUIDE + REFERENCE, ids=name_of)
def test_a_page_answers_a_question(page: Path) -> None:
    """In its first paragraph; and a page of the guide is short."""
    text = page.read_text(encoding="utf-8")
    _, first, second, *_ = text.split("\n\n")
    assert "?" in (second if status_of(page) else first)
    assert page in REFERENCE or len(text.split()) <= MOST_WORDS


def test_the_guide_is_short() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in GUIDE) <= MOST_WORDS_OF_GUIDE


def status_of(page: Path) -> str | None:
    found = re.match(r"# .+\n\n\[(.+)\]\([^)]*policy\.md#stable-and-new\)\n\n", page.read_text(encoding="utf-8"))
    return found and found[1]


def test_each_feature_says_whether_it_is_stable() -> None:
    policy = DOCS / "policy.md"
    rows = re.findall(r"^\| .+ \| \[.+\]\((.+)\) \| (.+) \|$", policy.read_text(encoding="utf-8"), re.MULTILINE)
    table = {DOCS / link: STATUS[status] for link, status in rows if status in STATUS}
    assert {page: status for page in PAGES if (status := status_of(page))} == table


# -- links -------------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles: list[str] = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: list[str] = re.findall(r"\]\(([^)\s]+)\)", text)
    return found


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors(target), link


def linked(page: Path) -> set[Path]:
    return {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}


def test_the_readme_leads_to_every_page() -> None:
    found: set[Path] = set()
    waiting = {README}
    while waiting:
        found |= waiting
        waiting = set().union(*map(linked, waiting)).intersection(ALL_PAGES) - found
    assert [name_of(page) for page in ALL_PAGES if page not in found] == []
    assert set((ROOT / "examples").glob("*.py")) <= linked(README)


def test_the_readme_has_each_page_of_the_guide_in_one_place() -> None:
    """On the way through, or in the table of everything else."""
    _, _, found = README.read_text(encoding="utf-8").partition("\n## The way through\n")
    assert sorted(re.findall(r"\]\((docs/[\w-]+\.md)", found)) == [*map(name_of, GUIDE)]


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_table_of_extras() -> None:
    """It has every extra of pyproject.toml, and the packages of those that are for users."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    expected = {name: {re.split(r"[^\w.-]", one)[0] for one in packages} for name, packages in extras.items()}
    _, _, section = (DOCS / "quick-start.md").read_text(encoding="utf-8").partition("\n## Extras\n")
    documented = {}
    for names, packages in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", section, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", names):
            own = "CONTRIBUTING" in packages  # for work on shardkit itself
            documented[name] = expected.get(name) if own else {*re.findall(r"`([^`]+)`", packages)}
    assert documented == expected


def test_every_public_name_is_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in shardkit.__all__ if not re.search(rf"\b{name}\b", text)] == []
    for made in (BulkReport, BulkResult, ShardTally):
        fields = [field.name for field in dataclasses.fields(made) if not field.name.startswith("_")]
        assert [name for name in fields if f"`{name}`" not in text] == [], made


# -- pictures ----------------------------------------------------------------------------------------------------------


def texts_of(picture: Path) -> list[str]:
    """Return all texts of a picture: titles, axes, scales."""
    tree = ET.parse(picture)  # noqa: S314 - a file of this repository, or of this test
    return ["".join(text.itertext()).strip() for text in tree.iter("{http://www.w3.org/2000/svg}text")]
