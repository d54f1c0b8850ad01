"""Signatures, against AWS's published test suite and botocore's signer."""

from __future__ import annotations

from datetime import datetime

import pytest
from botocore.auth import SIGNED_HEADERS_BLACKLIST, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkit.dynamodb.signing import Credentials, Signer

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SUITE_TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7"
    "mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d"
    "+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

# Each POST of AWS's Signature Version 4 test suite without a path or a query: its headers, token, body and signature.
SUITE = {
    "post-vanilla": ({}, None, b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    "post-header-key-sort": (
        {"My-Header1": "value1"},
        None,
        b"",
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
    ),
    "post-header-value-case": (
        {"My-Header1": "VALUE1"},
        None,
        b"",
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
    ),
    "post-sts-header-before": (
        {},
        SUITE_TOKEN,
        b"",
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
    ),
    "post-x-www-form-urlencoded": (
        FORM,
        None,
        b"Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
}

SPECIAL = {"host", "date", "te", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"}  # te: older ones sign it
names = st.from_regex(r"\A[A-Za-z][A-Za-z0-9-]{0,15}\Z").filter(lambda name: name.lower() not in SPECIAL)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
keys = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/,="), min_size=1, max_size=40)
headers = st.dictionaries(names, values, max_size=6).filter(lambda d: len({name.lower() for name in d}) == len(d))
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda time: f"{time:%Y%m%dT%H%M%SZ}")  # noqa: DTZ001 - UTC


@pytest.mark.parametrize("case", SUITE)
def test_signs_as_the_suite_of_aws_does(case: str) -> None:
    headers, token, body, expected = SUITE[case]
    signer = Signer(
        Credentials("AKIDEXAMPLE", SECRET, token),
        region="us-east-1",
        service="service",
        headers={"Host": "example.amazonaws.com", **headers},
    )

    signed = signer.sign(body, "20150830T123600Z")

    assert signed.date == "20150830T123600Z"
    assert signed.authorization.startswith(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders="
    )
    assert signed.authorization.endswith(f", Signature={expected}")


@settings(max_examples=4 * settings().max_examples)
@given(
    access_key=keys,
    secret=keys,
    token=st.none() | keys,
    region=st.sampled_from(["us-east-1", "eu-west-1", "cn-north-1", "us-gov-west-1", "local"]),
    host=st.sampled_from(["dynamodb.eu-west-1.amazonaws.com", "localhost:8000", "127.0.0.1:443", "[::1]:8000"]),
    headers=headers,
    bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=3),
)
def test_signs_as_botocore_does(
    access_key: str,
    secret: str,
    token: str | None,
    region: str,
    host: str,
    headers: dict[str, str],
    bodies: list[bytes],
) -> None:
    auth = SigV4Auth(ReadOnlyCredentials(access_key, secret, token), "dynamodb", region)
    signer = Signer(
        Credentials(access_key, secret, token), region=region, service="dynamodb", headers={"Host": host, **headers}
    )
    for body in bodies:
        request = AWSRequest("POST", f"http://{host}/", dict(headers), body)
        auth.add_auth(request)

        signed = signer.sign(body, request.headers["X-Amz-Date"])

        assert signed.authorization == request.headers["Authorization"]


def test_does_not_sign_what_may_change_on_the_way() -> None:
    headers = {"Host": "h", **dict.fromkeys([*SIGNED_HEADERS_BLACKLIST, "Traceparent"], "1")}
    signer = Signer(Credentials("AKID", SECRET), region="us-east-1", service="dynamodb", headers=headers)

    assert ", SignedHeaders=host;x-amz-date, " in signer.sign(b"", "20150830T123600Z").authorization


@given(st.lists(times, min_size=1, max_size=5), st.binary(max_size=20))
def test_a_kept_key_ends_with_its_day(times: list[str], body: bytes) -> None:
    def signer() -> Signer:
        return Signer(Credentials("AKID", SECRET), region="us-east-1", service="dynamodb", headers={"Host": "h"})

    kept = signer()

    assert [kept.sign(body, time) for time in times] == [signer().sign(body, time) for time in times]


def test_credentials_hide_their_secrets() -> None:
    assert repr(Credentials("AKID", SECRET, "token")) == "Credentials(access_key='AKID')"
