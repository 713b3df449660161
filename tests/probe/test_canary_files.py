"""What a canary home holds: one value in each template, and what agents and tools keep."""

from __future__ import annotations

import pytest

from proxy.probe.canary_files import DOCUMENTS, FOLDERS, PLAIN, SECRETS
from proxy.probe.rulebook import is_sensitive


@pytest.mark.parametrize("path", [*SECRETS, *DOCUMENTS])
def test_a_template_has_one_place_for_its_value(path: str) -> None:
    assert ({**SECRETS, **DOCUMENTS})[path].count("{}") == 1


@pytest.mark.parametrize(
    "path",
    [
        ".claude.json",
        ".codex/auth.json",
        ".vault-token",
        ".pgpass",
        ".zsh_history",
        ".config/chromium/Default/Login Data",
    ],
)
def test_what_agents_and_databases_keep_is_there(path: str) -> None:
    assert path in SECRETS
    assert is_sensitive(f"~/{path}")


def test_a_home_has_the_folders_that_runtimes_make_for_themselves() -> None:
    assert {".cache", ".local/share", ".npm"} <= set(FOLDERS)


def test_no_name_in_the_home_tells_a_server_where_it_is() -> None:
    words = " ".join([*SECRETS, *DOCUMENTS, *PLAIN, *FOLDERS, *SECRETS.values(), *PLAIN.values()]).lower()
    assert not any(word in words for word in ("probe", "interlock", "canary", "honeypot"))
