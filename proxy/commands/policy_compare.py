"""`interlock policy show` and `interlock policy diff`: a policy as a single file, and what two policies differ in."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.policy_prove import say_replay, say_verdict
from proxy.commands.publishing import StoreOptions
from proxy.commands.terminal import count, print_json_lines, printable_lines
from proxy.commands.time_format import parse_age
from proxy.errors import PolicyError
from proxy.policy.load import PolicySource, load_sources
from proxy.policy.merged_file import differences, merged_values
from proxy.policy.policy_writer import write_yaml
from proxy.policy_learning.proof import prove
from proxy.redact import builtin
from proxy.rollout.bundle import Bundle
from proxy.rollout.publisher import Publisher
from proxy.store.rollout_store import Rollout
from proxy.system.package_data import DEFAULT_PROFILE, PROFILES, profile_file

_VERSION = re.compile(r"v?[1-9][0-9]{0,17}")
SHOW_EPILOG = """
Examples:
  interlock policy show 4
  interlock policy show --profile strict
  interlock policy show policies/web.yaml
"""
DIFF_EPILOG = """
Examples:
  interlock policy diff 3 4
  interlock policy diff balanced strict
  interlock policy diff --json balanced policies/web.yaml
  interlock policy diff --replay --since 7d --prove policies/ learned.yaml
"""


@takes(StoreOptions)
def show(
    options: StoreOptions,
    path: Annotated[
        Path | None,
        typer.Argument(help="Policy file or folder, or the number of a pushed version; default: the profile."),
    ] = None,
    *,
    profile: Annotated[str | None, typer.Option(help=f"Profile: {', '.join(PROFILES)}.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a profile or a policy, with all that it includes, as one single policy file.

    Of a pushed version, its files are printed as they were signed.
    """
    if path is not None and is_version(str(path)):
        _show_version(find_version(options, str(path)), as_json=as_json)
        return
    whole = _load(str(path) if path is not None else _known(profile or DEFAULT_PROFILE))
    if as_json:
        typer.echo(json.dumps(whole))
        return
    typer.echo(write_yaml(whole), nl=False)


def is_version(name: str) -> bool:
    """Return whether a name means a pushed version: a number, unless there is a file of that name."""
    return _VERSION.fullmatch(name) is not None and not Path(name).exists()


def find_version(options: StoreOptions, name: str) -> Bundle:
    """Return a pushed version. Raises PolicyError where there is none, or its signature is not valid."""

    async def ask(publisher: Publisher, _: Rollout) -> Bundle:
        return await publisher.bundle(await publisher.version(int(name.removeprefix("v"))))

    return options.ask(ask)


def _show_version(bundle: Bundle, *, as_json: bool) -> None:
    if as_json:
        print_json_lines([{"digest": bundle.digest, "files": dict(bundle.files)}])
        return
    for name, text in bundle.files.items():
        if len(bundle.files) > 1:
            typer.echo(f"# {name}")
        typer.echo(printable_lines(text))


@takes(StoreOptions)
def diff(
    options: StoreOptions,
    before: Annotated[
        str, typer.Argument(metavar="A", help="A profile's name, a policy file or folder, or a version's number.")
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    replayed: Annotated[bool, typer.Option("--replay", help="Also decide recorded calls by B.")] = False,
    since: Annotated[str, typer.Option(help="With --replay, how far back: 90s, 30m, 12h, 7d, 2w.")] = "7d",
    proven: Annotated[
        bool, typer.Option("--prove", help="Also say whether B lets through a call that A stops: yes, no or unknown.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which rules and settings two policies differ in: + only in B, - only in A, ~ another value.

    Exit code: 0 if they are the same, 3 if they differ. With --prove: 0 if B is proven to let through nothing that A
    stops, 3 if it does or if that is unknown.
    """
    sources = [_sources(name, options) for name in (before, after)]
    first, second = (merged_values(one, with_defaults=True) for one in sources)
    found = list(differences(first, second))
    if as_json:
        print_json_lines(
            {"kind": d.kind, "name": d.name, "field": d.field, "before": d.before, "after": d.after} for d in found
        )
    else:
        for difference in found:
            typer.echo(str(difference))
        typer.echo(
            f"{count(len(found), 'difference')} from {before} to {after}"
            if found
            else f"{before} and {after} do the same"
        )
    if replayed:
        settings = trail_settings(options.database_url, options.state_dir, options.config)
        say_replay(sources[1], settings, time.time() - parse_age(since), as_json=as_json)
    if proven:
        verdict = prove(sources[0], sources[1], (first, second))
        say_verdict(verdict, as_json=as_json)
        raise typer.Exit(0 if verdict.answer == "no" else 3)
    raise typer.Exit(3 if found else 0)


def _known(name: str) -> str:
    if name not in PROFILES:
        raise PolicyError(f"there is no profile {name!r}; write {', '.join(PROFILES[:-1])} or {PROFILES[-1]}")
    return name


def _load(name: str) -> dict[str, Any]:
    """Return a profile, or a policy at a path, as one. Raises PolicyError."""
    return merged_values(_sources(name, None))


def _sources(name: str, options: StoreOptions | None) -> tuple[PolicySource, ...]:
    """Return the files of a profile, of a policy at a path, or of a pushed version. Raises PolicyError."""
    if options is not None and is_version(name):
        return tuple(find_version(options, name).sources(builtin()))
    path = profile_file(name) if name in PROFILES else Path(name)
    if name not in PROFILES and not path.exists() and path.suffix == "" and "/" not in name:
        _known(name)
    return load_sources(path, builtin())
