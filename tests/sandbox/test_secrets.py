"""The list of secrets that no broad rule opens."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from proxy.sandbox.secrets import NAMES, is_secret, is_secret_name

HOMES = ("/home/me",)


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/.ssh/id_ed25519",
        "/home/me/.aws/credentials",
        "/home/me/.config/gcloud/access_tokens.db",
        "/home/me/.claude.json",
        "/home/me/.codex/auth.json",
        "/home/me/.bash_history",
        "/home/me/.mozilla/firefox/x/logins.json",
        "/home/me/.local/share/keyrings/login.keyring",
        "/home/me/.npmrc",
        "/home/me/.vault-token",
        "/home/me/.pgpass",
        "/home/me/work/backup/id_rsa",
        "/etc/shadow",
        "/root/x",
        "/run/secrets/token",
    ],
)
def test_a_secret_is_known(path: str):
    assert is_secret(path, HOMES)


@pytest.mark.parametrize(
    "path", ["/home/me/work/main.py", "/home/me/.sshx", "/etc/passwd", "/home/me/.config/git/config"]
)
def test_what_is_no_secret_is_not(path: str):
    assert not is_secret(path, HOMES)


def test_roots_home_is_no_secret_to_root():
    assert not is_secret("/root/work/main.py", ("/root",))
    assert is_secret("/root/.ssh/id_rsa", ("/root",))


@pytest.mark.parametrize("pattern", NAMES)
def test_a_name_is_a_secret_as_a_shell_reads_the_pattern(pattern: str):
    base = pattern.replace("*", "a")
    for name in (base, f"x{base}", f"{base}x", base.upper(), pattern.replace("*", ""), f"\n{base}", f"{base}\n", "x"):
        assert is_secret_name(name) == any(fnmatchcase(name, each) for each in NAMES), name
    # What the two tests of a name understand: a star at the beginning, or none, and no other mark.
    assert "*" not in pattern[1:]
    assert not set("?[") & set(pattern)
