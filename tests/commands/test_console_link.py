"""One-time links for the operator whose token is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.commands.console_link import make_link
from proxy.console.links import OneTimeLinks
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens
from proxy.system.run_file import RunningProxy

RUNNING = RunningProxy(1, "127.0.0.1:1", "regular", "c", "p", "v", 0.0, console="http://127.0.0.1:8090")


@pytest.fixture(autouse=True)
def no_token_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_OPERATOR_TOKEN", raising=False)


def test_a_link_is_for_the_first_operator_or_the_one_whose_token_is_given(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    (tmp_path / "bob").write_text(tokens.add("bob"))
    for file, operator in ((None, "operator"), (tmp_path / "bob", "bob")):
        link = make_link(RUNNING, tmp_path, file)
        assert link is not None
        address, _, secret = link.partition("#")
        assert address == "http://127.0.0.1:8090/login"
        assert OneTimeLinks(tmp_path).take(secret) == operator


def test_without_a_token_there_is_no_link(tmp_path: Path) -> None:
    assert make_link(RUNNING, tmp_path, None) is None
    with pytest.raises(ConfigError, match="gone"):
        make_link(RUNNING, tmp_path, tmp_path / "gone")


def test_a_token_of_no_operator_makes_no_link(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("ilo_wrong")
    with pytest.raises(ConfigError, match="not an operator's token"):
        make_link(RUNNING, tmp_path, tmp_path / "wrong")
