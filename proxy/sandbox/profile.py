"""What a local server may touch: the model of a sandbox profile, and how several profiles become one. Pure, no I/O.

A profile is a file of its own (`policies/sandbox/NAME.yaml`, or a path), or a policy's section `sandbox:` by server.
Deny is the default: what no line names is refused. `proxy/sandbox/profile_files.py` reads files and presets,
`proxy/sandbox/grants.py` turns the lines into the paths of this machine.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr

from proxy.core.defaults import empty_dict, empty_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PRESETS: Final = ("base", "node", "python", "git", "browser")
VARIABLES: Final = ("HOME", "ROOTS", "TMP", "CWD", "PACKAGE")
_VARIABLE: Final = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SIZE: Final = re.compile(r"([0-9]{1,9})\s*(B|[KMGT]i?B?)?", re.IGNORECASE)
_SIZES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9*._-]+)(?::([0-9]{1,5}|\*))?")


def _check_pattern(text: str) -> str:
    if "\0" in text or "\n" in text:
        raise ValueError("a path has no such characters")
    for braced, plain in _VARIABLE.findall(text):
        if (braced or plain) not in VARIABLES:
            raise ValueError(f"there is no variable ${braced or plain}; there are $" + ", $".join(VARIABLES))
    if ".." in text.split("/"):
        raise ValueError("'..' in a path is refused; write the folder that is meant")
    if not text.startswith(("/", "~/", "$")) and text != "~":
        raise ValueError("write a full path, or begin with ~/ or a variable such as $HOME")
    if "$" in _VARIABLE.sub("", text, count=1) or ("$" in text and not text.startswith("$")):
        raise ValueError("one variable may stand at the beginning of a path, and nowhere else")
    return text


def _check_hidden(text: str) -> str:
    """Return a pattern; one that begins with `**/` holds in every folder."""
    _check_pattern(f"/{text}" if text.startswith("**/") else text)
    return text


def _check_program(text: str) -> str:
    if "/" in text:
        return _check_pattern(text)
    if not text or text.startswith("-") or any(mark in text for mark in "$\0\n "):
        raise ValueError("write a program's name, like node, or its path, like /usr/bin/git")
    return text


def _check_socket(text: str) -> str:
    if text.startswith("@"):
        raise ValueError("abstract sockets cannot be allowed; name one with a path")
    if any(mark in text for mark in "*?["):
        raise ValueError("a socket is named, not matched; write its path")
    return _check_pattern(text)


def _check_env(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_*][A-Za-z0-9_*]*", text):
        raise ValueError("write a variable's name, like PATH or NODE_*")
    if text == "*":
        raise ValueError("the whole environment is never passed; name the variables")
    return text


def _check_host(text: str) -> str:
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError("write a host and its port, like api.github.com:443 or *.example.com")
    if found[1] not in (None, "*") and not 0 < int(found[1]) < 65_536:
        raise ValueError("a port is between 1 and 65535")
    return text


def _read_size(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError("not a size; write it like 512MB or 2GB")
    return int(found[1]) * _SIZES[(found[2] or "").upper().rstrip("B").rstrip("I")]


def _read_seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    number, unit = value.strip()[:-1], value.strip()[-1:]
    if unit not in _SECONDS or not number.isascii() or not number.isdigit():
        raise ValueError("not a duration; write it like 60s, 10m or 2h")
    return int(number) * _SECONDS[unit]


type PathPattern = Annotated[StrictStr, Field(min_length=1, max_length=4096), AfterValidator(_check_pattern)]
type HiddenPattern = Annotated[StrictStr, Field(min_length=1, max_length=4096), AfterValidator(_check_hidden)]
type Program = Annotated[StrictStr, Field(min_length=1, max_length=4096), AfterValidator(_check_program)]
type SocketPath = Annotated[StrictStr, Field(min_length=1, max_length=4096), AfterValidator(_check_socket)]
type EnvName = Annotated[StrictStr, Field(min_length=1, max_length=200), AfterValidator(_check_env)]
type HostPort = Annotated[StrictStr, Field(min_length=1, max_length=300), AfterValidator(_check_host)]
type ProfileName = Annotated[StrictStr, Field(min_length=1, max_length=4096)]
type Network = Literal["none", "any"] | list[HostPort]
type Bytes = Annotated[
    int, BeforeValidator(_read_size, json_schema_input_type=int | str), Field(ge=1 << 20, le=1 << 46)
]
type Seconds = Annotated[
    int, BeforeValidator(_read_seconds, json_schema_input_type=int | str), Field(ge=1, le=31_536_000)
]
type OnViolation = Literal["tell", "withhold", "end"]
type SandboxMode = Literal["learn", "shadow", "enforce"]


class _Strict(BaseModel):
    """Frozen, and without unknown fields: a misspelt line must not load as a weaker profile."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SandboxLimits(_Strict):
    """How much a server and everything it starts may use."""

    memory: Bytes | None = Field(
        default=None, description="The most memory that each process may map for its data, such as 512MB."
    )
    cpu: Seconds | None = Field(default=None, description="Processor time of each process, such as 60s.")
    processes: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="The most processes and threads at a time."
    )
    files: Annotated[int, Field(ge=16, le=1_048_576)] | None = Field(
        default=None, description="The most files that each process may have open."
    )
    file_size: Bytes | None = Field(default=None, description="The largest file that may be written, such as 1GB.")


