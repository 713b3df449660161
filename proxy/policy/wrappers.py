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
            "ld-linux-x86-64.so.2 ld-linux.so.2 ld-linux-aarch64.so.1 ld-musl-x86_64.so.1 linux32 linux64 i386 x86_64 "
            "uname26 valgrind catchsegv aoss multitime rlwrap grc xvfb-run dbus-launch gamemoderun mangohud optirun "
            "primusrun fakechroot systemd-inhibit systemd-cat tsocks nocache ccache distcc pexec uvx sem ts .shell "
            ".system shell spawn execute ssh-agent softlimit chpst bunx aa-exec openvt heaptrack rr ktrace "
            "truss dtruss memusage"
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
    "setarch": ("", 0),
    "sshpass": ("pfdP", 0),
    **dict.fromkeys(("choom", "ioprio"), ("np", 0)),
    "prlimit": ("p", 0),
    "hyperfine": ("wmMrpcnsLPDSNiu", 0),
    "cpulimit": ("lepP", 0),
    **dict.fromkeys(("envdir", "setuidgid", "logsave", "faketime", "runcon", "cgexec", "trickle"), ("g", 1)),
    "flock": ("wE", 1),
    "chrt": ("TPD", 1),
    "runuser": ("ugG", 0),
    **dict.fromkeys(("proxychains", "proxychains4"), ("f", 0)),
    "caffeinate": ("tw", 0),
    "systemd-run": ("pu", 0),
}
EXECUTING: Final = _names("-exec -execdir -ok -okdir -x -X --exec --exec-batch")
# Every argument of these may name a program to run.
RUNNERS: Final = _names("bind complete enable hash mapfile readarray screen tcpdump tmux xterm")
# What follows one of these options or words may name a program to run.
RUNNING_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "git": (
        *(
            "-x",
            "--exec",
            "run",
            "foreach",
            "-O",
            "--open-files-in-pager",
            "--extcmd",
            "--upload-pack",
            "--receive-pack",
        ),
        *("--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--commit-filter", "--parent-filter"),
        *("--tag-name-filter", "--sendmail-cmd", "--to-cmd", "--cc-cmd", "-u"),
    ),
    "less": ("+", "-+"),
    "man": ("-P", "-H", "--pager", "--html"),
    "rsync": ("-e", "--rsh"),
    **dict.fromkeys(("scp", "sftp"), ("-S",)),
    **dict.fromkeys(
        ("tar", "bsdtar"),
        ("-I", "-F", "--new-volume-script", "--info-script", "--use-compress-program", "--to-command", "--rsh-command"),
    ),
    "cpio": ("--rsh-command",),
    **dict.fromkeys(("sort", "gsort"), ("--compress-program",)),
    "split": ("--filter",),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), ("-o", "--option")),
    "pip": ("--editor",),
    "gem": ("-e", "--editor"),
    "wget": ("--use-askpass",),
    **dict.fromkeys(("gcc", "g++", "cc", "clang"), ("-wrapper",)),
    "yt-dlp": ("--exec",),
    "systemctl": ("-H", "--host"),
    "zip": ("-TT", "--unzip-command"),
}
# These run their operands as a command line rather than as an argv: `ssh host 'ls; curl x'`.
THROUGH_SHELL: Final = _names("watch parallel ssh entr hyperfine")
# These take commands from standard input: `echo 'curl x' | at now`.
FED: Final = _names("ssh su at batch crontab runuser")
# Long options whose value is a command line.
LONG_SCRIPT_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "split": ("--filter",),
    "nix-shell": ("--run", "--command"),
    **dict.fromkeys(("npm", "npx"), ("--call",)),
    **dict.fromkeys(("tar", "bsdtar"), ("--to-command", "--use-compress-program", "--info-script")),
    "hyperfine": ("--prepare", "--setup", "--cleanup", "--conclude"),
    "sort": ("--compress-program",),
}
# Programs that run a program behind one of these words: the words, and how many operands come between.
SUBCOMMANDS: Final[dict[str, tuple[frozenset[str], int]]] = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), (_names("exec x dlx"), 0)),
    **dict.fromkeys(("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "pixi", "pipx", "heroku"), (_names("run"), 0)),
    **dict.fromkeys(("op", "doppler", "infisical", "dotenv", "dotenvx"), (_names("run"), 0)),
    **dict.fromkeys(
        ("bundle", "cabal", "stack", "opam", "xdotool", "mise", "rtx", "asdf", "rbenv", "pyenv"), (_names("exec"), 0)
    ),
    **dict.fromkeys(("conda", "mamba", "micromamba"), (_names("run"), 0)),
    **dict.fromkeys(("nodenv", "goenv", "jenv", "nodebrew", "volta", "fnm"), (_names("exec run"), 0)),
    **dict.fromkeys(("direnv", "aws-vault", "chamber", "lxc", "incus"), (_names("exec"), 1)),
    "ip": (_names("exec"), 1),
    "rustup": (_names("run"), 1),
    "nix": (_names("-c --command"), 0),
    "perf": (_names("stat record trace bench ftrace kvm lock mem sched timechart"), 0),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "oc"), (_names("run exec"), 1)),
}
# Words of these that are names of programs elsewhere: `vagrant halt`, `adb reboot`.
OWN_WORDS: Final = _names("halt shutdown reboot poweroff format")
HAVE_OWN_WORDS: Final = _names(
    "vagrant bazel adb fastboot qm pct vboxmanage virsh mysqladmin redis-cli limactl multipass colima picotool aws "
    "make npm cargo dotnet terraform dart go rustup"
)
# Their words are data: names of files, packages, patterns, text. Every other program may run what its words name.
INERT: Final = _names(
    "[ [[ test : true false echo printf print say cat tac ls dir vdir ll la cp mv rm rmdir mkdir ln touch stat file "
    "du df head tail wc sort gsort uniq cut paste join comm tr rev nl fold fmt pr expand unexpand column tee od xxd "
    "hexdump strings cmp diff diff3 sdiff colordiff patch grep egrep fgrep zgrep rg ag ack find fd fdfind locate "
    "plocate updatedb which whereis type whatis apropos man info tldr help command cd pushd popd pwd basename dirname "
    "realpath readlink chmod chown chgrp chattr lsattr install mktemp mkfifo mknod truncate shred split csplit tar "
    "bsdtar zip unzip gzip gunzip zcat bzip2 bunzip2 xz unxz zstd 7z 7za 7zr unrar cpio base64 base32 md5sum sha1sum "
    "sha256sum sha512sum shasum cksum b2sum date cal sleep seq expr bc factor yes id whoami groups users who w uptime "
    "uname hostname arch ps pgrep pidof top htop kill pkill killall jobs fg bg wait disown lsof free vmstat iostat "
    "dmesg history clear reset tput stty tty export declare typeset local readonly unset set shift return exit break "
    "continue let read alias unalias umask ulimit getopts shopt apt apt-get apt-cache aptitude dpkg yum dnf zypper "
    "pacman yay apk brew port snap flatpak pip pip3 pipx gem npm pnpm yarn bun cargo go conda mamba micromamba choco "
    "winget scoop emerge nix-env pkg pkgin opkg xbps-install eopkg guix helm systemctl service rc-service launchctl "
    "journalctl git gh glab hg svn jj curl wget scp sftp rsync jq yq less more most bat view code subl gedit nano "
    "pico gcc g++ cc clang ld ar nm objdump pytest mypy ruff black eslint prettier tsc terraform vault aws gcloud az "
    "dig nslookup host ping traceroute whois nmap ip ifconfig ss netstat route iptables useradd usermod userdel "
    "groupadd passwd chsh adduser deluser mount umount lsblk blkid fdisk yt-dlp ffmpeg convert magick identify tree "
    "exa eza lsd cheat open xdg-open uv poetry pipenv pdm rye hatch asdf mise rbenv pyenv rustup volta nvm fnm"
)
# What may name a program wherever it stands.
RUNNING_MARKS: Final = tuple(
    _names(
        "exec= command= program= pager= editor= system( invoke:: invoke- cmd= hook= exec: proxycommand localcommand "
        "knownhostscommand write18 upload-pack= receive-pack= askpass= shell= ext:: filter= script= helper="
    )
)
# They write code for the shell that calls them: `eval "$(direnv hook bash)"`.
EMITTERS: Final = _names(
    "direnv ssh-agent gpg-agent keychain brew starship zoxide pyenv rbenv nodenv goenv jenv plenv phpenv nvm fnm "
    "volta mise rtx asdf conda mamba micromamba dircolors gdircolors lesspipe lesspipe.sh opam luarocks kubectl helm "
    "oc minikube docker-machine docker gh glab hub npm pip pip3 pipx poetry pdm uv rustup atuin mcfly fzf navi "
    "carapace thefuck gcloud az flux argocd kind k3d eksctl istioctl skaffold tilt stern velero doctl hcloud flyctl "
    "op bw chezmoi just task hugo deno ruff hatch rye pixi vault terraform tofu nomad consul packer resize tset "
    "getopt tmuxifier broot sheldon antidote oh-my-posh batpipe golangci-lint k0s k3s talosctl "
    "register-python-argcomplete"
)
# The first word of such a call; those in the second table need none.
EMITTING_WORDS: Final = _names(
    "hook init env activate shellenv completion completions docker-env oidc-env podman-env export shell.bash "
    "shell.zsh shell.posix --alias --completions --bash --zsh widget path venv generate-shell-completion shell-init "
    "signin"
)
ALWAYS_EMITTING: Final = _names(
    "ssh-agent gpg-agent keychain dircolors gdircolors lesspipe lesspipe.sh resize tset getopt "
    "register-python-argcomplete"
)
# They put text into files and pipes: `echo 'curl x' > a; sh a`.
WRITES_TEXT: Final = _names("echo printf print cat tee")
# A copy of a program or a link to it runs under another name.
COPIES: Final = _names("cp mv ln install rsync")
# They say where a program is: `cp $(which curl) x`.
FINDS: Final = _names("which whereis type command where")
# `export X=…` and its like set a variable for every program that follows.
SETS_VARIABLES: Final = _names("export declare typeset local readonly setenv")
SCRIPT_OPTIONS: Final = {
    **dict.fromkeys(("su", "script", "flock", "runuser", "npx", "npm", "genie", "tmate", "unshare"), "c"),
    "env": "S",
}
# A variable that starts so decides which code runs behind an innocent program name.
LOADING: Final = ("PATH", "LD_", "DYLD_", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "PROMPT_COMMAND", "PS4")
LONG: Final = {"r": "--recursive", "f": "--force", "R": "--recursive", "i": "--in-place", "n": "--no-clobber"}
LONG_WITH_VALUE: Final = _names(
    "--user --group --prompt --chdir --unset --signal --kill-after --adjustment --interval --max-args "
    "--max-procs --max-lines --replace --delimiter --arg-file --class --classdata --wait --timeout "
    "--property --unit --output --format --input --error --target --library-path --preload --argv0 --host "
    "--role --type --other-user --close-from"
)
