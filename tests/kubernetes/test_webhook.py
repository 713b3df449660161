"""The injector over real TLS, in a server of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme

from proxy.kubernetes import webhook
from proxy.kubernetes.injection import Injection
from tests.kubernetes.test_admission import review

CA = trustme.CA()
HOST = "interlock-injector.interlock-system.svc"


class Injector:
    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        self.port, self.certificate, self.key = port, certificate, key

    def renew(self) -> None:
        issued = CA.issue_cert(HOST, "127.0.0.1")
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))

    def client(self) -> httpx2.AsyncClient:
        trust = ssl.create_default_context()
        CA.configure_trust(trust)
        return httpx2.AsyncClient(base_url=f"https://127.0.0.1:{self.port}", verify=trust, trust_env=False)

    async def serial(self) -> int:
        trust = ssl.create_default_context()
        CA.configure_trust(trust)
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=trust)
        shown = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        await writer.wait_closed()
        return int(shown, 16)


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, injection: Callable[[], Injection]) -> AsyncIterator[Injector]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        injector = Injector(listener.getsockname()[1], tmp_path / "tls.crt", tmp_path / "tls.key")
        injector.renew()
        task = asyncio.create_task(webhook.serve(listener, injector.certificate, injector.key, injection))
        yield injector
        assert not task.done(), task  # else nobody catches the signal
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(task, 30)


async def test_the_api_server_gets_its_answers(tmp_path: Path, pod: dict[str, Any], injection: Injection) -> None:
    async with serving(tmp_path, lambda: injection) as injector, injector.client() as client:
        mutated = (await client.post("/mutate", json=review(pod))).json()["response"]
        validated = (await client.post("/validate", json=review(pod))).json()["response"]
        alive = await client.get("/healthz")
    assert (mutated["allowed"], mutated["patchType"]) == (True, "JSONPatch")
    assert validated["allowed"] is False
    assert (alive.status_code, alive.text) == (200, "ok\n")


async def test_what_is_no_review_is_refused(tmp_path: Path, injection: Injection, monkeypatch: Any) -> None:
    monkeypatch.setattr(webhook, "MAX_BODY", 1000)
    async with serving(tmp_path, lambda: injection) as injector, injector.client() as client:
        bodies = (b"", b"{", b"[]", b'{"request": {}}', b" " * 2000)
        codes = [(await client.post("/mutate", content=body)).status_code for body in bodies]
    assert codes == [400] * 5


async def test_a_fault_of_ours_is_no_yes(tmp_path: Path, pod: dict[str, Any]) -> None:
    def broken() -> Injection:
        raise RuntimeError("no template")

    async with serving(tmp_path, broken) as injector, injector.client() as client:
        answer = await client.post("/mutate", json=review(pod))
    assert answer.status_code == 500


async def test_a_renewed_certificate_is_taken_up(tmp_path: Path, injection: Injection, monkeypatch: Any) -> None:
    monkeypatch.setattr(webhook, "RELOAD_SECONDS", 0.02)
    async with serving(tmp_path, lambda: injection) as injector:
        first = await injector.serial()
        injector.renew()
        async with asyncio.timeout(20):
            while await injector.serial() == first:
                await asyncio.sleep(0.01)


async def test_a_certificate_that_cannot_be_read_leaves_the_last_one(
    tmp_path: Path, injection: Injection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "RELOAD_SECONDS", 0.02)
    told = asyncio.Event()
    monkeypatch.setattr(webhook.log, "warning", lambda *_said, **_more: told.set())
    async with serving(tmp_path, lambda: injection) as injector:
        first = await injector.serial()
        injector.certificate.write_text("no certificate")
        await asyncio.wait_for(told.wait(), 20)
        assert await injector.serial() == first
