"""Fixtures of the tests over moto."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """A moto server's URL; tables of other tests may be there.

    It answers one request at a time: of two threads that put the first items of a partition key, moto loses one's.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    moto, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Any:
        with lock:
            return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
