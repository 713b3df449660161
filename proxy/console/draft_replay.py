"""What a draft of a rule would change: recorded calls decided again, with the draft beside the policy in force."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import PolicyError
from proxy.policy.load import load_policy, load_sources, policy_files
from proxy.policy.replay import replay
from proxy.policy.rule_tests import run_tests
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.audit.event import CallRecord
    from proxy.policy.replay import Replay
    from proxy.policy.rule_tests import TestResult

MAX_DRAFT: Final = 64 << 10
DRAFT: Final = "draft.yaml"


@dataclass(frozen=True, slots=True)
class DraftResult:
    """What came of a draft: its problems, or its tests and what it would change."""

    problems: tuple[str, ...] = ()
    tests: tuple[TestResult, ...] = ()
    replay: Replay | None = None

    @property
    def failed(self) -> tuple[TestResult, ...]:
        return tuple(test for test in self.tests if not test.passed)


def try_draft(policy: Path, draft: str, calls: Sequence[CallRecord]) -> DraftResult:
    """Load the draft beside the policy's files and decide the calls again. Takes a while: call it in a thread."""
    if len(draft) > MAX_DRAFT:
        return DraftResult((f"The draft has more than {MAX_DRAFT} characters.",))
    with tempfile.TemporaryDirectory(prefix="interlock-draft-") as folder:
        try:
            for number, file in enumerate(policy_files(policy)):
                shutil.copyfile(file, Path(folder) / f"policy-{number:04}.yaml")
            file = Path(folder) / DRAFT
            file.write_text(draft)
            tests = run_tests(load_sources(file, builtin())[0].content.rules)
            candidate = load_policy(Path(folder), builtin())
        except (PolicyError, OSError) as error:
            # The folder's name says nothing to whoever wrote the draft.
            return DraftResult(tuple(str(error).replace(f"{folder}/", "").splitlines()))
    return DraftResult((), tests, replay(candidate, map(_as_event, calls)))


def _as_event(call: CallRecord) -> dict[str, Any]:
    return {"kind": "decided", **asdict(call)}
