"""Uploads past the body limit and gRPC stream through, scanned as they go."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from tests.daemon.conftest import Pair
from tests.support.harness import Certificates, Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.raw_socket import Tls, parse_answers, send_raw
from tests.support.timeouts import PATIENCE

CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}).encode()
LARGE = bytes(range(256)) * 1024
SETTINGS = {"body_limit": "64KiB"}


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Interlock]:
    """A proxy whose body limit is small enough to pass."""
    folder = tmp_path_factory.mktemp("proxy")
    with start_interlock(folder, settings=SETTINGS, upstream_ca=certificates.ca_file) as running:
        yield running


@pytest.fixture(scope="module")
def pair(interlock: Interlock, web: ServerHandle) -> Pair:
    return Pair(interlock, web)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ServerHandle]:
    with start_python_server("web", tmp_path_factory.mktemp("secure"), certificates=certificates) as server:
        yield server


def upload(pair: Pair, body: bytes, *fields: str, chunk: int = 0, path: str = "/upload") -> tuple[int, bytes] | None:
    lines = [f"POST http://{pair.target}{path} HTTP/1.1", f"Host: {pair.target}", *fields]
    if chunk:
        lines.append("Transfer-Encoding: chunked")
        pieces = [body[i : i + chunk] for i in range(0, len(body), chunk)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    else:
        lines.append(f"Content-Length: {len(body)}")
    answers = parse_answers(send_raw("127.0.0.1", pair.interlock.port, ["\r\n".join([*lines, "", ""]).encode() + body]))
    return (answers[0].status, answers[0].body) if answers else None


@pytest.mark.parametrize("chunk", [0, 1000, 30_000], ids=["length", "chunks", "large chunks"])
def test_an_upload_past_the_limit_arrives_as_it_was_sent_by_default(pair: Pair, chunk: int):
    answer = upload(pair, LARGE, chunk=chunk)
    assert answer is not None
    assert answer[0] == 200
    assert json.loads(answer[1]) == {"size": len(LARGE), "sha256": hashlib.sha256(LARGE).hexdigest()}


def test_an_upload_past_the_limit_without_a_length_over_http2_reaches_a_server_of_http1(
    interlock: Interlock, secure: ServerHandle
):
    with h2_client(interlock, secure.port) as client:
        client.open(1, "/upload", "application/octet-stream")
        client.send(1, LARGE, end=True)
        assert json.loads(client.read_all(1)) == {"size": len(LARGE), "sha256": hashlib.sha256(LARGE).hexdigest()}


PAD = b'{"a":"' + b"x" * 100_000 + b'",' + CALL[1:]


@pytest.mark.parametrize("chunk", [0, 5000])
@pytest.mark.parametrize("body", [PAD, LARGE + b"\r\nPOST /mcp HTTP/1.1\r\n\r\n" + CALL], ids=["a call", "hidden"])
def test_an_upload_with_a_call_in_it_is_cut_off_and_leaves_an_event(pair: Pair, body: bytes, chunk: int):
    answer = upload(pair, body, chunk=chunk)
    assert answer is None or answer[0] >= 400
    assert pair.interlock.events()[-1]["reason"] == "body_too_large"


@pytest.mark.parametrize("chunk", [0, 5000])
def test_what_says_mcp_in_its_head_never_streams(pair: Pair, chunk: int):
    answer = upload(pair, LARGE, "Mcp-Session-Id: x", chunk=chunk)
    assert answer is not None
    assert answer[0] == 413


@pytest.mark.parametrize("chunk", [0, 5000])
def test_a_call_in_the_query_of_an_upload_never_streams(pair: Pair, chunk: int):
    answer = upload(pair, LARGE, chunk=chunk, path="/upload?id=1&method=tools/call&params[name]=danger")
    assert answer is not None
    assert answer[0] == 413


class H2Client:
    """An HTTP/2 client in a tunnel that reads and writes at any time."""

    def __init__(self, sock: socket.socket, authority: str) -> None:
        self._sock = sock
        self._authority = authority
        self._peer = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._peer.initiate_connection()
        self._flush()
        self.trailers: dict[str, str] = {}
        self.reset = False
        self._data = b""
        self._ended = False

    def _flush(self) -> None:
        self._sock.sendall(self._peer.data_to_send())

    def open(self, stream: int, path: str, content_type: str, *more: tuple[str, str]) -> None:
        pseudo = {":method": "POST", ":scheme": "https", ":authority": self._authority, ":path": path}
        self._peer.send_headers(stream, [*pseudo.items(), ("content-type", content_type), ("te", "trailers"), *more])
        self._flush()

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        while data and not self.reset:
            size = min(self._peer.local_flow_control_window(stream), self._peer.max_outbound_frame_size, len(data))
            if not size:
                self._pump()
                continue
            self._peer.send_data(stream, data[:size])
            data = data[size:]
            self._flush()
        if end and not self.reset:
            self._peer.end_stream(stream)
            self._flush()

    def _pump(self) -> None:
        data = self._sock.recv(65536)
        self.reset = self.reset or not data
        for event in self._peer.receive_data(data) if data else ():
            if isinstance(event, h2.events.DataReceived):
                self._data += event.data
                self._peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.TrailersReceived):
                self.trailers = dict(event.headers)
            elif isinstance(event, h2.events.StreamEnded):
                self._ended = True
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                self.reset = True
        self._flush()

    def read(self, size: int) -> bytes:
        while len(self._data) < size and not self.reset and not self._ended:
            self._pump()
        got, self._data = self._data[:size], self._data[size:]
        return got

    def read_all(self, _stream: int) -> bytes:
        while not self._ended and not self.reset:
            self._pump()
        return self._data


@contextlib.contextmanager
def h2_client(interlock: Interlock, port: int) -> Iterator[H2Client]:
    target = f"127.0.0.1:{port}"
    with socket.create_connection(("127.0.0.1", interlock.port), timeout=PATIENCE) as plain:
        plain.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert b" 200 " in plain.recv(4096)
        with Tls(interlock.ca_file, alpn=("h2",)).wrap(plain) as sock:
            yield H2Client(sock, target)


class GrpcEcho(threading.Thread):
    """A gRPC server over HTTP/2: answers each message as it comes, then says that all is well."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.cert_file, certificates.key_file)
        context.set_alpn_protocols(["h2"])
        self._listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.port: int = self._listener.getsockname()[1]
        self.received = b""
        self._stop = threading.Event()

    def run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError):
                sock, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: ssl.SSLSocket) -> None:
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        peer.initiate_connection()
        with contextlib.suppress(OSError), sock:
            sock.sendall(peer.data_to_send())
            while data := sock.recv(65536):
                for event in peer.receive_data(data):
                    self._take(peer, event)
                sock.sendall(peer.data_to_send())

    def _take(self, peer: h2.connection.H2Connection, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            peer.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/grpc")])
        elif isinstance(event, h2.events.DataReceived):
            self.received += event.data
            peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            peer.send_data(event.stream_id, event.data)
        elif isinstance(event, h2.events.StreamEnded):
            peer.send_headers(event.stream_id, [("grpc-status", "0")], end_stream=True)

    def stop(self) -> None:
        self._stop.set()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass
        self.join(PATIENCE)
        self._listener.close()


@pytest.fixture
def grpc(certificates: Certificates) -> Iterator[GrpcEcho]:
    server = GrpcEcho(certificates)
    server.start()
    yield server
    server.stop()


def message(data: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(data)) + data


def converse(client: H2Client) -> None:
    """Wait for the answer to each message before the next: a proxy that reads bodies whole would hang."""
    client.open(1, "/chat.Chat/Talk", "application/grpc+proto")
    for number in range(5):
        said = message(b"\x0a\x05hello %d" % number)
        client.send(1, said)
        assert client.read(len(said)) == said
    client.send(1, b"", end=True)
    assert client.read_all(1) == b""
    assert client.trailers == {"grpc-status": "0"}


def test_a_bidirectional_stream_of_grpc_is_answered_message_by_message(interlock: Interlock, grpc: GrpcEcho):
    with h2_client(interlock, grpc.port) as client:
        converse(client)


def test_a_stream_of_grpc_is_not_held_back_where_no_secrets_may_go(
    tmp_path: Path, certificates: Certificates, grpc: GrpcEcho
):
    policy = "version: 1\ndefault: allow\nrules: []\negress: {secrets: deny}\n"
    with start_interlock(tmp_path, policy=policy, upstream_ca=certificates.ca_file) as interlock:
        with h2_client(interlock, grpc.port) as client:
            converse(client)
        with h2_client(interlock, grpc.port) as client:
            client.open(1, "/chat.Chat/Talk", "application/grpc")
            client.send(1, message(b"\x0a\x28ghp_" + b"16C7e42F292c6912E7710c838347Ae178B4a"), end=True)
            client.read_all(1)
    assert b"ghp_" not in grpc.received


@pytest.mark.parametrize(
    "sent",
    [message(CALL), message(b"hi") + message(CALL), message(b"\x0a" + bytes([len(CALL)]) + CALL), CALL],
    ids=["a message", "the second message", "a text in protobuf", "no framing"],
)
def test_a_call_does_not_ride_on_grpc(interlock: Interlock, grpc: GrpcEcho, sent: bytes):
    with h2_client(interlock, grpc.port) as client:
        client.open(1, "/mcp", "application/grpc")
        client.send(1, sent, end=True)
        client.read_all(1)
        assert client.reset
    assert b"danger" not in grpc.received


def test_grpc_with_a_head_of_mcp_does_not_stream(interlock: Interlock, grpc: GrpcEcho):
    with h2_client(interlock, grpc.port) as client:
        client.open(1, "/mcp", "application/grpc", ("mcp-method", "tools/call"))
        client.send(1, CALL, end=True)
        client.read_all(1)
    assert grpc.received == b""


def test_uploads_stream_to_no_host_where_the_setting_names_none(tmp_path: Path, web: ServerHandle):
    with start_interlock(tmp_path, settings={**SETTINGS, "large_uploads": []}) as interlock:
        for chunk in (0, 5000):
            answer = upload(Pair(interlock, web), LARGE, chunk=chunk)
            assert answer is not None
            assert answer[0] == 413
