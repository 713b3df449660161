"""Serves all traffic of a sinkhole: a resolver that knows every name, and listeners that log what they receive.

Runs inside the sinkhole's network namespace, where every address is local. Each connection is logged as one JSON
object, and answered with as little as an honest client needs to continue.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import os
import select
import socket
import ssl
import struct
import threading
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.egress import dns
from proxy.sandbox.namespaces import original_destination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Made-up addresses of names. From a public range: careful servers refuse to connect to private ones.
NAMES = ipaddress.ip_network("11.64.0.0/10")
HEAD_BYTES = 16 << 10
QUIET_SECONDS = 0.5
POLL_SECONDS = 0.005
FIRST_BYTES_SECONDS = 3.0
TLS_HANDSHAKE = 0x16
# All TCP is redirected to this port where nft is installed. Without it the common ports are served, and what is
# sent to others is known from the trace alone.
REDIRECTED = 4
COMMON = (21, 22, 23, 25, 80, 110, 143, 443, 465, 587, 853, 993, 1080, 1337, 3306, 4444, 5432, 6379, 6667, 8080, 8443)
TYPE_NAMES = {1: "A", 5: "CNAME", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 65: "HTTPS"}
PAGE = b"<!doctype html><title>Welcome</title><p>This site is being set up.</p>"
LIFETIME = dt.timedelta(days=2)
MAX_COMMON_NAME = 64
# Python 3.13 verifies strictly by default: a CA must say that it signs certificates, and have key identifiers.
_SIGNS_CERTIFICATES = x509.KeyUsage(
    **dict.fromkeys(("digital_signature", "key_cert_sign", "crl_sign"), True),
    **dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False),
    **dict.fromkeys(("encipher_only", "decipher_only"), False),
)
# The option by which a datagram comes with the address that it was sent to.
_WITH_ADDRESS = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_PKTINFO),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO),
}


class ProbeAuthority:
    """Signs a certificate for any name. Its keys never leave the process."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Local Trust Services R1")
        self._lock = threading.Lock()
        self._contexts: dict[str, ssl.SSLContext] = {}
        signed = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(True, 0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
        )
        self._certificate = signed.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, name: str) -> ssl.SSLContext:
        with self._lock:
            if name not in self._contexts:
                self._contexts[name] = self._make(name)
            return self._contexts[name]

    def _make(self, name: str) -> ssl.SSLContext:
        try:
            subject: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            subject = x509.DNSName(name)
        alternative = x509.SubjectAlternativeName([subject])
        builder = self._builder(_named(name[:MAX_COMMON_NAME]), self._leaf_key)
        leaf = builder.add_extension(alternative, critical=False).sign(self._key, hashes.SHA256())
        private = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The ssl module reads keys from files only; a memfd is on no disk.
        with os.fdopen(os.memfd_create("leaf", os.MFD_CLOEXEC), "wb") as file:
            file.write(private + leaf.public_bytes(serialization.Encoding.PEM))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFETIME)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class SinkLog:
    """Writes what the sinks saw, one JSON object per line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def note(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "time": time.time(), **fields}, default=lambda data: b64encode(data).decode())
        with self._lock, contextlib.suppress(OSError):
            os.write(self._descriptor, f"{line}\n".encode())


class SinkServers:
    """Binds every socket when made, and serves them once `serve` is called."""

    def __init__(
        self, notes: SinkLog, authority: ProbeAuthority, unix_paths: Sequence[Path] = (), ports: Sequence[int] = COMMON
    ) -> None:
        self._notes = notes
        self._authority = authority
        self._fakes = dns.FakeAddresses(NAMES)
        self._datagrams = [_bind(family, socket.SOCK_DGRAM, 53) for family in _WITH_ADDRESS]
        self._listeners = [_bind(each, socket.SOCK_STREAM, port) for port in (53, *ports) for each in _WITH_ADDRESS]
        self._unix = [_bind_unix(path) for path in unix_paths]
        # Held while something is taken from a socket until it counts as open, so that `finish` sees it on either side.
        self._taking = threading.Lock()
        self._open = 0

    def serve(self) -> None:
        for datagram in filter(None, self._datagrams):
            _start(self._answer_names, datagram)
        for listener in filter(None, (*self._listeners, *self._unix)):
            _start(self._accept, listener)

    def finish(self, limit: float) -> None:
        """Wait until all that has arrived is noted: what a server sends last arrives when it has ended already."""
        deadline = time.monotonic() + limit
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _is_busy(self) -> bool:
        channels = list(filter(None, (*self._datagrams, *self._listeners, *self._unix)))
        with self._taking:
            return self._open > 0 or bool(select.select(channels, [], [], 0)[0])

    def _answer_names(self, datagram: socket.socket) -> None:
        while True:
            select.select([datagram], [], [])
            with self._taking, contextlib.suppress(OSError):
                query, control, _, client = datagram.recvmsg(4096, 256, socket.MSG_DONTWAIT)
                answer = self._resolve(query)
                if answer is not None:
                    datagram.sendmsg([answer], _reply_from(control), socket.MSG_DONTWAIT, client)

    def _resolve(self, query: bytes) -> bytes | None:
        try:
            name, kind, end = dns.read_question(query)
        except ValueError:
            self._notes.note("dns", name="", type="malformed", head=query[:HEAD_BYTES])
            return None
        address = (self._fakes.assign(name.lower()) or (str(NAMES[1]),))[0]
        self._notes.note("dns", name=name, type=TYPE_NAMES.get(kind, str(kind)), address=address)
        return dns.make_answer(query, end, address if kind == dns.A else None)

    def _accept(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        while True:
            select.select([listener], [], [])
            if not self._accept_one(listener):
                time.sleep(POLL_SECONDS)

    def _accept_one(self, listener: socket.socket) -> bool:
        """Serve the next connection in a thread of its own; False where there are no descriptors or threads left."""
        with self._taking:
            try:
                connection, _ = listener.accept()
                connection.setblocking(True)
                _start(self._take, connection)
            except (OSError, RuntimeError):
                return False
            self._open += 1
            return True

    def _take(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
        finally:
            with self._taking:
                self._open -= 1

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if connection.family == socket.AF_UNIX:
                self._notes.note("unix", path=str(connection.getsockname()), head=_read_head(connection))
            elif connection.getsockname()[1] == 53:
                connection.settimeout(FIRST_BYTES_SECONDS)
                answer = self._resolve(connection.recv(HEAD_BYTES)[2:])  # past the length, which TCP has in front
                if answer is not None:
                    connection.sendall(struct.pack("!H", len(answer)) + answer)
            else:
                self._take_stream(connection)

    def _take_stream(self, connection: socket.socket) -> None:
        address, port = _destination(connection)
        name = self._fakes.name(address)
        seen: dict[str, Any] = {"time": time.time(), "address": address, "port": port, "name": name, "tls": False}
        connection.settimeout(FIRST_BYTES_SECONDS)
        try:
            first = connection.recv(1, socket.MSG_PEEK)
            if first[:1] == bytes([TLS_HANDSHAKE]):
                seen["tls"] = True
                connection = self._open_tls(connection, seen)
            seen["head"] = _read_head(connection)
            with contextlib.suppress(OSError):
                connection.sendall(_answer_http(seen["head"]))
                connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            seen["problem"] = str(error)[:200]
        finally:
            self._notes.note("tcp", **seen)
            connection.close()

    def _open_tls(self, connection: socket.socket, seen: dict[str, Any]) -> ssl.SSLSocket:
        """Complete a TLS handshake; `seen` gets the requested name also where the client rejects the certificate."""

        def choose(wrapped: ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
            if name:
                seen["name"] = name
            wrapped.context = self._authority.context(name or seen["address"])

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = choose  # type: ignore[assignment]
        return context.wrap_socket(connection, server_side=True)


def _start(work: Callable[[socket.socket], None], channel: socket.socket) -> None:
    threading.Thread(target=work, args=(channel,), daemon=True).start()


def _bind(family: socket.AddressFamily, kind: int, port: int) -> socket.socket | None:
    """Listen on a port of every address; None where the machine has no such family."""
    try:
        made = socket.socket(family, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind == socket.SOCK_DGRAM:
            made.setsockopt(*_WITH_ADDRESS[family], 1)
        made.bind(("", port))
        if kind == socket.SOCK_STREAM:
            made.listen(64)
    except OSError:  # without IPv6, say; nothing can be sent there then
        return None
    return made


def _bind_unix(path: Path) -> socket.socket | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(str(path))
        made.listen(16)
    except OSError:
        return None
    return made


def _reply_from(control: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return control data that makes a reply come from the address that was asked: clients take no other."""
    for level, kind, data in control:
        if level == socket.IPPROTO_IP and kind == socket.IP_PKTINFO:
            _, _, queried = struct.unpack("=I4s4s", data[:12])
            return [(level, kind, struct.pack("=I4s4s", 0, queried, bytes(4)))]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
            return [(level, kind, data[:16] + bytes(4))]
    return []


