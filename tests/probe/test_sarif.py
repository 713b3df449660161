"""The report as SARIF: it fits the standard's schema, and an alert stays the same alert."""

from __future__ import annotations

from typing import Any

import jsonschema

from proxy.probe.findings import ProbeFinding
from proxy.probe.report import ProbeReport
from proxy.probe.rulebook import rulebook
from proxy.probe.sarif import sarif

HIGH = ProbeFinding("a", "canary-read", "high", "fs.read", "It reads.", ("line",), ("~/.netrc",), ("b",))
START = ProbeFinding(None, "undeclared-listen", "high", "net.listen", "It waits.")
INFO = ProbeFinding("a", "hosts-changed", "info", None, "Others.")


def made(*found: ProbeFinding, problem: str | None = None) -> dict[str, Any]:
    allowed = ((INFO, "looked at"),)
    return sarif(ProbeReport({"name": "s"}, (), {}, found, {}, problem=problem, allowed=allowed).data(), "1.2.3")


TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


TEXT = closed(["text"], text={"type": "string"})


def many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


# What section 3 of the standard says of the objects that a log uses, and that they have no other properties.
RULE = closed(
    ["id"],
    id={"type": "string"},
    shortDescription=TEXT,
    defaultConfiguration=closed([], level=LEVEL),
    properties={"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}},
)
PLACE = closed([], name={"type": "string"}, fullyQualifiedName={"type": "string"}, kind={"type": "string"})
RESULT = closed(
    ["message"],
    ruleId={"type": "string"},
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    message=TEXT,
    locations=many(closed([], logicalLocations=many(PLACE))),
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    suppressions=many(
        closed(
            ["kind"],
            kind={"enum": ["inSource", "external"]},
            status={"enum": ["accepted", "underReview", "rejected"]},
            justification={"type": "string"},
        )
    ),
)
DRIVER = closed(
    ["name"], name={"type": "string"}, version={"type": "string"}, rules={**many(RULE), "uniqueItems": True}
)
INVOCATION = closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications=many(closed(["message"], level=LEVEL, message=TEXT)),
)
RUN = closed(["tool"], tool=closed(["driver"], driver=DRIVER), invocations=many(INVOCATION), results=many(RESULT))
SCHEMA = closed(["version", "runs"], **{"$schema": {"type": "string"}}, version={"const": "2.1.0"}, runs=many(RUN))


def test_it_fits_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for log in (made(HIGH, START, INFO), made(), made(problem="the server ended")):
        jsonschema.Draft7Validator(SCHEMA).validate(log)


def test_the_schema_would_refuse_another_form() -> None:
    log = made(HIGH)
    log["runs"][0]["results"][0]["level"] = "high"
    assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(log))


def test_results_have_rule_level_and_tools() -> None:
    run = made(HIGH, START)["runs"][0]
    first, second, third = run["results"]
    assert [each["level"] for each in run["results"]] == ["error", "error", "note"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "canary-read"
    assert [place["name"] for place in first["locations"][0]["logicalLocations"]] == ["a", "b"]
    assert second["locations"][0]["logicalLocations"][0]["kind"] == "module"
    assert "line" in first["message"]["text"]
    assert third["suppressions"][0]["justification"] == "looked at"
    assert len(run["tool"]["driver"]["rules"]) == len(rulebook().rules)


def test_an_alert_stays_the_same_whatever_else_there_is() -> None:
    def mark(*found: ProbeFinding) -> str:
        results = made(*found)["runs"][0]["results"]
        return next(r["partialFingerprints"]["interlockFinding/v1"] for r in results if r["ruleId"] == "canary-read")

    assert mark(HIGH) == mark(START, HIGH)


def test_a_probe_that_broke_off_says_so() -> None:
    invocation = made(problem="the server ended")["runs"][0]["invocations"][0]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "the server ended"
