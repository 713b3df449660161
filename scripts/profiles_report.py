"""Writes the table of docs/profiles.md: what each profile contains of the cases in tests/profiles (`make profiles`).

`--check` writes nothing, and fails where the page has other figures.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

import structlog

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from proxy.system.package_data import PROFILES  # noqa: E402
from tests.profiles.cases_file import families, load_cases  # noqa: E402
from tests.profiles.world import ProfileRunner  # noqa: E402

PAGE = ROOT / "docs" / "profiles.md"
BEGIN, END = "<!-- table: make profiles -->\n", "<!-- end of the table -->\n"
TITLES = {
    "a2a": "agent cards, A2A messages",
    "bodies": "request bodies",
    "chains": "chains of calls",
    "encodings": "encodings",
    "financial": "financial data, wallets, personal numbers",
    "headers": "headers, cookies, credentials",
    "host_names": "data in host names",
    "pages": "injected pages and answers",
    "shell_ssrf": "shell, SSRF (also nested, and by redirect)",
    "tools": "tool descriptions, results, drift",
    "urls": "URLs and methods",
    "websockets": "WebSockets",
}

type Counts = Counter[tuple[str, str, str, bool]]


async def count() -> Counts:
    """Run every case in every profile; count by profile, class, what is expected and whether it was contained."""
    counts: Counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for profile in PROFILES:
            runner = ProfileRunner(profile, Path(folder) / profile)
            for case in load_cases():
                counts[profile, case.family, case.expect, await runner.contained(case)] += 1
    return counts


def table(counts: Counts) -> str:
    """Return the table in Markdown: attacks contained, and honest traffic stopped."""
    head = " | ".join(f"{profile}: attacks contained | {profile}: honest stopped" for profile in PROFILES)
    lines = [f"| class | {head} |", "|---|" + "---|" * (2 * len(PROFILES))]
    lines += [_row(TITLES[family], [family], counts) for family in families()]
    lines.append(_row("**all**", families(), counts))
    return "\n".join(lines) + "\n"


def _row(title: str, of: list[str], counts: Counts) -> str:
    cells = [
        f"{sum(counts[profile, family, expect, True] for family in of)} of "
        f"{sum(counts[profile, family, expect, hit] for family in of for hit in (True, False))}"
        for profile in PROFILES
        for expect in ("contained", "benign")
    ]
    return f"| {title} | {' | '.join(cells)} |"


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = before + BEGIN + table(asyncio.run(count())) + END + after
    if "--check" in sys.argv:
        return 0 if new == text else 1
    PAGE.write_text(new)
    sys.stdout.write(new[new.index(BEGIN) + len(BEGIN) : new.index(END)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
