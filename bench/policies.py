"""Policies of a given number of rules, written to a file. Pure but for the writing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from bench.payloads import TOOL

OWN_SHARE = 5
"""One rule in so many speaks of the tool that is called; the others are of a hundred other tools."""
SCRUB: dict[str, Any] = {
    "id": "scrub",
    "action": "redact",
    "tools": ["*"],
    "on": ["arguments", "result"],
    "detectors": ["secrets", "pii"],
}
NAIVE_TOOLS = ("shell", "delete_file", "transfer_funds")


def rule(number: int) -> dict[str, Any]:
    """Return a rule that looks at an argument's path and at its text, and does not match the call."""
    tool = TOOL if number % OWN_SHARE == 0 else f"tool_{number % 100}"
    conditions = [
        {"arg": "path", "path_under": [f"/srv/secret/{number}", f"/etc/{number}"]},
        {"arg": "pattern", "matches": rf"\bdrop\s+table_{number}\b"},
    ]
    return {"id": f"rule-{number}", "action": "deny", "tools": [tool], "when": {"any": conditions}}


def policy(rules: int, *, redact: bool) -> dict[str, Any]:
    """Return a policy of so many rules, the one that redacts among them."""
    made = [rule(number) for number in range(rules - redact)]
    return {"version": 1, "default": "allow", "rules": [*made, SCRUB] if redact else made}


def write(path: Path, rules: int, *, redact: bool) -> Path:
    """Write such a policy; JSON is YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(policy(rules, redact=redact), indent=1))
    return path


SHIPPED = Path(__file__).parent.parent / "policies"
_COUNT = re.compile(r"^(\s+count: )\d+$", re.MULTILINE)


def write_strict(folder: Path) -> Path:
    """Write the strict profile for a benchmark: its servers are on loopback, and no limit is ever reached."""
    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    for file in folder.glob("limits*.yaml"):
        file.write_text(_COUNT.sub(r"\g<1>1000000", file.read_text()))
    profile = folder / "profiles" / "strict.yaml"
    profile.write_text(profile.read_text().replace("\n  loopback: deny\n", "\n  loopback: allow\n"))
    return profile
