"""What a request carries beside MCP is looked through, whatever form it has."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import brotli
import pytest

from proxy.core.model import Redaction
from proxy.gate.outbound_scan import KEPT, OutboundScanner, UploadWatch, is_credential, last_words
from proxy.redact import Masker
from tests.support.gate_fixture import ALLOW, CONTEXT

SECRET = "ghp_" + "Zx8Kq2" * 6
MASKER = Masker(b"k" * 32, engine="re2")
DENY = Redaction("no-secrets", ("secrets",), frozenset({"request"}), "deny")
LIMIT = 1 << 20
FORM = ("content-type", "application/x-www-form-urlencoded")


def going(target: str = "/", action: Any = "deny") -> Any:
    redactions = (replace(DENY, action=action),) if action else ()
    return replace(CONTEXT, target=target, egress=replace(ALLOW, redactions=redactions))


def look(body: bytes | None = b"", *headers: tuple[str, str], target: str = "/", before: str = "") -> Any:
    return OutboundScanner(MASKER, LIMIT).look(going(target), headers, body, before)


MULTIPART = f'--x\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\nk: {SECRET}\r\n--x--\r\n'


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (SECRET.encode(), []),
        (f"a\n{SECRET}\nb".encode(), [("Content-Type", "text/plain")]),
        (json.dumps({"a": [{"b": SECRET}]}).encode(), [("Content-Type", "application/json")]),
        (('{"a": "' + "".join(f"\\u{ord(c):04x}" for c in SECRET) + '"}').encode(), []),
        (f'{{"a": "{SECRET}", "a": "x"}}'.encode(), []),
        (json.dumps({"a": SECRET[:20], "b": SECRET[20:]}).encode(), []),
        (urlencode({"a": "b", "c": f"x {SECRET}"}).encode(), [FORM]),
        (
            urlencode({"a": SECRET[:9], "b": SECRET[9:]}).encode(),
            [FORM],
        ),
        (MULTIPART.encode(), [("Content-Type", "multipart/form-data; boundary=x")]),
        (base64.b64encode(b"token " + SECRET.encode()), []),
        (b"\x89PNG\r\n\xff\xfe\x00" + SECRET.encode() + b"\xff\xff", [("Content-Type", "image/png")]),
        (SECRET.encode("utf-16"), [("Content-Type", "text/plain; charset=utf-16")]),
        (SECRET.encode("utf-16-le"), []),
        (SECRET.encode("utf-7"), [("Content-Type", "text/plain; charset=utf-7")]),
        (gzip.compress(SECRET.encode(), mtime=0), [("Content-Encoding", "gzip")]),
        (brotli.compress(gzip.compress(SECRET.encode(), mtime=0)), [("Content-Encoding", "gzip, br")]),
        (gzip.compress(SECRET.encode(), mtime=0), [("Content-Type", "application/gzip")]),
    ],
)
def test_a_secret_in_a_body_is_found(body, headers):
    carried = look(body, *headers)
    assert carried.refused
    assert (carried.reason, carried.findings[0].path.split(".")[0].split("[")[0]) == ("secret_found", "body")
    assert SECRET not in repr(carried)


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        (f"/x/{SECRET}", []),
        (f"/x?a=b&c={SECRET}", []),
        (f"/x?c={quote(quote('token ' + SECRET))}", []),
        (f"/?a={SECRET[:20]}&b={SECRET[20:]}", []),
        ("/", [("User-Agent", f"curl {SECRET}")]),
        ("/", [("Referer", f"https://a.com/?x={SECRET}")]),
        ("/", [("X-A", SECRET[:20]), ("X-B", SECRET[20:])]),
    ],
)
@pytest.mark.parametrize("body", [b"", b"hi", None])
def test_a_secret_in_a_head_is_found_be_it_of_an_mcp_message_or_not(target, headers, body):
    assert look(body, *headers, target=target).reason == "secret_found"


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "X-Api-Key",
        "apikey",
        "PRIVATE-TOKEN",
        "X-Auth-Email",
        "X-Amz-Security-Token",
        "Mcp-Session-Id",
        "Sec-WebSocket-Key",
        "X-Hub-Signature-256",
    ],
)
def test_a_header_that_is_how_one_logs_in_may_hold_a_secret(name):
    assert is_credential(name)
    assert look(b"hi", (name, SECRET)) is None


@pytest.mark.parametrize("name", ["User-Agent", "Referer", "X-Monkey", "Author", "X-Data", "Accept"])
def test_no_other_header_may(name):
    assert not is_credential(name)


def test_headers_that_mirror_an_mcp_message_are_left_to_its_own_rules():
    assert look(None, ("Mcp-Param-Text", SECRET)) is None
    assert look(b"hi", ("Mcp-Param-Text", SECRET)).reason == "secret_found"


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"xyz", [("Content-Encoding", "rot13")], "unknown_encoding"),
        (b"xyz", [("Content-Encoding", "gzip")], "encoding_mismatch"),
        (gzip.compress(b"a" * 2 * LIMIT, mtime=0), [("Content-Encoding", "gzip")], "body_too_large"),
        (gzip.compress(b"a" * 2 * LIMIT, mtime=0), [], "body_too_large"),
        (b"x", [("Content-Encoding", "gzip,gzip,gzip,gzip")], "stacked_encoding"),
        (b"x", [("Content-Type", "text/plain; charset=martian")], "odd_charset"),
    ],
)
def test_what_cannot_be_read_is_refused(body, headers, reason):
    carried = look(body, *headers)
    assert (carried.refused, carried.reason) == (True, reason)


def test_what_holds_no_secret_passes():
    assert look(b'{"a": "b"}', ("User-Agent", "curl"), target="/a?b=c") is None
    assert look(b"\x1f\x8b not gzip after all") is None


def test_where_secrets_may_go_nothing_is_looked_at():
    class Never:
        def mask(self, value: Any, detectors: Any, suppressions: Any = ()) -> Any:
            raise AssertionError

    customs = OutboundScanner(Never(), LIMIT)
    for context in (going(action=None), replace(CONTEXT, egress=None)):
        assert customs.look(context, [], SECRET.encode()) is None
        assert customs.watch(context, [], LIMIT) is None


def test_a_head_that_was_clean_is_not_looked_at_again():
    class Counting:
        count = 0

        def mask(self, value: Any, detectors: Any, suppressions: Any = ()) -> Any:
            self.count += 1
            return MASKER.mask(value, detectors)

    counting = Counting()
    customs = OutboundScanner(counting, LIMIT)
    for _ in range(3):
        assert customs.look(going("/clean"), [("A", "b")], None) is None
        assert customs.look(going(f"/{SECRET}"), [("A", "b")], None).refused
    assert counting.count == 4
    assert customs.look(going("/clean"), [("A", SECRET)], None).refused


def test_a_secret_cut_over_two_messages_of_a_stream_is_found():
    for first, second in (
        (SECRET[:20], SECRET[20:]),
        (json.dumps({"type": "say", "text": SECRET[:20]}), json.dumps({"type": "say", "text": SECRET[20:]})),
    ):
        before = last_words("", first.encode())
        assert look(first.encode()) is None
        assert look(second.encode(), before=before).reason == "secret_found"
    assert look(b"fine", before="also fine") is None


def watch(action: Any = "deny", *headers: tuple[str, str], redactor: Any = MASKER) -> UploadWatch:
    return UploadWatch(redactor, replace(DENY, action=action), headers, LIMIT)


def fed(made: UploadWatch, data: bytes, size: int) -> bytes | None:
    """Feed `data` in chunks; return all that was let on, or None where the upload was refused."""
    out = b""
    for start in range(0, len(data), size):
        passed = made.feed(data[start : start + size])
        if passed is None:
            return None
        out += passed
    return out + made.close()


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_an_upload_without_secrets_passes_byte_for_byte(size):
    data = bytes(range(256)) * 20
    assert fed(watch(), data, size) == data


@pytest.mark.parametrize("size", [1, 7, 41, 100, 5000])
def test_an_upload_with_a_secret_is_refused_before_any_of_it_has_gone(size):
    data = b"x " * 1500 + SECRET.encode() + b" y" * 1500
    made, out = watch(), b""
    for start in range(0, len(data), size):
        passed = made.feed(data[start : start + size])
        if passed is None:
            break
        out += passed
    assert made.carried.reason == "secret_found"
    assert b"ghp" not in out
    assert made.feed(b"more") is None


def test_an_upload_is_looked_through_inside_its_coding():
    data = gzip.compress(b"x " * 3000 + SECRET.encode())
    assert fed(watch("deny", ("Content-Encoding", "gzip")), data, 10) is None
    assert fed(watch("deny", ("Content-Encoding", "rot13")), data, 10) is None
    assert fed(watch("deny", ("Content-Encoding", "gzip")), b"not gzip", 10) is None


def test_an_upload_that_is_only_reported_passes_whole():
    data = b"x" * 3000 + b" " + SECRET.encode() + b" " + b"y" * 3000
    made = watch("report")
    assert fed(made, data, 100) == data
    assert [finding.detector.split(".")[0] for finding in made.carried.findings] == ["secrets"]
    assert not made.carried.refused
    unread = watch("report", ("Content-Encoding", "rot13"))
    assert fed(unread, data, 100) == data
    assert unread.carried.unread == "unknown_encoding"


@pytest.mark.parametrize("action", ["deny", "report"])
def test_an_upload_whose_looking_through_fails_is_refused(action):
    class Broken:
        def mask(self, value: Any, detectors: Any, suppressions: Any = ()) -> Any:
            raise RuntimeError("boom")

    made = watch(action, redactor=Broken())
    assert made.feed(b"x") is None
    assert (made.carried.refused, made.carried.reason) == (True, "internal_error")


def test_what_an_upload_holds_back_is_bounded_whatever_its_bytes():
    made = watch()
    passed = sum(len(made.feed(b"\xff" * 1000) or b"") for _ in range(50))
    assert passed >= 50_000 - KEPT - 1000
