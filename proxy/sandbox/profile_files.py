"""Reads sandbox profiles: the presets, files by path, and what they extend. Raises SandboxProfileError in words."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import ValidationError

from proxy.errors import ConfigError
from proxy.sandbox.profile import PRESETS, SandboxProfile, merge
from proxy.system.package_data import policies_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_EXTENDED: Final = 20
_ENDINGS: Final = (".yaml", ".yml")


class SandboxProfileError(ConfigError):
    """A profile that cannot be used; the message has file, line and what to write instead."""


def preset_file(name: str) -> Path:
    return policies_dir() / "sandbox" / f"{name}.yaml"


def load_profile(name: str, beside: Path | None = None, parsed: ParsedFiles | None = None) -> SandboxProfile:
    """Return the profile of a preset's name or a file's path, with all that it extends. Raises SandboxProfileError.

    `parsed` saves parsing the YAML of a file that was good before; its content is checked all the same.
    """
    file = find_profile(name, beside)
    return resolve(parse_profile(file, parsed), file.parent, parsed)


def find_profile(name: str, beside: Path | None = None) -> Path:
    """Return the file of a profile: a preset, a name in the policies' folder, or a path. Raises SandboxProfileError."""
    if "/" not in name and not name.endswith(_ENDINGS):
        found = preset_file(name)
        if found.is_file():
            return found
        raise SandboxProfileError(
            f"there is no sandbox profile {name!r}; there are {', '.join(PRESETS)}, or name a file like ./{name}.yaml"
        )
    path = Path(name).expanduser()
    path = path if path.is_absolute() or beside is None else beside / path
    if not path.is_file():
        raise SandboxProfileError(f"there is no sandbox profile {str(path)!r}; name a preset or an existing file")
    return path


def resolve(profile: SandboxProfile, folder: Path | None = None, parsed: ParsedFiles | None = None) -> SandboxProfile:
    """Return a profile with all that it extends, itself last; every profile extends `base`."""
    found: dict[str, SandboxProfile] = {}
    _gather(["base", *profile.extends], folder, found, parsed)
    return merge([*found.values(), profile])


def files_of(names: Sequence[str], folder: Path | None = None, parsed: ParsedFiles | None = None) -> tuple[Path, ...]:
    """Return the files that profiles of these names are read from, with all that they extend."""
    found: dict[str, SandboxProfile] = {}
    _gather(names, folder, found, parsed)
    return tuple(map(Path, found))


def _gather(
    names: Sequence[str], folder: Path | None, found: dict[str, SandboxProfile], parsed: ParsedFiles | None
) -> None:
    for name in names:
        file = find_profile(name, folder)
        if str(file) in found:
            continue
        if len(found) >= MAX_EXTENDED:
            raise SandboxProfileError(f"a sandbox profile extends {MAX_EXTENDED} others at most")
        found[str(file)] = SandboxProfile()  # profiles that extend each other end here
        inner = parse_profile(file, parsed)
        _gather(inner.extends, file.parent, found, parsed)
        found[str(file)] = inner


def parse_profile(file: Path, parsed: ParsedFiles | None = None) -> SandboxProfile:
    """Return what one file says. Raises SandboxProfileError with line and column."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise SandboxProfileError(f"{file}: cannot be read: {error.strerror}") from None
    # The name is the file's content: what another content was parsed to can never be taken for it.
    name = f"sandbox-1-{hashlib.sha256(text).hexdigest()}"
    if parsed is not None and (known := parsed.get(name)) is not None:
        with contextlib.suppress(ValueError):  # an older version took it: parse it again
            return SandboxProfile.model_validate(json.loads(known))
    profile = parse_text(text, str(file))
    if parsed is not None:
        parsed.put(name, profile.model_dump_json(exclude_unset=True).encode())
    return profile


class ParsedFiles(Protocol):
    """Keeps what files were parsed to. Nobody else may be able to write there."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, data: bytes) -> None: ...


def parse_text(text: bytes, name: str) -> SandboxProfile:
    """Return what the YAML of a profile says; `name` is what errors call it."""
    from proxy.policy.yaml_file import YamlFileError, parse_yaml, plain_values  # noqa: PLC0415  slow to import

    nodes: Any = None
    try:
        nodes = parse_yaml(text)
        return SandboxProfile.model_validate(plain_values(nodes) or {})
    except YamlFileError as error:
        raise SandboxProfileError(f"{name}:{error.line}:{error.column}: {error}") from None
    except RecursionError:
        raise SandboxProfileError(f"{name}: nested too deeply to be read") from None
    except ValidationError as error:
        from proxy.policy.load_errors import explain_errors  # noqa: PLC0415

        told = [f"{name}:{line}:{column}: {what}" for (line, column), what in explain_errors(nodes, error.errors())]
        raise SandboxProfileError("\n".join(told)) from None
