"""Builds the Dockerfile and runs what comes of it without a container engine, for tests; needs root.

Each stage is an overlay over this machine's own root, which stands for the base image, so every RUN step runs as it is
written, at the paths that it names. What costs minutes is replaced: apt-get is told what it was asked for, and of the
lock one package is installed; the others are those of the environment that the tests run in.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.harness import REPOSITORY

LIMIT = 120
LAYER = """
mount -t overlay overlay -o "lowerdir=/,upperdir=$LAYER/upper,workdir=$LAYER/work" "$LAYER/root"
mount -t proc proc "$LAYER/root/proc"
mount --rbind /dev "$LAYER/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$LAYER/root/tmp"
mount --bind "$PYTHON" "$LAYER/root/base/python"
mount --bind "$PACKAGES" "$LAYER/root/base/packages"
"""
PACKAGES = next(Path(sys.prefix).resolve().glob("lib/python3*/site-packages"))
BASE = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LD_LIBRARY_PATH": "/base/python/lib",  # a shared libpython may be where only root can go
}
FROM_HOST = ("PIP_", "SSL_", "REQUESTS_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
"""Variables that say how this machine reaches its packages."""


@dataclass(frozen=True)
class Instruction:
    """One line of a Dockerfile, continuations joined."""

    word: str
    text: str


def read_dockerfile(file: Path) -> list[Instruction]:
    """Return the instructions, without comments, with ARGs put in where FROM names them."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [Instruction(*line.split(maxsplit=1)) for line in whole.splitlines() if line.strip()]
    arguments = dict(each.text.split("=", 1) for each in found if each.word == "ARG")
    return [Instruction(i.word, _filled(i.text, arguments) if i.word == "FROM" else i.text) for i in found]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda name: values.get(name[1], ""), text)


def sent_to_the_builder(folder: Path) -> set[str]:
    """Return the files that .dockerignore lets through; the last pattern that fits a path counts."""
    lines = (folder / ".dockerignore").read_text().splitlines()
    patterns = ["!*", *(line for line in lines if line and line[0] != "#")]  # what none fits is sent
    known = subprocess.run(["git", "ls-files", "-co"], cwd=folder, capture_output=True, text=True, check=True).stdout

    @functools.cache  # a folder is looked at once, and not for each of its files
    def last_fit(path: str) -> int:
        """Return the number of the last pattern that fits the path or a folder above it."""
        above = path.rpartition("/")[0]
        least = last_fit(above) if above else 0
        return next((n for n in range(len(patterns) - 1, least, -1) if _fits(path, patterns[n])), least)

    return {path for path in known.splitlines() if patterns[last_fit(path)].startswith("!")}


def _fits(path: str, pattern: str) -> bool:
    bare = pattern.removeprefix("!")
    return fnmatch.fnmatchcase(path, bare) or fnmatch.fnmatchcase(f"/{path}", bare[2:])


@dataclass
class Layer:
    """A stage: what it adds to the machine's own files, and what it says of how it is run."""

    folder: Path
    env: dict[str, str] = field(default_factory=lambda: dict(BASE))
    cwd: str = "/"
    told: dict[str, str] = field(default_factory=dict)
    """The last USER, CMD, ENTRYPOINT, HEALTHCHECK and their like."""

    def __post_init__(self) -> None:
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        _stand_in_for_the_base(self)

    def file(self, path: str) -> Path:
        """Return where a file of this layer's is kept."""
        return self.folder / "upper" / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o755) -> None:
        """Put a file into the layer."""
        file = self.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def run(self, script: str) -> str:
        """Run a RUN step; return what it printed."""
        host = {name: value for name, value in os.environ.items() if name.startswith(FROM_HOST)}
        words = [f"{name}={value}" for name, value in ({"HOME": "/root"} | host | self.env).items()]
        command = ["chroot", f"{self.folder}/root", "env", "-i", *words, "sh", "-ec", f"cd {self.cwd} && {script}"]
        done = in_namespace(self, [], command)
        assert done.returncode == 0, f"RUN {script}\n{done.stdout}{done.stderr}"
        return done.stdout


