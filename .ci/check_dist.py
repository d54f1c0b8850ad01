"""Checks what a release's files hold: the sdist all that is tracked, the wheel the package, both the same metadata.

python .ci/check_dist.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path


def tracked() -> set[str]:
    """Name the files of the clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name}


def check(folder: Path) -> list[str]:
    """Say what is wrong with the files of a release."""
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    top = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        members = {member.name.removeprefix(f"{top}/"): member for member in archive if member.isfile()}
        described = archive.extractfile(members.pop("PKG-INFO"))
        assert described is not None
        metadata = [described.read()]
    with zipfile.ZipFile(wheel) as zipped:
        names = {name for name in zipped.namelist() if not name.startswith(f"{top}.dist-info/")}
        metadata.append(zipped.read(f"{top}.dist-info/METADATA"))
    ours = tracked()
    package = {name for name in ours if name.startswith("shardkit/")}
    wrong = [f"not in the sdist: {name}" for name in sorted(ours - members.keys())]
    wrong += [f"in the sdist, but not tracked: {name}" for name in sorted(members.keys() - ours)]
    wrong += [f"not in the wheel: {name}" for name in sorted(package - names)]
    wrong += [f"in the wheel, but not of the package: {name}" for name in sorted(names - package)]
    if metadata[0] != metadata[1]:
        wrong.append("the metadata of the sdist and of the wheel differ")
    return wrong


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "the sdist and the wheel hold what they should")
    sys.exit(bool(found))
