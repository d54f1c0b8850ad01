"""What a release says of itself, what may be published, and the lock that developers and CI install."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
ASKED_FOR = {
    ("dev.txt", None): PROJECT["dependencies"],
    ("dev.txt", "test"): PROJECT["optional-dependencies"]["test"],
    ("dev.txt", "dev"): PROJECT["optional-dependencies"]["dev"],
    ("release.txt", "release"): PYPROJECT["dependency-groups"]["release"] + PYPROJECT["build-system"]["requires"],
}
CHECK = runpy.run_path(str(ROOT / ".ci" / "check_release.py"))["check"]
CHECK_SBOM = runpy.run_path(str(ROOT / ".ci" / "check_sbom.py"))["check"]
HERE = "https://git.example/shardkit"
PYTHONS = sorted(one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: Python :: 3\.\d+$", one))


def test_pythons_are_those_that_are_tested() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r"python: \[(.*)\]", workflow)
    assert [one.strip(' "') for one in tested.split(",")] == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_workflows_name_steps_of_ci() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (steps,) = re.findall(r"^STEPS=\((.*)\)$", script, re.MULTILINE)
    assert set(re.findall(r"^step_(\w+)\(\)", script, re.MULTILINE)) == {*steps.split()}
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    named = " ".join(re.findall(r"^ +(?:- run: bash \.ci/run|-) ([a-z_ ]+)$", workflow, re.MULTILINE)).split()
    assert set(named) == {*steps.split()}


@pytest.mark.parametrize(("lock", "extra"), ASKED_FOR)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_what_is_asked_for(python: str, lock: str, extra: str | None) -> None:
    """If not, renew it: CONTRIBUTING.md says how."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    locked = {}
    for name, version, marker in re.findall(
        r"^([\w.-]+)(?:\[.*\])?==([^ ]+)(?: ; (.*?))? \\$",
        (ROOT / ".ci" / lock).read_text(encoding="utf-8"),
        re.MULTILINE,
    ):
        if not marker or Marker(marker).evaluate(environment):
            locked[name] = version
    for text in ASKED_FOR[lock, extra]:
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate(environment):
            assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), text


def wrong(
    folder: Path, *, tag: str = "v1.2.3", source: str = HERE, heading: str = "## [1.2.3] - 2026-11-23"
) -> list[str]:
    """What forbids to publish a tag from HERE."""
    urls = f'[project.urls]\nSource = "{source}"\n' if source else ""
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "1.2.3"\n{urls}', encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n", encoding="utf-8")
    found: list[str] = CHECK(tag, HERE, folder)
    return found


def test_a_dated_version_may_be_published(tmp_path: Path) -> None:
    assert wrong(tmp_path) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tag": "v1.2.4"}, "tag: must be v1.2.3"),
        ({"source": f"{HERE}-fork"}, f"project.urls: Source must be {HERE}, got {HERE}-fork"),
        ({"source": ""}, f"project.urls: Source must be {HERE}, got None"),
        ({"heading": "## [1.2.3] - unreleased"}, "CHANGELOG.md: must have the heading"),
        ({"heading": "## [1x2.3] - 2026-11-23"}, "CHANGELOG.md: must have the heading"),
    ],
)
def test_what_forbids_to_publish(given: dict[str, str], why: str, tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, **given)
    assert found.startswith(why)


def sbom(*names: str, version: str = PROJECT["version"]) -> Any:
    listed = [{"name": name, "version": "1", "purl": f"pkg:pypi/{name}@1"} for name in names]
    return {"metadata": {"component": {"name": "shardkit", "version": version}}, "components": listed}


def test_a_list_of_components_is_checked() -> None:
    assert CHECK_SBOM(sbom("boto3", "orjson", "six")) == []
    assert CHECK_SBOM(sbom("boto3", "pip")) == ["not listed: orjson", "listed, but not of the wheel: pip"]
    assert CHECK_SBOM(sbom("boto3", "orjson", version="9")) == [
        f"it is of shardkit 9, not of shardkit {PROJECT['version']}"
    ]
    bare = sbom("boto3", "orjson")
    del bare["components"][0]["purl"]
    assert CHECK_SBOM(bare) == ["no version or package URL: boto3"]


def test_actions_are_pinned_alike() -> None:
    """By commit, with the version beside it; one action has one commit in all workflows."""
    pinned: dict[str, set[str]] = {}
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action, version in re.findall(r"uses: (?!\./)([^@\s]+)@(.*)", workflow.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[0-9a-f]{40} # v[0-9.]+", version), (workflow.name, action)
            pinned.setdefault("/".join(action.split("/")[:2]), set()).add(version)
    assert {action: versions for action, versions in pinned.items() if len(versions) > 1} == {}
