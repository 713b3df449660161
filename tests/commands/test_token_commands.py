"""What the commands on agents and on operators share."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.commands.token_commands import add_name, list_names, revoke_name
from proxy.errors import ConfigError
from proxy.identity.token_file import AgentTokens


def test_a_token_is_printed_alone_so_that_it_can_be_piped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = AgentTokens(tmp_path)
    add_name(tokens, "bot", "keep it.")
    out, err = capsys.readouterr()
    assert tokens.holder(out.removesuffix("\n")) == "bot"
    assert err == "Agent bot added. Its token is shown only now; keep it.\n"


def test_a_name_is_gone_from_the_list_once_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = AgentTokens(tmp_path)
    tokens.add("bot")
    list_names(tokens, as_json=False)
    assert "bot" in capsys.readouterr().out
    revoke_name(tokens, "bot")
    assert capsys.readouterr().err == "Agent bot revoked.\n"
    list_names(tokens, as_json=False)
    assert "bot" not in capsys.readouterr().out
    with pytest.raises(ConfigError):
        revoke_name(tokens, "bot")
