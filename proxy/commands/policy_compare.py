"""`interlock policy show` and `interlock policy diff`: a policy as a single file, and what two policies differ in."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.commands.options import AsJson, takes
from proxy.commands.publishing import StoreOptions
from proxy.commands.terminal import count, print_json_lines, printable_lines
from proxy.errors import PolicyError
from proxy.policy.load import load_sources
from proxy.policy.merged_file import differences, merged_values
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
    from ruamel.yaml import YAML  # noqa: PLC0415  slow to import

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output, yaml.width = False, False, 120
    yaml.dump(whole, sys.stdout)


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
    as_json: AsJson = False,
) -> None:
    """Show which rules and settings two policies differ in: + only in B, - only in A, ~ another value.

    Exit code: 0 if they are the same, 3 if they differ.
    """
    first, second = (_load(name, options, with_defaults=True) for name in (before, after))
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
    raise typer.Exit(3 if found else 0)


def _known(name: str) -> str:
    if name not in PROFILES:
        raise PolicyError(f"there is no profile {name!r}; write {', '.join(PROFILES[:-1])} or {PROFILES[-1]}")
    return name


def _load(name: str, options: StoreOptions | None = None, *, with_defaults: bool = False) -> dict[str, Any]:
    """Return a profile, a policy at a path, or a pushed version, as one. Raises PolicyError."""
    if options is not None and is_version(name):
        return merged_values(find_version(options, name).sources(builtin()), with_defaults=with_defaults)
    path = profile_file(name) if name in PROFILES else Path(name)
    if name not in PROFILES and not path.exists() and path.suffix == "" and "/" not in name:
        _known(name)
    return merged_values(load_sources(path, builtin()), with_defaults=with_defaults)
