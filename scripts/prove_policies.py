"""Compares `policy diff --prove` with brute force on random pairs of policies: `prove_policies.py NUMBER SEED`."""

import random
import sys
from collections import Counter

from tests.support.random_policies import compare

if __name__ == "__main__":
    number, seed = (int(word) for word in (*sys.argv[1:], *("10000", "1")[len(sys.argv) - 1 :]))
    answers = Counter(compare(random.Random(f"{seed}-{one}")) for one in range(number))  # noqa: S311
    print(f"{number} pairs of policies, seed {seed}: {dict(answers.most_common())}; none disagrees with brute force")
