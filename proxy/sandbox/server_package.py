"""Finds a server's own package: the folders that its program was installed into, and the script that it runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.sandbox.plan import is_by_link_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/nix/store")
_SHARED: Final = ("/", "/opt", "/home", "/root", "/srv", "/var", "/tmp", "/var/tmp", "/usr/local")  # noqa: S108
_TOOLS: Final = frozenset({".local", ".cargo", ".deno", ".bun"})  # hold the programs of many packages, and more
MAX_FIRST_LINE: Final = 256  # what the kernel reads of it
_MANIFESTS: Final = ("package.json", "pyproject.toml", "setup.py", "go.mod", "Cargo.toml")


def package_of(program: str, argv: Sequence[str], home: str, cwd: str, writable: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the files and folders of the server that `program` and `argv` start.

    A file in one of the `writable` folders, or by a link there, brings nothing outside of them: the server could have
    made that link, or taken away what marked its folder as the package, and so choose what its next start reads.
    """
    found: list[str] = []
    for runs in (program, *_interpreter(program)):
        for path in (os.path.abspath(runs), os.path.realpath(runs)):  # noqa: PTH100
            found += _installation(path, home)
    files = [each for word in argv[1:] if (each := _file(word, cwd)) is not None]
    # The first is the script, which may be a command's link. A later one is data, in a folder that the server may
    # write: it could make it a link, and the next start would take the folder of its target for the package.
    scripts = [path for number, path in enumerate(files) if not number or not os.path.islink(path)]  # noqa: PTH114
    for script in scripts:
        bound = _is_in_any(script, writable) or is_by_link_in(script, writable)
        found += [path for path in _with_package(script, home) if not bound or _is_in_any(path, writable)]
    return tuple(dict.fromkeys(path for path in found if os.path.exists(path)))  # noqa: PTH110


def roots_of(argv: Sequence[str], home: str, cwd: str) -> tuple[str, ...]:
    """Return the folders that a command line names, which is how clients tell servers their roots; else the folder."""
    folders = named_folders(argv, cwd)
    own = () if is_broad(cwd, home) else (cwd,)
    # Any word, such as `stdio`, names a folder once the server has made a link of that name where it works.
    kept = [path for path in folders if not is_by_link_in(path, own)]
    return tuple(kept) or own


def named_folders(argv: Sequence[str], cwd: str) -> tuple[str, ...]:
    """Return the folders that the words of a command line are, also by links."""
    named = [os.path.abspath(os.path.join(cwd, word)) for word in argv[1:] if not word.startswith("-")]  # noqa: PTH100, PTH118
    return tuple(dict.fromkeys(path for path in named if os.path.isdir(path) and path != "/"))  # noqa: PTH112


def is_broad(folder: str, home: str) -> bool:
    """Return whether a folder is the home, holds it, or belongs to many."""
    return folder in _SHARED or folder == home or home.startswith(f"{folder}/")


def _interpreter(program: str) -> Iterator[str]:
    """Return the program that a script names in its first line, such as the Python of a virtual environment."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123
            head = file.read(MAX_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return
    words = os.fsdecode(head).removeprefix("#!").split()
    if head.startswith(b"#!/") and words:
        yield words[0]


def _installation(program: str, home: str) -> Iterator[str]:
    yield program
    if program.startswith(tuple(f"{folder}/" for folder in _SYSTEM)):
        return
    prefix = Path(program).parent.parent if Path(program).parent.name in ("bin", ".bin") else Path(program).parent
    if not is_broad(str(prefix), home) and prefix.name not in _TOOLS:
        yield str(prefix)


def _file(word: str, cwd: str) -> str | None:
    path = os.path.abspath(os.path.join(cwd, word))  # noqa: PTH100, PTH118
    return path if not word.startswith("-") and os.path.isfile(path) else None  # noqa: PTH113


def _with_package(script: str, home: str) -> Iterator[str]:
    for each in dict.fromkeys((script, os.path.realpath(script))):
        yield each
        folder = _manifest_folder(Path(each), home)
        if folder is not None:
            yield folder


def _is_in_any(path: str, folders: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == each or real.startswith(f"{each}/") for each in folders)


def _manifest_folder(script: Path, home: str) -> str | None:
    """Return the package that a script belongs to: the folder of all packages where it is an installed one."""
    for folder in script.parents:
        if is_broad(str(folder), home):
            break
        if folder.name in ("node_modules", "site-packages"):
            return str(folder)
    for folder in script.parents:
        if is_broad(str(folder), home):
            break
        if any((folder / name).is_file() for name in _MANIFESTS):
            return str(folder)
    folder = script.parent
    return None if is_broad(str(folder), home) else str(folder)
