"""`interlock env`: what it prints is what each shell understands."""

from __future__ import annotations

import subprocess

import pytest

from proxy.commands.env import Shell, shell_line
from proxy.errors import ConfigError
from tests.commands.conftest import Run, complaint
from tests.support.timeouts import PATIENCE

VALUE = 'it\'s $HOME `x` \\ "q"'


def test_a_shell_that_evaluates_it_goes_through_the_proxy_without_exceptions(run: Run, tmp_path) -> None:
    done = run("env", "--listen", "127.0.0.1:9")
    script = f'NO_PROXY="*"; export NO_PROXY\n{done.stdout}\nenv'
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    variables = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    assert variables["https_proxy"] == variables["HTTPS_PROXY"] == "http://127.0.0.1:9"
    assert "NO_PROXY" not in variables
    bundle = (tmp_path / "state" / "ca" / "bundle.pem").read_text()
    assert variables["SSL_CERT_FILE"] == str(tmp_path / "state" / "ca" / "bundle.pem")
    assert bundle.count("BEGIN CERTIFICATE") > 1
    assert (tmp_path / "state" / "ca" / "ca.pem").read_text() in bundle


def test_a_container_finds_the_proxy_and_the_ca_where_it_sees_them(run: Run) -> None:
    lines = run(
        "env", "--shell", "docker", "--listen", "interlock:8080", "--ca-folder", "/interlock-ca"
    ).stdout.splitlines()
    assert "HTTPS_PROXY=http://interlock:8080" in lines
    assert "SSL_CERT_FILE=/interlock-ca/bundle.pem" in lines
    assert "NO_PROXY=" in lines


@pytest.mark.parametrize(
    ("shell", "set_", "unset"),
    [
        ("sh", """export A='it'"'"'s $HOME `x` \\ "q"'""", "unset A"),
        ("fish", r"""set -gx A 'it\'s $HOME `x` \\ "q"'""", "set -e A"),
        ("powershell", """$env:A = 'it''s $HOME `x` \\ "q"'""", "Remove-Item -ErrorAction SilentlyContinue Env:A"),
        ("docker", f"A={VALUE}", "A="),
    ],
)
def test_values_are_quoted_as_each_shell_wants_it(shell: Shell, set_: str, unset: str) -> None:
    assert shell_line(shell, "A", VALUE) == set_
    assert shell_line(shell, "A", None) == unset


def test_a_value_of_several_lines_is_refused() -> None:
    with pytest.raises(ConfigError, match="one line"):
        shell_line("docker", "A", "x\nB=y")


def test_an_agents_token_is_in_the_url_and_must_be_its_own(run: Run, tmp_path) -> None:
    token = run("agents", "add", "bot").stdout.splitlines()[0].split()[-1]
    (tmp_path / "token").write_text(f"{token}\n")
    assert (
        f"export HTTPS_PROXY=http://bot:{token}@127.0.0.1:8080"
        in run("env", "--agent", "bot", INTERLOCK_AGENT_TOKEN=token).stdout
    )
    assert f"http://bot:{token}@" in run("env", "--agent", "bot", "--token-file", "token").stdout
    assert "INTERLOCK_AGENT_TOKEN" in complaint(run("env", "--agent", "bot"))
    assert "wrong token for agent 'bot'" in complaint(run("env", "--agent", "bot", INTERLOCK_AGENT_TOKEN="ilk_x"))
    assert "--agent" in complaint(run("env", "--token-file", "token"))


def test_agents_find_placeholders_in_their_variables(run: Run, tmp_path) -> None:
    run("vault", "add", "gh", "--env", "X", "--host", "a.example", "--variable", "GH_TOKEN", "--agent", "agent")
    run("vault", "add", "other", "--env", "X", "--host", "a.example", "--variable", "OTHER", "--agent", "somebody")
    run("vault", "add", "server", "--env", "X", "--host", "a.example", "--variable", "GH_TOKEN", "--server", "s")
    made = run("vault", "placeholder", "gh").stdout.strip()
    lines = run("env", "--listen", "127.0.0.1:9").stdout.splitlines()
    assert f"export GH_TOKEN={made}" in lines
    assert not any("OTHER" in line for line in lines)
    run("vault", "bind", "other", "--agent", "", "--variable", "GH_TOKEN")
    assert "give the agent 'agent' one variable, GH_TOKEN" in complaint(run("env", "--listen", "127.0.0.1:9"))


def test_with_a_damaged_vault_nothing_is_printed(run: Run, tmp_path) -> None:
    run("vault", "add", "gh", "--env", "X")
    (tmp_path / "state" / "vault.json").write_text("{")
    assert "vault.json is damaged" in complaint(run("env", "--listen", "127.0.0.1:9"))
