from __future__ import annotations

from proxy.errors import InterlockError
from proxy.sandbox import refusal, sandbox_exec


def test_the_launcher_and_its_owner_have_one_exit_code() -> None:
    # The launcher is a script that imports as little as it can, so it has the number once more.
    assert refusal.NOT_CONFINED == sandbox_exec.NOT_CONFINED
    assert issubclass(refusal.SandboxRefusedError, InterlockError)
