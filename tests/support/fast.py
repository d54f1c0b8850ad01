"""What most tests wait for, in less time: boto3's new sessions."""

from __future__ import annotations

from functools import cache

import botocore.session

__all__ = ["read_models_once"]


def read_models_once() -> None:
    """Have all of boto3's sessions share what they read of botocore's data files; each would read them again."""
    botocore.session.create_loader = cache(botocore.session.create_loader)
