"""The forms of a program that run other programs: `tar -I curl`, `sed '1e curl'`, `make --eval`. Pure, no I/O.

An allow of a program does not cover such a form, unless it names the option (`tar -I`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.policy import wrappers
from proxy.policy.command_mentions import may_hold_program
from proxy.policy.sed_script import is_harmless_sed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def _options(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Options, and words of subcommands, that run programs or code. Long ones also in shortened form.
_ESCAPES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("tar", "bsdtar", "gtar"), _options(
        "-I -F --use-compress-program --to-command --checkpoint-action --info-script --new-volume-script --rsh-command "
        "--rmt-command"
    )),
    "make": _options("--eval -E --file=/dev/stdin"),
    "sed": _options("-f --file"),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _options("-f -E -l -i --file --exec --load --include")),
    **dict.fromkeys(("python", "pypy"), _options("-c -i -x")),
    "perl": _options("-e -E -M -m -x -d"),
    "ruby": _options("-e -r -x -I"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), _options(
        "-e -p -r -i --eval --print --require --import --loader --experimental-loader eval repl"
    )),
    "php": _options("-r -R -B -E -d -a -S"),
    "lua": _options("-e -l -i"),
    **dict.fromkeys(("r", "rscript", "julia", "guile", "ghc", "clisp", "gnuplot", "slsh", "octave"), _options(
        "-e -E -x -c --eval --exec --execute"
    )),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "emacs", "nano", "pico"), _options(
        "-c -S -s -u -l -f + --cmd --eval --load --speller --execute --funcall"
    )),
    **dict.fromkeys(("gdb", "lldb"), _options("-ex -x -iex -ix -c -o -s --eval-command --command --args -p")),
    "git": _options(
        "-c --exec-path --config-env --upload-pack --receive-pack --exec -x --extcmd -O --open-files-in-pager "
        "--ext-diff --textconv --config --template -u config bisect submodule "
        "difftool mergetool filter-branch instaweb "
        "daemon hook rebase send-email web--browse credential remote-ext alias fsmonitor--daemon --paginate"
    ),
    "hg": _options("--config --remotecmd --ssh -e extdiff"),
    "svn": _options("--config-option --diff-cmd --diff3-cmd --editor-cmd --config-dir"),
    "ssh": _options("-o -F -S"),
    **dict.fromkeys(("scp", "sftp"), _options("-S -o -F -D")),
    "rsync": _options("-e --rsh --rsync-path --daemon"),
    "curl": _options("-K --config --engine"),
    "wget": _options("--use-askpass -e --execute --config"),
    "man": _options("-P -H -C --pager --html --config-file"),
    **dict.fromkeys(("less", "more", "most"), _options("+ -k -o -O --lesskey --log-file")),
    "zip": _options("-TT --unzip-command -T"),
    "tcpdump": _options("-z"),
    "split": _options("--filter"),
    **dict.fromkeys(("sort", "gsort"), _options("--compress-program")),
    "cpio": _options("--rsh-command"),
    **dict.fromkeys(("gcc", "g++", "cc", "clang", "c++"), _options("-wrapper -B -specs -fplugin -Xclang")),
    "openssl": _options("-engine -provider engine"),
    **dict.fromkeys(("apt", "apt-get", "aptitude", "apt-cache"), _options("-o -c --option --config-file changelog")),
    "dpkg": _options("--pre-invoke --post-invoke -i --install --configure"),
    "rpm": _options("--eval -E --pipe --define -D --load"),
    **dict.fromkeys(("mysql", "mariadb", "psql"), _options("-e -c --execute --command -f --file --pager")),
    "sqlite3": _options("-cmd -init"),
    "nmap": _options("--script --script-args-file --interactive -sC -A"),
    "pip": _options("config --editor"),
    "gem": _options("open -e --editor"),
    "ln": (),
    "yt-dlp": _options("--exec --exec-before-download --downloader --external-downloader"),
    "ffmpeg": _options("-f concat"),
    "fzf": _options("--bind --preview --execute"),
    "socat": _options("exec: system:"),
    "find": _options("-fprintf -fprint -fls"),
    "date": _options("-f --file"),
    "expect": _options("-c"),
    "dc": _options("-e -f --expression"),
    "lftp": _options("-c -e -f"),
    "journalctl": _options("--pager"),
}  # fmt: skip
# In a word of a program that no table knows: it may hand the word to a shell.
_SCRIPT: Final = re.compile(r"[;|&`\n]|\$\(")
_AWK: Final = re.compile(r"system\s*\(|(?<!\|)\|(?!\|)|getline|@load|@include|print[^;}\n]*>|\bARGV\b|\bextension\b")
# Marks of code that starts programs, in any word of any program.
_ANYWHERE: Final = re.compile(
    r"--[\w-]*(?:exec|eval|hook|-cmd|command|-script|askpass|pager|editor|shell-escape|-program)[\w-]*(?:=|$)|^!|\bunixexec:"
    r"|^\.(?:shell|system)\b|\\!|%\(|(?:^|=)\|"
)


def escapes_of(name: str, args: Sequence[str]) -> Iterator[str]:
    """Return the options and words of a command that run other programs than itself."""
    base = name.rstrip("0123456789.-") or name
    unknown = not any(name in table for table in (wrappers.INERT, wrappers.WRAPPERS, wrappers.SHELLS, _ESCAPES))
    for i, text in enumerate(args):
        found = next((option for option in _ESCAPES.get(base, ()) if _is_option(option, text)), None)
        if found is not None:
            yield found
        elif may_hold_program(name, text) or _ANYWHERE.search(text):
            yield text.partition("=")[0]
        elif (base == "make" and "=" in text) or (unknown and _SCRIPT.search(text)):
            yield text
        elif base in ("tar", "bsdtar") and i == 0 and not text.startswith("-") and ("I" in text or "F" in text):
            yield "-I"
    yield from _in_code(base, args)
    if name in wrappers.RUNNERS:
        yield name


def _is_option(option: str, text: str) -> bool:
    if not option.startswith("-") or option == "-":
        return text == option or (option in ("+", "exec:", "system:") and text.lower().startswith(option))
    given = text.partition("=")[0]
    if option.startswith("--"):
        return text.startswith(option) or (len(given) > 2 and given.startswith("--") and option.startswith(given))
    if len(option) > 2:
        return text.startswith(option)
    # Short options are written together: `perl -ne`.
    return text.startswith("-") and not text.startswith("--") and option[1] in text[1:]


def _in_code(base: str, args: Sequence[str]) -> Iterator[str]:
    if base in ("awk", "gawk", "mawk", "nawk"):
        yield from (text for text in args if _AWK.search(text))
    elif base.endswith("sed"):
        yield from (text for text in _sed_scripts(args) if not is_harmless_sed(text))


def _sed_scripts(args: Sequence[str]) -> Iterator[str]:
    """Return the scripts of a sed command: the values of `-e`, or else the first operand."""
    first = True
    takes = False
    for text in args:
        if takes:
            takes, first = False, False
            yield text
        elif text.startswith("--expr"):
            first = False
            takes = "=" not in text
            if not takes:
                yield text.partition("=")[2]
        elif text.startswith("-") and not text.startswith("--") and "e" in text.partition("i")[0]:
            value = text.partition("e")[2]
            first, takes = False, not value
            if value:
                yield value
        elif not text.startswith("-") and first:
            first = False
            yield text
