"""Tell by its form what a value is: a path, a URL or host, a command line. Pure, no I/O.

The whole value counts, not what it mentions: `/etc/hosts` is a path, and a sentence about /etc/hosts is none.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.policy.home import UNKNOWN_HOMES, expand_home
from proxy.policy.text import read_text

# Longer values are texts, unless they have no blank in them.
_LONGEST: Final = 4096
# Without one of these nothing is a path: a separator or what stands for one, a home, a variable, a drive, a dot-name.
_MARK: Final = re.compile("[/\\\\~$%:\u2044\u2215\u29f8\u2571\uff0f\u29f5\u2216\uff3c\u00a5\u20a9\uff5e]")
_LEADING_DOT: Final = re.compile(r"(?<![\w)\]\"'])\.\w")
_LOCAL_SCHEMES: Final = re.compile(
    r"(?:[a-z][\w+.-]*:)*"
    r"(?:file|netdoc|phar|php|zip|glob|jar|unix|local[_-]?file|vscode-(?:file|remote)|compress\.zlib):",
    re.IGNORECASE,
)
_DRIVE: Final = re.compile(r"[A-Za-z][:|][/\\]")
_DOTS: Final = re.compile(r"(?:^|[/\\=])\.\.(?:[/\\;]|$)")
_DOT_NAME: Final = re.compile(r"(?:^|[/\\])\.[A-Za-z_]")
_VARIABLE: Final = re.compile(r"(?:\$\{?\w+\}?|%\w+%)(?=[/\\])")
_OPTION: Final = re.compile(r"--?[A-Za-z][\w-]*=(.+)", re.DOTALL)
# `//host.example/x` too, which `//div[1]/a` of XPath is not.
_URL: Final = re.compile(
    r"[a-z][a-z0-9+.-]*:(?://|\\\\|/\\|\\/)[^\s/\\]|https?:|[/\\]{2}(?:[\w-]+(?:\.[\w-]+)+|\d+|\[[0-9a-f:.]+\])(?::\d+)?(?:[/\\?#]|$)",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(
    r"(?:(?:0x[0-9a-f]+|\d+)(?:\.(?:0x[0-9a-f]+|\d+)){1,3}|\[[0-9a-f:.%]+\]|metadata\.[\w.-]+|instance-data(?:\.[\w.-]+)?)"
    r"(?::\d+)?(?:/\S*)?",
    re.IGNORECASE,
)
_MOST_WORDS: Final = 2  # in the last name of a path
_MOST_INNER_WORDS: Final = 3
_MOST_LINES: Final = 100


def may_be_path(text: str) -> bool:
    """Return whether a string is worth a closer look; False for most."""
    return _MARK.search(text) is not None or ("." in text and _LEADING_DOT.search(text) is not None)


def path_in(text: str) -> str | None:
    """Return the path that the whole of `text` is, or None; the rest of it where an option or a variable leads."""
    stripped = text.strip()
    if len(stripped) > 2 and stripped[0] == stripped[-1] and stripped[0] in "\"'":
        stripped = stripped[1:-1].strip()
    if len(stripped) > _LONGEST:
        return stripped if stripped[:1] in "/\\~" and not any(c in stripped for c in " \n\t*") else None
    for reading in read_text(stripped).readings:
        found = _path_in(reading.strip())
        if found is not None:
            # As written, so that every other reading of it is judged too.
            return stripped if found == reading.strip() else found
    return None


def _path_in(text: str) -> str | None:
    if not text or "\n" in text or "\r" in text.strip():
        return None
    option = _OPTION.fullmatch(text)
    if option is not None:
        return _path_in(option[1])
    if text[0] == "@" and len(text) > 1:
        return _path_in(text[1:]) if text[1] in "/~." else None
    variable = _VARIABLE.match(text)
    if variable is not None and expand_home(text, UNKNOWN_HOMES) is None:
        # The server's variable may be empty: `$NOTHING/etc/shadow`.
        return text[variable.end() :]
    if not _starts_a_path(text):
        # What steps up or names a dot-file; a text that does so among other words only mentions it.
        steps_up = _DOTS.search(text) is not None and len(text.split()) <= _MOST_INNER_WORDS
        return (
            text
            if (steps_up or (_DOT_NAME.search(text) and not re.search(r"\s", text))) and not _is_url(text)
            else None
        )
    if _is_prose(text):
        return None
    # A container's folder behind the machine's own: `/home/me/conf:/etc/nginx`.
    return re.split(r":(?=/)", text, maxsplit=1)[0] if text[0] in "/~" else text


def _starts_a_path(text: str) -> bool:
    return (
        text[0] in "/\\\u2044\u2215\u29f8\u2571\u29f5\u2216\u00a5\u20a9"
        or text.startswith(("./", ".\\"))
        or _DRIVE.match(text) is not None
        or _LOCAL_SCHEMES.match(text) is not None
        or expand_home(text, UNKNOWN_HOMES) is not None
    )


def _is_prose(text: str) -> bool:
    """Return whether a text that starts like a path goes on in words, or is a comment of a program."""
    if text.startswith(("// ", "/* ", "/**", "///")) and " " in text:
        return True
    parts = re.split(r"[/\\]", text)
    return len(parts[-1].split()) > _MOST_WORDS or any(len(part.split()) > _MOST_INNER_WORDS for part in parts[:-1])


def _is_url(text: str) -> bool:
    return _URL.match(text) is not None


def is_address(text: str) -> bool:
    """Return whether the whole of `text` is a URL, or a host that needs no name: an address, a metadata service."""
    if "." not in text and ":" not in text and not text.startswith(("/", "\\")):
        return False
    stripped = text.strip()
    if not stripped or len(stripped) > _LONGEST or " " in stripped or "\n" in stripped:
        return False
    return _is_url(stripped) or _ADDRESS.fullmatch(stripped) is not None


# Programs that a command line is known by. Not every one there is: a value is taken for a command line by its
# argument's name as well.
_NAMES: Final = (
    "awk base64 bash bzip2 cat cd chattr chgrp chmod chown chroot cmd cp crontab curl cut dash dd del dig "
    "diff docker doas echo egrep env eval exec export fdisk fgrep find format ftp gawk gdb git grep "
    "gunzip gzip halt head id ifconfig insmod install ip iptables kill killall ksh kubectl ln ls lsof "
    "make mkdir mkfs mkfs.ext4 mkfs.xfs mknod modprobe more mount mv nc ncat netcat nice nmap node nohup "
    "npm npx od openssl parted passwd perl php pip pkill podman poweroff powershell printf ps pwsh python "
    "python2 python3 rd reboot rm rmdir rsync ruby scp sed setsid sftp sh shred shutdown socat source ssh "
    "stat strace strings su sudo sysctl systemctl tail tar tee telnet time timeout touch truncate umount "
    "unlink unzip useradd usermod vi vim wget wipefs xargs xxd xz zip zsh "
)
_KNOWN: Final = frozenset(_NAMES.split())
_LEADS: Final = re.compile(r"^(?:[\s({!]|\w+=\S*\s)*")
_JOINTS: Final = re.compile(r"&&|\|\||[;|&\n]")
_SHELL_MARKS: Final = re.compile(r"[;&|`$<>\\\"'(){}]")
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
# Words that no sentence has: options, paths, patterns, assignments, numbers, substitutions.
_SYMBOLIC: Final = re.compile(r"-.*|\+x?|.*[/~*$=\\{}:@`].*|\.+|\d+|.*\.\w+|\d*[<>]+.*", re.DOTALL)


def starts_with_program(text: str) -> bool:
    """Return whether the first word of a text is a well-known program, however it is quoted."""
    return _program(text) in _KNOWN


def runs_programs(text: str) -> bool:
    """Return whether a line of a text starts with a well-known program, or its first one names a shell."""
    if text.startswith("#!") and "sh" in text.partition("\n")[0]:
        return True
    return any(starts_with_program(line) for line in text[:_LONGEST].splitlines()[:_MOST_LINES])


def _program(text: str) -> str:
    text = text[:_LONGEST]
    words = text[_LEADS.match(text).end() :].split(maxsplit=1)  # type: ignore[union-attr]  # it matches the empty text
    if not words or (len(words) > 1 and words[1][:1] in "=("):
        return ""
    word = words[0].translate({34: None, 39: None, 92: None}).rstrip(";")
    return word.rpartition("/")[2].lower().removesuffix(".exe")


def looks_like_shell(text: str) -> bool:
    """Return whether a text may be a shell's: a program first, a path first, or signs that only a shell reads."""
    return starts_with_program(text) or text.lstrip()[:1] in "./~" or _SHELL_MARKS.search(text) is not None


def is_surely_command(text: str) -> bool:
    """Return whether a text can hardly be anything but a command line: programs, options and paths alone."""
    if len(text) > _LONGEST or not starts_with_program(text):
        return False
    lines = [line.split() for line in _JOINTS.split(_QUOTED.sub("/", text)) if line.strip()]
    return any(len(words) > 1 for words in lines) and all(map(_is_symbolic, lines))


def _is_symbolic(words: list[str]) -> bool:
    return starts_with_program(" ".join(words)) and all(map(_SYMBOLIC.fullmatch, words[1:]))
