from __future__ import annotations

import datetime as dt
import ssl
import threading
from email.utils import format_datetime
from pathlib import Path

import pytest
import trustme

from proxy.errors import ConfigError
from proxy.sinks.role import SinkError
from proxy.telemetry.http_delivery import LONGEST_WAIT, HttpDelivery, Line, RefusedError, retry_after, tls_context
from tests.support.otlp_receiver import Answer, Receiver
from tests.telemetry.conftest import Opened


async def test_a_batch_is_compressed_and_has_its_headers(collector: Receiver, opened: Opened) -> None:
    delivery = opened(HttpDelivery(f"{collector.url}/v1/logs", Line(headers={"Authorization": "Bearer x"})))
    assert await delivery.post(b"body", "application/x-protobuf") == b""
    (request,) = collector.requests
    assert request.body == b"body"
    assert request.headers["content-encoding"] == "gzip"
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["user-agent"].startswith("mcp-interlock/")


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_is_wrong_with_the_data_is_refused_for_good(
    collector: Receiver, opened: Opened, status: int
) -> None:
    collector.answer = lambda _: Answer(status, b"bad \x1b[2J data")
    with pytest.raises(RefusedError, match=rf"answered {status}: bad \?\[2J data"):
        await opened(HttpDelivery(collector.url, Line())).post(b"", "x")


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 408, 429, 500, 502, 503, 504])
async def test_anything_else_is_tried_again(collector: Receiver, opened: Opened, status: int) -> None:
    collector.answer = lambda _: Answer(status, headers={"Location": "http://127.0.0.1:1/elsewhere"})
    with pytest.raises(SinkError, match=f"answered {status}") as caught:
        await opened(HttpDelivery(f"{collector.url}/v1/logs?key=hush", Line())).post(b"", "x")
    assert not isinstance(caught.value, RefusedError)
    assert "hush" not in str(caught.value)


async def test_a_collector_that_asks_for_time_gets_it(collector: Receiver, opened: Opened) -> None:
    asked = []
    collector.answer = lambda request: asked.append(request) or Answer(503, headers={"Retry-After": "60"})
    delivery = opened(HttpDelivery(collector.url, Line()))
    for _ in range(3):
        with pytest.raises(SinkError, match=r"answered 503|asked to wait"):
            await delivery.post(b"", "x")
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 0), ("", 0), ("7", 7), ("999999", LONGEST_WAIT), ("-1", 0), ("soon", 0), ("٣", 0), ("1.5", 0)],
)
def test_a_retry_after_is_bounded(text: str | None, seconds: float) -> None:
    assert retry_after(text) == seconds


def test_a_retry_after_may_be_a_date() -> None:
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)
    assert 20 < retry_after(format_datetime(soon, usegmt=True)) <= 30
    assert retry_after(format_datetime(soon - dt.timedelta(hours=1), usegmt=True)) == 0


async def test_a_collector_that_is_gone_or_silent_is_told_without_its_headers(
    collector: Receiver, opened: Opened
) -> None:
    line = Line(headers={"Authorization": "hush"}, timeout=0.1)
    with pytest.raises(SinkError, match="ConnectError"):
        await opened(HttpDelivery("http://127.0.0.1:1/v1/logs", line)).post(b"", "x")
    woken = threading.Event()
    collector.answer = lambda _: Answer(200 if woken.wait(5) else 500)
    with pytest.raises(SinkError, match="ReadTimeout") as caught:
        await opened(HttpDelivery(collector.url, line)).post(b"", "x")
    woken.set()
    assert "hush" not in repr(line) + str(caught.value)


async def test_an_endless_answer_is_cut(collector: Receiver, opened: Opened) -> None:
    collector.answer = lambda _: Answer(200, b"x" * (1 << 20))
    assert len(await opened(HttpDelivery(collector.url, Line())).post(b"", "x")) == 64 << 10


async def test_no_variable_leads_through_a_proxy(
    collector: Receiver, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    await opened(HttpDelivery(collector.url, Line())).post(b"", "x")
    assert len(collector.requests) == 1


async def test_a_certificate_is_verified(collector: Receiver, opened: Opened, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    collector._server.socket = context.wrap_socket(collector._server.socket, server_side=True)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = collector.url.replace("http:", "https:")
    with pytest.raises(SinkError, match="CERTIFICATE_VERIFY_FAILED"):
        await opened(HttpDelivery(url, Line())).post(b"", "x")
    delivery = opened(HttpDelivery(url, Line(ca=tmp_path / "ca.pem")))
    await delivery.post(b"", "x")
    assert len(collector.requests) == 1


def test_a_file_that_is_no_certificate_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    for file in (tmp_path / "ca.pem", tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match="write PEM files"):
            tls_context(file)
        with pytest.raises(ConfigError, match="write PEM files"):
            tls_context(None, file)
