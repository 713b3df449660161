"""`interlock run`, before anything runs; tests/stdio/test_runner.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.runtime import stdio_run as module
from tests.commands.conftest import Run, complaint


@pytest.fixture(autouse=True)
def own_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing here take the test process's own streams or children."""

    async def serve(*_: object) -> int:
        raise AssertionError("it was started")

    monkeypatch.setattr(module, "_serve", serve)
    monkeypatch.setattr(module, "set_subreaper", lambda: None)
    monkeypatch.setattr(module, "kill_descendants", lambda _: True)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("no-such-program", 127, "interlock run: cannot start 'no-such-program': no such file or directory\n"),
        ("/", 126, "interlock run: cannot start '/': is a directory\n"),
        ("./plain", 126, "interlock run: cannot start './plain': permission denied\n"),
    ],
)
def test_a_program_that_cannot_be_started_is_told_as_shells_do(
    command: str, code: int, said: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("")
    done = run("run", "--", command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_without_a_command_it_is_wrong_usage(run: Run) -> None:
    assert run("run").returncode == 2


def test_where_agents_must_prove_themselves_it_does_not_run(run: Run) -> None:
    said = complaint(run("run", "--", "true", INTERLOCK_AGENT_AUTH="required"))
    assert "agent_auth" in said
    assert "INTERLOCK_AGENT_AUTH=optional" in said


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "x" * 201])
def test_a_name_that_cannot_be_shown_is_refused(name: str, run: Run) -> None:
    assert "--server-name" in complaint(run("run", "--server-name", name, "--", "true"))


def test_it_is_quiet_unless_asked_to_speak(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(*_: object) -> int:
        return 0

    levels: list[str] = []
    monkeypatch.setattr(module, "_serve", serve)
    monkeypatch.setattr(module.log_setup, "configure", lambda level, _: levels.append(level))
    run("run", "--", "true")
    monkeypatch.setenv("INTERLOCK_LOG_LEVEL", "info")
    run("run", "--", "true")
    run("run", "--log-level", "debug", "--", "true")
    assert levels == ["warning", "info", "debug"]


@pytest.mark.parametrize(
    ("flags", "server", "agent"),
    [
        ((), "true", "agent"),
        (("--server-name", "files", "--agent", "bot"), "files", "bot"),
    ],
)
def test_server_and_agent_are_named(
    flags: tuple[str, ...], server: str, agent: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(_: object, context: module.Context, launch: module.Launch, *_more: object) -> int:
        assert (context.server, context.principal.agent, context.transport) == (server, agent, "stdio")
        assert context.session
        assert launch.argv == ("true", "--flag", "--", "x")
        return 9

    monkeypatch.setattr(module, "_serve", serve)
    assert run("run", *flags, "--", "true", "--flag", "--", "x").returncode == 9


@pytest.mark.parametrize("words", [("--", "true"), ("true",)], ids=["the plain form", "typer's"])
def test_both_parsers_lead_to_the_same_run(words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(_: object, context: module.Context, launch: module.Launch, *_more: object) -> int:
        assert (context.server, context.principal.agent, launch.argv) == ("files", "bot", ("true",))
        return 9

    monkeypatch.setattr(module, "_serve", serve)
    assert run("run", "--server-name", "files", "--agent", "bot", *words).returncode == 9
