"""What a wrapped server gets in place of credentials, and the way to the proxy that puts the real ones in."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.agent.env import NODE_OPTIONS, ProxyEndpoint, change, proxy_url, through_proxy
from proxy.identity.ca import Authority
from proxy.system import run_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from proxy.config import Settings
    from proxy.sandbox.server_process import Launch

VAULT: Final = "vault.json"


def has_vault(state_dir: Path) -> bool:
    """Return whether there may be credentials: also where that cannot be looked up."""
    try:
        (state_dir / VAULT).lstat()
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def hidden_from_servers(state_dir: Path) -> tuple[str, ...]:
    """Return the folders and files with the values of credentials. Raises ConfigError."""
    if not has_vault(state_dir):
        return ()
    from proxy.vault.source_files import hidden_sources  # noqa: PLC0415  as above

    return tuple(path for some in hidden_sources(state_dir) for path in some)


def placeholders_of(settings: Settings, server: str) -> dict[str, str]:
    """Return the variables of a server and the placeholders in them. Raises ConfigError where the vault is damaged."""
    if not has_vault(settings.state_dir):
        return {}
    # A hundredth of a second, which most servers need not wait for.
    from proxy.vault.variables import server_variables  # noqa: PLC0415
    from proxy.vault.vault_file import VaultFile  # noqa: PLC0415

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
