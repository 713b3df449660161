"""A small OpenID Connect issuer on loopback, which can be told to misbehave."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import html
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jwt

CLIENT, SECRET = "interlock", "s3cret:+ /x"


@functools.cache
def usual_key() -> jwk.RSAKey:
    """Return the key of every issuer that nobody gives another one: making one takes a tenth of a second."""
    return new_key()


def new_key() -> jwk.RSAKey:
    return jwk.RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"}, auto_kid=False)


def encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def forge(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    """Return a token of any form."""
    signed = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(claims).encode())}"
    return f"{signed}.{encode(sign(signed.encode()))}"


@dataclass
class Issuer:
    """`claims` change what a right token says; `make_token`, how it is made; `down` are paths that fail."""

    url: str = ""
    key: jwk.RSAKey = field(default_factory=usual_key)
    claims: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    make_token: Callable[[dict[str, Any]], str] | None = None
    down: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def discovery(self) -> dict[str, Any]:
        paths = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        return {"issuer": self.url} | {name: self.url + path for name, path in paths.items()} | self.document

    def keys(self) -> dict[str, Any]:
        return {"keys": [self.key.as_dict(private=False)]}

    def authorize(self, query: dict[str, str]) -> str:
        """Return where a person who agrees is sent."""
        assert (query["response_type"], query["client_id"], query["code_challenge_method"]) == ("code", CLIENT, "S256")
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.url})}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        query = self.codes.pop(form["code"], None)
        pair = "interlock:s3cret%3A%2B%20%2Fx"
        proof = encode(hashlib.sha256(form["code_verifier"].encode()).digest())
        if query is None or authorization != f"Basic {base64.b64encode(pair.encode()).decode()}":
            return None
        if query["code_challenge"] != proof or query["redirect_uri"] != form["redirect_uri"]:
            return None
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "sub": "ann", "exp": now + 300, "iat": now, "nonce": query["nonce"]}
        claims |= {"groups": ["staff", "sre"]} | self.claims
        return {"id_token": self.make_token(claims) if self.make_token else self.signed(claims)}

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.asked.append(parts.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path in issuer.down:
                self._send(500, "down", "text/plain")
            elif parts.path == "/authorize":
                target = html.escape(issuer.authorize(query))
                icon = '<link rel="icon" href="data:,">'
                self._send(200, f'<!doctype html>{icon}<title>Issuer</title><a href="{target}">Agree</a>', "text/html")
            else:
                known = {"/.well-known/openid-configuration": issuer.discovery, "/keys": issuer.keys}
                self._send(200, json.dumps(known[parts.path]()), "application/json")

        def do_POST(self) -> None:
            issuer.asked.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            answer = issuer.token(form, self.headers.get("authorization", ""))
            self._send(200 if answer else 400, json.dumps(answer or {"error": "invalid_grant"}), "application/json")

        def _send(self, status: int, text: str, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def start_issuer(tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """Serve an issuer under the name localhost, which for a browser is another site than 127.0.0.1."""
    issuer = Issuer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(issuer))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    issuer.url = f"{'http' if tls is None else 'https'}://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
