"""The ways in: addresses to listen on, the proxy that may run there, and how this shell's programs would get to it."""

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

    from proxy.system.run_file import Running


def proxy(running: Running | None, state_dir: Path) -> Iterator[CheckResult]:
    """Look whether a proxy runs on the state folder, and by which policy."""
    if running is None:
        yield ok("proxy", f"none runs on {state_dir}")
    elif running.policy_problem:
        yield fail(
            "proxy", f"process {running.pid} runs by an older policy", "mend the policy: `interlock policy check`"
        )
    else:
        yield ok("proxy", f"process {running.pid} listens on {running.listen}")


def addresses(settings: Settings, running: Running | None) -> Iterator[CheckResult]:
    """Look whether every address that is to be listened on is free, or ours already."""
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
        family, kind, protocol, _, place = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
            trial.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            mend = f"see who it is with `ss -ltnp 'sport = :{port}'`, and end it, or give another {flag}"
            return fail(name, f"another program listens on {address}", mend)
        if error.errno == errno.EACCES:
            return fail(name, f"we may not listen on {address}", f"give {flag} a port above 1023")
        return fail(name, f"nobody can listen on {address}: {error.strerror or error}", f"give another {flag}")
    return ok(name, f"{address} is free")


def environment(settings: Settings, running: Running | None, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Look whether programs started from here go through the proxy and trust it, where they are meant to."""
    url = environ.get("HTTPS_PROXY") or environ.get("https_proxy") or ""
    ours = reached(running.listen if running else settings.listen)
    mend = 'in the agent\'s shell: eval "$(interlock env)", or start it with `interlock exec`'
    if not url.rstrip("/").endswith(ours):
        yield ok("environment", "this shell's programs do not go through the proxy; an agent's should")
        return
    lacking = sorted(_lacking(settings.state_dir, environ))
    if lacking:
        yield fail("environment", f"{', '.join(lacking)} do not lead to the CA, which TLS then fails for", mend)
    elif any(environ.get(name) for name in BYPASS):
        yield warn("environment", "NO_PROXY lets some hosts go around the proxy", mend)
    else:
        yield ok("environment", f"this shell's programs go through {ours} and trust its CA")


def _lacking(state_dir: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Return the variables that should lead programs to the CA and do not."""
    try:
        wanted = Authority(state_dir).look()
    except (ConfigError, OSError):
        return  # that is told of elsewhere
    for name in (*ROOTS[:4], EXTRA[0]):
        try:
            found = holds(Path(environ[name]), wanted)
        except (KeyError, OSError, ValueError):
            found = False
        if not found:
            yield name
