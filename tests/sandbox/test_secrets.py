"""The list of secrets that no broad rule opens."""

from __future__ import annotations

import pytest

from proxy.sandbox.secrets import is_secret

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
