"""A value that was given out comes back to nobody: not in another form, not in pieces, not on another connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from urllib.parse import unquote

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.daemon.vault_scene import NAMES, VALUE, World, world
from tests.servers.reflecting import FORMS
from tests.support.harness import make_certificates
from tests.support.timeouts import PATIENCE


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    named = make_certificates(tmp_path_factory.mktemp("certificates"), *NAMES)
    with world(tmp_path_factory.mktemp("secure"), named, workers=2) as made:
        yield made


@pytest.fixture(scope="module")
def key(secure: World) -> str:
    """Return the placeholder of a value that the server has got, and keeps."""
    held = secure.vault.add("key")
    with secure.client() as client:
        assert client.get(secure.url("/keep"), headers={"Authorization": f"Bearer {held}"}).status_code == 204
    return held


@pytest.fixture
def other(secure: World, key: str) -> Iterator[httpx2.Client]:
    """Return a client of a connection of its own, which may be another worker's."""
    assert key
    with secure.client() as made:
        yield made


def again(secure: World, client: httpx2.Client, **asked: str) -> httpx2.Response:
    return client.get(secure.url("/again", "site.test"), params=asked)


def is_masked(response: httpx2.Response, key: str, form: str = "raw") -> bool:
    data = response.content.replace(b"\0", b"")
    kept = FORMS[form](VALUE).replace(b"\0", b"").strip()
    return data.startswith(b"before ") and data.endswith(b" after") and key.encode() in data and kept not in data


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["whole", "gzip", "chunks", "gzip in chunks"])
def test_a_value_comes_back_in_no_form(secure: World, other, key: str, form: str, how: str) -> None:
    response = again(secure, other, form=form, how=how)
    assert response.status_code == 200
    assert is_masked(response, key, form)
    if how == "whole":
        assert int(response.headers["content-length"]) == len(response.content)


@pytest.mark.parametrize("form", ["raw", "json in json", "base64 inside"])
@pytest.mark.parametrize("size", [2, 3, 7, 20])
def test_a_value_in_pieces_of_any_size_is_found(secure: World, other, key: str, form: str, size: int) -> None:
    assert is_masked(again(secure, other, form=form, how="chunks", size=str(size)), key, form)


@pytest.mark.parametrize("kind", ["text/html", "application/x-ndjson", "application/json", "image/png"])
def test_the_kind_of_an_answer_does_not_matter(secure: World, other, key: str, kind: str) -> None:
    for how in ("chunks", "whole", "gzip"):
        assert is_masked(again(secure, other, type=kind, how=how), key)


def test_the_head_of_an_answer_is_masked(secure: World, other, key: str) -> None:
    response = again(secure, other, how="headers")
    assert response.headers["location"] == f"https://site.test/{key}?{key}"
    assert (response.headers["x-key"], response.headers.get("etag")) == (key, None)
    assert VALUE not in unquote(str(response.headers))


@pytest.mark.parametrize("status", ["400", "401", "403", "404", "500", "503"])
def test_error_pages_are_masked(secure: World, other, key: str, status: str) -> None:
    response = again(secure, other, how="error", status=status)
    assert response.status_code == int(status)
    assert is_masked(response, key)


def test_what_cannot_be_decoded_is_withheld(secure: World, other, key: str) -> None:
    response = again(secure, other, how="unknown coding")
    assert response.status_code == 403
    assert response.json()["error"]["data"]["reason"] == "unreadable_response"
    assert key not in response.text


def test_parts_are_masked_and_cannot_be_asked_of_where_a_value_went(secure: World, other, key: str) -> None:
    assert is_masked(again(secure, other, how="part"), key)
    for _ in range(6):  # by some of them, each of the workers is met
        with secure.client() as client:
            response = client.get(secure.url("/ranged"), headers={"Range": "bytes=0-4"})
            assert (response.status_code, response.text) == (200, key)


def test_an_answer_to_head_keeps_its_length(secure: World, other) -> None:
    response = other.head(secure.url("/ranged"))
    assert response.status_code in (200, 405)


