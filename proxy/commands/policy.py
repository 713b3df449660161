"""`interlock policy`: check, test, explain, compare and replay policies, and print their JSON Schema.

Exit codes: 0 success, 1 the policy is invalid or a test failed, 3 a replay found changes, or two policies differ.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from pydantic import ValidationError
from rich.text import Text
from rich.tree import Tree

from proxy.commands import decide, policy_compare, policy_history, policy_learn, policy_push, replay, rule_proposals
from proxy.commands.audit.query import find_events
from proxy.commands.options import AsJson, ConfigFile, OneLine, StateDir, trail_settings
from proxy.commands.policy_tests import run_all_tests
from proxy.commands.terminal import (
    count,
    format_json,
    print_json_lines,
    print_schema,
    print_table,
    printable,
    printable_lines,
    stdout_console,
)
from proxy.core.model import Call
from proxy.errors import PolicyError
from proxy.policy.detector_rules import lint_detectors
from proxy.policy.explain import ConditionTrace, Explanation, RuleTrace, explain_act
from proxy.policy.explain import explain as explain_call
from proxy.policy.lint import lint, lint_egress, lint_flows, lint_limits, lint_observed
from proxy.policy.load import PolicyFileError, PolicySource, compile_sources, load_policy, load_sources
from proxy.policy.observed import TestAct
from proxy.policy.replay import recorded_call
from proxy.policy.rule_parts import TestCall
from proxy.policy.rules import PolicyFile, describe_coverage
from proxy.redact import builtin
from proxy.system.package_data import DEFAULT_PROFILE, profile_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.config import Settings
    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.rule_tests import Coverage, TestResult

app = typer.Typer(help="Check, test, explain and replay policies.", no_args_is_help=True)
app.command("replay", epilog=replay.EPILOG)(replay.replay)
app.command("decide", epilog=decide.EPILOG)(decide.decide)
app.command("show", epilog=policy_compare.SHOW_EPILOG)(policy_compare.show)
app.command("diff", epilog=policy_compare.DIFF_EPILOG)(policy_compare.diff)
app.command("learn", epilog=policy_learn.LEARN_EPILOG)(policy_learn.learn)
app.command("push", epilog=policy_push.PUSH_EPILOG)(policy_push.push)
app.command("promote", epilog="Example:  interlock policy promote --note 'a day without complaints'")(
    policy_push.promote
)
app.command("abort", epilog="Example:  interlock policy abort")(policy_push.abort)
app.command("rollback", epilog=policy_push.ROLLBACK_EPILOG)(policy_push.rollback)
app.command("history", epilog=policy_history.HISTORY_EPILOG)(policy_history.history)
app.add_typer(rule_proposals.app, name="proposals")
app.command("key", epilog=policy_history.KEY_EPILOG)(policy_history.key)

PolicyPath = Annotated[
    Path | None, typer.Argument(help="Policy file, or a folder of policy files; default: the profile balanced.")
]
_AUDIT_ID: Final = re.compile(r"[0-9a-z][0-9a-z-]*")


def _path(given: Path | None) -> Path:
    return given if given is not None else profile_file(DEFAULT_PROFILE)


def _fail(error: PolicyError, *, as_json: bool) -> NoReturn:
    if as_json:
        problems = error.problems if isinstance(error, PolicyFileError) else ()
        found = [{"file": p.file, "line": p.line, "column": p.column, "message": p.message} for p in problems]
        print_json_lines([{"ok": False, "errors": found or [{"message": str(error)}]}])
    else:
        typer.echo(printable_lines(error), err=True)
    raise typer.Exit(1)


def _load(path: Path, *, as_json: bool) -> tuple[PolicySource, ...]:
    try:
        return load_sources(path, builtin())
    except PolicyError as error:
        _fail(error, as_json=as_json)


@app.command(epilog="Example:  interlock policy check --strict policies/")
def check(path: PolicyPath = None, *, as_json: AsJson = False, strict: bool = False) -> None:
    """Check a policy: print errors with file, line and column, and remarks on likely mistakes.

    Remarks fail the check only with --strict.
    """
    sources = _load(_path(path), as_json=as_json)
    policy = compile_sources(sources)
    rules = sum(len(source.content.rules) + len(source.content.incoming) for source in sources)
    found = _remarks(sources, policy)
    failed = strict and bool(found)
    if as_json:
        covers = {rule.id: describe_coverage(rule) for source in sources for rule in source.content.call_rules}
        shown = {"ok": not failed, "rules": rules, "errors": [], "remarks": found, "covers": covers}
        print_json_lines([shown])
    else:
        for remark in found:
            words = f"{remark['rule']} {remark['message']}".strip()
            typer.echo(f"{remark['at']}: {remark['kind']}: {words}")
        _echo_coverage(sources)
        limits = len(policy.limits.compiled)
        also = f" and {count(limits, 'limit')}" if limits else ""
        counted = f"{count(rules, 'rule')}{also} in {count(len(sources), 'file')}"
        typer.echo(f"{counted}, default {policy.default}: no errors")
    # Remarks are guesses: by default they must not break a pipeline.
    raise typer.Exit(1 if failed else 0)


def _echo_coverage(sources: tuple[PolicySource, ...]) -> None:
    """Say what the rules without `methods` cover, because that differs by action."""
    silent = [rule for source in sources for rule in source.content.call_rules if rule.methods is None]
    for rule in silent:
        if rule.action == "redact":
            typer.echo(f"{rule.id} masks: {describe_coverage(rule)}")
    if others := sum(rule.action != "redact" for rule in silent):
        typer.echo(f"{count(others, 'other rule')} without `methods`: for tools/call alone")


def _remarks(sources: tuple[PolicySource, ...], policy: CompiledPolicy) -> list[dict[str, str]]:
    rules = [rule for source in sources for rule in source.content.call_rules]
    positions = {}
    for source in sources:
        for position, rule in enumerate(source.content.rules):
            positions[rule.id] = _position(source, "rules", position)
        for position, judged in enumerate(source.content.egress.rules if source.content.egress else ()):
            positions[judged.id] = _position(source, "egress", "rules", position)
        for position, limit in enumerate(source.content.limits):
            positions[limit.id] = _position(source, "limits", position)
        for position, flow in enumerate(source.content.flows):
            positions[flow.id] = _position(source, "flows", position)
        for position, label in enumerate(source.content.labels):
            positions[label.id] = _position(source, "labels", position)
    limits = [limit for source in sources for limit in source.content.limits]
    labels = [label for source in sources for label in source.content.labels]
    flows = [flow for source in sources for flow in source.content.flows]
    on_flows = lint_flows(labels, flows, rules, policy.incoming.rules)
    on_acts = lint_observed(policy.observed.rules)
    on_others = (*lint_limits(limits), *lint_egress(policy.egress.section), *on_flows, *on_acts)
    on_rules = (*lint(rules, policy.default), *on_others)
    return [
        *({"at": positions[r.rule], "rule": r.rule, "kind": r.kind, "message": r.message} for r in on_rules),
        *(
            {"at": _position(r.source, *r.steps), "rule": "", "kind": r.kind, "message": r.message}
            for r in lint_detectors(sources, builtin())
        ),
    ]


def _position(source: PolicySource, *steps: str | int) -> str:
    line, column = source.at(*steps)
    return f"{source.path}:{line}:{column}"


@app.command("test", epilog="Example:  interlock policy test --json policies/")
def run(path: PolicyPath = None, *, as_json: AsJson = False) -> None:
    """Run the tests in the policy files, and show which rules they cover."""
    sources = _load(_path(path), as_json=as_json)
    results, covered = run_all_tests(sources)
    failed = [result for result in results if not result.passed]
    if as_json:
        shown = [
            {"rule": r.rule, "test": r.number, "expected": r.expected, "got": r.got, "passed": r.passed, "call": r.call}
            for r in results
        ]
        rows = [{"rule": c.rule, "matching": c.matching, "silent": c.silent, "complete": c.complete} for c in covered]
        print_json_lines([{"ok": not failed, "tests": shown, "coverage": rows}])
    else:
        _show_tests(results, covered)
    raise typer.Exit(1 if failed else 0)


def _show_tests(results: tuple[TestResult, ...], covered: tuple[Coverage, ...]) -> None:
    columns = ("rule", "matches", "stays silent", "covered")
    rows = [(rule.rule, rule.matching, rule.silent, "yes" if rule.complete else "no") for rule in covered]
    if rows:
        print_table(columns, rows, right=("matches", "stays silent"))
    failed = [result for result in results if not result.passed]
    for result in failed:
        message = f"{result.rule} test {result.number}: expected {result.expected}, got {result.got}: {result.call}"
        stdout_console().print(Text.assemble(("failed", "red"), f" {printable(message)}"), soft_wrap=True)
    complete = sum(1 for rule in covered if rule.complete)
    passed = f"{len(results) - len(failed)} of {count(len(results), 'test')}"
    typer.echo(f"{passed} passed; {complete} of {count(len(covered), 'rule')} covered")


@app.command(
    epilog='Example:  interlock policy explain --call \'{"tool": "shell", "arguments": {"command": "ls /etc"}}\''
)
def explain(
    path: PolicyPath = None,
    *,
    call: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE|ID",
            help="The call: {server, tool, agent, method, arguments} as JSON or in a file, or the audit id of one.",
        ),
    ] = None,
    act: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="In place of a call, what a server did: {act, path, host, port, command, tool}."
        ),
    ] = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show how a call is decided: what decided, which rules were checked, and what each compared.

    Of a recorded call, secrets in the arguments are masked. With --act, which rules on observed behaviour match.
    """
    if (call is None) == (act is None):
        raise PolicyError("give --call or --act")
    policy = load_policy(_path(path), builtin())
    if call is None:
        _show_act(explain_act(policy, _parse_act(act or "")), as_json=as_json)
        return
    asked = _read_call(call, partial(trail_settings, None, state_dir, config))
    explanation = explain_call(policy, asked)
    if as_json:
        typer.echo(format_json(explanation.data()))
    else:
        _show_explanation(explanation)


