"""`tests/commands/test_run_sandbox.py` changes the policy of a running server; here, every field and every failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.runtime import sandbox_update
from proxy.runtime.sandbox_update import SandboxUpdate
from proxy.runtime.sandboxed_run import ChosenSandbox, SandboxedRun
from proxy.sandbox.grants import Grants
from proxy.sandbox.plan import WayOut
from proxy.sandbox.profile import SandboxProfile
from proxy.sandbox.server_process import Launch


def profile(**fields: Any) -> SandboxProfile:
    return SandboxProfile.model_validate(fields)


def running(name: str = "policy", *, firewall: str | None = None, **fields: Any) -> SandboxedRun:
    made = profile(**fields)
    way = WayOut((443,) if made.hosts != () else None, firewall=firewall)
    return SandboxedRun(
        ChosenSandbox(made, name), Launch("/bin/x", ("x",)), ("x",), None, Grants(hosts=made.hosts), way
    )


ROWS: list[tuple[dict[str, Any], dict[str, Any], str | None, bool]] = [
    ({"network": ["a.test:443"]}, {"network": ["b.test:443"]}, None, True),
    ({"network": ["a.test:443"]}, {"network": "none"}, None, True),
    ({"network": ["a.test:443"]}, {"network": ["b.test:8443"]}, None, False),  # no such port leads out
    ({"network": ["a.test:443"]}, {"network": "any"}, None, False),
    ({"network": ["a.test:443"]}, {"network": ["localhost:443"]}, None, False),
    ({"network": "any"}, {"network": ["b.test:8443"]}, "rules", True),
    ({"network": ["*:*"]}, {"network": "any"}, "rules", True),
    ({"network": "none"}, {"network": ["a.test:443"]}, None, False),
]


@pytest.mark.parametrize(("old", "new", "firewall", "at_once"), ROWS)
def test_hosts_change_at_once_where_the_ways_out_are_enough(
    old: dict[str, Any], new: dict[str, Any], firewall: str | None, at_once: bool
) -> None:
    box = running(firewall=firewall, **old)
    assert box.update(profile(**new)) == ((["network"], []) if at_once else ([], ["network"]))
    assert box.chosen.profile.network == (new if at_once else old)["network"]
    assert box.lists("b.test", 443) == (box.chosen.profile.network in (["b.test:443"], "any"))


def test_other_fields_need_a_new_start() -> None:
    box = running(network=["a.test:443"], read=["/srv"])
    assert box.update(profile(network=["b.test:443"], read=["/opt"], mode="shadow")) == (["network"], ["read", "mode"])
    assert (box.chosen.profile.read, box.chosen.profile.mode) == (["/srv"], None)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (ChosenSandbox(profile(network=["b.test:443"]), "policy"), []),
        (ChosenSandbox(profile(network=["a.test:443"], write=["/srv"]), "policy"), ["write of its sandbox changed"]),
        (None, ["no sandbox for it any more"]),
        (ConfigError("bad line"), ["stays as it is", "bad line"]),
    ],
)
def test_what_does_not_count_at_once_is_told(monkeypatch: pytest.MonkeyPatch, found: Any, told: list[str]) -> None:
    def choose(*_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(sandbox_update, "choose_sandbox", choose)
    box, said = running(network=["a.test:443"]), list[str]()
    SandboxUpdate(box, "files", ("x",), SimpleNamespace, None, said.append)()  # type: ignore[arg-type]
    assert len(said) == bool(told)
    assert all(part in said[0] for part in told)
    assert box.lists("a.test", 443) == bool(told)


def test_a_profile_of_the_command_line_is_not_the_policys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_update, "choose_sandbox", None)
    SandboxUpdate(running("own.yaml"), "files", ("x",), SimpleNamespace, None, pytest.fail)()  # type: ignore[arg-type]
