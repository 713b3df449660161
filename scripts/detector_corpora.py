"""Measure the detectors on public corpora that nobody of this project wrote: recall, and wrong maskings of honest text.

    python scripts/detector_corpora.py --folder checkouts --honest /usr/share/doc --sample 200

The folder holds checkouts of the repositories in REPOSITORIES, each under its name; `--clone` makes those that are
missing. Nothing of them is kept in this repository. Rules are split in two halves by a hash of their names: detectors
were tuned on the half `seen`; the half `held out`, and the corpora marked so, were only measured.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import random
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import re2
from ruamel.yaml import YAML

from proxy.redact import Masker
from scripts.detector_go import assignments
from scripts.detector_regex import sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REPOSITORIES: Final = {
    "gitleaks": "https://github.com/gitleaks/gitleaks",
    "trufflehog": "https://github.com/trufflesecurity/trufflehog",
    "noseyparker": "https://github.com/praetorian-inc/noseyparker",
}
# Ways to write an assignment that few scanners read; the first seven are among gitleaks' own.
UNUSUAL: Final = (
    'var {i}Token string = "{s}"',
    '${i}Token .= "{s}"',
    '{i}_TOKEN ?= "{s}"',
    '{i}_TOKEN ::= "{s}"',
    '{i}_TOKEN :::= "{s}"',
    'System.setProperty("{I}_TOKEN", "{s}")',
    "<{i}Token>\n    {s}\n</{i}Token>",
    "<{i}Token>{s}</{i}Token>",
    '<entry name="{i}Token" value="{s}" />',
    '{"name": "{i}_token", "value": "{s}"}',
    "- name: {I}_TOKEN\n  value: {s}",
    "{i}_token: |\n  {s}",
    'var {i}Token: String = "{s}"',
    "| {i} token | {s} |",
    "Authorization: Token {s}",
    "{i}Token,{s},",
)
_KEY: Final = b"the key does not matter here"
_DETECTORS: Final = ("secrets",)


@dataclass(frozen=True)
class Case:
    """A text, the secrets in it, and the rule that the corpus has it for."""

    rule: str
    text: str
    secrets: tuple[str, ...]

    @property
    def is_seen(self) -> bool:
        """Return whether its rule is in the half that detectors were tuned on."""
        return hashlib.sha256(self.rule.encode()).digest()[0] % 2 == 0


def gitleaks(folder: Path) -> Iterator[Case]:
    """Return the positives of the rules, and in which text which part is the secret by the rule's own regex."""
    config = tomllib.loads((folder / "config" / "gitleaks.toml").read_text())
    regexes = {rule["id"]: rule for rule in config["rules"] if "regex" in rule}
    generator = folder / "cmd" / "generate" / "config"
    contexts = next(
        value
        for name, value, _ in assignments((generator / "utils" / "generate.go").read_text(), {})
        if name == "samples" and isinstance(value, dict)
    )
    rng = random.Random(1)  # noqa: S311  the same texts on every run
    functions = _gitleaks_functions([text for text in contexts.values() if isinstance(text, str)], rng)
    for file in sorted((generator / "rules").glob("*.go")):
        for function in re.split(r"(?m)^func ", file.read_text())[1:]:
            identifier = re.search(r'RuleID:\s*"([^"]+)"', function)
            if identifier is None or identifier[1] not in regexes:
                continue
            for text in _validated(function, functions):
                yield Case(identifier[1], text, _by_regex(regexes[identifier[1]], text))


def _gitleaks_functions(contexts: list[str], rng: random.Random) -> dict[str, Callable[..., Any]]:
    def samples(identifier: str, secret: str | None) -> list[str]:
        return [spell(context, identifier, secret) for context in contexts] if secret else []

    def drawn(regex: str | None) -> str | None:
        return None if regex is None else sample(regex, rng)

    def encoded(text: str | None) -> str | None:
        return None if text is None else base64.b64encode(text.encode()).decode()

    classes = {"Numeric": "[0-9]", "Hex": "[a-f0-9]", "AlphaNumeric": "[a-z0-9]"}
    classes |= {"AlphaNumericExtendedShort": "[a-z0-9_-]", "AlphaNumericExtended": "[a-z0-9=_-]"}
    classes |= {"AlphaNumericExtendedLong": "[a-z0-9/=_+-]"}
    repeated = {name: (lambda size, signs=signs: f"{signs}{{{size}}}") for name, signs in classes.items()}
    return {
        **repeated,
        "Hex8_4_4_4_12": lambda: "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "NewSecret": drawn,
        "newPlausibleSecret": drawn,
        "EncodeToString": encoded,
        "GenerateSampleSecret": lambda identifier, secret: f'{identifier}_api_token = "{secret}"' if secret else None,
        "GenerateSampleSecrets": samples,
        "append": lambda old, *new: [*(old or []), *new],
        "Validate": lambda *_: None,
        "ValidateWithPaths": lambda *_: None,
    }


