"""Could this body be MCP? Nothing a server may run is foreign, and nothing ordinary is refused."""

from __future__ import annotations

import base64
import codecs
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import brotli
import pytest
import zstandard

from proxy.wire.body import MessageBatch, NotMcp, RefusedBody, SingleMessage, is_call_in_query, read_body
from proxy.wire.mcp import plain

CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 7,
    "method": "tools/call",
    "params": {"name": "danger", "arguments": {"x": "é"}},
}
TEXT = json.dumps(CALL)
BODY = TEXT.encode()
JSON_TYPE = ["application/json"]


def deflate_raw(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


def with_member(key: str, value: str, text: str = TEXT) -> bytes:
    return f'{{"{key}":{value},{text[1:]}'.encode()


def test_a_plain_message_is_read_as_it_is() -> None:
    reading = read_body(BODY, content_types=JSON_TYPE)
    assert isinstance(reading, SingleMessage)
    assert reading.message.value == CALL


SAME_MEANING = {
    "escaped method": TEXT.replace("tools/call", "tools\\u002fcall"),
    "escaped slash": TEXT.replace("tools/call", "tools\\/call"),
    "escaped key": TEXT.replace('"method"', '"meth\\u006fd"'),
    "white space": f" \r\n\t{TEXT} \n",
}


@pytest.mark.parametrize("text", SAME_MEANING.values(), ids=SAME_MEANING)
def test_another_spelling_of_the_same_message_is_read_as_that_message(text: str) -> None:
    reading = read_body(text.encode(), content_types=JSON_TYPE)
    assert isinstance(reading, SingleMessage)
    assert reading.message.value == CALL


def replaced(old: str, new: str) -> bytes:
    assert old in TEXT
    return TEXT.replace(old, new).encode()


# What FACTS calls "what real servers execute": bytes, reason, and the id that can be answered.
EXECUTED: dict[str, tuple[bytes, str, int | str | None]] = {
    "duplicate method": (with_member("method", '"ping"'), "duplicate_key", 7),
    "duplicate escaped method": (with_member("m\\u0065thod", '"ping"'), "duplicate_key", 7),
    "duplicate name": (replaced('"name": "danger"', '"name":"a","name":"danger"'), "duplicate_key", 7),
    "duplicate id": (with_member("id", "1"), "duplicate_key", 7),
    "byte order mark": (codecs.BOM_UTF8 + BODY, "byte_order_mark", 7),
    "UTF-16 with mark": (TEXT.encode("utf-16"), "not_utf8", 7),
    "UTF-16 little": (TEXT.encode("utf-16-le"), "not_json", 7),
    "UTF-16 big": (TEXT.encode("utf-16-be"), "not_json", 7),
    "UTF-32 with mark": (TEXT.encode("utf-32"), "not_utf8", 7),
    "UTF-32 little": (TEXT.encode("utf-32-le"), "not_json", 7),
    "UTF-32 big": (TEXT.encode("utf-32-be"), "not_json", 7),
    "NaN": (replaced('"\\u00e9"', "NaN"), "not_finite", 7),
    "Infinity": (replaced('"\\u00e9"', "-Infinity"), "not_finite", 7),
    "5000-digit integer": (replaced('"\\u00e9"', "1" * 5000), "integer_too_long", 7),
    "nested 220": (replaced('"\\u00e9"', "[" * 220 + "]" * 220), "too_deep", 7),
    "nested 100000": (replaced('"\\u00e9"', "[" * 100_000 + "]" * 100_000), "too_deep", None),
    "invalid UTF-8": (BODY.replace(b"danger", b"dang\xffer"), "not_utf8", 7),
    "float id": (replaced('"id": 7', '"id": 1.0'), "bad_id", None),
    "float id, duplicate key": (with_member("method", "1", TEXT.replace("7", "7.0", 1)), "duplicate_key", None),
    "30-digit id": (replaced('"id": 7', '"id": ' + "9" * 30), "integer_too_long", None),
    "null id": (replaced('"id": 7', '"id": null'), "bad_id", None),
    "extra result": (with_member("result", "{}"), "ambiguous_message", 7),
    "no jsonrpc": (replaced('"jsonrpc": "2.0", ', ""), "wrong_jsonrpc_version", 7),
    "jsonrpc 1.0": (replaced('"2.0"', '"1.0"'), "wrong_jsonrpc_version", 7),
    "capital keys": (replaced('"method"', '"Method"'), "misspelt_key", 7),
    "capital method": (replaced('"tools/call"', '5, "METHOD": "tools/call"'), "misspelt_key", 7),
    "capital name": (replaced('"name"', '"Name"'), "misspelt_key", 7),
    "zero-width key": (replaced('"method"', '"meth\\u200bod"'), "misspelt_key", 7),
    "trailing garbage": (BODY + b" }", "not_json", 7),
    "a second message": (BODY + b"\n" + BODY, "not_json", 7),
    "foreign value first": (b"{}\n" + BODY, "not_json", 7),
    "number first": (b"1 " + BODY, "not_json", 7),
    "negative number first": (b"-1" + BODY, "not_json", 7),
    "true first": (b"true\n" + BODY, "not_json", 7),
    "null first": (b"null" + BODY, "not_json", 7),
    "scalars first, UTF-16": (("1 false " + TEXT).encode("utf-16-le"), "not_json", 7),
    "record separator": (b"\x1e" + BODY, "not_json", 7),
    "NUL before": (b"\0" + BODY, "not_json", 7),
    "form feed before": (b"\x0c" + BODY, "not_json", 7),
    "no-break space before": ("\xa0".encode() + BODY, "not_json", 7),
    "trailing comma": (BODY[:-1] + b",}", "not_json", 7),
    "comment": (b"[/* */" + BODY + b"]", "not_json", 7),
    "single quotes": (TEXT.replace('"', "'").encode(), "not_json", 7),
    "control character": (BODY.replace(b"danger", b"dan\tger"), "not_json", 7),
    "surrogate in a string": (replaced("danger", "\\ud800"), "lone_surrogate", 7),
    "surrogate in the id": (replaced('"id": 7', '"id": "\\ud800"'), "lone_surrogate", None),
    "string in a string": (json.dumps(TEXT).encode(), "double_encoded", 7),
    "string in a string in a string": (json.dumps(json.dumps(TEXT)).encode(), "double_encoded", 7),
    "string in a string, then garbage": (json.dumps(TEXT).encode() + b" x", "not_json", 7),
    "arguments as a list": (replaced('{"x": "\\u00e9"}', "[]"), "bad_tool_call", 7),
    "params as a list": (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":["danger"]}', "bad_params", 7),
    "response of no form": (b'{"jsonrpc":"2.0","id":7,"result":1,"error":2}', "ambiguous_message", 7),
}


@pytest.mark.parametrize(("body", "reason", "request_id"), EXECUTED.values(), ids=EXECUTED)
def test_what_some_server_executes_is_refused_with_its_reason(body: bytes, reason: str, request_id: Any) -> None:
    reading = read_body(body, content_types=JSON_TYPE)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == (reason, request_id)


KEYS = [
    CALL | {"params": {"name": "danger", "arguments": {"path\0x": "/etc"}}},
    CALL | {"params": {"name": "danger", "arguments": {"a": [{"b\0": 1}]}}},
    CALL | {"x\0": 1},
    {"jsonrpc": "2.0", "id": 7, "result": {"\0": 1}},
]


@pytest.mark.parametrize("value", KEYS)
def test_a_key_with_nul_anywhere_in_a_message_is_refused(value: dict[str, Any]) -> None:
    reading = read_body(json.dumps(value).encode(), content_types=JSON_TYPE)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("nul_in_key", 7)


def test_nul_in_a_value_or_in_what_is_not_mcp_is_no_concern() -> None:
    call = CALL | {"params": {"name": "danger", "arguments": {"x": "a\0b"}}}
    assert isinstance(read_body(json.dumps(call).encode(), content_types=JSON_TYPE), SingleMessage)
    assert read_body(b'{"a\\u0000":1}', content_types=JSON_TYPE) == NotMcp()


ODD_TYPES = [
    "application/json; charset*0=cp; charset*1=037",
    "text/plain; (x) charset=cp037",
    "text/plain; charset=unicode_escape",
    "text/plain; charset*=us-ascii''cp037",
    'text/plain; "charset"=cp037',
    "text/plain; charset=punycode",
]


@pytest.mark.parametrize("content_type", ODD_TYPES)
def test_a_charset_that_is_written_oddly_is_refused_unread(content_type: str) -> None:
    reading = read_body(TEXT.encode("cp037"), content_types=[content_type])
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "odd_charset"


LINED = {
    "after garbage": b"x\n" + BODY,
    "inside JSON": b'{"x":\n' + BODY + b"\n}",
    "in a multipart body": b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + BODY + b"\r\n--x--\r\n",
    "JSON with more behind it": b"x\n" + BODY + b"},",
    **{f"after {end!r}": f"x{end}".encode() + BODY for end in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"},
    "with U+2028 in it": b"x\n" + BODY.replace(b"{", b'{"x":"\xe2\x80\xa8",', 1),
    "without quotes": b"x\n{jsonrpc:2.0,id:7,method:tools/call,params:{name:danger}}\ny",
}


@pytest.mark.parametrize("body", LINED.values(), ids=LINED)
@pytest.mark.parametrize("coding", [None, "gzip"])
def test_a_call_on_a_line_of_its_own_is_refused(body: bytes, coding: str | None) -> None:
    encoded, encodings = (gzip.compress(body), [coding]) if coding else (body, [])
    reading = read_body(encoded, content_types=["text/plain"], encodings=encodings)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("not_json", 7)


IN_FIELDS = {
    "payload": (b"a=1&payload=" + quote(BODY).encode(), "application/x-www-form-urlencoded"),
    "a name alone": (b"x&" + BODY, "application/x-www-form-urlencoded"),
    "behind very many": (b"a&" * 150_000 + b"payload=" + quote(BODY).encode(), "application/x-www-form-urlencoded"),
    "not escaped": (b"data=" + BODY, "application/x-www-form-urlencoded"),
    "without a type": (b"json=" + quote(BODY).encode(), ""),
    "a key": (quote(BODY).encode(), "application/x-www-form-urlencoded"),
    "semicolons": (b"a=1;json=" + quote(BODY).encode(), "application/x-www-form-urlencoded"),
    "a part over several lines": (
        b'--x\r\nContent-Disposition: form-data; name="p"\r\n\r\n' + BODY.replace(b",", b",\n") + b"\r\n--x--",
        "multipart/form-data; boundary=x",
    ),
    "a part in Base64": (
        b'--x\r\nContent-Disposition: form-data; name="p"\r\n\r\n' + base64.b64encode(BODY) + b"\r\n--x--",
        "multipart/form-data; boundary=x",
    ),
}


@pytest.mark.parametrize(("body", "content_type"), IN_FIELDS.values(), ids=IN_FIELDS)
def test_a_call_in_a_field_of_a_form_is_refused(body: bytes, content_type: str) -> None:
    reading = read_body(body, content_types=[content_type] if content_type else [])
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("call_in_fields", 7)


def test_a_call_in_a_field_of_a_query_is_found() -> None:
    assert is_call_in_query("/x?payload=" + quote(BODY), with_body=False)
    assert is_call_in_query("/x?" + quote(BODY), with_body=False)
    assert not is_call_in_query("/x?q=" + quote('{"query":"tools/call"}'), with_body=True)


@pytest.mark.parametrize(
    ("unit", "content_type"),
    [
        (b"a={}&", "application/x-www-form-urlencoded"),
        (b"%7b&", ""),
        (b'--x\r\nContent-Disposition: form-data; name="p"\r\n\r\n{}\r\n', "multipart/form-data; boundary=x"),
    ],
)
def test_more_fields_than_are_read_are_refused(unit: bytes, content_type: str) -> None:
    some, many = unit * 1_000, unit * 20_000
    assert isinstance(read_body(some, content_types=[content_type] if content_type else []), NotMcp)
    reading = read_body(many, content_types=[content_type] if content_type else [])
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.detail) == ("call_in_fields", "more fields may be JSON than are read")


def test_a_query_of_more_fields_than_are_read_counts_as_a_call() -> None:
    assert not is_call_in_query("/x?" + "a={}&" * 1_000, with_body=False)
    assert is_call_in_query("/x?" + "a={}&" * 6_000, with_body=False)


def test_a_field_of_other_json_is_no_call() -> None:
    body = b"payload=" + quote('{"text":"send \\"tools/call\\"","blocks":[{"method":"tools/call"}]}').encode()
    assert isinstance(read_body(body, content_types=["application/x-www-form-urlencoded"]), NotMcp)


def test_a_file_in_a_form_may_hold_a_call_over_several_lines() -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.json"\r\n\r\n'
    body = part + BODY.replace(b",", b",\n") + b"\r\n--x--"
    assert isinstance(read_body(body, content_types=["multipart/form-data; boundary=x"]), NotMcp)


def test_a_line_of_source_code_is_no_call() -> None:
    code = b'const calls = [\n  { method: "tools/call", params },\n  {"ts": 1, "method": "tools/call"}\n];\n'
    assert read_body(code, content_types=["text/plain"]) == NotMcp()


def test_a_refused_id_keeps_its_type() -> None:
    reading = read_body(with_member("id", '"7"', TEXT.replace('"id": 7', '"id": "7"')), content_types=JSON_TYPE)
    assert isinstance(reading, RefusedBody)
    assert reading.id == "7"


@pytest.mark.parametrize(
    "content_types",
    [
        ["application/json-rpc"],
        ["application/json,text/plain"],
        ["text/plain"],
        ["application/x-www-form-urlencoded"],
        [],
    ],
)
def test_the_content_type_does_not_hide_a_message(content_types: list[str]) -> None:
    assert isinstance(read_body(BODY, content_types=content_types), SingleMessage)


@pytest.mark.parametrize("encodings", [[], ["gzip"]])
def test_two_content_types_are_refused(encodings: list[str]) -> None:
    body = gzip.compress(BODY) if encodings else BODY
    reading = read_body(body, content_types=JSON_TYPE * 2, encodings=encodings)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("duplicate_header", 7)


@pytest.mark.parametrize(
    "batch",
    [[CALL], [CALL, CALL], [[CALL]], [1, None, CALL], [{"a": 1}, CALL], [{"method": "tools/call"}]],
    ids=["one", "two", "nested", "among scalars", "among others", "malformed"],
)
def test_an_array_with_a_message_in_it_is_a_batch(batch: Any) -> None:
    reading = read_body(json.dumps(batch).encode(), content_types=JSON_TYPE)
    assert isinstance(reading, MessageBatch)
    assert all(isinstance(value, dict) for value in reading.values)


def test_an_array_that_is_not_strict_json_is_refused() -> None:
    reading = read_body(b"[" + with_member("id", "1") + b"]", content_types=JSON_TYPE)
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "duplicate_key"


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP ", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", deflate_raw),
    "br": ("br", brotli.compress),
    "zstd": ("zstd", zstandard.compress),
}


