"""The client of the operators' API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.admin_api.client import RemoteReview
from proxy.core.proposals import State
from proxy.errors import ReviewError
from tests.admin_api.conftest import Served
from tests.support.proposal_fixture import new_proposal
from tests.support.timeouts import PATIENCE

ID = new_proposal().proposal_id


@pytest.fixture
def remote(served: Served) -> RemoteReview:
    return RemoteReview(served.admin_api.path, served.token, timeout=PATIENCE)


async def code_of(attempt) -> str:
    with pytest.raises(ReviewError) as refused:
        await attempt
    return refused.value.code


async def test_it_says_what_the_desk_says(remote: RemoteReview, served: Served) -> None:
    assert await remote.show(ID[:13]) == await served.world.review.show(ID)
    assert await remote.list([State.PENDING], 5) == await served.world.review.list([State.PENDING], 5)
    assert await remote.list([State.BLOCKED, State.REJECTED], 5) == []
    assert (await remote.approve(ID, "é right"))["operator_reason"] == "é right"
    assert (await remote.reject(ID, "on second thoughts"))["state"] == "rejected"


async def test_a_no_comes_with_the_desks_own_code_and_words(remote: RemoteReview, served: Served) -> None:
    with pytest.raises(ReviewError, match="there is no proposal 'nothing like it'") as refused:
        await remote.show("nothing like it")
    assert refused.value.code == "not_found"
    assert await code_of(remote.reject(ID, "")) == "reason_required"
    assert await code_of(RemoteReview(served.admin_api.path, served.agent_token).show(ID)) == "operator_auth"


@pytest.mark.parametrize("odd", ["", ".", "..", "?state=x", "#", "a/../b", "\ud800", "%2e%2e", "x" * 5000])
async def test_an_odd_id_is_an_id_and_no_path(odd: str, remote: RemoteReview, served: Served) -> None:
    assert await code_of(remote.approve(odd, "")) in ("not_found", "method_not_allowed")
    assert served.world.events == []


async def test_a_token_of_another_form_is_refused_here_already(served: Served) -> None:
    for token in ("a\r\nX: y", "é", "\ud800"):
        assert await code_of(RemoteReview(served.admin_api.path, token).list([], 1)) == "operator_auth"
    assert served.world.events == []


async def test_nobody_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReviewError, match=r"does not answer at .*gone\.sock .*No such file") as refused:
        await RemoteReview(tmp_path / "gone.sock", "t").show(ID)
    assert refused.value.code == "no_answer"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "no_answer"),
        (b"nonsense\r\n\r\n", "no_answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "no_answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "bad_answer"),
        (b"HTTP/1.1 204 OK\r\n\r\n", "bad_answer"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", "bad_answer"),
    ],
)
async def test_an_answer_that_is_none_is_never_taken_for_a_yes(answer: bytes, code: str, tmp_path: Path) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.write_eof()
        await reader.read()  # until the client has hung up, so that none of the answer is lost
        writer.close()

    async with await asyncio.start_unix_server(broken, tmp_path / "s"):
        assert await code_of(RemoteReview(tmp_path / "s", "t", timeout=PATIENCE).approve(ID, "")) == code


async def test_a_proxy_that_hangs_is_not_waited_for_without_end(tmp_path: Path) -> None:
    held = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    async with await asyncio.start_unix_server(silent, tmp_path / "s"):
        with pytest.raises(ReviewError, match="proposals show` whether it was done"):
            await RemoteReview(tmp_path / "s", "t", timeout=0.2).approve(ID, "")
        for writer in held:
            writer.close()
