"""Programs that run other programs, as data. Pure, no I/O."""

from __future__ import annotations

from typing import Final

SHELLS: Final = frozenset(
    {
        "sh",
        "bash",
        "zsh",
        "dash",
        "ksh",
        "ksh93",
        "mksh",
        "ash",
        "rbash",
        "fish",
        "csh",
        "tcsh",
        "hush",
        "osh",
    }
)
SHELL_VALUE_OPTIONS: Final = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
WINDOWS_SHELLS: Final = frozenset({"cmd", "powershell", "pwsh"})
INTERPRETERS: Final = frozenset(
    {
        "python",
        "pypy",
        "perl",
        "ruby",
        "node",
        "nodejs",
        "php",
        "lua",
        "awk",
        "gawk",
        "mawk",
        "nawk",
        "deno",
        "bun",
        "osascript",
        "tclsh",
        "expect",
        "vim",
        "vi",
        "ex",
        "emacs",
        "gdb",
        "ed",
        "sed",
        "make",
        "irb",
        "jshell",
        "groovy",
    }
)
SUFFIXES: Final = (".exe", ".cmd", ".bat", ".com", ".ps1")

# Each wrapper: the options that take a value, and how many operands stand
# before the program it runs.
WRAPPERS: Final[dict[str, tuple[str, int]]] = {
    "sudo": ("ugpCrtTUDRh", 0),
    "doas": ("uC", 0),
    "pkexec": ("", 0),
    "env": ("uC", 0),
    "nice": ("n", 0),
    "ionice": ("cnpPu", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "stdbuf": ("ioe", 0),
    "timeout": ("ks", 1),
    "gtimeout": ("ks", 1),
    "time": ("of", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("a", 0),
    "xargs": ("InPLdEsa", 0),
    "parallel": ("jNa", 0),
    "watch": ("n", 0),
    "ssh": ("bcDEeFIiJLlmOopQRSWwB", 1),
    "start": ("", 0),
    "call": ("", 0),
    "start-process": ("", 0),
    "chroot": ("", 1),
    "strace": ("eopsEuaIOSX", 0),
    "ltrace": ("eopsuanx", 0),
    "unshare": ("", 0),
    "nsenter": ("tSG", 0),
    "flock": ("wE", 1),
    "taskset": ("", 1),
    "chrt": ("TPD", 1),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "runuser": ("ugG", 0),
    "setpriv": ("", 0),
    "firejail": ("", 0),
    "bwrap": ("", 0),
    "proxychains": ("f", 0),
    "proxychains4": ("f", 0),
    "torsocks": ("", 0),
    "torify": ("", 0),
    "eatmydata": ("", 0),
    "caffeinate": ("tw", 0),
    "systemd-run": ("pu", 0),
    "dbus-run-session": ("", 0),
    "numactl": ("", 0),
    "entr": ("", 0),
    "unbuffer": ("", 0),
    "fakeroot": ("", 0),
    "daemonize": ("", 0),
    "ld.so": ("", 0),
    "ld-linux-x86-64.so.2": ("", 0),
    "ld-linux.so.2": ("", 0),
    "ld-linux-aarch64.so.1": ("", 0),
    "ld-musl-x86_64.so.1": ("", 0),
}
EXECUTING: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
# Every argument of these may name a program to run.
RUNNERS: Final = frozenset(
    {
        "bind",
        "bunx",
        "complete",
        "docker",
        "enable",
        "hash",
        "kubectl",
        "man",
        "mapfile",
        "nerdctl",
        "npx",
        "podman",
        "readarray",
        "screen",
        "tcpdump",
        "tmux",
        "xterm",
    }
)
# What follows one of these options or words may name a program to run.
RUNNING_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "git": ("-x", "--exec", "run", "foreach", "-O", "--open-files-in-pager"),
    "less": ("+", "-+"),
    "npm": ("exec", "x"),
    "rsync": ("-e", "--rsh"),
    "scp": ("-S",),
    "sftp": ("-S",),
    "tar": ("-I", "-F", "--new-volume-script"),
    "zip": ("-TT", "--unzip-command"),
}
# These run their operands as a command line rather than as an argv.
THROUGH_SHELL: Final = frozenset({"watch", "parallel", "ssh", "entr"})
# These take commands from what is fed to them.
FED: Final = frozenset({"ssh", "su", "at", "batch", "crontab", "runuser"})
SCRIPT_OPTIONS: Final = {"su": "c", "script": "c", "flock": "c", "runuser": "c", "env": "S"}
LOADING: Final = ("PATH", "LD_", "DYLD_", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "PROMPT_COMMAND", "PS4")
LONG: Final = {
    "r": "--recursive",
    "f": "--force",
    "R": "--recursive",
    "i": "--in-place",
    "n": "--no-clobber",
}
LONG_WITH_VALUE: Final = frozenset(
    {
        "--user",
        "--group",
        "--prompt",
        "--chdir",
        "--unset",
        "--signal",
        "--kill-after",
        "--adjustment",
        "--interval",
        "--max-args",
        "--max-procs",
        "--max-lines",
        "--replace",
        "--delimiter",
        "--arg-file",
        "--class",
        "--classdata",
        "--wait",
        "--timeout",
        "--property",
        "--unit",
        "--output",
        "--format",
        "--input",
        "--error",
        "--target",
        "--library-path",
        "--preload",
        "--argv0",
        "--host",
        "--role",
        "--type",
        "--other-user",
        "--close-from",
    }
)
