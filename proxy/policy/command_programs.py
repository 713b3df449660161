"""Tables of what programs do with files, hosts and text, for the paths and hosts of a command line. Pure, no I/O."""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CHANGES_FOLDER: Final = _names("cd pushd chdir set-location")
# These only say their words, unless something reads what they say: `cat $(echo /etc/shadow)`.
SPEAKERS: Final = _names("echo printf : true false print say logger notify-send write-host")
# Options whose value is prose.
PROSE: Final = _names("-m --message --title --body --subject --description --notes --annotation -F=")
# Their first operand is a pattern or code and no path: `grep /etc/hosts notes.txt`, `sed /etc/d x`.
PATTERN_FIRST: Final = _names("grep egrep fgrep zgrep rg ag ack sed gsed awk gawk mawk nawk jq yq tr expr")
# Options that give these the pattern, so that every operand is a path.
PATTERN_OPTIONS: Final = ("-e", "-f", "--regexp", "--file", "--expression", "--from-file")
# They take a folder with everything in it: `cp -r ~ /tmp/x` copies ~/.ssh.
TAKES_ALL: Final = _names(
    "tar bsdtar zip 7z 7za rsync mv ln rg ag ack cpio pax mount docker podman nerdctl bwrap systemd-nspawn rclone "
    "restic borg srm ditto"
)
TAKES_ALL_WITH: Final[dict[str, str]] = {
    "cp": "rRa",
    "scp": "r",
    "rm": "rR",
    "chmod": "R",
    "chown": "R",
    "chgrp": "R",
    "grep": "rR",
    "egrep": "rR",
    "fgrep": "rR",
    "wget": "",
}
# Options that name the folder in which the program works: `git -C /etc show`, `tar -C /etc -c .`.
FOLDER_OPTIONS: Final = _names(
    "-C --directory --chdir --cwd --prefix --work-tree --git-dir -w --workdir --working-directory"
)
# Text that one of these makes out of text in the line cannot be known: `cat $(echo L2V0Yw== | base64 -d)`.
TRANSFORMERS: Final = _names(
    "base64 base32 basenc xxd od hexdump rev tr sed awk gawk mawk cut tac openssl iconv gzip gunzip zcat bzip2 xz "
    "zstd gpg uudecode jq python perl ruby node php lua bc dc m4 cpp fold paste column expand numfmt printf echo head "
    "tail dd rot13 figlet envsubst sort uniq join factor crypt"
)
# These of them only write codes, unless they are told to decode.
ENCODERS: Final = _names("base64 base32 basenc")
CONSUMERS: Final = _names(
    "xargs parallel read mapfile readarray eval source . tee sqlite3 psql mysql mariadb duckdb ftp sftp lftp smbclient"
)
# Every operand may be a host. `git`, `docker` and package managers name theirs by URLs alone.
NETWORK: Final = _names(
    "curl wget nc ncat netcat socat telnet ftp tftp lftp ssh scp sftp rsync mosh autossh ping ping6 fping traceroute "
    "mtr dig nslookup host whois drill kdig nmap masscan zmap httpie http https xh aria2c axel lynx links w3m elinks "
    "curlie grpcurl websocat wscat openssl redis-cli psql mysql mysqldump mongosh mongo iwr irm invoke-webrequest "
    "invoke-restmethod swaks sendmail smbclient rpcclient snmpwalk ldapsearch kinit iperf iperf3 hping3 tcpping nping "
    "git svn hg fetch"
)
