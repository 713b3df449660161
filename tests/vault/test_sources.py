"""Sources give a value that can stand in a request, or a reason that quotes nothing of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from proxy.vault.placeholder import make
from proxy.vault.sources import SourceError, fetch
from proxy.vault.vault_file import CommandSource, EnvSource, FileSource
from tests.support.timeouts import PATIENCE

VALUE = "real-value-4711"


def read(path: Path, key: str | None = None) -> bytes:
    return fetch(FileSource(path=str(path), key=key), {}).secret.reveal()


def run(code: str, seconds: float = PATIENCE, **environ: str) -> bytes:
    source = CommandSource(argv=(sys.executable, "-c", code), environment=("ASKED",))
    return fetch(source, environ, seconds).secret.reveal()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (VALUE, None),
        (f"{VALUE}\n", None),
        (f"{VALUE}\r\n", None),
        (f'{{"token": "{VALUE}"}}', "token"),
        (f'{{"data": {{"data": {{"token": "{VALUE}"}}}}}}', "data.data.token"),
        (f'{{"a.b": "{VALUE}"}}', "a.b"),
        (f"# note\nOTHER=1\nexport TOKEN='{VALUE}'\n", "TOKEN"),
        (f'TOKEN = "{VALUE}"', "TOKEN"),
    ],
)
def test_a_value_is_read_from_a_file(tmp_path: Path, text: str, key: str | None) -> None:
    (tmp_path / "s").write_text(text, newline="")
    assert read(tmp_path / "s", key) == VALUE.encode()


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("", None, "is empty"),
        ("\n", None, "is empty"),
        (f"{VALUE}\nb", None, "more than one line"),
        (f"{VALUE}\0", None, "a NUL"),
        (f"{VALUE}\n\n", None, "more than one line"),
        ("v" * (64 * 1024 + 1), None, "more than 64 KiB"),
        ("v" * (1 << 21), None, "more than 1 MiB"),
        (f'{{"a": "{VALUE}"', "a", "no well-formed JSON"),
        (f'{{"a": "{VALUE}", "a": "b"}}', "a", "names a key twice"),
        ('{"a": 4711}', "a", "no text under the key 'a'"),
        (f'{{"a": "{VALUE}"}}', "a.b", "no text under the key"),
        (f"A={VALUE}\nA=b", "A", "stands twice"),
        (f"A={VALUE}", "B", "stands not"),
        (make("a", "ghp_"), None, "is a placeholder"),
    ],
)
def test_what_cannot_be_used_is_told_without_the_value(tmp_path: Path, text: str, key: str | None, why: str) -> None:
    (tmp_path / "s").write_text(text)
    with pytest.raises(SourceError, match=why) as told:
        read(tmp_path / "s", key)
    assert VALUE not in str(told.value)


def test_a_missing_file_a_folder_and_a_fifo_are_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("none", "cannot be read"), ("fifo", "no regular file"), (".", "no regular file|directory")):
        with pytest.raises(SourceError, match=why):
            read(tmp_path / name)


def test_a_variable_is_read_from_the_given_environment() -> None:
    assert fetch(EnvSource(variable="A"), {"A": VALUE}).secret.reveal() == VALUE.encode()
    with pytest.raises(SourceError, match="A is not set"):
        fetch(EnvSource(variable="A"), {})


def test_a_command_prints_the_value_and_gets_only_what_it_needs() -> None:
    code = "import os; print(os.environ['ASKED'] + str('OTHER' in os.environ) + os.getcwd())"
    assert run(code, ASKED=VALUE, OTHER="x") == f"{VALUE}False/".encode()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (f"import sys; sys.stderr.write('{VALUE}'); sys.exit(3)", "exit code 3"),
        (f"import sys; print('{VALUE}'); sys.exit(1)", "exit code 1"),
        ("pass", "is empty"),
        ("print('v' * 100_000)", "more than 64 KiB"),
        (f"print('{VALUE}'); print('b')", "more than one line"),
    ],
)
def test_a_command_that_fails_is_told_without_its_output(
    code: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SourceError, match=why) as told:
        run(code)
    assert VALUE not in str(told.value) + "".join(capfd.readouterr())


def test_a_slow_command_is_ended_with_its_children(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    child = f"import time; file = open({str(alive)!r}, 'w'); time.sleep(600)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    reader = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(SourceError, match="took longer than 1 s"):
        run(code, seconds=1)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # its last writer has ended
    os.close(reader)


def test_a_command_that_is_not_there_is_told() -> None:
    with pytest.raises(SourceError, match="cannot be started"):
        fetch(CommandSource(argv=("/nothing/there",)), {})
