"""Programs that make one HTTPS request the way each runtime's own library does it by default. Pure.

Each gets a URL as its last argument, prints `answered` and the status where it got an HTTP answer of whatever kind, and
ends with NOT_HERE where its library is not installed.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOT_HERE: Final = 3
LOOPBACK: Final = "127.0.0.1"
# Go and Ruby use no proxy for 127.0.0.1, whatever their environment says. This is the same machine by another name.
SAME_MACHINE: Final = "0.0.0.0"  # noqa: S104  nothing listens here


@dataclass(frozen=True, slots=True)
class RuntimeProgram:
    """One way to make a request: `words` start it, `files` are to be in its working directory."""

    name: str
    words: tuple[str, ...]
    host: str = LOOPBACK
    answered: re.Pattern[str] = re.compile(r"^answered [1-9]", re.MULTILINE)
    files: tuple[tuple[str, str], ...] = ()


def _python(library: str, request: str) -> RuntimeProgram:
    script = (
        f"import sys\ntry: import {library}\nexcept ImportError: sys.exit({NOT_HERE})\n"
        f"url = sys.argv[1]\n{request}\nprint('answered', status)\n"
    )
    return RuntimeProgram(f"python {library.partition('.')[0]}", ("python3", "-c", script))


def _node(name: str, script: str) -> RuntimeProgram:
    return RuntimeProgram(f"node {name}", ("node", "-e", f"const url = process.argv[1];\n{script}"))


_URLLIB = """\
import urllib.error
try: status = urllib.request.urlopen(url).status
except urllib.error.HTTPError as error: status = error.code"""
_AIOHTTP = """\
import asyncio
async def get():
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status
status = asyncio.run(get())"""
_GO = """\
package main
import ("fmt"; "net/http"; "os")
func main() {
    response, err := http.Get(os.Args[1])
    if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
    fmt.Println("answered", response.StatusCode)
}
"""
_JAVA = """\
public class Doctor {
    public static void main(String[] words) throws Exception {
        var connection = (java.net.HttpURLConnection) new java.net.URL(words[0]).openConnection();
        System.out.println("answered " + connection.getResponseCode());
    }
}
"""
_RUBY = 'require "net/http"; puts "answered #{Net::HTTP.get_response(URI(ARGV[0])).code}"'
_PHP = """\
$context = stream_context_create(["http" => ["ignore_errors" => true]]);
file_get_contents($argv[1], false, $context);
if (isset($http_response_header)) echo "answered ", explode(" ", $http_response_header[0])[1];"""
_PHP_CURL = f"""\
if (!extension_loaded("curl")) exit({NOT_HERE});
$handle = curl_init($argv[1]);
curl_setopt($handle, CURLOPT_RETURNTRANSFER, true);
if (curl_exec($handle) === false) {{ fwrite(STDERR, curl_error($handle)); exit(1); }}
echo "answered ", curl_getinfo($handle, CURLINFO_RESPONSE_CODE);"""

PROGRAMS: Final = (
    RuntimeProgram("curl", ("curl", "-sS", "-o", "/dev/null", "-w", "answered %{http_code}")),
    RuntimeProgram("git", ("git", "-c", "credential.helper=", "ls-remote"), answered=re.compile(r"returned error: \d")),
    # Behind a proxy, npm compares the certificate of an address with the name `localhost`.
    RuntimeProgram(
        "npm", ("npm", "ping", "--fetch-retries=0", "--registry"), "localhost", re.compile(r"\bE[45]\d\d\b")
    ),
    _python("urllib.request", _URLLIB),
    _python("requests", "status = requests.get(url).status_code"),
    _python("httpx", "status = httpx.get(url).status_code"),
    _python("aiohttp", _AIOHTTP),
    _node("fetch", "fetch(url).then((response) => console.log('answered', response.status));"),
    _node("https", "require('https').get(url, (got) => { console.log('answered', got.statusCode); got.destroy(); });"),
    _node(
        "undici",
        f"let undici; try {{ undici = require('undici'); }} catch {{ process.exit({NOT_HERE}); }}\n"
        "undici.request(url).then((response) => console.log('answered', response.statusCode));",
    ),
    RuntimeProgram("go", ("go", "run", "main.go"), SAME_MACHINE, files=(("main.go", _GO),)),
    RuntimeProgram("java", ("java", "-XX:TieredStopAtLevel=1", "Doctor.java"), files=(("Doctor.java", _JAVA),)),
    RuntimeProgram("ruby", ("ruby", "-e", _RUBY), SAME_MACHINE),
    RuntimeProgram("php streams", ("php", "-r", _PHP)),
    RuntimeProgram("php curl", ("php", "-r", _PHP_CURL)),
)


def found(environ: Mapping[str, str]) -> Iterator[RuntimeProgram]:
    """Yield the programs whose runtime is on the path."""
    for program in PROGRAMS:
        if shutil.which(program.words[0], path=environ.get("PATH", "")):
            yield program
