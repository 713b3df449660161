"""The stop button without a proxy: on the files and the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.commands.halt_control import OwnHalts, open_stop_button
from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens
from proxy.store.halt_file import HaltFile


async def test_where_no_proxy_runs_an_operator_halts_on_the_files(tmp_path: Path) -> None:
    token = OperatorTokens(tmp_path).add("olga")
    async with open_stop_button(Settings(state_dir=tmp_path), token) as button:
        assert isinstance(button, OwnHalts)
        made = await button.halt("why", agent="bot", server=None, tool=None, cut=False)
        assert (made["operator"], made["origin"], made["shared"]) == ("olga", "command", True)
        assert len(HaltFile(tmp_path).in_force()) == 1
        await button.resume("over", [one["halt_id"] for one in await button.in_force()])
    assert HaltFile(tmp_path).in_force() == ()
    with pytest.raises(ConfigError, match="not an operator's token"):
        async with open_stop_button(Settings(state_dir=tmp_path), "ilo_wrong"):
            pass
