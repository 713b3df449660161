"""One reading of the system's CAs for all HTTP clients of a test process.

httpx reads them anew for every client, which takes 50 ms; most tests with a client take less, and few use TLS.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

from httpx2._transports import default as transports

create = transports.create_ssl_context


@functools.cache
def _usual(trust_env: bool, *_: str | None) -> ssl.SSLContext:
    return create(trust_env=trust_env)


def _shared(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is True and cert is None:
        return _usual(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return create(verify=verify, cert=cert, trust_env=trust_env)


def share() -> None:
    """Let clients that trust the usual CAs have the same context."""
    transports.create_ssl_context = _shared
