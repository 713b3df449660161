"""Ordinary traffic that is not MCP, in the shapes that real clients send it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

import zstandard


@dataclass(frozen=True)
class Traffic:
    """One request that must arrive at the server as it was sent."""

    id: str
    body: bytes
    content_type: str = "application/json"
    method: str = "POST"
    path: str = "/v1/anything"
    headers: tuple[tuple[str, str], ...] = ()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


MENTION = 'To run it, POST {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}} to /mcp.'
BULK = b"".join(_json(line) + b"\n" for line in ({"index": {"_index": "logs"}}, {"message": MENTION}))
MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n'
    b"Content-Type: application/json\r\n\r\n" + MENTION.encode() + b"\r\n--x--\r\n"
)
ETH = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [{"to": "0x0", "data": "0x"}, "latest"]}
LSP = {"jsonrpc": "2.0", "id": 1, "method": "textDocument/hover", "params": {"position": {"line": 1}}}
OPENAI = {
    "model": "gpt-x",
    "messages": [{"role": "user", "content": MENTION}],
    "tools": [{"type": "function", "function": {"name": "danger", "parameters": {"type": "object"}}}],
}
ANTHROPIC = {
    "model": "claude-x",
    "max_tokens": 10,
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "danger", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": MENTION}]},
    ],
}
QUOTED = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}})
INDENTED = json.dumps(json.loads(QUOTED), indent=2)
SOURCES = {
    "bundle": f'/*! x v1 */!function(e){{e.exports={{"jsonrpc":"2.0",method:"tools/call"}};send({QUOTED})}}(this);',
    "typescript": f'// The client: see x\nimport {{ Tool }} from "./tools/call";\nexport const call = {QUOTED};\n',
    "go": f"// Package x calls tools.\npackage x\n\nvar call = `{QUOTED}`\n",
    "python": f'"""Sends "tools/call" by "jsonrpc"."""\n\nCALL = {QUOTED}\n',
    "css": '[data-method="tools/call"] { content: "jsonrpc"; }\n',
    "markdown": f"[MCP](https://example.com) sends `{QUOTED}`:\n\n```json\n{INDENTED}\n```\n",
    "jsonc": f'{{\n  // Calls\n  "examples": [{QUOTED},],\n}}\n',
    "yaml": "openapi: 3.1.0\nsteps:\n  - method: tools/call\n    params: {name: danger}\n",
}
BROKEN_LINES = b'{"method":"GET","t":"tools/call"}\n{"method":"GET","t":"jsonrp\n{"a":1}\n'
BITCOIN = {"jsonrpc": "1.0", "id": "curltest", "method": "ping", "params": []}
SNAPPY, AWS = (("Content-Encoding", "snappy"),), (("Content-Encoding", "aws-chunked"),)
AWS_CHUNKED = b"5;chunk-signature=00\r\nhello\r\n0;chunk-signature=00\r\n\r\n"

TRAFFIC = (
    Traffic("rest", _json({"name": "danger", "arguments": {"path": "/etc/passwd"}, "id": 7})),
    Traffic("rest-method", _json({"method": "card", "params": {"amount": 5}, "id": "order-1"}), path="/payments"),
    Traffic("rest-put", _json({"text": MENTION}), method="PUT"),
    Traffic("rest-patch", _json([{"op": "replace", "path": "/a", "value": 1}]), "application/json-patch+json", "PATCH"),
    Traffic("duplicate-keys", b'{"a":1,"a":2,"n":NaN}'),
    Traffic("graphql", _json({"query": "{ tools { call } }", "variables": {"method": "tools/call"}}), path="/graphql"),
    Traffic("openai", _json(OPENAI), path="/v1/chat/completions"),
    Traffic("anthropic", _json(ANTHROPIC), path="/v1/messages"),
    Traffic("eth-call", _json(ETH), path="/rpc"),
    Traffic("eth-batch", _json([ETH, ETH | {"id": 2}]), path="/rpc"),
    Traffic("language-server", _json(LSP)),
    Traffic("elasticsearch-bulk", BULK, "application/x-ndjson", path="/_bulk"),
    Traffic("elasticsearch-get", _json({"query": {"match_all": {}}}), method="GET", path="/_search"),
    Traffic("multipart", MULTIPART, "multipart/form-data; boundary=x"),
    Traffic("form", b"grant_type=client_credentials&scope=tools%2Fcall", "application/x-www-form-urlencoded"),
    Traffic("protobuf", bytes(range(256)) * 4, "application/x-protobuf"),
    Traffic("grpc-web", b"\x00\x00\x00\x00\x05hello", "application/grpc-web+proto"),
    Traffic("telemetry-gzip", gzip.compress(_json({"spans": [MENTION]})), headers=(("Content-Encoding", "gzip"),)),
    Traffic("metrics-snappy", b"\xff\x06\x00\x00sNaPpY", "application/x-protobuf", headers=SNAPPY),
    Traffic("logs-zstd", zstandard.compress(b"line\n" * 50), "text/plain", headers=(("Content-Encoding", "zstd"),)),
    Traffic("gzip-file", gzip.compress(MENTION.encode()), "application/gzip", "PUT"),
    Traffic("aws-chunked", AWS_CHUNKED, "application/octet-stream", "PUT", headers=AWS),
    Traffic("xml", b"<methodCall><methodName>tools/call</methodName></methodCall>", "text/xml"),
    Traffic("text", MENTION.encode(), "text/plain; charset=utf-8"),
    Traffic("latin-1", "caf\xe9".encode("latin-1"), "text/plain; charset=iso-8859-1"),
    Traffic("utf-16", '{"a": "b"}'.encode("utf-16"), "application/json; charset=utf-16"),
    Traffic("git", b"0032want 0000000000000000000000000000000000000000\n0000", "application/x-git-upload-pack-request"),
    *(Traffic(f"source-{name}", text.encode(), "application/octet-stream", "PUT") for name, text in SOURCES.items()),
    Traffic("ndjson-broken-line", BROKEN_LINES, "application/x-ndjson"),
    Traffic("bitcoin-ping", _json(BITCOIN), "text/plain", path="/wallet"),
    Traffic("bitcoin-ping-2", _json(BITCOIN | {"jsonrpc": "2.0"}), path="/wallet"),
    Traffic("query", _json({"a": 1}), path="/search"),
    Traffic("empty", b""),
    Traffic("delete", b"", method="DELETE"),
)  # fmt: skip
