"""A cluster's own word on a token: asked with the proxy's token, and every answer but a clear yes refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from proxy.identity.jwt import TokenError
from proxy.identity.settings import KubernetesProvider
from proxy.identity.token_review import PATH, bearer_for, review

SUBJECT = "system:serviceaccount:prod:billing"
YES = {"authenticated": True, "user": {"username": SUBJECT}, "audiences": ["proxy"]}


@dataclass
class Cluster:
    url: str = ""
    status: Any = field(default_factory=lambda: dict(YES))
    code: int = 201
    seen: list[tuple[str, str | None, Any]] = field(default_factory=list)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            made.seen.append((self.path, self.headers.get("authorization"), body))
            answer = json.dumps({"kind": "TokenReview", "status": made.status}).encode()
            self.send_response(made.code)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def provider(cluster: Cluster, **more: Any) -> KubernetesProvider:
    given = {"name": "k8s", "type": "kubernetes", "issuer": "https://k8s.example.com", "audience": "proxy"}
    return KubernetesProvider.model_validate({**given, "api": cluster.url, "token_review": True, **more})


async def reason(cluster: Cluster) -> str | None:
    try:
        await review("t.o.k", provider(cluster), SUBJECT)
    except TokenError as error:
        return error.reason
    return None


async def test_the_cluster_is_asked_with_our_token_and_audience(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("own\n")
    await review("t.o.k", provider(cluster, token_file=str(tmp_path / "token")), SUBJECT)
    path, bearer, body = cluster.seen[0]
    assert (path, bearer) == (PATH, "Bearer own")
    assert body["spec"] == {"token": "t.o.k", "audiences": ["proxy"]}


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        YES | {"authenticated": False},
        YES | {"authenticated": "true"},
        YES | {"audiences": ["other"]},
        YES | {"audiences": None},
        YES | {"user": {"username": "system:admin"}},
        YES | {"error": "token expired"},
        YES | {"user": None},
    ],
)
async def test_anything_but_a_clear_yes_refuses(cluster: Cluster, status: Any) -> None:
    cluster.status = status
    assert await reason(cluster) == "token_revoked"


async def test_a_cluster_that_cannot_say_has_its_own_reason(cluster: Cluster) -> None:
    assert await reason(cluster) is None
    cluster.code = 403
    assert await reason(cluster) == "issuer_unavailable"
    cluster.url = "http://127.0.0.1:1"
    assert await reason(cluster) == "issuer_unavailable"


def test_our_token_goes_to_the_api_server_alone(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("own")
    made = provider(cluster, api="https://api.example.com", token_file=str(tmp_path / "token"))
    assert bearer_for(made, "https://api.example.com/openid/v1/jwks") == {"Authorization": "Bearer own"}
    assert bearer_for(made, "https://api.example.com.evil.org/keys") == {}
    assert bearer_for(made, "https://oidc.example.com/keys") == {}
