"""Candidate outputs, from a real endpoint on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.system.secret_files import write_private
from proxy.twophase.sampler import MAX_ANSWER, Sampler, SamplerError, open_sampler
from tests.support.harness import Certificates
from tests.support.timeouts import PATIENCE

type Answer = Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]
CALL = ("transfer_funds", "Moves money.", {"amount": 100}, "Pay the invoice.")


class Endpoint:
    """Speaks as much HTTP as a chat completion needs, and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.heads: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.together = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            (length,) = (line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:"))
            self.heads.append(head)
            self.bodies.append(json.loads(await reader.readexactly(int(length))))
            if len(self.bodies) == 2:
                self.together.set()
            await self.answer(writer, self.bodies[-1])
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def endpoint(answer: Answer, tls: Any = None) -> AsyncIterator[Endpoint]:
    made = Endpoint(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1"
    try:
        yield made
    finally:
        server.close()


@asynccontextmanager
async def sampler(url: str, timeout: float = 30, key: str | None = "sk-test") -> AsyncIterator[Sampler]:
    made = Sampler(url, "some-model", key=key, timeout=timeout)
    try:
        yield made
    finally:
        await made.close()


def spoken(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def completion(content: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def saying(data: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        writer.write(data)

    return answer


async def by_temperature(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    writer.write(spoken("200 OK", completion(f"at {asked['temperature']}")))


async def complaint(answer: Answer, timeout: float = 30) -> str:
    async with endpoint(answer) as asked, sampler(asked.url, timeout) as made:
        with pytest.raises(SamplerError) as caught:
            await made.sample(*CALL)
    return str(caught.value)


async def test_a_model_is_asked_at_two_temperatures() -> None:
    async with endpoint(by_temperature) as asked, sampler(asked.url) as made:
        assert await made.sample(*CALL) == ("at 0.0", "at 0.8")
    assert {body["model"] for body in asked.bodies} == {"some-model"}
    for head, body in zip(asked.heads, asked.bodies, strict=True):
        assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
        assert "authorization: bearer sk-test\r\n" in head.lower()
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert json.loads(user["content"]) == {
            "tool": "transfer_funds",
            "description": "Moves money.",
            "arguments": {"amount": 100},
            "prompt": "Pay the invoice.",
        }


async def test_without_a_key_none_is_sent() -> None:
    async with endpoint(by_temperature) as asked, sampler(asked.url, key=None) as made:
        await made.sample("t", None, None, None)
    assert all("authorization" not in head.lower() for head in asked.heads)


async def test_both_are_asked_at_the_same_time() -> None:
    async def when_both_came(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            await asked.together.wait()
        await by_temperature(writer, body)

    async with endpoint(when_both_came) as asked, sampler(asked.url) as made:
        assert len(await made.sample(*CALL)) == 2


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with endpoint(by_temperature) as asked, sampler(asked.url) as made:
        assert await made.sample(*CALL)


@pytest.mark.parametrize("status", ["500 Oops", "401 No", "204 Nothing", "404 Gone"])
async def test_another_status_is_told(status: str) -> None:
    found = await complaint(saying(spoken(status, b"secret details" if status != "204 Nothing" else b"")))
    assert found == f"the sampler answered with status {status.split(maxsplit=1)[0]}"


async def test_a_redirect_is_not_followed() -> None:
    async with endpoint(by_temperature) as elsewhere:
        location = f"Location: {elsewhere.url}/chat/completions"
        for status in ("301 Moved", "302 Found", "307 Again", "308 Forever"):
            found = await complaint(saying(spoken(status, b"", location)))
            assert found == f"the sampler answered with status {status.split()[0]}"
    assert elsewhere.heads == []


async def test_one_failure_of_two_is_a_failure() -> None:
    async def answer(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        status = "200 OK" if asked["temperature"] == 0 else "500 Oops"
        writer.write(spoken(status, completion("fine")))

    assert "status 500" in await complaint(answer)


async def hang(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    await asyncio.Event().wait()


async def hang_in_the_body(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{")
    await hang(writer, asked)


async def trickle(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(5000):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("answer", [hang, hang_in_the_body, trickle])
async def test_an_endpoint_that_is_too_slow_is_left(answer: Answer) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await complaint(answer, timeout=0.5) == "the sampler did not answer within 0.5 s"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": [{"text": "old"}]}',
        b"[" * 100_000,
    ],
)
async def test_an_answer_that_is_no_completion_is_refused(body: bytes) -> None:
    assert await complaint(saying(spoken("200 OK", body))) == "the sampler's answer is not a chat completion"


@pytest.mark.parametrize("content", [None, "", " \n", 5, ["a"], {"type": "text"}])
async def test_an_answer_without_text_is_refused(content: Any) -> None:
    assert await complaint(saying(spoken("200 OK", completion(content)))) == "the sampler's answer holds no text"


async def test_an_answer_too_large_is_cut_off() -> None:
    async def endless(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    assert await complaint(endless) == f"the sampler answered with more than {MAX_ANSWER} bytes"


async def test_an_answer_that_was_compressed_is_refused() -> None:
    packed = spoken("200 OK", gzip.compress(completion("fine")), "Content-Encoding: gzip")
    assert "encoding" in await complaint(saying(packed))


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"\0" * 99])
async def test_what_is_no_http_is_not_an_answer(data: bytes) -> None:
    assert "cannot be reached" in await complaint(saying(data))


async def test_where_nobody_listens_there_is_no_sampler() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with sampler(f"http://127.0.0.1:{unused.getsockname()[1]}") as made:
            with pytest.raises(SamplerError, match=r"cannot be reached \(ConnectError\)"):
                await made.sample(*CALL)


async def test_no_error_tells_the_key() -> None:
    async with sampler("http://127.0.0.1:1", key="sk-hidden") as made:
        with pytest.raises(SamplerError) as caught:
            await made.sample(*CALL)
    assert "sk-hidden" not in f"{caught.value} {made!r}"


def settings(**values: Any) -> Settings:
    return load_settings(values, {}).settings


def test_without_a_url_there_is_no_sampler() -> None:
    assert open_sampler(settings(sampler_model="m"), {}) is None


def test_a_url_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="needs sampler_model"):
        open_sampler(settings(sampler_url="http://127.0.0.1:1"), {})


async def test_the_endpoints_certificate_is_checked_against_the_operators_roots(certificates: Certificates) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates.cert_file, certificates.key_file)
    async with endpoint(by_temperature, tls) as asked:
        for roots, works in ((certificates.ca_file, True), (None, False)):
            made = open_sampler(
                settings(sampler_url=asked.url, sampler_model="m", upstream_ca=roots), {"INTERLOCK_SAMPLER_KEY": "k"}
            )
            assert made is not None
            if works:
                assert await made.sample(*CALL) == ("at 0.0", "at 0.8")
            else:
                with pytest.raises(SamplerError, match="ConnectError"):
                    await made.sample(*CALL)
            await made.close()
    assert all("authorization: bearer k\r\n" in head.lower() for head in asked.heads)


async def test_the_key_is_in_the_environment_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    write_private(file, b"sk-file\n")
    async with endpoint(by_temperature) as asked:
        for environ in ({}, {"INTERLOCK_SAMPLER_KEY": "sk-env"}):
            made = open_sampler(settings(sampler_url=asked.url, sampler_model="m", sampler_key_file=file), environ)
            assert made is not None
            await made.sample(*CALL)
            await made.close()
    sent = [line for head in asked.heads for line in head.splitlines() if line.lower().startswith("authorization")]
    assert [line.split()[-1] for line in sent] == ["sk-file", "sk-file", "sk-env", "sk-env"]


@pytest.mark.parametrize(
    ("content", "part"), [(b"", "is empty"), (b"sk a\x00", "characters"), (b"sk-\xff", "characters")]
)
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(tmp_path: Path, content: bytes, part: str) -> None:
    write_private(tmp_path / "key", content)
    chosen = settings(sampler_url="http://127.0.0.1:1", sampler_model="m", sampler_key_file=tmp_path / "key")
    with pytest.raises(ConfigError, match=part) as caught:
        open_sampler(chosen, {})
    assert "sk" not in str(caught.value).replace("sk_", "").replace(str(tmp_path), "")


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"sk")
    (tmp_path / "key").chmod(0o644)
    chosen = settings(sampler_url="http://127.0.0.1:1", sampler_model="m", sampler_key_file=tmp_path / "key")
    with pytest.raises(ConfigError, match="chmod 600"):
        open_sampler(chosen, {})
