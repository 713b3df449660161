"""Checks of the running proxy, its listen addresses, and this shell's proxy variables."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.agent.env import BYPASS, EXTRA, ROOTS, reached
from proxy.config import Settings
from proxy.doctor.findings import CheckResult, fail, ok, warn
from proxy.errors import ConfigError
from proxy.identity.ca import Authority, holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.system.run_file import RunningProxy


def proxy(running: RunningProxy | None, state_dir: Path) -> Iterator[CheckResult]:
    if running is None:
        yield ok("proxy", f"no proxy runs on {state_dir}")
    elif running.policy_problem:
        said = f"process {running.pid} uses an older policy than the one on disk"
        yield fail("proxy", said, "correct the policy: `interlock policy check`")
    else:
        yield ok("proxy", f"process {running.pid} listens on {running.listen}")


def addresses(settings: Settings, running: RunningProxy | None) -> Iterator[CheckResult]:
    """Check that every listen address is free, or already the running proxy's."""
    taken = {getattr(running, name, None) for name in ("listen", "operator_listen", "health")} if running else set()
    for name in Settings.model_fields:
        address = getattr(settings, name)
        if name.endswith("listen") and isinstance(address, str) and ":" in address:
            yield ok(name, f"{address} is the running proxy's") if address in taken else _free(name, address)


def _free(name: str, address: str) -> CheckResult:
    host, _, port = address.rpartition(":")
    flag = f"--{name.replace('_', '-')}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address_to_bind = found[0]
        with socket.socket(family, kind, protocol) as trial:
            # As the proxy does: without it, connections of a proxy that just stopped would count as a listener.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address_to_bind)
            trial.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            mend = f"find it with `ss -ltnp 'sport = :{port}'` and stop it, or give another {flag}"
            return fail(name, f"another program listens on {address}", mend)
        if error.errno == errno.EACCES:
            return fail(name, f"this user may not listen on {address}", f"give {flag} a port above 1023")
        return fail(name, f"cannot listen on {address}: {error.strerror or error}", f"give another {flag}")
    return ok(name, f"{address} is free")


def environment(settings: Settings, running: RunningProxy | None, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check whether programs started from this shell go through the proxy and trust its CA."""
    url = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    ours = reached(running.listen if running else settings.listen)
    mend = 'in the agent\'s shell: eval "$(interlock env)", or start it with `interlock exec`'
    if not url.rstrip("/").endswith(ours):
        yield ok("environment", "programs of this shell do not use the proxy; an agent's should")
        return
    if lacking := sorted(_lacking(settings.state_dir, environ)):
        yield fail("environment", f"{', '.join(lacking)} do not name the CA, so TLS fails", mend)
    elif any(environ.get(name) for name in BYPASS):
        yield warn("environment", "NO_PROXY lets some hosts bypass the proxy", mend)
    else:
        yield ok("environment", f"programs of this shell use {ours} and trust its CA")


def _lacking(state_dir: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that should name a file with the CA and do not."""
    try:
        wanted = Authority(state_dir).look()
    except (ConfigError, OSError):
        return  # the check of the CA reports it
    for name in (*ROOTS[:4], EXTRA[0]):
        try:
            found = holds(Path(environ[name]), wanted)
        except (KeyError, OSError, ValueError):
            found = False
        if not found:
            yield name
