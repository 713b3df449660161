"""Measure the detector of text that speaks to the model: what it finds, and what honest text it takes for such.

    python scripts/incoming_report.py FOLDER

The folder holds `attacks/NAME.jsonl` (a set each, rows with a `text`), `honest/NAME/…` (any files) and `tools.jsonl` (a
definition of a tool in each row). Nothing of it is kept in this repository. Every set is split in two by a hash of the
text or the file's name: patterns were written while looking at the half `seen`; the half `held out` was only measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from proxy.injection import CONFIDENCES, find_passages
from proxy.injection.content import ValueContent, read_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proxy.injection import Passage

HALVES: Final = ("seen", "held out")
_TYPES: Final = {".html": "text/html", ".htm": "text/html", ".json": "application/json"}


def half(name: str) -> str:
    """Return the half that a text or a file belongs to."""
    return HALVES[hashlib.sha256(name.encode("utf-8", "replace")).digest()[0] % 2]


class Tally:
    """How many texts of each half were found, by confidence."""

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.found: Counter[tuple[str, str]] = Counter()

    def add(self, which: str, passages: Sequence[Passage]) -> None:
        self.texts[which] += 1
        for level in CONFIDENCES:
            self.found[which, level] += any(passage.reaches(level) for passage in passages)

    def row(self, name: str, *, exact: bool = False) -> str:
        cells = [name]
        for which in HALVES:
            count = self.texts[which]
            cells.append(str(count))
            cells += [_share(self.found[which, level], count, exact=exact) for level in CONFIDENCES]
        return f"| {' | '.join(cells)} |"


def _share(found: int, count: int, *, exact: bool) -> str:
    if not count:
        return "-"
    return f"{found} ({100 * found / count:.2f} %)" if exact else f"{100 * found / count:.0f} %"


def attacks(folder: Path) -> Iterator[tuple[str, Tally]]:
    """Yield each set of attacks with what was found of it."""
    for file in sorted((folder / "attacks").glob("*.jsonl")):
        tally = Tally()
        for line in file.read_text().splitlines():
            text = json.loads(line)["text"]
            tally.add(half(text), find_passages(text.encode("utf-8", "replace")))
        yield file.stem, tally


def honest(folder: Path) -> tuple[Tally, int, float]:
    """Return what was found in honest files, their size, and the processor time that it took."""
    tally, size, spent = Tally(), 0, 0.0
    for file in sorted(path for path in (folder / "honest").rglob("*") if path.is_file()):
        data = file.read_bytes()
        size += len(data)
        start = time.process_time()
        passages = read_page(data, _TYPES.get(file.suffix, "text/plain")).passages
        spent += time.process_time() - start
        tally.add(half(file.name), passages)
    return tally, size, spent


def tools(lines: Iterable[str]) -> Tally:
    """Return what was found in honest definitions of tools."""
    tally = Tally()
    for line in lines:
        tally.add(half(line), ValueContent(json.loads(line)).passages)
    return tally


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Recall and false alarms of the detector of injected text.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if not (folder / "attacks").is_dir() or not (folder / "honest").is_dir():
        print(f"{folder} has no folders `attacks` and `honest`; see the first lines of {sys.argv[0]}")
        return 2
    levels = " | ".join(CONFIDENCES)
    print(f"| set | seen | {levels} | held out | {levels} |\n|---|{'---|' * 8}")
    for name, tally in attacks(folder):
        print(tally.row(name))
    print(f"\n| honest | seen | {levels} | held out | {levels} |\n|---|{'---|' * 8}")
    tally, size, spent = honest(folder)
    print(tally.row("files", exact=True))
    if (folder / "tools.jsonl").exists():
        print(tools((folder / "tools.jsonl").read_text().splitlines()).row("definitions of tools", exact=True))
    print(f"\n{size / 1e6:.0f} MB of honest files in {spent:.0f} s of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