def _read_call(given: str, settings: Callable[[], Settings]) -> Call:
    """Return a call that is given as JSON, as a file or by its audit id. Raises PolicyError or ConfigError."""
    if given.lstrip().startswith(("{", "[")):
        return _parse_call(given, "--call")
    if not _AUDIT_ID.fullmatch(given) or Path(given).exists():
        try:
            return _parse_call(Path(given).read_bytes(), given)
        except OSError as error:
            raise PolicyError(f"cannot read {given}: {error.strerror}; give JSON, a file or an audit id") from None
    events = asyncio.run(find_events(settings(), given))
    decided = next((event for event in events if event.get("kind") == "decided"), None)
    if decided is None:
        raise PolicyError(f"nothing was decided under the id {given}; `interlock audit query` lists calls")
    return recorded_call(decided)


def _parse_call(text: str | bytes, source: str) -> Call:
    try:
        return TestCall.model_validate(json.loads(text)).as_call()
    except ValueError as error:
        example = '{"tool": "read_file", "arguments": {"path": "/etc/passwd"}}'
        raise PolicyError(f"{source}: not a call ({_first_problem(error)}); write {example}") from None


def _parse_act(text: str) -> TestAct:
    try:
        return TestAct.model_validate(json.loads(text))
    except ValueError as error:
        raise PolicyError(
            f'--act: not an act ({_first_problem(error)}); write {{"act": "fs.read", "path": "/etc/passwd"}}'
        ) from None


