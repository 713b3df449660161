"""Several policy files as one, and what two policies differ in. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.conditions import as_tuple
from proxy.policy.load import compile_sources, merge_egress
from proxy.policy.rules import Pins
from proxy.policy.sandboxes import combined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.policy.load import PolicySource
    from proxy.sandbox.profile import SandboxProfile

_SETTINGS: Final = ("default", "metadata", "link_local", "private", "loopback", "secrets")
_LISTS: Final = ("rules", "limits", "labels", "flows", "incoming", "detectors", "suppressions", "tests")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which two policies differ: `before` or `after` is None where one of them lacks it."""

    kind: str
    name: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        subject = f"{self.kind} {self.name}".strip()
        if not self.field:
            return f"+ {subject}: {self.after}" if self.before is None else f"- {subject}: {self.before}"
        return f"~ {subject}: {self.field} {_shown(self.before)} -> {_shown(self.after)}"


def _shown(value: Any) -> str:
    return "(unset)" if value is None else str(value) if not isinstance(value, list) else ", ".join(map(str, value))


def merged_values(sources: Sequence[PolicySource], *, with_defaults: bool = False) -> dict[str, Any]:
    """Return what several files say together, as the values of a single policy file; or also what they leave out."""
    policy = compile_sources(sources)
    egress = merge_egress(sources)
    whole: dict[str, Any] = {"version": 1, "default": policy.default}
    if homes := [home for source in sources if source.content.home for home in as_tuple(source.content.home)]:
        whole["home"] = list(dict.fromkeys(homes))
    whole["pins"] = {name: getattr(policy.pins, name) for name in Pins.model_fields}
    for name in _LISTS:
        if found := [_plain(each, with_defaults) for source in sources for each in getattr(source.content, name)]:
            whole[name] = found
    rules = [_plain(rule, with_defaults) for rule in egress.rules]
    whole["egress"] = {name: getattr(egress, name) for name in _SETTINGS} | {"rules": rules}
    if policy.sandboxes:
        whole["sandbox"] = _sandboxes(policy.sandboxes.sections, with_defaults)
    return whole


def _sandboxes(sections: Sequence[tuple[str, SandboxProfile]], with_defaults: bool) -> dict[str, Any]:  # noqa: FBT001
    by_glob: dict[str, list[SandboxProfile]] = {}
    for glob, profile in sections:
        by_glob.setdefault(glob, []).append(profile)
    return {
        glob: _plain(found[0] if len(found) == 1 else combined(found), with_defaults) for glob, found in by_glob.items()
    }


def _plain(model: Any, with_defaults: bool) -> Any:  # noqa: FBT001  its callers name it
    return model.model_dump(mode="json", by_alias=True, exclude_unset=not with_defaults)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Difference]:
    """Return in what two policies differ, each as `merged_values` gives it: settings first, then rules by their ids."""
    yield from _fields("default", "", {"default": before["default"]}, {"default": after["default"]})
    yield from _fields("pins", "", before["pins"], after["pins"])
    first, second = ({name: each["egress"][name] for name in _SETTINGS} for each in (before, after))
    yield from _fields("egress", "", first, second)
    yield from _rules("rule", before.get("rules", []), after.get("rules", []))
    yield from _rules("egress rule", before["egress"]["rules"], after["egress"]["rules"])
    for kind, name in (("limit", "limits"), ("label", "labels"), ("flow", "flows"), ("incoming rule", "incoming")):
        yield from _rules(kind, before.get(name, []), after.get(name, []))
    old, new = before.get("sandbox", {}), after.get("sandbox", {})
    for name in sorted({*old, *new}):
        if name in old and name in new:
            yield from _fields("sandbox", name, old[name], new[name])
        else:
            yield Difference("sandbox", name, "", _asked(old.get(name)), _asked(new.get(name)))
    yield from _rules("detector", before.get("detectors", []), after.get("detectors", []))


def _rules(kind: str, before: list[Any], after: list[Any]) -> Iterator[Difference]:
    first, second = ({rule["id"]: rule for rule in rules} for rules in (before, after))
    for name in sorted({*first, *second}):
        old, new = first.get(name), second.get(name)
        if old is None or new is None:
            yield Difference(kind, name, "", _told(old), _told(new))
        else:
            yield from _fields(kind, name, old, new)


def _told(rule: dict[str, Any] | None) -> str | None:
    """Return in a few words what a rule does."""
    if rule is None:
        return None
    action = " ".join(filter(None, (rule.get("action"), "(shadow)" if rule.get("mode") == "shadow" else "")))
    return ", ".join(filter(None, (action, rule.get("description")))) or "no description"


def _asked(profile: dict[str, Any] | None) -> str | None:
    return None if profile is None else profile.get("mode") or "enforce"


def _fields(kind: str, name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Difference]:
    for field in dict.fromkeys((*old, *new)):
        if field not in ("tests", "id") and old.get(field) != new.get(field):
            yield Difference(kind, name, field, old.get(field), new.get(field))
