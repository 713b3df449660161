"""The file of credentials: names, placeholders, bindings and where each value comes from. It never holds a value.

A file that cannot be read is an error and never an empty vault: placeholders must not pass for ordinary text.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, ValidationError, model_validator

from proxy.core.vault import Credential, Place
from proxy.errors import ConfigError
from proxy.system.secret_files import read_private, write_private
from proxy.vault.placeholder import NAME, is_placeholder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILE: Final = "vault.json"
MAX_BYTES: Final = 4 << 20
SHARED_AS: Final = "vault"
RESERVED: Final = "INTERLOCK_"  # no agent and no server gets these
DEFAULT_TTL: Final = 60.0
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
HOST: Final = re.compile(r"[A-Za-z0-9.*?_:\[\]-]{1,253}")


class Strict(BaseModel):
    """A part of the file. Unknown fields are errors: a typing error must not widen a binding."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _host(value: str) -> str:
    bare = value.strip("*.?[]:")
    # A name of stars alone would send the credential anywhere; a port or a URL would match nothing.
    too_wide = not bare or ("*" in value and "." not in bare)
    if not HOST.fullmatch(value) or too_wide or value.count(":") == 1:
        raise ValueError(f"host {value!r} is not allowed; write a name such as api.example.com or *.example.com")
    return value


def _variable(value: str) -> str:
    if not VARIABLE.fullmatch(value):
        raise ValueError(f"variable {value!r} is not allowed; use letters, digits and underscores, such as API_TOKEN")
    return value


def _glob(value: str) -> str:
    if not value or len(value) > 256 or not value.isprintable():
        raise ValueError(f"{value!r} is not allowed; write a name or a glob of 1 to 256 printable characters")
    return value


def _text(value: str) -> str:
    if not value or len(value) > 4096 or "\0" in value:
        raise ValueError("a path, key or word of a command has 1 to 4096 characters and no NUL")
    return value


type Host = Annotated[str, AfterValidator(_host)]
type Variable = Annotated[str, AfterValidator(_variable)]
type Glob = Annotated[str, AfterValidator(_glob)]
type Text = Annotated[str, AfterValidator(_text)]


class FileSource(Strict):
    """A file with the value, or with an entry of JSON or dotenv under `key`."""

    kind: Literal["file"] = "file"
    path: Text
    key: Text | None = None

    def __str__(self) -> str:
        return f"file {self.path}" + (f", key {self.key}" if self.key is not None else "")


class EnvSource(Strict):
    """A variable in the environment of the proxy."""

    kind: Literal["env"] = "env"
    variable: Variable

    def __str__(self) -> str:
        return f"variable {self.variable}"


class CommandSource(Strict):
    """A program that prints the value; no shell runs it. `environment` names variables it gets beside the usual few."""

    kind: Literal["command"] = "command"
    argv: Annotated[tuple[Text, ...], Field(min_length=1, max_length=64, strict=False)]
    environment: Annotated[tuple[Variable, ...], Field(strict=False)] = ()

    def __str__(self) -> str:
        # The other words may name accounts and paths; `show` has them.
        return f"command {self.argv[0]}"


type Source = Annotated[FileSource | EnvSource | CommandSource, Discriminator("kind")]
type Globs = Annotated[tuple[Glob, ...], Field(strict=False)]


class Bindings(Strict):
    """Where a credential may go."""

    hosts: Annotated[tuple[Host, ...], Field(strict=False)] = ()
    tools: Globs = ()
    agents: Globs = ()
    places: Annotated[tuple[Place, ...], Field(strict=False, min_length=1)] = (Place.HEADER,)
    plain: bool = False
    servers: Globs = ()
    variable: Variable | None = None

    @model_validator(mode="after")
    def _named(self) -> Bindings:
        if self.servers and self.variable is None:
            raise ValueError("a wrapped server finds it under a variable; give --variable with --server")
        if self.variable is not None and self.variable.startswith(RESERVED):
            raise ValueError(f"variable {self.variable!r} is not given to others; choose one without {RESERVED}")
        return self

    def __str__(self) -> str:
        limits = {"tools": self.tools, "agents": self.agents}
        said = [", ".join(self.hosts) or "no host", *(f"{name} {', '.join(on)}" for name, on in limits.items() if on)]
        return "; ".join([*said, f"in {', '.join(self.places)}", *(["also over plain HTTP"] if self.plain else [])])


class Entry(Strict):
    """One credential, without its value."""

    placeholder: str
    source: Source
    bindings: Bindings = Bindings()
    ttl: Annotated[float, Field(ge=0, le=86_400, strict=False)] = DEFAULT_TTL
    added: float

    def credential(self, name: str) -> Credential:
        return Credential(name=name, placeholder=self.placeholder, **dict(self.bindings))


