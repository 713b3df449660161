"""The MCP clients that `interlock setup` knows: where their files are, and what can be had for their own tools. Pure.

A path may have the places of `places()` in braces, and `*`. Sources: each client's public documentation, 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook that asks Interlock before a client runs one of its own tools.

    `path` leads to a list in the JSON `file`; `entry` is put there, with COMMAND in place of the command to run. `base`
    is what a new file has beside it. `format` is the one of `interlock policy decide`.
    """

    file: str
    paths: tuple[tuple[str, ...], ...]
    entry: Mapping[str, object]
    format: str
    base: str = "{}\n"


@dataclass(frozen=True, slots=True)
class Client:
    """An MCP client. `files` are the user's, `project` those in a project's folder; `program` starts it in a shell."""

    id: str
    title: str
    files: tuple[str, ...]
    project: tuple[str, ...] = ()
    program: str | None = None
    hook: Hook | None = None

    @property
    def for_remote(self) -> str:
        """Say how servers that are reached by URL get behind the proxy."""
        if self.program is not None:
            return f"start the client with `interlock exec -- {self.program}` or `interlock confine -- {self.program}`"
        return "start the client with `interlock exec`, or give it the address of `interlock up --mode reverse:URL`"


COMMAND = "COMMAND"
CLAUDE_HOOK = Hook(
    file="{claude_settings}/settings.json",
    paths=(("hooks", "PreToolUse"),),
    # A hook that fails lets the call through, unless it exits with 2. `onFailure`, of newer versions, covers time-outs.
    entry={
        "matcher": "*",
        "hooks": [{"type": "command", "command": f"{COMMAND} || exit 2", "timeout": 60, "onFailure": "block"}],
    },
    format="claude-code",
)
CURSOR_HOOK = Hook(
    file="{home}/.cursor/hooks.json",
    paths=(("hooks", "beforeShellExecution"), ("hooks", "beforeReadFile"), ("hooks", "beforeMCPExecution")),
    entry={"command": f"{COMMAND} || exit 2", "failClosed": True},
    format="cursor",
    base='{\n  "version": 1\n}\n',
)
CLIENTS = (
    Client(
        "claude-code",
        "Claude Code",
        ("{claude}/.claude.json",),
        (".mcp.json",),
        program="claude",
        hook=CLAUDE_HOOK,
    ),
    Client("claude-desktop", "Claude Desktop", ("{apps}/Claude/claude_desktop_config.json",)),
    Client("cursor", "Cursor", ("{home}/.cursor/mcp.json",), (".cursor/mcp.json",), hook=CURSOR_HOOK),
    Client(
        "vscode",
        "VS Code",
        (
            "{apps}/Code*/User/mcp.json",
            "{apps}/Code*/User/settings.json",
            "{apps}/Code*/User/profiles/*/mcp.json",
            "{apps}/VSCodium/User/mcp.json",
        ),
        (".vscode/mcp.json",),
    ),
    Client("windsurf", "Windsurf", ("{home}/.codeium/windsurf/mcp_config.json", "{home}/.codeium/mcp_config.json")),
    Client("gemini", "Gemini CLI", ("{home}/.gemini/settings.json",), (".gemini/settings.json",), program="gemini"),
    Client("codex", "Codex", ("{codex}/config.toml",), (".codex/config.toml",), program="codex"),
    Client(
        "continue",
        "Continue",
        ("{home}/.continue/config.yaml", "{home}/.continue/mcpServers/*.yaml", "{home}/.continue/mcpServers/*.json"),
        (".continue/mcpServers/*.yaml", ".continue/mcpServers/*.json"),
        program="cn",
    ),
    Client("goose", "Goose", ("{config}/goose/config.yaml",), program="goose"),
    Client(
        "opencode",
        "opencode",
        ("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc", "{config}/opencode/config.json"),
        ("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        program="opencode",
    ),
    Client("zed", "Zed", ("{config}/zed/settings.json",), (".zed/settings.json",), program="zed"),
)


def places(home: str, environ: Mapping[str, str], *, macos: bool) -> dict[str, str]:
    """Return the folders that clients keep their files in."""
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    claude = environ.get("CLAUDE_CONFIG_DIR")
    return {
        "home": home,
        "config": config,
        "apps": f"{home}/Library/Application Support" if macos else config,
        "claude": claude or home,
        "claude_settings": claude or f"{home}/.claude",
        "codex": environ.get("CODEX_HOME") or f"{home}/.codex",
    }
