"""Load policy files: compile YAML to a policy, or report errors with file, line and what to write instead.

The only module of the package that reads files.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from proxy.core.model import PinRules
from proxy.errors import PolicyError
from proxy.policy.conditions import as_tuple
from proxy.policy.decide import CompiledPolicy
from proxy.policy.detector_rules import detector_problems
from proxy.policy.egress import SECRETS, CompiledEgress
from proxy.policy.load_errors import explain_errors, locate
from proxy.policy.rules import EgressPolicy, Pins, PolicyFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from proxy.core.interfaces import KnownDetectors

# In one file, with aliases expanded: a few lines of aliases of aliases would take all memory.
MAX_VALUES: Final = 200_000
_STRICTNESS: Final = ("off", "record", "enforce")


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

    def at(self, *steps: str | int) -> tuple[int, int]:
        """Return the line and column, from 1, of the value that `steps` lead to."""
        return locate(self.nodes, steps)


def load_policy(path: Path, book: KnownDetectors | None = None, home: str | None = None) -> CompiledPolicy:
    """Load a file, or every *.yaml and *.yml of a folder, as one policy.

    Where `book` is given, the detectors are checked, and that those which rules name exist. `home` is what `~` stands
    for where the policy does not say it.
    Raises PolicyError with file, line, column and what to write instead.
    """
    policy = compile_sources(load_sources(path, book), version=_version(path), home=home)
    policy.prepare()
    return policy


def load_sources(path: Path, book: KnownDetectors | None = None) -> tuple[PolicySource, ...]:
    """Read and check the files of a policy; raise PolicyError."""
    sources: list[PolicySource] = []
    problems: list[PolicyProblem] = []
    for file in policy_files(path):
        try:
            sources.append(_load_file(file))
        except PolicyFileError as error:
            problems.extend(error.problems)
    problems.extend(_duplicate_ids(sources))
    if book is not None and not problems:
        found = detector_problems(sources, book)
        problems.extend(
            PolicyProblem(str(source.path), *source.at(*steps), message) for source, steps, message in found
        )
    if problems:
        raise PolicyFileError(problems)
    return tuple(sources)


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
        [rule for source in sources for rule in source.content.rules],
        default="allow" if defaults == {"allow"} else "deny",
        version=version,
        egress=CompiledEgress(_merge_egress(sources), version=version),
        pins=_merge_pins(sources),
        detectors=[detector.raw() for source in sources for detector in source.content.detectors],
        suppressions=[entry for source in sources for entry in source.content.suppressions],
        homes=homes or ([home] if home else []),
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


def _merge_egress(sources: Iterable[PolicySource]) -> EgressPolicy:
    sections = [source.content.egress for source in sources if source.content.egress is not None]
    if not sections:
        return EgressPolicy()
    settings = {
        name: "deny" if any(getattr(section, name) == "deny" for section in sections) else "allow"
        for name in ("default", "metadata", "link_local", "private", "loopback")
    }
    settings["secrets"] = max((section.secrets for section in sections), key=SECRETS.index)
    return EgressPolicy.model_validate({**settings, "rules": [r for section in sections for r in section.rules]})


def _version(path: Path) -> str:
    digest = hashlib.sha256()
    for file in policy_files(path):
        content = _read(file)
        name = file.name.encode() if path.is_dir() else b""
        digest.update(len(name).to_bytes(4) + name + len(content).to_bytes(8) + content)
    return digest.hexdigest()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _refuse(file, f"cannot be read: {error.strerror}") from None


def _refuse(file: Path, message: str, line: int = 1, column: int = 1) -> PolicyFileError:
    return PolicyFileError([PolicyProblem(str(file), line, column, message)])


def _load_file(file: Path) -> PolicySource:
    nodes = _parse(file)
    try:
        return PolicySource(file, PolicyFile.model_validate(_plain(nodes, count(1))), nodes)
    except RecursionError:
        raise _refuse(file, "an alias refers to itself") from None
    except ValidationError as error:
        found = explain_errors(nodes, error.errors())
        raise PolicyFileError([PolicyProblem(str(file), *place, message) for place, message in found]) from None
    except _UnfitError as error:
        raise _refuse(file, str(error), *locate(nodes, error.steps)) from None


def _parse(file: Path) -> Any:
    try:
        nodes = YAML(typ="rt").load(_read(file).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _refuse(file, f"byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = (error.problem or error.context or "not YAML").split(" with value")[0]
        advice = "; keep one of the two" if "duplicate key" in said else ""
        raise _refuse(file, said + advice, line, column) from None
    except RecursionError:
        raise _refuse(file, "nested too deeply to be read") from None
    except (YAMLError, ValueError) as error:
        raise _refuse(file, f"not YAML: {error}") from None
    if not isinstance(nodes, CommentedMap):
        found = "empty" if nodes is None else f"a {type(nodes).__name__.removeprefix('Commented').lower()}"
        raise _refuse(file, f"a policy is a mapping that starts with version: 1; this file is {found}")
    return nodes


class _UnfitError(Exception):
    """A value that no field takes, and the steps that lead to it."""

    def __init__(self, message: str, steps: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.steps = steps


def _plain(node: Any, counted: Iterator[int], steps: tuple[str | int, ...] = ()) -> Any:
    """Return YAML nodes as plain values; raise _UnfitError for a tag, a type that JSON lacks, or too many values."""
    if next(counted) > MAX_VALUES:
        message = f"up to here the file holds more than {MAX_VALUES:,} values with aliases expanded; use fewer aliases"
        raise _UnfitError(message, steps[:2])
    tag = getattr(node, "tag", None)
    if tag is not None and tag.value is not None:
        raise _UnfitError(f"the tag {tag.value} has no meaning here; remove it", steps)
    if isinstance(node, CommentedMap):
        return {
            _plain(key, counted, (*steps, key)): _plain(value, counted, (*steps, key)) for key, value in node.items()
        }
    if isinstance(node, CommentedSeq):
        return [_plain(value, counted, (*steps, index)) for index, value in enumerate(node)]
    if isinstance(node, ScalarBoolean):
        return bool(node)
    if node is None or type(node) in (str, bool, int, float):
        return node
    for kind in (str, int, float):
        if isinstance(node, kind):
            return kind(node)
    raise _UnfitError(f"a {type(node).__name__} is neither text, number nor boolean; quote it", steps)


def _duplicate_ids(sources: Sequence[PolicySource]) -> list[PolicyProblem]:
    seen: dict[str, str] = {}
    problems: list[PolicyProblem] = []
    for source in sources:
        egress = source.content.egress.rules if source.content.egress else []
        sections = ((("rules",), source.content.rules), (("egress", "rules"), egress))
        ids = [(rule.id, (*steps, i, "id")) for steps, rules in sections for i, rule in enumerate(rules)]
        for identity, steps in ids:
            line, column = source.at(*steps)
            if identity in seen:
                message = f"id {identity!r} is already used at {seen[identity]}; give each rule its own id"
                problems.append(PolicyProblem(str(source.path), line, column, message))
            seen.setdefault(identity, f"{source.path}:{line}")
    return problems
