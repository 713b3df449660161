"""Policy files as the console edits them: read, tried, and saved with what they were before kept."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.console.security import RefusedError
from proxy.console.text import visible
from proxy.errors import PolicyError
from proxy.policy.load import policy_files
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from pathlib import Path

MAX_TEXT: Final = 64 << 10
HISTORY: Final = "policy-history"  # below the state folder
MAX_VERSIONS: Final = 200  # of a file; the oldest go


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file of the policy. `hindrance` says why it cannot be saved here; empty where it can."""

    name: str
    path: Path
    text: str
    hindrance: str

    @property
    def digest(self) -> str:
        return digest_of(self.text)


@dataclass(frozen=True, slots=True)
class Version:
    """What a file was until somebody saved another text."""

    id: str
    time: float
    operator: str
    text: str


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_files(policy: Path) -> list[EditedFile]:
    """Return the files of the policy. Raises PolicyError where there are none."""
    return [_read(file) for file in policy_files(policy)]


def _read(file: Path) -> EditedFile:
    try:
        data = file.read_bytes()
        text = data.decode()
    except (OSError, ValueError):
        return EditedFile(file.name, file, "", "The file cannot be read, or is not UTF-8.")
    if len(text) > MAX_TEXT:
        return EditedFile(file.name, file, text, f"The file has more than {MAX_TEXT} characters: edit it on disk.")
    target = file.resolve()
    if "\r" in text:
        # A browser sends another kind of line ends than it was given, and the whole file would change.
        return EditedFile(file.name, file, text, "The file has carriage returns: edit it on disk.")
    # Its folder as well: a file is replaced, never written in place.
    if not (os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)):
        return EditedFile(file.name, file, text, "The proxy may not write this file.")
    return EditedFile(file.name, file, text, "")


def find_file(policy: Path, name: str) -> EditedFile:
    """Return a file of the policy by its name; the first one for an empty name. Raises RefusedError."""
    try:
        files = read_files(policy)
    except PolicyError as error:
        raise RefusedError(503, "policy_unavailable", f"The policy cannot be read: {error}") from None
    # Only names of files that are there: no name leads anywhere else.
    found = next((file for file in files if not name or file.name == name), None)
    if found is None:
        raise RefusedError(404, "not_found", "The policy has no file of this name.")
    return found


def keep_version(state_dir: Path, file: EditedFile, operator: str, now: float) -> None:
    """Keep the text of a file that is about to be replaced. Raises OSError."""
    folder = _folder(state_dir, file)
    stamp = f"{dt.datetime.fromtimestamp(now, dt.UTC):%Y%m%dT%H%M%S.%fZ}"
    value = {"file": str(file.path), "time": now, "operator": operator, "digest": file.digest, "text": file.text}
    write_private(folder / f"{stamp}-{file.digest[:12]}.json", json.dumps(value).encode())
    for old in sorted(folder.glob("*.json"))[:-MAX_VERSIONS]:
        old.unlink(missing_ok=True)


def versions(state_dir: Path, file: EditedFile) -> list[Version]:
    """Return what a file was before, the newest first. One that cannot be read is left out."""
    found = []
    for path in sorted(_folder(state_dir, file).glob("*.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            value: Any = json.loads(path.read_bytes())
            found.append(Version(path.stem, float(value["time"]), str(value["operator"]), str(value["text"])))
    return found


def _folder(state_dir: Path, file: EditedFile) -> Path:
    # By the whole path: two policies may have files of one name.
    key = hashlib.sha256(str(file.path.resolve()).encode()).hexdigest()[:16]
    return state_dir / HISTORY / key


def check_unchanged(file: EditedFile, digest: str) -> None:
    """Raise RefusedError unless a digest is that of the file."""
    if digest != file.digest:
        raise RefusedError(409, "policy_changed", "The file was changed on disk meanwhile. Load it again.")


def hidden_lines(text: str) -> list[int]:
    """Return the numbers of lines with characters that show nothing or reorder what is around them."""
    return [
        number for number, line in enumerate(text.split("\n"), 1) if visible(plain := line.replace("\t", " ")) != plain
    ]


def replace_text(file: EditedFile, text: str) -> None:
    """Replace a file as a whole, with the mode it had. Raises OSError, and RefusedError where it changed meanwhile."""
    target = file.path.resolve()
    mode = target.stat().st_mode & 0o7777
    # Not *.yaml: the proxy must not take it for a file of the policy.
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".saving")
    try:
        with os.fdopen(handle, "wb") as written:
            written.write(text.encode())
            written.flush()
            os.fchmod(written.fileno(), mode)
            os.fsync(written.fileno())
        check_unchanged(file, digest_of(_read(file.path).text))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