def test_over_http2_too(secure: World, key: str) -> None:
    with secure.client(http2=True) as client:
        for how in ("whole", "gzip", "chunks"):
            response = again(secure, client, how=how)
            assert response.http_version == "HTTP/2"
            assert is_masked(response, key)


async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with what is no HTTP, and quotes what came."""
    head = await reader.readuntil(b"\r\n\r\n")
    sent = head.partition(b"X-Key: ")[2].partition(b"\r\n")[0]
    kind = head.split(b" ")[1]
    lines = {
        b"/line": b"HTTP/1.1 " + sent + b" no\r\n\r\n",
        b"/reason": b"HTTP/1.1 500 " + sent + b"\r\nContent-Length: 0\r\n\r\n",
        b"/field": b"HTTP/1.1 200 OK\r\n" + sent + b"\r\n\r\n",
        b"/length": b"HTTP/1.1 200 OK\r\nContent-Length: " + sent + b"\r\n\r\n",
        b"/coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + sent + b"\r\n\r\n",
        b"/chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent + b"\r\n",
        b"/name": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-" + sent + b": 1\r\n\r\n",
        b"/continue": b"HTTP/1.1 103 Hints\r\nX-Key: " + sent + b"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"/trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Key\r\n\r\n0\r\nX-Key: "
        + sent
        + b"\r\n\r\n",
        b"/old": b"HTTP/1.0 200 OK\r\n\r\n" + sent,
    }
    writer.write(lines[kind])
    await writer.drain()
    writer.close()


WORD = "sk-live-1234567890-{}-abcdef"


@pytest.fixture
async def odd(secure: World) -> AsyncIterator[int]:
    server = await asyncio.start_server(broken, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.mark.parametrize(
    "kind",
    ["line", "reason", "field", "length", "coding", "chunk", "name", "continue", "trailers", "old"],
)
async def test_a_server_that_breaks_the_rules_gets_nothing_through(secure: World, odd: int, kind: str) -> None:
    word = WORD.format(kind)
    held = secure.vault.add(f"word-{kind}", word, hosts=("127.0.0.1",))
    reader, writer = await asyncio.open_connection("127.0.0.1", secure.interlock.port)
    target = f"http://127.0.0.1:{odd}/{kind}"
    writer.write(
        f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{odd}\r\nX-Key: {held}\r\nConnection: close\r\n\r\n".encode()
    )
    answer = b""
    while piece := await asyncio.wait_for(reader.read(1 << 16), PATIENCE):
        answer += piece
        if b"\r\n\r\n" in answer and (b"\r\n0\r\n" in answer or b"ontent-length: 0" in answer.lower()):
            break
    writer.close()
    assert word.encode() not in answer
    # Nor where it was given out before, and another server quotes it.
    reader, writer = await asyncio.open_connection("127.0.0.1", secure.interlock.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{odd}\r\nX-Key: {word}\r\n\r\n".encode())
    assert word.encode() not in await asyncio.wait_for(reader.read(1 << 16), PATIENCE)
    writer.close()
    assert word not in secure.interlock.errors()
    assert word not in json.dumps(secure.interlock.recorded())


async def test_messages_and_ends_of_websockets_are_masked(secure: World) -> None:
    word = WORD.format("socket")
    held = secure.vault.add("socket", word, hosts=("127.0.0.1",))

    async def reflect(socket: ServerConnection) -> None:
        assert socket.request is not None
        value = socket.request.headers["X-Key"]
        await socket.send(f"text {value}")
        await socket.send(f"bytes {value}".encode())
        await socket.send([value[:5], value[5:11], value[11:]])
        await socket.ping(f"ping {value}")
        await socket.close(1000, f"bye {value}")

    async with serve(reflect, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/"
        more = {"additional_headers": {"X-Key": held}, "open_timeout": PATIENCE}
        async with connect(url, proxy=secure.interlock.proxy_url, **more) as client:
            got = [await client.recv() for _ in range(3)]
            assert got == [f"text {held}", f"bytes {held}".encode(), held]
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
    assert closed.value.rcvd is not None
    assert word not in closed.value.rcvd.reason
