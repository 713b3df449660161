"""The replica's own copy: verified whenever it is read, and never replaced by an older step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import PolicyError
from proxy.rollout.release_file import Release, ReleaseFile
from proxy.rollout.step import Step, Version, sign
from tests.rollout.fixtures import KEYS, OTHER, OTHER_KEY, SIGNER, bundle, canary, step

STABLE, NEW = bundle("shell"), bundle("shell", "rm")


def release(made: Step, returned: str | None = None) -> Release:
    return Release(sign(made, *SIGNER), {one.digest: one.text for one in (STABLE, NEW)}, returned)


def by_agent(number: int) -> Step:
    return step(number, STABLE, canary=canary(number, NEW, agents=("b*",)), action="canary")


def test_what_was_kept_is_read_and_verified(tmp_path: Path) -> None:
    file = ReleaseFile(tmp_path)
    assert (file.read(), file.stamp()) == (None, None)
    assert file.learn(release(step(3, STABLE)))
    found = ReleaseFile(tmp_path).read()
    assert found is not None
    assert found.verified(KEYS).step == step(3, STABLE)
    assert found.verified(KEYS).bundle(found.verified(KEYS).step.stable) == STABLE
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_an_older_step_and_another_one_of_the_same_number_are_not_taken(tmp_path: Path) -> None:
    file = ReleaseFile(tmp_path)
    file.learn(release(step(3, STABLE)))
    assert not file.learn(release(step(2, NEW)))
    assert not file.learn(release(step(3, NEW)))
    assert file.learn(release(step(9, NEW)))
    assert file.read() == release(step(9, NEW))


def test_the_end_of_a_canary_is_kept_and_never_taken_back(tmp_path: Path) -> None:
    file = ReleaseFile(tmp_path)
    file.learn(release(by_agent(4)))
    assert not file.end_canary(3, "of another step")
    assert file.end_canary(4, "denials jumped")
    assert not file.end_canary(4, "again")
    assert not file.learn(release(by_agent(4)))
    found = file.read()
    assert found is not None
    verified = found.verified(KEYS)
    assert (verified.returned, verified.canary_agents, verified.has_canary) == ("denials jumped", (), False)


def test_whose_the_canary_is(tmp_path: Path) -> None:
    share = step(4, STABLE, canary=canary(4, NEW, replicas=("a",)), action="canary")
    verified = release(share).verified(KEYS)
    assert (verified.canary_at("a"), verified.canary_at("b"), verified.canary_agents) == (True, False, ())
    assert not release(share, "over").verified(KEYS).canary_at("a")
    assert release(by_agent(4)).verified(KEYS).canary_agents == ("b*",)
    name = ReleaseFile(tmp_path).replica()
    assert name == ReleaseFile(tmp_path).replica() != ReleaseFile(tmp_path / "other").replica()


def test_a_file_that_somebody_changed_is_not_used(tmp_path: Path) -> None:
    file = ReleaseFile(tmp_path)
    good = release(step(3, STABLE))
    other = bundle(default="allow")
    for bad in (
        replace(good, bundles={STABLE.digest: other.text}),
        replace(good, bundles={}),
        Release(sign(step(3, STABLE), OTHER.key_id, OTHER_KEY), good.bundles),
        replace(good, signed=replace(good.signed, number=4)),
    ):
        with pytest.raises(PolicyError):
            bad.verified(KEYS)
    file.learn(good)
    file.path.write_text("{")
    with pytest.raises(PolicyError, match="restore it"):
        file.read()
    assert file.learn(release(step(1, NEW)))  # what cannot be read is in force nowhere


def test_versions_keep_their_numbers() -> None:
    assert release(step(9, stable=Version(3, STABLE.digest))).verified(KEYS).step.stable.number == 3
