"""A server that cannot be started twice is no error; what a second start shows is tested with a probe."""

from __future__ import annotations

from pathlib import Path

from proxy.probe.second_start import list_tools_again
from proxy.probe.sinkhole import Sinkhole, environment
from tests.support.system_needs import needs, needs_namespaces

pytestmark = [needs("ip", "unshare"), needs_namespaces]


async def test_a_server_that_does_not_answer_has_no_tools(tmp_path: Path) -> None:
    home, run = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    run.mkdir()
    sinkhole = Sinkhole(str(run), str(home), ("/bin/true",), environment(home, run, {}, "/bin"), "/", str(home))
    assert await list_tools_again(sinkhole, [], 30.0) == []