def in_namespace(layer: Layer, mounts: Sequence[str], command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command where the layer is mounted, and more."""
    return subprocess.run(
        namespace_command(layer, mounts, command), capture_output=True, text=True, timeout=LIMIT, check=False
    )


def namespace_command(layer: Layer, mounts: Sequence[str], command: Sequence[str], *flags: str) -> list[str]:
    """Return the command that mounts the layer in namespaces of its own and runs another there as process 1."""
    script = "\n".join(
        [f"LAYER={layer.folder} PYTHON={sys.base_prefix} PACKAGES={PACKAGES}", LAYER, *mounts, 'exec "$@"']
    )
    apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--ipc", *flags]
    return [*apart, "sh", "-euc", script, "sh", *command]


def build(file: Path, folder: Path) -> Layer:
    """Build the last stage of a Dockerfile."""
    stages: dict[str, Layer] = {}
    layer: Layer | None = None
    sent = sent_to_the_builder(file.parent)
    for each in read_dockerfile(file):
        if each.word == "FROM":
            name = each.text.partition(" AS ")[2] or "last"
            layer = stages[name] = Layer(folder / name)
        elif layer is not None:
            _step(layer, each, stages, sent)
    assert layer is not None
    return layer


def _step(layer: Layer, each: Instruction, stages: Mapping[str, Layer], sent: set[str]) -> None:
    match each.word:
        case "RUN":
            layer.run(each.text)
            if "-r requirements.lock" in each.text:
                _add_the_rest_of_the_lock(layer)
        case "ENV":
            pairs = (word.partition("=") for word in shlex.split(each.text))
            layer.env |= {name: value.replace("$PATH", layer.env["PATH"]) for name, _, value in pairs}
        case "WORKDIR":
            layer.cwd = each.text
            layer.file(each.text).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(layer, shlex.split(each.text), stages, sent)
        case _:
            layer.told[each.word] = each.text


def _copy(layer: Layer, words: list[str], stages: Mapping[str, Layer], sent: set[str]) -> None:
    flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
    *sources, target = [word for word in words if not word.startswith("--")]
    target = target if target.startswith("/") else f"{layer.cwd}/{target.removeprefix('./')}"
    for source in sources:
        into = layer.file(f"{target}/{Path(source).name}" if target.endswith("/") else target)
        into.parent.mkdir(parents=True, exist_ok=True)
        if stage := flags.get("from"):
            shutil.copytree(stages[stage].file(source), into, symlinks=True)
            continue
        files = [path for path in sent if path == source or path.startswith(f"{source}/")]
        assert files, f"COPY {source}: .dockerignore keeps it from the builder, or it is not there"
        for path in files:
            to = into / Path(path).relative_to(source) if path != source else into
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / path, to)
            if mode := flags.get("chmod"):
                to.chmod(int(mode, 8))
        if source == "requirements.lock":
            into.write_text(one_of_the_lock(into.read_text()))


def one_of_the_lock(lock: str, name: str = "annotated-doc") -> str:
    """Return the entry of one package, with its hashes."""
    entry = re.search(rf"^{name}==.*?(?=^\S)", lock, re.MULTILINE | re.DOTALL)
    assert entry
    return entry[0]


def _add_the_rest_of_the_lock(layer: Layer) -> None:
    (packages,) = layer.file("/opt/interlock/lib").glob("python3*/site-packages")
    (packages / "rest-of-the-lock.pth").write_text("/base/packages\n")


def _stand_in_for_the_base(layer: Layer) -> None:
    """Make this machine look like python:slim: a python on the path that any user may run."""
    for name in ("python", "packages"):
        layer.file(f"/base/{name}").mkdir(parents=True)
    python = "/base/python/bin/python3"
    layer.write("/usr/local/bin/python", f'#!/bin/sh\nexec {python} "$@"\n')
    layer.write("/usr/local/bin/pip", f'#!/bin/sh\nexec {python} -m pip "$@"\n')
    layer.write("/usr/local/bin/apt-get", '#!/bin/sh\necho "$*" >>/usr/local/share/apt-get.log\n')
