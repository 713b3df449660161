"""Agents hold placeholders. Values go where they are bound to, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import httpx2
import pytest
from websockets.asyncio.client import connect

from proxy.core.vault import Place
from tests.daemon.vault_scene import NAMES, VALUE, World, world
from tests.support.harness import Certificates, make_certificates
from tests.support.timeouts import PATIENCE


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"), *NAMES)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, named: Certificates) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("secure"), named, large_uploads=["*"], body_limit="64KiB") as made:
        yield made


@pytest.fixture(scope="module")
def key(secure: World) -> str:
    return secure.vault.add("key")


@pytest.fixture
def client(secure: World) -> Iterator[httpx2.Client]:
    with secure.client() as made:
        yield made


def reason(response: httpx2.Response) -> str:
    return str(response.json()["error"]["data"]["reason"])


def test_a_value_stands_in_a_header_and_the_answer_has_the_placeholder(secure: World, client, key: str) -> None:
    response = client.get(secure.url(), headers={"Authorization": f"Bearer {key}"})
    assert secure.header("authorization") == f"Bearer {VALUE}"
    assert dict(response.json()["headers"])["authorization"] == f"Bearer {key}"


def test_a_value_stands_in_a_login(secure: World, client, key: str) -> None:
    response = client.get(secure.url(), auth=("me", key))
    assert base64.b64decode(secure.header("authorization").removeprefix("Basic ")).decode() == f"me:{VALUE}"
    assert f"Basic {base64.b64encode(b'me:').decode()}{key}" in response.text


def test_a_value_stands_in_the_path_and_the_query(secure: World, client, key: str) -> None:
    response = client.get(secure.url(f"/bot{key}/send?a=1&key={key}&b=2"))
    seen = secure.seen()
    assert httpx2.URL(f"http://x{seen['path']}").path == f"/bot{VALUE}/send"
    assert dict(httpx2.QueryParams(seen["query"])) == {"a": "1", "key": VALUE, "b": "2"}
    assert response.json()["path"] == f"/bot{key}/send"


def test_a_value_stands_in_a_body_of_json_and_not_in_its_keys(secure: World, client, key: str) -> None:
    body = f'{{"a": ["x {key} y"],  "{key}": 1e2, "b": "{key}"}}'
    response = client.post(secure.url(), content=body, headers={"Content-Type": "application/json"})
    written = json.dumps(VALUE)[1:-1]
    assert secure.seen()["body"] == f'{{"a": ["x {written} y"],  "{key}": 1e2, "b": "{written}"}}'
    assert json.loads(response.json()["body"]) == {"a": [f"x {key} y"], key: 100, "b": key}


def test_a_value_stands_in_a_form_and_in_a_text(secure: World, client, key: str) -> None:
    client.post(secure.url(), data={"a": "1", "key": key})
    assert dict(httpx2.QueryParams(secure.seen()["body"])) == {"a": "1", "key": VALUE}
    client.post(secure.url(), content=f"my key is {key}.")
    assert secure.seen()["body"] == f"my key is {VALUE}."
    client.post(secure.url(), files={"f": ("a.bin", b"\xff\x00"), "key": (None, key)})
    assert f"\r\n\r\n{VALUE}\r\n" in secure.seen()["body"]


def test_a_value_stands_in_the_head_of_an_upload_that_streams_and_not_in_its_body(secure: World, client, key: str):
    body = b"0123456789 " * 20_000 + key.encode()
    response = client.post(secure.url("/up"), content=body, headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 200
    assert secure.header("authorization") == f"Bearer {VALUE}"
    assert secure.seen()["body"] == body.decode()


def test_a_value_stands_in_a_request_over_http2(secure: World, key: str) -> None:
    with secure.client(http2=True) as client:
        response = client.get(secure.url(f"/{key}"), headers={"Authorization": f"Bearer {key}", "Cookie": f"a={key}"})
    assert response.http_version == "HTTP/2"
    assert secure.header("authorization") == f"Bearer {VALUE}"
    assert VALUE not in response.text


def test_codings_of_a_body_are_undone_for_a_value(secure: World, client, key: str) -> None:

    coded = {"Content-Encoding": "gzip"}
    client.post(secure.url(), content=gzip.compress(f"my {key}".encode()), headers=coded)
    assert secure.seen()["body"] == f"my {VALUE}"
    assert "content-encoding" not in dict(secure.seen()["headers"])


async def test_a_value_stands_in_the_handshake_of_a_websocket_and_in_its_messages(secure: World, key: str) -> None:
    url = secure.url("/ws").replace("https", "wss")
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(
        url, proxy=secure.interlock.proxy_url, ssl=secure.trust(), additional_headers=headers, open_timeout=PATIENCE
    ) as socket:
        assert socket.response is not None
        assert socket.response.headers["x-authorization"] == f"Bearer {key}"
        assert json.loads(await socket.recv())["headers"]
        assert secure.header("authorization") == f"Bearer {VALUE}"
        for sent, arrived in [
            (f"my {key}", f"my {VALUE}"),
            (json.dumps({"k": key}), json.dumps({"k": VALUE})),
        ]:
            await socket.send(sent)
            assert await socket.recv() == sent
            assert secure.server.executions()[-1]["arguments"]["text"] == arrived


def test_headers_that_mirror_an_argument_follow_it(secure: World, client, key: str) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "t", "arguments": {"k": key, "n": [f"a {key}"], key: 1}},
    }
    mirrored = {"Mcp-Method": "tools/call", "Mcp-Name": "t", "Mcp-Param-K": key}
    response = client.post(secure.url("/mcp"), json=message, headers=mirrored)
    assert secure.header("mcp-param-k") == VALUE
    arguments = json.loads(secure.seen()["body"])["params"]["arguments"]
    assert arguments == {"k": VALUE, "n": [f"a {VALUE}"], key: 1}
    assert json.dumps(VALUE)[1:-1] not in response.text
    # Bound to the body alone it stands in the header all the same, since that is the argument again.
    held = secure.vault.add("mirrored", "ключ-ключ-ключ", places=(Place.BODY,), tools=("t",))
    message["params"]["arguments"] = {"k": held}
    client.post(secure.url("/mcp"), json=message, headers={**mirrored, "Mcp-Param-K": held})
    said = base64.b64decode(secure.header("mcp-param-k").removeprefix("=?base64?").removesuffix("?=")).decode()
    assert said == "ключ-ключ-ключ"


REFUSED = [
    ("other host", {}, "site.test", {"headers": {"X-Key": "{}"}}),
    ("other host in the query", {}, "site.test", {"params": {"k": "{}"}}),
    ("other host in a login", {}, "site.test", {"auth": ("me", "{}")}),
    ("other place", {"places": (Place.BODY,)}, "web.test", {"headers": {"X-Key": "{}"}}),
    ("place of the query", {"places": (Place.HEADER,)}, "web.test", {"params": {"k": "{}"}}),
    ("other agent", {"agents": ("ops-*",)}, "web.test", {"headers": {"X-Key": "{}"}}),
    ("other agent in a body", {"agents": ("ops-*",)}, "web.test", {"content": "{}"}),
    ("no call of its tool", {"tools": ("deploy",)}, "web.test", {"headers": {"X-Key": "{}"}}),
    ("no host yet", {"hosts": ()}, "web.test", {"headers": {"X-Key": "{}"}}),
]


@pytest.mark.parametrize(("name", "bound", "host", "sent"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_credential_that_is_not_bound_there_is_refused(secure: World, client, name, bound, host, sent) -> None:
    held = secure.vault.add(name.replace(" ", "-"), **bound)
    filled = json.loads(json.dumps(sent).replace("{}", held))
    if "auth" in filled:
        filled["auth"] = tuple(filled["auth"])
    before = secure.arrived()
    response = client.post(secure.url(host=host), **filled)
    assert (response.status_code, reason(response)) == (403, "credential_not_bound")
    assert name.replace(" ", "-") in response.text
    assert VALUE not in response.text
    assert secure.arrived() == before


def test_a_placeholder_in_a_body_for_another_host_is_text(secure: World, client, key: str) -> None:
    client.post(secure.url(host="site.test"), json={"messages": [f"use {key}"]})
    assert json.loads(secure.seen()["body"]) == {"messages": [f"use {key}"]}


def test_a_revoked_placeholder_is_refused_and_text_in_a_body(secure: World, client) -> None:
    held = secure.vault.add("old")
    assert client.get(secure.url(), headers={"X-Key": held}).status_code == 200
    secure.vault.file.revoke("old")
    before = secure.arrived()
    for host in ("web.test", "site.test"):
        assert reason(client.get(secure.url(host=host), headers={"X-Key": held})) == "credential_revoked"
    assert secure.arrived() == before
    client.post(secure.url(), content=held)
    assert secure.seen()["body"] == held


def test_a_source_without_a_value_refuses_and_names_the_credential(secure: World, client) -> None:
    held = secure.vault.add("lost")
    (secure.vault.folder / "lost").unlink()
    before = secure.arrived()
    response = client.get(secure.url(), headers={"X-Key": held})
    assert (response.status_code, reason(response)) == (403, "credential_unavailable")
    assert "'lost'" in response.text
    secure.vault.set("short", "1234567")
    secure.vault.set("wide", "ключ-ключ-ключ")
    for name, value in (("short", "1234567"), ("wide", "ключ-ключ-ключ")):
        held = secure.vault.add(name, value)
        assert reason(client.get(secure.url(), headers={"X-Key": held})) == "credential_unavailable"
    assert secure.arrived() == before
    client.post(secure.url(), content=held)
    assert secure.seen()["body"].encode("latin-1").decode() == "ключ-ключ-ключ"


def test_a_rotated_value_counts_from_the_next_request_and_the_old_one_stays_masked(secure: World, client) -> None:
    held = secure.vault.add("turning", "first-value-of-it")
    client.get(secure.url(), headers={"X-Key": held})
    assert secure.header("x-key") == "first-value-of-it"
    secure.vault.set("turning", "second-value-of-it")
    response = client.get(secure.url(), headers={"X-Key": held, "X-Before": "first-value-of-it"})
    assert secure.header("x-key") == "second-value-of-it"
    assert secure.header("x-before") == "first-value-of-it"
    headers = dict(response.json()["headers"])
    assert (headers["x-key"], headers["x-before"]) == (held, held)


def test_requests_that_name_two_hosts_get_no_value(secure: World, client, key: str) -> None:
    before = secure.arrived()
    odd = {"Host": f"web.test:{secure.server.port}", "X-Key": key}
    response = client.get(secure.url(host="site.test"), headers=odd)
    assert (response.status_code, reason(response)) == (421, "host_mismatch")
    response = client.get(f"https://web.test@site.test:{secure.server.port}/", headers={"X-Key": key})
    assert response.status_code == 403
    assert secure.arrived() == before


@pytest.mark.parametrize(
    "odd",
    [
        {":path": "https://site.test/x"},
        {":path": "site.test/x"},
        {":authority": "site.test"},
        {"host": "site.test"},
    ],
    ids=lambda odd: next(iter(odd)).strip(":") + next(iter(odd.values()))[:6],
)
def test_over_http2_nothing_in_a_head_leads_elsewhere(secure: World, key: str, odd: dict[str, str]) -> None:
    before = secure.arrived()
    target = f"web.test:{secure.server.port}"
    fields = {":method": "GET", ":scheme": "https", ":authority": target, ":path": "/", **odd, "x-key": key}
    talk = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False))
    talk.initiate_connection()
    talk.send_headers(1, list(fields.items()), end_stream=True)
    context = secure.trust()
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", secure.interlock.port), PATIENCE) as raw:
        raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert b" 200 " in raw.recv(4096)
        with context.wrap_socket(raw, server_hostname="web.test") as tunnel:
            tunnel.sendall(talk.data_to_send())
            ended = False
            while not ended and (data := tunnel.recv(1 << 16)):
                ends = (h2.events.StreamEnded, h2.events.StreamReset, h2.events.ConnectionTerminated)
                ended = any(isinstance(event, ends) for event in talk.receive_data(data))
                tunnel.sendall(talk.data_to_send())
    assert secure.arrived() == before


@pytest.mark.parametrize("host", ["WEB.test", "web.test."])
def test_a_host_has_one_name(secure: World, client, key: str, host: str) -> None:
    assert client.get(secure.url(host=host), headers={"X-Key": key}).status_code == 200
    assert secure.header("x-key") == VALUE


async def test_a_tunnel_to_another_address_gets_no_value_by_the_name_in_tls(secure: World, key: str) -> None:

    # An attacker's server on an address of its own; the client says that it wants web.test.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other = make_certificates(secure.vault.folder / "attacker", "web.test")
    context.load_cert_chain(other.cert_file, other.key_file)
    arrived: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.read(1 << 16))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", secure.interlock.port)
    writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    await writer.start_tls(secure.trust(), server_hostname="web.test")
    writer.write(f"GET / HTTP/1.1\r\nHost: web.test:{port}\r\nX-Key: {key}\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    server.close()
    assert VALUE.encode() not in b"".join(arrived)
    assert b" 502 " in answer.split(b"\r\n")[0]


def test_values_are_in_no_record(secure: World, client, key: str) -> None:
    client.get(secure.url(f"/{key}"), headers={"Authorization": f"Bearer {key}"})
    events = secure.interlock.events()
    used = [event for event in events if event["kind"] == "credential_used"]
    assert used[-1]["detail"]["credentials"] == ["key"]
    exported = secure.interlock.cli("audit", "export", "--output", str(secure.vault.folder / "export"))
    assert exported.returncode == 0, exported.stderr
    written = [secure.interlock.errors().encode(), json.dumps(events).encode()]
    written += [
        file.read_bytes()
        for folder in (secure.interlock.state_dir, secure.vault.folder / "export")
        for file in (folder.rglob("*") if folder.is_dir() else [folder])
        if file.is_file()
    ]
    for value in (VALUE, json.dumps(VALUE)[1:-1], "first-value-of-it", "second-value-of-it"):
        assert not any(value.encode() in each for each in written)


def test_a_process_that_holds_values_leaves_no_core_file(secure: World, client, key: str) -> None:
    assert client.get(secure.url(), headers={"X-Key": key}).status_code == 200
    for pid in secure.interlock.worker_pids:
        (line,) = [each for each in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file size" in each]
        assert line.split()[4:6] == ["0", "0"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("plain"), None) as made:
        yield made


def test_without_tls_a_value_goes_to_this_machine_alone_or_where_its_binding_says_so(plain: World) -> None:
    hosts = ("web.test", "127.0.0.1")
    with plain.client() as client:
        before = plain.arrived()
        held = plain.vault.add("held", hosts=hosts)
        for sent in ({"headers": {"X-Key": held}}, {"content": held}):
            assert reason(client.post(plain.url(), **sent)) == "credential_not_bound"
        assert plain.arrived() == before
        client.get(plain.url(host="127.0.0.1"), headers={"X-Key": held})
        assert plain.header("x-key") == VALUE
        open_held = plain.vault.add("open", "another-value-1", hosts=hosts, plain=True)
        client.get(plain.url(), headers={"X-Key": open_held})
        assert plain.header("x-key") == "another-value-1"


def test_a_vault_that_cannot_be_read_refuses_what_looks_like_a_placeholder(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with world(tmp_path_factory.mktemp("damaged"), None) as damaged, damaged.client() as client:
        damaged.vault.file.path.write_text("{")
        damaged.vault.file.path.chmod(0o600)
        for sent in ({"headers": {"X-Key": "ilkph_a"}}, {"content": "ilkph"}, {"params": {"a": "ilkph"}}):
            response = client.post(damaged.url(host="127.0.0.1"), **sent)
            assert reason(response) == "credential_unavailable"
        assert client.get(damaged.url(host="127.0.0.1")).status_code == 200
        assert damaged.arrived() == 1
