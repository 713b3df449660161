"""Runs a service as a compose file describes it on a layer of docker_image.py: user, capabilities, mounts, secrets.

Networks are not made: a service has a loopback of its own, or another's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.docker_image import Layer, namespace_command

LIMIT = 60.0


def read_compose(file: Path, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a compose file with its variables put in, as `docker compose config` does."""

    def value(match: re.Match[str]) -> str:
        return (variables or {}).get(match[1]) or match[2] or ""

    content: dict[str, Any] = YAML(typ="safe", pure=True).load(
        re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", value, file.read_text())
    )
    return content


@dataclass
class Service:
    """A service of a compose file, and what stands for its volumes and secrets."""

    layer: Layer
    said: Mapping[str, Any]
    volumes: Mapping[str, Path]
    """Folders by the name of the volume, or by the path in the container."""
    secrets: Mapping[str, Path] = field(default_factory=dict)
    shown: Path = Path()
    """Where what it prints goes."""
    hosts: str = "127.0.0.1 localhost\n"

    network: Sequence[str] = ("ip link set lo up",)
    """Commands that make the network of its own."""

    def command(self, *words: str, network: int | None = None) -> list[str]:
        """Return the command that runs the service, in a network of its own or that of a process."""
        told = self.layer.told
        entry = json.loads(told.get("ENTRYPOINT", "[]")) + list(
            words or self.said.get("command") or json.loads(told.get("CMD", "[]"))
        )
        user, _, group = str(self.said.get("user", told.get("USER", "0"))).partition(":")
        env = self.layer.env | {name: str(value) for name, value in (self.said.get("environment") or {}).items()}
        inside = ["chroot", f"{self.layer.folder}/root", *self._privileges(user, group or user)]
        inside += [
            "env",
            "-i",
            *(f"{name}={value}" for name, value in env.items()),
            "sh",
            "-c",
            f'cd {self.layer.cwd} && exec "$@"',
            "sh",
        ]
        if network is None:
            return namespace_command(self.layer, [*self.network, *self._mounts()], [*inside, *entry], "--net")
        return [
            "nsenter",
            f"--net=/proc/{network}/ns/net",
            *namespace_command(self.layer, self._mounts(), [*inside, *entry]),
        ]

    def _privileges(self, user: str, group: str) -> list[str]:
        assert self.said["cap_drop"] == ["ALL"]
        kept = "".join(f",+{name.lower()}" for name in self.said.get("cap_add", ()))
        flags = ["--reuid", user, "--regid", group, "--clear-groups", f"--bounding-set=-all{kept}", "--inh-caps=-all"]
        return [
            "setpriv",
            *flags,
            *(["--no-new-privs"] if "no-new-privileges:true" in self.said["security_opt"] else []),
        ]

    def _mounts(self) -> list[str]:
        """Return the commands that mount what the service has, and end with a root that cannot be written."""
        lines = []
        for volume in self.said.get("volumes", ()):
            source, target, *flags = volume.split(":")
            lines += self._bind(self.volumes[source], target, read_only="ro" in flags)
        for name in self.said.get("secrets", ()):
            lines += self._bind(self.secrets[name], f"/run/secrets/{name}", read_only=True)
        for each in self.said.get("tmpfs", ()):
            target, _, options = each.partition(":")
            self.layer.file(target).mkdir(parents=True, exist_ok=True)
            lines.append(f'mount -t tmpfs -o "{options}" tmpfs "$LAYER/root{target}"')
        self.layer.write("/etc/hosts", self.hosts, 0o644)
        return [*lines, *(['mount -o remount,ro,bind "$LAYER/root"'] if self.said.get("read_only") else [])]

    def _bind(self, source: Path, target: str, *, read_only: bool) -> list[str]:
        kept = self.layer.file(target)
        kept.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            if kept.exists() and not any(source.iterdir()):  # a fresh volume takes on what the image has there
                shutil.chown(source, kept.stat().st_uid, kept.stat().st_gid)
                source.chmod(kept.stat().st_mode)
            kept.mkdir(exist_ok=True)
        else:
            kept.touch()
        lines = [f'mount --bind "{source}" "$LAYER/root{target}"']
        return [*lines, f'mount -o remount,ro,bind "$LAYER/root{target}"'] if read_only else lines

    @contextlib.contextmanager
    def running(self, network: int | None = None) -> Iterator[int]:
        """Run it until the block ends; return the process that is its first."""
        command = self.command(network=network)
        with self.shown.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
            try:
                yield _only_child(process)
            finally:
                with contextlib.suppress(ProcessLookupError, AssertionError):
                    os.kill(_only_child(process), signal.SIGTERM)
                try:
                    process.wait(LIMIT)
                finally:
                    process.kill()

    def run(self, *words: str, network: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        command = self.command(*words, network=network)
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)

    def exec(self, first: int, words: Sequence[str], user: str = "10001") -> subprocess.CompletedProcess[str]:
        """Run a command in a running service, as `docker exec` and health checks do."""
        env = [f"{name}={value}" for name, value in self.layer.env.items()]
        enter = [
            "nsenter",
            f"--target={first}",
            "--mount",
            "--pid",
            "--net",
            f"--root=/proc/{first}/root",
            f"--wd=/proc/{first}/cwd",
        ]
        drop = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
        command = [*enter, *drop, "env", "-i", *env, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


def _only_child(process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            return int(children[0])
        time.sleep(0.02)
    raise AssertionError("it ended before it began")
