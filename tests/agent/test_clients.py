"""The table of clients."""

from __future__ import annotations

from proxy.agent.clients import CLIENTS, places

LINUX = places("/home/me", {}, macos=False)


def files(client_id: str, where: dict[str, str]) -> list[str]:
    (client,) = [client for client in CLIENTS if client.id == client_id]
    return [template.format_map(where) for template in client.files]


def test_files_are_where_the_clients_documentation_says() -> None:
    assert files("claude-code", LINUX) == ["/home/me/.claude.json"]
    assert files("claude-desktop", LINUX) == ["/home/me/.config/Claude/claude_desktop_config.json"]
    assert files("cursor", LINUX) == ["/home/me/.cursor/mcp.json"]
    assert "/home/me/.config/Code*/User/mcp.json" in files("vscode", LINUX)
    assert "/home/me/.codeium/windsurf/mcp_config.json" in files("windsurf", LINUX)
    assert files("gemini", LINUX) == ["/home/me/.gemini/settings.json"]
    assert files("codex", LINUX) == ["/home/me/.codex/config.toml"]
    assert "/home/me/.continue/config.yaml" in files("continue", LINUX)
    assert files("goose", LINUX) == ["/home/me/.config/goose/config.yaml"]
    assert "/home/me/.config/opencode/opencode.json" in files("opencode", LINUX)
    assert files("zed", LINUX) == ["/home/me/.config/zed/settings.json"]


def test_variables_of_the_clients_move_their_files() -> None:
    moved = places("/home/me", {"CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/d", "XDG_CONFIG_HOME": "/x"}, macos=False)
    assert files("codex", moved) == ["/c/config.toml"]
    assert files("claude-code", moved) == ["/d/.claude.json"]
    assert files("zed", moved) == ["/x/zed/settings.json"]
    (claude,) = [client for client in CLIENTS if client.id == "claude-code"]
    assert claude.hook is not None
    assert claude.hook.file.format_map(moved) == "/d/settings.json"
    assert claude.hook.file.format_map(LINUX) == "/home/me/.claude/settings.json"


def test_desktop_programs_of_macos_have_their_own_folder() -> None:
    mac = places("/Users/me", {}, macos=True)
    assert files("claude-desktop", mac) == ["/Users/me/Library/Application Support/Claude/claude_desktop_config.json"]
    assert files("goose", mac) == ["/Users/me/.config/goose/config.yaml"]


def test_every_client_says_how_its_remote_servers_get_behind_the_proxy() -> None:
    assert len({client.id for client in CLIENTS}) == len(CLIENTS) == 11
    for client in CLIENTS:
        assert "interlock exec" in client.for_remote
