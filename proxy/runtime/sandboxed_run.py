"""Chooses the sandbox of a server that `interlock run` starts, and sets it up with a way out through the proxy."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.agent.env import change
from proxy.config import CONFIG_ENV, CONFIG_FILE, config_path
from proxy.errors import ConfigError
from proxy.runtime.server_credentials import hidden_from_servers
from proxy.sandbox.grants import Grants, Surroundings, expand, written_paths
from proxy.sandbox.plan import SandboxPlan, WayOut, changeable_folders, links_on_the_way
from proxy.sandbox.profile import SandboxProfile, binds_hosts, host_fits, profile_hash
from proxy.sandbox.profile_files import files_of, load_profile, resolve
from proxy.sandbox.sandboxed_start import SandboxedStart, SandboxReport
from proxy.sandbox.server_package import is_broad, named_folders, package_of, roots_of
from proxy.sandbox.stand_ins import stand_ins

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.config import Settings
    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.load import ParsedFiles
    from proxy.sandbox.server_process import Launch
    from proxy.sandbox.violations import Violation

AUTO, REQUIRE = "auto", "require"
_RUNTIMES: Final = (
    ("node", re.compile(r"node|npx|npm|pnpm|bunx?|deno|tsx")),
    ("python", re.compile(r"python[0-9.]*|uvx?|pipx")),
)
_HELPERS: Final = (("git", re.compile(r"\bgit\b")), ("browser", re.compile(r"playwright|puppeteer|chrom")))


@dataclass(frozen=True, slots=True)
class ChosenSandbox:
    """The profile that holds for one server, whole; `require` where an incomplete sandbox is an error.

    `files` are those that it was read from.
    """

    profile: SandboxProfile
    name: str
    require: bool = False
    files: tuple[Path, ...] = ()


def choose_sandbox(
    flag: str | None, policy: CompiledPolicy, server: str, command: Sequence[str], parsed: ParsedFiles | None = None
) -> ChosenSandbox | None:
    """Return the sandbox of a server: the policy's, else the one that the flag asks for; None where neither does.

    Raises ConfigError where the flag names another profile than the policy has.
    """
    required = flag is not None and (flag == REQUIRE or flag.startswith(f"{REQUIRE}:"))
    named = None if flag in (None, AUTO, REQUIRE) else str(flag).removeprefix(f"{REQUIRE}:")
    by_policy = policy.sandboxes.for_server(server)
    if by_policy is not None:
        if named is not None:
            raise ConfigError(
                f"the policy has a sandbox for {server!r}, so --sandbox {named} cannot count; write --sandbox alone"
            )
        folder = policy.files[0].parent if policy.files else None
        files = (*policy.files, *files_of(by_policy.extends, folder, parsed))
        return ChosenSandbox(resolve(by_policy, folder, parsed), "policy", required, files)
    if flag is None:
        return None
    if named is not None:
        files = files_of([named], Path.cwd(), parsed)
        return ChosenSandbox(load_profile(named, Path.cwd(), parsed), named, required, files)
    presets = presets_for(command)
    # Clients start servers in the home, or in /: that is nobody's wish to show it.
    here = [] if is_broad(str(Path.cwd()), str(Path.home())) else ["$CWD"]
    own = SandboxProfile(extends=list(presets), read=["$ROOTS", *here], write=["$ROOTS"])
    return ChosenSandbox(resolve(own, None, parsed), "+".join(presets) or "base", required)


def presets_for(command: Sequence[str]) -> tuple[str, ...]:
    """Return the presets that fit a command line."""
    program = Path(command[0]).name
    found = [name for name, pattern in _RUNTIMES if pattern.fullmatch(program)]
    words = " ".join(command)
    return (*found, *(name for name, pattern in _HELPERS if pattern.search(words)))


@dataclass(slots=True)
class SandboxedRun:
    """One sandboxed server. `launch` starts it; `release` lets it begin and says what holds."""

    chosen: ChosenSandbox
    launch: Launch
    command: tuple[str, ...] = ()  # the server's own
    _start: SandboxedStart | None = None
    _grants: Grants = field(default_factory=Grants)
    _way: WayOut = field(default_factory=WayOut)
    _servers: list[asyncio.Server] = field(default_factory=list["asyncio.Server"])
    report: SandboxReport | None = None
    on_refused: Callable[[str, int], None] = lambda _host, _port: None
    on_refused_call: Callable[[Violation], None] | None = None  # of a system call, by seccomp
    bound_hosts: Callable[[str, int], bool] | None = None  # whether the calls in flight let it reach a host
    around: Surroundings | None = None
    withheld: tuple[str, ...] = ()  # what its command line leads to, and the server could have chosen
    supervised: socket.socket | None = None  # our end of the socket by which a supervisor gets to answer for its files

    @property
    def grants(self) -> Grants | None:
        """What the profile grants here; None where that was not needed so far."""
        return self._grants if self._start is not None else None

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor opens files for the server."""
        return self.supervised is not None

    def tell_refused_calls(self, take: Callable[[Violation], None]) -> None:
        """Have `take` called with each system call that seccomp refuses, also with those of the time before."""
        self.on_refused_call = take
        if self._start is not None and self._start.refused is not None:
            self._start.refused.tell(take)

    def lists(self, host: str, port: int) -> bool:
        """Return whether the profile's `network` has a host."""
        hosts = self._grants.hosts
        return hosts is None or host_fits(host, port, hosts)

    def _allows(self, host: str, port: int) -> bool:
        if not self.lists(host, port):
            return False
        # Until the gate is there no call is in flight.
        bound = binds_hosts(self.chosen.profile)
        return not bound or (self.bound_hosts is not None and self.bound_hosts(host, port))

    async def release(self) -> dict[str, Any]:
        """Wait until the sandbox holds and let the server begin, once; return what events say of it.

        Raises SandboxRefusedError.
        """
        if self._start is not None and self.report is None:
            self.report = await self._start.release(self._serve)
            if self._start.refused is not None and self.on_refused_call is not None:
                self._start.refused.tell(self.on_refused_call)
        return self.detail()

    @property
    def confines(self) -> bool:
        """Whether it refuses anything, and not only records."""
        return self._start is not None

    @property
    def absent(self) -> tuple[str, ...]:
        """What was to be written and is not granted, since it does not exist."""
        return self._grants.absent

    def detail(self) -> dict[str, Any]:
        """Return what each call's event says of the sandbox."""
        profile = self.chosen.profile
        found: dict[str, Any] = {
            "mode": profile.mode or "enforce",
            "profile": self.chosen.name,
            "hash": profile_hash(profile)[:16],
        }
        if self.report is not None:
            found |= {"landlock": self.report.landlock, "namespaces": self.report.namespaces}
            if self.report.missing:
                found["missing"] = list(self.report.missing)
        return found

    def update(self, profile: SandboxProfile) -> tuple[list[str], list[str]]:
        """Put a new profile in force as far as that can be: for the next connection.

        Return the fields that count from now on, and those that count once the server is started again.
        """
        old = self.chosen.profile
        fields = [name for name in type(old).model_fields if name not in ("description", "extends")]
        changed = [name for name in fields if getattr(old, name) != getattr(profile, name)]
        now = ["network"] if "network" in changed and self._leads_to(profile.hosts) else []
        if now:
            self._grants = replace(self._grants, hosts=profile.hosts)
            self.chosen = replace(self.chosen, profile=old.model_copy(update={"network": profile.network}))
        return now, [name for name in changed if name not in now]

    def _leads_to(self, hosts: tuple[str, ...] | None) -> bool:
        """Return whether the ports that lead out of the sandbox are enough for other hosts than those at its start."""
        if self._way.ports is None:
            return False
        if hosts == ():
            return True
        from proxy.runtime.sandbox_network import local_ports, ports_of  # noqa: PLC0415  only servers with a network

        if hosts is None or any(entry.endswith(":*") for entry in hosts):
            return self._way.firewall is not None and not local_ports(hosts)
        if set(local_ports(hosts)) - set(local_ports(self.chosen.profile.hosts)):
            return False
        return self._way.firewall is not None or set(ports_of(hosts)) <= set(self._way.ports)

    def close(self) -> None:
        """Close the ways out."""
        for server in self._servers:
            server.close()
        if self._start is not None and self._start.refused is not None:
            self._start.refused.close()

    async def _serve(self, sockets: list[socket.socket]) -> None:
        from proxy.confine.forwarder import serve_sandbox  # noqa: PLC0415  only servers with a network need it
        from proxy.runtime.sandbox_network import local_ports  # noqa: PLC0415

        assert self._way.proxy is not None
        hosts = self._grants.hosts
        self._servers = await serve_sandbox(
            self._way.proxy,
            sockets,
            self._allows,
            lambda host, port: self.on_refused(host, port),  # noqa: PLW0108  set once the gate is there
            host_ports=local_ports(hosts),
            redirected=self._way.firewall is not None,
        )


