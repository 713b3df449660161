"""What a draft of a rule would change: recorded calls decided again, with the draft beside the policy in force."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import PolicyError
from proxy.policy.lint import lint
from proxy.policy.load import load_policy, load_sources, policy_files
from proxy.policy.replay import replay
from proxy.policy.rule_tests import run_tests
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.event import CallRecord
    from proxy.policy.lint import Remark
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
    remarks: tuple[Remark, ...] = ()

    @property
    def failed(self) -> tuple[TestResult, ...]:
        return tuple(test for test in self.tests if not test.passed)


def try_draft(policy: Path, draft: str, calls: Sequence[CallRecord]) -> DraftResult:
    """Load the draft beside the policy's files and decide the calls again. Takes a while: call it in a thread."""
    return _try(policy, DRAFT, draft, calls, lambda number, _: f"policy-{number:04}.yaml")


def try_file(policy: Path, name: str, text: str, calls: Sequence[CallRecord]) -> DraftResult:
    """Load the policy with another text for one of its files, and decide the calls again; in a thread as well."""
    return _try(policy, name, text, calls, lambda _, file: file.name)


def _try(
    policy: Path, name: str, text: str, calls: Sequence[CallRecord], copy_name: Callable[[int, Path], str]
) -> DraftResult:
    if len(text) > MAX_DRAFT:
        return DraftResult((f"The draft has more than {MAX_DRAFT} characters.",))
    with tempfile.TemporaryDirectory(prefix="interlock-draft-") as folder:
        try:
            for number, file in enumerate(policy_files(policy)):
                shutil.copyfile(file, Path(folder) / copy_name(number, file))
            (Path(folder) / name).write_text(text, newline="")
            sources = load_sources(Path(folder), builtin())
            candidate = load_policy(Path(folder), builtin())
            content = next(source.content for source in sources if source.path.name == name)
            tests = run_tests(content.call_rules, content.egress.rules if content.egress else ())
        except (PolicyError, OSError, UnicodeError) as error:
            # The folder's name says nothing to whoever wrote the draft.
            return DraftResult(tuple(str(error).replace(f"{folder}/", "").splitlines()))
    ids = {rule.id for rule in content.call_rules}
    rules = [rule for source in sources for rule in source.content.call_rules]
    remarks = tuple(one for one in lint(rules, candidate.default) if one.rule in ids)
    return DraftResult((), tests, replay(candidate, map(_as_event, calls)), remarks)


def _as_event(call: CallRecord) -> dict[str, Any]:
    return {"kind": "decided", **asdict(call)}
