"""Tables of programs that run other programs. Pure, no I/O.

A rule that denies curl must also deny `sudo curl`, `xargs curl` and `sh -c curl`. A wrapper
that is missing here hides the program behind it, so add one with a case in tests/cases/commands.yaml.
"""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS: Final = _names("sh bash zsh dash ksh ksh93 mksh ash rbash fish csh tcsh hush osh")
# Without these, `bash -o pipefail -c "curl x"` would take "pipefail" for a script file.
SHELL_VALUE_OPTIONS: Final = _names("-o +o -O +O --rcfile --init-file")
WINDOWS_SHELLS: Final = _names("cmd powershell pwsh")
# Their code is not parsed; a program that is named anywhere in it counts as one that may run.
INTERPRETERS: Final = _names(
    "python pypy perl ruby node nodejs php lua awk gawk mawk nawk deno bun osascript tclsh expect vim vi "
    "ex emacs gdb ed sed make irb jshell groovy"
)
SUFFIXES: Final = (".exe", ".cmd", ".bat", ".com", ".ps1")

# Each wrapper: the letters of its options that take a value, and how many operands
# precede the program it runs (`timeout 5 curl`: one).
WRAPPERS: Final[dict[str, tuple[str, int]]] = {
    **dict.fromkeys(
        _names(
            "pkexec nohup setsid command builtin start call start-process unshare busybox toybox setpriv firejail "
            "bwrap torsocks torify eatmydata dbus-run-session numactl entr unbuffer fakeroot daemonize ld.so "
            "ld-linux-x86-64.so.2 ld-linux.so.2 ld-linux-aarch64.so.1 ld-musl-x86_64.so.1"
        ),
        ("", 0),
    ),
    "sudo": ("ugpCrtTUDRh", 0),
    **dict.fromkeys(("doas", "env"), ("uC", 0)),
    **dict.fromkeys(("nice", "watch"), ("n", 0)),
    "ionice": ("cnpPu", 0),
    "stdbuf": ("ioe", 0),
    **dict.fromkeys(("timeout", "gtimeout"), ("ks", 1)),
    "time": ("of", 0),
    "exec": ("a", 0),
    "xargs": ("InPLdEsa", 0),
    "parallel": ("jNa", 0),
    "ssh": ("bcDEeFIiJLlmOopQRSWwB", 1),
    **dict.fromkeys(("chroot", "taskset"), ("", 1)),
    "strace": ("eopsEuaIOSX", 0),
    "ltrace": ("eopsuanx", 0),
    "nsenter": ("tSG", 0),
    "flock": ("wE", 1),
    "chrt": ("TPD", 1),
    "runuser": ("ugG", 0),
    **dict.fromkeys(("proxychains", "proxychains4"), ("f", 0)),
    "caffeinate": ("tw", 0),
    "systemd-run": ("pu", 0),
}
EXECUTING: Final = _names("-exec -execdir -ok -okdir -x -X --exec --exec-batch")
# Every argument of these may name a program to run.
RUNNERS: Final = _names(
    "bind bunx complete docker enable hash kubectl man mapfile nerdctl npx podman readarray screen tcpdump tmux xterm"
)
# What follows one of these options or words may name a program to run.
RUNNING_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "git": ("-x", "--exec", "run", "foreach", "-O", "--open-files-in-pager"),
    "less": ("+", "-+"),
    "npm": ("exec", "x"),
    "rsync": ("-e", "--rsh"),
    **dict.fromkeys(("scp", "sftp"), ("-S",)),
    "tar": ("-I", "-F", "--new-volume-script"),
    "zip": ("-TT", "--unzip-command"),
}
# These run their operands as a command line rather than as an argv: `ssh host 'ls; curl x'`.
THROUGH_SHELL: Final = _names("watch parallel ssh entr")
# These take commands from standard input: `echo 'curl x' | at now`.
FED: Final = _names("ssh su at batch crontab runuser")
SCRIPT_OPTIONS: Final = {"su": "c", "script": "c", "flock": "c", "runuser": "c", "env": "S"}
# A variable that starts so decides which code runs behind an innocent program name.
LOADING: Final = ("PATH", "LD_", "DYLD_", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "PROMPT_COMMAND", "PS4")
LONG: Final = {"r": "--recursive", "f": "--force", "R": "--recursive", "i": "--in-place", "n": "--no-clobber"}
LONG_WITH_VALUE: Final = _names(
    "--user --group --prompt --chdir --unset --signal --kill-after --adjustment --interval --max-args "
    "--max-procs --max-lines --replace --delimiter --arg-file --class --classdata --wait --timeout "
    "--property --unit --output --format --input --error --target --library-path --preload --argv0 --host "
    "--role --type --other-user --close-from"
)
