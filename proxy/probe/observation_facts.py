"""Derives the facts of an observation that rules refer to. Pure."""

from __future__ import annotations

import ipaddress
import math
import posixpath
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.probe.declared_scope import DeclaredScope, is_under
from proxy.probe.declared_words import split_words
from proxy.trace.capability import Capability, Observation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.probe.canary import Canary, CanaryWatch

SHELLS = frozenset({"sh", "dash", "bash", "zsh", "busybox"})
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  names, not places to write
FOREIGN_ACTIONS = frozenset({"ptrace", "process_vm_readv", "process_vm_writev", "kill", "pidfd_getfd"})
INSIDES = re.compile(r"/proc/[0-9]+/(?:task/[0-9]+/)?(?:mem|maps|environ|(?:fd|root|cwd|map_files)(?:/.*)?)")
PROCESS = re.compile(r"/proc/([0-9]+|self|thread-self)/")
SIGNALLED = re.compile(r"([0-9]+), ")
# Where distributions and Node's installers put npm: nowhere that a server may write.
SCRIPTS = re.compile(r"/(?:usr|opt|root/\.nvm|home/[^/]+/\.nvm)/(?:.*/)?(npm|npx)(?:-cli\.js)?")
BROWSERS = frozenset({"chromium", "chrome", "google-chrome", "chrome-headless-shell", "headless_shell", "firefox"})
LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
# From which length a label without hyphens carries data, whatever its letters, and from which one that mixes
# digits and letters; the length and the number of all labels before the domain.
LABEL, MIXED_LABEL, SUBDOMAIN, LABELS = 30, 18, 60, 6
ENTROPY = 3.0
# So many names of one domain that nobody asked for are a message in pieces.
MANY_NAMES = 8
# Who says one of these tells about the machine it runs on.
HARDWARE = frozenset(
    {
        *("hardware", "bios", "dmi", "motherboard", "vendor", "manufacturer", "hypervisor", "virtualization"),
        *("inventory", "sysinfo", "specs", "specifications"),
    }
)
# Words of commands that name no server.
NO_NAME = frozenset(
    {"mcp", "server", "python", "python3", "node", "npx", "uvx", "uv", "run", "py", "js", "main", "index"}
)
SERVICE = 4  # a shorter name of a service may be any word
UPLOADS = (b"POST ", b"PUT ", b"PATCH ")
CODE = (".py", ".pyc", ".js", ".mjs", ".cjs")
MISSING = ("ENOENT", "ENOTDIR", "ENXIO")


@dataclass(frozen=True, slots=True)
class ProbeObservation:
    """An observation with the call during which it was made (None: at start-up or at the end), and the program."""

    observation: Observation
    call: int | None
    program: str = ""
    ancestors: tuple[str, ...] = ()  # the programs that started it, the nearest first


@dataclass(slots=True)
class RunContext:
    home: str
    folder: str  # the probe's own, where no server has business
    cwd: str = "/"  # the server's
    canaries: dict[str, Canary] = field(default_factory=dict)  # by absolute path
    watch: CanaryWatch | None = None
    names: dict[str, str] = field(default_factory=dict)  # the host of each address
    pids: set[int] = field(default_factory=set)  # every process of the server
    programs: set[str] = field(default_factory=set)  # the files that were executed to start it
    ports: set[str] = field(default_factory=set)  # that the server itself listens on
    sockets: set[str] = field(default_factory=set)  # unix sockets that it listens on
    many: set[str] = field(default_factory=set)  # domains of which it looked up many names
    connected: set[int | None] = field(default_factory=set)  # the calls during which it connected to another machine
    code: set[str] = field(default_factory=set)  # the folders with code that it loaded, and those above them
    local_names: frozenset[str] = LOCAL_NAMES

    def tilde(self, path: str) -> str:
        """Return a path with the home written as a tilde."""
        return f"~{path[len(self.home) :]}" if is_under(path, [self.home]) else path

    def host(self, peer: str) -> str:
        """Return the host of a peer `host:port`; by name, where the address was made up for one."""
        address = peer.rpartition(":")[0].strip("[]") or peer
        return self.names.get(address, address)

    def target(self, observation: Observation) -> str:
        """Return what an observation was about, the same in every run."""
        if observation.name is not None:
            return observation.name
        if observation.peer is not None:
            port = observation.peer.rpartition(":")[2]
            return f"{self.host(observation.peer)}:{port}"
        return self.tilde(observation.path) if observation.path else " ".join(observation.argv)


