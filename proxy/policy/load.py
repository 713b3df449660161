"""Load policy files: compile YAML to a policy, or report errors with file, line and what to write instead.

The only module of the package that reads files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from pydantic import ValidationError

from proxy.core.model import PinRules
from proxy.errors import PolicyError
from proxy.policy.conditions import as_tuple
from proxy.policy.decide import CompiledPolicy
from proxy.policy.detector_rules import detector_problems
from proxy.policy.egress import GUARDED, SECRETS, CompiledEgress
from proxy.policy.incoming import CompiledIncoming
from proxy.policy.rules import EgressPolicy, Pins, PolicyFile
from proxy.policy.sandboxes import CompiledSandboxes
from proxy.policy.shadow_file import without_force

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from proxy.core.interfaces import KnownDetectors

_STRICTNESS: Final = ("off", "record", "enforce", "tolerant", "strict", "allow", "deny")
_HARSHNESS: Final = ("allow", "report", "deny")
MAX_INCLUDED: Final = 100


@dataclass(frozen=True, slots=True)
class PolicyProblem:
    """One thing wrong with a policy file."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class PolicyFileError(PolicyError):
    """Policy files that cannot be used; `problems` has each reason."""

    def __init__(self, problems: Sequence[PolicyProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class PolicySource:
    """One file: its typed content, and its YAML nodes, which know their line and column."""

    path: Path
    content: PolicyFile
    nodes: Any
    shadow: bool = False  # whether it, or the file that includes it, only records

    def at(self, *steps: str | int) -> tuple[int, int]:
        """Return the line and column, from 1, of the value that `steps` lead to."""
        from proxy.policy.load_errors import locate  # noqa: PLC0415  slow to import, and a good policy needs no place

        return locate(self.nodes, steps)


class HasId(Protocol):
    """A rule of any kind."""

    @property
    def id(self) -> str:
        """Its name."""


class ParsedFiles(Protocol):
    """Keeps what files were parsed to. Nobody else may be able to write there."""

    def get(self, name: str) -> bytes | None:
        """Return what was put under `name`, if anything."""

    def put(self, name: str, data: bytes) -> None:
        """Store `data` under `name`; may fail without raising."""


def load_policy(
    path: Path,
    book: KnownDetectors | None = None,
    *,
    parsed: ParsedFiles | None = None,
    home: str | None = None,
    also: Sequence[Path] = (),
    base: Path | None = None,
) -> CompiledPolicy:
    """Load a file, or every *.yaml and *.yml of a folder, as one policy, with the files that those include.

    Where `book` is given, the detectors are checked, and that those which rules name exist.
    `parsed` saves parsing the YAML of a file that was good before; its content is checked all the same.
    `home` is what `~` stands for where the policy does not say it. `also` are files beside those of `path`, and
    `base` the folder that includes are relative to, if not each file's own.
    Raises PolicyError with file, line, column and what to write instead.
    """
    sources = load_sources(path, book, parsed, also=also, base=base)
    policy = compile_sources(sources, version=_version(path, sources), home=home)
    policy.files = tuple(source.path for source in sources)
    policy.prepare()
    return policy


def load_sources(
    path: Path,
    book: KnownDetectors | None = None,
    parsed: ParsedFiles | None = None,
    *,
    also: Sequence[Path] = (),
    base: Path | None = None,
) -> tuple[PolicySource, ...]:
    """Read and check the files of a policy and those that they include; raise PolicyError."""
    tree = _Tree(parsed, base)
    for file in policy_files(path):
        tree.add(file, shadow=False)
    for file in also:
        tree.add_beside(file)
    sources, problems = tree.sources(), tree.problems
    problems.extend(_duplicate_ids(sources))
    if book is not None and not problems:
        found = detector_problems(sources, book)
        problems.extend(
            PolicyProblem(str(source.path), *source.at(*steps), message) for source, steps, message in found
        )
    if problems and parsed is not None:
        return load_sources(path, book, also=also, base=base)  # only the YAML knows the places of the problems
    if problems:
        raise PolicyFileError(problems)
    return tuple(sources)


def load_text(text: str, name: str, book: KnownDetectors | None = None) -> PolicySource:
    """Check one policy that stands in no file; `name` is what problems call it. Raises PolicyError."""
    source, _ = _parse_file(cast("Path", _Unfiled(name)), text.encode("utf-8", "surrogatepass"))
    problems = _duplicate_ids([source])
    if book is not None and not problems:
        found = detector_problems([source], book)
        problems = [PolicyProblem(name, *one.at(*steps), message) for one, steps, message in found]
    if problems:
        raise PolicyFileError(problems)
    return _as_it_counts(replace(source, shadow=source.content.mode == "shadow"))


class _Unfiled(str):
    """Stands for the path of a policy that is in no file."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


class _Tree:
    """The files of a policy, each once, with those that they include."""

    def __init__(self, parsed: ParsedFiles | None, base: Path | None) -> None:
        self._parsed = parsed
        self._base = base
        self._found: dict[Path, PolicySource | None] = {}
        self.problems: list[PolicyProblem] = []

    def sources(self) -> list[PolicySource]:
        return [_as_it_counts(source) for source in self._found.values() if source is not None]

    def add_beside(self, file: Path) -> None:
        """Add a file and what it includes, but none of which the policy has a copy: that one counts."""
        copies = [source.content for source in self._found.values() if source is not None]
        before = set(self._found)
        self.add(file, shadow=False)
        for where, source in self._found.items():
            if where not in before and source is not None and source.content in copies:
                self._found[where] = None

    def add(self, file: Path, *, shadow: bool) -> None:
        """Load a file and what it includes. Included twice, it only records if it does so both times."""
        where = file.resolve()
        known = self._found.get(where)
        if where in self._found and (known is None or shadow or not known.shadow):
            return
        if len(self._found) >= MAX_INCLUDED:
            raise _refuse(file, f"a policy has {MAX_INCLUDED} files at most")
        self._found[where] = None  # files that include each other end here
        try:
            source = _load_file(file, self._parsed)
        except PolicyFileError as error:
            self.problems.extend(error.problems)
            return
        shadow = shadow or source.content.mode == "shadow"
        self._found[where] = replace(source, shadow=shadow)
        for position, name in enumerate(source.content.include):
            inner = (self._base or file.parent) / name
            if inner.is_file():
                self.add(inner, shadow=shadow)
                continue
            message = f"there is no file {str(inner)!r}; name one relative to this file's folder"
            self.problems.append(PolicyProblem(str(file), *source.at("include", position), message))


def _as_it_counts(source: PolicySource) -> PolicySource:
    return replace(source, content=without_force(source.content)) if source.shadow else source


def policy_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a policy, by name; raise PolicyError where there are none."""
    if path.is_dir():
        files = tuple(sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file()))
        if not files:
            raise PolicyError(f"{path}: no policy in this folder; put a .yaml file there or name another folder")
        return files
    if not path.exists():
        raise PolicyError(f"{path}: no such file or folder; name a policy file, or a folder of them")
    return (path,)


def compile_sources(sources: Sequence[PolicySource], *, version: str = "", home: str | None = None) -> CompiledPolicy:
    """Compile several files to one policy: rules add up, and the stricter default holds."""
    homes = [named for source in sources if source.content.home for named in as_tuple(source.content.home)]
    defaults = {source.content.default for source in sources} - {None}
    return CompiledPolicy(
        [rule for source in sources for rule in source.content.call_rules],
        default="allow" if defaults == {"allow"} else "deny",
        version=version,
        egress=CompiledEgress(merge_egress(sources), version=version),
        pins=_merge_pins(sources),
        detectors=[detector.raw() for source in sources for detector in source.content.detectors],
        suppressions=[entry for source in sources for entry in source.content.suppressions],
        homes=homes or ([home] if home else []),
        limits=[limit for source in sources for limit in source.content.limits],
        labels=[label for source in sources for label in source.content.labels],
        flows=[flow for source in sources for flow in source.content.flows],
        observed=[rule for source in sources for rule in source.content.observed_rules],
        incoming=CompiledIncoming(rule for source in sources for rule in source.content.incoming),
        sandboxes=CompiledSandboxes(item for source in sources for item in source.content.sandbox.items()),
    )


def _merge_pins(sources: Iterable[PolicySource]) -> PinRules:
    # The strictest value of each field that some file sets; a field that none sets keeps its default.
    sections = [source.content.pins for source in sources if source.content.pins is not None]
    strictest = {
        name: max((getattr(s, name) for s in sections if name in s.model_fields_set), key=_STRICTNESS.index)
        for name in Pins.model_fields
        if any(name in s.model_fields_set for s in sections)
    }
    return PinRules(**strictest)


def merge_egress(sources: Iterable[PolicySource]) -> EgressPolicy:
    """Return the egress sections of several files as one: rules add up, and the strictest setting holds."""
    sections = [source.content.egress for source in sources if source.content.egress is not None]
    if not sections:
        return EgressPolicy()
    settings = {
        name: max((getattr(section, name) for section in sections), key=_HARSHNESS.index)
        for name in ("default", *GUARDED)
    }
    settings["secrets"] = max((section.secrets for section in sections), key=SECRETS.index)
    return EgressPolicy.model_validate({**settings, "rules": [r for section in sections for r in section.rules]})


def _version(path: Path, sources: Sequence[PolicySource]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        content = _read(source.path)
        name = source.path.name.encode() if path.is_dir() or len(sources) > 1 else b""
        digest.update(len(name).to_bytes(4) + name + len(content).to_bytes(8) + content)
    return digest.hexdigest()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _refuse(file, f"cannot be read: {error.strerror}") from None


def _refuse(file: Path, message: str, line: int = 1, column: int = 1) -> PolicyFileError:
    return PolicyFileError([PolicyProblem(str(file), line, column, message)])


def _load_file(file: Path, parsed: ParsedFiles | None) -> PolicySource:
    text = _read(file)
    # The name is the file's content: what another content was parsed to can never be taken for it.
    name = f"yaml-1-{hashlib.sha256(text).hexdigest()}"
    values = None if parsed is None else _known(name, parsed)
    if values is not None:
        try:
            return PolicySource(file, PolicyFile.model_validate(values), values)
        except (ValidationError, RecursionError):
            pass  # an older version took it: parse it again, for the places of the problems
    source, values = _parse_file(file, text)
    if parsed is not None:
        _keep(name, values, parsed)
    return source


def _known(name: str, parsed: ParsedFiles) -> Any:
    try:
        return json.loads(parsed.get(name) or b"null")
    except (ValueError, RecursionError):
        return None


def _keep(name: str, values: Any, parsed: ParsedFiles) -> None:
    data = json.dumps(values).encode()
    # JSON has no NaN and no keys but text: where it says something else than the YAML, the YAML is parsed every time.
    if json.loads(data) == values:
        parsed.put(name, data)


def _parse_file(file: Path, text: bytes) -> tuple[PolicySource, Any]:
    """Parse the YAML; return the source and its plain values. Raises PolicyFileError."""
    from proxy.policy.load_errors import explain_errors  # noqa: PLC0415  slow to import, and seldom needed
    from proxy.policy.yaml_file import YamlFileError, parse_yaml, plain_values  # noqa: PLC0415

    try:
        nodes = parse_yaml(text)
        values = plain_values(nodes)
        return PolicySource(file, PolicyFile.model_validate(values), nodes), values
    except YamlFileError as error:
        raise _refuse(file, str(error), error.line, error.column) from None
    except RecursionError:
        raise _refuse(file, "nested too deeply to be read") from None
    except ValidationError as error:
        found = explain_errors(nodes, error.errors())
        raise PolicyFileError([PolicyProblem(str(file), *place, message) for place, message in found]) from None


def _duplicate_ids(sources: Sequence[PolicySource]) -> list[PolicyProblem]:
    seen: dict[str, tuple[PolicySource, tuple[str | int, ...]]] = {}
    problems: list[PolicyProblem] = []
    for source in sources:
        egress = source.content.egress.rules if source.content.egress else []
        sections: tuple[tuple[tuple[str | int, ...], Sequence[HasId]], ...] = (
            (("rules",), source.content.rules),
            (("limits",), source.content.limits),
            (("egress", "rules"), egress),
            (("labels",), source.content.labels),
            (("flows",), source.content.flows),
            (("incoming",), source.content.incoming),
        )
        ids = [(rule.id, (*steps, i, "id")) for steps, rules in sections for i, rule in enumerate(rules)]
        for identity, steps in ids:
            if identity in seen:
                first, where = seen[identity]
                at = f"{first.path}:{first.at(*where)[0]}"
                message = f"id {identity!r} is already used at {at}; give each rule its own id"
                problems.append(PolicyProblem(str(source.path), *source.at(*steps), message))
            seen.setdefault(identity, (source, steps))
    return problems
