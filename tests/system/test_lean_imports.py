"""Only what is used of mitmproxy and others is imported, and what is used is the real thing."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.harness import REPOSITORY

UNUSED = (
    "aioquic",
    "attr",
    "flask",
    "httpx2",
    "ldap3",
    "mitmproxy_rs",
    "pyparsing",
    "rich",
    "ruamel",
    "starlette",
    "uvicorn",
    "werkzeug",
)
SCRIPT = f"""
import json, socket, sys, types
finders = list(sys.meta_path)
import proxy.cli, proxy.commands.up
from proxy.system import lean_imports
lean_imports.import_only_what_is_used()
import proxy.runtime.supervisor
loaded = sorted({{name.partition(".")[0] for name in sys.modules}} & set({UNUSED!r}))

from mitmproxy.addons import tlsconfig
from mitmproxy.proxy import mode_servers
server = mode_servers.ServerInstance.make("regular", None)
with socket.create_server(("127.0.0.1", 0)) as listener:
    server._servers = [types.SimpleNamespace(sockets=[listener])]
    hosts = [host for host, _ in server.listen_addrs]
from mitmproxy.proxy.layers import quic
assert tlsconfig.TlsConfig.tls_start_client
try:
    quic._stream_layers.QuicErrorCode.NO_ERROR
except AttributeError as error:
    said = str(error)
from aioquic.tls import CipherSuite
from pyparsing import Word
from rich.text import Text
from ruamel.yaml import YAML
print(json.dumps({{
    "loaded": loaded,
    "of a stand-in": said,
    "finders": sys.meta_path == finders,
    "hosts": hosts,
    "later": [Word("a").parse_string("aa")[0], int(CipherSuite.AES_128_GCM_SHA256), Text("x").plain, YAML().load("a")],
}}))
"""


def test_the_daemon_starts_without_what_it_never_uses_and_others_may_import_that_later():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "loaded": [],
        "of a stand-in": "NO_ERROR: this library was replaced by a stand-in (proxy.system.lean_imports)",
        "finders": True,
        "hosts": ["127.0.0.1"],
        "later": ["aa", 0x1301, "x", "a"],
    }