def facts(record: ProbeObservation, scope: DeclaredScope, context: RunContext) -> frozenset[str]:
    observation = record.observation
    found = {
        "startup": record.call is None,
        "read_only": scope.read_only,
        "network": scope.network,
        "executes": scope.executes,
        "fetching": record.call is None and scope.launcher,
        "foreign_process": _is_foreign(observation, context),
        "own_process": _is_own(observation, context),
        "sought": was_sought(observation),
        "connects": record.call in context.connected,
        "hardware": not HARDWARE.isdisjoint(scope.words) or {"system", "information"} <= scope.words,
        "by_browser": not BROWSERS.isdisjoint(record.ancestors),
        "canary_sent": bool(canaries_sent(observation, scope, context)),
    }
    if observation.capability is Capability.IPC_UNIX:
        found |= {"own_socket": observation.path in context.sockets and observation.action != "listen"}
    if observation.capability in (Capability.NET_CONNECT, Capability.NET_DNS):
        found |= _net_facts(observation, scope, context)
    elif observation.capability in (Capability.PROC_EXEC, Capability.EXEC_FILELESS):
        found |= _exec_facts(record, scope, context)
    elif observation.path is not None:
        found |= _path_facts(observation.path, scope, context)
    return frozenset(name for name, holds in found.items() if holds)


def was_sought(observation: Observation) -> bool:
    """Return whether a file was only looked for, or is not there; or a program is not."""
    if observation.capability is Capability.PROC_EXEC:
        return observation.error in MISSING
    return observation.capability is Capability.FS_READ and (
        observation.action == "look" or observation.error in MISSING
    )


def canaries_sent(observation: Observation, scope: DeclaredScope, context: RunContext) -> tuple[Canary, ...]:
    """Return the canaries in what was sent, except those in files that a network tool was asked to handle."""
    if context.watch is None or not (observation.data or observation.name):
        return ()
    found = context.watch.find(observation.data + b" " + (observation.name or "").encode())
    handled = {canary.source for path, canary in context.canaries.items() if is_under(path, scope.named)}
    return tuple(canary for canary in found if not (scope.network and canary.source in handled))


def _net_facts(observation: Observation, scope: DeclaredScope, context: RunContext) -> dict[str, bool]:
    host = (observation.name or context.host(observation.peer or "")).lower().rstrip(".")
    port = (observation.peer or "").rpartition(":")[2]
    local = _is_local(host, context)
    named = any(host == each or host.endswith(f".{each}") for each in (*scope.hosts, *scope.granted_hosts))
    asks = observation.capability is Capability.NET_DNS
    return {
        "remote": not local,
        # The resolver, and what the server listens on itself, are no place to send data to.
        "loopback": local and not asks and port not in context.ports | {"53"},
        "hosts_named": bool(scope.hosts),
        "host_named": named or _is_called_after(host, scope),
        "hinted": scope.hinted and not _uploads(observation, scope),
        "data_in_name": asks and not named and (carries_data(host) or domain(host) in context.many),
    }


def _is_called_after(host: str, scope: DeclaredScope) -> bool:
    """Return whether a tool or its server has the name of the service: `slack_post_message` speaks to slack.com."""
    name = domain(host).partition(".")[0]
    return len(name) >= SERVICE and name in scope.words


def _uploads(observation: Observation, scope: DeclaredScope) -> bool:
    """Return whether something is sent that belongs to the caller: a body, or what an argument says."""
    data = observation.data
    return data.startswith(UPLOADS) or any(text.encode() in data for text in scope.texts)


def _is_local(host: str, context: RunContext) -> bool:
    if host in context.local_names or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def domain(name: str) -> str:
    """Return the domain that names are counted for: the last two labels."""
    return ".".join(name.lower().rstrip(".").split(".")[-2:])


def carries_data(name: str) -> bool:
    """Return whether a name is so long, has so many labels, or is so unlike words, that it carries data."""
    if name.endswith(".arpa"):  # the names of addresses
        return False
    labels = name.rstrip(".").split(".")[:-2]
    # Names of machines at large providers are long too: words and numbers with hyphens between them.
    runs = [run for label in labels for run in label.split("-")]
    longest = max(runs, key=len, default="")
    return (
        len(longest) >= LABEL
        or (len(longest) >= MIXED_LABEL and _is_mixed(longest))
        or len("".join(labels)) >= SUBDOMAIN
        or len(labels) >= LABELS
    )


