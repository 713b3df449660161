"""Asking issuers: over TLS or on this machine, bounded, and never led elsewhere."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from proxy.identity import issuer_http
from proxy.identity.issuer_http import UnreachableError, UnreadableAnswerError, ask_json, check_issuer, check_url
from tests.support.agent_issuer import start_tls_issuer


@pytest.mark.parametrize("url", ["https://id.example.com/x?y=1", "http://localhost:1/", "http://127.0.0.1"])
def test_these_may_be_asked(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url",
    ["http://id.example.com", "https://u:p@id.example.com", "https://id/#x", "file:///etc/passwd", "", "https://"],
)
def test_these_may_not(url: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        check_url(url)


def test_an_issuer_has_no_query() -> None:
    with pytest.raises(ValueError, match="no query"):
        check_issuer("https://id.example.com/?tenant=1")


async def test_an_answer_comes_over_tls_by_the_ca_that_is_named(tmp_path: Path) -> None:
    with start_tls_issuer(tmp_path) as (issuer, ca_file):
        status, found = await ask_json(f"{issuer.url}/keys", ca_file=ca_file)
        assert (status, len(found["keys"])) == (200, 1)
        with pytest.raises(UnreachableError):
            await ask_json(f"{issuer.url}/keys")
        issuer.down.add("/keys")
        assert await ask_json(f"{issuer.url}/keys", ca_file=ca_file) == (500, None)


async def test_an_answer_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start_tls_issuer(tmp_path) as (issuer, ca_file):
        monkeypatch.setattr(issuer_http, "MAX_ANSWER", 10)
        with pytest.raises(UnreadableAnswerError, match="too large"):
            await ask_json(f"{issuer.url}/keys", ca_file=ca_file)


def test_roots_that_cannot_be_read_are_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="No such file"):
        ssl.create_default_context(cafile=Path("/nowhere.pem"))
