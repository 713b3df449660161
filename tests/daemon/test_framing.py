"""What is not plain HTTP is refused in the proxy's own words, with an event; interim answers are not final ones."""

from __future__ import annotations

import json

import pytest

from tests.daemon.answering import answering
from tests.daemon.conftest import Pair
from tests.daemon.waiting import next_refusal, refusals
from tests.support.raw_socket import Answer, parse_answers, send_raw

FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal"
UPGRADE = "Connection: Upgrade\r\nUpgrade: other\r\n"


def ask(
    pair: Pair, target: str, head: str = "", *, start: str = "GET", version: str = "1.1", body: bytes = b""
) -> Answer:
    request = f"{start} http://{target}/echo HTTP/{version}\r\nHost: {target}\r\n{head}\r\n".encode("latin-1") + body
    answers = parse_answers(send_raw("127.0.0.1", pair.interlock.port, [request]))
    assert answers, "no answer"
    return answers[0]


MALFORMED = {
    "chunked HTTP/1.0": ("Transfer-Encoding: chunked\r\n", "1.0", b"0\r\n\r\n"),
    "length with a sign": ("Content-Length: +5\r\n", "1.1", b"abcde"),
    "length in a folded line": ("Content-Length:\r\n 5\r\n", "1.1", b"abcde"),
    "length with a blank before the colon": ("Content-Length : 5\r\n", "1.1", b"abcde"),
    "two lengths": ("Content-Length: 5, 5\r\n", "1.1", b"abcde"),
    "control character in a name": ("\x0bTransfer-Encoding: chunked\r\n", "1.1", b""),
    "header without a colon": ("nonsense\r\n", "1.1", b""),
    "folded value": ("X: y\r\n Transfer-Encoding: chunked\r\n", "1.1", b""),
    "bare CR in a value": ("X: a\rTransfer-Encoding: chunked\r\n", "1.1", b""),
    "NUL in a value": ("X: a\0b\r\n", "1.1", b""),
    "broken chunk": ("Transfer-Encoding: chunked\r\n", "1.1", b"-1\r\n\r\n"),
    "HTTP/0.9": ("", "0.9", b""),
    "HTTP/2.0 in text": ("", "2.0", b""),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_gets_400_in_our_own_words_and_leaves_an_event(pair: Pair, case: str):
    head, version, body = MALFORMED[case]
    seen = len(refusals(pair.interlock))
    answer = ask(pair, pair.target, head, start="POST", version=version, body=body)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["message"].startswith("Interlock: ")
    assert b"mitmproxy" not in answer.body
    assert "server" not in answer.headers
    assert next_refusal(pair.interlock, seen)["reason"] == "bad_request"


def test_a_request_without_a_host_gets_400_and_leaves_an_event(pair: Pair):
    seen = len(refusals(pair.interlock))
    answer = parse_answers(send_raw("127.0.0.1", pair.interlock.port, [b"GET /echo HTTP/1.1\r\n\r\n"]))[0]
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert next_refusal(pair.interlock, seen)["reason"] == "bad_request"


@pytest.mark.parametrize("interim", [b"100 Continue", b"102 Processing", b"103 Early Hints\r\nLink: </a>"])
def test_an_interim_answer_is_skipped_and_the_final_one_delivered(pair: Pair, interim: bytes):
    with answering(b"HTTP/1.1 " + interim + b"\r\n\r\n" + FINAL) as target:
        answer = ask(pair, target)
    assert (answer.status, answer.body) == (200, b"final")


def test_several_interim_answers_are_skipped(pair: Pair):
    with answering(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + FINAL) as target:
        assert ask(pair, target).body == b"final"


def test_a_change_to_another_protocol_gets_502_and_leaves_an_event(pair: Pair):
    seen = len(refusals(pair.interlock))
    with answering(f"HTTP/1.1 101 Switching Protocols\r\n{UPGRADE}\r\nhidden".encode()) as target:
        answer = ask(pair, target, UPGRADE)
    assert (answer.status, answer.headers["content-type"]) == (502, "application/json")
    event = next_refusal(pair.interlock, seen)
    assert (event["kind"], event["reason"], event["server"]) == ("request_refused", "protocol_change", target)


@pytest.mark.parametrize(
    "answer", [b"secret 4111\r\n\r\n", b"secret 4111", b"", b"HTTP/1.1 200 OK\r\nsecret 4111\r\n\r\n"]
)
def test_an_answer_that_is_not_http_becomes_a_502_of_our_own_without_what_was_sent(pair: Pair, answer: bytes):
    with answering(answer) as target:
        received = ask(pair, target)
    assert received.status == 502
    assert json.loads(received.body)["error"]["message"].startswith("Interlock: ")
    assert b"secret" not in received.body
    assert b"mitmproxy" not in received.body
