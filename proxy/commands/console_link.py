"""One-time links to the console, for `interlock console` and for what `interlock up` prints."""

from __future__ import annotations

from pathlib import Path

from proxy.commands.review import find_token
from proxy.console.links import OneTimeLinks, link_url
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens
from proxy.system.run_file import RunningProxy


def make_link(running: RunningProxy, state_dir: Path, token_file: Path | None) -> str | None:
    """Return a link for the operator whose token is found; None where none is. Raises ConfigError on a wrong one."""
    try:
        token = find_token(state_dir, token_file)
    except ConfigError:
        if token_file is not None:
            raise
        return None
    operator = OperatorTokens(state_dir).holder(token)
    if operator is None:
        raise ConfigError("this is not an operator's token of this state folder; see `interlock operators list`")
    assert running.console is not None
    return link_url(running.console, OneTimeLinks(state_dir).make(operator))
