"""Two installations on one session: the second is refused, however the session is given, and leaves nothing behind."""

from __future__ import annotations

import boto3
import botocore.session
import pytest

import shardkit
from shardkit import CalculatedSuffix, ConfigurationError

TABLES = {"Orders": CalculatedSuffix("OrderId", shards=4)}


def test_a_session_of_boto3_and_its_session_of_botocore_are_one() -> None:
    inner = botocore.session.get_session()
    outer = boto3.Session(botocore_session=inner)
    for first, second in (inner, outer), (outer, inner):
        with shardkit.install(first, TABLES), pytest.raises(ConfigurationError, match="this session"):
            shardkit.install(second, TABLES)


def test_a_session_made_while_tables_are_installed_everywhere() -> None:
    with shardkit.install_everywhere(TABLES):
        session = boto3.Session()
        with pytest.raises(ConfigurationError, match="this session"):
            shardkit.install(session, TABLES)
    shardkit.install(session, TABLES).uninstall()


def test_a_default_session_that_has_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    session = boto3.Session()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    with shardkit.install(session, TABLES), pytest.raises(ConfigurationError, match="this session"):
        shardkit.install_everywhere(TABLES)
    shardkit.install_everywhere(TABLES).uninstall()
