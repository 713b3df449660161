"""How large libraries are taken in: only what is used of them, which is half of what a start would cost.

`mitmproxy.addons` imports every addon there is, with their web framework and LDAP client; mitmproxy's layers import
QUIC, which is never spoken here, and its commands a parser of what somebody might type. structlog imports rich for
tracebacks that are not shown. Something empty, in place while they are imported, lets the rest come by itself.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGE = "mitmproxy.addons"
USED = tuple(f"{PACKAGE}.{name}" for name in ("core", "disable_h2c", "proxyserver", "tlsconfig"))
UNUSED = ("aioquic", "pyparsing")


def import_only_what_is_used() -> None:
    """Import what is used of mitmproxy, unless it is there already."""
    spec = importlib.util.find_spec("mitmproxy")
    if PACKAGE in sys.modules or spec is None or spec.origin is None:
        return
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(Path(spec.origin).parent / "addons")]
    sys.modules[PACKAGE] = package
    with _stood_in_for(*UNUSED):
        for name in USED:
            importlib.import_module(name)


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Have a library missing while the block lasts, for others that can do without it."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # Python's own way to say that there is none
    try:
        yield
    finally:
        del sys.modules[name]


@contextlib.contextmanager
def _stood_in_for(*libraries: str) -> Iterator[None]:
    """Return stand-ins for libraries while the block lasts; who imports them later gets the real ones."""
    present = {library for library in libraries if library in sys.modules}
    finder = _StandIns(set(libraries) - present)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]


class _Named(type):
    """What has members of every name."""

    def __getattr__(cls, name: str) -> _Nothing:
        return _nothing(name)


class _Nothing(metaclass=_Named):
    """Stands for whatever a library has: while others are imported it can be named, made, called and derived from."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take anything."""

    def __getattr__(self, name: str) -> _Nothing:
        return _nothing(name)

    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    def __or__(self, _: object) -> _Nothing:
        return self


def _nothing(name: str) -> _Nothing:
    importing = any(isinstance(finder, _StandIns) for finder in sys.meta_path)
    if name.startswith("__") or not importing:
        raise AttributeError(f"{name}: of a library that is not used here, and was not imported")
    return _Nothing()


class _StandIn(types.ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Nothing,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for libraries and for all that is in them."""

    def __init__(self, libraries: set[str]) -> None:
        self._libraries = libraries

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for what is stood in for."""
        del path, target
        if fullname.partition(".")[0] not in self._libraries:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Return the stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it as it is."""
