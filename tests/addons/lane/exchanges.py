"""The exchanges that are played with a lane and without: written ones, and as many made-up ones as one likes."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.addons.lane.scripted import CLOSE, RESULT, Exchange, call, head_for, json_answer

SECRET = "ghp_" + "Zx8Kq2" * 6
LEAK = RESULT.replace(b"fine", SECRET.encode())
LARGE = RESULT.replace(b"fine", b"word " * 40_000)
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
type Body = Callable[[str], bytes]

BODIES: dict[str, Body] = {
    "allowed": call,
    "denied": lambda case: call(case, "danger"),
    "denied by its path": lambda case: call(case, "read_file", '"path":"/etc/passwd"'),
    "with a secret": lambda case: call(case, "echo", f'"text":"{SECRET}"'),
    "spaces": lambda case: call(case).replace(b":", b" : "),
    "a notification": lambda case: call(case, method="notifications/cancelled").replace(b'"id":1234567,', b""),
    "another method": lambda case: call(case, method="prompts/get"),
    "a batch": lambda case: b"[" + call(case) + b"]",
    "not JSON": lambda case: call(case)[:-1],
    "a name twice": lambda case: call(case).replace(b'"name":"echo"', b'"name":"echo","name":"danger"'),
    "not MCP": lambda case: b'{"case":"%s","x":1}' % case.encode(),
    "a request line within": lambda case: call(case, "echo", '"t":"\\nGET /x HTTP/1.1\\r\\n"'),
    "a raw request line within": lambda case: call(case) + b"\nPOST /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "empty": lambda case: b"",
    "large": lambda case: call(case, "echo", '"t":"%s"' % ("x" * 100_000)),
    "a lone surrogate": lambda case: call(case, "echo", '"t":"\\ud800"'),
    "listening": lambda case: call(case, method="subscriptions/listen"),
}

MORE: dict[str, bytes] = {
    "the same": b"",
    "another field": b"X-Other: 1\r\n",
    "a second length": b"Content-Length: 3\r\n",
    "chunked too": b"Transfer-Encoding: chunked\r\n",
    "an expectation": b"Expect: 100-continue\r\n",
    "the end": b"Connection: close\r\n",
    "kept open": b"Connection: keep-alive\r\n",
    "an upgrade": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "a coding": b"Content-Encoding: gzip\r\n",
    "a folded line": b"X-A: 1\r\n  2\r\n",
    "a bare line feed": b"X-A: 1\nX-B: 2\r\n",
    "a NUL": b"X-A: a\0b\r\n",
    "no blank": b"X-A:1\r\n",
    "two hosts": b"Host: 127.0.0.1\r\n",
    "a session": b"Mcp-Session-Id: (case)\r\n",
    "a lying method": b"Mcp-Method: ping\r\n",
    "credentials": b"Proxy-Authorization: Basic Ym90OnRva2Vu\r\n",
    "a secret": b"X-Token: %s\r\n" % SECRET.encode(),
    "a blank before the colon": b"X-A : 1\r\n",
    "latin": b"X-A: caf\xe9\r\n",
}


TRACE = b"traceparent: 00-%s-b7ad6b7169203331-01\r\n"
SEEN, NEW = TRACE % (b"0af7651916cd43dd8448eb211c80319c"), TRACE % (b"4bf92f3577b34da6a3ce929d0e0e4736")
SESSION = b"Mcp-Session-Id: %s\r\nmcp-protocol-version: %s\r\n"
VARIED: dict[str, tuple[bytes, bytes]] = {
    "a trace": (SEEN, NEW),
    "a trace twice": (SEEN, SEEN + NEW),
    "no trace any more": (SEEN, b""),
    "a secret for a trace": (SEEN, b"traceparent: %s\r\n" % SECRET.encode()),
    "an odd trace": (SEEN, b"traceparent: 00-x\r\n"),
    "an empty trace": (SEEN, b"traceparent: \r\n"),
    "a folded trace": (SEEN, NEW.replace(b"-01", b"\r\n -01")),
    "a state with blanks": (b"tracestate: a=1\r\n", b"tracestate: a=1, b=2\r\n"),
    "a secret in baggage": (b"baggage: a=1\r\n", b"baggage: a=%s\r\n" % SECRET.encode()),
    "latin in baggage": (b"baggage: a=1\r\n", b"baggage: a=caf\xe9\r\n"),
    "another session": (SESSION % (b"(case)", b"2025-06-18"), SESSION % (b"two-(case)", b"2025-06-18")),
    "another revision": (SESSION % (b"(case)", b"2025-06-18"), SESSION % (b"(case)", b"2025-11-25")),
    "a session twice": (SESSION % (b"(case)", b"1"), SESSION % (b"(case)", b"1") + b"mcp-session-id: two-(case)\r\n"),
    "a request's number": (b"X-Request-Id: 1\r\n", b"X-Request-Id: 2\r\n"),
    "a name that lies": (b"Mcp-Name: echo\r\n", b"Mcp-Name: danger\r\n"),
    "a method that lies": (b"Mcp-Method: tools/call\r\n", b"Mcp-Method: ping\r\n"),
    "a parameter": (b"Mcp-Param-A: 1\r\n", b"Mcp-Param-A: 2\r\n"),
    "a place in a stream": (b"Last-Event-ID: 1\r\n", b"Last-Event-ID: 2\r\n"),
    "a line within": (b"X-Request-Id: 1\r\n", b"X-Request-Id: 2\nX-A: 1\r\n"),
    "a NUL within": (b"X-Request-Id: 1\r\n", b"X-Request-Id: 2\0\r\n"),
}
"""Fields of the calls that open a lane, and of the one that follows."""


def chunked(*parts: bytes, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    """Return a body in chunks."""
    return b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts) + b"0\r\n%s\r\n" % trailers


def headed(kind: bytes, body: bytes, framing: bytes = b"Transfer-Encoding: chunked\r\n") -> bytes:
    """Return a response."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n%s" % (kind, framing, body)


