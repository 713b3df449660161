"""Which of the files that a server opened are its own source."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from proxy.probe.own_sources import MAX_BYTES, MAX_FILES, own_sources

if TYPE_CHECKING:
    from pathlib import Path


def made(folder: Path, *names: str) -> list[str]:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")
    return [str(folder / name) for name in names]


def test_what_lies_beside_no_library_is_the_servers(tmp_path: Path) -> None:
    opened = made(tmp_path, "server.py", "parts/tools.js", "notes.md", "lib/python3.13/json/decoder.py")
    assert own_sources(opened, ["python", opened[0]]) == ("# server.py", "# parts/tools.js")


def test_of_what_is_installed_only_the_package_that_was_started_counts(tmp_path: Path) -> None:
    site = "lib/python3.13/site-packages"
    opened = made(tmp_path, f"{site}/mcp_server_notes/tools.py", f"{site}/mcp/server.py", f"{site}/six.py")
    for command in (["uvx", "mcp-server-notes"], ["python", "-m", "mcp_server_notes"], ["/x/bin/mcp-server-notes"]):
        assert own_sources(opened, command) == (f"# {site}/mcp_server_notes/tools.py",)


def test_a_package_of_node_is_known_by_its_name_or_by_the_file_that_was_started(tmp_path: Path) -> None:
    own = "node_modules/@notes/server/dist/index.js"
    opened = made(tmp_path, own, "node_modules/@notes/server/node_modules/zod/index.js", "node_modules/zod/index.js")
    for command in (["npx", "-y", "@notes/server"], ["node", opened[0]]):
        assert own_sources(opened, command) == (f"# {own}",)


def test_a_compiled_file_stands_for_its_source(tmp_path: Path) -> None:
    (source,) = made(tmp_path, "tools.py")
    compiled = str(tmp_path / "__pycache__" / "tools.cpython-313.pyc")
    assert own_sources([compiled, source], ["python", source]) == ("# tools.py",)


def test_what_is_no_plain_file_or_is_gone_is_not_read_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    opened = [str(tmp_path / name) for name in ("pipe.py", "folder.py", "gone.py")]
    assert own_sources(opened, ["python", "x.py"]) == ()


def test_there_is_a_limit_to_files_and_to_what_is_read_of_one(tmp_path: Path) -> None:
    (large,) = made(tmp_path, "large.py")
    (tmp_path / "large.py").write_bytes(b"x" * (MAX_BYTES + 9))
    opened = [*made(tmp_path, *(f"m{number}.py" for number in range(MAX_FILES + 5))), large]
    found = own_sources(opened, ["python", large])
    assert len(found) == MAX_FILES
    assert found[-1] == "x" * MAX_BYTES