class ToolProfile(_Strict):
    """What one tool of the server may touch."""

    files: Literal["from arguments", "profile"] = Field(
        default="profile",
        description="from arguments: during a call of this tool, only the files that its arguments name and the "
        "server's own package are opened; profile: what read and write say.",
    )
    network: Literal["from arguments", "profile"] = Field(
        default="profile", description="from arguments: only the hosts that the call's arguments name."
    )


class SandboxProfile(_Strict):
    """What a local server may touch. Deny is the default: what no line names is refused."""

    description: StrictStr = Field(default="", description="For people who read the profile.")
    extends: list[ProfileName] = Field(
        default_factory=empty_list,
        description="Profiles that this one adds to: " + ", ".join(PRESETS) + ", or the path of a file.",
    )
    read: list[PathPattern] = Field(
        default_factory=empty_list,
        description="Files and folders to read, with globs; $HOME, $ROOTS (the client's roots), $TMP, $CWD and "
        "$PACKAGE (the server's own package) stand for folders.",
    )
    write: list[PathPattern] = Field(default_factory=empty_list, description="Files and folders to read and to write.")
    hide: list[HiddenPattern] = Field(
        default_factory=empty_list, description="What stays hidden, though a line above covers it, such as **/.env."
    )
    secrets: list[PathPattern] = Field(
        default_factory=empty_list,
        description="Secrets that the server may read, each by its name; no line above opens one.",
    )
    env: list[EnvName] = Field(
        default_factory=empty_list, description="Variables that the server gets, such as NODE_*."
    )
    network: Network | None = Field(
        default=None,
        description="Hosts and ports to reach, through the proxy: none, any, or a list; none if no profile says it.",
    )
    sockets: list[SocketPath] = Field(default_factory=empty_list, description="Unix sockets to connect to, by path.")
    exec: list[Program] = Field(
        default_factory=empty_list, description="Programs to start besides the server's own, by name or path."
    )
    limits: SandboxLimits = Field(default_factory=SandboxLimits, description="Memory, processor time, processes.")
    tools: dict[str, ToolProfile] = Field(
        default_factory=empty_dict, description="What single tools may touch, by glob."
    )
    supervise: bool | None = Field(
        default=None,
        description="true: a supervisor opens each file for the server, so that hide also holds for files made later. "
        "It costs about 45 µs a file. Tools that are bound to their arguments always have one.",
    )
    on_violation: OnViolation | None = Field(
        default=None,
        description="What a refused act does besides: tell, record it; withhold, also the call's result; end, the "
        "server ends. tell if no profile says it.",
    )
    mode: SandboxMode | None = Field(
        default=None,
        description="enforce; shadow and learn only record what would be refused. enforce if no profile says it.",
    )

    @property
    def violation(self) -> OnViolation:
        """What a refused act does."""
        return self.on_violation or "tell"

    @property
    def enforced(self) -> bool:
        """Whether anything is refused."""
        return (self.mode or "enforce") == "enforce"

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The hosts and ports to reach; None where every one may be."""
        if self.network == "any":
            return None
        return () if self.network in (None, "none") else tuple(self.network)

    @property
    def binds_files(self) -> bool:
        """Whether some tool may open only the files that its arguments name."""
        return any(tool.files == "from arguments" for tool in self.tools.values())

    def tool(self, name: str) -> ToolProfile:
        """Return what applies to a tool: the strictest of all that fit its name."""
        fitting = [each for glob, each in self.tools.items() if fnmatchcase(name, glob)]
        return ToolProfile(
            files="from arguments" if any(each.files == "from arguments" for each in fitting) else "profile",
            network="from arguments" if any(each.network == "from arguments" for each in fitting) else "profile",
        )


def binds_hosts(profile: SandboxProfile) -> bool:
    """Return whether some tool may reach only the hosts that its arguments name."""
    return any(tool.network == "from arguments" for tool in profile.tools.values())


def host_fits(host: str, port: int, allowed: Iterable[str]) -> bool:
    """Return whether a host and port are on a profile's list; an entry without a port stands for 443 and 80."""
    name = host.lower().rstrip(".").strip("[]")
    for entry in allowed:
        found = _HOST.fullmatch(entry)
        ports = found[1] if found else None
        pattern = (entry[: -len(ports) - 1] if ports else entry).lower().strip("[]")
        port_fits = port in (80, 443) if ports is None else ports == "*" or port == int(ports)
        if port_fits and fnmatchcase(name, pattern):
            return True
    return False


