"""`interlock notify`: tell people when something waits for approval."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.terminal import print_note
from proxy.config import load_settings
from proxy.core.ids import new_id
from proxy.core.proposals import Proposal, State
from proxy.errors import ConfigError, InterlockError, NotifyError
from proxy.notify.notice import make_notice
from proxy.notify.send import send
from proxy.notify.targets import load_targets, read_secrets
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
) -> None:
    """Send a notice about nothing to each target, and say which of them took it."""
    settings = load_settings({"notify": notify, "state_dir": state_dir}, config_file=config).settings
    targets = load_targets(settings.notify)
    if not targets:
        raise ConfigError("there are no targets; name a file with --notify or the setting notify")
    if target is not None and target not in targets:
        raise ConfigError(f"there is no target {target!r}; targets are {', '.join(targets)}")
    failed = []
    for name in targets if target is None else (target,):
        notice = make_notice(
            _example(), State.PENDING, settings.console_url or run_file.console_url(settings.state_dir)
        )
        try:
            send(notice, targets[name], read_secrets(name, targets[name], os.environ), time.time())
        except (NotifyError, ConfigError) as error:
            failed.append(name)
            print_note(f"{name}: failed: {error}")
        else:
            print_note(f"{name}: taken")
    if failed:
        raise InterlockError(f"{len(failed)} of the targets did not take the notice: {', '.join(failed)}")


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
