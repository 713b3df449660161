"""A probe's report as SARIF 2.1.0, which code hosts and editors show. Pure.

Takes the report as JSON, masked already: a SARIF file is uploaded.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from proxy.probe.rulebook import rulebook

if TYPE_CHECKING:
    from proxy.core.model import JsonObject

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"high": "error", "info": "note"}
# The scale of code hosts: from 7 on a finding counts as of high severity.
SCORES = {"high": "8.0", "info": "3.0"}


def sarif(report: JsonObject, version: str) -> JsonObject:
    """Return a log of one run. A finding that the allow list excuses is in it, as suppressed."""
    rules = rulebook().rules
    places = {rule.id: number for number, rule in enumerate(rules)}
    results = [_result(found, report, places) for found in (*report["findings"], *report["allowed"])]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "Interlock probe",
                        "version": version,
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": rule.description},
                                "defaultConfiguration": {"level": LEVELS[rule.severity]},
                                "properties": {"security-severity": SCORES[rule.severity], "tags": ["security", "mcp"]},
                            }
                            for rule in rules
                        ],
                    }
                },
                "invocations": [_invocation(report)],
                "results": results,
            }
        ],
    }


def _invocation(report: JsonObject) -> JsonObject:
    problem = report.get("problem")
    notes = [{"level": "error", "message": {"text": problem}}] if problem else []
    return {"executionSuccessful": not problem, "toolExecutionNotifications": notes}


def _result(found: JsonObject, report: JsonObject, places: dict[str, int]) -> JsonObject:
    server = str(report["server"]["name"])
    tools = [str(tool) for tool in found["tools"] if tool is not None]
    lines = "".join(f"\n    {line}" for line in found["evidence"])
    where = f" Tools: {', '.join(tools)}." if tools else " At the server's start or end."
    made: dict[str, Any] = {
        "ruleId": found["rule"],
        "ruleIndex": places[found["rule"]],
        "level": LEVELS[found["severity"]],
        "message": {"text": f"{found['message']}{where}{lines}"},
        "locations": [{"logicalLocations": _logical(server, tools)}],
        # The same finding of the same tools is the same alert, whatever the order of this run was.
        "partialFingerprints": {"interlockFinding/v1": _fingerprint(server, found)},
    }
    if "reason" in found:
        made["suppressions"] = [{"kind": "external", "status": "accepted", "justification": found["reason"]}]
    return made


def _logical(server: str, tools: list[str]) -> list[JsonObject]:
    places = [{"name": tool, "fullyQualifiedName": f"{server}/{tool}", "kind": "function"} for tool in tools]
    return places or [{"name": server, "fullyQualifiedName": server, "kind": "module"}]


def _fingerprint(server: str, found: JsonObject) -> str:
    parts = [server, found["rule"], *sorted(map(str, found["tools"])), *sorted(found["targets"])]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
