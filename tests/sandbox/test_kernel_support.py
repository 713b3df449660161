"""What a sandbox can hold here."""

from __future__ import annotations

from proxy.sandbox.kernel_support import KernelSupport, find_support
from proxy.sandbox.landlock import version
from tests.support.system_needs import needs_namespaces


@needs_namespaces
def test_this_system_is_asked():
    assert find_support() == KernelSupport(version(), namespaces=True)


def test_what_is_missing_is_said():
    assert str(KernelSupport(7, namespaces=True)) == "Landlock 7, user namespaces"
    assert "no Landlock" in str(KernelSupport(0, namespaces=True))
    assert "not be complete" in str(KernelSupport(7, namespaces=False))