def event(data: bytes, before: bytes = b"event: message\n") -> bytes:
    """Return a server-sent event."""
    return before + b"data: " + data + b"\n\n"


NINE = b"Content-Length: 9\r\n"
SSE = b"text/event-stream"
HALF = len(RESULT) // 2
ANSWERS: dict[str, tuple[bytes, ...]] = {
    "JSON": (json_answer(RESULT),),
    "JSON in two pieces": (json_answer(RESULT)[:120], json_answer(RESULT)[120:]),
    "head by head": (json_answer(RESULT)[:30], json_answer(RESULT)[30:70], json_answer(RESULT)[70:]),
    "a secret": (json_answer(LEAK),),
    "large": (json_answer(LARGE),),
    "JSON in chunks": (headed(b"application/json", chunked(RESULT[:HALF], RESULT[HALF:])),),
    "a secret in chunks": (headed(b"application/json", chunked(LEAK[:HALF], LEAK[HALF:])),),
    "chunks with extensions": (headed(b"application/json", chunked(RESULT, extension=b";a=b")),),
    "chunks with trailers": (headed(b"application/json", chunked(RESULT, trailers=b"X-T: 1\r\n")),),
    "events": (headed(SSE, chunked(event(RESULT))),),
    "events with news": (headed(SSE, chunked(event(PROGRESS), event(RESULT))),),
    "events with a secret": (headed(SSE, chunked(event(LEAK))),),
    "events with ids": (headed(SSE, chunked(event(b"", b"id: 1\n"), event(RESULT, b"id: 2\n"))),),
    "events with comments": (headed(SSE, chunked(b": ping\n\n", event(RESULT), b": bye\n\n")),),
    "events with CRLF": (headed(SSE, chunked(event(RESULT).replace(b"\n", b"\r\n"))),),
    "events piece by piece": (
        headed(SSE, b""),
        chunked(event(PROGRESS))[:-5],
        chunked(event(RESULT)[:40])[:-5],
        chunked(event(RESULT)[40:]),
    ),
    "a large event": (headed(SSE, chunked(event(LARGE))),),
    "events with extensions": (headed(SSE, chunked(event(RESULT), extension=b";x")),),
    "events with trailers": (headed(SSE, chunked(event(RESULT), trailers=b"X-T: 1\r\n")),),
    "events cut off": (headed(SSE, chunked(event(PROGRESS))[:-5]), CLOSE),
    "events with a broken chunk": (headed(SSE, chunked(event(PROGRESS))[:-5] + b"zz\r\n"),),
    "events of a given length": (headed(SSE, event(RESULT), b"Content-Length: %d\r\n" % len(event(RESULT))),),
    "events to the end": (headed(SSE, event(RESULT), b""), CLOSE),
    "accepted": (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",),
    "refused": (b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",),
    "failed": (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",),
    "no type": (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(RESULT), RESULT),),
    "a charset": (json_answer(RESULT).replace(b"json\r\n", b"json; charset=utf-8\r\n"),),
    "an odd charset": (json_answer(RESULT).replace(b"json\r\n", b"json; charset=latin-1\r\n"),),
    "a page": (headed(b"text/html", b"<p>", b"Content-Length: 3\r\n"),),
    "another id": (json_answer(RESULT.replace(b"(asked)", b"7654321")),),
    "not JSON": (json_answer(b"{" * 20),),
    "a list": (json_answer(b"[" + RESULT + b"]"),),
    "an error": (json_answer(b'{"jsonrpc":"2.0","id":(asked),"error":{"code":1,"message":"no"}}'),),
    "an interim answer": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + json_answer(RESULT),),
    "two lengths": (json_answer(RESULT, head=b"Content-Length: 5\r\n"),),
    "length and chunks": (
        headed(b"application/json", chunked(RESULT), b"Transfer-Encoding: chunked\r\nContent-Length: 9\r\n"),
    ),
    "more than asked for": (json_answer(RESULT) + b"HTTP/1.1 200 OK\r\n\r\n",),
    "too short": (json_answer(RESULT)[:-5], CLOSE),
    "closed at once": (CLOSE,),
    "closed after it": (json_answer(RESULT), CLOSE),
    "said to be closed": (json_answer(RESULT, head=b"Connection: close\r\n"), CLOSE),
    "compressed": (
        headed(
            b"application/json",
            gzip.compress(RESULT),
            b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(gzip.compress(RESULT)),
        ),
    ),
    "HTTP/1.0": (json_answer(RESULT).replace(b"HTTP/1.1", b"HTTP/1.0"), CLOSE),
    "bare line feeds": (json_answer(RESULT).replace(b"\r\n", b"\n"),),
    "no HTTP": (b"hello\r\n\r\n",),
    "a cookie": (json_answer(RESULT, head=b"Set-Cookie: a=b; HttpOnly\r\nSet-Cookie: c=d\r\n"),),
    "no blank after a colon": (json_answer(RESULT, head=b"X-A:1\r\n"),),
}


def pieces(data: bytes, cuts: list[int]) -> tuple[bytes, ...]:
    """Return data cut at some places."""
    places = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(data)), len(data)]
    return tuple(data[start:end] for start, end in pairwise(places) if end > start)


