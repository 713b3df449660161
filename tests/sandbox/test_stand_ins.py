"""The accounts and hosts that a sandboxed server sees in place of the machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.sandbox.stand_ins import STAND_INS, stand_ins


@pytest.mark.parametrize(("user", "home"), [(0, "/root"), (1234, "/home/me")])
def test_a_server_finds_who_it_runs_as_and_no_other_account(monkeypatch: pytest.MonkeyPatch, user: int, home: str):
    monkeypatch.setenv("USER", "me")
    lines = [line.split(":") for line in stand_ins(home, user, user)["/etc/passwd"].splitlines()]
    assert all(len(fields) == 7 for fields in lines)
    assert [fields[5] for fields in lines if fields[2] == str(user)] == [home]
    assert {fields[2] for fields in lines} == {"0", "65534", str(user)}


@pytest.mark.parametrize("name", ["me:x:0:0", "a\nroot2:x:0:0", ""])
def test_a_name_cannot_add_an_account(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv("USER", name)
    text = stand_ins("/home/a:b\nc", 1234, 1234)["/etc/passwd"]
    assert "user:x:1234:1234::/:/bin/sh" in text.splitlines()
    assert len(text.splitlines()) == 3


def test_a_link_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    assert set(stand_ins("/h", 1, 1)) == {path for path in STAND_INS if Path(path).is_file()}
    monkeypatch.setattr(os.path, "islink", lambda _: True)
    assert stand_ins("/h", 1, 1) == {}
