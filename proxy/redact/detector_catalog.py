"""The catalog of detectors: reading it, checking what a policy adds to it, choosing from it by name.

Pure but for reading two packaged files: `detectors.yaml`, and `detectors.json`, which is the same catalog as it was
parsed and checked when the YAML last changed. Parsing the YAML at every start would take a hundred times as long.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from proxy.core.interfaces import DetectorProblem
from proxy.errors import PolicyError
from proxy.redact.detectors import FAMILIES, Detector
from proxy.redact.hyperscan_db import AVAILABLE, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# Compared by identity, so that it can be the key of a cache without hashing two hundred detectors.
@dataclass(frozen=True, eq=False)
class DetectorCatalog:
    """Detectors in order of precedence; satisfies `KnownDetectors`."""

    detectors: tuple[Detector, ...]

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        # A family is a name even while nobody has defined a detector in it.
        return frozenset({*FAMILIES, *(detector.id for detector in self.detectors)})

    @functools.cached_property
    def selections(self) -> dict[tuple[str, ...], frozenset[int]]:
        return {}

    def names(self) -> Iterable[str]:
        return self._names

    def knows(self, *names: str) -> bool:
        """Return whether each of `names` is a family or the id of a detector."""
        return self._names.issuperset(names)

    def objections(self, raw: Mapping[str, Any]) -> list[DetectorProblem]:
        """Return what is wrong with a detector that a policy brings; an empty list for a good one."""
        try:
            detector = Detector.model_validate(dict(raw))
        except ValidationError as error:
            # An error of the detector as a whole comes from compiling its regex.
            return [
                DetectorProblem(e["loc"] or ("regex",), e["msg"].removeprefix("Value error, ")) for e in error.errors()
            ]
        refused = refusal(detector.hint or detector.pattern) if AVAILABLE else None
        field = "regex" if detector.hint is None else "hint"
        advice = "simplify it, or give a simpler regex that is found in every match as hint"
        return [DetectorProblem((field,), f"hyperscan refuses it: {refused}; {advice}")] if refused else []

    def select(self, names: Sequence[str]) -> frozenset[int]:
        """Return the indexes of the detectors of these ids or families. Raises PolicyError for an unknown name."""
        key = tuple(names)
        chosen = self.selections.get(key)
        if chosen is None:
            if unknown := [name for name in key if name not in self._names]:
                known = "give a family (secrets, pii, custom) or an id such as pii.card"
                raise PolicyError(f"unknown detector {unknown[0]!r}: {known}")
            families = tuple(f"{name}." for name in key)
            found = (i for i, one in enumerate(self.detectors) if one.id in key or one.id.startswith(families))
            chosen = self.selections[key] = frozenset(found)
        return chosen

    def extended(self, custom: Iterable[Mapping[str, Any]]) -> DetectorCatalog:
        """Return a catalog with a policy's own detectors last. Raises PolicyError: malformed, or a taken id."""
        added = tuple(parse_detector(raw) for raw in custom)
        return _checked((*self.detectors, *added)) if added else self


def parse_detector(raw: Mapping[str, Any]) -> Detector:
    """Check one detector. Raises PolicyError that names the detector, the field and what is wrong with it."""
    try:
        return Detector.model_validate(dict(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PolicyError(f"detector {raw.get('id', '?')!r}: {where}: {first['msg']}") from error


def _checked(detectors: tuple[Detector, ...]) -> DetectorCatalog:
    counted = Counter(detector.id for detector in detectors)
    if twice := [name for name, number in counted.items() if number > 1]:
        raise PolicyError(f"detector {twice[0]!r} is defined twice")
    return DetectorCatalog(detectors)


@functools.cache
def builtin() -> DetectorCatalog:
    """Return the detectors that come with Interlock, read once."""
    folder = files(__package__)
    text = folder.joinpath("detectors.yaml").read_bytes()
    stored = json.loads(folder.joinpath("detectors.json").read_bytes())
    if stored["of"] != _digest(text):
        # The YAML was edited and the JSON not yet written: the YAML counts.
        return parse_catalog(text)
    tuples = [{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()} for row in stored["detectors"]]
    # Checked when the JSON was written; to check again would compile each regex at every start.
    return DetectorCatalog(tuple(Detector.model_construct(None, **row) for row in tuples))


def parse_catalog(text: bytes) -> DetectorCatalog:
    """Parse and check what `detectors.yaml` says. Raises PolicyError."""
    from ruamel.yaml import YAML  # noqa: PLC0415  only after a change of the detectors

    content = YAML(typ="safe", pure=True).load(text.decode())
    return _checked(tuple(parse_detector(_filled(raw, content["fragments"])) for raw in content["detectors"]))


_EXPRESSIONS = ("regex", "hint", "not_after", "not_before")


def _filled(raw: Mapping[str, Any], fragments: Mapping[str, str]) -> dict[str, Any]:
    """Return a detector with each `%{NAME}` in its expressions replaced by the fragment of that name."""

    def fill(regex: str) -> str:
        # Fragments may name those above them, so this ends.
        for name, fragment in reversed(list(fragments.items())):
            regex = regex.replace(f"%{{{name}}}", fragment)
        return regex

    return {**raw, **{field: fill(raw[field]) for field in _EXPRESSIONS if field in raw}}


def encode_catalog(text: bytes) -> str:
    """Return what `detectors.json` must hold for this `detectors.yaml`: a line a detector. Raises PolicyError."""
    found = parse_catalog(text).detectors
    lines = ",\n".join(detector.model_dump_json(exclude_defaults=True) for detector in found)
    return f'{{"of": "{_digest(text)}", "detectors": [\n{lines}\n]}}\n'


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
