"""The job's parameters."""

from __future__ import annotations

import argparse


def getResolvedOptions(argv: list[str], names: list[str]) -> dict[str, str]:  # noqa: N802 - Glue's name
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    return vars(parser.parse_known_args(argv[1:])[0])
