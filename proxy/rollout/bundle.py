"""The files of a policy as one text: what is checked, signed, stored and loaded are the same bytes.

The files are read once. Everything after that works on the copy: a file that changes between the check and the
signature, or a link that leads elsewhere by then, changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import PolicyError
from proxy.policy.load import MAX_INCLUDED, PolicyFileError, PolicyProblem, compile_sources, load_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxy.core.interfaces import KnownDetectors
    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.load import ParsedFiles, PolicySource

FORMAT: Final = "interlock-policy-1"
MAX_BYTES: Final = 4 << 20  # of all files together: a rule takes some hundred bytes
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f\\/]{1,200}")
_FIELDS: Final = {"format", "entry", "beside", "files"}


@dataclass(frozen=True, slots=True)
class Bundle:
    """A policy: its files by name, which of them (or which folder) it begins with, and files that count beside it."""

    files: Mapping[str, str]
    entry: str
    beside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The one spelling of this bundle."""
        value = {"format": FORMAT, "entry": self.entry, "beside": list(self.beside), "files": dict(self.files)}
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    def sources(
        self, book: KnownDetectors | None = None, parsed: ParsedFiles | None = None
    ) -> tuple[PolicySource, ...]:
        """Check the files, from a private copy. Raises PolicyError, with the names in the bundle."""
        with self._unpacked() as folder:
            try:
                return load_sources(folder / self.entry, book, parsed, also=[folder / name for name in self.beside])
            except PolicyFileError as error:
                raise PolicyFileError([_renamed(problem, folder) for problem in error.problems]) from None
            except PolicyError as error:
                raise PolicyError(str(error).replace(f"{folder}/", "")) from None

    def compile(
        self,
        version: str,
        book: KnownDetectors | None = None,
        parsed: ParsedFiles | None = None,
        home: str | None = None,
    ) -> CompiledPolicy:
        """Return the policy, which calls itself `version`. Raises PolicyError."""
        policy = compile_sources(self.sources(book, parsed), version=version, home=home)
        policy.prepare()
        return policy

    @contextlib.contextmanager
    def _unpacked(self) -> Iterator[Path]:
        # Made with mode 0700 under a name that nobody can guess, and gone when the files are read.
        with tempfile.TemporaryDirectory(prefix="interlock-policy-") as name:
            folder = Path(name).resolve()
            (folder / self.entry).parent.mkdir(parents=True, exist_ok=True)
            for inner, text in self.files.items():
                path = folder / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
            yield folder


def _renamed(problem: PolicyProblem, folder: Path) -> PolicyProblem:
    inside = f"{folder}/"
    return PolicyProblem(
        problem.file.removeprefix(inside), problem.line, problem.column, problem.message.replace(inside, "")
    )


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_bundle(path: Path, beside: Sequence[Path] = ()) -> Bundle:
    """Read a policy file or folder, with all that it includes, once. Raises PolicyError."""
    # Which files there are is found by loading them; what counts is what is read below, and that is checked again.
    found = [Path(os.path.abspath(source.path)) for source in load_sources(path, also=beside)]  # noqa: PTH100  links stay
    if len(found) > MAX_INCLUDED:
        raise PolicyError(f"{path}: a policy has {MAX_INCLUDED} files at most, not {len(found)}")
    start = Path(os.path.abspath(path))  # noqa: PTH100
    extra = [Path(os.path.abspath(file)) for file in beside]  # noqa: PTH100
    top = Path(os.path.commonpath([*(file.parent for file in found), start if start.is_dir() else start.parent]))
    files, room = dict[str, str](), MAX_BYTES
    for file in found:
        text = _read(file, room)
        room -= len(text)
        try:
            files[file.relative_to(top).as_posix()] = text.decode("utf-8")
        except UnicodeDecodeError:
            raise PolicyError(f"{file} is not UTF-8; save it as UTF-8") from None
    names = tuple(file.relative_to(top).as_posix() for file in extra if file in found)
    return parse_bundle(Bundle(files, start.relative_to(top).as_posix(), names).text)


def _read(file: Path, room: int) -> bytes:
    try:
        with file.open("rb") as opened:
            text = opened.read(room + 1)
    except OSError as error:
        raise PolicyError(f"{file} cannot be read: {error.strerror}") from None
    if len(text) > room:
        raise PolicyError(f"{file}: the policy's files have more than {MAX_BYTES >> 20} MiB together; make it smaller")
    return text


def parse_bundle(text: str) -> Bundle:
    """Return the bundle of a stored text. Raises PolicyError where it is none, or names files outside itself."""
    if len(text) > 3 * MAX_BYTES:
        raise PolicyError("the stored policy is too large")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise PolicyError("the stored policy is not JSON") from None
    if not isinstance(value, dict) or value.keys() != _FIELDS or value["format"] != FORMAT:
        raise PolicyError(f"the stored policy is not of the format {FORMAT}; upgrade this interlock")
    files, entry, beside = value["files"], value["entry"], value["beside"]
    if not (_is_files(files) and isinstance(beside, list) and all(name in files for name in beside)):
        raise PolicyError("the stored policy has no files that can be used")
    if entry not in files and not any(name.startswith(f"{entry}/") or entry == "." for name in files):
        raise PolicyError(f"the stored policy does not have what it begins with: {entry!r}")
    bundle = Bundle(files, entry, tuple(beside))
    if bundle.text != text:
        raise PolicyError("the stored policy is not in its one spelling")
    return bundle


def _is_files(files: Any) -> bool:
    return (
        isinstance(files, dict)
        and 0 < len(files) <= MAX_INCLUDED
        and all(_is_inside(name) and isinstance(text, str) for name, text in files.items())
        and sum(len(text) for text in files.values()) <= MAX_BYTES
    )


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    plain = "/".join(parts) == name and len(parts) <= 20
    return plain and all(_NAME.fullmatch(part) and part not in ("..", ".") for part in parts)