@pytest.mark.parametrize(("coding", "encode"), ENCODERS.values(), ids=ENCODERS)
def test_an_encoded_message_is_read(coding: str, encode: Callable[[bytes], bytes]) -> None:
    reading = read_body(encode(BODY), content_types=JSON_TYPE, encodings=[coding])
    assert isinstance(reading, SingleMessage)
    assert reading.message.value == CALL


@pytest.mark.parametrize("declared", [["gzip"], ["br"], ["lzma"], ["gzip, br"], ["identity", "x"]])
def test_an_encoding_that_is_a_lie_is_refused_with_the_id(declared: list[str]) -> None:
    reading = read_body(BODY, content_types=JSON_TYPE, encodings=declared)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("encoding_mismatch", 7)


@pytest.mark.parametrize(
    ("body", "encodings", "reason"),
    [
        (gzip.compress(gzip.compress(BODY)), ["gzip", "gzip"], "stacked_encoding"),
        (brotli.compress(gzip.compress(BODY)), ["gzip, br"], "stacked_encoding"),
        (gzip.compress(BODY), ["gzip"] * 4, "stacked_encoding"),
        (gzip.compress(BODY)[:-4], ["gzip"], "encoding_mismatch"),
        (gzip.compress(BODY) + b"garbage", ["gzip"], "encoding_mismatch"),
        (b"\x99\x98\x97", ["gzip"], "encoding_mismatch"),
        (b"\x99\x98\x97", ["lzma"], "unknown_encoding"),
        (gzip.compress(b"\n" * 10_000 + BODY), ["gzip"], "body_too_large"),
        (gzip.compress(with_member("id", "1")), ["gzip"], "duplicate_key"),
    ],
)
def test_an_encoded_body_that_cannot_be_taken_is_refused(body: bytes, encodings: list[str], reason: str) -> None:
    reading = read_body(body, content_types=JSON_TYPE, encodings=encodings, limit=5000)
    assert isinstance(reading, RefusedBody)
    assert reading.reason == reason


