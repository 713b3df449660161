"""`interlock notify`: tell people when something waits for approval."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir
from proxy.commands.terminal import count, print_json_lines, print_note, printable
from proxy.config import load_settings
from proxy.core.ids import new_id
from proxy.core.model import JsonObject
from proxy.core.proposals import Proposal, State
from proxy.errors import ConfigError, InterlockError, NotifyError
from proxy.notify.notice import make_notice
from proxy.notify.send import send
from proxy.notify.targets import Target, load_targets, read_secrets
from proxy.system import run_file

app = typer.Typer(help="Tell people when something waits for approval.", no_args_is_help=True)


@app.callback()
def main() -> None:
    pass


@app.command("test", epilog="Example:  interlock notify test --notify notify.yaml")
def send_test(
    target: Annotated[str | None, typer.Argument(help="Only this target; absent: every one.")] = None,
    notify: Annotated[Path | None, typer.Option(help="File of the targets; default: the setting notify.")] = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Send a notice about nothing to each target, and say which of them took it."""
    settings = load_settings({"notify": notify, "state_dir": state_dir}, config_file=config).settings
    targets = load_targets(settings.notify)
    if not targets:
        raise ConfigError("there are no targets; name a file with --notify or the setting notify")
    if target is not None and target not in targets:
        raise ConfigError(f"there is no target {target!r}; targets are {', '.join(targets)}")
    failed = []
    notice = make_notice(_example(), State.PENDING, settings.console_url or run_file.console_url(settings.state_dir))
    for name in targets if target is None else (target,):
        problem = _try(name, targets[name], notice)
        failed += [name] if problem else []
        if as_json:
            print_json_lines([{"target": name, "taken": problem is None, "error": problem}])
        else:
            print_note(f"{name}: {f'failed: {printable(problem)}' if problem else 'taken'}")
    if failed:
        raise InterlockError(f"{count(len(failed), 'target')} did not take the notice: {', '.join(failed)}")


def _try(name: str, target: Target, notice: JsonObject) -> str | None:
    """Send a notice to one target; return what went wrong."""
    try:
        send(notice, target, read_secrets(name, target, os.environ), time.time())
    except (NotifyError, ConfigError) as error:
        return str(error)
    return None


def _example() -> Proposal:
    now = time.time()
    return Proposal(
        proposal_id=new_id(),
        server="example",
        tool="a_test_of_notices",
        principal="interlock",
        arguments_hash="",
        arguments={"note": "This is a test. Nothing waits for you."},
        rule="none",
        policy_version="",
        approval="human",
        state=State.PENDING,
        nonce="",
        created_at=now,
        expires_at=now,
    )
