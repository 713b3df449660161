"""What a wrapped server gets in place of credentials, and the way to the proxy that puts the real ones in."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.agent.env import NODE_OPTIONS, ProxyEndpoint, change, proxy_url, through_proxy
from proxy.identity.ca import Authority
from proxy.system import run_file
from proxy.vault.variables import server_variables
from proxy.vault.vault_file import VaultFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from proxy.config import Settings
    from proxy.sandbox.server_process import Launch


def placeholders_of(settings: Settings, server: str) -> dict[str, str]:
    """Return the variables of a server and the placeholders in them. Raises ConfigError where the vault is damaged."""
    entries = VaultFile(settings.state_dir).read().credentials
    return server_variables([entry.credential(name) for name, entry in entries.items()], server)


def with_placeholders(
    launch: Launch, variables: Mapping[str, str], settings: Settings, say: Callable[[str], None]
) -> Launch:
    """Return the launch of a server with placeholders in place of what its environment had, and through the proxy."""
    if not variables:
        return launch
    return replace(launch, environ={**change(os.environ, _through_proxy(settings.state_dir, say)), **variables})


def _through_proxy(state_dir: Path, say: Callable[[str], None]) -> dict[str, str | None]:
    running = run_file.read(state_dir)
    if running is None or running.mode != "regular":
        say(
            "interlock run: the server has placeholders in place of credentials, and no proxy runs that puts the real "
            "ones into its requests; start one with `interlock up`"
        )
        return {}
    folder = Authority(state_dir).folder
    ca, bundle, script = (str(folder / name) for name in ("ca.pem", "bundle.pem", "node-proxy.cjs"))
    return through_proxy(ProxyEndpoint(proxy_url(running.listen), ca, bundle, script, os.environ.get(NODE_OPTIONS, "")))
