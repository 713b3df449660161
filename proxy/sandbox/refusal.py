"""How a sandbox that cannot be set up is told. Imports nothing: every start does, also that of servers without one."""

from __future__ import annotations

from proxy.errors import InterlockError

NOT_CONFINED = 125  # the exit code


class SandboxRefusedError(InterlockError):
    """The sandbox could not be set up, so the server was not started; the message says which step."""
