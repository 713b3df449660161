"""`host_in`, `url_scheme`, `ip_class` and `cidr`. Pure, no I/O."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.policy.arg_select import AMBIGUOUS, Trouble
from proxy.policy.conditions import as_tuple
from proxy.policy.globs import compile_globs
from proxy.policy.hosts import Host, UrlViews, canonical_host, read_url
from proxy.policy.views import WrongTypeError, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy.arg_select import ArgPath, EvalContext
    from proxy.policy.ip_address import Address

type Fits = Callable[[Host], tuple[bool, bool]]


def view_url(value: Any) -> UrlViews:
    """View a string as a URL or host."""
    if not isinstance(value, str):
        raise WrongTypeError("a URL or host", value)
    return read_url(value)


class HostSet(NamedTuple):
    """Host patterns ready to compare: names, `*.suffix`, globs (None where there are none), addresses."""

    names: frozenset[str]
    suffixes: tuple[str, ...]
    fits_glob: Callable[[str], bool] | None
    addresses: frozenset[Address]

    def may(self, host: Host) -> bool:
        """Return whether some reading of the host is in the set."""
        return self._has_name(host.name) or any(a in self.addresses for a in host.addresses)

    def must(self, host: Host) -> bool:
        """Return whether every reading of the host is in the set."""
        if host.addresses:
            return all(a in self.addresses for a in host.addresses)
        return self._has_name(host.name)

    def _has_name(self, name: str) -> bool:
        return (
            name in self.names or name.endswith(self.suffixes) or (self.fits_glob is not None and self.fits_glob(name))
        )


def compile_hosts(patterns: tuple[str, ...]) -> HostSet:
    """Compile host patterns: example.com, *.example.com, .example.com, api-*.example.com, 10.0.0.1."""
    names: set[str] = set()
    suffixes: list[str] = []
    globs: list[str] = []
    addresses: set[Address] = set()
    for pattern in patterns:
        plain = pattern.removeprefix("*")
        if pattern == "*":
            globs.append(pattern)
        elif plain.startswith(".") and "*" not in plain:
            suffixes.append("." + _name(plain[1:]))
            if not pattern.startswith("*"):
                names.add(_name(plain[1:]))
        elif "*" in pattern or "?" in pattern:
            globs.append(pattern.lower().rstrip("."))
        else:
            host = canonical_host(pattern)
            names.add(host.name if host else pattern.lower())
            addresses.update(host.addresses[:1] if host else ())
    fits = compile_globs(globs) if globs else None
    return HostSet(frozenset(names), tuple(suffixes), fits, frozenset(addresses))


def _name(text: str) -> str:
    host = canonical_host(text)
    return host.name if host else text.lower()


def host_in(arg: ArgPath, operand: Any) -> Callable[[EvalContext], int]:
    """Compile `host_in`."""
    wanted = compile_hosts(as_tuple(operand))
    return _test_hosts(arg, lambda host: (wanted.may(host), wanted.must(host)))


def ip_class(arg: ArgPath, operand: Any) -> Callable[[EvalContext], int]:
    """Compile `ip_class`."""
    wanted = frozenset(as_tuple(operand))

    def fits(host: Host) -> tuple[bool, bool]:
        classes = host.classes()
        hits = [not wanted.isdisjoint(found) for found in classes]
        return any(hits), bool(hits) and all(hits) and all(found <= wanted for found in classes)

    return _test_hosts(arg, fits)


def cidr(arg: ArgPath, operand: Any) -> Callable[[EvalContext], int]:
    """Compile `cidr`."""
    networks = [ipaddress.ip_network(text, strict=False) for text in as_tuple(operand)]

    def fits(host: Host) -> tuple[bool, bool]:
        hits = [any(address in network for network in networks) for address in host.addresses]
        return any(hits), bool(hits) and all(hits)

    return _test_hosts(arg, fits)


def _test_hosts(arg: ArgPath, fits: Fits) -> Callable[[EvalContext], int]:
    views = gather(arg, "url", view_url)

    def test(context: EvalContext) -> int:
        found = views(context)
        may = False
        must = found.sure
        trouble = found.trouble
        for item in found.items:
            may = may or any(fits(host)[0] for host in item.hosts)
            must = must and bool(item.exact) and all(fits(host)[1] for host in item.exact)
            if item.problem:
                trouble = Trouble(AMBIGUOUS, item.problem)
        may = may or any(fits(host)[0] for item in found.extra for host in item.hosts)
        if trouble is not None:
            return int(may) | context.give_up(trouble)
        return 3 if may and must else int(may)

    return test


def url_scheme(arg: ArgPath, operand: Any) -> Callable[[EvalContext], int]:
    """Compile `url_scheme`."""
    wanted = frozenset(word.lower().rstrip(":/") for word in as_tuple(operand))
    views = gather(arg, "url", view_url)

    def test(context: EvalContext) -> int:
        found = views(context)
        may = any(
            not wanted.isdisjoint(schemes)
            for item in (*found.items, *found.extra)
            for schemes in (item.schemes, item.exact_schemes)
        )
        must = found.sure and all(
            item.exact_schemes and item.problem is None and wanted.issuperset(item.exact_schemes)
            for item in found.items
        )
        if found.trouble is not None:
            return int(may) | context.give_up(found.trouble)
        return 3 if may and must else int(may)

    return test
