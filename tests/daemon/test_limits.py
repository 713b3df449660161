"""Every limit has a clear answer, and what is within it passes."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time

import pytest

from tests.daemon.conftest import SETTINGS, Pair
from tests.daemon.waiting import next_refusal, refusals
from tests.support.harness import ServerHandle, send_raw, start_interlock
from tests.support.raw_socket import parse_answers
from tests.support.timeouts import PATIENCE


def request(target: str, *headers: str, method: str = "GET", path: str = "/echo", body: bytes = b"") -> bytes:
    lines = [f"{method} http://{target}{path} HTTP/1.1", f"Host: {target}", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ask(pair: Pair, *segments: bytes | float) -> tuple[int, str]:
    answers = parse_answers(send_raw("127.0.0.1", pair.interlock.port, segments))
    assert answers, "no answer"
    return answers[0].status, answers[0].body.decode()


def test_a_head_within_the_limit_passes(tight: Pair):
    assert ask(tight, request(tight.target, "X-Long: " + "a" * 7000))[0] == 200


def test_a_head_past_the_limit_gets_431_and_names_the_setting(tight: Pair):
    status, body = ask(tight, request(tight.target, "X-Long: " + "a" * 9000))
    assert (status, "header_limit" in body) == (431, True)


def test_an_endless_head_gets_431_before_it_ends(tight: Pair):
    status, _ = ask(tight, f"GET http://{tight.target}/echo HTTP/1.1\r\nX: ".encode() + b"a" * 200_000)
    assert status == 431


def test_a_slow_head_gets_408_and_names_the_setting(hasty: Pair):
    status, body = ask(hasty, b"GET http://", 0.1)
    assert (status, "2 s (header_timeout)" in body) == (408, True)


def test_a_slow_head_inside_a_tunnel_gets_408(hasty: Pair):
    received = send_raw("127.0.0.1", hasty.interlock.port, [b"GET /echo HTT"], connect=hasty.target)
    assert parse_answers(received)[0].status == 408


def test_a_head_in_pieces_within_the_deadline_passes(tight: Pair):
    whole = request(tight.target)
    assert ask(tight, whole[:10], 0.1, whole[10:30], 0.1, whole[30:])[0] == 200


def test_a_slow_head_on_a_kept_connection_gets_408(hasty: Pair):
    received = send_raw("127.0.0.1", hasty.interlock.port, [request(hasty.target), 0.2, b"GET http://half"], answers=2)
    assert [answer.status for answer in parse_answers(received)] == [200, 408]


def test_a_slow_body_gets_408_and_names_the_setting(hasty: Pair):
    start = request(hasty.target, "Content-Length: 100", method="POST")
    status, body = ask(hasty, start + b"half")
    assert (status, "body_timeout" in body) == (408, True)


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked"])
def test_a_body_that_never_begins_gets_408_and_leaves_an_event(hasty: Pair, framing: str):
    seen = len(refusals(hasty.interlock))
    status, body = ask(hasty, request(hasty.target, framing, method="POST"))
    assert (status, "body_timeout" in body) == (408, True)
    assert next_refusal(hasty.interlock, seen)["reason"] == "body_too_slow"


def test_a_body_that_never_begins_inside_a_tunnel_gets_408(hasty: Pair):
    head = f"POST /echo HTTP/1.1\r\nHost: {hasty.target}\r\nContent-Length: 9\r\n\r\n".encode()
    received = send_raw("127.0.0.1", hasty.interlock.port, [head], connect=hasty.target)
    assert parse_answers(received)[0].status == 408


def test_an_answer_may_take_longer_than_the_body_may(hasty: Pair):
    status, _ = ask(hasty, request(hasty.target, path="/events?pause=1.5"))
    assert status == 200


def test_a_body_past_the_limit_gets_413_and_names_the_setting(tmp_path, web: ServerHandle):
    with start_interlock(tmp_path, settings={**SETTINGS, "large_uploads": []}) as interlock:
        pair = Pair(interlock, web)
        status, body = ask(pair, request(pair.target, method="POST", body=b"x" * 100_000))
        assert (status, "body_limit" in body) == (413, True)
        head = request(pair.target, "Transfer-Encoding: chunked", method="POST")
        chunks = b"%x\r\n%s\r\n" % (50_000, b"y" * 50_000) * 3
        assert ask(pair, head + chunks)[0] == 413
        assert ask(pair, request(pair.target, method="POST", body=b"x" * 50_000))[0] == 200


def one_too_many(port: int) -> bytes:
    """Hold more connections than there may be; return what the first that is too many is told."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(12)]
        told, _, _ = select.select(held, [], [], PATIENCE)
        return bytes(told[0].recv(4096))


