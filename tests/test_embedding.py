"""Only what is used of mitmproxy is imported, and what is used is the real thing."""

from __future__ import annotations

import subprocess
import sys

from tests.harness import REPOSITORY

SCRIPT = """
import sys
from proxy import embedding
embedding.import_only_what_is_used()
import proxy.daemon
from mitmproxy.addons import tlsconfig
assert tlsconfig.TlsConfig.tls_start_client
print(sorted(name for name in sys.modules if name.split(".")[0] in {"flask", "ldap3", "werkzeug"}))
"""


def test_the_daemon_starts_without_mitmproxys_web_framework_and_ldap_client():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
