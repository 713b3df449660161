"""A network of nothing but loopback."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.system_needs import needs_namespaces

pytestmark = needs_namespaces
SCRIPT = """
import json, os, socket
from proxy.sandbox import loopback
from proxy.sandbox.sandbox_exec import _enter_user_namespace
_enter_user_namespace(0, 0)
os.unshare(os.CLONE_NEWNET)
loopback.bring_up()
loopback.route_everything_here()
loopback.route_everything_here()
listeners = loopback.listen([443])
found = []
for address, family in (("203.0.113.9", socket.AF_INET), ("2001:db8::9", socket.AF_INET6)):
    made = socket.create_connection((address, 443), 5)
    accepted, _ = next(each for each in listeners if each.family == family)._accept()
    found.append(socket.socket(fileno=accepted).getsockname()[:2])
try:
    socket.create_connection(("203.0.113.9", 25), 5)
except OSError as error:
    found.append(type(error).__name__)
print(json.dumps(found))
"""


def test_a_listener_gets_every_connection_to_its_port_and_knows_where_it_was_for():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["203.0.113.9", 443], ["2001:db8::9", 443], "ConnectionRefusedError"]
