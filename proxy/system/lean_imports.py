"""Imports only the used parts of large libraries, which halves the time of a start.

`mitmproxy.addons` imports every addon, with a web framework and an LDAP client; mitmproxy's layers import QUIC, which
this proxy does not speak, its servers a library in Rust for UDP and WireGuard, its commands a parser for typed input,
and its options one for YAML. structlog imports rich for tracebacks that are never shown. While they are imported, empty
stand-ins replace the parts that are not used.
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
RUST = "mitmproxy_rs"
USED = tuple(f"{PACKAGE}.{name}" for name in ("core", "disable_h2c", "proxyserver", "tlsconfig"))
UNUSED = ("aioquic", RUST, "pyparsing", "ruamel")


def import_only_what_is_used() -> None:
    """Import the used parts of mitmproxy, unless it is imported already."""
    spec = importlib.util.find_spec("mitmproxy")
    if PACKAGE in sys.modules or spec is None or spec.origin is None:
        return
    # A package without its __init__, which imports every addon; single addons are still found by the path.
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(Path(spec.origin).parent / "addons")]
    sys.modules[PACKAGE] = package
    with _stood_in_for(*UNUSED):
        rust = importlib.import_module(RUST)
        if isinstance(rust, _StandIn):
            # A server's address depends on whether it is one of these, which none of this proxy's is.
            rust.udp.UdpServer = rust.wireguard.WireGuardServer = _Nothing
        for name in USED:
            importlib.import_module(name)


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Make a library look not installed inside the block, for libraries that treat it as optional."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # None makes the import system raise ImportError
    try:
        yield
    finally:
        del sys.modules[name]


@contextlib.contextmanager
def _stood_in_for(*libraries: str) -> Iterator[None]:
    """Replace libraries by stand-ins inside the block; a later import gets the real library."""
    finder = _StandIns({library for library in libraries if library not in sys.modules})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]


class _Named(type):
    def __getattr__(cls, name: str) -> _Nothing:
        return _nothing(name)


class _Nothing(metaclass=_Named):
    """Any object of a library: during the imports it can be named, created, called and subclassed."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __getattr__(self, name: str) -> _Nothing:
        return _nothing(name)

    def __call__(self, *_: object, **__: object) -> _Nothing:
        return self

    def __or__(self, _: object) -> _Nothing:
        return self


def _nothing(name: str) -> _Nothing:
    # Only during the imports: code that runs later and gets a stand-in must fail loudly, not compute with nothing.
    importing = any(isinstance(finder, _StandIns) for finder in sys.meta_path)
    if name.startswith("__") or not importing:
        raise AttributeError(f"{name}: this library was replaced by a stand-in (proxy.system.lean_imports)")
    return _Nothing()


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Nothing,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for libraries and all their modules."""

    def __init__(self, libraries: set[str]) -> None:
        self._libraries = libraries

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] not in self._libraries:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...