def request(case: str, host: str, body: bytes, more: bytes = b"", *, plain: bool = False) -> bytes:
    """Return a request with the head that the lane knows, or with `more` in it."""
    target = b"http://%s/mcp" % host.encode() if plain else b"/mcp"
    return head_for(host, len(body), of_case(more, case), target=target) + body


def of_case(fields: bytes, case: str) -> bytes:
    """Return fields with a session of the case's own: of two calls with one id in one session, one is refused."""
    return fields.replace(b"(case)", case.replace("case", "session").encode())


def written(host: str, plain_host: str) -> Iterator[Exchange]:
    """Return every body, every field and every answer once, and the ways a request can come in pieces."""
    number = 0

    def next_case() -> str:
        nonlocal number
        number += 1
        return f"case-{number}"

    for name, body in BODIES.items():
        case = next_case()
        yield Exchange(f"{case} body: {name}", (request(case, host, body(case)),))
    for name, more in MORE.items():
        case = next_case()
        yield Exchange(f"{case} head: {name}", (request(case, host, call(case), more),))
    for name, (warm, more) in VARIED.items():
        case = next_case()
        yield Exchange(f"{case} varied: {name}", (request(case, host, call(case), more),), warm=of_case(warm, case))
    for name, answers in ANSWERS.items():
        case = next_case()
        yield Exchange(f"{case} answer: {name}", (request(case, host, call(case)),), answers)
    for name, answers in ANSWERS.items():
        case = next_case()
        whole = request(case, plain_host, call(case), plain=True)
        yield Exchange(f"{case} plain answer: {name}", (whole,), answers, plain=True)
    yield from _in_pieces(next_case, host)


