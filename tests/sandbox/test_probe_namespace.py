"""Where namespaces are refused it is said; what they hold is tested in a sinkhole (test_sinkhole.py)."""

from __future__ import annotations

import subprocess
import sys

from tests.support.harness import REPOSITORY
from tests.support.system_needs import needs, needs_namespaces

REFUSED = """
import sys; sys.path.insert(0, sys.argv[1])
from proxy.sandbox.namespaces import NamespaceError
from proxy.sandbox import probe_namespace
try:
    probe_namespace.isolate()
except NamespaceError as error:
    print(error)
"""


@needs("unshare", "setpriv")
@needs_namespaces
def test_a_refusal_of_the_system_is_told() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$@"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", forbid, "sh", sys.executable, "-I", "-c", REFUSED, str(REPOSITORY)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "namespaces: Operation not permitted" in done.stdout, done.stderr
