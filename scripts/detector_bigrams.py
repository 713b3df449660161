"""Print the table of proxy/core/randomness.py, counted over honest text in folders that are given.

The table changes a little with the text it is counted over; what it decides hardly does.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import itertools

from scripts.detector_corpora import honest_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
ORDER: Final = _LETTERS + _LETTERS.upper() + "0_"
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{3,58}")
_DIGEST: Final = re.compile(r"[0-9a-fA-F.-]{12,}")
_MEGABYTES: Final = 60


def table(words: Iterable[str]) -> list[str]:
    """Return a row for each character: the bits that each other tells after it, as hexadecimal digits."""
    counts: Counter[str] = Counter()
    for word in words:
        plain = "_" + re.sub(r"[^a-zA-Z0-9]", "_", re.sub(r"\d", "0", word)) + "_"
        counts.update(map("".join, itertools.pairwise(plain)))
    rows = []
    for first in ORDER:
        seen = [counts[first + second] + 0.5 for second in ORDER]
        bits = (-math.log2(number / sum(seen)) for number in seen)
        rows.append("".join("0123456789abcdef"[min(15, round(each))] for each in bits))
    return rows


def main(folders: list[str]) -> int:
    """Print the rows."""
    rng = random.Random(3)  # noqa: S311  the same texts on every run
    texts = honest_texts(map(Path, folders), _MEGABYTES << 20, rng)
    words = {word for _, text in texts for word in _WORD.findall(text) if not _DIGEST.fullmatch(word)}
    print("\n".join(table(words)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
