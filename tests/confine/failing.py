"""`interlock` where one step of confining fails: `python -m tests.confine.failing STEP confine …`."""

from __future__ import annotations

import sys
from unittest import mock

from proxy import cli
from proxy.confine import launch
from proxy.sandbox import namespaces


def fail(*_: object, **__: object) -> None:
    raise namespaces.NamespaceError("what the test refuses")


def fail_oddly(*_: object, **__: object) -> None:
    raise RuntimeError("what the test breaks")


def main() -> None:
    step = sys.argv.pop(1)
    odd, name = step.startswith("!"), step.lstrip("!")
    module = launch if hasattr(launch, name) else namespaces
    with mock.patch.object(module, name, fail_oddly if odd else fail):
        cli.main()


if __name__ == "__main__":
    main()
