"""Why nobody is confined is told with the setting that stands in the way, and the way out."""

from __future__ import annotations

import pytest

from proxy.confine.kernel_settings import explain, read_switch, with_settings

REFUSED = "a user namespace: Operation not permitted"


@pytest.mark.parametrize(
    ("problem", "switches", "parts"),
    [
        (
            REFUSED,
            {"kernel.unprivileged_userns_clone": "0"},
            [REFUSED, "sysctl kernel.unprivileged_userns_clone=1"],
        ),
        (REFUSED, {"user.max_user_namespaces": "0"}, ["user.max_user_namespaces is 0"]),
        (
            REFUSED,
            {"kernel.apparmor_restrict_unprivileged_userns": "1"},
            ["apparmor_restrict_unprivileged_userns=0", "AppArmor profile"],
        ),
        (REFUSED, {"kernel.unprivileged_userns_clone": "1"}, ["interlock confine rules", "docs/confine.md"]),
        ("there is no program 'nft'", {}, ["apt-get install nftables"]),
        ("there is no program 'ip'", {}, ["apt-get install iproute2"]),
    ],
)
def test_the_way_out_is_named(problem: str, switches: dict[str, str], parts: list[str]) -> None:
    said = explain(problem, switches.get)
    assert all(part in said for part in parts), said


def test_what_is_no_refusal_of_the_kernels_is_told_as_it_is() -> None:
    assert explain("nft -f -: syntax error", lambda _: "0") == "nft -f -: syntax error"


def test_a_setting_of_the_kernel_is_read_where_there_is_one() -> None:
    assert read_switch("kernel.ostype") == "Linux"
    assert read_switch("kernel.no_such_setting") is None


def test_a_sandbox_without_namespaces_names_the_setting() -> None:
    switches = {"kernel.apparmor_restrict_unprivileged_userns": "1"}
    assert "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0" in with_settings("no namespaces", switches.get)
    assert with_settings("no namespaces", {}.get) == "no namespaces"
    assert with_settings("no Landlock", switches.get) == "no Landlock"
