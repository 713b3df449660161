"""`interlock probe`: exit codes, what it prints, and what it keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.audit.local_log_files import read_logs
from proxy.probe.baseline import command_key, load
from tests.commands.conftest import ROOT, Run, complaint
from tests.support.harness import seed_cache
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE

SERVERS = ROOT / "tests" / "servers"


def live(test: Callable[..., None]) -> Callable[..., None]:
    return needs("strace", "ip", "unshare")(needs_namespaces(test))


def server(name: str, *words: str) -> list[str]:
    return ["--", sys.executable, str(SERVERS / f"{name}.py"), *words]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    seed_cache(tmp_path / "state")
    return tmp_path / "state"


@live
def test_a_clean_server_gives_zero_and_is_known_from_then_on(run: Run, state: Path) -> None:
    done = run("probe", "--repeats", "0", *server("formatter"))
    assert done.returncode == 0, done.stderr
    assert "format_note  (2 ok)" in done.stdout
    assert "declares  read-only" in done.stdout
    assert "0 findings" in done.stdout
    known = load(state, command_key("formatter", server("formatter")[1:]))
    assert known is not None
    assert list(known.tools) == ["format_note"]


@live
def test_findings_give_three_one_json_object_and_events_without_secrets(run: Run, state: Path) -> None:
    done = run("probe", "--json", "--repeats", "0", *server("formatter", "--leaky"))
    assert done.returncode == 3
    report = json.loads(done.stdout)
    assert [found["rule"] for found in report["findings"]] == ["undeclared-egress", "canary-on-the-wire", "canary-read"]
    events = list(read_logs(state))
    assert [event["kind"] for event in events] == ["probed", "finding", "finding", "finding"]
    assert events[0]["outcome"] == "high"
    assert {event["rule"] for event in events[1:]} == {found["rule"] for found in report["findings"]}
    assert {event["session"] for event in events} == {events[0]["session"]}
    assert "PRIVATE KEY" not in json.dumps([report, events])
    assert any("[secret:private-key" in line for found in report["findings"] for line in found["evidence"])


@live
def test_what_changed_is_told_until_it_is_accepted(run: Run, state: Path) -> None:
    flags = ["--repeats", "0", "--json", "--server-name", "f"]
    run("probe", *flags, *server("formatter"))

    def changed(*more: str) -> bool:
        done = run("probe", *flags, *more, *server("formatter", "--leaky"))
        assert done.returncode == (0 if more else 3), done.stderr
        return "behaviour-changed" in {found["rule"] for found in json.loads(done.stdout)["findings"]}

    assert changed()
    assert changed("--accept")
    assert not changed()


@live
def test_every_format_and_the_trace_are_kept_and_what_is_accepted_does_not_fail(
    run: Run, state: Path, tmp_path: Path
) -> None:
    allow, out = tmp_path / "allow.yaml", tmp_path / "out"
    rules = ("undeclared-egress", "canary-on-the-wire", "canary-read")
    allow.write_text("allow:\n" + "".join(f"  - {{rule: {rule}, reason: a test}}\n" for rule in rules))
    words = ["--env", "TOKEN=not-to-be-shown-1", "--format", "sarif", "--allow", str(allow), "--out-dir", str(out)]
    done = run("probe", "--repeats", "0", *words, *server("formatter", "--leaky", "not-to-be-shown-1"))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["runs"][0]["results"]
    assert {result["ruleId"] for result in results} == set(rules)
    assert all(result["suppressions"] for result in results)
    kept = {file.name: file.read_text() for file in out.iterdir()}
    assert set(kept) == {"report.json", "report.sarif", "report.html", "trace.log"}
    assert {file.stat().st_mode & 0o777 for file in out.iterdir()} == {0o600}
    assert "openat(AT_FDCWD" in kept.pop("trace.log")
    assert not any("not-to-be-shown" in text or "PRIVATE KEY" in text for text in kept.values())
    assert "$TOKEN" in kept["report.json"]


def test_an_allow_list_that_cannot_be_read_lets_nothing_run(run: Run, tmp_path: Path) -> None:
    (allow := tmp_path / "allow.yaml").write_text("allow:\n  - {rule: no-such-rule, reason: x}\n")
    assert "no-such-rule" in complaint(run("probe", "--allow", str(allow), "--", "true"))


@live
def test_a_server_that_ended_is_told_as_that_and_its_words_do_not_drive_the_terminal(run: Run, state: Path) -> None:
    said = complaint(run("probe", "--", "sh", "-c", r"printf 'oh no\n\033]0;mine\007' >&2; exit 4"))
    assert "the server ended with exit code 4" in said
    assert "oh no\n\\x1b]0;mine\\x07" in said
    assert "\x1b]" not in said
    assert load(state, "sh") is None


@live
def test_a_probe_that_is_told_to_end_leaves_nothing(environment: None, tmp_path: Path) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    words = [sys.executable, "-m", "proxy.cli", "probe", "--", "sh", "-c", "sleep 60"]
    with subprocess.Popen(words, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + PATIENCE
        while not list(temporary.glob("session-*/run/stderr")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.terminate()
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors == b""
    assert list(temporary.glob("session-*")) == []


@needs("strace", "setpriv")
@needs_namespaces
def test_where_there_can_be_no_sinkhole_the_exit_code_is_two(environment: None, tmp_path: Path) -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$@"'
    words = [sys.executable, "-m", "proxy.cli", "probe", *server("formatter")]
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", forbid, "sh", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "this system refuses a sinkhole" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_strace_the_exit_code_is_two(run: Run, tmp_path: Path) -> None:
    done = run("probe", *server("formatter"), PATH=str(tmp_path))
    assert done.returncode == 2
    assert "strace is not installed" in done.stderr


def test_a_program_that_is_not_there_is_told_as_that(run: Run) -> None:
    done = run("probe", "--", "no-such-program")
    assert done.returncode == 1
    assert "cannot start 'no-such-program': no such file or directory" in done.stderr


@pytest.mark.parametrize("said", ["no-name!", "NOT_SET_ANYWHERE", "=x"])
def test_a_variable_that_is_none_is_refused(run: Run, said: str) -> None:
    assert "--env" in complaint(run("probe", "--env", said, "--", "true"))


@pytest.mark.parametrize("words", [["ftp://x"], ["https://a", "b"], ["node"]])
def test_over_http_one_url_is_taken(run: Run, words: list[str]) -> None:
    assert "takes one URL" in complaint(run("probe", "--transport", "http", *words))


def test_over_http_nobody_there_is_told(run: Run) -> None:
    assert "cannot be reached" in complaint(run("probe", "--transport", "http", "http://127.0.0.1:9/mcp"))
