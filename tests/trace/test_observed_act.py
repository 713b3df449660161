"""Observations in the words of a policy."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.acts import Act
from proxy.trace.capability import Capability, Observation
from proxy.trace.observed_act import as_act

CONNECT, DNS, EXEC = Capability.NET_CONNECT, Capability.NET_DNS, Capability.PROC_EXEC


def seen(kind: Capability, action: str, **fields: Any) -> Observation:
    return Observation(kind, action, 1, 1.0, "line", **fields)


@pytest.mark.parametrize(
    ("observation", "act"),
    [
        (seen(Capability.FS_READ, "open", path="/x"), Act("fs.read", "open", "/x")),
        (
            seen(CONNECT, "connect", peer="10.0.0.1:443"),
            Act("net.connect", "connect", None, "10.0.0.1", 443),
        ),
        (seen(CONNECT, "connect", peer="[::1]:80"), Act("net.connect", "connect", None, "::1", 80)),
        (
            seen(CONNECT, "raw socket", peer="AF_PACKET"),
            Act("net.connect", "raw socket", None, "AF_PACKET"),
        ),
        (
            seen(DNS, "query", peer="10.0.0.2:53", name="a.example"),
            Act("net.dns", "query", None, "a.example"),
        ),
        (seen(Capability.IPC_UNIX, "connect", path="@x"), Act("ipc.unix", "connect", "@x")),
        (
            seen(EXEC, "exec", path="/bin/ls", argv=("ls", "-l")),
            Act("proc.exec", "exec", "/bin/ls", argv=("ls", "-l")),
        ),
        (
            seen(EXEC, "exec", argv=("ls", "x…")),
            Act("proc.exec", "exec", argv=("ls", "x…"), partial=True),
        ),
        (seen(Capability.FS_WRITE, "open", path="/x", error="EACCES"), Act("fs.write", "open", "/x", error="EACCES")),
    ],
)
def test_an_observation_is_an_act(observation: Observation, act: Act) -> None:
    assert as_act(observation) == act