def prepare_sandbox(
    chosen: ChosenSandbox,
    launch: Launch,
    settings: Settings,
    config: Path | None,
    variables: Mapping[str, str] | None = None,
) -> SandboxedRun:
    """Plan the sandbox of a server, which finds `variables` in its environment. Raises ConfigError."""
    around, withheld = _find_surroundings(chosen.profile, launch)
    home, cwd = around.home, around.cwd
    if not chosen.profile.enforced:
        return SandboxedRun(chosen, launch, launch.argv, around=around)
    way = find_way_out(chosen.profile.hosts, settings)
    try:
        grants = _with_settings_made(expand(chosen.profile, around, os.environ), config)
    except (ValueError, OSError) as error:
        raise ConfigError(f"the sandbox profile {chosen.name!r} cannot be applied: {error}") from error
    supervised = chosen.profile.binds_files or chosen.profile.supervise
    ours, theirs = socket.socketpair() if supervised else (None, None)
    plan = SandboxPlan(
        launch,
        _without_own(grants, chosen, settings, config),
        cwd,
        package=around.package,
        require=chosen.require,
        supervisor=theirs.detach() if theirs is not None else None,
        ports=way.ports,
        dns_port=way.dns_port,
        firewall=way.firewall,
        given={**stand_ins(home, os.geteuid(), os.getegid()), **way.given},
        environ={**change({**grants.env, "TMPDIR": "/tmp"}, way.environ), **(variables or {})},  # noqa: S108  its own
    )
    start = SandboxedStart(plan)
    return SandboxedRun(
        chosen, start.launch, launch.argv, start, grants, way, around=around, supervised=ours, withheld=withheld
    )


