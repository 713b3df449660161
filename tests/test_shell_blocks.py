"""Every shell block of the README and of docs/ runs, in one shell a page; see tests/support/docs_fixture.py."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.docs_fixture import World, start_world
from tests.support.harness import REPOSITORY
from tests.support.postgres import Postgres

pytestmark = pytest.mark.timeout(240)  # a page is dozens of commands, and the world is made by the first that asks
LIMIT = 200
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"(?:sh|bash|shell|console)\b(?P<mark>.*)")
NOT_RUN: dict[tuple[str, str], int] = {
    ("docs/kubernetes.md", "needs a cluster"): 5,
    ("docs/clients.md", "installs clients from npm"): 1,
    ("docs/commands.md", "installs a server from npm"): 1,
    ("docs/receipts.md", "needs a receipt and a key"): 1,
    ("README.md", "installs packages for the user"): 1,
    ("docs/deployment.md", "needs Docker"): 3,
    ("docs/deployment.md", "needs a cluster"): 1,
    ("docs/deployment.md", "installs, and needs systemd"): 1,
}
"""Blocks marked ```sh no-run: WHY, by page and WHY: how many there are. WHY is short, and true wherever this runs."""
WAY_OUT = """
Make it run: docs_fixture.py says what stands for what a page names (PLACEHOLDERS), which programs have stand-ins
(STAND_INS) or are there (TOOLS), and which files a page finds. Or, where it cannot: mark it ```sh no-run: WHY and
count it in NOT_RUN of tests/test_shell_blocks.py."""
PROLOGUE = """\
set -eE -o pipefail
trap 'printf "block at line %s: %s: exit code %s\\n" "$BLOCK" "$BASH_COMMAND" "$?" >&2' ERR
trap 'code=$?; trap - ERR; set +e; kill $(jobs -p) 2>/dev/null; wait; exit $code' EXIT
"""

CLEAN = ("README.md", "docs/quick-start.md", "docs/laptop.md")
"""Pages for a first hour: they leave nothing running, and nothing in the checkout."""
NOTHING_RUNS = """
for _ in $(seq 200); do [ -z "$(jobs -pr)" ] && break; sleep 0.05; done
[ -z "$(jobs -pr)" ] || { jobs -l >&2; false; }
"""


@dataclass(frozen=True)
class Block:
    """A fenced block, and the line that it begins on."""

    line: int
    mark: str
    text: str


def shell_blocks(page: str) -> list[Block]:
    """Return the shell blocks of a page; `mark` is what follows the language."""
    found = []
    for fence in FENCE.finditer(page):
        if shell := SHELL.fullmatch(fence[2].strip()):
            text = re.sub(f"^{fence[1]}", "", fence[3], flags=re.MULTILINE)
            found.append(Block(page.count("\n", 0, fence.start()) + 1, shell["mark"].strip(), text))
    return found


BLOCKS = {str(page.relative_to(REPOSITORY)): shell_blocks(page.read_text()) for page in PAGES}
TO_RUN = {page: [block for block in blocks if not block.mark] for page, blocks in BLOCKS.items()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[World]:
    with start_world(tmp_path_factory.mktemp("docs"), postgres) as world:
        yield world


@pytest.mark.parametrize("page", [page for page, blocks in TO_RUN.items() if blocks])
def test_every_block_of_a_page_runs(page: str, world: World) -> None:
    script = PROLOGUE + world.filled("".join(f"BLOCK={block.line}\n{block.text}" for block in TO_RUN[page]))
    folder = world.new_folder(Path(page).stem)
    before = {path.relative_to(folder) for path in folder.rglob("*")}
    script += NOTHING_RUNS if page in CLEAN else ""
    run = subprocess.run(
        [world.folder / "bin" / "bash", "-c", script],
        cwd=folder, env=world.env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"{page}:\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}{WAY_OUT}"
    if page in CLEAN:
        assert {path.relative_to(folder) for path in folder.rglob("*")} == before


def test_blocks_that_do_not_run_are_counted_here_and_say_why_in_few_words() -> None:
    marked = Counter((page, block.mark) for page, blocks in BLOCKS.items() for block in blocks if block.mark)
    assert {key: count for key, count in marked.items() if not key[1].startswith("no-run: ")} == {}, WAY_OUT
    assert {(page, mark.removeprefix("no-run: ")): count for (page, mark), count in marked.items()} == NOT_RUN, WAY_OUT
    assert all(len(why.split()) <= 6 for _, why in NOT_RUN)


def test_blocks_are_found_whatever_is_around_them() -> None:
    page = (
        "a\n```sh\none\n```\n- b\n  ```sh no-run: needs Docker\n  two\n  ```\n```text\nno\n```\n```shell\nthree\n```\n"
    )
    assert shell_blocks(page) == [
        Block(2, "", "one\n"),
        Block(6, "no-run: needs Docker", "two\n"),
        Block(12, "", "three\n"),
    ]
