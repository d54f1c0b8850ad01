"""The responses of one connection."""

from __future__ import annotations

from typing import NamedTuple

import httptools
from botocore.exceptions import BotoCoreError, ConnectionClosedError, HTTPClientError

# DynamoDB returns up to 16 MB of data. One byte of data takes at most 9 bytes of JSON: an empty string in a list counts
# one byte, and is written `{"S":""},`.
_LONGEST = 256 * 1024 * 1024
_LONGEST_HEAD = 64 * 1024

_FIRST_FINAL_STATUS = 200


class Raw(NamedTuple):
    """An HTTP response; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class UnexpectedHTTPError(HTTPClientError):
    """The server answered with something else than one complete HTTP/1.1 response."""

    fmt = "Not an HTTP/1.1 response from endpoint URL {endpoint_url}: {error}"


class ResponseParser:
    """Reads the responses of a connection, one at a time.

    ``reusable``: whether another request can follow a complete response.
    """

    def __init__(self, url: str) -> None:
        self.reusable = True
        self._url = url
        self._status = 0
        self.begin()
        self._parser = httptools.HttpResponseParser(self)

    def begin(self) -> None:
        """Expect the response to a new request."""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._complete = False
        self._received = 0

    def feed(self, data: bytes) -> Raw | None:
        """Read bytes, and return the response if it is complete.

        Raises:
            UnexpectedHTTPError: They do not belong to a response, or it is too long.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What follows a complete response belongs to no request.
            self.reusable = False
            if not self._complete:
                raise UnexpectedHTTPError(endpoint_url=self._url, error=error) from error
        if self._complete:
            return Raw(self._status, self._headers, self._body[0] if len(self._body) == 1 else b"".join(self._body))
        self._received += len(data)
        if self._received > (_LONGEST if self._body else _LONGEST_HEAD):
            long = f"it is longer than {self._received:,} bytes"
            raise UnexpectedHTTPError(endpoint_url=self._url, error=long)
        return None

    def cut(self) -> BotoCoreError:
        """Return the error for a connection that ended before the response was complete."""
        if self._body and not {"content-length", "transfer-encoding"} & self._headers.keys():
            return UnexpectedHTTPError(endpoint_url=self._url, error="only the connection's end tells where it ends")
        return ConnectionClosedError(endpoint_url=self._url, error="the server closed the connection")

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._complete:
            return
        # The parser knows both only until this callback returns.
        self._status = self._parser.get_status_code()
        self.reusable = self.reusable and self._parser.should_keep_alive()
        if self._status < _FIRST_FINAL_STATUS:
            self._headers = {}  # an interim response: the final one follows
        else:
            self._complete = True