def stacked(data: bytes, times: int) -> bytes:
    for _ in range(times):
        data = gzip.compress(data)
    return data


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream"])
@pytest.mark.parametrize(
    ("body", "encodings", "reason"),
    [
        (gzip.compress(BODY), [], "encoding_mismatch"),
        (zlib.compress(BODY), [], "encoding_mismatch"),
        (zstandard.compress(BODY), [], "encoding_mismatch"),
        (stacked(BODY, 2), [], "encoding_mismatch"),
        (stacked(BODY, 2), ["gzip"], "encoding_mismatch"),
        (stacked(BODY, 4), [], "encoding_mismatch"),
        (stacked(BODY, 9), [], "encoding_mismatch"),
    ],
)
def test_a_coding_that_is_not_declared_is_seen(
    body: bytes, encodings: list[str], reason: str, content_type: str
) -> None:
    reading = read_body(body, content_types=[content_type], encodings=encodings)
    assert isinstance(reading, RefusedBody)
    assert reading.reason == reason


def test_a_gzip_header_that_looks_like_json_hides_nothing() -> None:
    body = bytearray(gzip.compress(BODY))
    body[4:8] = b"{{{{"  # the time stamp
    assert isinstance(read_body(bytes(body), content_types=["a/b"]), RefusedBody)