def spell(context: str, identifier: str, secret: str) -> str:
    """Return `context` with the name and the secret in place."""
    return context.replace("{i}", identifier).replace("{I}", identifier.upper()).replace("{s}", secret)


def _validated(function: str, functions: dict[str, Callable[..., Any]]) -> Iterator[str]:
    for name, arguments, _ in assignments(function, functions):
        if name in {"Validate", "ValidateWithPaths"} and len(arguments) > 1:
            positives = arguments[1] or []
            texts = positives.values() if isinstance(positives, dict) else positives
            yield from dict.fromkeys(text for text in texts if isinstance(text, str))


def _by_regex(rule: dict[str, Any], text: str) -> tuple[str, ...]:
    options = re2.Options()
    options.log_errors = False
    match = re2.compile(rule["regex"], options).search(text)
    if match is None:
        return ()
    groups = [group for group in match.groups() if group]
    return ((match[rule["secretGroup"]] if rule.get("secretGroup") else groups[0] if groups else match[0]) or match[0],)


def trufflehog(folder: Path) -> Iterator[Case]:
    """Return the inputs of the detectors' pattern tests, with the strings that must be found in them."""
    root = folder / "pkg" / "detectors"
    for file in sorted(root.rglob("*_test.go")):
        if "integration" in file.name:
            continue
        rule = file.relative_to(root).parts[0]
        for name, value, _ in assignments(file.read_text(), {}):
            if name in {"tests", "cases", "testCases"} and isinstance(value, list):
                yield from (case for row in value if isinstance(row, dict) and (case := _wanted(rule, row)))


def _wanted(rule: str, row: dict[str, Any]) -> Case | None:
    text, wanted = row.get("input"), row.get("want")
    if not isinstance(text, str) or not isinstance(wanted, list):
        return None
    # Some tests want parts joined that stand apart in the text: those name no string that could be looked for.
    there = tuple(secret for secret in wanted if isinstance(secret, str) and secret and secret in text)
    return Case(rule, text, there) if there else None


def noseyparker(folder: Path) -> Iterator[Case]:
    """Return the examples of the rules, with what the rule's own regex captures."""
    for file in sorted(folder.rglob("builtin/rules/*.yml")):
        for rule in YAML(typ="safe", pure=True).load(file.read_text())["rules"]:
            try:
                regex = re.compile(rule["pattern"])
            except re.error:
                continue
            for text in rule.get("examples", ()):
                if (match := regex.search(text)) and any(match.groups()):
                    yield Case(rule["id"], text, tuple(group for group in match.groups() if group)[-1:])


READERS: Final = {"gitleaks": gitleaks, "trufflehog": trufflehog, "noseyparker": noseyparker}


def unusual(cases: Iterable[Case]) -> Iterator[Case]:
    """Return one secret of each rule in every unusual spelling."""
    done: set[str] = set()
    for case in cases:
        if case.rule in done or not case.secrets or "\n" in case.secrets[0]:
            continue
        done.add(case.rule)
        for number, context in enumerate(UNUSUAL):
            text = spell(context, case.rule.split("-")[0], case.secrets[0])
            yield Case(f"{case.rule}/{number}", text, case.secrets[:1])


