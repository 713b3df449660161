"""The policy page as a place to learn: a draft with its evidence, and why there is none."""

from __future__ import annotations

import html
import re
import time

import pytest

from proxy.console import learning
from proxy.console.policy_editor import digest_of
from proxy.core.approvals import Role
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import POLICY, Desk


@pytest.fixture
def world(desk: Desk) -> World:
    made = World(desk.console.trail.state_dir, None)
    now = time.time() - 60
    made.record(
        *(event(n, time=now + n, arguments={"path": f"/srv/app/{n}"}) for n in range(1, 5)),
        event(5, time=now + 5, agent="bob", arguments={"path": "/opt/x"}),
        event(6, time=now + 6, tool="danger", decision="deny", reason="policy_denied", rule="no-danger"),
        event(7, time=now + 7, tool="send", arguments={"to": "evil"}),
        event(
            8,
            "request_shadowed",
            call_id=None,
            time=now,
            server="docs.example",
            decision="allow",
            shadow_rules=("egress.default",),
        ),
    )
    return made


def editor(text: str) -> str:
    found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", text, re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


async def learn(desk: Desk, **query: str) -> str:
    desk.tokens.add("ann", Role.ADMIN)
    await desk.log_in("ann")
    return (await desk.http.get("/policy", params={"learn": "7d", **query})).text


async def test_a_draft_stands_in_the_editor_and_nothing_is_saved(desk: Desk, world: World) -> None:
    text = await learn(desk)
    draft = editor(text)
    assert "default: deny" in draft
    assert "path_under" in draft
    assert "docs.example" in draft
    assert "Learned from 6 calls: 3 rules, 1 host. Left out: 1 denied" in re.sub(r"\s+", " ", text)
    assert "With this text" in text
    assert desk.console.policy_path.read_text() == POLICY


async def test_each_rule_leads_to_its_calls(desk: Desk, world: World) -> None:
    text = await learn(desk)
    table = text[text.index('id="evidence"') :]
    table = table[: table.index("</table>")]
    linked = set(re.findall(r'calls/([a-z]+-\d{4})"', table))
    assert linked == {*(f"call-{n:04}" for n in (1, 2, 3, 4, 5, 7)), "event-0008"}
    for name in linked:
        assert (await desk.http.get(f"/calls/{name}")).status_code == 200


async def test_one_agent_and_calls_that_are_left_out(desk: Desk, world: World) -> None:
    draft = editor(await learn(desk, agent="ada", **{"except": "call-0007, nothing"}))
    assert "/opt" not in draft
    assert "send" not in draft
    assert "1 that a person marked" in draft


async def test_a_draft_is_saved_as_any_other_text(desk: Desk, world: World) -> None:
    draft = editor(await learn(desk))
    answer = await desk.post("/policy/save", file="policy.yaml", text=draft, base=digest_of(POLICY))
    assert answer.status_code == 303, answer.text
    assert desk.console.policy_path.read_text() == draft


@pytest.mark.parametrize(
    ("query", "words"),
    [({"agent": "nobody"}, "no allowed calls"), ({"except": "x " * 201}, "At most 200 audit ids")],
)
async def test_why_there_is_no_draft(desk: Desk, world: World, query: dict[str, str], words: str) -> None:
    text = await learn(desk, **query)
    assert words in text
    assert editor(text) == POLICY


async def test_more_than_fits_is_refused_and_not_cut_short(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "MAX_EVENTS", 3)
    text = await learn(desk)
    assert "more than 3 calls" in text
    assert editor(text) == POLICY
    monkeypatch.setattr(learning, "MAX_EVENTS", 100)
    monkeypatch.setattr(learning, "MAX_TEXT", 100)
    assert "more than 100 characters" in (await desk.http.get("/policy", params={"learn": "7d"})).text


async def test_another_span_asks_for_nothing(desk: Desk, world: World) -> None:
    assert editor(await learn(desk, learn="7 years")) == POLICY


async def test_what_agents_called_stays_text(desk: Desk) -> None:
    now = time.time()
    calls = [event(n, time=now - 9, tool=f"t{n}", arguments={one: one}) for n, one in enumerate(CORPUS, 1)]
    World(desk.console.trail.state_dir, None).record(*calls)
    text = await learn(desk, agent=CORPUS[0])
    for page in (text, (await desk.http.get("/policy?learn=1h")).text):
        assert not any(one in page for one in CORPUS if "<" in one)