_LISTS: Final = ("extends", "read", "write", "hide", "secrets", "env", "sockets", "exec")


def merge(profiles: Sequence[SandboxProfile]) -> SandboxProfile:
    """Return profiles as one: lists add up, and of single values the last that is given holds."""
    if not profiles:
        return SandboxProfile()
    return functools.reduce(_merge_two, profiles)


def _merge_two(first: SandboxProfile, second: SandboxProfile) -> SandboxProfile:
    values: dict[str, Any] = {
        name: list(dict.fromkeys((*getattr(first, name), *getattr(second, name)))) for name in _LISTS
    }
    limits = first.limits.model_dump() | second.limits.model_dump(exclude_none=True)
    return SandboxProfile.model_construct(
        **values,
        description=second.description or first.description,
        network=_merge_network(first.network, second.network),
        limits=SandboxLimits.model_construct(**limits),
        tools={**first.tools, **second.tools},
        supervise=first.supervise if second.supervise is None else second.supervise,
        on_violation=second.on_violation or first.on_violation,
        mode=second.mode or first.mode,
    )


def _merge_network(first: Network | None, second: Network | None) -> Network | None:
    if second is None:
        return first
    # A list adds to a list; a word, such as none, replaces whatever was there.
    if isinstance(first, list) and isinstance(second, list):
        return list(dict.fromkeys((*first, *second)))
    return second


def profile_hash(profile: SandboxProfile) -> str:
    """Return a profile's fingerprint: equal for profiles that grant the same, whatever their files look like."""
    plain = profile.model_dump(mode="json", exclude={"description", "extends"})
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def chosen_environment(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` that a profile passes; Interlock's own settings are never among them."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("INTERLOCK_") and any(fnmatchcase(name, glob) for glob in names)
    }