def _destination(connection: socket.socket) -> tuple[str, int]:
    here = connection.getsockname()
    with contextlib.suppress(OSError):
        if here[1] == REDIRECTED:
            return original_destination(connection)
    return str(here[0]), int(here[1])


def _read_head(connection: socket.socket) -> bytes:
    """Return what a client sends first, until it pauses or ends."""
    data = b""
    with contextlib.suppress(OSError):
        while len(data) < HEAD_BYTES and (piece := connection.recv(HEAD_BYTES)):
            data += piece
            if _is_whole_request(data):
                break
            connection.settimeout(QUIET_SECONDS)
    return data


def _is_whole_request(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    lengths = [line[15:].strip() for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    chunked = b"transfer-encoding:" in head.lower()
    needed = int(lengths[0]) if lengths and lengths[0].isdigit() else 0
    return bool(end) and len(body) >= needed and (not chunked or body.endswith(b"0\r\n\r\n"))


def _answer_http(head: bytes) -> bytes:
    # An almost empty web site. Without a robots.txt: honest fetchers ask for it first, and stop where it forbids.
    line = head.partition(b"\r\n")[0]
    if b" HTTP/1." not in line:
        return b""
    status, page = (b"404 Not Found", b"") if b" /robots.txt" in line else (b"200 OK", PAGE)
    fields = b"Content-Type: text/html\r\nContent-Length: %d\r\nConnection: close" % len(page)
    return b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, fields, page)
