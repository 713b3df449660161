"""What is sent and answered: one tool call, and results of several sizes and forms. Standard library alone.

Every answer holds MARK, so that a client knows a result from a refusal.
"""

from __future__ import annotations

import json
import random

MARK = b"bench-result"
TOOL = "search_files"
# Split, so that no scanner of repositories takes it for one.
SECRET = "AKIA" + "Q3EGRIEXAMPLEKEY"[:16]
DOWNLOAD_MB = 200
ARGUMENTS = {
    "path": "/srv/projects/atlas/src",
    "pattern": "def parse_(?:header|body)",
    "options": {"depth": 4, "follow_links": False, "limit": 50, "encoding": "utf-8"},
    "note": "look for the place where a request's head is read before its length is known",
}


def call(number: int = 1) -> bytes:
    """Spell the call, of about 400 bytes."""
    params = {"name": TOOL, "arguments": ARGUMENTS}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def text_of(size: int, secret: str = "") -> str:
    """Return words and numbers in lines, with nothing to find but `secret`."""
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _ in range(300)]
    text = f"{MARK.decode()} {secret}\n" if secret else f"{MARK.decode()}\n"
    while len(text) < size:
        text += " ".join(source.choices(words, k=10)) + f" {source.randint(0, 9999)}\n"
    return text[:size]


def answer(text: str, number: object = 1) -> bytes:
    """Spell a result."""
    result = {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result}, separators=(",", ":")).encode()


def as_stream(result: bytes) -> bytes:
    """Spell a result as a stream of events, with a word on progress before it."""
    progress = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":50}}'
    return b"event: message\ndata: %s\n\nevent: message\nid: 1\ndata: %s\n\n" % (progress, result)


def _answers() -> dict[str, bytes]:
    small, large, secret = text_of(310), text_of(20_000), text_of(20_000, SECRET)
    found = {"small": answer(small), "large": answer(large), "secret": answer(secret)}
    return {
        **{f"/{name}.json": body for name, body in found.items()},
        **{f"/{name}.sse": as_stream(body) for name, body in found.items()},
    }


ANSWERS = _answers()
"""What the upstream servers answer a POST to each path with."""
TYPES = {"json": "application/json", "sse": "text/event-stream"}
