"""Histories of real processes (python -m tests.histories), and that the check finds the faults that are planted."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.histories.faults import FAULTS
from tests.support.engines import EngineName
from tests.support.platforms import require_fork
from tests.support.profiles import LONG, PROFILE
from tests.support.searches import rows

require_fork()

ROOT = Path(__file__).resolve().parents[2]
# Those three are found in 9 to 14 seconds, others take up to two minutes and may need luck.
PLANTED = (
    [*FAULTS] if PROFILE == "thorough" else ["no lease check", "stubs are shown", "the old place is written in new"]
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long_search,
    pytest.mark.skipif(not LONG, reason="takes minutes: set HYPOTHESIS_PROFILE=search"),
]


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Run histories in a process of their own, without threads: it forks."""
    seed = str(random.SystemRandom().randrange(1_000_000))
    command = [sys.executable, "-m", "tests.histories", "--folder", str(folder), "--seed", seed, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    sys.stdout.write(said)
    return done.returncode, said


def test_real_processes_are_right(
    engine_endpoint: Callable[[EngineName], str], engine_name: EngineName, tmp_path: Path
) -> None:
    engine_endpoint(engine_name)  # or the test is skipped
    status, said = run(tmp_path / "kept", "--engine", engine_name, "--seconds", "1")
    assert status == 0, said
    assert "verdict: right" in said


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(engine_endpoint: Callable[[EngineName], str], fault: str, tmp_path: Path) -> None:
    if fault not in PLANTED:
        pytest.skip("takes longer: HYPOTHESIS_PROFILE=thorough plants all")
    engine_endpoint("dynoxide")
    status, said = run(tmp_path / "kept", "--fault", fault, "--seconds", "180")
    assert status == 1, said
    assert "verdict: WRONG" in said
    assert "ended by itself" not in said


def test_the_page_has_the_states_of_the_searches() -> None:
    """docs/correctness.md says how much the searches look at, as ``python -m tests.support.searches`` prints it."""
    page = (ROOT / "docs" / "correctness.md").read_text(encoding="utf-8")
    for said, searches, states, faults in rows():
        assert f"| {said} | {searches} | {states:,} | {faults} |" in page