def _in_pieces(next_case: Callable[[], str], host: str) -> Iterator[Exchange]:
    head = len(request("", host, b""))
    for cut in (1, 10, head - 3, head, head + 1, head + 40):
        case = next_case()
        yield Exchange(f"{case} cut at {cut}", pieces(request(case, host, call(case)), [cut]))
    case, second = next_case(), next_case()
    both = request(case, host, call(case)) + request(second, host, call(second))
    yield Exchange(f"{case} two at once", (both,))
    case, second = next_case(), next_case()
    yield Exchange(
        f"{case} the next before the answer", (request(case, host, call(case)), request(second, host, call(second)))
    )
    for name, answers in {"answer": ANSWERS["events piece by piece"], "whole": ANSWERS["JSON in two pieces"]}.items():
        case, second = next_case(), next_case()
        yield Exchange(f"{case} the client goes ({name})", (request(case, host, call(case)), CLOSE), answers)
        case = next_case()
        yield Exchange(
            f"{case} the next within ({name})",
            (request(case, host, call(case)), request(second, host, call(second))),
            answers,
        )
    case = next_case()
    yield Exchange(f"{case} half a body", (request(case, host, call(case))[:-20],))
    case = next_case()
    yield Exchange(f"{case} half a body, then gone", (request(case, host, call(case))[:-20], CLOSE))


# What ends a connection, or brings more or less than one whole answer, is waited for.
ODD = frozenset({
    *("the end", "an expectation", "an upgrade", "a second length", "chunked too", "a raw request line within"),
    *("empty", "more than asked for", "an interim answer", "two lengths", "length and chunks", "no HTTP", "HTTP/1.0"),
    *("said to be closed", "bare line feeds", "events with a broken chunk"),
})  # fmt: skip


def made_up(count: int, seed: int, host: str, plain_host: str, first: int = 0) -> Iterator[Exchange]:
    """Return `count` exchanges drawn from all of the above, cut and broken at random, numbered from `first` on."""
    source = random.Random(seed)
    for number in range(count):
        case = f"case-{100_000 + first + number}"
        plain = source.random() < 0.3
        name = source.choice(list(BODIES)) if source.random() < 0.5 else "allowed"
        more = source.choice(list(MORE)) if source.random() < 0.3 else "the same"
        varied = source.choice(list(VARIED)) if source.random() < 0.3 else None
        warm, fields = VARIED[varied] if varied is not None else (b"", b"")
        host_of_it = plain_host if plain else host
        sent = request(case, host_of_it, BODIES[name](case), fields + MORE[more], plain=plain)
        answer = source.choice(list(ANSWERS))
        whole = b"".join(ANSWERS[answer])
        answers = pieces(whole, [source.randrange(len(whole) + 1) for _ in range(source.choice((0, 1, 3)))])
        simple = ODD.isdisjoint({name, more, answer}) and CLOSE not in ANSWERS[answer]
        if source.random() < 0.2:
            sent, simple = _mangled(source, sent), False
        if source.random() < 0.15:
            answers, simple = pieces(_mangled(source, whole), []), False
        if CLOSE in ANSWERS[answer] or source.random() < 0.1:
            answers, simple = (*answers, CLOSE), False
        asks = pieces(sent, [source.randrange(len(sent)) for _ in range(source.choice((0, 0, 1, 2)))])
        if source.random() < 0.05:
            asks, simple = (*asks, CLOSE), False
        title = f"{case} {name}, {varied or 'no other value'}, {more}, {answer}"
        yield Exchange(title, asks, answers, plain, of_case(warm, case), simple)


def _mangled(source: random.Random, data: bytes) -> bytes:
    """Return data with a byte changed, dropped or doubled."""
    if not data:
        return data
    at = source.randrange(min(len(data), 600))
    new = source.choice((b"", b"\r", b"\n", b" ", b"\0", b":", bytes([source.randrange(256)]), data[at : at + 1] * 2))
    return data[:at] + new + data[at + 1 :]
