from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxy.errors import ConfigError
from proxy.kubernetes.injection import load_injection

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "initContainers: [{name: interlock}]\n"


def test_a_file_names_what_is_added(tmp_path: Path) -> None:
    file = tmp_path / "injection.yaml"
    file.write_text(f"{GOOD}volumes: [{{name: state}}]\nproxyUser: 7\n")
    injection = load_injection(file)
    assert (injection.proxy_user, injection.agent_user, injection.opt_out) == (7, 10002, False)
    assert (injection.container_names, injection.volume_names, injection.agents_volumes) == (
        {"interlock"},
        {"state"},
        set(),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("initContainers: []", "initContainers"),
        ("", "the file"),
        ("initContainers: [", "is not YAML"),
        (f"{GOOD}initContainers: []", "is not YAML"),
        (f"{GOOD}sidecars: []", "sidecars"),
        (f"{GOOD}proxyUser: 10002", "both 10002"),
        (f"{GOOD}proxyUser: 0", "proxyUser"),
        ("initContainers: [{image: x}]", "needs a name"),
        (f"{GOOD}agents: {{volumeMounts: [{{name: state, mountPath: /s}}]}}", "not read-only"),
    ],
)
def test_a_mistake_is_told_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "injection.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as told:
        load_injection(file)
    assert str(file) in str(told.value)
    assert said in str(told.value)
