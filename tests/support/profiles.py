"""What the profile of hypothesis, HYPOTHESIS_PROFILE, says of tests that take long."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE")
LONG = PROFILE in {"search", "thorough"}