def test_a_coding_under_another_name_is_seen() -> None:
    reading = read_body(gzip.compress(BODY), content_types=["a/b"], encodings=["x-secret"])
    assert isinstance(reading, RefusedBody)
    assert reading.id == 7


def test_an_archive_is_foreign() -> None:
    assert read_body(gzip.compress(b"ustar " * 9000), content_types=["application/gzip"]) == NotMcp()


@pytest.mark.parametrize("encodings", [[], ["identity"], ["Identity, identity"], ["aws-chunked"], [""]])
def test_codings_that_do_nothing_change_nothing(encodings: list[str]) -> None:
    assert isinstance(read_body(BODY, content_types=JSON_TYPE, encodings=encodings), SingleMessage)


CHARSETS = ["utf-16", "utf-16le", "utf-16-be", "UTF-32", "utf-7", "ibm037", "cp500", "iso-2022-jp", "hz"]


@pytest.mark.parametrize("charset", CHARSETS)
@pytest.mark.parametrize("coding", [None, "gzip", "br"])
def test_a_message_in_another_charset_is_refused_encoded_or_not(charset: str, coding: str | None) -> None:
    body = TEXT.encode(charset)
    body = dict(ENCODERS.values())[coding](body) if coding else body
    content_types = [f'application/json; Charset="{charset}"']
    reading = read_body(body, content_types=content_types, encodings=[coding] if coding else [])
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("odd_charset", 7)


