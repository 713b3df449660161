"""The pushed policy as the reloader sees it: loaded from the replica's file, verified each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxy.errors import PolicyError
from proxy.policy.by_agent import PolicyByAgent, agentless, differing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxy.audit.signing_keys import PublicKey
    from proxy.core.interfaces import KnownDetectors
    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.load import ParsedFiles
    from proxy.policy.reloader import PolicyOrigin
    from proxy.rollout.release_file import ReleaseFile, VerifiedRelease

LOOK_SECONDS: Final = 0.1


class PushedPolicy:
    """A `reloader.PolicyOrigin`: the version that the newest step says for this replica.

    `before` is what is in force until the first version is pushed. It is used only where no step was ever seen.
    """

    poll_seconds = LOOK_SECONDS

    def __init__(
        self,
        file: ReleaseFile,
        keys: Callable[[], Mapping[str, PublicKey]],
        before: PolicyOrigin,
        *,
        book: KnownDetectors | None = None,
        parsed: ParsedFiles | None = None,
        home: str | None = None,
    ) -> None:
        self._file = file
        self._keys = keys
        self._before = before
        self._book = book
        self._parsed = parsed
        self._home = home
        self.shown = str(file.path)

    def stamp(self) -> object:
        own = self._file.stamp()
        return (own, None if own is not None else self._before.stamp())

    def load(self) -> CompiledPolicy:
        """Return the policy in force at this replica. Raises PolicyError."""
        release = self._file.read()
        return self._before.load() if release is None else self.compile(release.verified(self._keys()))

    def taken(self, policy: CompiledPolicy, stamp: Any) -> object:
        own, before = stamp
        return own, before if own is not None else self._before.taken(policy, before)

    def compile(self, release: VerifiedRelease) -> CompiledPolicy:
        """Return what a step says for this replica. Raises PolicyError where it cannot be used here."""
        step = release.step
        stable = step.stable
        if step.canary is not None and release.canary_at(self._file.replica()):
            return release.bundle(step.canary.version).compile(
                str(step.canary.version), self._book, self._parsed, self._home
            )
        policy = release.bundle(stable).compile(str(stable), self._book, self._parsed, self._home)
        if step.canary is None or not release.canary_agents:
            return policy
        check_by_agent(release)
        bundle, name = release.bundle(step.canary.version), str(step.canary.version)
        canary = bundle.compile(name, self._book, self._parsed, self._home)
        return PolicyByAgent(policy, canary, release.canary_agents)


def check_by_agent(release: VerifiedRelease) -> None:
    """Raise PolicyError where two versions differ in what cannot differ by agent."""
    assert release.step.canary is not None
    versions = (release.step.stable, release.step.canary.version)
    stable, canary = (agentless(release.bundle(version).sources()) for version in versions)
    if found := differing(stable, canary):
        raise PolicyError(
            f"a canary by agent cannot change {', '.join(found)}: that holds for a whole proxy, whoever calls; "
            "push it with --canary PERCENT%, or without a canary"
        )
