"""Secrets that no broad rule opens: keys, tokens of agents and clouds, browser profiles, histories. Pure, no I/O.

A profile reads one of them only where its `secrets:` names it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS: Final = (".ssh", ".gnupg", ".pki", ".password-store", ".age", ".config/age", ".config/sops", ".keychain")
_CLOUDS: Final = (
    *(".aws", ".azure", ".kube", ".docker", ".oci", ".aliyun", ".bluemix", ".ibmcloud", ".fly", ".boto", ".s3cfg"),
    *(".config/gcloud", ".config/doctl", ".config/hcloud", ".config/rclone", ".config/op", ".config/containers"),
    *(".config/helm", ".config/heroku", ".config/configstore", ".config/netlify", ".config/vercel", ".config/stripe"),
    *(".terraform.d", ".terraformrc", ".vault-token", ".pulumi", ".snowflake", ".databrickscfg", ".cloudflared"),
    *(".minikube", ".local/share/containers", ".config/cloudflare", ".config/wrangler", ".wrangler", ".supabase"),
)
_FORGES: Final = (
    *(".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".netrc"),
    *(
        ".authinfo",
        ".authinfo.gpg",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".pypirc",
        ".config/pypoetry",
        ".gem/credentials",
    ),
    *(".cargo/credentials", ".cargo/credentials.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".nuget/NuGet"),
    *(".config/pip", ".pip", ".composer/auth.json", ".config/composer/auth.json", ".config/NuGet", ".bundle/config"),
    *(".gem/credentials", ".config/uv/credentials", ".local/share/uv/credentials", ".config/containers/auth.json"),
)
_AGENTS: Final = (
    *(".claude", ".claude.json", ".codex", ".cursor", ".gemini", ".copilot", ".continue", ".codeium", ".windsurf"),
    *(".aider.conf.yml", ".openai", ".anthropic", ".config/claude", ".config/Claude", ".config/github-copilot"),
    *(".config/Cursor", ".config/Code", ".config/Windsurf", ".vscode", ".vscode-server", ".config/goose", ".cline"),
    *(".config/opencode", ".local/share/opencode", ".local/share/goose", ".config/zed", ".huggingface", ".amp"),
    *(".cache/huggingface/token", ".config/io.datasette.llm", ".config/openai", ".config/anthropic", ".ollama"),
    *(
        ".mcp-auth",
        ".config/mcp",
        ".interlock",
        ".local/share/interlock",
        ".local/state/interlock",
        ".config/interlock",
    ),
)
_DATABASES: Final = (".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".dbshell", ".config/redis", ".influxdbv2")
_BROWSERS: Final = (
    *(".mozilla", ".config/google-chrome", ".config/google-chrome-beta", ".config/chromium", ".thunderbird"),
    *(".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera", ".librewolf"),
    *("snap/firefox", "snap/chromium", ".var/app", ".local/share/keyrings", ".local/share/kwalletd", ".config/Signal"),
    *(".config/Slack", ".config/discord", ".config/1Password", ".config/Bitwarden", ".config/keepassxc", ".cert"),
    *(".local/share/Trash", ".electrum", ".bitcoin", ".ethereum", ".config/solana", ".config/evolution", ".purple"),
)
_HISTORIES: Final = (
    *(".bash_history", ".zsh_history", ".zhistory", ".sh_history", ".history", ".python_history", ".psql_history"),
    *(".mysql_history", ".sqlite_history", ".node_repl_history", ".irb_history", ".rediscli_history", ".lesshst"),
    *(".local/share/fish", ".local/share/atuin", ".viminfo", ".zsh_sessions", ".wget-hsts", ".ipython", ".lldb"),
    *(".local/state/python_history", ".local/state/bash/history", ".config/fish/fish_history", ".recently-used"),
    *(".local/share/recently-used.xbel", ".zdirs", ".ssh-agent", ".Xauthority", ".ICEauthority", ".pam_environment"),
)
HOME_SECRETS: Final = (*_KEYS, *_CLOUDS, *_FORGES, *_AGENTS, *_DATABASES, *_BROWSERS, *_HISTORIES)
MACHINE_SECRETS: Final = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh"),
    *("/etc/ssl/private", "/etc/krb5.keytab", "/etc/NetworkManager", "/etc/wireguard", "/etc/openvpn", "/etc/ppp"),
    *("/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/letsencrypt", "/etc/pki/tls/private"),
    *("/etc/cups", "/etc/crypttab", "/etc/aws", "/etc/boto.cfg", "/etc/interlock"),
    *("/run/secrets", "/var/run/secrets", "/run/credentials", "/run/user", "/run/agent", "/run/systemd"),
    *("/var/lib/kubelet", "/var/lib/docker", "/var/lib/containerd", "/var/lib/systemd", "/var/lib/sss", "/var/log"),
    *("/var/spool", "/var/mail", "/var/backups", "/var/lib/postgresql", "/var/lib/mysql", "/boot", "/root"),
)
# In any folder, by the names that programs give them.
NAMES: Final = (
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".netrc", ".pgpass"),
    *(".git-credentials", ".vault-token", "*.kdbx", "*.ppk", "*_history", "application_default_credentials.json"),
)
# Every file of a home is asked about: a set and one test of the end, not a pattern for each.
_WHOLE: Final = frozenset(name for name in NAMES if "*" not in name)
_ENDS: Final = tuple(name.removeprefix("*") for name in NAMES if name.startswith("*"))


def is_secret_name(name: str) -> bool:
    """Return whether a file of that name is a secret wherever it lies."""
    return name in _WHOLE or name.endswith(_ENDS)


def secret_paths(homes: Iterator[str] | tuple[str, ...]) -> Iterator[str]:
    """Return the absolute paths that are secrets, for these home folders."""
    for home in homes:
        yield from (f"{home.rstrip('/')}/{name}" for name in HOME_SECRETS)
    yield from MACHINE_SECRETS


def is_secret(path: str, homes: tuple[str, ...]) -> bool:
    """Return whether an absolute path is a secret, or lies in a folder of secrets."""
    if any(is_secret_name(part) for part in path.split("/")):
        return True
    known, above = _known(homes), path
    while above not in known and above not in ("", "/"):
        above = above.rpartition("/")[0]
    return above in known


@functools.lru_cache(8)
def _known(homes: tuple[str, ...]) -> frozenset[str]:
    # A home that is /root is no secret as a whole: its own secrets are named one by one.
    return frozenset(secret for secret in secret_paths(homes) if not _covers_home(secret, homes))


def _covers_home(secret: str, homes: tuple[str, ...]) -> bool:
    return any(home == secret or home.startswith(f"{secret}/") for home in homes)