@pytest.mark.parametrize("charset", ["utf-16", "utf-7", "x-unknown", "zlib", "idna", "undefined", "a\0b", "\udcff"])
def test_a_plain_message_in_the_name_of_another_charset_is_refused(charset: str) -> None:
    for content_type in ("application/json", "text/plain"):
        reading = read_body(BODY, content_types=[f"{content_type}; charset={charset}"])
        assert isinstance(reading, RefusedBody)
        assert (reading.reason, reading.id) == ("odd_charset", 7)


def test_a_second_charset_does_not_hide_behind_a_first() -> None:
    body = TEXT.encode("utf-7").replace(b"{", b"+AHs-")
    content_type = "application/json; charset=ibm037; charset=utf-7"
    assert isinstance(read_body(body, content_types=[content_type]), RefusedBody)


def test_json_in_a_charset_nobody_knows_is_refused_unread() -> None:
    assert isinstance(read_body(b"\x99\x98", content_types=["application/json; charset=utf-7-imap"]), RefusedBody)
    assert isinstance(read_body(b"\x99\x98", content_types=["text/plain; charset=x-mine"]), NotMcp)


OPENAI = {
    "model": "m",
    "messages": [{"role": "user", "content": 'send {"jsonrpc":"2.0","method":"tools/call"} to "tools/call"'}],
    "tools": [{"type": "function", "function": {"name": "tools/call", "parameters": {}}}],
}
ANTHROPIC = {"system": TEXT, "messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]}
ETH_CALL = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [{"to": "0x0"}, "latest"]}
FOREIGN_BODIES: dict[str, bytes] = {
    "empty": b"",
    "REST": b'{"name":"x","method":"POST","id":5,"result":[1]}',
    "REST with an error": b'{"id":1,"error":"no"}',
    "scalar": b"5",
    "string": b'"tools/call"',
    "empty array": b"[]",
    "GraphQL": b'{"query":"query { tools { call } }","variables":{"method":"tools/call"},"operationName":null}',
    "GraphQL batch": b'[{"query":"{a}"},{"query":"{b}"}]',
    "OpenAI": json.dumps(OPENAI).encode(),
    "OpenAI, lone surrogate": json.dumps(OPENAI | {"user": "\ud800"}).encode(),
    "OpenAI, NaN": json.dumps(OPENAI | {"temperature": float("nan")}).encode(),
    "OpenAI, duplicate key": json.dumps(OPENAI)[:-1].encode() + b',"model":"n"}',
    "OpenAI, bad UTF-8": json.dumps(OPENAI).encode().replace(b"send", b"se\xffnd"),
    "OpenAI, control character": json.dumps(OPENAI).encode().replace(b"send", b"se\tnd"),
    "OpenAI, deep": json.dumps(OPENAI)[:-1].encode() + b',"x":' + b"[" * 200 + b"]" * 200 + b"}",
    "Anthropic": json.dumps(ANTHROPIC).encode(),
    "Anthropic, UTF-16": json.dumps(ANTHROPIC).encode("utf-16"),
    "JSON-RPC to another service": json.dumps(ETH_CALL).encode(),
    "JSON-RPC batch to another service": json.dumps([ETH_CALL, ETH_CALL]).encode(),
    "JSON-RPC to another service, duplicate key": json.dumps(ETH_CALL)[:-1].encode() + b',"id":2}',
    "Elasticsearch bulk": b'{"index":{"_index":"a"}}\n{"method":"GET","t":"\\"tools/call\\""}\n' * 50,
    "CSV": b'"name","method"\n"a, b","GET"\n',
    "CSV with doubled quotes": b'"say ""tools/call"" now",1\n',
    "CSV of numbers": b"1,2,3\n4,5," + BODY + b"\n",
    "CSV of dates": b"1/2/2024,{}\n3/4/2024,[]\n",
    "numbers": b"1\n2\n3\n",
    "words": b"true story: " + BODY,
    "markdown": b"[MCP](https://example.com) runs tools/call over JSON-RPC.\n",
    "markdown list": b"[ ] call tools\n[x] done\n",
    "INI": b"[section]\nkey=value\n",
    "multipart": b'--x\r\nContent-Disposition: form-data; name="f"\r\n\r\nPOST ' + BODY + b"\r\n--x--\r\n",
    "form": b"a=1&b=" + BODY,
    "XML": b"<methodCall><methodName>tools/call</methodName></methodCall>",
    "protobuf": b"\x0a\x0bdata\x00\x01\x02\x08{\x10",
    "gRPC": b"\0\0\0\0\x05\x0a\x03abc",
    "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "LSP frame": b"Content-Length: 2\r\n\r\n{}",
    "LSP request": b'{"jsonrpc":"2.0","id":1,"method":"textDocument/hover","params":{}}',
    "a Bitcoin node's ping": b'{"jsonrpc":"1.0","id":"curltest","method":"ping","params":[]}',
    "a Bitcoin node's ping, 2.0": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
    "white space": b" \r\n\t" * 100,
    "NULs": b"\0" * 4096,
}


