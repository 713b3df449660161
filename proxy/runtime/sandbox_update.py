"""Puts a changed policy in force for a sandboxed server that runs, and tells what needs a new start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from proxy.errors import InterlockError
from proxy.runtime.sandboxed_run import choose_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.load import ParsedFiles
    from proxy.runtime.sandboxed_run import SandboxedRun

log = structlog.get_logger("interlock.sandbox")


class SandboxUpdate:
    """Called after each reload of the policy. Whatever fails leaves the sandbox as it is."""

    def __init__(
        self,
        box: SandboxedRun,
        server: str,
        command: Sequence[str],
        policy: Callable[[], CompiledPolicy],
        parsed: ParsedFiles | None,
        say: Callable[[str], None],
    ) -> None:
        self._box = box
        self._server = server
        self._command = tuple(command)
        self._policy = policy
        self._parsed = parsed
        self._say = say

    def __call__(self) -> None:
        if self._box.chosen.name != "policy":
            return  # a profile of the command line, which no policy changes
        try:
            chosen = choose_sandbox(None, self._policy(), self._server, self._command, self._parsed)
        except (InterlockError, OSError) as error:
            self._tell(f"the sandbox stays as it is, since its new profile cannot be used: {error}")
            return
        if chosen is None:
            self._tell("the policy has no sandbox for it any more; the one in force stays until it is started again")
            return
        now, later = self._box.update(chosen.profile)
        if now:
            log.warning("a sandbox has changed", server=self._server, fields=now)
        if later:
            self._tell(f"{', '.join(later)} of its sandbox changed, and will count once it is started again")

    def _tell(self, text: str) -> None:
        log.warning("a sandbox needs a new start", server=self._server, why=text)
        self._say(f"interlock run: {self._server!r}: {text}")