class Tombstone(Strict):
    """A revoked credential: its placeholder is refused for ever."""

    name: str
    placeholder: str
    revoked: float


class Document(Strict):
    """The whole file."""

    version: Literal[1] = 1
    credentials: dict[str, Entry] = {}
    revoked: Annotated[tuple[Tombstone, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _whole(self) -> Document:
        held = [entry.placeholder for entry in self.credentials.values()]
        held += [stone.placeholder for stone in self.revoked]
        if len(set(held)) != len(held) or not all(map(is_placeholder, held)):
            raise ValueError("a placeholder stands there twice, or is none")
        if not all(map(NAME.fullmatch, self.credentials)):
            raise ValueError("a credential's name is not allowed")
        return self


def parse(data: bytes) -> Document:
    """Return the content of a file. Raises ValueError, whose message says where it is wrong."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    try:
        return Document.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{where}: {first['msg']}") from None


def checked[T: Strict](kind: type[T], **fields: Any) -> T:
    """Make a part of the file of what a person wrote. Raises ConfigError, which names the value and the way out."""
    try:
        return kind(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigError(said if first["type"] == "value_error" else f"{first['loc'][0]}: {said}") from None


class SharedLists(Protocol):
    """Changes what the replicas of a fleet share, and its file here. Raises ConfigError."""

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        """Let `edit`, which may be called again, change the document as it is now; nobody else's comes between."""


class VaultFile:
    """The file of one state folder. Raises ConfigError where it cannot be read or written.

    In a fleet the file mirrors what all replicas share, and `shared` is where it is changed.
    """

    def __init__(self, state_dir: Path, shared: SharedLists | None = None) -> None:
        self.path = state_dir / FILE
        self._shared = shared

    def signature(self) -> tuple[int, ...] | None:
        """Return what changes with every change of the file; None where there is none. Raises OSError."""
        try:
            about = self.path.stat()
        except FileNotFoundError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_mode

    def read(self) -> Document:
        """Return the content; an empty document where there is no file."""
        try:
            data = read_private(self.path)
        except FileNotFoundError:
            return Document()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read ({error.strerror}); give this user the right to") from error
        try:
            return parse(data)
        except ValueError as error:
            raise ConfigError(f"{self.path} is damaged ({error}); restore it from a backup") from None

    def add(self, name: str, entry: Entry) -> None:
        """Add a credential. Raises ConfigError if the name is taken."""

        def edit(document: Document) -> Document:
            if name in document.credentials:
                raise ConfigError(f"credential {name!r} already exists; change it with `interlock vault bind`")
            return document.model_copy(update={"credentials": {**document.credentials, name: entry}})

        self._change(edit)

    def change(self, name: str, edit: Callable[[Entry], Entry]) -> Entry:
        """Change a credential; return it as it is then. Raises ConfigError if the name is unknown."""
        made: list[Entry] = []

        def edit_one(document: Document) -> Document:
            made.append(edit(known(document, name)))
            return document.model_copy(update={"credentials": {**document.credentials, name: made[-1]}})

        self._change(edit_one)
        return made[-1]

    def revoke(self, name: str) -> Tombstone:
        """Take a credential out and keep its placeholder as revoked. Raises ConfigError if the name is unknown."""
        stones: list[Tombstone] = []

        def edit(document: Document) -> Document:
            entry = known(document, name)
            stones.append(Tombstone(name=name, placeholder=entry.placeholder, revoked=time.time()))
            left = {other: each for other, each in document.credentials.items() if other != name}
            return document.model_copy(update={"credentials": left, "revoked": (*document.revoked, stones[-1])})

        self._change(edit)
        return stones[-1]

    def _change(self, edit: Callable[[Document], Document]) -> None:
        if self._shared is not None:
            self._shared.change(SHARED_AS, lambda value: _edit_in_place(value, edit))
            return
        with self._locked():
            data = _encoded(edit(self.read()))
            try:
                write_private(self.path, data)
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written ({error.strerror})") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A lock file of its own: the file itself is replaced, and a lock on a replaced file excludes nobody.
            lock = self.path.with_suffix(".lock").open("w")
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be changed ({error.strerror})") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _encoded(document: Document) -> bytes:
    data = document.model_dump_json(indent=1).encode()
    try:
        # What was only copied is checked here: nothing is written that the next reader would refuse.
        parse(data)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return data


def _edit_in_place(value: dict[str, Any], edit: Callable[[Document], Document]) -> None:
    made = json.loads(_encoded(edit(parse(json.dumps(value).encode()))))
    value.clear()
    value.update(made)


def known(document: Document, name: str) -> Entry:
    """Return a credential. Raises ConfigError if there is none of this name."""
    if name not in document.credentials:
        names = ", ".join(sorted(document.credentials)) or "none"
        raise ConfigError(f"there is no credential {name!r}; known credentials: {names}")
    return document.credentials[name]