def _find_surroundings(profile: SandboxProfile, launch: Launch) -> tuple[Surroundings, tuple[str, ...]]:
    """Return what a profile's variables stand for, and what they do not: the server could have chosen it."""
    home, cwd = str(Path.home()), str(Path.cwd())
    package, roots = package_of(launch.program, launch.argv, home, cwd), roots_of(launch.argv, home, cwd)
    around = Surroundings(home, cwd, roots, package=package, path=os.environ.get("PATH", os.defpath))
    try:
        writable = changeable_folders(written_paths(profile, around))
    except (ValueError, OSError) as error:
        raise ConfigError(f"the sandbox profile cannot be applied: {error}") from error
    own = package_of(launch.program, launch.argv, home, cwd, writable)
    found = (*package, *named_folders(launch.argv, cwd))
    return replace(around, package=own), tuple(path for path in found if path not in (*own, *roots))


def find_way_out(hosts: tuple[str, ...] | None, settings: Settings) -> WayOut:
    """Return how a server reaches its hosts. Raises ConfigError where no proxy runs."""
    if hosts == ():
        return WayOut()
    from proxy.runtime.sandbox_network import way_out  # noqa: PLC0415  slow to import, and most servers need no network

    return way_out(hosts, settings)


def _with_settings_made(grants: Grants, config: Path | None) -> Grants:
    """Return grants with an empty settings file made in the working folder, where the server could make one.

    The next start would read it, and with it the policy and the sandbox that it names. Raises OSError.
    """
    path = os.path.realpath(CONFIG_FILE)
    named = config is not None or bool(os.environ.get(CONFIG_ENV))
    if named or not _is_in_any(path, map(os.path.realpath, grants.write)) or not os.access(Path(path).parent, os.W_OK):
        return grants
    handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    found = os.fstat(handle)
    os.close(handle)
    # Also one that is empty already: it is another server's, and must not go while this one could make it.
    made = () if found.st_size else ((path, found.st_ino),)
    return replace(grants, made=(*grants.made, *made))


def _refuse_links(paths: Iterable[Path], grants: Grants) -> None:
    """Raise ConfigError for a link that the server could replace: a link cannot be covered."""
    writable = [os.path.realpath(each) for each in grants.write]
    for path in paths:
        for link in links_on_the_way(str(path.absolute())):
            if _is_in_any(str(Path(link).parent.resolve()), writable):
                raise ConfigError(
                    f"{link} is a link, and the server may write its folder: it could put its own {path.name} there; "
                    f"name {path.resolve()} instead"
                )


def _is_in_any(path: str, folders: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)


def _without_own(grants: Grants, chosen: ChosenSandbox, settings: Settings, config: Path | None) -> Grants:
    """Return grants without what confines the server: its policy, profile, settings and the proxy's state."""
    own = [settings.state_dir, settings.policy, config_path(config, os.environ), *chosen.files]
    _refuse_links([path for path in own if path is not None], grants)
    paths = [str(path.resolve()) for path in own if path is not None and path.exists()]
    # A server that needs a credential has a placeholder of it.
    paths += hidden_from_servers(settings.state_dir)
    # As the view has them: a folder may be granted by a link.
    shown = [os.path.realpath(path) for path in (*grants.read, *grants.write)]
    inside = [path for path in paths if _is_in_any(path, shown)]
    return replace(grants, hidden=tuple(dict.fromkeys((*grants.hidden, *inside))))
