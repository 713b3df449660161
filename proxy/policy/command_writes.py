"""Which words of a program name files that it may change. Pure, no I/O.

Only programs that are known to read are taken to read. Every other one may write what its words name.
"""

from __future__ import annotations

from itertools import pairwise
from posixpath import basename, join
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.policy.wrappers import SHELLS, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


READERS: Final = _names(
    "cat tac less more most bat batcat head tail wc grep egrep fgrep zgrep rg ag ack ls dir vdir ll la exa eza lsd "
    "tree stat file du df diff cmp comm diff3 sdiff delta od hexdump strings md5sum sha1sum sha256sum sha512sum "
    "shasum cksum b2sum cut paste join nl fold fmt pr tr rev column test [ [[ source . cd pushd popd find fd fdfind "
    "realpath readlink basename dirname which whereis type man tldr sort base64 base32 jq shellcheck lsattr getfacl "
    "export declare typeset local readonly unset set alias read mapfile readarray let return exit sed gsed awk gawk "
    "mawk nawk echo printf print : true false lsof fuser ps pgrep pwd "
    "zcat bzcat xzcat gunzip view glow mdcat pygmentize highlight wl-copy pbcopy xclip open xdg-open"
)
# Their last operand, or the folder that an option names, is written; the others are read.
COPIERS: Final = _names("cp gcp scp rsync install ginstall ditto")
# Both ends change: a link makes what it leads to writable under another name.
MOVERS: Final = _names("mv gmv ln gln link")
# git's words that change no file which is named behind them.
GIT_READS: Final = _names(
    "status log diff show add blame ls-files grep commit rev-parse cat-file check-ignore stage ls-tree shortlog"
)
# A value behind one of these is where a reading program writes: `sort -o x`, `find -fprint x`.
_OUTPUTS: Final = ("-o", "-O", "--output", "-fprint", "-fprint0", "-fprintf", "-fls", "--in-place", "-i", "--outfile")
# A reading program that edits its files in place: `sed -i`, `gawk -i inplace`, `find -delete`.
_IN_PLACE: Final = ("-i", "--in-place", "-delete", "--inplace")


class Written(NamedTuple):
    """The words that are written, and the paths that arise in a folder: `cp .bashrc ~` writes `~/.bashrc`."""

    words: frozenset[str]
    made: tuple[str, ...] = ()


NOTHING_WRITTEN: Final = Written(frozenset())


def written_words(name: str, args: Sequence[str]) -> Written:
    """Return which of a program's words it may write to."""
    if name in COPIERS or name in MOVERS:
        return _copied(name, args)
    if name in WRAPPERS:
        # The program behind it is judged by itself.
        return NOTHING_WRITTEN
    if name in READERS:
        return _written_by_reader(name, args)
    if name in SHELLS:
        # The script is read; whatever follows is for it.
        operands = [arg for arg in args if not arg.startswith("-")]
        return Written(frozenset(operands[1:]))
    if name == "git":
        subcommand = next((arg for arg in args if arg in GIT_READS), None)
        return NOTHING_WRITTEN if subcommand else Written(frozenset(args))
    if name in ("tar", "bsdtar") and not _extracts(args):
        return Written(frozenset(archive for option, archive in pairwise(args) if option.lstrip("-").endswith("f")))
    return Written(frozenset(args))


def _written_by_reader(name: str, args: Sequence[str]) -> Written:
    edits = name not in ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ls", "diff", "sort", "tree", "cat")
    if edits and any(_edits_in_place(name, arg) for arg in args):
        return Written(frozenset(args))
    return Written(frozenset(_outputs(args)))


def _edits_in_place(name: str, arg: str) -> bool:
    if arg.startswith("--in-pl") or arg in _IN_PLACE:
        return True
    # Letters of `sed` in one word: `-ni`, `-Ei.bak`.
    return name.endswith("sed") and arg.startswith("-") and not arg.startswith("--") and "i" in arg


def _outputs(args: Sequence[str]) -> Iterator[str]:
    for option, value in pairwise(args):
        if option in _OUTPUTS:
            yield value
    for arg in args:
        if arg.startswith(("-o", "--output=", "--outfile=")):
            yield arg


def _copied(name: str, args: Sequence[str]) -> Written:
    target = _target_folder(args) if name not in ("rsync", "scp", "ditto") else None
    operands = [arg for arg in args if not arg.startswith("-")]
    sources = operands if target is not None else operands[:-1]
    targets = [target] if target is not None else operands[-1:]
    made = tuple(join(folder, basename(source.rstrip("/"))) for folder in targets for source in sources)
    changed = operands if name in MOVERS else targets
    # `ln x` alone links into the folder it runs in.
    return Written(frozenset((*changed, *(arg for arg in args if arg.startswith("-t")))), made[:100])


def _target_folder(args: Sequence[str]) -> str | None:
    """Return the folder of `-t DIR`, `-vtDIR` or `--target-directory=DIR`."""
    for i, arg in enumerate(args):
        following = args[i + 1] if i + 1 < len(args) else None
        if arg.startswith("--t"):
            _, equals, value = arg.partition("=")
            return value if equals else following
        if arg.startswith("-") and not arg.startswith("--") and "t" in arg:
            return arg.partition("t")[2] or following
    return None


def _extracts(args: Sequence[str]) -> bool:
    mode = args[0].lstrip("-") if args and not args[0].startswith("--") else ""
    return "x" in mode or any(arg.startswith(("--ex", "--get", "-x")) for arg in args)
