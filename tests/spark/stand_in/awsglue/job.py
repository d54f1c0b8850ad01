"""The Glue job: says on standard output what was called."""

from __future__ import annotations

import sys
from typing import Any

from awsglue.context import GlueContext


class Job:
    def __init__(self, context: GlueContext) -> None:
        self.name = ""

    def init(self, name: str, options: dict[str, Any]) -> None:
        self.name = name

    def commit(self) -> None:
        sys.stdout.write(f"committed {self.name}\n")
