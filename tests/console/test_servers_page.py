"""The servers page, and approving a tool on it."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest

from proxy.core.approvals import Role
from proxy.errors import AuditUnavailableError
from proxy.gate.tool_pins import Page, print_tool, take_page
from proxy.store.pin_files import PinFiles
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import Desk

SERVER = "mcp.example.com"


@pytest.fixture
def pins(desk: Desk) -> PinFiles:
    made = PinFiles(desk.console.trail.state_dir)
    see(made, {"name": "read", "description": "Reads a file."})
    see(made, {"name": "read", "description": "Reads any file."}, {"name": "send"})
    return made


def see(pins: PinFiles, *tools: dict[str, Any], server: str = SERVER) -> None:
    page = Page([(tool["name"], print_tool(tool)) for tool in tools])
    pins.update(server, lambda known: take_page(known, page, adopt=False, now=1.0)[0])


def state(pins: PinFiles, tool: str) -> str:
    known = PinFiles(pins.folder.parent).read(SERVER)
    assert known is not None
    return known.tools[tool].state


async def fields(desk: Desk, tool: str) -> dict[str, str]:
    """Return the form of the page that approves a tool."""
    text = (await desk.http.get("/servers/one", params={"name": SERVER})).text
    forms = [dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)) for form in text.split("<form")[1:]]
    found = next(form for form in forms if form.get("tool") == tool)
    return {name: html.unescape(value) for name, value in found.items() if name != "csrf"}


async def test_servers_are_listed_with_what_is_not_as_approved(desk: Desk, pins: PinFiles) -> None:
    World(desk.console.trail.state_dir, None).record(event(1, time=time.time() - 5, server="other.example"))
    await desk.log_in()
    text = (await desk.http.get("/servers")).text
    assert "1 changed" in text
    assert "1 new" in text
    assert "other.example" in text


async def test_a_change_is_shown_word_by_word_and_approved(desk: Desk, pins: PinFiles) -> None:
    await desk.log_in()
    text = (await desk.http.get("/servers/one", params={"name": SERVER})).text
    assert "<del>a</del><ins>any</ins> file." in text
    desk.sink.events.clear()
    answer = await desk.post("/servers/approve", **await fields(desk, "read"))
    assert answer.status_code == 303
    assert (state(pins, "read"), state(pins, "send")) == ("pinned", "new")
    (recorded,) = desk.sink.events
    assert (recorded.kind, recorded.server, recorded.tool) == ("tool_approved", SERVER, "read")
    assert recorded.detail["operator"] == "ann"


async def test_a_tool_that_changed_since_it_was_shown_is_not_approved(desk: Desk, pins: PinFiles) -> None:
    await desk.log_in()
    form = await fields(desk, "read")
    see(pins, {"name": "read", "description": "Reads and sends."})
    desk.sink.events.clear()
    assert (await desk.post("/servers/approve", **form)).status_code == 409
    assert state(pins, "read") == "changed"
    assert desk.sink.events == []


@pytest.mark.parametrize(
    "change", [{"digest": ""}, {"digest": "0" * 8}, {"tool": "none"}, {"server": "none"}, {"digest": "0" * 64}]
)
async def test_a_form_that_names_something_else_approves_nothing(
    change: dict[str, str], desk: Desk, pins: PinFiles
) -> None:
    await desk.log_in()
    form = await fields(desk, "read") | change
    assert (await desk.post("/servers/approve", **form)).status_code in (400, 409)
    assert (state(pins, "read"), state(pins, "send")) == ("changed", "new")


async def test_a_viewer_sees_no_button_and_approves_nothing(desk: Desk, pins: PinFiles) -> None:
    desk.tokens.add("vic", Role.VIEWER)
    await desk.log_in("ann")
    form = await fields(desk, "read")
    desk.http.cookies.clear()
    await desk.log_in("vic")
    assert "/servers/approve" not in (await desk.http.get("/servers/one", params={"name": SERVER})).text
    assert (await desk.post("/servers/approve", **form)).status_code == 403
    assert state(pins, "read") == "changed"


async def test_nothing_is_approved_that_cannot_be_recorded(desk: Desk, pins: PinFiles) -> None:
    await desk.log_in()
    form = await fields(desk, "read")
    desk.sink.fail = AuditUnavailableError("the disk is full")
    assert (await desk.post("/servers/approve", **form)).status_code == 503
    assert state(pins, "read") == "changed"


async def test_pins_that_cannot_be_read_are_said(desk: Desk, pins: PinFiles) -> None:
    await desk.log_in()
    next(pins.folder.glob("*.json")).write_text("damaged")
    assert (await desk.http.get("/servers")).status_code == 503


async def test_a_probe_is_shown_with_what_was_declared_and_done(desk: Desk) -> None:
    detail = {"tools": {"t": {"net.connect": {"targets": ["x:80"]}}}, "declared": {"t": {"read_only": True}}}
    common: dict[str, Any] = {"call_id": None, "method": None, "server": "local", "session": "p"}
    World(desk.console.trail.state_dir, None).record(
        event(1, "probed", **common, tool=None, outcome="high", detail=detail),
        event(2, "finding", **common, detail={"tool": "t", "severity": "high", "message": "It connects."}),
    )
    await desk.log_in()
    text = (await desk.http.get("/servers/one?name=local")).text
    for shown in ("read only", "net.connect", "x:80", "It connects."):
        assert shown in text
    assert (await desk.http.get("/servers/one?name=nobody")).status_code == 404


async def test_what_servers_say_is_text_alone(desk: Desk) -> None:
    pins = PinFiles(desk.console.trail.state_dir)
    names = [text for text in CORPUS if "\x00" not in text]
    see(pins, *({"name": text, "description": text} for text in names), server=names[0])
    see(pins, *({"name": text, "description": f"{text} {text}"} for text in names), server=names[0])
    await desk.log_in()
    for address in ("/servers", "/servers/one"):
        page = (await desk.http.get(address, params={"name": names[0]})).text
        assert "<script>window" not in page
        assert "<img src=x" not in page
