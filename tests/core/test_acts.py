"""Acts as they are recorded."""

from __future__ import annotations

from proxy.core.acts import Act


def test_an_act_is_recorded_with_what_it_has() -> None:
    assert Act("fs.read", "open", "/x").shown() == {"act": "fs.read", "action": "open", "path": "/x"}
    full = Act("proc.exec", "exec", "/bin/sh", argv=("sh", "…"), error="EACCES", partial=True)
    assert full.shown() == {
        "act": "proc.exec",
        "action": "exec",
        "path": "/bin/sh",
        "argv": ["sh", "…"],
        "error": "EACCES",
        "partial": True,
    }
