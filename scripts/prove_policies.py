"""Compares `policy diff --prove` with brute force on random pairs of policies: `prove_policies.py NUMBER SEED`."""

import random
import sys
import time
from collections import Counter

from tests.support.random_policies import compare

STEP = 250


def main(number: int, seed: str) -> None:
    """Compare so many pairs; each has a seed of its own, so that one of them can be tried alone."""
    answers: Counter[str] = Counter()
    for one in range(1, number + 1):
        answers[compare(random.Random(f"{seed}-{one - 1}"))] += 1  # noqa: S311
        if one % STEP == 0:
            seconds = time.process_time()
            print(f"{one} pairs, {seconds:.0f} s of CPU: {dict(answers.most_common())}", file=sys.stderr, flush=True)
    print(f"{number} pairs of policies, seed {seed}: {dict(answers.most_common())}; none disagrees with brute force")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 10_000, given[1] if len(given) > 1 else "1")
