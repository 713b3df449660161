"""`interlock policy show` and `interlock policy diff`: a profile as a single file, and what two policies differ in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.commands.options import AsJson
from proxy.commands.terminal import count, print_json_lines
from proxy.errors import PolicyError
from proxy.policy.load import load_sources
from proxy.policy.merged_file import differences, merged_values
from proxy.redact import builtin
from proxy.system.package_data import DEFAULT_PROFILE, PROFILES, profile_file

SHOW_EPILOG = """
Examples:
  interlock policy show --profile strict
  interlock policy show policies/web.yaml
"""
DIFF_EPILOG = """
Examples:
  interlock policy diff balanced strict
  interlock policy diff --json balanced policies/web.yaml
"""


def show(
    path: Annotated[Path | None, typer.Argument(help="Policy file or folder; default: the profile.")] = None,
    *,
    profile: Annotated[str | None, typer.Option(help=f"Profile: {', '.join(PROFILES)}.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a profile or a policy, with all that it includes, as one single policy file."""
    whole = _load(str(path) if path is not None else _known(profile or DEFAULT_PROFILE))
    if as_json:
        typer.echo(json.dumps(whole))
        return
    from ruamel.yaml import YAML  # noqa: PLC0415  slow to import

    yaml: Any = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output, yaml.width = False, False, 120
    yaml.dump(whole, sys.stdout)


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A profile's name, or a policy file or folder.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show which rules and settings two policies differ in: + only in B, - only in A, ~ another value.

    Exit code: 0 if they are the same, 3 if they differ.
    """
    found = list(differences(_load(before, with_defaults=True), _load(after, with_defaults=True)))
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


def _load(name: str, *, with_defaults: bool = False) -> dict[str, Any]:
    """Return a profile, or a policy at a path, as one. Raises PolicyError."""
    path = profile_file(name) if name in PROFILES else Path(name)
    if name not in PROFILES and not path.exists() and path.suffix == "" and "/" not in name:
        _known(name)
    return merged_values(load_sources(path, builtin()), with_defaults=with_defaults)