def _is_mixed(run: str) -> bool:
    shares = [count / len(run) for count in Counter(run).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    return entropy >= ENTROPY and len(re.findall(r"[0-9]", run)) >= 3 and bool(re.search(r"[a-z]", run))


def note_run(records: Iterable[ProbeObservation], context: RunContext) -> None:
    """Add to `context` what only all observations together show: its ports, its code, names in great number."""
    names: dict[str, set[str]] = {}
    for record in records:
        seen = record.observation
        if seen.capability is Capability.FS_READ and seen.ok and (seen.path or "").endswith(CODE):
            _note_folders(posixpath.dirname(seen.path or ""), context.code)
        elif seen.capability is Capability.NET_CONNECT and not _is_local(context.host(seen.peer or ""), context):
            context.connected.add(record.call)
        if seen.action in ("listen", "bind") and seen.capability is Capability.NET_LISTEN:
            context.ports.add((seen.peer or "").rpartition(":")[2])
        elif seen.action == "listen" and seen.path is not None:
            context.sockets.add(seen.path)
        elif seen.name is not None and not seen.name.endswith(".arpa"):
            names.setdefault(domain(seen.name), set()).add(seen.name.lower().rstrip("."))
    context.many.update(base for base, those in names.items() if len(those) >= MANY_NAMES)


def _note_folders(folder: str, known: set[str]) -> None:
    while folder not in known:
        known.add(folder)
        folder = posixpath.dirname(folder)


def meant_program(observation: Observation) -> tuple[str, tuple[str, ...]]:
    """Return the program that is meant, and its arguments: of a shell's line the first, of npm's script npm."""
    program, words = posixpath.basename(observation.path or ""), observation.argv[1:]
    if program in SHELLS and words[:1] == ("-c",) and len(words) > 1 and words[1].split():
        # `sh -c "git status"` is judged as git: libraries start programs through a shell.
        first, *rest = words[1].split()
        return posixpath.basename(first), tuple(rest)
    script = SCRIPTS.fullmatch(words[0]) if program in ("node", "nodejs") and words else None
    return (script[1], words[1:]) if script else (program, words)


def _exec_facts(record: ProbeObservation, scope: DeclaredScope, context: RunContext) -> dict[str, bool]:
    observation = record.observation
    meant, _ = meant_program(observation)
    return {
        "launch": record.call is None and len(observation.lineage) <= 1,
        "own_program": record.call is None and observation.path in context.programs,
        "program_named": (meant in BROWSERS and "browser" in scope.words)
        or bool({meant, meant.partition("-")[0], re.sub(r"[0-9.]+$", "", meant)} & scope.words),
    }


def _path_facts(path: str, scope: DeclaredScope, context: RunContext) -> dict[str, bool]:
    canary = context.canaries.get(path)
    granted = is_under(path, scope.granted)
    at_home = is_under(path, [context.home])  # which is in a temporary folder itself
    return {
        "named": is_under(path, scope.named),
        "named_file": path in scope.named,
        "output": is_under(path, scope.outputs),
        "granted": granted,
        "granted_document": granted and canary is not None and not canary.secret,
        "own_folder": at_home and _is_own_folder(path[len(context.home) :], scope.server_words),
        "working_folder": is_under(path, [context.cwd]) and context.cwd != "/",
        "above_code": posixpath.dirname(path) in context.code,
        "temporary": is_under(path, [posixpath.join(context.home, "tmp")] if at_home else TEMPORARY),
        "canary": canary is not None,
    }


def _is_own_folder(path: str, words: frozenset[str]) -> bool:
    """Return whether a path below the home is in a folder that has the server's name: `~/.notes-mcp/state.json`."""
    first, *rest = path.strip("/").split("/")
    own = rest[0] if first == ".config" and rest else first if first.startswith(".") else ""
    named = set(split_words(own))
    return bool(named) and named <= words and not named <= NO_NAME


def _is_own(observation: Observation, context: RunContext) -> bool:
    """Return whether something was done to one of the server's own processes, which may have ended since."""
    path = observation.path or ""
    found = SIGNALLED.match(path) if observation.action == "kill" else PROCESS.match(path)
    return found is not None and (not found[1].isdigit() or int(found[1]) in context.pids)


def _is_foreign(observation: Observation, context: RunContext) -> bool:
    if observation.capability is Capability.KERNEL:
        return observation.action in FOREIGN_ACTIONS and not _is_own(observation, context)
    if observation.path is None or observation.capability not in (Capability.FS_READ, Capability.FS_WRITE):
        return False
    # trust.pem is the one file of the probe's own folder that servers are pointed at, by SSL_CERT_FILE.
    pried = INSIDES.fullmatch(observation.path) is not None and not _is_own(observation, context)
    return pried or (is_under(observation.path, [context.folder]) and not observation.path.endswith("/trust.pem"))
