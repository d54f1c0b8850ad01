"""Signature Version 4 of requests that differ only in body and time, as those of one operation do."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

_ALGORITHM = "AWS4-HMAC-SHA256"
# Proxies and tracing tools may change them. What botocore 1.44 leaves unsigned; older ones sign some of them.
_UNSIGNED = frozenset({"baggage", "connection", "expect", "keep-alive", "proxy-authenticate", "proxy-authorization",
                        "te", "traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "user-agent",
                        "x-amzn-trace-id"})  # fmt: skip
_DAY = slice(0, 8)


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class Signature(NamedTuple):
    """The headers that a signature adds to a request, without ``X-Amz-Security-Token``."""

    date: str
    authorization: str


class Signer:
    """Signs ``POST`` requests to ``/`` that have the same headers.

    What their canonical requests have in common is written once, and the key, which holds for a day, is kept for a
    day. ``headers`` must include ``Host``.
    """

    def __init__(self, credentials: Credentials, *, region: str, service: str, headers: Mapping[str, str]) -> None:
        self.credentials = credentials
        self._region, self._service = region, service
        values = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
        signed = {name: value for name, value in values.items() if name not in _UNSIGNED}
        if credentials.token:
            signed["x-amz-security-token"] = " ".join(credentials.token.split())
        signed["x-amz-date"] = "\n"  # in no header's value: here the canonical request is cut
        names = sorted(signed)
        before, after = "".join(f"{name}:{signed[name]}\n" for name in names).split("\n\n", 1)
        listed = ";".join(names)
        self._head = f"POST\n/\n\n{before}".encode()
        self._tail = f"\n{after}\n{listed}\n".encode()
        self._listed = listed
        self._day = ""
        self._key = b""
        self._scope = self._authorization = ""

    def sign(self, body: bytes, timestamp: str) -> Signature:
        """Sign a request; ``timestamp``: in the form ``20150830T123600Z``."""
        if timestamp[_DAY] != self._day:
            self._begin(timestamp[_DAY])
        canonical = b"%b%b%b%b" % (self._head, timestamp.encode(), self._tail, sha256(body).hexdigest().encode())
        text = f"{_ALGORITHM}\n{timestamp}\n{self._scope}\n{sha256(canonical).hexdigest()}"
        return Signature(timestamp, self._authorization + hmac.digest(self._key, text.encode(), "sha256").hex())

    def _begin(self, day: str) -> None:
        key = f"AWS4{self.credentials.secret_key}".encode()
        for part in (day, self._region, self._service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._scope = f"{day}/{self._region}/{self._service}/aws4_request"
        credential = f"Credential={self.credentials.access_key}/{self._scope}"
        self._authorization = f"{_ALGORITHM} {credential}, SignedHeaders={self._listed}, Signature="
        self._day, self._key = day, key
