"""The credentials page, and revoking one on it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proxy.console.credentials_page import count_uses
from proxy.core.approvals import Role
from proxy.errors import AuditUnavailableError
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, CommandSource, Entry, EnvSource, FileSource, Source, VaultFile
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import Desk

VALUE = "the-value-that-no-page-shows"


def add(desk: Desk, name: str, source: Source, **bindings: tuple[str, ...]) -> str:
    """Add a credential; return its placeholder."""
    bound = Bindings(**{"hosts": ("api.example.com",), **bindings})
    entry = Entry(placeholder=make(name), source=source, bindings=bound, added=1.0)
    VaultFile(desk.console.trail.state_dir).add(name, entry)
    return entry.placeholder


def names(desk: Desk) -> list[str]:
    return list(VaultFile(desk.console.trail.state_dir).read().credentials)


async def test_bindings_sources_states_and_uses_are_shown_and_no_value(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(VALUE)
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    monkeypatch.setenv("SET_HERE", VALUE)
    add(desk, "good", FileSource(path=str(tmp_path / "secret")), tools=("create_*",), agents=("bot",))
    add(desk, "gone", FileSource(path="/no/such/file"))
    add(desk, "unset", EnvSource(variable="NOT_SET_HERE"))
    add(desk, "set", EnvSource(variable="SET_HERE"))
    ran = tmp_path / "ran"
    add(desk, "command", CommandSource(argv=("touch", str(ran))))
    now = time.time()
    World(desk.console.trail.state_dir, None).record(
        event(1, time=now - 9, detail={"credentials": ["good"]}),
        event(2, time=now - 8, detail={"credentials": ["good"]}),
        event(
            3, "credential_used", time=now - 7, call_id=None, method=None, tool=None, detail={"credentials": ["gone"]}
        ),
    )
    await desk.log_in()
    text = (await desk.http.get("/credentials")).text
    cards = {card.partition(">")[2].split()[0]: card for card in text.split('<h2 id="credential-')[1:]}
    rows = {name: cards[name].partition("</article>")[0] for name in names(desk)}
    assert "<dt>Tools</dt><dd>create_*</dd>" in rows["good"]
    assert "<dt>Agents</dt><dd>bot</dd>" in rows["good"]
    assert "used 2 times" in rows["good"]
    assert "api.example.com" in rows["good"]
    assert "the file /no/such/file cannot be read" in rows["gone"]
    assert "used 1 time," in rows["gone"]
    assert "the variable NOT_SET_HERE is not set" in rows["unset"]
    assert "unavailable" not in rows["good"] + rows["set"] + rows["command"]
    assert VALUE not in text
    assert not ran.exists()


async def test_an_admin_revokes_what_the_page_showed_and_that_is_recorded(desk: Desk) -> None:
    placeholder = add(desk, "gh", EnvSource(variable="X"))
    desk.tokens.add("root", Role.ADMIN)
    await desk.log_in("root")
    desk.sink.events.clear()
    for wrong in ({"name": "gh", "placeholder": make("gh")}, {"name": "other", "placeholder": placeholder}, {}):
        assert (await desk.post("/credentials/revoke", **wrong)).status_code == 409
    assert (names(desk), desk.sink.events) == (["gh"], [])
    answer = await desk.post("/credentials/revoke", name="gh", placeholder=placeholder)
    assert answer.status_code == 303
    assert names(desk) == []
    (recorded,) = desk.sink.events
    assert (recorded.kind, recorded.detail["credential"], recorded.detail["operator"]) == (
        "credential_removed",
        "gh",
        "root",
    )
    assert "Revoked: gh." in (await desk.http.get(answer.headers["location"])).text


async def test_revoking_does_not_wait_for_the_trail(desk: Desk) -> None:
    placeholder = add(desk, "gh", EnvSource(variable="X"))
    desk.tokens.add("root", Role.ADMIN)
    await desk.log_in("root")
    desk.sink.fail = AuditUnavailableError("the disk is full")
    assert (await desk.post("/credentials/revoke", name="gh", placeholder=placeholder)).status_code == 303
    assert names(desk) == []


async def test_who_is_no_admin_sees_no_button_and_revokes_nothing(desk: Desk) -> None:
    placeholder = add(desk, "gh", EnvSource(variable="X"))
    await desk.log_in("ann")  # an approver
    assert "/credentials/revoke" not in (await desk.http.get("/credentials")).text
    assert (await desk.post("/credentials/revoke", name="gh", placeholder=placeholder)).status_code == 403
    assert names(desk) == ["gh"]


async def test_a_vault_that_cannot_be_read_is_said(desk: Desk) -> None:
    add(desk, "gh", EnvSource(variable="X"))
    file = VaultFile(desk.console.trail.state_dir)
    file.path.write_text("{")
    desk.tokens.add("root", Role.ADMIN)
    await desk.log_in("root")
    page = await desk.http.get("/credentials")
    assert page.status_code == 200
    assert "is damaged" in page.text
    assert (await desk.post("/credentials/revoke", name="gh", placeholder="x")).status_code == 503
    assert file.path.read_text() == "{"


async def test_without_credentials_the_page_says_how_to_add_one(desk: Desk) -> None:
    await desk.log_in()
    assert "interlock vault add" in (await desk.http.get("/credentials")).text


async def test_what_others_wrote_is_text_alone(desk: Desk) -> None:
    for number, text in enumerate(CORPUS):
        printable = "".join(each for each in text if each.isprintable()) or "x"
        add(desk, f"n{number}", FileSource(path=text.replace("\0", "") or "x"), tools=(printable,), agents=(printable,))
    await desk.log_in()
    page = (await desk.http.get("/credentials")).text
    assert "<script>window" not in page
    assert "<img src=x" not in page


def test_uses_are_counted_where_they_were_let_through() -> None:
    used = {"time": 2.0, "decision": "allow", "detail": {"credentials": ["a", "b"]}}
    other = [{"detail": None}, {"detail": {"credentials": "a"}}, {"detail": {"credentials": []}}, {}]
    refused = {"time": 9.0, "decision": "deny", "detail": {"credentials": ["a"]}}
    assert count_uses([used, {**used, "time": 1.0}, refused, *other]) == {"a": (2, 2.0), "b": (2, 2.0)}
