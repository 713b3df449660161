"""Run the MCP conformance suite against real servers, direct and through Interlock, side by side.

The suite's verdict on the servers is not the point; the difference that Interlock
makes is. Exit code 0: nothing that passes direct fails through Interlock. 1: something
does. 2: the comparison could not be made.

    make conformance
    make conformance ARGS='--only 2026 --verbose'
    make conformance ARGS='--server http://127.0.0.1:3000/mcp --through http://127.0.0.1:8080/mcp'
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests/ is not an installed package

from tests.support.harness import ServerHandle, start_interlock, start_process_server, start_python_server
from tests.support.node_tools import MODULES, clean_environment, node, server_command

if TYPE_CHECKING:
    from collections.abc import Sequence

SUITE_LIMIT = 300.0
POLICY = "version: 1\ndefault: allow\nrules: []\n"
TIMESTAMP = re.compile(r"-\d{4}-\d\d-\d\dT[^/]*$")
STABLE, NEXT = "@modelcontextprotocol/conformance", "conformance-next"


@dataclass(frozen=True)
class Plan:
    """One suite with its options, and the server it is run against."""

    name: str
    package: str
    options: tuple[str, ...]
    server: str
    flags: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    """Those to run one by one; none: what the options choose."""


# Scenarios of an extension are in no suite. That of notifications has no checks yet.
TASK_SCENARIOS = (
    *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
    *("tasks-mrtr-input", "tasks-mrtr-composition", "tasks-request-headers", "tasks-dispatch-and-envelope"),
    "tasks-required-task-error",
)

PLANS = (
    Plan("2025-11-25", STABLE, ("--suite", "all"), "conformance/v1"),
    Plan("2025-11-25 (next suite)", NEXT, ("--requirements", "2025-11-25"), "conformance/v1"),
    Plan("2026-07-28", NEXT, ("--suite", "all", "--spec-version", "2026-07-28"), "conformance/v2"),
    Plan("2026-07-28 tasks", NEXT, ("--spec-version", "2026-07-28", "--force"), "python_tasks", (), TASK_SCENARIOS),
    Plan("server-everything", STABLE, ("--suite", "all"), "everything", ("--transport", "streamableHttp")),
)


@dataclass(frozen=True)
class Outcome:
    """What one scenario gave: its checks that passed, and why the others did not."""

    passed: frozenset[str]
    failed: dict[str, str]

    def __str__(self) -> str:
        return f"{len(self.passed)} ✓" + (f" {len(self.failed)} ✗" if self.failed else "")


NOTHING = Outcome(frozenset(), {})


def check_key(check: dict[str, Any]) -> str:
    """Return what a check is known by: several checks of a scenario may share an id."""
    return f"{check['id']} ({check['name']})"


def read_outcome(checks: Sequence[dict[str, Any]]) -> Outcome:
    """Judge each check by the worst of its occurrences."""
    failed = {
        check_key(check): check.get("errorMessage") or check.get("description", "")
        for check in checks
        if check["status"] in {"FAILURE", "WARNING"}
    }
    passed = {check_key(check) for check in checks if check["status"] == "SUCCESS"}
    return Outcome(frozenset(passed - failed.keys()), failed)


def read_results(directory: Path) -> dict[str, Outcome]:
    """Read what the suite wrote: one directory `server-SCENARIO-TIMESTAMP` per scenario."""
    checks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(directory.glob("server-*/checks.json")):
        scenario = TIMESTAMP.sub("", file.parent.name.removeprefix("server-"))
        checks[scenario] += json.loads(file.read_bytes())
    return {scenario: read_outcome(found) for scenario, found in checks.items()}


def run_suite(plan: Plan, url: str) -> dict[str, Outcome]:
    """Run the plan's suite against `url`.

    Raises RuntimeError where the suite gives no results.
    """
    chosen = [("--scenario", name) for name in plan.scenarios] or [()]
    with tempfile.TemporaryDirectory(prefix="conformance-") as directory:
        said = [_run_node(plan, "--url", url, "--output-dir", directory, *plan.options, *words) for words in chosen]
        results = read_results(Path(directory))
    if not results or not results.keys() >= set(plan.scenarios):
        raise RuntimeError(f"{plan.package} gave no results for {url}:\n{''.join(said)}")
    return results


def _run_node(plan: Plan, *options: str) -> str:
    done = subprocess.run(
        [node(), str(MODULES / plan.package / "dist" / "index.js"), "server", *options],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SUITE_LIMIT,
        check=False,
    )
    return f"{done.stdout}\n{done.stderr}\n"


def run_own(plan: Plan, *, through_interlock: bool) -> dict[str, Outcome]:
    """Start the plan's server, and Interlock before it where asked, and run the suite."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))
        url = stack.enter_context(_start_server(plan, directory)).url
        if through_interlock:
            url = stack.enter_context(start_interlock(directory, mode=f"reverse:{url}", policy=POLICY)).url
        return run_suite(plan, f"{url}/mcp")