def survives(secret: str, text: str) -> bool:
    """Return whether so much of `secret` is left in a masked text that it helps who reads it: half of it in a row."""
    size = max(6, (len(secret) + 1) // 2)
    return any(secret[at : at + size] in text for at in range(max(1, len(secret) - size + 1)))


@dataclass
class Recall:
    """How many texts of a corpus were masked, for one half of its rules."""

    texts: int = 0
    masked: int = 0

    def __str__(self) -> str:
        share = 100 * self.masked / self.texts if self.texts else 0.0
        return f"{share:5.1f} % of {self.texts:>5}"


def measure(name: str, cases: Iterable[Case], masker: Masker, shown: int) -> None:
    """Print the recall on one corpus, and the rules that are worst."""
    halves = {True: Recall(), False: Recall()}
    worst: Counter[str] = Counter()
    missed: dict[str, str] = {}
    for case in cases:
        if not case.secrets:
            continue
        masked, _ = masker.mask(case.text, _DETECTORS)
        half = halves[case.is_seen]
        half.texts += 1
        if any(survives(secret, str(masked)) for secret in case.secrets):
            worst[case.rule] += 1
            missed.setdefault(case.rule, case.text)
        else:
            half.masked += 1
    both = Recall(*(halves[True].__dict__[k] + halves[False].__dict__[k] for k in ("texts", "masked")))
    print(f"| {name} | {both} | {halves[True]} | {halves[False]} |")
    for rule, number in worst.most_common(shown):
        print(f"    {number:>4} {rule}: {missed[rule][:160]!r}")


@dataclass(frozen=True)
class Masking:
    """One masking of an honest text, with the line it is in."""

    detector: str
    text: str
    before: str
    after: str
    file: str


def honest_texts(folders: Iterable[Path], limit: int, rng: random.Random) -> Iterator[tuple[Path, str]]:
    """Return readable files of `folders` in random order, up to `limit` bytes in all and 256 KB each."""
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    rng.shuffle(files)
    for file in files:
        try:
            data = file.read_bytes()[: 1 << 18]
            text = data.decode()
        except (OSError, UnicodeDecodeError):
            continue
        if "\x00" in text:
            continue
        yield file, text
        limit -= len(data)
        if limit <= 0:
            return


def maskings(file: Path, text: str, masker: Masker, detectors: tuple[str, ...]) -> Iterator[Masking]:
    """Return what is masked in one text."""
    masked, findings = masker.mask(text, detectors)
    if not findings or not isinstance(masked, str):
        return
    position = 0
    pieces = re.split(r"(\[(?:secret|pii):[a-z0-9-]+:[0-9a-f]{4}\])", masked)
    for index in range(1, len(pieces), 2):
        start = position + len(pieces[index - 1])
        tail = pieces[index + 1][:24]
        end = text.find(tail, start) if tail else len(text)
        position = end = max(end, start)
        yield Masking(pieces[index][1:-6], text[start:end], text[max(0, start - 60) : start], tail, str(file))


def main(arguments: list[str]) -> int:
    """Print the tables."""
    options = _options(arguments)
    masker = Masker(_KEY)
    print("| corpus | texts masked | of rules seen | of rules held out |\n|---|---|---|---|")
    for name, reader in READERS.items():
        checkout = options.folder / name
        if options.clone and not checkout.exists():
            subprocess.run(["git", "clone", "--depth=1", REPOSITORIES[name], str(checkout)], check=True)
        if not checkout.exists():
            print(f"| {name} | no checkout in {checkout} | | |")
            continue
        cases = list(reader(checkout))
        measure(name, cases, masker, options.worst)
        if name == "gitleaks":
            measure("gitleaks, unusual spellings", unusual(cases), masker, options.worst)
    if options.honest:
        _report_honest(options, masker)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/corpora"), help="where the checkouts are")
    parser.add_argument("--clone", action="store_true", help="clone what is missing")
    parser.add_argument("--worst", type=int, default=0, help="how many rules to show that were missed most")
    parser.add_argument("--honest", type=Path, nargs="*", default=[], help="folders of text without secrets")
    parser.add_argument("--megabytes", type=int, default=128, help="how much honest text to read")
    parser.add_argument("--sample", type=int, default=0, help="how many maskings of honest text to print, to be judged")
    parser.add_argument("--seed", type=int, default=7, help="chooses the files and the maskings to print")
    parser.add_argument("--detectors", nargs="+", default=["secrets", "pii"], help="what to look for in honest text")
    return parser.parse_args(arguments)


def _report_honest(options: argparse.Namespace, masker: Masker) -> None:
    rng = random.Random(options.seed)  # noqa: S311
    found: list[Masking] = []
    size = 0
    for file, text in honest_texts(options.honest, options.megabytes << 20, rng):
        size += len(text.encode())
        found += maskings(file, text, masker, tuple(options.detectors))
    counts: dict[str, int] = defaultdict(int)
    for masking in found:
        counts[masking.detector] += 1
    print(f"\n{len(found)} maskings in {size / 2**20:.0f} MB: {len(found) / max(size / 2**20, 1):.1f} a MB")
    for detector, number in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"    {number:>6} {detector}")
    rest = [masking for masking in found if masking.detector != "pii:email"]
    for number, one in enumerate(rng.sample(rest, min(options.sample, len(rest)))):
        print(f"{number:>4} {one.detector} {one.before!r} >>> {one.text[:100]!r} <<< {one.after!r} {one.file[-50:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
