"""What a sandbox reports, in words. Real starts are in test_sandbox_exec."""

from __future__ import annotations

from proxy.sandbox.sandboxed_start import read_report

WHOLE = {"landlock": 7, "namespaces": True, "proc": True, "keyring": True}


def test_a_whole_sandbox_misses_nothing():
    report = read_report(WHOLE, {"processes": 5}, root=False)
    assert report.complete
    assert (report.landlock, report.namespaces, report.own_proc) == (7, True, True)


def test_what_is_missing_is_told():
    none = read_report({"landlock": 7, "missing": "a user namespace: refused"}, {}, root=False)
    assert none.missing == ("no namespaces (a user namespace: refused): Landlock and seccomp alone, no network",)
    assert "no /proc of its own" in read_report({**WHOLE, "proc": False}, {}, root=False).missing
    assert "no Landlock" in read_report({**WHOLE, "landlock": 0}, {}, root=False).missing[0]
    assert "root's processes" in read_report(WHOLE, {"processes": 5}, root=True).missing[0]
