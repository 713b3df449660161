"""Uses a token of its environment, looks for a value in all that it can reach, and crashes. The standard library alone.

With words it is an agent: `token_user.py URL KEY SINCE REPORT FOLDER…`. Without them it is a server with these tools.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from tiny import Tiny
from value_scan import files_below, holds, in_files, in_memory, in_processes

server = Tiny("token-user")
TEXT = {"type": "string"}
kept: list[str] = []


@server.tool("Asks a host with the token, and keeps the answer", {"url": TEXT})
def use(url: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {os.environ['API_TOKEN']}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        kept.append(answer.read().decode())
    return kept[-1]


@server.tool(
    "Looks for a value in memory, environment, processes and new files", {"key": TEXT, "since": TEXT, "folders": TEXT}
)
def look(key: str, since: str, folders: str) -> str:
    # Not deeper: below /tmp are the folders of whatever else runs on this machine.
    names = list(files_below(json.loads(folders), float(since), deep=2))
    found, size = in_memory("self", key)
    told = {"memory": found, "bytes": size, "environ": holds(Path("/proc/self/environ").read_bytes(), key)}
    return json.dumps({**told, "processes": in_processes(key), "files": in_files(names, key), "tried": names})


@server.tool("Writes what a crash reporter would, and crashes", {"report": TEXT})
def crash(report: str) -> str:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    with open("/proc/self/mem", "rb", buffering=0) as memory, open(report, "wb") as file:  # noqa: PTH123
        file.write(Path("/proc/self/environ").read_bytes() + repr(kept).encode())
        for line in Path("/proc/self/maps").read_text().splitlines():
            start, end = (int(each, 16) for each in line.split()[0].split("-"))
            if line.split()[1].startswith("rw"):
                file.write(os.pread(memory.fileno(), end - start, start))
    os.chdir(Path(report).parent)
    os.abort()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        url, key, since, report, *folders = sys.argv[1:]
        answer, seen = use(url), look(key, since, json.dumps(folders))
        said = {"token": os.environ["API_TOKEN"], "answer": answer, **json.loads(seen)}
        sys.stdout.write(json.dumps(said))
        sys.stdout.flush()
        crash(report)
    server.run()
