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
from proxy.trace.capability import Capability, Observation

if TYPE_CHECKING:
    from proxy.probe.canary import Canary, CanaryWatch

SHELLS = frozenset({"sh", "dash", "bash", "zsh", "busybox"})
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  names, not places to write
FOREIGN_ACTIONS = frozenset({"ptrace", "process_vm_readv", "process_vm_writev", "kill", "pidfd_getfd"})
INSIDES = re.compile(r"/proc/[0-9]+/(?:task/[0-9]+/)?(?:mem|maps|environ|(?:fd|root|cwd|map_files)(?:/.*)?)")
PROCESS = re.compile(r"/proc/([0-9]+|self|thread-self)/")
SIGNALLED = re.compile(r"([0-9]+), ")
LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
# The length of a label, or of all labels before the last two, and bits per character, from which a name carries data.
LABEL, SUBDOMAIN, ENTROPY = 30, 60, 3.0


@dataclass(frozen=True, slots=True)
class ProbeObservation:
    """An observation with the call during which it was made (None: at start-up or at the end), and the program."""

    observation: Observation
    call: int | None
    program: str = ""


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
        "canary_sent": bool(canaries_sent(observation, scope, context)),
    }
    if observation.capability in (Capability.NET_CONNECT, Capability.NET_DNS):
        found |= _net_facts(observation, scope, context)
    elif observation.capability in (Capability.PROC_EXEC, Capability.EXEC_FILELESS):
        found |= _exec_facts(record, scope, context)
    elif observation.path is not None:
        found |= _path_facts(observation.path, scope, context)
    return frozenset(name for name, holds in found.items() if holds)


def canaries_sent(observation: Observation, scope: DeclaredScope, context: RunContext) -> tuple[Canary, ...]:
    """Return the canaries in what was sent, except those in files that a network tool was asked to handle."""
    if context.watch is None or not (observation.data or observation.name):
        return ()
    found = context.watch.find(observation.data + b" " + (observation.name or "").encode())
    handled = {canary.source for path, canary in context.canaries.items() if is_under(path, scope.named)}
    return tuple(canary for canary in found if not (scope.network and canary.source in handled))


def _net_facts(observation: Observation, scope: DeclaredScope, context: RunContext) -> dict[str, bool]:
    host = (observation.name or context.host(observation.peer or "")).lower().rstrip(".")
    return {
        "remote": not _is_local(host, context),
        "hosts_named": bool(scope.hosts),
        "host_named": any(host == named or host.endswith(f".{named}") for named in scope.hosts),
        "data_in_name": observation.capability is Capability.NET_DNS and carries_data(host),
    }


def _is_local(host: str, context: RunContext) -> bool:
    if host in context.local_names or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def carries_data(name: str) -> bool:
    """Return whether a name is so long, and so unlike words, that it carries data."""
    labels = name.rstrip(".").split(".")[:-2]
    longest = max(labels, key=len, default="")
    shares = [count / len(longest) for count in Counter(longest).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    packed = len(longest) >= LABEL and entropy >= ENTROPY and bool(re.search(r"[0-9]", longest))
    return packed or len("".join(labels)) >= SUBDOMAIN


def _exec_facts(record: ProbeObservation, scope: DeclaredScope, context: RunContext) -> dict[str, bool]:
    observation = record.observation
    program = posixpath.basename(observation.path or "")
    line = observation.argv[2] if program in SHELLS and observation.argv[1:2] == ("-c",) else ""
    # `sh -c "git status"` is judged as git: libraries start programs through a shell.
    meant = posixpath.basename(line.split()[0]) if line.split() else program
    return {
        "launch": record.call is None and len(observation.lineage) <= 1,
        "own_program": record.call is None and observation.path in context.programs,
        "program_named": bool({meant, meant.partition("-")[0], re.sub(r"[0-9.]+$", "", meant)} & scope.words),
    }


def _path_facts(path: str, scope: DeclaredScope, context: RunContext) -> dict[str, bool]:
    canary = context.canaries.get(path)
    granted = is_under(path, scope.granted)
    at_home = is_under(path, [context.home])  # which is in a temporary folder itself
    return {
        "named": is_under(path, scope.named),
        "named_file": path in scope.named,
        "granted": granted,
        "granted_document": granted and canary is not None and not canary.secret,
        "working_folder": is_under(path, [context.cwd]) and context.cwd != "/",
        "temporary": is_under(path, [posixpath.join(context.home, "tmp")] if at_home else TEMPORARY),
        "canary": canary is not None,
    }


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