@pytest.mark.parametrize("body", FOREIGN_BODIES.values(), ids=FOREIGN_BODIES)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain; charset=iso-8859-1"])
def test_ordinary_traffic_is_foreign(body: bytes, content_type: str) -> None:
    assert read_body(body, content_types=[content_type]) == NotMcp()


@pytest.mark.parametrize("body", FOREIGN_BODIES.values(), ids=FOREIGN_BODIES)
@pytest.mark.parametrize(("coding", "encode"), [ENCODERS["gzip"], ENCODERS["zstd"]], ids=["gzip", "zstd"])
def test_ordinary_traffic_is_foreign_when_encoded(body: bytes, coding: str, encode: Callable[[bytes], bytes]) -> None:
    assert read_body(encode(body), content_types=JSON_TYPE, encodings=[coding]) == NotMcp()


def test_an_opaque_upload_is_foreign() -> None:
    assert read_body(b"\x99\x98", content_types=["application/octet-stream"], encodings=["lzma"]) == NotMcp()


def test_foreign_json_with_a_lying_encoding_is_foreign() -> None:
    assert read_body(b'{"a":1}', content_types=JSON_TYPE, encodings=["gzip"]) == NotMcp()


def test_prose_in_another_charset_is_foreign() -> None:
    prose = 'He said "jsonrpc" and "tools/call".'.encode("utf-16")
    assert read_body(prose, content_types=["text/plain; charset=utf-16"]) == NotMcp()


@pytest.mark.parametrize("text", ["method", "METHOD", "meth\u200bod", "\uff4dethod", "method\0", " method\n"])
def test_a_key_is_compared_as_the_most_lenient_server_would(text: str) -> None:
    assert plain(text) == "method"
