"""What workers share: ids in use across processes, calls, and legacy endpoints; bounded, and gone with the proxy."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import SharedCallsUnavailableError
from proxy.store import shared_calls as module
from proxy.store.shared_calls import SharedCalls, open_shared_calls
from tests.gate.test_in_flight_json import WHOLE
from tests.support.gate_fixture import CONTEXT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return open_shared_calls(tmp_path)


def test_an_id_that_another_process_claims_is_taken_until_that_ends(folder: Path) -> None:
    ready, tell = os.pipe()
    if (pid := os.fork()) == 0:
        shared_calls = SharedCalls(folder)
        os.write(tell, b"1" if shared_calls.claim(CONTEXT, 1) and shared_calls.claim(CONTEXT, "1") else b"0")
        time.sleep(60)
        os._exit(0)
    shared_calls = SharedCalls(folder)
    assert os.read(ready, 1) == b"1"
    assert not shared_calls.claim(CONTEXT, 1)
    assert shared_calls.claim(CONTEXT, 2)
    assert shared_calls.claim(replace(CONTEXT, session="other"), 1)
    assert shared_calls.claim(replace(CONTEXT, server="other"), 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert shared_calls.claim(CONTEXT, 1), "a claim ends with its worker"
    shared_calls.release(CONTEXT, 1)
    shared_calls.close()
    for number in (ready, tell):
        os.close(number)


def test_a_call_is_found_by_session_and_typed_id_and_the_latest_counts(folder: Path) -> None:
    first, second = SharedCalls(folder), SharedCalls(folder)
    first.post(WHOLE)
    assert second.find(WHOLE.context, "7") == WHOLE
    assert second.find(WHOLE.context, 7) is None
    assert second.find(replace(WHOLE.context, session="x"), "7") is None
    first.post(replace(WHOLE, said="sk_live"))
    assert (found := second.find(WHOLE.context, "7"))
    assert found.said == "sk_live"
    first.post(replace(WHOLE, call_id="c2"))
    assert (found := second.find(WHOLE.context, "7"))
    assert found.call_id == "c2"
    assert [call.call_id for call in second.of_session(WHOLE.context)] == ["c1", "c2"]
    assert [second.end("c1"), first.end("c1"), first.end("none")] == [True, False, False]
    first.post(WHOLE)
    assert second.ended(["c1", "c2", "none"]) == {"c1", "none"}, "what has ended stays so"
    first.close()
    second.close()


def test_endpoints_are_shared(folder: Path) -> None:
    first, second = SharedCalls(folder), SharedCalls(folder)
    assert not second.is_endpoint("s", "/messages/1")
    first.add_endpoint("s", "/messages/1")
    first.add_endpoint("s", "/messages/1")
    assert second.is_endpoint("s", "/messages/1")
    assert not second.is_endpoint("t", "/messages/1")
    first.close()
    assert second.is_endpoint("s", "/messages/1")
    second.close()


def test_that_a_path_is_no_endpoint_is_read_once_until_another_process_adds_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ABSENT", 2)
    shared_calls = SharedCalls(folder)
    reads: list[str] = []
    run = shared_calls._run
    monkeypatch.setattr(shared_calls, "_run", lambda sql, *values: (reads.append(values[-1]), run(sql, *values))[1])
    assert not any(shared_calls.is_endpoint("s", path) for path in ("/a", "/a", "/b", "/a"))
    assert reads == ["/a", "/b", "/a"], "past the bound it begins anew"
    if (pid := os.fork()) == 0:
        SharedCalls(folder).add_endpoint("s", "/a")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert shared_calls.is_endpoint("s", "/a"), "another process has added it"
    (folder / "generation").write_bytes(b"")
    with pytest.raises(SharedCallsUnavailableError):
        SharedCalls(folder)


def test_endpoints_that_speak_mcp_are_shared_up_to_each_agents_share(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENDPOINTS_OF_AGENT", 2)
    monkeypatch.setattr(module, "MAX_ENDPOINTS", 4)
    first, second = SharedCalls(folder), SharedCalls(folder)
    for agent in ("a", "b", "c"):
        for number in range(3):
            first.add_mcp_endpoint("s", f"/{agent}{number}", agent)
    known = {
        f"{agent}{number}" for agent in "abc" for number in range(3) if second.is_mcp_endpoint("s", f"/{agent}{number}")
    }
    assert known == {"a0", "a1", "b0", "b1"}
    assert not second.is_mcp_endpoint("t", "/a0")
    first.close()
    second.close()


def test_what_is_kept_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLS", 3)
    monkeypatch.setattr(module, "PRUNE_EVERY", 10)
    monkeypatch.setattr(module, "MAX_ENDPOINTS", 2)
    shared_calls = SharedCalls(folder)
    for number in range(20):
        shared_calls.post(replace(WHOLE, call_id=f"c{number}"))
        shared_calls.add_endpoint("s", f"/{number}")
    assert [call.call_id for call in shared_calls.of_session(WHOLE.context)] == ["c17", "c18", "c19"]
    assert [shared_calls.is_endpoint("s", f"/{number}") for number in range(3)] == [True, True, False]
    shared_calls.close()


def test_a_start_finds_empty_files_for_its_owner_alone(tmp_path: Path, folder: Path) -> None:
    shared_calls = SharedCalls(folder)
    shared_calls.post(WHOLE)
    shared_calls.close()
    again = SharedCalls(open_shared_calls(tmp_path))
    assert again.find(WHOLE.context, "7") is None
    assert folder.stat().st_mode & 0o777 == 0o700
    again.close()


def test_files_that_are_broken_are_reported(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(SharedCallsUnavailableError):
        SharedCalls(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(SharedCallsUnavailableError):
        open_shared_calls(tmp_path / "file")
    shared_calls = SharedCalls(folder)
    shared_calls.post(WHOLE)
    shared_calls._run("UPDATE calls SET body = '{}'")
    with pytest.raises(SharedCallsUnavailableError, match="cannot be read"):
        shared_calls.find(WHOLE.context, "7")
    shared_calls.close()
    with pytest.raises(SharedCallsUnavailableError):
        shared_calls.post(WHOLE)
    with pytest.raises(SharedCallsUnavailableError):
        shared_calls.claim(CONTEXT, 1)


def test_the_first_owner_of_a_credential_stays_it_and_others_learn_of_it(folder):
    one, two = SharedCalls(folder), SharedCalls(folder)
    assert one.own_credential("d1", "first.io") == "first.io"
    assert two.own_credential("d1", "second.net") == "first.io"
    assert two.own_credential("d2", "second.net") == "second.net"
    assert one.new_credentials() == two.new_credentials() == [("d1", "first.io"), ("d2", "second.net")]
    assert one.new_credentials() == []
    one.close()
    with pytest.raises(SharedCallsUnavailableError):
        one.own_credential("d3", "x")
    two.close()


def test_credentials_are_bounded(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_CREDENTIALS", 5)
    shared_calls = SharedCalls(folder)
    for i in range(20):
        shared_calls.own_credential(str(i), "x")
    assert len(shared_calls.new_credentials()) == 5
    shared_calls.close()