def _start_server(plan: Plan, directory: Path) -> AbstractContextManager[ServerHandle]:
    if plan.server.startswith("python_"):
        return start_python_server(plan.server, directory, flags=plan.flags)
    name = plan.server.replace("/", "-")
    return start_process_server(name, server_command(plan.server), directory, flags=plan.flags)


def lost_checks(direct: Outcome, through: Outcome) -> dict[str, str]:
    """Return the checks that Interlock broke, and what the suite says of each."""
    lost = {check: through.failed.get(check, "did not run") for check in direct.passed - through.passed}
    return lost | {check: why for check, why in through.failed.items() if check not in direct.failed}


def compare(
    console: Console, plan: Plan, direct: dict[str, Outcome], through: dict[str, Outcome], *, verbose: bool
) -> int:
    """Print the scenarios side by side; return how many checks were lost on the way."""
    table = Table("scenario", "direct", "through", "", title=plan.name, title_justify="left")
    lost = 0
    for scenario in sorted(direct | through):
        before, after = direct.get(scenario, NOTHING), through.get(scenario, NOTHING)
        broken = lost_checks(before, after)
        lost += len(broken)
        reasons = "\n".join(f"{check}: {why}" for check, why in broken.items())
        if verbose and not broken:
            reasons = "\n".join(f"(also direct) {check}: {why}" for check, why in after.failed.items())
        table.add_row(scenario, str(before), str(after), reasons, style="red" if broken else "")
    console.print(table)
    return lost


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the plans whose name contains this")
    parser.add_argument("--server", help="a running server's MCP endpoint, in place of the plans' own")
    parser.add_argument("--through", help="the way to --server through a proxy, in place of Interlock")
    parser.add_argument("--verbose", action="store_true", help="also say what fails direct as well")
    arguments = parser.parse_args()
    if bool(arguments.server) != bool(arguments.through):
        parser.error("--server and --through go together: the same endpoint, direct and by way of a proxy")
    return arguments


def main() -> int:
    """Run every plan both ways and give the exit code."""
    arguments = parse_arguments()
    console = Console()
    lost = 0
    plans = [plan for plan in PLANS if arguments.only in plan.name]
    if not plans:
        names = ", ".join(plan.name for plan in PLANS)
        console.print(f"--only {arguments.only} matches none of: {names}")
        return 2
    for plan in plans:
        if arguments.server:
            direct, through = run_suite(plan, arguments.server), run_suite(plan, arguments.through)
        else:
            direct = run_own(plan, through_interlock=False)
            through = run_own(plan, through_interlock=True)
        if not any(outcome.passed for outcome in direct.values()):
            console.print(f"{plan.name}: nothing passes direct, so there is nothing to compare")
            return 2
        lost += compare(console, plan, direct, through, verbose=arguments.verbose)
    console.print(f"{lost} checks pass direct and not through the proxy")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
