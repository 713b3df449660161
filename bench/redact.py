"""What scanning costs: `python -m bench.redact`.

Each figure is the best of several runs of the whole masking of one string, all detectors on,
in processor time of the thread.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from pathlib import Path

from bench import figures
from bench.figures import Figure
from proxy.redact import Masker, builtin
from proxy.redact.scan import scanner_for
from proxy.redact.validators import luhn

SIZE = 5_000_000
MEGABYTE = 1_000_000
DETECTORS = ("secrets", "pii")


def source_code() -> str:
    """Python's own library, comments, long lines and all."""
    text = ""
    for file in sorted(Path(random.__file__).parent.glob("*.py")):
        text += file.read_text(encoding="utf-8", errors="replace")
    return (text * (SIZE // len(text) + 1))[:SIZE]


def prose() -> str:
    """Words of many lengths in lines, with numbers, and nothing to find."""
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(1, 11))) for _ in range(5000)]
    words += [str(source.randint(0, 99_999)) for _ in range(200)]
    text = ""
    while len(text) < SIZE // 10:
        text += " ".join(source.choices(words, k=12)) + ".\n"
    return (text * 11)[:SIZE]


def near_miss(number: int) -> int:
    """Return a card number whose check digit is one too high."""
    start = 4_000_000_000_000_000 + number * 70
    return next(start + digit for digit in range(10) if luhn([int(c) for c in str(start + (digit - 1) % 10)]))


def adversarial() -> dict[str, str]:
    """Texts made to be slow."""
    keywords = sorted({word for detector in builtin().detectors for word in detector.keywords})
    bait = {
        "all keywords": " ".join(keywords) + "\n",
        "near-miss cards": "4111 1111 1111 1112 ",
        "unlike cards": "".join(f"{number} " for number in map(near_miss, range(50_000))),
        "numbers of four": "".join(f"{number * 7919 % 10_000:04} " for number in range(10_000)),
        "assignments": "password = secret = token = api_key = ",
        "assignments inside": "secret=token=",
        "unfinished keys": "-----BEGIN PRIVATE KEY----- ",
        "digits": "1",
        "letters": "a",
        "at signs": "a@a.",
        "percent": "%41%4b",
        "every escape": "%41\\x41\\u0041\\\\x41%u0041&#x41; ",
        "base64 of base64": base64.b64encode(base64.b64encode(b"some text in it ")).decode() + " ",
        "hashes": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b\n",
        "secrets throughout": "AKIA" + "IOSFODNN7EXAMPLE ",
    }
    return {name: (text * (SIZE // len(text) + 1))[:SIZE] for name, text in bait.items()}


def best(masker: Masker, text: str, runs: int) -> float:
    """Return the seconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = time.thread_time()
        masker.mask(text, DETECTORS)
        times.append(time.thread_time() - start)
    return min(times)


def measure(quick: bool) -> Iterator[Figure]:  # noqa: FBT001
    """Return the figures beside their goals."""
    start = time.thread_time()
    masker = Masker(b"a key for the benchmark")
    yield Figure(f"{len(builtin().detectors)} detectors compiled", time.thread_time() - start, "s")
    scanner, chosen = scanner_for(builtin()), builtin().select(DETECTORS)
    words = prose()
    data = words.encode()
    start = time.thread_time()
    scanner.matches(data, chosen)
    yield Figure("scan alone, 5 MB of prose", SIZE / (time.thread_time() - start) / 1e6, "MB/s")
    for name, text in (("prose", words), ("source code", source_code())):
        small = best(masker, text[10_000:12_048], 300)
        large = best(masker, text, 1 if quick else 3)
        yield Figure(f"mask 2 KB of {name}", small * 1e6, "µs", at_most=60)
        yield Figure(f"mask 5 MB of {name}", SIZE / large / 1e6, "MB/s", at_least=50)
    for name, text in adversarial().items():
        yield Figure(f"mask 1 MB, adversarial: {name}", best(masker, text[:MEGABYTE], 1), "s", at_most=0.5)
    if quick:
        return
    base = best(masker, words, 2)
    for name, text in adversarial().items():
        took = best(masker, text, 1)
        yield Figure(f"mask 5 MB, adversarial: {name}", took / base, "x prose", at_most=10)


if __name__ == "__main__":
    figures.main(measure, __doc__)