def test_a_connection_too_many_gets_503_and_others_go_on(tight: Pair):
    answer = one_too_many(tight.interlock.port)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"connection_limit" in answer
    for _ in range(400):
        if ask_or_none(tight) == 200:
            return
        time.sleep(0.05)
    pytest.fail("the proxy did not recover")


def test_a_stream_too_many_gets_503_until_another_ends(tight: Pair):
    wanted = request(tight.target, "Accept: text/event-stream", path="/events?pause=60")
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            held = socket.create_connection(("127.0.0.1", tight.interlock.port), timeout=PATIENCE)
            stack.callback(held.close)
            held.sendall(wanted)
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
        seen = len(refusals(tight.interlock))
        status, body = ask(tight, wanted)
        assert (status, "too_many_streams" in body) == (503, True)
        assert ask(tight, request(tight.target))[0] == 200, "what is no stream passes"
        assert next_refusal(tight.interlock, seen)["reason"] == "too_many_streams"
    for _ in range(400):
        if ask(tight, request(tight.target, "Accept: text/event-stream", path="/events?pause=0"))[0] == 200:
            return
        time.sleep(0.05)
    pytest.fail("streams that ended are still counted")


def ask_or_none(pair: Pair) -> int | None:
    answers = parse_answers(send_raw("127.0.0.1", pair.interlock.port, [request(pair.target)]))
    return answers[0].status if answers else None


def test_a_silent_connection_is_closed_and_leaves_an_event(hasty: Pair):
    seen = len(refusals(hasty.interlock))
    with socket.create_connection(("127.0.0.1", hasty.interlock.port), timeout=PATIENCE) as silent:
        assert silent.recv(1) == b""
    event = next_refusal(hasty.interlock, seen)
    assert (event["kind"], event["reason"]) == ("connection_refused", "no_request")


def test_a_refused_body_leaves_an_answer_to_read_for_a_client_that_keeps_sending(tmp_path, web: ServerHandle):
    with start_interlock(tmp_path, settings={**SETTINGS, "large_uploads": []}) as interlock:
        pair = Pair(interlock, web)
        status, body = ask(pair, request(pair.target, method="POST", body=b"x" * 5_000_000))
        assert status == 413
        assert json.loads(body)["error"]["status"] == 413


@pytest.mark.parametrize(
    ("segments", "reason"),
    [
        ([b"SSH-2.0-OpenSSH_9.2\r\n\r\n"], "not_http"),
        ([b"\x00\x01\x02binary\r\n\r\n"], "not_http"),
        ([b"GET http://x HTTP/1.1\r\nX: " + b"a" * 20_000], "head_too_large"),
        ([b"GET http://", 0.1], "head_too_slow"),
    ],
)
def test_what_is_refused_before_it_is_a_request_leaves_an_event(hasty: Pair, segments, reason: str):
    seen = len(refusals(hasty.interlock))
    send_raw("127.0.0.1", hasty.interlock.port, segments)
    event = next_refusal(hasty.interlock, seen)
    assert (event["kind"], event["reason"]) == ("connection_refused", reason)


def test_bytes_that_are_not_http_inside_a_tunnel_reach_nobody_and_leave_an_event(tight: Pair):
    seen = len(refusals(tight.interlock))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        send_raw("127.0.0.1", tight.interlock.port, [b"HELO mail\r\n\r\n"], connect=target)
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.accept()
    event = next_refusal(tight.interlock, seen)
    assert (event["kind"], event["reason"], event["server"]) == ("connection_refused", "not_http", target)
