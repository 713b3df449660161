"""What a server is called that is known by its command line."""

from __future__ import annotations

import pytest

from proxy.trace.server_name import server_name


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("my-server --flag", "my-server"),
        ("/opt/bin/my-server", "my-server"),
        ("npx -y @modelcontextprotocol/server-everything", "@modelcontextprotocol/server-everything"),
        ("npx --yes @scope/name@1.2.3 arg", "@scope/name"),
        ("npx -p typescript some-server@latest", "some-server"),
        ("/usr/bin/npx server", "server"),
        ("npx", "npx"),
        ("npm exec server", "server"),
        ("pnpm dlx server", "server"),
        ("pnpm install", "pnpm"),
        ("uvx mcp-server-time==1.0 --tz UTC", "mcp-server-time"),
        ("uvx --from git+https://x/y tool", "tool"),
        ("uv run --directory /srv server.py", "server.py"),
        ("uv tool run mcp-server-git", "mcp-server-git"),
        ("pipx run thing", "thing"),
        ("python3 -m my.server --x", "my.server"),
        ("/venv/bin/python3.13 -u /srv/weather.py", "weather"),
        ("python3", "python3"),
        ("python3 -c import(x)", "python3"),
        ("node -e 1", "node"),
        ("node --inspect dist/index.js", "index"),
        ("node build/tool", "tool"),
        ("docker run -i --rm mcp/time", "docker"),
    ],
)
def test_a_server_is_called_by_its_package_script_or_program(command: str, name: str) -> None:
    assert server_name(command.split()) == name
