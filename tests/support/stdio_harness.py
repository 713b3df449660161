"""A client at the wire of `interlock run`: it writes bytes and reads lines."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.harness import DENY_ALL_DANGER, REPOSITORY, environment, seed_cache
from tests.support.processes import Process, start_module
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail


def recorder(log: Path, *flags: str) -> list[str]:
    """Return the command of the server that notes every byte it gets (tests/servers/stdio_recorder.py)."""
    return [sys.executable, str(REPOSITORY / "tests" / "servers" / "stdio_recorder.py"), str(log), *flags]


def run_words(state_dir: Path, policy: Path, command: Sequence[str], *flags: str) -> list[str]:
    """Return the words of `interlock run` that follow `interlock`."""
    return ["run", "--state-dir", str(state_dir), "--policy", str(policy), *flags, "--", *command]


def run_command(state_dir: Path, policy: Path, command: Sequence[str], *flags: str) -> list[str]:
    """Return the command line of `interlock run`."""
    return [sys.executable, "-m", "proxy.cli", *run_words(state_dir, policy, command, *flags)]


@dataclass
class Run:
    """A running `interlock run`."""

    process: Process
    state_dir: Path
    policy: Path
    stderr: Path
    _buffer: bytes = field(default=b"")

    def send(self, *messages: Any) -> None:
        """Write messages, each on its line; bytes are written as they are."""
        assert self.process.stdin
        for message in messages:
            raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            self.process.stdin.write(raw)
        self.process.stdin.flush()

    def receive(self, limit: float = PATIENCE) -> Any:
        """Return the next message, or None where there are no more."""
        line = self._line(time.monotonic() + limit)
        return json.loads(line) if line else None

    def answer(self, message_id: Any) -> Any:
        """Return the answer to a request, passing over what comes before it."""
        while (message := self.receive()) is not None:
            if message.get("id") == message_id and "method" not in message:
                return message
        raise AssertionError(f"no answer to {message_id!r}:\n{self.errors()}")

    def ask(self, method: str, message_id: Any, **params: Any) -> Any:
        """Send a request and give its answer."""
        self.send({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})
        return self.answer(message_id)

    def call(self, tool: str, message_id: Any, **arguments: Any) -> Any:
        """Call a tool and give the answer."""
        return self.ask("tools/call", message_id, name=tool, arguments=arguments)

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout
        stdout = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"nothing came in time:\n{self.errors()}"
            chunk = os.read(stdout, 1 << 16)
            if not chunk:
                assert not self._buffer, f"half a line at the end: {self._buffer!r}"
                return b""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def end(self) -> int:
        """Close stdin, and give the exit code once it is there."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        return self.stderr.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """Return the audit events of the state folder; all of them, once the run has ended."""
        return read_trail(self.state_dir)


@contextlib.contextmanager
def start_run(
    directory: Path,
    command: Sequence[str],
    *flags: str,
    policy: str = DENY_ALL_DANGER,
    env: dict[str, str] | None = None,
    state_dir: Path | None = None,
    cwd: Path = REPOSITORY,
) -> Iterator[Run]:
    """Run `command` behind `interlock run` until the block ends; what is left then is killed."""
    directory.mkdir(parents=True, exist_ok=True)
    state, policy_file, stderr = state_dir or directory / "state", directory / "policy.yaml", directory / "run.stderr"
    policy_file.write_text(policy)
    seed_cache(state)
    with stderr.open("wb") as errors:
        process = start_module(
            "proxy.cli",
            *run_words(state, policy_file, command, *flags),
            env=environment(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    with process:
        try:
            yield Run(process, state, policy_file, stderr)
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                assert process.stdin
                process.stdin.close()