def _first_problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def _show_act(traces: tuple[RuleTrace, ...], *, as_json: bool) -> None:
    if as_json:
        print_json_lines([{"looked_at": [asdict(trace) for trace in traces]}])
        return
    matched = [trace.rule for trace in traces if trace.matched]
    tree = Tree(_plain(f"matched by {', '.join(matched)}" if matched else "no rule on observed behaviour matches"))
    for trace in sorted(traces, key=lambda trace: not trace.matched):
        _show_trace(tree, trace)
    stdout_console().print(tree)


def _show_trace(tree: Tree, trace: RuleTrace) -> None:
    mark = "matched" if trace.matched else "did not match"
    branch = tree.add(_plain(f"{trace.rule} ({trace.action}, {trace.mode}) {mark}: {trace.why}"))
    if trace.condition is not None:
        _show_step(branch, trace.condition)


def _show_explanation(explanation: Explanation) -> None:
    decision = explanation.decision
    title = f"{decision.outcome} · {decision.reason}" + (f" · {decision.rule}" if decision.rule else "")
    tree = Tree(_plain(title))
    tree.add(_plain(f"because {explanation.because}"))
    # What decided comes first, then what matched too, then the rest.
    for trace in sorted(explanation.looked_at, key=lambda trace: (trace.rule != decision.rule, not trace.matched)):
        _show_trace(tree, trace)
    for cost in explanation.costs:
        tree.add(_plain(f"{cost.limit} ({cost.action}, {cost.mode}) counts it: {cost.says}"))
    for rule, why in explanation.passed_over:
        tree.add(_plain(f"{rule} passed over, {why}"))
    stdout_console().print(tree)


def _show_step(branch: Tree, step: ConditionTrace) -> None:
    label = f"{step.asks}: {step.answer}" + (f" ({step.trouble})" if step.trouble else "")
    node = branch.add(_plain(label))
    for view in step.views:
        node.add(_plain(f"view {view}"))
    for part in step.parts:
        _show_step(node, part)


def _plain(text: str) -> Text:
    return Text(printable(text))


@app.command(epilog="Example:  interlock policy schema > policy.schema.json")
def schema(as_json: OneLine = False) -> None:  # noqa: FBT002
    """Print the JSON Schema of a policy file, for editors."""
    made = PolicyFile.model_json_schema(by_alias=True)
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    print_schema(made, as_json=as_json)
