"""A credential goes where its bindings let it, and a request that would take it elsewhere is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Context, Kind, Message, Principal, Way
from proxy.core.vault import Credential, Filling, Place, Secret
from proxy.errors import VaultError
from proxy.gate.credentials import Credentials, Sent, sent_message, sent_plain
from proxy.wire.mcp import read_head
from tests.support.vault_fixture import FakeVault

HELD = "ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OLD = "ilkph_old_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HERE = Context(Principal("bot"), "api.example.com", target="/", way="sealed")
KEY = Credential(name="key", placeholder=HELD, hosts=("api.example.com", "*.example.org", "10.0.0.1", "::1"))
ALL = (Place.HEADER, Place.PATH, Place.QUERY, Place.BODY)


def credentials(vault: FakeVault) -> Credentials:
    return Credentials(vault, 1 << 20)


def vault_of(**bindings: Any) -> FakeVault:
    return FakeVault((replace(KEY, **bindings),), frozenset({OLD}), {"key": b"the-real-value"})


async def prepare(vault: FakeVault, sent: Sent) -> Filling | None:
    return await credentials(vault).prepare(sent)


def in_header(context: Context = HERE, placeholder: str = HELD) -> Sent:
    return sent_plain(context, read_head([("Authorization", f"Bearer {placeholder}")]), b"")


def call(arguments: Any, tool: str | None = "t", context: Context = HERE) -> Sent:
    method = "tools/call" if tool else "sampling/createMessage"
    value = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": tool, "arguments": arguments}}
    return sent_message(context, read_head([]), Message(Kind.REQUEST, value, method, 1), tool)


async def refusal(vault: FakeVault, sent: Sent) -> VaultError:
    with pytest.raises(VaultError) as told:
        await prepare(vault, sent)
    assert vault.asked == []
    assert "the-real-value" not in str(told.value)
    return told.value


async def test_a_bound_credential_is_fetched_and_does_not_show_itself() -> None:
    filling = await prepare(vault_of(), in_header())
    assert filling is not None
    assert (filling.names, filling.as_text, filling.body) == (("key",), (), None)
    assert filling.head[HELD].reveal() == b"the-real-value"
    assert "the-real-value" not in repr(filling)


@pytest.mark.parametrize(
    "server", ["api.example.com", "api.example.com:8443", "API.example.com", "a.example.org", "10.0.0.1:80", "[::1]:80"]
)
async def test_hosts_fit_as_in_egress_rules(server: str) -> None:
    assert await prepare(vault_of(), in_header(replace(HERE, server=server))) is not None


@pytest.mark.parametrize(
    "server",
    [
        "example.com",
        "xapi.example.com",
        "api.example.com.evil.test",
        "evil.test",
        "example.org",
        "aexample.org",
        "10.0.0.2",
        "[::ffff:10.0.0.1]",
        "api.example.com@evil.test",
        "\u0430pi.example.com",
        "api.example.com\0",
        "",
        "*.example.org",
        "[::2]:80",
    ],
)
async def test_other_hosts_are_refused(server: str) -> None:
    error = await refusal(vault_of(), in_header(replace(HERE, server=server)))
    assert error.reason == "credential_not_bound"
    assert "'key'" in error.detail
    assert "api.example.com" in error.detail


@pytest.mark.parametrize(
    ("bindings", "context", "says"),
    [
        ({"places": (Place.QUERY,)}, HERE, "it stands in a header"),
        ({"agents": ("ops-*", "root")}, HERE, "this agent is 'bot'"),
        ({"tools": ("deploy",)}, HERE, "no call of a tool"),
        ({}, replace(HERE, way="plain"), "not sent over TLS"),
        ({"plain": True}, replace(HERE, way="claimed"), "not sent over TLS"),
        ({"hosts": ()}, HERE, "no host yet"),
    ],
)
async def test_each_binding_counts(bindings: Any, context: Context, says: str) -> None:
    error = await refusal(vault_of(**bindings), in_header(context))
    assert error.reason == "credential_not_bound"
    assert says in error.detail


async def test_bindings_that_fit_let_it_pass() -> None:
    vault = vault_of(plain=True, agents=("bo?",), tools=("dep*",))
    way: Way = "plain"
    sent = replace(in_header(replace(HERE, way=way)), tool="deploy")
    assert await prepare(vault, sent) is not None


@pytest.mark.parametrize("target", [f"/{HELD}", f"/?k={HELD}"])
async def test_path_and_query_are_places(target: str) -> None:
    sent = sent_plain(replace(HERE, target=target), read_head([]), b"")
    assert (await refusal(vault_of(), sent)).reason == "credential_not_bound"
    assert await prepare(vault_of(places=ALL), sent) is not None


async def test_arguments_are_filled_and_keys_are_not() -> None:
    filling = await prepare(vault_of(places=ALL), call({"a": [f"x {HELD}"], HELD: 1}))
    assert filling is not None
    assert filling.body is not None
    value = json.loads(filling.body.reveal())
    assert value["params"] == {"name": "t", "arguments": {"a": ["x the-real-value"], HELD: 1}}
    assert (value["id"], value["method"]) == (1, "tools/call")
    assert filling.arguments[HELD].reveal() == b"the-real-value"
    assert not filling.head


async def test_in_a_body_for_another_host_or_place_it_is_text() -> None:
    elsewhere = replace(HERE, server="llm.example.net")
    for vault, sent in [
        (vault_of(places=ALL), call({"a": HELD}, context=elsewhere)),
        (vault_of(), call({"a": HELD})),
        (vault_of(places=ALL), call({"a": HELD}, tool=None)),
        (vault_of(places=ALL), sent_plain(elsewhere, read_head([]), HELD.encode())),
        (vault_of(places=ALL), sent_plain(HERE, read_head([("Content-Type", "image/png")]), b"\xff" + HELD.encode())),
    ]:
        filling = await prepare(vault, sent)
        assert filling == Filling(as_text=("key",))
        assert vault.asked == []


@pytest.mark.parametrize("bindings", [{"tools": ("deploy",)}, {"agents": ("ops",)}])
async def test_in_a_body_for_its_host_by_another_tool_or_agent_it_is_refused(bindings: Any) -> None:
    for sent in (call({"a": HELD}), sent_plain(HERE, read_head([]), HELD.encode())):
        assert (await refusal(vault_of(places=ALL, **bindings), sent)).reason == "credential_not_bound"


async def test_a_revoked_one_is_refused_in_a_head_and_text_in_a_body() -> None:
    assert (await refusal(vault_of(), in_header(placeholder=OLD))).reason == "credential_revoked"
    filling = await prepare(vault_of(places=ALL), call({"a": OLD}))
    assert filling is not None
    assert filling.names == ()
    filling = await prepare(FakeVault(revoked=frozenset({OLD})), call({"a": OLD}))
    assert filling is not None


@pytest.mark.parametrize("value", [None, b"1234567", "ключ-ключ".encode(), b"two\x01words"])
async def test_a_value_that_cannot_be_had_or_stand_there_refuses(value: bytes | None) -> None:
    vault = vault_of()
    vault.values = {} if value is None else {"key": value}
    with pytest.raises(VaultError, match="'key'") as told:
        await prepare(vault, in_header())
    assert told.value.reason == "credential_unavailable"
    # The agent is not told where values come from.
    assert "its file is gone" not in str(told.value)


async def test_a_value_that_is_no_text_cannot_stand_in_a_body() -> None:
    vault = vault_of(places=ALL)
    vault.values = {"key": b"\xff\xfe\xfd-no-text"}
    with pytest.raises(VaultError, match="cannot stand in a body"):
        await prepare(vault, call({"a": HELD}))


async def test_a_vault_that_nobody_can_read_refuses_what_shows_a_placeholder() -> None:
    vault = FakeVault(damaged=True)
    for sent in (in_header(), call({"a": "ilkph"}), sent_plain(HERE, read_head([]), b"x ilkph")):
        assert (await refusal(vault, sent)).reason == "credential_unavailable"
    assert await prepare(vault, call({"a": "b"})) is None
    assert credentials(vault).known() == frozenset()


async def test_an_unknown_placeholder_is_text() -> None:
    other = HELD.replace("A", "B")
    assert await prepare(vault_of(), in_header(placeholder=other)) is None
    assert await prepare(FakeVault(), in_header()) is None


def test_a_request_without_the_mark_costs_no_look_at_the_vault() -> None:
    vault = vault_of()
    asked = credentials(vault)
    assert not asked.may_show(HERE, read_head([]), b"{}")
    assert asked.may_show(HERE, read_head([]), b"an ilkph")
    assert asked.may_show(replace(HERE, target="/?ilkph"), read_head([]), b"")
    assert asked.may_show(HERE, read_head([("X", "y")]), b"")
    assert not Credentials(None, 1).may_show(HERE, read_head([("X", "ilkph")]), b"ilkph")
    assert vault.looks == 0


async def test_changes_count_from_the_next_request() -> None:
    vault = vault_of()
    asked = credentials(vault)
    await asked.prepare(in_header())
    assert asked.known() == {HELD, OLD}
    vault.held, vault.revoked = (), frozenset({HELD})
    with pytest.raises(VaultError, match="credential_revoked"):
        await asked.prepare(in_header())


def test_which_servers_may_have_a_value() -> None:
    vault = vault_of()
    asked = credentials(vault)
    assert not asked.may_have("api.example.com")
    vault.known = ((KEY, Secret(b"the-real-value")),)
    assert (asked.may_have("api.example.com:443"), asked.may_have("evil.test")) == (True, False)
    vault.held, vault.revoked = (), frozenset({HELD})
    assert asked.may_have("evil.test")
    vault.damaged = True
    assert asked.may_have("evil.test")
    assert not Credentials(None, 1).may_have("evil.test")


def test_a_server_that_a_credential_was_bound_to_before_may_have_its_value() -> None:
    vault = vault_of()
    asked = credentials(vault)
    vault.known = ((KEY, Secret(b"the-real-value")),)
    assert not asked.may_have("evil.test")
    vault.held = (replace(KEY, hosts=("other.example.com",)),)
    assert (asked.may_have("api.example.com:443"), asked.may_have("other.example.com")) == (True, True)


async def test_beside_the_arguments_a_placeholder_is_text() -> None:
    vault = vault_of(places=ALL)
    sent = call({"a": "b"})
    assert sent.message is not None
    params = {**sent.message.params, "_meta": {"note": HELD}}
    message = replace(sent.message, value={**sent.message.value, "params": params})
    assert await prepare(vault, replace(sent, message=message)) == Filling(as_text=("key",))
    assert vault.asked == []


async def test_a_request_that_its_values_would_make_too_large_is_refused() -> None:
    vault = vault_of(places=ALL)
    vault.values["key"] = b"v" * (1 << 16)
    many = " ".join([HELD] * 17)
    for sent in (call({"a": many}), sent_plain(HERE, read_head([]), many.encode()), in_header(placeholder=many)):
        with pytest.raises(VaultError) as told:
            await prepare(vault, sent)
        assert told.value.reason == "credential_unavailable"
        assert "vvv" not in str(told.value)
    assert await prepare(vault, call({"a": [HELD] * 15})) is not None
