"""The agents page."""

from __future__ import annotations

import time

import pytest

from proxy.core.approvals import Role
from proxy.identity.token_file import AgentTokens
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import Desk


@pytest.fixture
def world(desk: Desk) -> World:
    return World(desk.console.trail.state_dir, None)


async def test_agents_and_those_that_only_have_a_token_are_listed(desk: Desk, world: World) -> None:
    now = time.time()
    world.record(event(1, time=now - 60, agent="ada"), event(2, time=now - 50, agent="bob", decision="deny"))
    AgentTokens(world.state_dir).add("eve")
    await desk.log_in()
    text = (await desk.http.get("/agents")).text
    listed, _, quiet = text.partition("did not call")
    assert ">ada<" in listed
    assert ">bob<" in listed
    assert ">eve<" in quiet
    assert (await desk.http.get("/agents?since=9y")).status_code == 400


async def test_one_agent_has_its_sessions_and_nobody_elses(desk: Desk, world: World) -> None:
    now = time.time()
    world.record(
        event(1, time=now - 60, agent="a*", session="s-1", tool="first"),
        event(2, time=now - 50, agent="a*", session="s-1", tool="second", decision="deny", rule="no-second"),
        event(3, time=now - 40, agent="abc", session="s-2", tool="other"),
    )
    await desk.log_in()
    text = (await desk.http.get("/agents/one", params={"name": "a*"})).text
    assert text.index(">first<") < text.index(">second<")
    assert "no-second" in text
    assert ">other<" not in text.partition("<main")[2]
    assert "s-1" in text


@pytest.mark.parametrize("name", ["", "nobody", "x" * 300])
async def test_an_agent_that_there_is_not_is_not_found(name: str, desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.http.get("/agents/one", params={"name": name})).status_code == 404


async def test_names_are_text_alone_and_lead_to_their_page(desk: Desk, world: World) -> None:
    now = time.time()
    world.record(
        *(event(number, time=now - 9, agent=text, tool=text, session=text) for number, text in enumerate(CORPUS))
    )
    await desk.log_in()
    pages = [await desk.http.get("/agents")]
    pages += [await desk.http.get("/agents/one", params={"name": text}) for text in CORPUS if "\x00" not in text]
    for page in pages:
        assert page.status_code == 200
        assert "<script>window" not in page.text
        assert "<img src=x" not in page.text


async def test_an_approver_halts_an_agent_and_resumes_it_with_a_reason(desk: Desk, world: World) -> None:
    world.record(event(1, time=time.time() - 9, agent="a*"))
    await desk.log_in()
    assert (await desk.post("/agents/halt", name="a*", reason="")).status_code == 400
    assert (await desk.post("/agents/halt", name="a*", reason="<b>odd", cut="yes")).status_code == 303
    (halt,) = desk.console.halts.in_force()
    # A star in a name stands for itself: nobody else is halted.
    assert (halt["agent"], halt["cut"], halt["operator"], halt["origin"]) == ("a[*]", True, "ann", "console")
    page = (await desk.http.get("/agents/one", params={"name": "a*"})).text
    assert "&lt;b&gt;odd" in page
    assert (await desk.post("/agents/resume", name="a*", halt=halt["halt_id"], reason="fixed")).status_code == 303
    assert desk.console.halts.in_force() == []
    assert [kind for kind in desk.sink.kinds() if kind in ("halted", "resumed")] == ["halted", "resumed"]
    assert (await desk.post("/agents/resume", name="a*", halt=halt["halt_id"], reason="again")).status_code == 404


async def test_a_viewer_halts_nobody(desk: Desk, world: World) -> None:
    world.record(event(1, time=time.time() - 9, agent="bot"))
    desk.tokens.add("vic", Role.VIEWER)
    await desk.log_in("vic")
    assert 'id="halt"' not in (await desk.http.get("/agents/one", params={"name": "bot"})).text
    assert (await desk.post("/agents/halt", name="bot", reason="x")).status_code == 403
    assert (await desk.post("/agents/resume", name="bot", halt="x", reason="x")).status_code == 403
    assert desk.console.halts.in_force() == []
