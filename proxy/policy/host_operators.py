"""The operators `host_in`, `url_scheme`, `ip_class`, `host_data` and `cidr`. Pure, no I/O."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.policy.conditions import as_tuple
from proxy.policy.globs import compile_globs
from proxy.policy.host_data import carries_data
from proxy.policy.hosts import Host, UrlViews, canonical_host, read_url
from proxy.policy.views import MAY, NO, YES, Test, WrongTypeError, gather, judge_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy.arg_path import ArgPath
    from proxy.policy.ip_address import Address


def view_url(value: Any) -> UrlViews:
    if not isinstance(value, str):
        raise WrongTypeError("a URL or host", value)
    return read_url(value)


class HostSet(NamedTuple):
    """Compiled host patterns: names, `*.suffix`, globs (None where there are none), addresses."""

    names: frozenset[str]
    suffixes: tuple[str, ...]
    fits_glob: Callable[[str], bool] | None
    addresses: frozenset[Address]

    def may(self, host: Host) -> bool:
        """Return whether some reading of the host is in the set."""
        return self._has_name(host.name) or any(a in self.addresses for a in host.addresses)

    def must(self, host: Host) -> bool:
        """Return whether every reading of the host is in the set."""
        # [::ffff:10.0.0.1] reaches 10.0.0.1 on most kernels: an allow must name both addresses.
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
        bare = pattern.removeprefix("*").removeprefix(".")
        host = canonical_host(bare)
        name = host.name if host else bare.lower()
        if pattern.startswith((".", "*.")) and "*" not in bare:
            suffixes.append("." + name)
            if pattern.startswith("."):
                names.add(name)
        elif "*" in pattern or "?" in pattern:
            globs.append(pattern.lower().rstrip("."))
        else:
            names.add(name)
            addresses.update(host.addresses[:1] if host else ())
    fits = compile_globs(globs) if globs else None
    return HostSet(frozenset(names), tuple(suffixes), fits, frozenset(addresses))


def host_in(arg: ArgPath, operand: Any) -> Test:
    wanted = compile_hosts(as_tuple(operand))
    return _judge_hosts(arg, wanted.may, wanted.must)


def ip_class(arg: ArgPath, operand: Any) -> Test:
    wanted = frozenset(as_tuple(operand))

    def may(host: Host) -> bool:
        return any(not wanted.isdisjoint(found) for found in host.classes())

    # 0.0.0.0 is unspecified and loopback: an allow must name every class that an address has.
    def must(host: Host) -> bool:
        classes = host.classes()
        return bool(classes) and all(found <= wanted for found in classes)

    return _judge_hosts(arg, may, must)


def host_data(arg: ArgPath, _operand: Any) -> Test:
    def carries(host: Host) -> bool:
        return not host.addresses and carries_data(host.name)

    return _judge_hosts(arg, carries, carries)


def cidr(arg: ArgPath, operand: Any) -> Test:
    networks = [ipaddress.ip_network(text, strict=False) for text in as_tuple(operand)]

    def within(address: Address) -> bool:
        return any(address in network for network in networks)

    return _judge_hosts(
        arg,
        lambda host: any(map(within, host.addresses)),
        lambda host: bool(host.addresses) and all(map(within, host.addresses)),
    )


def _judge_hosts(arg: ArgPath, may: Callable[[Host], bool], must: Callable[[Host], bool]) -> Test:
    def judge(view: UrlViews) -> int:
        if view.exact and all(map(must, view.exact)):
            return YES
        return MAY if any(map(may, view.hosts)) else NO

    return judge_each(gather(arg, "url", view_url), judge, with_problems=True)


def url_scheme(arg: ArgPath, operand: Any) -> Test:
    wanted = frozenset(word.lower().rstrip(":/") for word in as_tuple(operand))

    def judge(view: UrlViews) -> int:
        if view.exact_schemes and view.problem is None and wanted.issuperset(view.exact_schemes):
            return YES
        return NO if wanted.isdisjoint((*view.schemes, *view.exact_schemes)) else MAY

    return judge_each(gather(arg, "url", view_url), judge)
